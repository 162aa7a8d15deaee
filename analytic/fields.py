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

STRIP = 1_200_000
"""Bytes of a field that are worked on at a time: few enough that most stay in a core's cache through all of a formula,
enough that threads seldom wait for each other: between two passes, a thread needs the interpreter to itself.
"""


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
    """How far the windows of a plain axis reach, but for 0.

    Forwards first: the first sum is written to another array, from the beginning of each line on, where cache lines
    begin; NumPy takes three times as long to write elsewhere than where it reads, unless it starts on one.
    """
    return (*range(1, axis.after + 1), *range(-axis.before, 0))


def add(xp: Any, a: Array, b: Array | None, out: Array) -> None:
    """out = a + b; None stands for zeros."""
    if b is None:
        out[...] = a
    else:
        xp.add(a, b, out=out)


def overlap(s: int, start: int, stop: int, size: int) -> tuple[slice, slice, slice]:
    """Of the places start:stop of 0:size: those p with p + s inside, the p + s, and the p without; p from start on."""
    low = min(max(start, -s), stop)
    high = max(min(stop, size - s), low)
    outside = slice(0, low - start) if s < 0 else slice(high - start, stop - start)
    return slice(low - start, high - start), slice(low + s, high + s), outside


def flat_rows(a: Array) -> Array:
    """a : (live, n, m, run) as (live, n m, run) or (live, n, m run), a view: ufuncs are set up faster for few axes."""
    live, n, m, run = a.shape
    return a.reshape((live, n * m, run)) if a.strides[1] == m * a.strides[2] else a.reshape((live, n, m * run))


