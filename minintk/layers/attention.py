"""Compute attention, and means that ignore padding.

GlobalSelfAttention chains three maps: x to concatenated keys k, queries q and values v; the heads; and a Dense layer at
each position.  A head with L positions and c = 1/d_k or 1/sqrt(d_k), where k has d_k channels, computes

    G = c q k'     A = zeta(G)     y = A v
    jvp            dA = zeta'(G) c (dq k' + q dk'), for softmax A * (dG - sum_t A dG);     dy = dA v + A dv
    vjp            uA = u v',   uG = the map dG -> dA applied to uA,   uq = c uG k,   uk = c uG' q,   uv = A' u

MaskedAvgPool  y = sum_t m_t x_t / sum_t m_t, m_t = 0 if x_t is padding, else 1    dx_t = m_t u / sum m
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.combine import BoundChain, place
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape


@dataclass(frozen=True)
class HeadsJacobian(LayerJacobian):
    """The Jacobian at k, q, v : ([E], N, h, L, d).  A, zeta'(G) : ([E], N, h, L, L); zeta'(G) is None for softmax."""

    layer: BoundHeads
    k: Array
    q: Array
    v: Array
    A: Array
    slope: Array | None

    def weights(self, dG: Array) -> Array:
        """Return dA for dG, or uG for uA.  The same map gives both, because it is symmetric."""
        if self.slope is not None:
            return self.slope * dG
        dA = self.A * dG
        dA -= self.A * dA.sum(axis=-1, keepdims=True)
        return dA

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dG = c (dq k' + q dk'),   dy = dA v + A dv."""
        if dx is None:
            return None
        *read, dv = self.layer.split(dx, *self.layer.sizes)
        dk, dq = read[0], read[-1]
        dA = self.weights(self.layer.c * (dq @ self.k.swapaxes(-1, -2) + self.q @ dk.swapaxes(-1, -2)))
        return self.layer.merge(dA @ self.v + self.A @ dv)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute uA = u v',   uq = c uG k,   uk = c uG' q,   uv = A' u."""
        (u,) = self.layer.split(u, self.v.shape[-1])
        uG = self.layer.c * self.weights(u @ self.v.swapaxes(-1, -2))
        uk, uq, uv = uG.swapaxes(-1, -2) @ self.q, uG @ self.k, self.A.swapaxes(-1, -2) @ u
        return self.layer.merge(*((uk, uq) if len(self.layer.sizes) == 3 else (uk + uq,)), uv)


