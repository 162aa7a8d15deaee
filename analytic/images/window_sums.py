"""Sum over windows with a few shifted sums.

line_sum, across_sum     sum_s a[S p + s] along the last axis, or the one before it, for small arrays
joint_sum                sum_s a[S p + s, S p' + s] along two axes that are shifted together
shifted_sum              joint_sum for stride 1 and one output per pixel, by sums of long arrays
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from analytic.images.rules import trivial
from minintk.arrays import Array, array_namespace, to_library
from minintk.spec.windows import Axis


@lru_cache(maxsize=1024)
def reads(axis: Axis, s: int) -> tuple[tuple[slice, slice], ...]:
    """Return pairs of slices (outputs, inputs), several if circular: output p uses input stride * p - before + s."""
    places = [axis.stride * p - axis.before + s for p in range(axis.out)]
    if axis.circular:
        places = [place % axis.size for place in places]
    inside = [p for p, place in enumerate(places) if 0 <= place < axis.size]
    starts = [p for p in inside if p - 1 not in inside or places[p] != places[p - 1] + axis.stride]
    ends = [*starts[1:], *(p + 1 for p in inside[-1:])]
    return tuple(
        (slice(p, end), slice(places[p], places[end - 1] + 1, axis.stride)) for p, end in zip(starts, ends, strict=True)
    )


def plain(axis: Axis) -> bool:
    """Return True if there is one output per pixel, and zeros surround the image."""
    return axis.stride == 1 and axis.out == axis.size and not axis.circular


def at(ndim: int, *where: tuple[int, slice]) -> tuple[slice, ...]:
    """Return an index for `ndim` axes with the given slices.   where : (axis, slice)."""
    index = [slice(None)] * ndim
    for axis, piece in where:
        index[axis] = piece
    return tuple(index)


@lru_cache(maxsize=256)
def window_matrix(axis: Axis) -> np.ndarray[Any, Any]:
    """Return how often each output's window contains each pixel, (out, size): sum_s a[S p + s] = window_matrix @ a."""
    found = np.zeros((axis.out, axis.size))
    for s in range(axis.kernel):
        for o, i in reads(axis, s):
            found[np.arange(axis.out)[o], np.arange(axis.size)[i]] += 1
    return found


def line_sum(a: Array, axis: Axis) -> Array:
    """Return sum_s a[..., S p + s], float64."""
    return a if trivial(axis) else a @ to_library(window_matrix(axis).T, array_namespace(a))


def across_sum(a: Array, axis: Axis) -> Array:
    """Return sum_s a[..., S p + s, :], float64."""
    return a if trivial(axis) else array_namespace(a).matmul(to_library(window_matrix(axis), array_namespace(a)), a)


def add_windows(
    a: Array, out: Array, axis: Axis, along: tuple[int, int], outside: tuple[Array, Array], start: int = 0
) -> None:
    """Write out = sum_s a[S p + s, S p' + s] along two axes that are shifted together.  `out` must not be `a`.

    outside : contributions of pairs with one pixel outside, for x inside and for x' inside; they broadcast to `a`.
    start : the first output along the first axis, for a plain axis.
    """
    if plain(axis):
        shifted_sum(a, out, axis, along, outside, start)
    else:
        joint_sum(a, out, axis, along, outside)


def joint_sum(a: Array, out: Array, axis: Axis, along: tuple[int, int], outside: tuple[Array, Array]) -> None:
    """Compute `add_windows` for any axis, line by line."""
    first, second = along
    out[...] = 0
    for s in range(axis.kernel):
        runs = reads(axis, s)
        for o, i in runs:
            for o2, i2 in runs:
                out[at(a.ndim, (first, o), (second, o2))] += a[at(a.ndim, (first, i), (second, i2))]
        if axis.circular or not runs:
            continue
        low, high = runs[0][0].start, runs[0][0].stop
        for hole in (slice(0, low), slice(high, axis.out)):
            for o, i in runs:
                out[at(a.ndim, (first, o), (second, hole))] += outside[0][at(a.ndim, (first, i))]
                out[at(a.ndim, (first, hole), (second, o))] += outside[1][at(a.ndim, (second, i))]


def overlap(s: int, start: int, stop: int, size: int) -> tuple[slice, slice, slice]:
    """Return slices of p - start and p + s for p in start:stop with p + s in 0:size, and of p - start for other p."""
    low = min(max(start, -s), stop)
    high = max(min(stop, size - s), low)
    outside = slice(0, low - start) if s < 0 else slice(high - start, stop - start)
    return slice(low - start, high - start), slice(low + s, high + s), outside


def shifted_sum(
    a: Array, out: Array, axis: Axis, along: tuple[int, int], outside: tuple[Array, Array], start: int
) -> None:
    """Compute `joint_sum` for a plain axis: outputs from `start` on along the first axis, all outputs along the second.

    For each shift, the entries are added as one contiguous slice, which is faster than adding line by line.  Some
    entries thereby receive values of a neighbouring line; these entries are recomputed.  Positive shifts come first, so
    that the first write to `out` starts on a cache line.  Otherwise, NumPy takes three times as long.
    """
    (first, second), n, stop = along, a.shape[along[1]], start + out.shape[along[0]]
    run, step = prod(a.shape[first + 1 :]), prod(a.shape[second + 1 :])
    long, total = (v.reshape((*v.shape[: first + 1], run)) for v in (a, out))
    here, long_here = a[at(a.ndim, (first, slice(start, stop)))], long[..., start:stop, :]
    for s in (*range(1, axis.after + 1), *range(-axis.before, 0)):
        (p, there, bad), (p2, there2, bad2) = overlap(s, start, stop, n), overlap(s, 0, n, n)
        k = min(abs(s), n) * step
        inside, beyond = (slice(k, run), slice(0, run - k)) if s < 0 else (slice(0, run - k), slice(k, run))
        edge = here[at(a.ndim, (first, p), (second, bad2))] + outside[0][at(a.ndim, (first, there))]
        array_namespace(a).add(long_here[..., p, inside], long[..., there, beyond], out=total[..., p, inside])
        out[at(a.ndim, (first, p), (second, bad2))] = edge
        if here is not out:
            out[at(a.ndim, (first, bad))] = here[at(a.ndim, (first, bad))]
        out[at(a.ndim, (first, bad), (second, p2))] += outside[1][at(a.ndim, (second, there2))]
        here, long_here = out, total
