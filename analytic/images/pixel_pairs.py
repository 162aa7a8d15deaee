"""Which pairs of pixels a field holds, and how sums over windows, pooling and flattening act on them.

    Square     all pairs of pixels of one image x and some images x', a matrix (pixels of x, pixels of all x')
    Diagonal   equal pixels only, of some images x and some x'

Each line of pixels may end in guards, pixels outside the image, so that a window's sum is a few shifted sums of long
runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from analytic.images.fields import Edges, Field
from analytic.images.memory import Lay
from analytic.images.rules import trivial
from analytic.images.window_sums import Shifted, add, at, flat_rows, joint_sum, overlap, plain, reads, shifts
from minintk.arrays import Array, on_host
from minintk.spec.windows import Axis

STRIP = 1_200_000
"""Bytes of a field that are worked on at a time: few enough that most stay in a core's cache through all of a formula,
enough that threads seldom wait for each other: between two passes, a thread needs the interpreter to itself.
"""


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
