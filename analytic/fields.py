"""What is carried through the layers for images: of every pixel its variance, of every pair of pixels a distance.

For pixels p of x and p' of x', with pre-activations u, u' of variances q, q' and covariance K:

    D = E (u - u')^2 / 2 = (q + q') / 2 - K >= 0              Theta, the tangent kernel; None where nobody asks

D is linear, so sums over windows act on it as on K, and pixels that coincide have exactly 0: the angle between u and u'
comes from D alone, without the difference of two nearly equal numbers.  A pixel outside the image is 0: next to one
inside, of variance q, D = q / 2.

The variances run ahead in float64 (`Pixels`); the distances of some pairs of images (`Field`) follow, in one of two forms:

    Square     all pairs of pixels of one image x and some images x', a matrix (pixels of x, pixels of all x')
    Diagonal   equal pixels only, of some images x and some x'

Each row of pixels may end in guards, pixels outside the image, so that a window's sum is a few shifted sums of long runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from analytic.images import trivial
from minintk.arrays import Array, array_namespace
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


def reads(axis: Axis, s: int) -> list[tuple[slice, slice]]:
    """(outputs, inputs) such that output p reads input stride p - before + s: runs, two or more where it wraps around."""
    runs: list[tuple[slice, slice]] = []
    start, places = 0, [axis.stride * p - axis.before + s for p in range(axis.out)]
    if axis.circular:
        places = [place % axis.size for place in places]
    for p in range(1, axis.out + 1):
        if p == axis.out or places[p] != places[p - 1] + axis.stride:
            runs.append((slice(start, p), slice(places[start], places[p - 1] + 1, axis.stride)))
            start = p
    if axis.circular:
        return runs
    inside = [p for p, place in enumerate(places) if 0 <= place < axis.size]
    if not inside:
        return []
    first, last = inside[0], inside[-1]
    return [(slice(first, last + 1), slice(places[first], places[last] + 1, axis.stride))]


def holes(runs: list[tuple[slice, slice]], size: int) -> list[slice]:
    """The outputs that no run reaches, where there is at most one run."""
    if not runs:
        return [slice(0, size)]
    low, high = runs[0][0].start, runs[-1][0].stop
    return [hole for hole in (slice(0, low), slice(high, size)) if hole.stop > hole.start]


def flat_shift(axis: Axis, guard: int) -> bool:
    """Whether guards do: the same number of pixels out, and windows that reach no further than them."""
    return (
        guard > 0
        and axis.stride == 1
        and axis.out == axis.size
        and not axis.circular
        and max(axis.before, axis.after) <= guard
        and axis.kernel > 1
    )


def at(ndim: int, *where: tuple[int, slice]) -> tuple[slice, ...]:
    """An index with slices along some axes."""
    index = [slice(None)] * ndim
    for axis, piece in where:
        index[axis] = piece
    return tuple(index)


def window_sum(a: Array, axis: Axis, along: int) -> Array:
    """sum_s a[S p + s] along one axis of a."""
    shape = list(a.shape)
    shape[along] = axis.out
    out = array_namespace(a).zeros(tuple(shape), dtype=a.dtype)
    for s in range(axis.kernel):
        for o, i in reads(axis, s):
            out[at(a.ndim, (along, o))] += a[at(a.ndim, (along, i))]
    return out


def joint_sum(a: Array, out: Array, axis: Axis, along: tuple[int, ...], outside: tuple[Array, Array] | None) -> None:
    """out = sum_s a[S p + s, S p' + s] along one axis, or along a pair of axes shifted together.

    outside : what a pixel inside counts for next to one outside, left and right, broadcasting to a; None for nothing.
    """
    out[...] = 0
    for s in range(axis.kernel):
        runs = reads(axis, s)
        for o, i in runs:
            if len(along) == 1:
                out[at(a.ndim, (along[0], o))] += a[at(a.ndim, (along[0], i))]
                continue
            for o2, i2 in runs:
                out[at(a.ndim, (along[0], o), (along[1], o2))] += a[at(a.ndim, (along[0], i), (along[1], i2))]
        if outside is not None and not axis.circular:
            for hole in holes(runs, axis.out):
                for o, i in runs:
                    out[at(a.ndim, (along[0], o), (along[1], hole))] += outside[0][at(a.ndim, (along[0], i))]
                    out[at(a.ndim, (along[0], hole), (along[1], o))] += outside[1][at(a.ndim, (along[1], i))]


# ---------------------------------------------------------------------------------------------- fields


class Shelf:
    """Arrays taken and given back: a thread's working memory."""

    def __init__(self, xp: Any, dtype: Any) -> None:
        self.xp, self.dtype = xp, dtype
        self.free: dict[int, list[Array]] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, of whatever finite numbers."""
        size = prod(shape)
        free = self.free.get(size)
        return (free.pop() if free else self.xp.zeros(size, dtype=self.dtype)).reshape(shape)

    def give(self, *arrays: Array | None) -> None:
        """Arrays that were taken, whole."""
        for a in arrays:
            if a is not None:
                self.free.setdefault(a.size, []).append(a.reshape(-1))


@dataclass(frozen=True)
class Form:
    """How the numbers of an image of H x W pixels lie in the fields of a tile.

    diagonal : equal pixels only.   most : guards after each row of pixels, where the rows are long enough for any.
    """

    xp: Any
    dtype: Any
    diagonal: bool
    most: int

    def guard(self, W: int) -> int:
        """Guards after a row of W pixels."""
        return self.most if W > 2 * self.most else 0

    def run(self, H: int, W: int) -> int:
        """Numbers of one image on the right, with its guards."""
        g = self.guard(W)
        return H * (W + g) + (0 if self.diagonal else g)

    def lay(self, v: Array, fill: float = 0.0) -> Lay:
        """v : (n, H, W) as the pairs meet it, `fill` in the guards."""
        xp, (n, H, W) = self.xp, v.shape
        right = xp.full((n, self.run(H, W)), fill, dtype=self.dtype)
        self.inside(right, H, W)[...] = v
        if self.diagonal:
            return Lay(right, right)
        return Lay(xp.astype(v.reshape((n, H * W, 1)), self.dtype), right)

    def inside(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W), the guards left out."""
        return self.lines(a, H, W)[..., :W]

    def lines(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W + guards)."""
        g = self.guard(W)
        start = 0 if self.diagonal else g
        return a[..., start:].reshape((*a.shape[:-1], H, W + g))


class Field(ABC):
    """Distances and tangents of some pairs of images.

    d, theta : D / unit and 2 Theta / unit.   i, j : the images x and x', as a slice of the tile's.   grid : (H, W).
    owed : (ratio, rest) where Theta still lacks ratio K + rest, with rest in the unit.
    """

    def __init__(self, form: Form, shelf: Shelf, i: slice, j: slice, grid: tuple[int, int]) -> None:
        self.form, self.shelf, self.i, self.j, self.grid = form, shelf, i, j, grid
        self.xp: Any = form.xp
        self.d: Array = shelf.take(self.shape(*grid))
        self.theta: Array | None = None
        self.asked = True
        self.owed: tuple[float, float] | None = None

    @abstractmethod
    def shape(self, H: int, W: int) -> tuple[int, int]:
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

    @abstractmethod
    def slide(self, axes: tuple[Axis, Axis], edge: Array, edge_sum: Array) -> None:
        """Sums over both windows, shifted together."""

    @abstractmethod
    def pool(self, left: tuple[Array, Array], right: tuple[Array, Array], grid: tuple[int, int]) -> None:
        """Means over each window by itself, as products with (T_H, T_W)."""

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
        other = type(self)(self.form, self.shelf, self.i, self.j, self.grid)
        other.d[...] = self.d
        other.asked, other.owed = self.asked, self.owed
        if self.theta is not None:
            other.theta = self.shelf.take(self.theta.shape)
            other.theta[...] = self.theta
        return other

    def close(self) -> None:
        """Give the arrays back."""
        self.shelf.give(self.d, self.theta)


class Square(Field):
    """All pairs of pixels of one image x and B images x': d, theta : (H W, B run)."""

    def shape(self, H: int, W: int) -> tuple[int, int]:
        return H * W, self.sizes[1] * self.form.run(H, W)

    def left(self, lay: Lay) -> Array:
        return lay.left[self.i.start]

    def right(self, lay: Lay) -> Array:
        return lay.right[self.j].reshape((1, -1))

    def strips(self) -> Iterator[slice]:
        rows, width = self.d.shape
        step = max(1, STRIP // width)
        for start in range(0, rows, step):
            yield slice(start, min(start + step, rows))

    def lines(self, a: Array, grid: tuple[int, int], tail: tuple[int, int]) -> Array:
        """(H, W, B, H', W' + guards)."""
        return self.form.lines(a.reshape((*grid, self.sizes[1], -1)), *tail)

    def slide(self, axes: tuple[Axis, Axis], edge: Array, edge_sum: Array) -> None:
        (H, W), xp, form = self.grid, self.xp, self.form
        rows, columns = axes
        middle, after = (H, columns.out), (rows.out, columns.out)
        one, many = edge[self.i.start], edge[self.j]
        one_sum, many_sum = edge_sum[self.i.start], edge_sum[self.j]
        if form.guard(W):  # a pixel of x next to a guard
            lines = self.lines(self.d, (H, W), (H, W))
            lines[..., W:] = one[:, :, None, None, None]
            self.guard_front(one)

        def columns_of(a: Array, is_d: bool) -> Array:
            if trivial(columns):
                return a
            out = self.shelf.take((H * columns.out, self.sizes[1] * form.run(H, columns.out)))
            if flat_shift(columns, form.guard(W)):
                edges = form.lay(many).right.reshape(-1) if is_d else None
                flat_sum(xp, a.reshape((H, W, -1)), out.reshape((H, W, -1)), columns, edges)
            else:
                inside = (
                    self.lines(a, (H, W), (H, W))[..., :W],
                    self.lines(out, middle, middle)[..., : columns.out],
                )
                outside = (one[:, :, None, None, None], many[None, None]) if is_d else None
                joint_sum(*inside, columns, (1, 4), outside)
            self.shelf.give(a)
            return out

        def rows_of(a: Array, is_d: bool) -> Array:
            if trivial(rows):
                return a
            out = self.shelf.take((prod(after), self.sizes[1] * form.run(*after)))
            outside = (one_sum[:, :, None, None, None], many_sum[None, None]) if is_d else None
            g = form.guard(columns.out)
            if outside is not None and g:
                padded = xp.zeros((*many_sum.shape[:-1], columns.out + g), dtype=form.dtype)
                padded[..., : columns.out] = many_sum
                outside = (outside[0], padded[None, None])
            joint_sum(self.lines(a, middle, middle), self.lines(out, after, after), rows, (0, 3), outside)
            self.shelf.give(a)
            return out

        self.each(columns_of)
        self.each(rows_of)
        self.grid = after

    def guard_front(self, one: Array) -> None:
        """Guards: D = q / 2, Theta = 0."""
        (H, W), g = self.grid, self.form.guard(self.grid[1])
        runs = self.d.reshape((H, W, self.sizes[1], -1))
        runs[..., :g] = one[:, :, None, None]
        if self.theta is not None:
            self.theta.reshape((H, W, self.sizes[1], -1))[..., :g] = 0
            self.lines(self.theta, (H, W), (H, W))[..., W:] = 0

    def pool(self, left: tuple[Array, Array], right: tuple[Array, Array], grid: tuple[int, int]) -> None:
        (H, W), (h, w), xp, B = self.grid, grid, self.xp, self.sizes[1]

        def pooled(a: Array, is_d: bool) -> Array:
            step = xp.matmul(left[0], a.reshape((H, -1))).reshape((h, W, -1))
            step = xp.matmul(left[1], step)
            step = self.form.inside(step.reshape((h * w, B, -1)), H, W)
            step = xp.matmul(right[0], step)
            step = xp.matmul(step, right[1].T)
            out = self.shelf.take((h * w, B * self.form.run(h, w)))
            self.form.inside(out.reshape((h * w, B, -1)), h, w)[...] = step
            self.shelf.give(a)
            return out

        self.each(pooled)
        self.grid = grid

    def flatten(self) -> None:
        (H, W), xp, B = self.grid, self.xp, self.sizes[1]

        def mean(a: Array, is_d: bool) -> Array:
            out = self.shelf.take((1, B))
            pixels = self.form.inside(a.reshape((H * W, B, -1)), H, W).reshape((H * W, B, H * W))
            every = xp.arange(H * W)
            xp.mean(pixels[every, :, every], axis=0, out=out[0])
            self.shelf.give(a)
            return out

        self.each(mean)
        self.grid = (1, 1)


def flat_sum(xp: Any, a: Array, out: Array, axis: Axis, edges: Array | None) -> None:
    """out = sum_s a[:, p + s, p' + s] of a : (H, W, run), p' along the run; `edges` next to pixels outside on the left."""
    W, n = a.shape[1], a.shape[2]
    out[...] = a
    for s in (*range(-axis.before, 0), *range(1, axis.after + 1)):
        low, high, first, last = max(0, -s), W - max(0, s), max(0, -s), n - max(0, s)
        out[:, low:high, first:last] += a[:, low + s : high + s, first + s : last + s]
        if edges is not None:
            for hole in (slice(0, low), slice(high, W)):
                out[:, hole, first:last] += edges[first + s : last + s]


class Diagonal(Field):
    """Equal pixels of A images x and B images x': d, theta : (A B, run)."""

    def shape(self, H: int, W: int) -> tuple[int, int]:
        return prod(self.sizes), self.form.run(H, W)

    def left(self, lay: Lay) -> Array:
        return self.xp.repeat(lay.left[self.i], self.sizes[1], axis=0)

    def right(self, lay: Lay) -> Array:
        return self.xp.tile(lay.right[self.j], (self.sizes[0], 1))

    def strips(self) -> Iterator[slice]:
        yield slice(0, self.d.shape[0])

    def slide(self, axes: tuple[Axis, Axis], edge: Array, edge_sum: Array) -> None:
        (H, W), form, n = self.grid, self.form, self.d.shape[0]
        rows, columns = axes
        middle, after = (H, columns.out), (rows.out, columns.out)

        def slid(a: Array, is_d: bool) -> Array:
            lines = form.lines(a, H, W)
            if form.guard(W):
                lines[..., W:] = 0
            if not trivial(columns):
                out = self.shelf.take((n, form.run(*middle)))
                if flat_shift(columns, form.guard(W)):
                    source, target = a.reshape(-1), out.reshape(-1)
                    target[...] = source
                    for s in (*range(-columns.before, 0), *range(1, columns.after + 1)):
                        first, last = max(0, -s), source.shape[0] - max(0, s)
                        target[first:last] += source[first + s : last + s]
                else:
                    joint_sum(form.inside(a, H, W), form.inside(out, *middle), columns, (2,), None)
                self.shelf.give(a)
                a = out
            if not trivial(rows):
                out = self.shelf.take((n, form.run(*after)))
                joint_sum(form.lines(a, *middle), form.lines(out, *after), rows, (1,), None)
                self.shelf.give(a)
                a = out
            return a

        self.each(slid)
        self.grid = after

    def pool(self, left: tuple[Array, Array], right: tuple[Array, Array], grid: tuple[int, int]) -> None:
        raise TypeError("pooling mixes pixels: it needs all pairs of them")

    def flatten(self) -> None:
        def mean(a: Array, is_d: bool) -> Array:
            out = self.shelf.take((a.shape[0], 1))
            self.xp.mean(self.form.inside(a, *self.grid), axis=(1, 2), out=out[:, 0])
            self.shelf.give(a)
            return out

        self.each(mean)
        self.grid = (1, 1)
