"""Compute Conv2d and Conv1d:  y = m P(x) W + c b         m, c: the multipliers of the parametrization

P(x) has one row per window: the patch that the window reads (`minintk.layers.patches`).  W is a matrix (K_h K_w C_in,
C_out).  A convolution is thus a Dense layer that acts on every patch.  S_W, S_b : scales of J S J'.

jvp     dy = m P(dx) W + m P(x) dW + c db
vjp     dW = m P(x)' u,   db = c sum u over examples and windows,   dx = m P'(u W')
gram    S_W m^2 dW_n . dW'_l + S_b c^2 db_n . db'_l,   dW_n = P(x_n)' u_n,   db_n = sum u_n   (dW', db': other batch)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minintk import spec as s
from minintk.arrays import Array, array_namespace, matmul_into, rows_times
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, WeightAndBias, Weights, bind, weight_and_bias
from minintk.layers.patches import Windows, images
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape


def sum_rows(u: Array, c: float) -> Array:
    """Return c times the sum of u over rows, (..., n).  A matrix product is faster and more accurate than sum()."""
    row = array_namespace(u).full((1, u.shape[-2]), c, dtype=u.dtype)
    return (row @ u)[..., 0, :]


@dataclass(frozen=True)
class ConvJacobian(LayerJacobian):
    """The Jacobian at x : ([E], N, H, W, C) and W : ([E], K_h K_w C_in, C_out).  Patches are extracted when needed."""

    layer: BoundConv
    x: Array
    W: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """Compute dy = m P(dx) W + m P(x) dW + c db."""
        layer, p = self.layer, self.layer.parameters
        dy = rows_times(layer.windows.read(self.x), layer.matrix(dw))
        if dx is not None:
            dy += rows_times(layer.windows.read(images(dx, layer.before)), self.W)
        dy *= p.m
        if p.b is not None:
            dy += p.c * dw[p.b.name][..., None, :]
        return layer.as_images(dy)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Compute dW = m P(x)' u,   db = c sum u,   dx = m P'(u W')."""
        layer, p = self.layer, self.layer.parameters
        u = layer.as_rows(u)
        if dw is not None:
            matmul_into(layer.windows.read(self.x).swapaxes(-1, -2), p.m * u, layer.matrix(dw))
            if p.b is not None:
                dw[p.b.name][...] = sum_rows(u, p.c)
        if p.ends_sweep:
            return None
        dx = layer.windows.add(rows_times(u, self.W.swapaxes(-1, -2)))
        dx *= p.m
        return dx.reshape((*dx.shape[:-3], *layer.before))

    def gram(self, u: Array, other: ConvJacobian, v: Array, kernel: Contraction) -> Array | float:
        """Compute S_W m^2 dW_n . dW'_l + S_b c^2 db_n . db'_l in blocks of channels, to save memory."""
        same, K = other is self and v is u, prod(self.layer.parameters.W.shape[:-1])
        w2, b2 = self.layer.parameters.squares(kernel)
        P, u = self.each_example(u)
        Q, v = (P, u) if same else other.each_example(v)
        G: Array | float = 0.0
        step = max(1, u.shape[-2] * u.shape[-1] // K)
        for o in range(0, u.shape[-1], step):
            dW = flat(P @ u[..., o : o + step])
            G = G + kernel(dW, dW if same else flat(Q @ v[..., o : o + step]), w2)
        if b2:
            db = u.sum(axis=-2)
            G = G + kernel(db, db if same else v.sum(axis=-2), b2)
        return G

    def each_example(self, u: Array) -> tuple[Array, Array]:
        """Return P(x)' : ([E], N, K_h K_w C_in, windows) and u : (C, [E], N, windows, C_out)."""
        N, R, n = self.x.shape[-4], prod(self.layer.windows.out), self.layer.after[-1]
        shape = (u.shape[0], *self.W.shape[:-2], N, *self.layer.after)
        u = array_namespace(u).broadcast_to(u, shape).reshape((*shape[: -len(self.layer.after)], R, n))
        P = self.layer.windows.read(self.x)
        return P.reshape((*P.shape[:-2], N, R, P.shape[-1])).swapaxes(-1, -2), u


def flat(dW: Array) -> Array:
    """Reshape (..., K, n) to (..., K n)."""
    return dW.reshape((*dW.shape[:-2], -1))


@dataclass(frozen=True)
class BoundConv:
    """A convolution bound to a network, with its tensors, windows, and input and output shapes for one example."""

    parameters: WeightAndBias
    windows: Windows
    before: Shape
    after: Shape

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.parameters.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ConvJacobian]:
        """Compute y = m P(x) W + c b."""
        p, x, W = self.parameters, images(x, self.before), self.matrix(w)
        y = rows_times(self.windows.read(x), W)
        y *= p.m
        if p.b is not None:
            y += p.c * w[p.b.name][..., None, :]
        return self.as_images(y), ConvJacobian(self, x, W)

    def matrix(self, w: Weights) -> Array:
        """Return a view of W as a matrix ([E], K_h K_w C_in, C_out)."""
        W, (*window, n) = w[self.parameters.W.name], self.parameters.W.shape
        return W.reshape((*W.shape[: W.ndim - len(window) - 1], prod(window), n))

    def as_images(self, y: Array) -> Array:
        """Reshape (..., N windows, C_out) to (..., N, *after)."""
        return y.reshape((*y.shape[:-2], y.shape[-2] // prod(self.windows.out), *self.after))

    def as_rows(self, u: Array) -> Array:
        """Reshape (..., N, *after) to (..., N windows, C_out)."""
        *lead, N = u.shape[: u.ndim - len(self.after)]
        return u.reshape((*lead, N * prod(self.windows.out), self.after[-1]))


@bind.register
def _(layer: s.Convolution, site: Site, parametrization: Parametrization, name: str) -> BoundConv:
    windows, after = Windows.of(layer, site.shape), out_shape(layer, site.shape)
    window = windows.window if len(site.shape) == 3 else windows.window[1:]
    shape = (*window, site.shape[-1], int(layer.channels))
    return BoundConv(weight_and_bias(layer, site, parametrization, name, shape), windows, site.shape, after)
