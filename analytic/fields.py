"""What is carried through the layers for images: of every pixel its variance, of every pair of pixels a distance.

For pixels p of x and p' of x', with pre-activations u, u' of variances q, q' and covariance K:

    D = E (u - u')^2 / 2 = (q + q') / 2 - K >= 0              Theta, the tangent kernel; None where nobody asks

D is linear, so sums over windows act on it as on K, and pixels that coincide have exactly 0: the angle between u and
u' comes from D alone, without the difference of two nearly equal numbers.  A pixel outside the image is 0: next to one
inside, of variance q, D = q / 2.

The variances run ahead in float64 (`Pixels`); the distances of some pairs of images (`Field`) follow, in two forms:

    Square     all pairs of pixels of one image x and some images x', a matrix (pixels of x, pixels of all x')
    Diagonal   equal pixels only, of some images x and some x'

Each line of pixels may end in guards, pixels outside the image, so that a window's sum is a few shifted sums of long
runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from analytic.images import trivial
from minintk.arrays import Array, array_namespace, on_host, to_library
from minintk.windows import Axis

STRIP = 2**16
"""Numbers of a field that an activation works on at a time: they stay in a core's cache through all of its formula."""


@dataclass(frozen=True)
class Pixels:
    """Of every pixel of n images: variance q and Theta(p, p), (n, H, W), float64.

    unit : what D, and Theta / 2, of the fields are measured in.   error : the quadratures' bound so far.
    """

    q: Array
    theta: Array
    unit: float = 1.0
    error: float = 0.0

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W)."""
        return self.q.shape[1], self.q.shape[2]


class Lay(NamedTuple):
    """Numbers of the pixels, one array an image, as the pairs meet them: of x, and of x'."""

    left: Array
    right: Array


# --------------------------------------------------------------------------------------------- windows


@lru_cache(maxsize=1024)
def reads(axis: Axis, s: int) -> tuple[tuple[slice, slice], ...]:
    """(outputs, inputs) such that output p reads input stride p - before + s: runs, several where it wraps around."""
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
    """What low:high leaves of 0:size."""
    return [hole for hole in (slice(0, low), slice(high, size)) if hole.stop > hole.start]


def plain(axis: Axis, reach: int) -> bool:
    """Whether there is an output for each pixel, zeros outside, and no window reaches further than `reach`."""
    return axis.stride == 1 and axis.out == axis.size and not axis.circular and max(axis.before, axis.after) <= reach


def at(ndim: int, *where: tuple[int, slice]) -> tuple[slice, ...]:
    """An index with slices along some axes."""
    index = [slice(None)] * ndim
    for axis, piece in where:
        index[axis] = piece
    return tuple(index)


@lru_cache(maxsize=256)
def picks(axis: Axis) -> np.ndarray[Any, Any]:
    """(out, size), how often the window of an output has a pixel under it: sum_s a[S p + s] = picks @ a."""
    found = np.zeros((axis.out, axis.size))
    for s in range(axis.kernel):
        for o, i in reads(axis, s):
            found[np.arange(axis.out)[o], np.arange(axis.size)[i]] += 1
    return found


def line_sum(a: Array, axis: Axis) -> Array:
    """sum_s a[..., S p + s], float64."""
    return a if trivial(axis) else a @ to_library(picks(axis).T, array_namespace(a))


def across_sum(a: Array, axis: Axis) -> Array:
    """sum_s a[..., S p + s, :], float64."""
    return a if trivial(axis) else array_namespace(a).matmul(to_library(picks(axis), array_namespace(a)), a)


