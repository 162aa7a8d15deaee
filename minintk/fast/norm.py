"""BatchNorm in two passes forwards and two back, compiled by Numba; cores that share a batch exchange their means.

    S = sum (x - a),  Q = sum (x - a)^2         mean = a + S/M,  variance = Q/M - (S/M)^2,   y = r (x - mean)
    S = sum u,        Q = sum y u               dx = r (u - S/M - y Q/M)

a is the first example's pixel, so that the difference loses no digits, or the mean where that pixel is an outlier.
The means m_i and variances v_i of parts of a batch, of M_i numbers each, make up those of the whole:

    mean = sum M_i m_i / M,   variance = sum M_i (v_i + (m_i - mean)^2) / M
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.threads import everyones, meets
from minintk.fast.thresholds import THRESHOLDS, loops, numba_is_here
from minintk.layers.contract import Weights
from minintk.layers.norm import BoundBatchNorm, NormJacobian


def worth(x: Array, axes: int) -> bool:
    """Whether x : (N, *shape), with so many axes, is one network's, and large or a share, for Numba, which is there."""
    return (
        x.ndim == axes
        and (meets() or x.size >= THRESHOLDS.normalised)
        and numba_is_here()
        and on_host(array_namespace(x))
        and loops() is not None
    )


def means(a: Array, shift: Array, b: Array, other: Array) -> Array:
    """(2, C), in float64: the means of a - shift, and of (a - shift) (b - other), for a, b : (M, C)."""
    return np.asarray(loops().column_sums(a, shift, b, other)) / len(a)


def centred(a: Array, mean: Array, b: Array, slope: Array, r: Array) -> Array:
    """r (a - mean - b slope) : (M, C)."""
    out, (mean, slope, r) = np.empty_like(a), (v.astype(a.dtype) for v in (mean, slope, r))
    loops().centre(a, mean, b, slope, r, out)
    return out


@dataclass(frozen=True)
class CompiledNormJacobian(NormJacobian):
    """That of the layer as it is written, with fewer passes over one cotangent or tangent."""

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx = r (u - mean(u) - y mean(y u))."""
        if not worth(u, self.y.ndim):
            each = np.stack([a.mean(axis=self.axes, keepdims=True) for a in (u, self.y * u)])
            mean, slope = averaged(self.y.size, each)
            return self.r * (u - mean - self.y * slope)
        rows, y = (np.ascontiguousarray(a).reshape((-1, a.shape[-1])) for a in (u, self.y))
        nothing = np.zeros_like(y[0])
        mean, slope = averaged(y.size, means(rows, nothing, y, nothing))
        return centred(rows, mean, y, slope, self.r.reshape(-1)).reshape(u.shape)


def averaged(M: int, mean: Array) -> Array:
    """The mean over the whole batch from that over the M numbers of each core."""
    parts = everyones((M, mean))
    return np.asarray(sum(M * m for M, m in parts) / sum(M for M, _ in parts))


@dataclass(frozen=True)
class CompiledBatchNorm(BoundBatchNorm):
    """A BatchNorm in its place."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, NormJacobian]:
        """y = r (x - mean), and the batch's statistics left in w."""
        rows = np.ascontiguousarray(x).reshape((-1, x.shape[-1])) if worth(x, 1 + len(self.shape)) else None
        if rows is None or f"{self.name}.mean" in w:
            return super().__call__(w, x)
        first, nothing = rows[0].copy(), np.zeros_like(rows[0])
        S, Q = means(rows, first, rows, first)
        if (S**2 > 25 * (Q - S**2)).any():  # the first pixel lies far from the others: once more, from the mean
            first = (first + S).astype(x.dtype)
            S, Q = means(rows, first, rows, first)
        mean = averaged(x.size, first + S)
        variance = averaged(x.size, np.maximum(Q - S**2, 0) + (first + S - mean) ** 2)
        if self.eps == 0 and not variance.all():
            return super().__call__(w, x)  # which says so
        mean, r = (v.astype(x.dtype) for v in (mean, 1 / np.sqrt(variance + self.eps)))
        w |= {f"{self.name}.mean": mean, f"{self.name}.r": r}
        y = centred(rows, mean, rows, nothing, r).reshape(x.shape)
        return y, CompiledNormJacobian(y, r.reshape((1,) * len(self.shape) + (-1,)), tuple(range(-y.ndim, -1)))
