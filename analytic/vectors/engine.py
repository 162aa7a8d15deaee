"""Compute the Gram matrix tile by tile; each tile passes through all layers while it is in cache.

The first layer's bias becomes an additional coordinate of each input row.  Rows are scaled to norm 1 / sqrt(2), and y
is a row minus a point near the rows' mean:

    p = |y_i - y_j|^2 / 2 = |y_i|^2/2 + |y_j|^2/2 - y_i . y_j

Rounding in the matrix product causes an error of eps * |y|^2 in p.  It is too large for nearly parallel pairs, because
an error dp changes their angle a by 2 dp / a.  Pairs whose angle is too close to 0 or pi (`VectorEngine.angles`) are
recomputed in float64, from differences and sums of their rows, and pass through the layers as a `Listing`.  A float32
tile with many such pairs is recomputed entirely in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from threading import Lock, local
from typing import Any

import numpy as np

from analytic.recursion.range_checks import check_results, rows_in_range
from analytic.recursion.requests import Examples, Place, Progress, Wanted
from analytic.recursion.rules import Affine
from analytic.recursion.state import Block, Listing, Program, RowState, Scratch, columns
from analytic.recursion.unit_rows import Rows, flat, for_each, prepare_rows, rows_at_once, square_norms
from analytic.vectors.plan import Begin, End, VectorPlan
from minintk.arrays import Array, array_namespace, on_host
from minintk.cores import cores
from minintk.threads import single_threaded_blas
from minintk.thresholds import THRESHOLDS


def tile_width(xp: Any, n: int) -> int:
    """Return the number of columns of a tile of an n x n matrix.  On the host, a tile has twice as many rows.

    A tile and the layers' working arrays must fit into a core's cache.  A tile must be large enough to amortise BLAS's
    packing; with ufuncs shorter than tens of microseconds, threads wait for the interpreter lock.  Tiles at most a
    sixth as wide as the matrix keep several cores busy and waste little work below the diagonal.  A width of 240 fills
    whole vector registers.  With powers of two, columns of a transposed tile would compete for few cache sets.
    """
    most = 4096 if not on_host(xp) else min(240, max(100, -(-n // 6)))
    return -(-n // max(1, -(-n // most)))


def tile_shape(xp: Any, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of rows and columns of a tile, (n, m), for an N x M matrix; m divides n unless M is small."""
    (n, m), width = shape, tile_width(xp, max(shape))
    height = 2 * width if on_host(xp) else width
    if m < width:  # few columns: keep about as many pairs per tile, but at least eight tiles
        height = max(height, min(height * (width // max(m, 1)), -(-n // 8)))
    return height, width


def vector_kernels(program: Program, inputs: Examples, wanted: Wanted) -> list[Array | None]:
    """Compute NNGP and NTK of x1 (and x2): rows pass through all layers before pairs do."""
    engine = vector_engine(program, inputs, wanted.asked)
    wanted.warn(engine.rows.error)
    results = wanted.arrays(inputs, engine.working_memory(inputs))
    engine.run(results, wanted.progress)
    return results


def vector_engine(program: Program, inputs: Examples, asked: tuple[bool, bool]) -> VectorEngine:
    """Return an engine, after propagating the rows through all layers.   asked : (NNGP, NTK)."""
    with one_blas_thread(inputs.shape, inputs.x[0]):
        prepared, rows, fine, fits = plan_vectors(program, inputs)
        coarse = None if not fits else fine if inputs.dtype.itemsize == 8 else fine.cast(inputs.dtype)
    tile = tile_shape(array_namespace(rows.q), inputs.shape)
    largest, symmetric = fine.flat.largest_square, inputs.symmetric
    return VectorEngine(
        prepared[0], prepared[-1], rows, largest, fine, coarse, inputs.shape, symmetric, asked, tile
    )  # fmt: skip


def one_blas_thread(shape: tuple[int, int], x: Array) -> AbstractContextManager[None]:
    """Limit BLAS to one thread for large products.  Several threads would be slower and round differently."""
    small = max(prod(shape) * prod(x.shape[1:]), 2048 * sum(shape)) < THRESHOLDS.plain  # 2048: coefficients per row
    return nullcontext() if small else single_threaded_blas()


def plan_vectors(program: Program, examples: Examples) -> tuple[list[Rows], RowState, VectorPlan, bool]:
    """Propagate rows; return prepared rows, diagonals, the plan, and whether the inputs' precision suffices."""
    xp, parts = examples.xp, tuple(flat(x) for x in examples.x)
    norms2 = square_norms(xp, parts)
    rows, coefficients, fits = rows_in_range(program, examples, norms2)
    check_results(examples, rows.q, rows.theta)
    first = coefficients[0] if program and isinstance(program[0], Affine) else None
    prepared = prepare_rows(xp, parts, norms2, first)
    every = first, *coefficients[0 if first is None else 1 :], End().rows(rows)[1]
    return prepared, rows, VectorPlan(with_ends(program), every), fits


def with_ends(program: Program) -> Program:
    """Return the program for pairs, from the product of the inputs to the kernels' entries."""
    if program and isinstance(program[0], Affine):
        return Begin(program[0]), *program[1:], End()
    return Begin(None), *program, End()


BUFFERS = 12
"""Maximum number of tile-sized arrays that a thread uses at a time."""


def working_memory(inputs: Examples, coefficients: int = 0) -> int:
    """Return how many bytes rows and tiles (in float64 if float32 is too coarse) need besides the results.

    coefficients : bytes of the rows' coefficients and of their computation; estimated by default.
    """
    (N, M), size, host = inputs.shape, inputs.dtype.itemsize, on_host(inputs.xp)
    rows, tile = sum(x.shape[0] for x in inputs.x), 2 * tile_width(inputs.xp, max(N, M)) ** 2
    entry = BUFFERS * (8 if size == 8 else 8 + size)
    each = min(tile, 2 * N * M) * entry + 2**22
    return rows * prod(inputs.example) * size + max(rows * 1000, coefficients) + (cores() if host else 1) * each


def vector_diagonals(program: Program, inputs: Examples) -> RowState:
    """Return K(x, x) and Theta(x, x) in float64 for every row of x1, (N,)."""
    norms2 = square_norms(inputs.xp, (flat(inputs.x[0]),))
    if not norms2.shape[0]:
        return RowState(norms2, norms2)
    with one_blas_thread(inputs.shape, inputs.x[0]):
        rows = rows_in_range(program, inputs, norms2)[0]
    check_results(inputs, rows.q, rows.theta)
    return rows


@dataclass(frozen=True)
class VectorEngine:
    """Evaluate the kernels, or a block of them, tile by tile, after the rows have passed through all layers.

    left, right : the rows of x1 and x2.   rows : the diagonals.   shape : (N, M).   asked : (NNGP, NTK).
    largest_square : the largest |y|^2/4 + |y'|^2/4 in `Distances`, which activations add to p if row norms differ.
    symmetric : True if x2 = x1; only the upper triangle is then computed.
    fine, coarse : the plan in float64 for single pairs, and the plan in the inputs' precision for blocks.  coarse is
        None if that precision cannot represent the plan's values; blocks then use float64 too.
    per_tile : numbers of rows and columns of a tile.   out : the arrays of NNGP and NTK, set during the run.
    """

    left: Rows
    right: Rows
    rows: RowState
    largest_square: float
    fine: VectorPlan
    coarse: VectorPlan | None
    shape: tuple[int, int]
    symmetric: bool
    asked: tuple[bool, bool]
    per_tile: tuple[int, int]
    out: tuple[Array | None, ...] = (None, None)

    def working_memory(self, inputs: Examples) -> int:
        """Return how many bytes `inputs` (of the matrix or a block) need besides the results."""
        return working_memory(inputs, 3 * self.fine.flat.bytes)

    def at(self, place: Place) -> VectorEngine:
        """Return the engine for a block of whole tiles, without its program.  Its entries equal the whole matrix's."""
        (i, j), same, first = place, self.symmetric and place[0] == place[1], self.first
        xp = array_namespace(self.left.scale)
        parts = [i] if same else [i, slice(first + j.start, first + j.stop)]

        def take(a: Array, axis: int = 0) -> Array:
            some = a if a.shape[axis] == 1 else [a[(slice(None),) * axis + (part,)] for part in parts]
            return some if some is a else xp.concatenate(some, axis=axis)

        fine = self.fine.taken(take)
        coarse = fine if self.coarse is self.fine else None if self.coarse is None else self.coarse.taken(take)
        rows = replace(self.rows, q=take(self.rows.q), theta=take(self.rows.theta))
        left, right, shape = self.left.at(i), self.right.at(j), (i.stop - i.start, j.stop - j.start)
        return replace(self, left=left, right=right, rows=rows, fine=fine, coarse=coarse, shape=shape, symmetric=same)

    def under(self, program: Program) -> VectorEngine:
        """Return the engine with `program` restored.  `at` drops it, because some programs cannot be pickled."""
        fine = replace(self.fine, program=with_ends(program))
        coarse = fine if self.coarse is self.fine else self.coarse and replace(self.coarse, program=fine.program)
        return replace(self, fine=fine, coarse=coarse)

    def found(self) -> tuple[list[Array | None], float]:
        """Return NNGP and NTK, and the error bound of the quadratures."""
        xp, dtype = array_namespace(self.left.scale), self.left.x.dtype
        results = [xp.empty(self.shape, dtype=dtype) if asked else None for asked in self.asked]
        self.run(results, None)
        return results, self.rows.error

    def run(self, results: list[Array | None], progress: Progress | None) -> None:
        """Compute all tiles, on all cores, and write them to `results`."""
        with one_blas_thread(self.shape, self.left.x):
            right = self.right.keep()
            once = self.shape[1] <= self.per_tile[1]  # then each row of x1 is used by one tile, so it need not be kept
            left = right if self.symmetric else self.left if once else self.left.keep()
            replace(self, left=left, right=right, out=tuple(results)).fill(progress)

    def fill(self, progress: Progress | None) -> None:
        """Compute all tiles and write them to `out`."""
        xp, dtype, (height, width) = array_namespace(self.left.scale), self.left.x.dtype, self.per_tile
        tiles = list(self.tiles(height, width))
        own, lock, done = local(), Lock(), [0]
        self.coarse_passes  # noqa: B018  cache it before the threads start

        def work(tile: Place) -> None:
            if not hasattr(own, "scratches"):
                own.scratches = {p: Scratch(xp, p, 2 * width * width) for p in (dtype, xp.dtype(xp.float64))}
            self.tile(*tile, own.scratches, None if self.coarse is not None else xp.dtype(xp.float64))
            if progress is not None:
                with lock:
                    done[0] += 1
                    progress(done[0], len(tiles))

        for_each(xp, work, tiles)

    def tiles(self, height: int, width: int) -> Iterator[tuple[slice, slice]]:
        """Yield rows and columns of tiles that cover the matrix or, if symmetric, its upper triangle and diagonal.

        height : a multiple of width, so that each square on the diagonal is at the lower end of a tile.
        """
        n, m = self.shape
        for j in range(0, m, width):
            last = min(j + width, m)
            for i in range(0, last if self.symmetric else n, height):
                yield slice(i, min(i + height, last if self.symmetric else n)), slice(j, last)

    def tile(self, rows: slice, columns: slice, scratches: dict[Any, Scratch], precision: Any = None) -> None:
        """Compute one tile of K and Theta; recompute inaccurate pairs in float64.   scratches : {dtype: Scratch}."""
        xp, dtype = array_namespace(self.left.scale), self.left.x.dtype if precision is None else precision
        scratch, second = scratches[dtype], slice(columns.start + self.first, columns.stop + self.first)
        square = columns.start - rows.start if self.symmetric and columns.stop == rows.stop else None
        n, m = rows.stop - rows.start, columns.stop - columns.start
        with scratch.borrow(2, (n, m)) as (p, tau):
            block = Block(scratch, rows, second, p, tau if self.asked[1] else None)
            again = self.angles(block, *self.products(rows, columns, p, scratch), square)
            if p.dtype != xp.float64 and again[0].shape[0] > p.shape[0] * p.shape[1] // 50:
                self.tile(rows, columns, scratches, xp.dtype(xp.float64))  # too many pairs to recompute one by one
                return
            passes = self.fine_passes if precision is not None or self.coarse is None else self.coarse_passes
            for part in block.parts(rows_at_once(xp, p.shape[1] * p.dtype.itemsize // 4)):
                for run in passes:
                    run(part)
            if again[0].shape[0]:
                self.restart(again, block)
            equal = xp.arange(m)
            for out, kernel, values in zip(self.out, (p, tau), (self.rows.q, self.rows.theta), strict=True):  # see End
                if out is not None:
                    if square is not None:
                        corner = kernel[square:]
                        corner *= 0.5
                        corner += corner.T  # the product can round (i, j) and (j, i) differently
                        corner[equal, equal] = values[columns]
                    if self.symmetric and square != 0:
                        out[columns, rows] = kernel.T
                    out[rows, columns] = kernel

    def products(self, rows: slice, columns: slice, p: Array, scratch: Scratch) -> tuple[Array, Array]:
        """Set p to y . y', and return |y|^2/2 of rows and columns.  Rows that are not kept are prepared in blocks."""
        xp, width = scratch.xp, self.left.centre.shape[0]
        new = (self.left.kept is None or p.dtype != self.left.x.dtype) and width <= scratch.size
        (right, n2), n = self.right.pick(columns, p.dtype), xp.empty(p.shape[0], dtype=p.dtype)
        step = scratch.size // width if new else p.shape[0]
        for i in range(0, p.shape[0], step):
            at = slice(i, min(i + step, p.shape[0]))
            some = slice(rows.start + at.start, rows.start + at.stop)
            with scratch.borrow(1, (at.stop - i, width) if new else p.shape) as (y,):
                left, n[at] = self.left.pick(some, p.dtype, y if new else None)
                xp.matmul(left, right.T, out=p[at])
        return n, n2

    @cached_property
    def fine_passes(self) -> list[Callable[[Block], None]]:
        """Return the passes of `fine` for blocks."""
        return self.passes(self.fine, np.dtype(np.float64))

    @cached_property
    def coarse_passes(self) -> list[Callable[[Block], None]]:
        """Return the passes of `coarse` for blocks."""
        return self.passes(self.fine if self.coarse is None else self.coarse, self.left.x.dtype)

    def passes(self, plan: VectorPlan, dtype: Any) -> list[Callable[[Block], None]]:
        """Return a plan's passes for blocks in a given precision."""
        xp, count = array_namespace(self.left.scale), self.rows.q.shape[0]
        return plan.passes(xp, count, dtype, self.asked[1])

    @property
    def first(self) -> int:
        """Return the index of x2's first row if x1's rows are counted first, or 0 if x2 is x1."""
        return 0 if self.symmetric else self.shape[0]

    def angles(self, block: Block, n: Array, n2: Array, square: int | None) -> tuple[Array, Array]:
        """Compute p from y . y'.  Return the positions of pairs to recompute, whose p is set to 1/2 until then.

        n, n2 : |y|^2/2 of rows and of columns.   square : first row of the diagonal square, or None.
        """
        xp, p = block.xp, block.p
        with block.borrow(1) as (w,):
            xp.matmul(columns(xp, n, xp.ones_like(n)), columns(xp, xp.ones_like(n2), n2).T, out=w)
            xp.subtract(w, p, out=p)
        if square is not None:  # the diagonal is known from the rows
            own = xp.arange(p.shape[1])
            p[square + own, own] = 0.5
        size = max(float(n.max()) + float(n2.max()), self.largest_square)  # 1/2 if rows point in all directions
        limit = ((0.3 if p.dtype.itemsize == 4 else 0.05) * size) ** 2  # for smaller p, a product is inaccurate
        if float(xp.min(p)) >= limit and float(xp.max(p)) <= 1 - limit:
            none = xp.empty(0, dtype=xp.int64)
            return none, none
        again: tuple[Array, Array] = xp.nonzero((p < limit) | (p > 1 - limit))
        p[again] = 0.5
        return again

    def restart(self, again: tuple[Array, Array], block: Block) -> None:
        """Recompute the kernels of pairs at positions `again` from differences and sums of rows, in float64."""
        xp = block.xp
        step = min(rows_at_once(xp, 8), rows_at_once(xp, self.left.centre.shape[0]))
        scratch = Scratch(xp, xp.float64, step)
        for start in range(0, again[0].shape[0], step):
            places = again[0][start : start + step], again[1][start : start + step]
            i, j = places[0] + block.i.start, places[1] + block.j.start
            (left, rest), (right, rest2) = self.left.unit_and_rest(i), self.right.unit_and_rest(j - self.first)
            with scratch.borrow(3, i.shape) as (low, high, tau):
                d, t = (left - right) + (rest - rest2), (left + right) + (rest + rest2)
                lengths = xp.vecdot(d, t) ** 2 / 2  # (|y| - |y'|)^2, nonzero due to rounding
                for total, out in ((d, low), (t, high)):
                    xp.subtract(xp.vecdot(total, total), lengths, out=out)
                    out /= 2
                pairs = Listing(scratch, i, j, low, high, None if block.tau is None else tau)
                pairs.clip()
                self.fine(pairs)
                block.p[places] = low
                if block.tau is not None:
                    block.tau[places] = tau
