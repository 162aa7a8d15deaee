"""Compute BatchNorm in compiled loops, with two passes over the data in each direction.  Large batches use all cores.

    S = sum (x - a),  Q = sum (x - a)^2         mean = a + S/M,  variance = Q/M - (S/M)^2,   y = r (x - mean)
    S = sum u,        Q = sum y u               dx = r (u - S/M - y Q/M)

`a` is the first pixel, or the mean if that pixel is an outlier, which limits cancellation.  M is the number of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.numba_here import loops, numba_is_here
from minintk.layers.contract import Weights
from minintk.layers.norm import BoundBatchNorm, NormJacobian
from minintk.threads import parallel
from minintk.thresholds import THRESHOLDS, cut


def worth(x: Array, axes: int, loaded: bool = False) -> bool:
    """Return True if Numba can process x (no ensemble, so `axes` axes) and x is large or `loaded` is True."""
    return (
        x.ndim == axes
        and (loaded or x.size >= THRESHOLDS.normalised)
        and numba_is_here()
        and on_host(array_namespace(x))
        and loops() is not None
    )


def pixels(v: Array, like: Array) -> Array:
    """Return v : (C,), repeated to a row of up to 256 values if C is small, because loops over long rows are fast."""
    some = np.empty((max(1, 256 // len(v)), len(v)), like.dtype)
    some[:] = v
    return some.reshape(-1)


def means(a: Array, shift: Array, b: Array, other: Array, floor: float = -inf) -> Array:
    """Return the float64 means of A and A (b - other) as (2, C), where A = a - shift if b - other > floor, else 0."""
    C, first, second, floor = len(shift), pixels(shift, a), pixels(other, a), a.dtype.type(floor)
    a, b = a.ravel(), b.ravel()

    def sums(at: slice) -> Array:
        found = np.zeros((2, len(first)))
        loops().column_sums(a[at], first, b[at], second, floor, found)
        return found

    total, *others = parallel(sums, pieces(a, len(first)))
    for part in others:
        total += part
    return np.asarray(total.reshape((2, -1, C)).sum(axis=1) / (a.size // C))


def pieces(a: Array, row: int) -> list[slice]:
    """Return slices of a : (M,) that contain whole rows of length `row`; the last row can be incomplete."""
    return [slice(at.start * row, at.stop * row) for at in cut(-(-a.size // row), a.size, THRESHOLDS.pixels)]


def centre(a: Array, mean: Array, b: Array, other: Array, slope: Array, r: Array, floor: float = -inf) -> Array:
    """Set `a` (contiguous) to r (A - mean - (b - other) slope) and return it; A = a if b - other > floor, else 0."""
    mean, other, slope, r = (pixels(v, a) for v in (mean, other, slope, r))
    flat, b = a.reshape(-1), b.ravel()
    low = a.dtype.type(floor)
    parallel(lambda at: loops().centre(flat[at], mean, b[at], other, slope, r, low), pieces(flat, len(mean)))
    return a


@dataclass(frozen=True)
class CompiledNormJacobian(NormJacobian):
    """The Jacobian of `BoundBatchNorm`, with fewer passes over memory for a single cotangent or tangent."""

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute dx = r (u - mean(u) - y mean(y u))."""
        if not worth(u, self.y.ndim):
            return super().vjp(u, dw)
        nothing = np.zeros(u.shape[-1])
        mean, slope = means(u, nothing, self.y, nothing)
        return centre(np.array(u, order="C"), mean, self.y, nothing, slope, self.r.reshape(-1))


@dataclass(frozen=True)
class CompiledBatchNorm(BoundBatchNorm):
    """A `BoundBatchNorm` that uses compiled loops if they can process x and are faster (see `worth`)."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, NormJacobian]:
        """Compute y = r (x - mean).  Store the batch's statistics in w, unless w already contains statistics."""
        if (found := self.measured(w, x)) is None:
            return super().__call__(w, x)
        return self.normalised(x, *found)

    def normalised(self, x: Array, mean: Array, r: Array) -> tuple[Array, CompiledNormJacobian]:
        """Return (y, J) for the batch's mean and r : (C,)."""
        nothing = np.zeros(x.shape[-1])
        y = centre(np.array(x, order="C"), mean, x, nothing, nothing, r)
        return y, CompiledNormJacobian(y, r.reshape((1,) * len(self.shape) + (-1,)), tuple(range(-y.ndim, -1)))

    def measured(self, w: Weights, x: Array, loaded: bool = False) -> tuple[Array, Array] | None:
        """Store the batch's mean and r : (C,) in w, and return both. Return None if `BoundBatchNorm` must compute y."""
        if not worth(x, 1 + len(self.shape), loaded) or f"{self.name}.mean" in w:
            return None
        first = x[(0,) * (x.ndim - 1)]
        S, Q = means(x, first, x, first)
        if (S**2 > 25 * (Q - S**2)).any():  # the first pixel is an outlier, so use the mean
            first = (first + S).astype(x.dtype)
            S, Q = means(x, first, x, first)
        mean, variance = first + S, np.maximum(Q - S**2, 0)
        if self.eps == 0 and not variance.all():
            return None  # the plain layer raises an error
        mean, r = (v.astype(x.dtype) for v in (mean, 1 / np.sqrt(variance + self.eps)))
        w |= {f"{self.name}.mean": mean, f"{self.name}.r": r}
        return mean, r