@dataclass(frozen=True)
class BoundHeads:
    """Attention with h heads.  Keys, queries and values are concatenated; queries are omitted if they equal the keys.

    sizes : channels per head of keys, queries and values.  grid : (L,) or (H, W).  zeta : activation, None for softmax.
    """

    heads: int
    sizes: tuple[int, ...]
    grid: Shape
    c: float
    zeta: Pointwise | None
    masked: bool
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, HeadsJacobian]:
        """Compute y = A v, A = zeta(c q k')."""
        *read, v = self.split(x, *self.sizes)
        k, q = read[0], read[-1]
        seen = array_namespace(v).any(v != 0, axis=(-3, -1)) if self.masked else None
        A, slope = attention(self.c * (q @ k.swapaxes(-1, -2)), self.zeta, seen)
        return self.merge(A @ v), HeadsJacobian(self, k, q, v, A, slope)

    def split(self, a: Array, *sizes: int) -> list[Array]:
        """Split (..., *grid, h d_1 + h d_2 + ...) into (..., h, L, d_1), (..., h, L, d_2), ..."""
        h, lead = self.heads, a.shape[: a.ndim - len(self.grid) - 1]
        a = a.reshape((*lead, prod(self.grid), a.shape[-1]))
        ends = [h * sum(sizes[:i]) for i in range(len(sizes) + 1)]
        parts = (a[..., i:j] for i, j in pairwise(ends))
        return [b.reshape((*b.shape[:-1], h, b.shape[-1] // h)).swapaxes(-2, -3) for b in parts]

    def merge(self, *parts: Array) -> Array:
        """Invert `split`."""
        rows = [a.swapaxes(-2, -3) for a in parts]
        rows = [a.reshape((*a.shape[:-3], *self.grid, a.shape[-2] * a.shape[-1])) for a in rows]
        return array_namespace(*rows).concat(rows, axis=-1) if len(rows) > 1 else rows[0]


def attention(G: Array, zeta: Pointwise | None, seen: Array | None) -> tuple[Array, Array | None]:
    """Return (A, zeta'(G)), or (A, None) for softmax; G : (..., N, h, L, L).  seen : (..., N, L), False for padding."""
    xp = array_namespace(G)
    pairs = None if seen is None else seen[..., None, :, None] & seen[..., None, None, :]
    if zeta is not None:
        A, slope = zeta.phi(xp, G), zeta.derivative(xp, G)
        return (A, slope) if pairs is None else (A * pairs, slope * pairs)
    G = G if pairs is None else xp.where(pairs, G, -xp.inf)
    top = xp.max(G, axis=-1, keepdims=True)
    A = xp.exp(G - xp.where(xp.isfinite(top), top, 0.0))  # 0 in the rows of padding
    total = xp.sum(A, axis=-1, keepdims=True)
    return A / xp.where(total > 0, total, 1.0), None


def reading(layer: s.GlobalSelfAttention, site: Site) -> tuple[tuple[s.Convolution, ...], s.Convolution, Site, Site]:
    """Return (layers for keys, queries and values; output layer; site of the former; site of the latter)."""
    *read, output = layer.parts(site.shape)
    before = replace(site, last=False, end=False)
    return tuple(read), output, before, replace(site, shape=out_shape(read[-1], site.shape), first=False)


@bind.register
def _(layer: s.GlobalSelfAttention, site: Site, parametrization: Parametrization, name: str) -> BoundChain:
    read, output, before, after = reading(layer, site)
    d_k, d_v = (int(size) for size in layer.sizes)
    sizes = (*(d_k,) * (len(read) - 1), d_v)
    c, zeta = 1 / d_k if len(sizes) == 2 else d_k**-0.5, None if layer.zeta == "softmax" else pointwise(layer.zeta)
    heads = BoundHeads(int(layer.heads), sizes, site.shape[:-1], c, zeta, layer.masked)
    first = place(s.Concat(*read), before, parametrization, f"{name}.in")
    return BoundChain((first, heads, place(output, after, parametrization, f"{name}.output")))


@out_shape.register
def _(layer: s.GlobalSelfAttention, shape: Shape) -> Shape:
    return out_shape(layer.parts(shape)[-1], shape)


# -------------------------------------------------------------------------------------------- MaskedAvgPool


@dataclass(frozen=True)
class MaskedAvgPoolJacobian(LayerJacobian):
    """The Jacobian of MaskedAvgPool.  It stores m / sum m, ([E], N, *grid, 1)."""

    share: Array
    axes: tuple[int, ...]

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = sum_t m_t dx_t / sum m."""
        return None if dx is None else (self.share * dx).sum(axis=self.axes)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute dx_t = m_t u / sum m."""
        return self.share * u.reshape((*u.shape[:-1], *(1 for _ in self.axes), u.shape[-1]))


@dataclass(frozen=True)
class BoundMaskedAvgPool:
    """A MaskedAvgPool layer bound to a network."""

    axes: tuple[int, ...]
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, MaskedAvgPoolJacobian]:
        """Compute y = sum_t m_t x_t / sum m."""
        xp = array_namespace(x)
        m = xp.astype(xp.any(x != 0, axis=-1, keepdims=True), x.dtype)
        share = m / xp.maximum(m.sum(axis=self.axes, keepdims=True), 1)
        return (share * x).sum(axis=self.axes), MaskedAvgPoolJacobian(share, self.axes)


@out_shape.register
def _(layer: s.MaskedAvgPool, shape: Shape) -> Shape:
    return out_shape(s.GlobalAvgPool(), shape)


@bind.register
def _(layer: s.MaskedAvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundMaskedAvgPool:
    return BoundMaskedAvgPool(tuple(range(-len(site.shape), -1)))
