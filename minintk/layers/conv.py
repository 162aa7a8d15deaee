"""Conv2d, Conv1d:  y = m P(x) V(W) + c b         m, c: the multipliers of the parametrization

P(x) are the patches that the windows read, V(W) the weights laid out to match (`minintk.fast.patches`), both linear.
A sequence is an image of height 1.

jvp     dy = m P(dx) V(W) + m P(x) V(dW) + c db
vjp     dW = m V'(P(x)' u),   db = c sum u,   dx = m P'(u V(W)')
gram    sum over pairs of positions p, q of  (u_p . v_q) * (m^2 P_p(x) P_q(x')' + c^2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, on_host, scratch
from minintk.fast.blas import matmul_into
from minintk.fast.conv_gram import conv_gram
from minintk.fast.patches import Patches, images
from minintk.fast.threaded_matmul import sum_rows
from minintk.fast.threads import cores, parallel
from minintk.layers.contract import Contraction, Gram, Weights, bind, gram_and_back
from minintk.layers.layout import Tensor
from minintk.spec.parametrization import Parametrization, Role, Row
from minintk.spec.shapes import Shape, Site, out_shape
from minintk.spec.windows import Axis, axes


@dataclass(frozen=True)
class ConvJacobian:
    """Holds x : ([E], N, H, W, C) and V = m V(W) : ([E], K, B C_out); the patches are read again when needed."""

    layer: BoundConv
    x: Array
    V: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """dy = m P(dx) V(W) + m P(x) V(dW) + c db."""
        layer = self.layer
        dy = layer.product(self.x, layer.m * layer.patches.unroll(layer.weights(dw)), layer.bias_row(dw))
        if dx is not None:
            dy += layer.product(images(dx, layer.before), self.V, None)
        return dy

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """dW = m V'(P(x)' u), db = c sum u; dx = m P'(u V(W)')."""
        layer, patches = self.layer, self.layer.patches
        u = layer.rows_of(u)
        if dw is not None:
            dw[layer.W][...] = scaled(layer.m, patches.roll(self._weight_gradient(u))).reshape(dw[layer.W].shape)
            if layer.b is not None:
                row = sum_rows(u, layer.c)
                dw[layer.b][...] = row.reshape((*row.shape[:-1], patches.B, layer.shape[-1])).sum(axis=-2)
        return None if layer.first else self._input_gradient(u)

    def _weight_gradient(self, u: Array) -> Array:
        """P(x)' u : (..., K, B C_out), summed over chunks of examples."""
        patches, R = self.layer.patches, self.layer.patches.R
        shape = (*np.broadcast_shapes(self.x.shape[:-4], u.shape[:-2]), patches.K, u.shape[-1])

        def work(share: list[slice]) -> Array:
            total = array_namespace(u).empty(shape, dtype=u.dtype)
            for i, at in enumerate(share):
                P = patches.read(self.x[..., at, :, :, :], passing=True)
                part = scratch(u, shape, "gradient") if i else total
                matmul_into(P.swapaxes(-1, -2), u[..., rows(at, R), :], part)
                if i:
                    total += part
            return total

        parts = parallel(work, self.layer.shares(self.x))
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def _input_gradient(self, u: Array) -> Array:
        """P'(u V') : (..., N, *shape), chunk by chunk of examples."""
        layer, patches, R = self.layer, self.layer.patches, self.layer.patches.R
        N, V = u.shape[-2] // R, self.V.swapaxes(-1, -2)
        lead = np.broadcast_shapes(u.shape[:-2], V.shape[:-2])
        if V.ndim == 2:  # one product for all leading axes
            u = u.reshape((-1, u.shape[-1]))
        image = (patches.rows.size, patches.columns.size, patches.channels[0])
        shape = (u.shape[-2] // R, *image) if V.ndim == 2 else (*lead, N, *image)
        dx = array_namespace(u).empty(shape, dtype=u.dtype)

        def work(share: list[slice]) -> None:
            for at in share:
                part = u[..., rows(at, R), :]
                P = scratch(u, (*dx.shape[:-4], part.shape[-2], patches.K), "patches")
                matmul_into(part, V, P)
                patches.add(P, dx[..., at, :, :, :])

        parallel(work, layer.shares(dx))
        return dx.reshape((*lead, N, *layer.before))

    def gram(self, u: Array, other: ConvJacobian, v: Array, kernel: Contraction) -> Gram:
        """By each example's gradients of the weights, or by pairs of positions, whichever costs less."""
        return gram_and_back(self, u, other, v, conv_gram(self, u, other, v, kernel))


def scaled(m: float, a: Array) -> Array:
    """m a; a itself where m = 1."""
    return a if m == 1 else m * a


def rows(at: slice, R: int) -> slice:
    """The rows of P that belong to these images."""
    return slice(at.start * R, at.stop * R)


WORTH_THREADS = 2**25
"""Multiplications below which one core is done before a second has started."""


@dataclass(frozen=True)
class BoundConv:
    """A convolution in its place: tensor names W and b (None: no bias), their rows, shapes, and whether it is first."""

    W: str
    b: str | None
    weight: Row
    bias: Row
    shape: Shape
    before: Shape
    after: Shape
    patches: Patches
    first: bool

    @property
    def m(self) -> float:
        return float(self.weight.multiplier)

    @property
    def c(self) -> float:
        return float(self.bias.multiplier)

    @property
    def windows(self) -> Patches:
        """Window by window, B = 1."""
        return replace(self.patches, B=1, phases=1)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        weight = Tensor(self.W, self.shape, self.weight)
        return (weight,) if self.b is None else (weight, Tensor(self.b, self.shape[-1:], self.bias))

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.after,)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ConvJacobian]:
        """y = m P(x) V(W) + c b."""
        x, V = images(x, self.before), scaled(self.m, self.patches.unroll(self.weights(w)))
        return self.product(x, V, self.bias_row(w)), ConvJacobian(self, x, V)

    def weights(self, w: Weights) -> Array:
        """W : (..., K_h, K_w, C, C_out)."""
        W = w[self.W]
        return W if len(self.shape) == 4 else W.reshape((*W.shape[:-3], 1, *W.shape[-3:]))

    def bias_row(self, w: Weights) -> Array | None:
        """c b for each of the B windows of a row of P : (..., 1, B C_out)."""
        if self.b is None:
            return None
        b = (self.c * w[self.b])[..., None, :]
        row = array_namespace(b).broadcast_to(b, (*b.shape[:-2], self.patches.B, b.shape[-1]))
        return row.reshape((*b.shape[:-2], 1, -1))

    def rows_of(self, u: Array) -> Array:
        """u : (..., N, *after) as rows (..., N R, B C_out)."""
        n = len(self.after)
        return u.reshape((*u.shape[: -n - 1], u.shape[-n - 1] * self.patches.R, self.patches.B * self.shape[-1]))

    def shares(self, x: Array) -> list[list[slice]]:
        """The examples in chunks, the chunks dealt out to the cores."""
        N = int(x.shape[-4])
        few = max(1, -(-N // self.patches.step(x)))
        chunks = [slice(i * N // few, (i + 1) * N // few) for i in range(few)]
        worth = N * self.patches.R * self.patches.K * self.patches.B * self.shape[-1] >= WORTH_THREADS
        count = min(cores(), len(chunks)) if worth and on_host(array_namespace(x)) else 1
        return [chunks[i * len(chunks) // count : (i + 1) * len(chunks) // count] for i in range(count)]

    def product(self, x: Array, V: Array, b: Array | None) -> Array:
        """P(x) V + b : (..., N, *after), chunk by chunk of examples."""
        patches, R, N = self.patches, self.patches.R, x.shape[-4]
        lead = np.broadcast_shapes(x.shape[:-4], V.shape[:-2])
        if V.ndim == 2:  # one product for all leading axes
            x = x.reshape((-1, *x.shape[-3:]))
        shape = (x.shape[-4] * R, V.shape[-1]) if V.ndim == 2 else (*lead, N * R, V.shape[-1])
        y = array_namespace(x).empty(shape, dtype=x.dtype)

        def work(share: list[slice]) -> None:
            for at in share:
                z = y[..., rows(at, R), :]
                matmul_into(patches.read(x[..., at, :, :, :], passing=True), V, z)
                if b is not None:
                    z += b

        parallel(work, self.shares(x))
        return y.reshape((*lead, N, *self.after))


@bind.register(s.Conv2d)
@bind.register(s.Conv1d)
def _(layer: s.Conv2d | s.Conv1d, site: Site, parametrization: Parametrization, name: str) -> BoundConv:
    spatial, C, n = axes(layer, site.shape), site.shape[-1], int(layer.channels)
    kernel = tuple(a.kernel for a in spatial)
    window = prod(kernel)
    fan_in = window * C
    weight = parametrization.row(Role("weight", site.place, window), fan_in, n, float(layer.w_std))
    bias = parametrization.row(Role("bias", site.place, window), fan_in, n, float(layer.b_std))
    if layer.b_init == "zeros":
        bias = replace(bias, std=0.0)
    down, right = spatial if len(spatial) == 2 else (Axis(1, 1), spatial[0])
    return BoundConv(
        f"{name}.W", None if layer.b_std == 0 else f"{name}.b", weight, bias, (*kernel, C, n), site.shape,
        out_shape(layer, site.shape), Patches.of(down, right, (C, n)), site.first,
    )  # fmt: skip
