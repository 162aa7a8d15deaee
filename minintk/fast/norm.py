"""BatchNorm in two passes forwards and two back, compiled by Numba; cores that share a batch exchange their means.

    S = sum (x - a),  Q = sum (x - a)^2         mean = a + S/M,  variance = Q/M - (S/M)^2,   y = r (x - mean)
    S = sum u,        Q = sum y u               dx = r (u - S/M - y Q/M)

a is the first example's pixel, so that the difference loses no digits, or the mean where that pixel is an outlier.
The means m_i and variances v_i of parts of a batch, of M_i numbers each, make up those of the whole:

    mean = sum M_i m_i / M,   variance = sum M_i (v_i + (m_i - mean)^2) / M
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.spread import spread
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


def pixels(v: Array, like: Array) -> Array:
    """v : (C,) for some pixels, one after the other: loops over long rows are fast, and C may be small."""
    some = np.empty((max(1, 256 // len(v)), len(v)), like.dtype)
    some[:] = v
    return some.reshape(-1)


def means(a: Array, shift: Array, b: Array, other: Array, floor: float = -inf) -> Array:
    """(2, C), in float64: the means of A and A (b - other), A = a - shift where b - other > floor; a, b : (..., C)."""
    C, first, second = len(shift), pixels(shift, a), pixels(other, a)
    sums = np.zeros((2, len(first)))
    worth, floor = a.size >= THRESHOLDS.spread_numbers, a.dtype.type(floor)
    spread(loops().column_sums, worth, a.ravel(), first, b.ravel(), second, floor, sums)
    return np.asarray(sums.reshape((2, -1, C)).sum(axis=1) / (a.size // C))


def centre(a: Array, mean: Array, b: Array, other: Array, slope: Array, r: Array, floor: float = -inf,
           onto: Array | None = None) -> Array:  # fmt: skip
    """a, now onto + r (A - mean - (b - other) slope), A = a where b - other > floor, else 0; arrays (..., C), a in one
    piece."""
    mean, other, slope, r = (pixels(v, a) for v in (mean, other, slope, r))
    worth, floor = a.size >= THRESHOLDS.spread_numbers, a.dtype.type(floor)
    more = np.empty(0, a.dtype) if onto is None else onto.ravel()
    spread(loops().centre, worth, a.reshape(-1), mean, b.ravel(), other, slope, r, floor, more)
    return a


@dataclass(frozen=True)
class CompiledNormJacobian(NormJacobian):
    """That of the layer as it is written, with fewer passes over one cotangent or tangent."""

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx = r (u - mean(u) - y mean(y u))."""
        if not worth(u, self.y.ndim):
            each = np.stack([a.mean(axis=self.axes, keepdims=True) for a in (u, self.y * u)])
            mean, slope = averaged(self.y.size, each)
            return self.r * (u - mean - self.y * slope)
        nothing = np.zeros(u.shape[-1])
        mean, slope = averaged(u.size, means(u, nothing, self.y, nothing))
        return centre(np.array(u, order="C"), mean, self.y, nothing, slope, self.r.reshape(-1))


def averaged(M: int, mean: Array) -> Array:
    """The mean over the whole batch from that over the M numbers of each core."""
    parts = everyones((M, mean))
    return np.asarray(sum(M * m for M, m in parts) / sum(M for M, _ in parts))


@dataclass(frozen=True)
class CompiledBatchNorm(BoundBatchNorm):
    """A BatchNorm in its place."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, NormJacobian]:
        """y = r (x - mean), and the batch's statistics left in w."""
        if (found := self.measured(w, x)) is None:
            return super().__call__(w, x)
        return self.normalised(x, *found)

    def normalised(self, x: Array, mean: Array, r: Array) -> tuple[Array, CompiledNormJacobian]:
        """(y, J) for the batch's mean and r : (C,)."""
        nothing = np.zeros(x.shape[-1])
        y = centre(np.array(x, order="C"), mean, x, nothing, nothing, r)
        return y, CompiledNormJacobian(y, r.reshape((1,) * len(self.shape) + (-1,)), tuple(range(-y.ndim, -1)))

    def measured(self, w: Weights, x: Array) -> tuple[Array, Array] | None:
        """(mean, r) of the batch, (C,), left in w; None where w has some, or `worth` says no."""
        if not worth(x, 1 + len(self.shape)) or f"{self.name}.mean" in w:
            return None
        first = x[(0,) * (x.ndim - 1)]
        S, Q = means(x, first, x, first)
        if (S**2 > 25 * (Q - S**2)).any():  # the first pixel lies far from the others: once more, from the mean
            first = (first + S).astype(x.dtype)
            S, Q = means(x, first, x, first)
        parts = everyones((x.size, first + S, np.maximum(Q - S**2, 0)))
        M = sum(M for M, _, _ in parts)
        mean = np.asarray(sum(M_i * m for M_i, m, _ in parts) / M)
        variance = np.asarray(sum(M_i * (v + (m - mean) ** 2) for M_i, m, v in parts) / M)
        if self.eps == 0 and not variance.all():
            return None  # the layer as it is written says so
        mean, r = (v.astype(x.dtype) for v in (mean, 1 / np.sqrt(variance + self.eps)))
        w |= {f"{self.name}.mean": mean, f"{self.name}.r": r}
        return mean, r
