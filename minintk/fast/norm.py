"""BatchNorm in two passes forwards and two back, compiled by Numba, on all cores.

    S = sum (x - a),  Q = sum (x - a)^2         mean = a + S/M,  variance = Q/M - (S/M)^2,   y = r (x - mean)
    S = sum u,        Q = sum y u               dx = r (u - S/M - y Q/M)

a is the first example's pixel, so that the difference loses no digits, or the mean where that pixel is an outlier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.threads import cores, parallel
from minintk.fast.thresholds import THRESHOLDS, loops, numba_is_here
from minintk.layers.contract import Weights
from minintk.layers.norm import BoundBatchNorm, NormJacobian


def worth(x: Array, axes: int) -> bool:
    """Whether x : (N, *shape), with so many axes, is one network's, and large enough for Numba, which is there."""
    large = x.ndim == axes and x.size >= THRESHOLDS.normalised
    return large and numba_is_here() and on_host(array_namespace(x)) and loops() is not None


def halves(M: int) -> list[slice]:
    """M rows in a piece for each core."""
    count = cores()
    return [slice(i * M // count, (i + 1) * M // count) for i in range(count)]


def means(a: Array, shift: Array, b: Array, other: Array) -> Array:
    """(2, C), in float64: the means of a - shift, and of (a - shift) (b - other), for a, b : (M, C)."""
    add = loops().column_sums
    return sum(parallel(lambda at: add(a[at], shift, b[at], other), halves(len(a)))) / len(a)


def centred(a: Array, mean: Array, b: Array, slope: Array, r: Array) -> Array:
    """r (a - mean - b slope) : (M, C)."""
    centre, out = loops().centre, np.empty_like(a)
    mean, slope, r = (v.astype(a.dtype) for v in (mean, slope, r))
    parallel(lambda at: centre(a[at], mean, b[at], slope, r, out[at]), halves(len(a)))
    return out


@dataclass(frozen=True)
class CompiledNormJacobian(NormJacobian):
    """That of the layer as it is written, with fewer passes over one cotangent or tangent."""

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx = r (u - mean(u) - y mean(y u))."""
        if not worth(u, self.y.ndim):
            return super().vjp(u, dw)
        rows, y = (np.ascontiguousarray(a).reshape((-1, a.shape[-1])) for a in (u, self.y))
        nothing = np.zeros_like(y[0])
        mean, slope = means(rows, nothing, y, nothing)
        return centred(rows, mean, y, slope, self.r.reshape(-1)).reshape(u.shape)


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
        variance = np.maximum(Q - S**2, 0)
        if self.eps == 0 and not variance.all():
            return super().__call__(w, x)  # which says so
        mean, r = (v.astype(x.dtype) for v in (first + S, 1 / np.sqrt(variance + self.eps)))
        w |= {f"{self.name}.mean": mean, f"{self.name}.r": r}
        y = centred(rows, mean, rows, nothing, r).reshape(x.shape)
        return y, CompiledNormJacobian(y, r.reshape((1,) * len(self.shape) + (-1,)), tuple(range(-y.ndim, -1)))