class Shifted(NamedTuple):
    """What a window adds at shift s, as views: `here` + `there` is added up in `out`, and so are edges at the holes.

    source : pixels of x that `there` comes from.   right, left : (here, out) of p' outside, and of p outside.
    """

    s: int
    here: Array
    there: Array
    out: Array
    source: slice
    right: tuple[Array, Array] | None
    left: tuple[Array, Array] | None


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
        self.free: dict[tuple[int, ...], list[Array]] = {}
        self.places: dict[int, tuple[Array, int]] = {}
        self.views: dict[Any, Any] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, of whatever finite numbers."""
        free = self.free.setdefault(shape, [])
        if free:
            return free.pop()
        size = prod(shape)
        whole = self.xp.zeros(size + 2 * self.room + self.line, dtype=self.dtype)
        first = self.room + (-whole.ctypes.data % LINE // self.dtype.itemsize if on_host(self.xp) else 0)
        a = whole[first : first + size].reshape(shape)
        self.places[id(a)] = whole, first
        return a

    def give(self, *arrays: Array) -> None:
        """Arrays that were taken."""
        for a in arrays:
            self.free[a.shape].append(a)

    def shifted(self, a: Array, shift: int, shape: tuple[int, ...]) -> Array:
        """What stands `shift` numbers behind each number of an array that was taken, as `shape`."""
        whole, first = self.places[id(a)]
        return whole[first + shift : first + shift + prod(shape)].reshape(shape)


def form_of(xp: Any, dtype: Any, diagonal: bool, most: int, jit: bool) -> Form:
    """The Form for arrays of `dtype`."""
    return Form(xp, dtype, diagonal, most, LINE // int(xp.dtype(dtype).itemsize), jit)


def rounded(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class Form:
    """How the numbers of an image of H x W pixels lie in the fields of a tile.

    Lines of W pixels, each with its guards; and a few numbers more, so that every image starts on a cache line, and has
    guards before it: the end of what precedes it.

    diagonal : equal pixels only.   most : guards after each line, where the lines are long enough for any.
    line : numbers in a cache line.   jit : whether `analytic.jitted` takes ReLUs.
    """

    xp: Any
    dtype: Any
    diagonal: bool
    most: int
    line: int
    jit: bool

    @property
    def number(self) -> int:
        """Bytes of a number."""
        return LINE // self.line

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

    def twice(self, lay: Lay) -> Lay:
        """2 lay."""
        right = 2 * lay.right
        return Lay(right if self.diagonal else 2 * lay.left, right)

    def inside(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W), the guards left out."""
        return self.lines(a, H, W)[..., :W]

    def lines(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W + guards)."""
        width = W + self.guard(W)
        return a[..., : H * width].reshape((*a.shape[:-1], H, width))


Moved = dict[int, Array]
"""By shift s: (2, n, run), numbers of the images on the right, taken from s pixels, or lines, further; and 0."""


class Edges(NamedTuple):
    """What a pixel counts for next to one outside, for D and for Theta, (2, n, H, W): q / 2, and 0.

    half : before the sums;  half_sum : after those across the lines.
    across, along : half and half_sum of x', shifted across and along the lines.
    """

    half: Array
    half_sum: Array
    across: Moved
    along: Moved


def edges_of(form: Form, axes: tuple[Axis, Axis], half: Array, half_sum: Array) -> Edges:
    """The Edges of a convolution, from q / 2 and its sums across the lines, (n, H, W)."""
    (rows, columns), (_, H, W), xp = axes, half.shape, form.xp
    if form.diagonal:  # equal pixels are outside together
        return Edges(half[None], half_sum[None], {}, {})
    across = moved(form, half, rows, 0) if plain(rows, H) else {}
    along = moved(form, half_sum, columns, 1) if plain(columns, form.guard(W)) else {}
    one, two = (xp.astype(xp.stack((v, xp.zeros_like(v)), axis=0), form.dtype) for v in (half, half_sum))
    return Edges(one, two, across, along)


def moved(form: Form, v: Array, axis: Axis, along: int) -> Moved:
    """v : (n, H, W) for all shifts of a plain axis, 0 where there is no pixel."""
    found, size = {}, v.shape[1 + along]
    for s in shifts(axis):
        low, high = max(0, -s), size - max(0, s)
        out = form.xp.zeros((2, v.shape[0], form.run(*v.shape[1:])), dtype=form.dtype)
        to = form.inside(out[0], *v.shape[1:])
        to[at(3, (along + 1, slice(low, high)))] = v[at(3, (along + 1, slice(low + s, high + s)))]
        found[s] = out
    return found


class Field(ABC):
    """Distances and tangents of some pairs of images.

    a : (2, ...), side by side d = D / unit and theta = 2 Theta / unit, None where nobody asked, or it is 0 so far.
    i, j : the images x and x', as slices of the tile's.   grid : (H, W).   asked : whether Theta is wanted;  live : how
    many of the two there are by now.
    owed : (ratio, rest) where Theta still lacks ratio K + rest, with rest in the unit.
    """

    def __init__(self, form: Form, shelf: Shelf, i: slice, j: slice, grid: tuple[int, int], *, asked: bool) -> None:
        self.form, self.shelf, self.i, self.j, self.grid, self.asked = form, shelf, i, j, grid, asked
        self.xp: Any = form.xp
        self.live = 1
        self.hold(self.new(grid))
        self.owed: tuple[float, float] | None = None

    def new(self, grid: tuple[int, int]) -> Array:
        """An array for `a` on a grid."""
        return self.shelf.take((1 + self.asked, *self.shape(*grid)))

    def hold(self, a: Array) -> None:
        """d and theta are what a holds."""
        self.a = a
        self.d: Array = a[0]
        self.theta: Array | None = a[1] if self.live == 2 else None

    def become(self, a: Array, grid: tuple[int, int]) -> None:
        """a in place of the arrays there were."""
        self.shelf.give(self.a)
        self.grid = grid
        self.hold(a)

    def begin(self) -> Array:
        """Theta, of whatever finite numbers, from now on."""
        self.live = 2
        self.hold(self.a)
        return self.a[1]

    def kept(self, make: Callable[..., Any], arrays: tuple[Array, ...], *others: Any) -> Any:
        """make(*arrays, *others), a method's views of arrays that were taken, made once.

        Anew for other arrays, and for whatever else they are made of: grids of one rounded size share arrays.
        """
        key = make.__name__, *map(id, arrays), self.grid, self.sizes, self.live, *others
        views = self.shelf.views
        if key not in views:
            views[key] = make(*arrays, *others)
        return views[key]

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

    def copy(self) -> Field:
        """A copy, on the same shelf."""
        other = type(self)(self.form, self.shelf, self.i, self.j, self.grid, asked=self.asked)
        other.live, other.owed = self.live, self.owed
        other.hold(other.a)
        other.a[: self.live] = self.a[: self.live]
        return other

    def close(self) -> None:
        """Give the arrays back."""
        self.shelf.give(self.a)


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
        count = -(-n * width * self.form.number // STRIP) if on_host(self.xp) else 1
        step = max(1, -(-n // count))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))

    def images(self, a: Array, H: int, W: int) -> Array:
        """a : (..., H W, B run) as (..., H, W, B, run')."""
        return a.reshape((*a.shape[:-2], -1, W, self.sizes[1], a.shape[-1] // self.sizes[1]))

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sums across the lines of both images, then along them; a few lines of x at a time, which stay in cache."""
        (H, W), (rows, columns), B, run = self.grid, axes, self.sizes[1], self.form.run
        if trivial(rows) and trivial(columns):
            return
        h, w = rows.out, columns.out
        whole = [(0, h)] if not plain(rows, H) else [(p.start, p.stop) for p in self.pieces(h, W * B * run(h, W))]
        alone = len(whole) == 1 and (h, w) == (H, W) and not trivial(rows) and not trivial(columns)
        out = self.a if alone else self.new((h, w))  # nobody reads what a single piece overwrites
        if trivial(rows):
            self.along(self.a, out, columns, edges, (0, h))
            self.become(out, (h, w))
            return
        for start, stop in whole:
            if trivial(columns):
                self.across(out, (start, stop), rows, edges, (start, stop))
                continue
            between = self.shelf.take((1 + self.asked, (stop - start) * W, B * run(h, W)))
            self.across(between, (0, stop - start), rows, edges, (start, stop))
            self.along(between, out, columns, edges, (start, stop))
            self.shelf.give(between)
        if not alone:
            self.become(out, (h, w))

    def across(self, out: Array, to: tuple[int, int], axis: Axis, edges: Edges, piece: tuple[int, int]) -> None:
        """Lines `to` of `out` = the sums across the lines, for the lines `piece` of x after it."""
        (H, W), live, i, j, xp = self.grid, self.live, self.i.start, self.j, self.xp
        if plain(axis, H):
            left, right = edges.half[:live, i].reshape((live, H * W, 1, 1)), edges.across
            for one in self.kept(self.across_views, (self.a, out), to, axis, piece):
                xp.add(one.here, one.there, out=one.out)
                xp.add(one.right[0], left[:, one.source], out=one.right[1])
                if one.left is not None:
                    xp.add(one.left[0], right[one.s][:live, None, j], out=one.left[1])
            return
        outside = edges.half[:live, i, :, :, None, None, None], edges.half[:live, None, None, j]
        source, target = self.images(self.a[:live], H, W), self.images(out[:live], axis.out, W)
        joint_sum(self.form.inside(source, H, W), self.form.inside(target, axis.out, W), axis, (1, 4), outside)

    def across_views(
        self, a: Array, out: Array, to: tuple[int, int], axis: Axis, piece: tuple[int, int]
    ) -> list[Shifted]:
        """The views of `across`, (live, pixels of x, B, run)."""
        (H, W), live, (start, stop) = self.grid, self.live, piece
        source = self.images(a[:live], H, W).reshape((live, H * W, self.sizes[1], -1))
        target = self.images(out[:live], H, W)[:, slice(*to)].reshape((live, (stop - start) * W, *source.shape[2:]))
        run, step = source.shape[3], W + self.form.guard(W)
        found, here = [], source[:, start * W : stop * W]
        for s in shifts(axis):
            p, origin, bad = (slice(W * part.start, W * part.stop) for part in overlap(s, start, stop, H))
            k = min(abs(s), H) * step
            if s < 0:
                inside, there, hole = slice(k, run), slice(0, run - k), slice(0, k)
            else:
                inside, there, hole = slice(0, H * step - k), slice(k, H * step), slice(H * step - k, run)
            one, two = flat_rows(here[:, p, :, inside]), flat_rows(source[:, origin, :, there])
            total = flat_rows(target[:, p, :, inside])
            right = here[:, p, :, hole], target[:, p, :, hole]
            left = (here[:, bad], target[:, bad]) if bad.stop > bad.start else None
            found.append(Shifted(s, one, two, total, origin, right, left))
            here = target
        return found

    def along(self, a: Array, out: Array, axis: Axis, edges: Edges, piece: tuple[int, int]) -> None:
        """The sums along the lines, for some lines of x; a, these lines, is overwritten."""
        live, xp, i, j, (h, W) = self.live, self.xp, self.i.start, self.j, edges.half_sum.shape[2:]
        left, right = edges.half_sum[:live, i, slice(*piece), :, None, None, None], edges.along
        if plain(axis, self.form.guard(W)):
            after, before, views = self.kept(self.along_views, (a, out), axis, piece, (h, W))
            after[...] = left
            before[...] = left[..., 0]
            for one in views:
                xp.add(one.here, one.there, out=one.out)
                xp.add(one.left[0], right[one.s][:live, j].reshape((live, 1, 1, -1)), out=one.left[1])
            return
        source, target = self.images(a[:live], h, W), self.images(out[:live], h, axis.out)[:, slice(*piece)]
        outside = left, edges.half_sum[:live, None, None, j]
        joint_sum(self.form.inside(source, h, W), self.form.inside(target, h, axis.out), axis, (2, 5), outside)

    def along_views(
        self, a: Array, out: Array, axis: Axis, piece: tuple[int, int], grid: tuple[int, int]
    ) -> tuple[Array, Array, list[Shifted]]:
        """The views of `along`: guards after lines and before images, then the sums, (live, lines of x, W, B run)."""
        (h, W), g, live, lines = grid, self.form.guard(grid[1]), self.live, piece[1] - piece[0]
        images = self.images(a, h, W)
        before = self.shelf.shifted(a, -g, images.shape)[:live, ..., :g]  # the end of what precedes each image
        whole = (1 + self.asked, lines, W, a.shape[2])
        source, target = a.reshape(whole)[:live], out[:live].reshape((live, -1, *whole[2:]))[:, slice(*piece)]
        found, here = [], source
        for s in shifts(axis):
            p, origin, bad = overlap(s, 0, W, W)
            there = self.shelf.shifted(a, s, whole)[:live, :, origin]
            one, two, total = flat_rows(here[:, :, p]), flat_rows(there), flat_rows(target[:, :, p])
            found.append(Shifted(s, one, two, total, origin, None, (here[:, :, bad], target[:, :, bad])))
            here = target
        return self.form.lines(images[:live], h, W)[..., W:], before, found

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        (H, W), (h, w), xp, B, live = self.grid, grid, self.xp, self.sizes[1], self.live
        step = xp.matmul(T[0], self.a[:live].reshape((live, H, -1))).reshape((live, h, W, -1))
        step = self.form.inside(xp.matmul(T[1], step).reshape((live, h * w, B, -1)), H, W)
        out = self.new(grid)
        pooled = self.form.inside(out[:live].reshape((live, h * w, B, -1)), h, w)
        pooled[...] = xp.matmul(xp.matmul(T[0], step), T[1].T)
        self.become(out, grid)

    def flatten(self) -> None:
        (H, W), B, live = self.grid, self.sizes[1], self.live
        out, every = self.new((1, 1)), self.xp.arange(H * W)
        pixels = self.form.inside(self.a[:live].reshape((live, H * W, B, -1)), H, W).reshape((live, H * W, B, H * W))
        mean = self.xp.mean(pixels[:, every, :, every], axis=0)
        out[:live].reshape((live, B, -1))[..., 0] = mean
        self.become(out, (1, 1))


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
        for axis, along, before, behind in ((rows, 0, (H, W), middle), (columns, 1, middle, after)):
            if trivial(axis):
                continue
            out = self.new(behind)
            if plain(axis, form.guard(W) if along else H) and (form.guard(W) or not along):
                guards, sums = self.kept(self.views, (self.a, out), axis, along, before)
                for guard in guards:
                    guard[...] = 0
                for here, there, to in sums:
                    add(self.xp, here, there, to)
            else:
                target, source = (form.inside(a[: self.live], *g) for a, g in ((out, behind), (self.a, before)))
                target[...] = 0
                for s in range(axis.kernel):
                    for o, i in reads(axis, s):
                        target[at(5, (3 + along, o))] += source[at(5, (3 + along, i))]
            self.become(out, behind)

    def views(
        self, a: Array, out: Array, axis: Axis, along: int, grid: tuple[int, int]
    ) -> tuple[list[Array], list[tuple[Array, Array | None, Array]]]:
        """Guards to be set to 0, and what a plain axis adds: along lines all numbers, shifted as one."""
        (H, W), g, run, live = grid, self.form.guard(grid[1]), a.shape[-1], self.live
        here, target, sums = a[:live], out[:live], []
        for s in shifts(axis):
            if along:
                sums.append((here, self.shelf.shifted(a, s, a.shape)[:live], target))
            else:
                k, end = min(abs(s), H) * (W + g), H * (W + g)
                inside, there, hole = slice(0, end - k), slice(k, end), slice(end - k, run)
                if s < 0:
                    inside, there, hole = slice(k, run), slice(0, run - k), slice(0, k)
                sums.append((here[..., inside], a[:live, ..., there], target[..., inside]))
                if here is not target:
                    sums.append((here[..., hole], None, target[..., hole]))
            here = target
        before = self.shelf.shifted(a, -g, a.shape)[:live, ..., :g]
        return [self.form.lines(a[:live], H, W)[..., W:], before] if along else [], sums

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        raise TypeError("pooling mixes pixels: it needs all pairs of them")

    def flatten(self) -> None:
        out = self.new((1, 1))
        out[: self.live, ..., 0] = self.xp.mean(self.form.inside(self.a[: self.live], *self.grid), axis=(3, 4))
        self.become(out, (1, 1))
