"""Which pairs of pixels a field holds, and how sums over windows, pooling and flattening act on them.

    Square     all pairs of pixels of one image x and some images x', a matrix (pixels of x, pixels of all x')
    Selves     the same of some images x', each with itself in the place of x
    Diagonal   equal pixels only, of some images x and some x'

Each line of pixels may end in guards, pixels outside the image, so that the sum over a window consists of a few sums of
long contiguous arrays, shifted against each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from analytic.images.fields import Edges, Field
from analytic.images.memory import PixelValues
from analytic.images.rules import trivial
from analytic.images.window_sums import ShiftedSum, add, at, joint_sum, merge_axes, overlap, plain, reads, shifts
from minintk.arrays import Array, on_host
from minintk.spec.windows import Axis

BYTES_PER_PIECE = 1_200_000
"""Bytes of a field that an activation works on at a time: few enough to stay in a core's cache through a whole formula,
many enough that threads seldom wait for the interpreter, which each of them needs between two NumPy calls.
"""


class Square(Field):
    """All pairs of pixels of one image x and B images x': d, theta : (H W, B size)."""

    def shape(self, H: int, W: int) -> tuple[int, ...]:
        return H * W, self.sizes[1] * self.layout.padded_size(H, W)

    def left(self, values: PixelValues) -> Array:
        return values.left[self.i.start]

    def right(self, values: PixelValues) -> Array:
        return values.right[self.j].reshape((1, -1))

    def pixels_of_x(self, v: Array) -> Array:
        """v : (2, n, H, W) as (live, H, W, 1 or B, 1, 1), beside the pixels of all x'."""
        return v[: self.live, self.i.start, ..., None, None, None]

    def pieces(self) -> Iterator[slice]:
        return self.split(*self.d.shape)

    def split(self, n: int, width: int) -> Iterator[slice]:
        """Slices of 0:n, of equal size, such that so many times `width` numbers stay in a core's cache."""
        count = -(-n * width * self.layout.number // BYTES_PER_PIECE) if on_host(self.xp) else 1
        step = max(1, -(-n // count))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))

    def images(self, a: Array, H: int, W: int) -> Array:
        """a : (..., H W, B size) as (..., H, W, B, size')."""
        return a.reshape((*a.shape[:-2], -1, W, self.sizes[1], a.shape[-1] // self.sizes[1]))

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sums across the lines of both images, then along them; for a few lines of x at a time, to stay in cache."""
        (H, W), (rows, columns), B, size = self.grid, axes, self.sizes[1], self.layout.padded_size
        if trivial(rows) and trivial(columns):
            return
        h, w = rows.out, columns.out
        whole = [(0, h)] if not plain(rows, H) else [(p.start, p.stop) for p in self.split(h, W * B * size(h, W))]
        alone = len(whole) == 1 and (h, w) == (H, W) and not trivial(rows) and not trivial(columns)
        out = self.a if alone else self.new((h, w))  # a single piece may overwrite its input
        if trivial(rows):
            self.along(self.a, out, columns, edges, (0, h))
            self.swap_in(out, (h, w))
            return
        for start, stop in whole:
            if trivial(columns):
                self.across(out, (start, stop), rows, edges, (start, stop))
                continue
            between = self.workspace.take((1 + self.asked, (stop - start) * W, B * size(h, W)))
            self.across(between, (0, stop - start), rows, edges, (start, stop))
            self.along(between, out, columns, edges, (start, stop))
            self.workspace.give(between)
        if not alone:
            self.swap_in(out, (h, w))

    def across(self, out: Array, to: tuple[int, int], axis: Axis, edges: Edges, piece: tuple[int, int]) -> None:
        """Lines `to` of `out` = the sums across the lines, for the lines `piece` of x after the step."""
        (H, W), live, j, xp = self.grid, self.live, self.j, self.xp
        if plain(axis, H):
            left, right = self.pixels_of_x(edges.half).reshape((live, H * W, -1, 1)), edges.across
            for one in self.cached(self.across_views, (self.a, out), to, axis, piece):
                xp.add(one.here, one.there, out=one.out)
                xp.add(one.right[0], left[:, one.source], out=one.right[1])
                if one.left is not None:
                    xp.add(one.left[0], right[one.s][:live, None, j], out=one.left[1])
            return
        outside = self.pixels_of_x(edges.half), edges.half[:live, None, None, j]
        source, target = self.images(self.a[:live], H, W), self.images(out[:live], axis.out, W)
        joint_sum(self.layout.inside(source, H, W), self.layout.inside(target, axis.out, W), axis, (1, 4), outside)

    def across_views(
        self, a: Array, out: Array, to: tuple[int, int], axis: Axis, piece: tuple[int, int]
    ) -> list[ShiftedSum]:
        """The views that `across` adds up, (live, pixels of x, B, size)."""
        (H, W), live, (start, stop) = self.grid, self.live, piece
        source = self.images(a[:live], H, W).reshape((live, H * W, self.sizes[1], -1))
        target = self.images(out[:live], H, W)[:, slice(*to)].reshape((live, (stop - start) * W, *source.shape[2:]))
        run, step = source.shape[3], W + self.layout.guards(W)
        found, here = [], source[:, start * W : stop * W]
        for s in shifts(axis):
            p, origin, bad = (slice(W * part.start, W * part.stop) for part in overlap(s, start, stop, H))
            k = min(abs(s), H) * step
            if s < 0:
                inside, there, hole = slice(k, run), slice(0, run - k), slice(0, k)
            else:
                inside, there, hole = slice(0, H * step - k), slice(k, H * step), slice(H * step - k, run)
            one, two = merge_axes(here[:, p, :, inside]), merge_axes(source[:, origin, :, there])
            total = merge_axes(target[:, p, :, inside])
            right = here[:, p, :, hole], target[:, p, :, hole]
            left = (here[:, bad], target[:, bad]) if bad.stop > bad.start else None
            found.append(ShiftedSum(s, one, two, total, origin, right, left))
            here = target
        return found

    def along(self, a: Array, out: Array, axis: Axis, edges: Edges, piece: tuple[int, int]) -> None:
        """The sums along the lines, for some lines of x; overwrites a, which holds these lines."""
        live, xp, j, (h, W) = self.live, self.xp, self.j, edges.half_sum.shape[2:]
        left, right = self.pixels_of_x(edges.half_sum)[:, slice(*piece)], edges.along
        if plain(axis, self.layout.guards(W)):
            after, before, views = self.cached(self.along_views, (a, out), axis, piece, (h, W))
            after[...] = left
            before[...] = left[..., 0]
            for one in views:
                xp.add(one.here, one.there, out=one.out)
                xp.add(one.left[0], right[one.s][:live, j].reshape((live, 1, 1, -1)), out=one.left[1])
            return
        source, target = self.images(a[:live], h, W), self.images(out[:live], h, axis.out)[:, slice(*piece)]
        outside = left, edges.half_sum[:live, None, None, j]
        joint_sum(self.layout.inside(source, h, W), self.layout.inside(target, h, axis.out), axis, (2, 5), outside)

    def along_views(
        self, a: Array, out: Array, axis: Axis, piece: tuple[int, int], grid: tuple[int, int]
    ) -> tuple[Array, Array, list[ShiftedSum]]:
        """The views for `along`: guards after lines and before images, then the sums, (live, lines of x, W, B size)."""
        (h, W), g, live, lines = grid, self.layout.guards(grid[1]), self.live, piece[1] - piece[0]
        images = self.images(a, h, W)
        before = self.workspace.shifted(a, -g, images.shape)[:live, ..., :g]  # where the preceding image ends
        whole = (1 + self.asked, lines, W, a.shape[2])
        source, target = a.reshape(whole)[:live], out[:live].reshape((live, -1, *whole[2:]))[:, slice(*piece)]
        found, here = [], source
        for s in shifts(axis):
            p, origin, bad = overlap(s, 0, W, W)
            there = self.workspace.shifted(a, s, whole)[:live, :, origin]
            one, two, total = merge_axes(here[:, :, p]), merge_axes(there), merge_axes(target[:, :, p])
            found.append(ShiftedSum(s, one, two, total, origin, None, (here[:, :, bad], target[:, :, bad])))
            here = target
        return self.layout.lines(images[:live], h, W)[..., W:], before, found

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        (H, W), (h, w), xp, B, live = self.grid, grid, self.xp, self.sizes[1], self.live
        step = xp.matmul(T[0], self.a[:live].reshape((live, H, -1))).reshape((live, h, W, -1))
        step = self.layout.inside(xp.matmul(T[1], step).reshape((live, h * w, B, -1)), H, W)
        out = self.new(grid)
        pooled = self.layout.inside(out[:live].reshape((live, h * w, B, -1)), h, w)
        pooled[...] = xp.matmul(xp.matmul(T[0], step), T[1].T)
        self.swap_in(out, grid)

    def flatten(self) -> None:
        (H, W), B, live = self.grid, self.sizes[1], self.live
        out, every = self.new((1, 1)), self.xp.arange(H * W)
        pixels = self.layout.inside(self.a[:live].reshape((live, H * W, B, -1)), H, W).reshape((live, H * W, B, H * W))
        mean = self.xp.mean(pixels[:, every, :, every], axis=0)
        out[:live].reshape((live, B, -1))[..., 0] = mean
        self.swap_in(out, (1, 1))


class Selves(Square):
    """All pairs of pixels of B images, each with itself: d, theta : (H W, B size)."""

    def left(self, values: PixelValues) -> Array:
        of, xp = values.left[self.j], self.xp  # (B, H W, 1)
        wide = xp.broadcast_to(xp.moveaxis(of, 0, 1), (of.shape[1], of.shape[0], values.right.shape[1]))
        return wide.reshape((of.shape[1], -1))

    def pixels_of_x(self, v: Array) -> Array:
        return self.xp.moveaxis(v[: self.live, self.j], 1, -1)[..., None, None]


class Diagonal(Field):
    """Equal pixels of A images x and B images x': d, theta : (A, B, size)."""

    def shape(self, H: int, W: int) -> tuple[int, ...]:
        return (*self.sizes, self.layout.padded_size(H, W))

    def left(self, values: PixelValues) -> Array:
        return values.left[self.i][:, None, :]

    def right(self, values: PixelValues) -> Array:
        return values.right[self.j][None, :, :]

    def pieces(self) -> Iterator[slice]:
        yield slice(0, self.d.shape[0])

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        (H, W), layout, (rows, columns) = self.grid, self.layout, axes
        middle, after = (rows.out, W), (rows.out, columns.out)
        for axis, along, before, behind in ((rows, 0, (H, W), middle), (columns, 1, middle, after)):
            if trivial(axis):
                continue
            out = self.new(behind)
            if plain(axis, layout.guards(W) if along else H) and (layout.guards(W) or not along):
                guards, sums = self.cached(self.views, (self.a, out), axis, along, before)
                for guard in guards:
                    guard[...] = 0
                for here, there, to in sums:
                    add(self.xp, here, there, to)
            else:
                target, source = (layout.inside(a[: self.live], *g) for a, g in ((out, behind), (self.a, before)))
                target[...] = 0
                for s in range(axis.kernel):
                    for o, i in reads(axis, s):
                        target[at(5, (3 + along, o))] += source[at(5, (3 + along, i))]
            self.swap_in(out, behind)

    def views(
        self, a: Array, out: Array, axis: Axis, along: int, grid: tuple[int, int]
    ) -> tuple[list[Array], list[tuple[Array, Array | None, Array]]]:
        """The guards to be set to 0, and the views that a plain axis adds; along lines, whole arrays are shifted."""
        (H, W), g, run, live = grid, self.layout.guards(grid[1]), a.shape[-1], self.live
        here, target, sums = a[:live], out[:live], []
        for s in shifts(axis):
            if along:
                sums.append((here, self.workspace.shifted(a, s, a.shape)[:live], target))
            else:
                k, end = min(abs(s), H) * (W + g), H * (W + g)
                inside, there, hole = slice(0, end - k), slice(k, end), slice(end - k, run)
                if s < 0:
                    inside, there, hole = slice(k, run), slice(0, run - k), slice(0, k)
                sums.append((here[..., inside], a[:live, ..., there], target[..., inside]))
                if here is not target:
                    sums.append((here[..., hole], None, target[..., hole]))
            here = target
        before = self.workspace.shifted(a, -g, a.shape)[:live, ..., :g]
        return [self.layout.lines(a[:live], H, W)[..., W:], before] if along else [], sums

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        raise TypeError("pooling mixes pixels: it needs all pairs of them")

    def flatten(self) -> None:
        out = self.new((1, 1))
        out[: self.live, ..., 0] = self.xp.mean(self.layout.inside(self.a[: self.live], *self.grid), axis=(3, 4))
        self.swap_in(out, (1, 1))