def joint_sum(a: Array, out: Array, axis: Axis, along: tuple[int, int], outside: tuple[Array, Array] | None) -> None:
    """out = sum_s a[S p + s, S p' + s] along a pair of axes shifted together.

    outside : what a pixel inside counts for next to one outside, left and right, broadcasting to a; None for nothing.
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


# ---------------------------------------------------------------------------------------------- fields

LINE = 64
"""Bytes of a cache line: a ufunc is up to twice as fast where its results start on one."""


class Shelf:
    """Arrays taken and given back, a thread's working memory: on cache lines, and with room on both sides.

    room : numbers before and behind each array that a shifted view may reach.
    """

    def __init__(self, xp: Any, dtype: Any, room: int) -> None:
        self.xp, self.dtype = xp, xp.dtype(dtype)
        self.line = LINE // self.dtype.itemsize
        self.room = rounded(room, self.line)
        self.free: dict[int, list[Array]] = {}
        self.first: dict[int, int] = {}  # of each whole array, where the first cache line behind the room starts
        self.all: list[Array] = []

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, of whatever finite numbers."""
        size = prod(shape)
        free = self.free.setdefault(size, [])
        if not free:
            whole = self.xp.zeros(size + 2 * self.room + self.line, dtype=self.dtype)
            behind = -whole.ctypes.data % LINE // self.dtype.itemsize if on_host(self.xp) else 0
            self.first[id(whole)] = self.room + behind
            self.all.append(whole)
            free.append(whole)
        return self.view(free.pop(), shape, 0)

    def view(self, whole: Array, shape: tuple[int, ...], shift: int) -> Array:
        """A part of a whole array."""
        start = self.first[id(whole)] + shift
        return whole[start : start + prod(shape)].reshape(shape)

    def shifted(self, a: Array, shift: int, shape: tuple[int, ...]) -> Array:
        """What stands `shift` numbers behind each number of an array that was taken, as `shape`."""
        return self.view(a.base, shape, shift)

    def give(self, *arrays: Array | None) -> None:
        """Arrays that were taken, whole."""
        for a in arrays:
            if a is not None:
                self.free[a.size].append(a.base)


