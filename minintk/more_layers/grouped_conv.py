"""Compute GroupedConv2d:  y_g = m P_g(x) W_g + c b_g     for each group g of channels; m, c: multipliers

P_g(x) : (N R, K i) contains the patches that windows read from the channels of group g.  Each image has R windows of K
pixels and i channels.  W_g : (K i, o) gives o output channels.  With a dilation d, windows read every d-th pixel.

jvp     dy_g = m P_g(dx) W_g + m P_g(x) dW_g + c db_g
vjp     dW_g = m P_g(x)' u_g,   db = c sum u,   dx_g = m P_g'(u_g W_g')
gram    S_W m^2 sum_g dW_gn . dW'_gl + S_b c^2 db_n . db'_l

Here dW_gn = P_g(x_n)' u_gn and db_n = sum u_n belong to example n, and dW'_gl, db'_l to example l of the other batch.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import prod
from typing import Literal

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, WeightAndBias, Weights, bind, weight_and_bias
from minintk.layers.conv import BoundConv, sum_rows
from minintk.layers.patches import Index, Windows
from minintk.models.taylor import expand
from minintk.spec.checks import check_scales, check_sizes, check_windows
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape
from minintk.validate import whole


@dataclass(frozen=True)
class GroupedConv2d(s.Layer):
    """z[p] = w_std / sqrt(fan_in) * sum_s x_g[stride p + dilation s] W[s] + b_std * b,   fan_in = K K C_in / groups.

    Output channel o belongs to group g = floor(o groups / channels).  It reads only the g-th of `groups` equal slices
    of the input channels.  W : (K, K, C_in / groups, channels).  A depthwise convolution has groups = C_in.

    channels, kernel_size, stride, padding, w_std, b_std, b_init : as for `minintk.Conv2d`.  `analytic` has no kernel
    for it.  groups : a common divisor of C_in and `channels`.  dilation : a number or a pair; 1 means no dilation.

    (N, H, W, C_in) -> (N, H', W', channels).  Raises ValueError for sizes below 1, and for groups that do not divide
    C_in and `channels`.  See Xie et al. 2017 (ResNeXt); Yu, Koltun 2016 (dilation).

    >>> out_shape(GroupedConv2d(16, 3, groups=8, stride=2, padding=1), (32, 32, 8))
    (16, 16, 16)
    """

    weights = True
    axes = (2,)
    channels: int
    kernel_size: s.Size = 3
    _: KW_ONLY
    groups: int = 1
    dilation: s.Size = 1
    stride: s.Size = 1
    padding: s.Padding = "same"
    w_std: float = 1.0
    b_std: float = 0.0
    b_init: Literal["normal", "zeros"] = "normal"

    def __post_init__(self) -> None:
        name = "GroupedConv2d"
        whole(f"{name}(channels=...)", self.channels)
        whole(f"{name}(groups=...)", self.groups)
        check_windows(self, "kernel_size")
        check_sizes(name, "dilation", self.dilation, self.axes)
        check_scales(name, self.w_std, self.b_std, self.b_init)
        if self.channels % self.groups:
            raise ValueError(f"{name}(groups={self.groups}) expects channels that it divides, got {self.channels}")

    @property
    def window(self) -> tuple[int, int]:
        """Return the numbers of pixels that a window reads along H and along W."""
        return pair(self.kernel_size)

    @property
    def span(self) -> s.Conv2d:
        """Return the convolution without groups and dilation whose windows have the same extent."""
        reach = tuple(d * (k - 1) + 1 for d, k in zip(pair(self.dilation), self.window, strict=True))
        scales = {"w_std": self.w_std, "b_std": self.b_std, "b_init": self.b_init}
        return s.Conv2d(self.channels, reach, stride=self.stride, padding=self.padding, **scales)  # type: ignore[arg-type]


def pair(size: s.Size) -> tuple[int, int]:
    """Return (along H, along W) for a size given as one number or as a pair."""
    down, right = size if isinstance(size, tuple) else (size, size)
    return int(down), int(right)


@out_shape.register
def _(layer: GroupedConv2d, shape: Shape) -> Shape:
    if shape[-1] % layer.groups:
        raise ValueError(f"{layer!r} expects channels that its groups divide, got examples of shape {shape}")
    return out_shape(layer.span, shape)


@dataclass(frozen=True)
class GroupedConvJacobian(LayerJacobian):
    """The Jacobian at x : ([E], N, H, W, C) and W : ([E], groups, K i, o).  Patches are extracted when needed."""

    layer: BoundGroupedConv
    x: Array
    W: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """Compute dy_g = m P_g(dx) W_g + m P_g(x) dW_g + c db_g."""
        layer, p = self.layer, self.layer.parameters
        dy = layer.read(self.x) @ layer.by_group(dw[p.W.name])
        if dx is not None:
            dy = dy + layer.read(dx) @ self.W
        return layer.as_images(dy, None if p.b is None else dw[p.b.name])

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Compute dW_g = m P_g(x)' u_g,   db = c sum u,   dx_g = m P_g'(u_g W_g')."""
        layer, p = self.layer, self.layer.parameters
        rows = layer.as_rows(u)
        if dw is not None:
            dw[p.W.name][...] = p.m * layer.as_weight(layer.read(self.x).swapaxes(-1, -2) @ rows)
            if p.b is not None:
                dw[p.b.name][...] = sum_rows(u.reshape((*u.shape[:-4], -1, u.shape[-1])), p.c)
        return None if p.ends_sweep else p.m * layer.add(rows @ self.W.swapaxes(-1, -2))

    def gram(self, u: Array, other: GroupedConvJacobian, v: Array, kernel: Contraction) -> Array | float:
        """Compute S_W m^2 sum_g dW_gn . dW'_gl + S_b c^2 db_n . db'_l in blocks of groups, to save memory."""
        same, layer = other is self and v is u, self.layer
        W, b = layer.parameters.squares(kernel)
        P, u = self.each_example(u)
        Q, v = (P, u) if same else other.each_example(v)
        G: Array | float = 0.0
        step = max(1, prod(layer.after) // prod(self.W.shape[-2:]))
        for g in range(0, layer.groups, step):
            at = (..., slice(g, g + step), slice(None), slice(None))
            dW = flat(P[at].swapaxes(-1, -2) @ u[at])
            G = G + kernel(dW, dW if same else flat(Q[at].swapaxes(-1, -2) @ v[at]), W)
        if b:
            db, db2 = (a.sum(axis=-2).reshape((*a.shape[:-3], -1)) for a in (u, v))
            G = G + kernel(db, db if same else db2, b)
        return G

    def each_example(self, u: Array) -> tuple[Array, Array]:
        """Return P(x) : ([E], N, groups, R, K i) and u : (C, [E], N, groups, R, o)."""
        layer, N, R = self.layer, self.x.shape[-4], prod(self.layer.after[:-1])
        u = array_namespace(u).broadcast_to(u, (u.shape[0], *self.W.shape[:-3], N, *layer.after))
        u = u.reshape((*u.shape[:-3], R, layer.groups, -1)).swapaxes(-2, -3)
        P = layer.read(self.x)
        P = P.reshape((*P.shape[:-2], N, R, P.shape[-1]))
        return array_namespace(P).moveaxis(P, -4, -3), u


def flat(dW: Array) -> Array:
    """Reshape (..., groups, K i, o) to (..., groups K i o)."""
    return dW.reshape((*dW.shape[:-3], -1))


@dataclass(frozen=True)
class BoundGroupedConv:
    """A grouped convolution bound to a network.  windows : undilated windows of the same extent."""

    parameters: WeightAndBias
    windows: Windows
    groups: int
    dilation: tuple[int, int]
    before: Shape
    after: Shape

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.parameters.tensors

    @cached_property
    def places(self) -> list[Index]:
        """Return an index for each position s in a window, row by row.  It selects pixel s of every window."""
        down, right = (
            [axis.along(k) for k in range(0, axis.kernel, d)]
            for axis, d in zip((self.windows.rows, self.windows.columns), self.dilation, strict=True)
        )
        return [(..., i, j, slice(None)) for i in down for j in right]

    def __call__(self, w: Weights, x: Array) -> tuple[Array, GroupedConvJacobian]:
        """Compute y_g = m P_g(x) W_g + c b_g."""
        p, W = self.parameters, self.by_group(w[self.parameters.W.name])
        y = self.as_images(self.read(x) @ W, None if p.b is None else w[p.b.name])
        return y, GroupedConvJacobian(self, x, W)

    def read(self, x: Array) -> Array:
        """Return the patches P(x) : (..., groups, N R, K i)."""
        xp, x = array_namespace(x), self.windows.pad(x)
        P = xp.stack([x[pixels] for pixels in self.places], axis=-2)  # (..., N, H', W', K, C)
        *lead, N, H, W, K, C = P.shape
        P = xp.moveaxis(P.reshape((*lead, N * H * W, K, self.groups, C // self.groups)), -2, -4)
        return P.reshape((*lead, self.groups, N * H * W, K * C // self.groups))

    def add(self, P: Array) -> Array:
        """Apply the transpose of `read`: add every entry of P to the pixel from which it was read."""
        xp, (H, W, _), C, K = array_namespace(P), self.after, self.before[-1], len(self.places)
        lead, N = P.shape[:-3], P.shape[-2] // (H * W)
        P = xp.moveaxis(P.reshape((*lead, self.groups, N, H, W, K, C // self.groups)), -6, -2)
        P = P.reshape((*lead, N, H, W, K, C))
        canvas = xp.zeros((*lead, N, *self.windows.size, C), dtype=P.dtype)
        for k, pixels in enumerate(self.places):
            canvas[pixels] += P[..., k, :]
        return self.windows.crop(canvas)

    def by_group(self, W: Array) -> Array:
        """Reshape ([E], *window, i, groups o) to ([E], groups, K i, o)."""
        lead, rows = W.shape[:-4], prod(W.shape[-4:-1])
        return W.reshape((*lead, rows, self.groups, W.shape[-1] // self.groups)).swapaxes(-2, -3)

    def as_weight(self, W: Array) -> Array:
        """Reshape ([E], groups, K i, o) to ([E], *window, i, groups o)."""
        return W.swapaxes(-2, -3).reshape((*W.shape[:-3], *self.parameters.W.shape))

    def as_images(self, y: Array, b: Array | None) -> Array:
        """Return m y + c b, with y reshaped from (..., groups, N R, o) to (..., N, *after)."""
        p, (H, W, n) = self.parameters, self.after
        y = p.m * y.swapaxes(-2, -3).reshape((*y.shape[:-3], y.shape[-2] // (H * W), H, W, n))
        return y if b is None else y + p.c * b[..., None, None, None, :]

    def as_rows(self, u: Array) -> Array:
        """Reshape (..., N, *after) to (..., groups, N R, o)."""
        *lead, N, H, W, n = u.shape
        return u.reshape((*lead, N * H * W, self.groups, n // self.groups)).swapaxes(-2, -3)


@bind.register
def _(layer: GroupedConv2d, site: Site, parametrization: Parametrization, name: str) -> BoundGroupedConv:
    span, after, groups = layer.span, out_shape(layer, site.shape), int(layer.groups)
    shape = (*layer.window, site.shape[-1] // groups, int(layer.channels))
    parameters = weight_and_bias(span, site, parametrization, name, shape)
    windows = Windows.of(span, site.shape)
    return BoundGroupedConv(parameters, windows, groups, pair(layer.dilation), site.shape, after)


expand.register(BoundGroupedConv, expand.dispatch(BoundConv))
