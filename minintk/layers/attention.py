"""Self-attention on a sequence of L positions, and the mean over those that are no padding.

For each head, with keys k, queries q and values v, (L, d), that are Dense on every position, and c = 1/d_k or
1/sqrt(d_k):

    G = c q k'     A = zeta(G)     y = A v, the heads side by side, then Dense on every position

jvp     dG = c (dq k' + q dk')     dA = zeta'(G) dG, softmax: A * (dG - sum_t A dG)     dy = dA v + A dv
vjp     uA = u v',   uG = the same map of uA,   uv = A' u,   uq = c uG k,   uk = c uG' q
gram    those of keys, queries, values and outputs, of cotangents at each; S m^2 (L' u . L' u') for embeddings E

Keys and queries read x + m R^(1/2) E with position embeddings.  Padding: `minintk.spec.sequences`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_library
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.combine import place
from minintk.layers.contract import Bound, Contraction, LayerJacobian, Tensor, Weights, bind
from minintk.layers.conv import flat
from minintk.spec.parametrization import Parametrization, Role
from minintk.spec.shapes import Shape, Site, out_shape


class Heads(NamedTuple):
    """Keys, queries and values of all heads, ([E], N, h, L, d); cotangents or tangents of them, likewise."""

    key: Array
    query: Array
    value: Array


@dataclass(frozen=True)
class AttentionJacobian(LayerJacobian):
    """Holds the parts' Jacobians, keys, queries and values, A, and zeta'(G) (None: softmax), ([E], N, h, L, L)."""

    layer: BoundAttention
    parts: dict[str, Any]  # Jacobians of convolutions
    heads: Heads
    A: Array
    slope: Array | None

    def weights(self, dG: Array) -> Array:
        """dA for dG, and uG for uA: the map is its own transpose."""
        if self.slope is not None:
            return self.slope * dG
        dA = self.A * dG
        dA -= self.A * array_namespace(dA).sum(dA, axis=-1, keepdims=True)
        return dA

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """dG = c (dq k' + q dk'),   dy = dA v + A dv."""
        layer, (k, q, v) = self.layer, self.heads
        dx = None if dx is None else layer.sequence(dx)
        dE, nothing = layer.embedded(dw), array_namespace(k).zeros((k.shape[-4], 1, 1), dtype=k.dtype)
        read = dx if dE is None else dE + (nothing if dx is None else dx)
        dk, dv = layer.split(self.parts["key"].jvp(dw, read)), layer.split(self.parts["value"].jvp(dw, dx))
        dq = layer.split(self.parts["query"].jvp(dw, read)) if "query" in self.parts else dk
        dA = self.weights(layer.c * (dq @ k.swapaxes(-1, -2) + q @ dk.swapaxes(-1, -2)))
        return layer.shaped(self.parts["output"].jvp(dw, merged(dA @ v + self.A @ dv)))

    def back(self, u: Array, dw: Weights | None) -> dict[str, Array]:
        """Cotangents at the outputs of the parts: uA = u v',  uv = A' u,  uq = c uG k,  uk = c uG' q."""
        layer, (k, q, v) = self.layer, self.heads
        u = layer.sequence(u)
        heads = layer.split(self.parts["output"].vjp(u, dw))
        uG = layer.c * self.weights(heads @ v.swapaxes(-1, -2))
        uv, uq, uk = (merged(a) for a in (self.A.swapaxes(-1, -2) @ heads, uG @ k, uG.swapaxes(-1, -2) @ q))
        keys = {"key": uk, "query": uq} if "query" in self.parts else {"key": uk + uq}
        return {"output": u, "value": uv, **keys}

    def through(self, u: dict[str, Array], dw: Weights | None) -> tuple[Array | None, Any]:
        """(dx, the cotangent at each example's own embeddings), from cotangents at keys, queries and values."""
        layer, E = self.layer, self.layer.E
        back = {name: J.vjp(u[name], dw) for name, J in self.parts.items() if name != "output"}
        read = back["key"] if back.get("query") is None else back["key"] + back["query"]
        each: Any = None if E is None else layer.root(read).swapaxes(-1, -2) @ read
        if dw is not None and E is not None:
            dw[E.name][...] = E.row.multiplier * each.sum(axis=-3)
        return (None if back["value"] is None else layer.shaped(back["value"] + read)), each

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Back to keys, queries and values, and through them."""
        return self.through(self.back(u, dw), dw)[0]

    def gram(self, u: Array, other: AttentionJacobian, v: Array, kernel: Contraction) -> Array | float:
        """gram_key + gram_query + gram_value + gram_output, + S m^2 (uE . vE)."""
        return self.gram_and_back(u, other, v, kernel)[0]

    def gram_and_back(
        self, u: Array, other: AttentionJacobian, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """(the parts' grams, u dy/dx, v dy'/dx)."""
        same, E = other is self and v is u, self.layer.E
        us = self.back(u, None)
        vs = us if same else other.back(v, None)
        G = sum(J.gram(us[name], other.parts[name], vs[name], kernel) for name, J in self.parts.items())
        du, uE = self.through(us, None)
        dv, vE = (du, uE) if same else other.through(vs, None)
        if E is not None:
            uE, vE = flat(uE), flat(vE)
            G = G + kernel(uE, uE if same else vE, kernel.scale(E) * E.row.multiplier**2)
        return G, du, dv


def merged(heads: Array) -> Array:
    """(..., N, h, L, d) as (..., N, L, h d)."""
    a = heads.swapaxes(-2, -3)
    return a.reshape((*a.shape[:-2], -1))


@dataclass(frozen=True)
class BoundAttention:
    """GlobalSelfAttention in its place: its parts, c, zeta (None: softmax), and the tensor E of positions, if any."""

    spec: s.GlobalSelfAttention
    shape: Shape
    parts: dict[str, Bound]
    c: float
    zeta: Pointwise | None
    E: Tensor | None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        own = () if self.E is None else (self.E,)
        return own + tuple(t for part in self.parts.values() for t in part.tensors)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, AttentionJacobian]:
        """y = A v, A = zeta(c q k'), then the output's Dense."""
        x, E = self.sequence(x), self.embedded(w)
        outputs: dict[str, Array] = {}
        J: dict[str, Any] = {}
        for name in ("key", "query", "value"):
            if name in self.parts:
                y, J[name] = self.parts[name](w, x if E is None or name == "value" else x + E)
                outputs[name] = self.split(y)
        heads = Heads(outputs["key"], outputs.get("query", outputs["key"]), outputs["value"])
        G = self.c * (heads.query @ heads.key.swapaxes(-1, -2))
        A, slope = attention(G, self.zeta, seen(x) if self.spec.masked else None)
        y, J["output"] = self.parts["output"](w, merged(A @ heads.value))
        return self.shaped(y), AttentionJacobian(self, J, heads, A, slope)

    def sequence(self, a: Array) -> Array:
        """(..., N, *shape) as (..., N, L, C)."""
        lead = a.shape[: a.ndim - len(self.shape)]
        return a.reshape((*lead, prod(self.shape[:-1]), a.shape[-1]))

    def shaped(self, a: Array) -> Array:
        """(..., N, L, C) in the shape of images, where examples are images."""
        return a.reshape((*a.shape[:-2], *self.shape[:-1], a.shape[-1]))

    def split(self, a: Array) -> Array:
        """(..., N, L, h d) as (..., N, h, L, d)."""
        return a.reshape((*a.shape[:-1], int(self.spec.heads), -1)).swapaxes(-2, -3)

    def root(self, like: Array) -> Array:
        """R^(1/2), R = exp(-|s - t| / reach), in the library and the dtype of an array."""
        xp, R = array_namespace(like), position_covariance(self.shape, float(self.spec.reach))
        return xp.astype(to_library(np.linalg.cholesky(R), xp), like.dtype)

    def embedded(self, w: Weights) -> Array | None:
        """m R^(1/2) E, for all examples, ([E], 1, L, C)."""
        if self.E is None:
            return None
        E = w[self.E.name]
        return (self.E.row.multiplier * (self.root(E) @ E))[..., None, :, :]


def seen(x: Array) -> Array:
    """Whether any channel of a position is not 0, (..., L)."""
    return array_namespace(x).any(x != 0, axis=-1)


def attention(G: Array, zeta: Pointwise | None, seen: Array | None) -> tuple[Array, Array | None]:
    """(A, zeta'(G) or None for softmax) for G : (..., N, h, L, L).   seen : (..., N, L), where there is no padding."""
    xp = array_namespace(G)
    pairs = None if seen is None else seen[..., None, :, None] & seen[..., None, None, :]
    if zeta is not None:
        A, slope = zeta.phi(xp, G), zeta.derivative(xp, G)
        return (A, slope) if pairs is None else (A * pairs, slope * pairs)
    G = G if pairs is None else xp.where(pairs, G, -xp.inf)
    top = xp.max(G, axis=-1, keepdims=True)
    A = xp.exp(G - xp.where(xp.isfinite(top), top, 0.0))  # 0 in a line of padding
    total = xp.sum(A, axis=-1, keepdims=True)
    return A / xp.where(total > 0, total, 1.0), None


def position_covariance(shape: Shape, reach: float) -> np.ndarray[Any, Any]:
    """R = exp(-|s - t| / reach) of the positions of examples (L, C) or (H, W, C), |s - t| summed over the axes, (L, L).

    >>> position_covariance((3, 8), 0.0)[0], position_covariance((3, 8), 1.0)[0].round(3)
    (array([1., 0., 0.]), array([1.   , 0.368, 0.135]))
    """
    place = np.stack(np.meshgrid(*map(np.arange, shape[:-1]), indexing="ij"), axis=-1).reshape(-1, len(shape) - 1)
    apart = np.abs(place[:, None] - place).sum(axis=-1)
    return np.exp(-apart / reach) if reach > 0 else np.where(apart == 0, 1.0, 0.0)


def as_sequence(shape: Shape) -> Shape:
    """(L, C) of sequences, and (H W, C) of images, as sequences; ValueError for examples without positions."""
    if len(shape) < 2:
        raise ValueError(f"attention expects sequences (L, C) or images (H, W, C), got examples of shape {shape}")
    return prod(shape[:-1]), shape[-1]


def part_sites(layer: s.GlobalSelfAttention, site: Site) -> dict[str, Site]:
    """The places of the parts: keys, queries and values beside each other, the output after them."""
    length, _ = as_sequence(site.shape)
    read = replace(site, shape=as_sequence(site.shape), last=False, end=False)
    below = replace(read, inputs=site.inputs or layer.positions > 0)  # embeddings come before keys and queries
    heads = int(layer.heads) * int(layer.value_channels or layer.channels)
    output = replace(site, shape=(length, heads), first=False)
    return {"key": below, "query": below, "value": read, "output": output}


@out_shape.register
def _(layer: s.GlobalSelfAttention, shape: Shape) -> Shape:
    as_sequence(shape)
    return (*shape[:-1], int(layer.channels))


@out_shape.register
def _(layer: s.MaskedAvgPool, shape: Shape) -> Shape:
    return as_sequence(shape)[1:]


@bind.register
def _(layer: s.GlobalSelfAttention, site: Site, parametrization: Parametrization, name: str) -> BoundAttention:
    at = part_sites(layer, site)
    parts = {part: place(conv, at[part], parametrization, f"{name}.{part}") for part, conv in layer.parts.items()}
    shape, E = as_sequence(site.shape), None
    if layer.positions > 0:
        role = Role("bias", at["key"].place, branches=site.branches)
        E = Tensor(f"{name}.E", shape, parametrization.row(role, shape[-1], shape[-1], float(layer.positions)), role)
    keys = int(layer.key_channels or layer.channels)
    c = 1 / keys if layer.scaling == "linear" else keys**-0.5
    zeta = None if layer.zeta == "softmax" else pointwise(layer.zeta)
    return BoundAttention(layer, site.shape, parts, c, zeta, E)


# ----------------------------------------------------------------------------------------- MaskedAvgPool


@dataclass(frozen=True)
class MaskedAvgPoolJacobian(LayerJacobian):
    """Holds m / sum m, ([E], N, L, 1), m = 1 where a position is no padding, and the shape of one example."""

    share: Array
    shape: Shape

    def jvp(self, dw: Weights, dx: Array | None) -> Any:  # None only for None
        """dy = sum_t m_t dx_t / sum m."""
        if dx is None:
            return None
        return (self.share * dx.reshape((*dx.shape[: dx.ndim - len(self.shape)], *as_sequence(self.shape)))).sum(
            axis=-2
        )

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx_t = m_t u / sum m."""
        dx = self.share * u[..., None, :]
        return dx.reshape((*dx.shape[:-2], *self.shape))


@dataclass(frozen=True)
class BoundMaskedAvgPool:
    """MaskedAvgPool in its place."""

    shape: Shape
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, MaskedAvgPoolJacobian]:
        """y = sum_t m_t x_t / sum m."""
        xp = array_namespace(x)
        m = xp.astype(seen(x.reshape((*x.shape[: x.ndim - len(self.shape)], *as_sequence(self.shape)))), x.dtype)[
            ..., None
        ]
        J = MaskedAvgPoolJacobian(m / xp.maximum(m.sum(axis=-2, keepdims=True), 1), self.shape)
        return J.jvp(w, x), J


@bind.register
def _(layer: s.MaskedAvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundMaskedAvgPool:
    return BoundMaskedAvgPool(site.shape)
