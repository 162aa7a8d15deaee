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
    owed : whether the fields' Theta still lacks its last layer's own share (`Field.owed`).
    """

    q: Array
    theta: Array
    unit: float = 1.0
    error: float = 0.0
    owed: bool = False

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


def shifts(axis: Axis) -> tuple[int, ...]:
    """How far the windows of a plain axis reach, but for 0."""
    return (*range(-axis.before, 0), *range(1, axis.after + 1))


def add(xp: Any, a: Array, b: Array | None, out: Array) -> None:
    """out = a + b; None stands for zeros."""
    if b is not None:
        xp.add(a, b, out=out)
    elif a is not out:
        out[...] = a


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
        self.free: dict[int, list[tuple[Array, int]]] = {}
        self.taken: dict[int, tuple[Array, int]] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, of whatever finite numbers."""
        size = prod(shape)
        free = self.free.setdefault(size, [])
        if not free:
            whole = self.xp.zeros(size + 2 * self.room + self.line, dtype=self.dtype)
            behind = -whole.ctypes.data % LINE // self.dtype.itemsize if on_host(self.xp) else 0
            free.append((whole, self.room + behind))
        whole, first = free.pop()
        a = whole[first : first + size].reshape(shape)
        self.taken[id(a)] = whole, first
        return a

    def shifted(self, a: Array, shift: int, shape: tuple[int, ...]) -> Array:
        """What stands `shift` numbers behind each number of an array that was taken, as `shape`."""
        whole, first = self.taken[id(a)]
        return whole[first + shift : first + shift + prod(shape)].reshape(shape)

    def give(self, *arrays: Array | None) -> None:
        """Arrays that were taken."""
        for a in arrays:
            if a is not None:
                self.free[a.size].append(self.taken.pop(id(a)))


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
    """What D is next to a pixel outside: half, q / 2 of the pixels, (n, H, W), and half_sum, its sums across the lines.

    across, along : half and half_sum of x', shifted across and along the lines.
    """

    half: Array
    half_sum: Array
    across: Moved
    along: Moved


def edges_of(form: Form, axes: tuple[Axis, Axis], half: Array, half_sum: Array) -> Edges:
    """The Edges of a convolution, from q / 2 and its sums across the lines."""
    (rows, columns), (_, H, W) = axes, half.shape
    across = moved(form, half, rows, 0) if plain(rows, H) and not form.diagonal else {}
    along = moved(form, half_sum, columns, 1) if plain(columns, form.guard(W)) and not form.diagonal else {}
    return Edges(form.xp.astype(half, form.dtype), form.xp.astype(half_sum, form.dtype), across, along)


