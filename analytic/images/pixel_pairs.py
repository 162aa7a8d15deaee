"""Arrange pairs of pixels in a field, and apply window sums, pooling and flattening to the field.

Square     all pairs of pixels of some images x and x', as a matrix (pixels of all x, pixels of all x')
Selves     all pairs of pixels of each image with itself
Diagonal   only pairs of pixels at the same position of some images x and x'
"""

from __future__ import annotations

from collections.abc import Iterator

from analytic.images.fields import Edges, Field
from analytic.images.memory import PixelValues
from analytic.images.rules import trivial
from analytic.images.window_sums import add_windows, at, plain, reads
from minintk.arrays import Array, on_host
from minintk.spec.windows import Axis

BYTES_PER_PIECE = 1_200_000
"""Number of bytes of a field that an activation processes at a time.  Such a piece and a formula's temporary arrays fit
into a core's cache.  The piece is so large that threads seldom wait for the interpreter lock between NumPy calls."""


class Square(Field):
    """All pairs of pixels of A images x and B images x'; d, theta : (A H W, B H W)."""

    def shape(self, H: int, W: int) -> tuple[int, ...]:
        return self.sizes[0] * H * W, self.sizes[1] * H * W

    def left(self, values: PixelValues) -> Array:
        return values.left[self.i].reshape((-1, 1))

    def right(self, values: PixelValues) -> Array:
        return values.right[self.j].reshape((1, -1))

    def pixels_of_x(self, v: Array) -> Array:
        """Reshape v : (2, n, H, W) to (live, A, H, W, 1 or B, 1, 1), to broadcast with the pixels of all x'."""
        return v[: self.live, self.i, ..., None, None, None]

    def pieces(self, finer: int = 1) -> Iterator[slice]:
        return self.split(self.d.shape[0], finer * self.d.shape[1])

    def split(self, n: int, width: int) -> Iterator[slice]:
        """Yield slices of 0:n.  On the host, each fits into a core's cache, with `width` entries per index."""
        count = -(-n * width * self.layout.number // BYTES_PER_PIECE) if on_host(self.xp) else 1
        step = -(-n // count)
        yield from (slice(start, min(start + step, n)) for start in range(0, n, step))

    def images(self, a: Array, W: int) -> Array:
        """Reshape a : (..., A H W, B H' W) to (..., A, H, W, B, H', W)."""
        lines, lines2 = (a.shape[k - 2] // (count * W) for k, count in enumerate(self.sizes))
        return a.reshape((*a.shape[:-2], self.sizes[0], lines, W, self.sizes[1], lines2, W))

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sum across the lines of both images, then along the lines, a few lines of x at a time to stay in cache."""
        (H, W), (rows, columns), (A, B) = self.grid, axes, self.sizes
        if trivial(rows) and trivial(columns):
            return
        h, w = rows.out, columns.out
        whole = [(p.start, p.stop) for p in self.split(h, A * W * B * h * W)] if plain(rows) else [(0, h)]
        alone = len(whole) == 1 and (h, w) == (H, W) and not trivial(rows) and not trivial(columns)
        out = self.a if alone else self.new((h, w))  # a single piece overwrites its input
        if trivial(rows):
            self.along(self.a, out, columns, edges, (0, h))
        else:
            for start, stop in whole:
                if trivial(columns):
                    self.across(out, (start, stop), rows, edges, (start, stop))
                    continue
                between = self.workspace.take((1 + self.asked, A * (stop - start) * W, B * h * W))
                self.across(between, (0, stop - start), rows, edges, (start, stop))
                self.along(between, out, columns, edges, (start, stop))
                self.workspace.give(between)
        if not alone:
            self.swap_in(out, (h, w))

    def across(self, out: Array, to: tuple[int, int], axis: Axis, edges: Edges, piece: tuple[int, int]) -> None:
        """Write the sums across the lines into lines `to` of `out`, for lines `piece` of x after the step."""
        W, live = self.grid[1], self.live
        outside = self.pixels_of_x(edges.half), edges.half[:live, None, None, None, self.j]
        source, target = self.images(self.a[:live], W), self.images(out[:live], W)[:, :, slice(*to)]
        add_windows(source, target, axis, (2, 5), outside, piece[0])

    def along(self, a: Array, out: Array, axis: Axis, edges: Edges, piece: tuple[int, int]) -> None:
        """Write the sums along the lines of `a` into `out`, for the lines `piece` of x."""
        live, W = self.live, edges.half_sum.shape[3]
        outside = self.pixels_of_x(edges.half_sum)[:, :, slice(*piece)], edges.half_sum[:live, None, None, None, self.j]
        source, target = self.images(a[:live], W), self.images(out[:live], axis.out)[:, :, slice(*piece)]
        add_windows(source, target, axis, (3, 6), outside)

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        (H, W), (h, w), xp, (A, B), live = self.grid, grid, self.xp, self.sizes, self.live
        if self.added_up:
            self.added_up, weights = False, xp.multiply.outer(*(xp.max(t, axis=1) for t in T)).reshape(-1)
            sums = self.a[:live].reshape((live, A, h * w, B, h * w))
            sums *= weights[:, None, None]
            sums *= weights
            return
        step = xp.matmul(T[0], self.a[:live].reshape((live, A, H, -1))).reshape((live, A, h, W, -1))
        step = xp.matmul(T[1], step).reshape((live, A * h * w, B, H, W))
        out = self.new(grid)
        out[:live] = xp.matmul(xp.matmul(T[0], step), T[1].T).reshape(out[:live].shape)
        self.swap_in(out, grid)

    def flatten(self) -> None:
        (H, W), (A, B), live = self.grid, self.sizes, self.live
        out, every = self.new((1, 1)), self.xp.arange(H * W)
        pixels = self.a[:live].reshape((live, A, H * W, B, H * W))
        out[:live] = self.xp.mean(pixels[:, :, every, :, every], axis=0)
        self.swap_in(out, (1, 1))


class Selves(Square):
    """All pairs of pixels of B images, each paired with itself; d, theta : (H W, B H W)."""

    def left(self, values: PixelValues) -> Array:
        of, xp = values.left[self.j], self.xp  # (B, H W, 1)
        wide = xp.broadcast_to(xp.moveaxis(of, 0, 1), (of.shape[1], of.shape[0], values.right.shape[1]))
        return wide.reshape((of.shape[1], -1))

    def pixels_of_x(self, v: Array) -> Array:
        return self.xp.moveaxis(v[: self.live, None, self.j], 2, -1)[..., None, None]


class Diagonal(Field):
    """Pairs of pixels at the same position of A images x and B images x'; d, theta : (A, B, H W)."""

    def shape(self, H: int, W: int) -> tuple[int, ...]:
        return (*self.sizes, H * W)

    def left(self, values: PixelValues) -> Array:
        return values.left[self.i][:, None, :]

    def right(self, values: PixelValues) -> Array:
        return values.right[self.j][None, :, :]

    def pieces(self, finer: int = 1) -> Iterator[slice]:
        A, _ = self.sizes
        step = max(1, A // finer) if on_host(self.xp) else A
        yield from (slice(n, n + step) for n in range(0, A, step))

    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        (H, W), (rows, columns) = self.grid, axes
        middle, after = (rows.out, W), (rows.out, columns.out)
        for axis, along, before, behind in ((rows, 3, (H, W), middle), (columns, 4, middle, after)):
            if trivial(axis):
                continue
            out = self.new(behind)
            source, target = (
                a[: self.live].reshape((self.live, *self.sizes, *g)) for a, g in ((self.a, before), (out, behind))
            )
            same = plain(axis)  # for a plain axis, `source` is the term s = axis.before
            target[...] = source if same else 0
            for s in (s for s in range(axis.kernel) if not (same and s == axis.before)):
                for o, i in reads(axis, s):
                    target[at(5, (along, o))] += source[at(5, (along, i))]
            self.swap_in(out, behind)

    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        raise TypeError("pooling mixes pixels: it needs all pairs of them")

    def flatten(self) -> None:
        out = self.new((1, 1))
        out[: self.live, ..., 0] = self.xp.mean(self.a[: self.live], axis=3)
        self.swap_in(out, (1, 1))