def form_of(xp: Any, dtype: Any, diagonal: bool, most: int) -> Form:
    """The Form for arrays of `dtype`."""
    return Form(xp, dtype, diagonal, most, LINE // int(xp.dtype(dtype).itemsize))


def rounded(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class Form:
    """How the numbers of an image of H x W pixels lie in the fields of a tile.

    Lines of W pixels, each with its guards; and a few numbers more, so that every image starts on a cache line, and has
    guards before it: the end of what precedes it.

    diagonal : equal pixels only.   most : guards after each line, where the lines are long enough for any.
    line : numbers in a cache line.
    """

    xp: Any
    dtype: Any
    diagonal: bool
    most: int
    line: int

    def guard(self, W: int) -> int:
        """Guards after a line of W pixels."""
        return self.most if 2 * self.most < W else 0

    def run(self, H: int, W: int) -> int:
        """Numbers of one image on the right."""
        g = self.guard(W)
        return rounded(H * (W + g) + g, self.line) if g else H * W

    def lay(self, v: Array, fill: float = 0.0) -> Lay:
        """v : (n, H, W) as the pairs meet it, `fill` in the guards."""
        xp, (n, H, W) = self.xp, v.shape
        right = xp.full((n, self.run(H, W)), fill, dtype=self.dtype)
        self.inside(right, H, W)[...] = v
        return Lay(right if self.diagonal else xp.astype(v.reshape((n, H * W, 1)), self.dtype), right)

    def inside(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W), the guards left out."""
        return self.lines(a, H, W)[..., :W]

    def lines(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W + guards)."""
        width = W + self.guard(W)
        return a[..., : H * width].reshape((*a.shape[:-1], H, width))


Moved = dict[int, Array]
"""By shift s: (n, run), numbers of the images on the right, taken from s pixels, or lines, further."""


class Edges(NamedTuple):
    """What D is next to a pixel outside: half, q / 2 of the pixels, (n, H, W), and half_sum, its sums along the lines.

    along, across : half and half_sum of x', shifted along and across the lines.
    """

    half: Array
    half_sum: Array
    along: Moved
    across: Moved


def edges_of(form: Form, axes: tuple[Axis, Axis], half: Array, half_sum: Array) -> Edges:
    """The Edges of a convolution, from q / 2 and its sums along the lines."""
    (rows, columns), W = axes, half.shape[2]
    along = moved(form, half, columns, 1) if plain(columns, form.guard(W)) and not form.diagonal else {}
    across = moved(form, half_sum, rows, 0) if plain(rows, half.shape[1]) and not form.diagonal else {}
    return Edges(form.xp.astype(half, form.dtype), form.xp.astype(half_sum, form.dtype), along, across)


def moved(form: Form, v: Array, axis: Axis, along: int) -> Moved:
    """v : (n, H, W) for all shifts of a plain axis, 0 where there is no pixel."""
    found, size = {}, v.shape[1 + along]
    for s in (*range(-axis.before, 0), *range(1, axis.after + 1)):
        low, high = max(0, -s), size - max(0, s)
        out = form.xp.zeros((v.shape[0], form.run(*v.shape[1:])), dtype=form.dtype)
        to = form.inside(out, *v.shape[1:])
        to[at(3, (along + 1, slice(low, high)))] = v[at(3, (along + 1, slice(low + s, high + s)))]
        found[s] = out
    return found


class Field(ABC):
    """Distances and tangents of some pairs of images.

    d, theta : D / unit and 2 Theta / unit.   i, j : the images x and x', as slices of the tile's.   grid : (H, W).
    owed : (ratio, rest) where Theta still lacks ratio K + rest, with rest in the unit.   asked : whether Theta is.
    """

    def __init__(self, form: Form, shelf: Shelf, i: slice, j: slice, grid: tuple[int, int], *, asked: bool) -> None:
        self.form, self.shelf, self.i, self.j, self.grid, self.asked = form, shelf, i, j, grid, asked
        self.xp: Any = form.xp
        self.d: Array = shelf.take(self.shape(*grid))
        self.theta: Array | None = None
        self.owed: tuple[float, float] | None = None

    @abstractmethod
    def shape(self, H: int, W: int) -> tuple[int, ...]:
        """Shape of the arrays on a grid."""

    @abstractmethod
    def left(self, lay: Lay) -> Array:
        """The numbers of the images x, broadcasting to d."""

    @abstractmethod
    def right(self, lay: Lay) -> Array:
        """The numbers of the images x', broadcasting to d."""

    @abstractmethod
    def strips(self) -> Iterator[slice]:
        """Pieces of d's first axis for an activation."""

    def pick(self, lay: Lay, strip: slice) -> tuple[Array, Array]:
        """The numbers of x in a strip, and those of x'."""
        return self.left(lay)[strip], self.right(lay)

    @abstractmethod
    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sums over both windows, shifted together."""

    @abstractmethod
    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        """Means over each window by itself, as products with T_H and T_W."""

    @abstractmethod
    def flatten(self) -> None:
        """Means over equal pixels."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of images x and x'."""
        return self.i.stop - self.i.start, self.j.stop - self.j.start

    def each(self, work: Callable[[Array, bool], Array]) -> None:
        """d and theta replaced by what `work(array, is it d)` makes of them."""
        self.d = work(self.d, True)
        if self.theta is not None:
            self.theta = work(self.theta, False)

    def copy(self) -> Field:
        """A copy, on the same shelf."""
        other = type(self)(self.form, self.shelf, self.i, self.j, self.grid, asked=self.asked)
        other.d[...] = self.d
        other.owed = self.owed
        if self.theta is not None:
            other.theta = self.shelf.take(self.theta.shape)
            other.theta[...] = self.theta
        return other

    def close(self) -> None:
        """Give the arrays back."""
        self.shelf.give(self.d, self.theta)


class Square(Field):
    """All pairs of pixels of one image x and B images x': d, theta : (H W, B run)."""

    def shape(self, H: int, W: int) -> tuple[int, ...]:
        return H * W, self.sizes[1] * self.form.run(H, W)

    def left(self, lay: Lay) -> Array:
        return lay.left[self.i.start]

    def right(self, lay: Lay) -> Array:
        return lay.right[self.j].reshape((1, -1))

    def strips(self) -> Iterator[slice]:
        rows, width = self.d.shape
        count = -(-rows * width // STRIP) if on_host(self.xp) else 1
        step = -(-rows // count)
        for start in range(0, rows, step):
            yield slice(start, min(start + step, rows))

    def lines(self, a: Array, grid: tuple[int, int], tail: tuple[int, int]) -> Array:
        """(H, W, B, H', W' + guards)."""
        return self.form.lines(a.reshape((*grid, self.sizes[1], -1)), *tail)

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        (H, W), form, (rows, columns) = self.grid, self.form, axes
        middle, after = (H, columns.out), (rows.out, columns.out)
        edge, edge_sum = edges.half, edges.half_sum
        if form.guard(W) and not trivial(columns):
            self.stand(edge[self.i.start])

        def along_lines(a: Array, is_d: bool) -> Array:
            if trivial(columns):
                return a
            out = self.shelf.take((H * columns.out, self.sizes[1] * form.run(*middle)))
            if plain(columns, form.guard(W)):
                self.flat(a, out, columns, 1, edges.along if is_d else None, None)
            else:
                outside = (edge[self.i.start][:, :, None, None, None], edge[self.j][None, None]) if is_d else None
                source = self.lines(a, (H, W), (H, W))[..., :W]
                joint_sum(source, self.lines(out, middle, middle)[..., : columns.out], columns, (1, 4), outside)
            self.shelf.give(a)
            return out

        def across_lines(a: Array, is_d: bool) -> Array:
            if trivial(rows):
                return a
            out = self.shelf.take((prod(after), self.sizes[1] * form.run(*after)))
            one, many = edge_sum[self.i.start], edge_sum[self.j]
            if plain(rows, H):
                self.flat(a, out, rows, 0, edges.across if is_d else None, one if is_d else None)
            else:
                outside = (one[:, :, None, None, None], many[None, None]) if is_d else None
                source, target = self.lines(a, middle, middle), self.lines(out, after, after)
                joint_sum(source[..., : columns.out], target[..., : columns.out], rows, (0, 3), outside)
            self.shelf.give(a)
            return out

        self.each(along_lines)
        self.grid = middle
        self.each(across_lines)
        self.grid = after

    def stand(self, half: Array) -> None:
        """Pixels of x next to guards: D = q / 2, Theta = 0."""
        (H, W), g, B = self.grid, self.form.guard(self.grid[1]), self.sizes[1]
        run = self.form.run(H, W)
        for a, value in ((self.d, half), (self.theta, None)):
            if a is None:
                continue
            self.lines(a, (H, W), (H, W))[..., W:] = 0 if value is None else value[:, :, None, None, None]
            before = self.shelf.shifted(a, -g, (H, W, B, run))[..., :g]  # the end of what precedes each image
            before[...] = 0 if value is None else value[:, :, None, None]

    def flat(self, a: Array, out: Array, axis: Axis, along: int, right: Moved | None, left: Array | None) -> None:
        """The sums of a plain axis: runs of whole lines of both images, shifted as one.

        along : 0 across the lines, 1 along them.   right, left : `slide`'s edges of x' and of x, for D; along lines the
        guards hold those of x.
        """
        xp, form, (H, W), B = self.xp, self.form, self.grid, self.sizes[1]
        n, step, run = (W, 1, B * form.run(H, W)) if along else (H, W + form.guard(W), B * form.run(H, W))
        whole = (H, W, run)
        here, target = a.reshape(whole), out.reshape(whole)
        for s in (*range(-axis.before, 0), *range(1, axis.after + 1)):
            low, high = max(0, -s), n - max(0, s)
            there = self.shelf.shifted(a, s * step, whole)
            if along:
                xp.add(here[:, low:high], there[:, low + s : high + s], out=target[:, low:high])
            else:
                bad = slice(0, low) if s < 0 else slice(high, n)  # lines of x' for which there is none
                kept = self.lines(here, (H, W), (H, W))[low:high, :, :, bad]
                kept = kept.copy() if left is None else kept + left[low + s : high + s, :, None, None, None]
                xp.add(here[low:high], there[low + s : high + s], out=target[low:high])
                self.lines(out, (H, W), (H, W))[low:high, :, :, bad] = kept
            for hole in holes(low, high, n):
                where = (slice(None), hole) if along else hole
                if right is not None:
                    xp.add(here[where], right[s][self.j].reshape(-1), out=target[where])
                elif here is not target:
                    target[where] = here[where]
            here = target
        if here is not target:
            target[...] = here

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        (H, W), (h, w), xp, B = self.grid, grid, self.xp, self.sizes[1]

        def pooled(a: Array, is_d: bool) -> Array:
            step = xp.matmul(T[0], a.reshape((H, -1))).reshape((h, W, -1))
            step = self.form.inside(xp.matmul(T[1], step).reshape((h * w, B, -1)), H, W)
            out = self.shelf.take((h * w, B * self.form.run(h, w)))
            self.form.inside(out.reshape((h * w, B, -1)), h, w)[...] = xp.matmul(xp.matmul(T[0], step), T[1].T)
            self.shelf.give(a)
            return out

        self.each(pooled)
        self.grid = grid

    def flatten(self) -> None:
        (H, W), xp, B = self.grid, self.xp, self.sizes[1]

        def mean(a: Array, is_d: bool) -> Array:
            out = self.shelf.take((1, B * self.form.run(1, 1)))
            pixels = self.form.inside(a.reshape((H * W, B, -1)), H, W).reshape((H * W, B, H * W))
            every = xp.arange(H * W)
            out.reshape((B, -1))[:, 0] = xp.mean(pixels[every, :, every], axis=0)
            self.shelf.give(a)
            return out

        self.each(mean)
        self.grid = (1, 1)


class Diagonal(Field):
    """Equal pixels of A images x and B images x': d, theta : (A, B, run)."""

    def shape(self, H: int, W: int) -> tuple[int, ...]:
        return (*self.sizes, self.form.run(H, W))

    def left(self, lay: Lay) -> Array:
        return lay.left[self.i][:, None, :]

    def right(self, lay: Lay) -> Array:
        return lay.right[self.j][None, :, :]

    def strips(self) -> Iterator[slice]:
        yield slice(0, self.d.shape[0])

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        (H, W), form, (rows, columns) = self.grid, self.form, axes
        middle, after = (H, columns.out), (rows.out, columns.out)

        def slid(a: Array, is_d: bool) -> Array:
            if form.guard(W):
                form.lines(a, H, W)[..., W:] = 0
                a[..., H * (W + form.guard(W)) :] = 0
            for axis, along, before, behind in ((columns, 1, (H, W), middle), (rows, 0, middle, after)):
                if trivial(axis):
                    continue
                out = self.shelf.take((*self.sizes, form.run(*behind)))
                if plain(axis, form.guard(W) if along else H) and (form.guard(W) or not along):
                    self.flat(a, out, axis, along, before)
                else:
                    target, source = form.inside(out, *behind), form.inside(a, *before)
                    target[...] = 0
                    for s in range(axis.kernel):
                        for o, i in reads(axis, s):
                            target[at(4, (2 + along, o))] += source[at(4, (2 + along, i))]
                self.shelf.give(a)
                a = out
            return a

        self.each(slid)
        self.grid = after

    def flat(self, a: Array, out: Array, axis: Axis, along: int, grid: tuple[int, int]) -> None:
        """The sums of a plain axis: all numbers, shifted as one; lines for which there is none are put back."""
        xp, (H, W) = self.xp, grid
        step = 1 if along else W + self.form.guard(W)
        here = a
        for s in (*range(-axis.before, 0), *range(1, axis.after + 1)):
            bad = slice(0, -s) if s < 0 else slice(H - s, H)
            kept = None if along else xp.asarray(self.form.lines(here, H, W)[:, :, bad], copy=True)
            xp.add(here, self.shelf.shifted(a, s * step, a.shape), out=out)
            if kept is not None:
                self.form.lines(out, H, W)[:, :, bad] = kept
            here = out
        if here is a:
            out[...] = a

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        raise TypeError("pooling mixes pixels: it needs all pairs of them")

    def flatten(self) -> None:
        def mean(a: Array, is_d: bool) -> Array:
            out = self.shelf.take((*self.sizes, self.form.run(1, 1)))
            out[..., 0] = self.xp.mean(self.form.inside(a, *self.grid), axis=(2, 3))
            self.shelf.give(a)
            return out

        self.each(mean)
        self.grid = (1, 1)