def moved(form: Form, v: Array, axis: Axis, along: int) -> Moved:
    """v : (n, H, W) for all shifts of a plain axis, 0 where there is no pixel."""
    found, size = {}, v.shape[1 + along]
    for s in shifts(axis):
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
        return self.pieces(*self.d.shape)

    def pieces(self, n: int, width: int) -> Iterator[slice]:
        """n times `width` numbers in pieces of one size that stay in a core's cache."""
        count = -(-n * width // STRIP) if on_host(self.xp) else 1
        step = max(1, -(-n // count))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))

    def lines(self, a: Array, grid: tuple[int, int], tail: tuple[int, int]) -> Array:
        """(H, W, B, H', W' + guards)."""
        return self.form.lines(a.reshape((*grid, self.sizes[1], -1)), *tail)

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sums across the lines of both images, then along them; a few lines of x at a time, which stay in cache."""
        (H, W), (rows, columns), take = self.grid, axes, self.shelf.take
        (h, w), B, run = (rows.out, columns.out), self.sizes[1], self.form.run
        whole = not plain(rows, H)

        def slid(a: Array, is_d: bool) -> Array:
            if trivial(rows) and trivial(columns):
                return a
            out = take((h * w, B * run(h, w)))
            for piece in [slice(0, h)] if whole else self.pieces(h, w * B * run(h, w)):
                n = piece.stop - piece.start
                part = out[w * piece.start : w * piece.stop]
                between = part if trivial(columns) else take((n * W, B * run(h, W)))
                self.across(a, between, rows, piece, edges if is_d else None)
                if not trivial(columns):
                    self.along(between, part, columns, piece, (h, W), edges if is_d else None)
                    self.shelf.give(between)
            self.shelf.give(a)
            return out

        self.each(slid)
        self.grid = h, w

    def across(self, a: Array, out: Array, axis: Axis, piece: slice, edges: Edges | None) -> None:
        """out = the sums across the lines, for some lines of x after it.   edges : those of D."""
        (H, W), xp, n = self.grid, self.xp, piece.stop - piece.start
        left = None if edges is None else edges.half[self.i.start][:, :, None, None]
        if not plain(axis, H):
            outside = None if left is None or edges is None else (left[..., None], edges.half[self.j][None, None])
            source, target = self.lines(a, (H, W), (H, W)), self.lines(out, (n, W), (axis.out, W))
            joint_sum(source[..., :W], target[..., :W], axis, (0, 3), outside)
            return
        step, run = W + self.form.guard(W), self.form.run(H, W)
        source, target = a.reshape((H, W, -1, run)), out.reshape((n, W, -1, run))
        here = source[piece]
        for s in shifts(axis):
            low = min(max(piece.start, -s), piece.stop)
            high = max(min(piece.stop, H - s), low)
            to, at_, k = slice(low - piece.start, high - piece.start), slice(low + s, high + s), abs(s) * step
            inside, there = (slice(k, run), slice(0, run - k)) if s < 0 else (slice(0, H * step - k), slice(k, H * step))
            xp.add(here[to, :, :, inside], source[at_, :, :, there], out=target[to, :, :, inside])
            for hole in holes(inside.start, inside.stop, run):  # p' outside
                add(xp, here[to, :, :, hole], None if left is None else left[at_], target[to, :, :, hole])
            for hole in holes(to.start, to.stop, n):  # p outside
                add(xp, here[hole], None if edges is None else edges.across[s][self.j], target[hole])
            here = target
        if here is not target:
            target[...] = here

    def along(
        self, a: Array, out: Array, axis: Axis, piece: slice, grid: tuple[int, int], edges: Edges | None
    ) -> None:
        """out = the sums along the lines, for some lines of x; a is overwritten."""
        (H, W), xp, form, n = grid, self.xp, self.form, piece.stop - piece.start
        left = None if edges is None else edges.half_sum[self.i.start][piece][:, :, None, None, None]
        g = form.guard(W)
        if not plain(axis, g):
            outside = None if edges is None else (left, edges.half_sum[self.j][None, None])
            source, target = self.lines(a, (n, W), grid), self.lines(out, (n, axis.out), (H, axis.out))
            joint_sum(source[..., :W], target[..., : axis.out], axis, (1, 4), outside)
            return
        whole = (n, W, self.sizes[1], form.run(H, W))
        before = self.shelf.shifted(a, -g, whole)[..., :g]  # the end of what precedes each image
        self.lines(a, (n, W), grid)[..., W:] = 0 if left is None else left
        before[...] = 0 if left is None else left[..., 0]
        whole = (n, W, whole[2] * whole[3])
        here, target = a.reshape(whole), out.reshape(whole)
        for s in shifts(axis):
            to, at_ = slice(max(0, -s), W - max(0, s)), slice(max(0, s), W + min(0, s))
            xp.add(here[:, to], self.shelf.shifted(a, s, whole)[:, at_], out=target[:, to])
            for hole in holes(to.start, to.stop, W):  # p outside
                right = None if edges is None else edges.along[s][self.j].reshape(-1)
                add(xp, here[:, hole], right, target[:, hole])
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
        middle, after = (rows.out, W), (rows.out, columns.out)

        def slid(a: Array, is_d: bool) -> Array:
            for axis, along, before, behind in ((rows, 0, (H, W), middle), (columns, 1, middle, after)):
                if trivial(axis):
                    continue
                out = self.shelf.take((*self.sizes, form.run(*behind)))
                if along and plain(axis, form.guard(W)):
                    self.along(a, out, axis, middle)
                elif not along and plain(axis, H):
                    self.across(a, out, axis)
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

    def across(self, a: Array, out: Array, axis: Axis) -> None:
        """The sums of a plain axis across the lines."""
        (H, W), run, here = self.grid, a.shape[2], a
        step = W + self.form.guard(W)
        for s in shifts(axis):
            k = abs(s) * step
            inside, there = (slice(k, run), slice(0, run - k)) if s < 0 else (slice(0, H * step - k), slice(k, H * step))
            self.xp.add(here[..., inside], a[..., there], out=out[..., inside])
            for hole in holes(inside.start, inside.stop, run):
                add(self.xp, here[..., hole], None, out[..., hole])
            here = out
        if here is a:
            out[...] = a

    def along(self, a: Array, out: Array, axis: Axis, grid: tuple[int, int]) -> None:
        """The sums of a plain axis along the lines: all numbers shifted as one, zeros in the guards."""
        (H, W), g, here = grid, self.form.guard(grid[1]), a
        self.form.lines(a, H, W)[..., W:] = 0
        self.shelf.shifted(a, -g, a.shape)[..., :g] = 0
        for s in shifts(axis):
            self.xp.add(here, self.shelf.shifted(a, s, a.shape), out=out)
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
