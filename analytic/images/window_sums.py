"""Sums over windows as a few shifted sums: which pixels an axis reads, and how often.

line_sum, across_sum     sum_s a[S p + s] along the last axis, or the one before it; for small arrays
joint_sum                sum_s a[S p + s, S p' + s] along two axes that are shifted together
shifts, overlap          the same for an axis of stride 1 and as many outputs as pixels, with views of long arrays
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from analytic.images.rules import trivial
from minintk.arrays import Array, array_namespace, to_library
from minintk.spec.windows import Axis


@lru_cache(maxsize=1024)
def reads(axis: Axis, s: int) -> tuple[tuple[slice, slice], ...]:
    """(outputs, inputs), such that output p reads input stride p - before + s: slices, several if it wraps around."""
    places = [axis.stride * p - axis.before + s for p in range(axis.out)]
    if axis.circular:
        places = [place % axis.size for place in places]
    inside = [p for p, place in enumerate(places) if 0 <= place < axis.size]
    starts = [p for p in inside if p - 1 not in inside or places[p] != places[p - 1] + axis.stride]
    ends = [*starts[1:], inside[-1] + 1 if inside else 0]
    return tuple(
        (slice(p, end), slice(places[p], places[end - 1] + 1, axis.stride))
        for p, end in zip(starts, ends, strict=False)
    )


def holes(low: int, high: int, size: int) -> list[slice]:
    """What is left of 0:size without low:high."""
    return [hole for hole in (slice(0, low), slice(high, size)) if hole.stop > hole.start]


def plain(axis: Axis, reach: int) -> bool:
    """Whether there is one output per pixel, with zeros outside, and no window reaches further than `reach`."""
    return axis.stride == 1 and axis.out == axis.size and not axis.circular and max(axis.before, axis.after) <= reach


def at(ndim: int, *where: tuple[int, slice]) -> tuple[slice, ...]:
    """An index with slices along some axes."""
    index = [slice(None)] * ndim
    for axis, piece in where:
        index[axis] = piece
    return tuple(index)


@lru_cache(maxsize=256)
def window_matrix(axis: Axis) -> np.ndarray[Any, Any]:
    """(out, size), how often the window of an output contains a pixel: sum_s a[S p + s] = window_matrix @ a."""
    found = np.zeros((axis.out, axis.size))
    for s in range(axis.kernel):
        for o, i in reads(axis, s):
            found[np.arange(axis.out)[o], np.arange(axis.size)[i]] += 1
    return found


def line_sum(a: Array, axis: Axis) -> Array:
    """sum_s a[..., S p + s], float64."""
    return a if trivial(axis) else a @ to_library(window_matrix(axis).T, array_namespace(a))


def across_sum(a: Array, axis: Axis) -> Array:
    """sum_s a[..., S p + s, :], float64."""
    return a if trivial(axis) else array_namespace(a).matmul(to_library(window_matrix(axis), array_namespace(a)), a)


def joint_sum(a: Array, out: Array, axis: Axis, along: tuple[int, int], outside: tuple[Array, Array] | None) -> None:
    """out = sum_s a[S p + s, S p' + s] along a pair of axes shifted together.

    outside : what a pixel inside contributes next to one outside, left and right, broadcasting to a; None for nothing.
    """
    first, second = along
    out[...] = 0
    for s in range(axis.kernel):
        runs = reads(axis, s)
        for o, i in runs:
            for o2, i2 in runs:
                out[at(a.ndim, (first, o), (second, o2))] += a[at(a.ndim, (first, i), (second, i2))]
        if outside is None or axis.circular:
            continue
        for hole in holes(runs[0][0].start, runs[0][0].stop, axis.out) if runs else [slice(0, axis.out)]:
            for o, i in runs:
                out[at(a.ndim, (first, o), (second, hole))] += outside[0][at(a.ndim, (first, i))]
                out[at(a.ndim, (first, hole), (second, o))] += outside[1][at(a.ndim, (second, i))]


def shifts(axis: Axis) -> tuple[int, ...]:
    """All shifts of a plain axis's windows except 0.

    Positive shifts come first.  The first sum is written to another array; with a positive shift it starts where each
    line, and so a cache line, begins.  Elsewhere, NumPy takes three times as long to write to another array.
    """
    return (*range(1, axis.after + 1), *range(-axis.before, 0))


def add(xp: Any, a: Array, b: Array | None, out: Array) -> None:
    """out = a + b, or a copy of a if b is None."""
    if b is None:
        out[...] = a
    else:
        xp.add(a, b, out=out)


def overlap(s: int, start: int, stop: int, size: int) -> tuple[slice, slice, slice]:
    """For p in start:stop of 0:size: the p with p + s inside, the p + s, and the other p; both p counted from start."""
    low = min(max(start, -s), stop)
    high = max(min(stop, size - s), low)
    outside = slice(0, low - start) if s < 0 else slice(high - start, stop - start)
    return slice(low - start, high - start), slice(low + s, high + s), outside


def merge_axes(a: Array) -> Array:
    """a : (live, n, m, size) as (live, n m, size) or (live, n, m size), a view: ufuncs start faster on fewer axes."""
    live, n, m, run = a.shape
    return a.reshape((live, n * m, run)) if a.strides[1] == m * a.strides[2] else a.reshape((live, n, m * run))


class ShiftedSum(NamedTuple):
    """What a window adds at shift s, as views: out = here + there, and edge values are added where `there` is outside.

    source : pixels of x that `there` comes from.   right, left : (here, out) where p' is outside, and where p is.
    """

    s: int
    here: Array
    there: Array
    out: Array
    source: slice
    right: tuple[Array, Array] | None
    left: tuple[Array, Array] | None
