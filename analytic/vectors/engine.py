"""The tile engine: each block of the Gram matrix goes through all layers while it is in cache.

The input rows are scaled to unit vectors (with the first layer's bias as one more coordinate), divided by sqrt(2), and
centred near their mean:

    p = |y_i - y_j|^2 / 2 = |y_i|^2/2 + |y_j|^2/2 - y_i . y_j

A matrix product computes that with an error of eps * |y|^2.  For nearly parallel pairs this is too much, as an error dp
changes the angle a by 2 dp / a.  Pairs too close to 0 or pi for the product (`VectorEngine.angles`) are computed again
from differences of their rows, in float64, and go through the layers as a `Listing`.  A float32 tile with many such
pairs is computed in float64 as a whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from math import prod, sqrt
from threading import Lock, local
from typing import Any, NamedTuple

import numpy as np

from analytic.vectors.ranges import FLOAT32_VARIANCES, SMALLEST_VARIANCE, check_results, rows_in_range
from analytic.vectors.results import Examples, Progress, Wanted
from analytic.vectors.rules import Affine, AffineRow
from analytic.vectors.state import (
    Block,
    Flat,
    Law,
    Listing,
    Pairs,
    Program,
    RowState,
    Scratch,
    Step,
    cast,
    columns,
    run_pairs,
)
from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.threads import cores, parallel, single_threaded_blas
from minintk.fast.thresholds import numba_is_here


def tile_width(xp: Any, n: int) -> int:
    """Columns of a tile of an n x n matrix; on the host it has twice as many rows.

    Small enough that a tile and the layers' working arrays fit a core's cache; large enough that a product is worth
    packing its factors and every ufunc takes some tens of microseconds, as a thread that waits for the interpreter
    sleeps longer than that.  A sixth of the matrix leaves a tile for each core, and little below the diagonal.
    240 leaves no vectors half empty, see `pitch`.
    """
    most = 4096 if not on_host(xp) else min(240, max(100, -(-n // 6)))
    return -(-n // max(1, -(-n // most)))


def pitch(xp: Any, width: int) -> int:
    """From line to line of a tile: for compiled passes whole vectors of 16, and an odd number of these.

    With a power of two, the columns of a tile that is stored transposed would share a few lines of the cache.
    """
    return 16 * (-(-width // 16) | 1) if on_host(xp) and compiler() is not None else width


def rows_at_once(xp: Any, width: int) -> int:
    """How many rows of `width` numbers fit a cache, for preparing rows and computing differences."""
    return max(1, (2**16 if on_host(xp) else 2**26) // max(1, width))


def vector_kernels(program: Program, inputs: Examples, wanted: Wanted) -> list[Array | None]:
    """NNGP and NTK of x1 (and x2): the rows through all layers, then the pairs; errors as in `Wanted`."""
    wanted.check(inputs, working_memory(inputs))
    if 0 in inputs.shape:
        return wanted.arrays(inputs, 0)
    with single_threaded_blas():  # the products are small: BLAS's own threads would only wait for each other
        prepared, rows, fine, fits = plan_vectors(program, inputs)
        wanted.warn(rows.error)
        flat = fine.flat  # known only now: a quadrature has as many as its accuracy takes
        results = wanted.arrays(inputs, working_memory(inputs, 3 * flat.bytes))
        coarse = None if not fits else fine if inputs.dtype.itemsize == 8 else fine.cast(inputs.dtype)
        right = prepared[-1].keep()
        once = inputs.shape[1] <= tile_width(inputs.xp, max(inputs.shape))  # one tile needs a row of x1: it is not kept
        left = right if inputs.symmetric else prepared[0] if once else prepared[0].keep()
        engine = VectorEngine(
            left, right, rows, flat.largest_square, fine, coarse, inputs.shape, inputs.symmetric, *results
        )
        engine.run(wanted.progress)
    return results


BUFFERS = 12
"""The most arrays of a tile's size that a thread works on at a time."""


def working_memory(inputs: Examples, coefficients: int = 0) -> int:
    """Bytes beyond the results: the rows, and the tiles of all threads, in float64 where float32 turns out too coarse.

    coefficients : bytes that the rows' coefficients take, with the work on them; a guess unless given.
    """
    (N, M), size, host = inputs.shape, inputs.dtype.itemsize, on_host(inputs.xp)
    rows, tile = sum(x.shape[0] for x in inputs.x), 2 * tile_width(inputs.xp, max(N, M)) ** 2
    entry = BUFFERS * (8 if size == 8 else 8 + size)
    each = min(tile, 2 * N * M) * entry + 2**22
    return rows * prod(inputs.example) * size + max(rows * 1000, coefficients) + (cores() if host else 1) * each


def vector_diagonals(program: Program, inputs: Examples) -> RowState:
    """K(x, x) and Theta(x, x) of every row of x1, (N,), float64."""
    norms2 = square_norms(inputs.xp, (flat(inputs.x[0]),))
    if not norms2.shape[0]:
        return RowState(norms2, norms2)
    with single_threaded_blas():
        rows = rows_in_range(program, inputs, norms2)[0]
    check_results(inputs, rows.q, rows.theta)
    return rows


def flat(x: Array) -> Array:
    """x : (N, H, W, C) as (N, d)."""
    return x.reshape((x.shape[0], prod(x.shape[1:])))


# ------------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True)
class Rows:
    """Rows of x1, or of x2, ready for the product.

    x : the rows as given, (N, d).   scale : (N, 1), A / (sqrt(2) |x|), 0 for a row of zeros; float64, as
    bias : (N, 1), B / sqrt(2), and centre : (d or d + 1,), a point near the mean of the rows' `unit`.
    single : whether float32 can hold scale.   kept : what `pick` has of all rows in the precision of x.
    """

    x: Array
    scale: Array
    bias: Array | None
    centre: Array
    single: bool
    kept: tuple[Array, Array] | None = None

    def unit(self, rows: Any, dtype: Any, out: Array | None = None) -> Array:
        """(A x / |x|, B) / sqrt(2) of some rows; rows : indices, or a slice."""
        xp, x, scale = array_namespace(self.scale), self.x[rows], self.scale[rows]
        out = xp.empty((x.shape[0], self.centre.shape[0]), dtype=dtype) if out is None else out
        xp.multiply(x, xp.astype(scale, dtype) if self.single else scale, out=out[:, : x.shape[1]])
        if self.bias is not None:
            out[:, -1:] = self.bias[rows]
        return out

    def pick(self, rows: slice, dtype: Any, out: Array | None = None) -> tuple[Array, Array]:
        """y, `unit` minus the centre, and |y|^2 / 2, (N,), of y as rounded: p of a row with itself stays 0."""
        xp = array_namespace(self.scale)
        if self.kept is not None and dtype == self.x.dtype:
            return self.kept[0][rows], self.kept[1][rows]
        y = self.unit(rows, dtype, out)
        y -= xp.astype(self.centre, dtype)
        return y, xp.vecdot(y, y) / 2

    def keep(self) -> Rows:
        """The same, with y and |y|^2 / 2 of all rows: several tiles need them."""
        xp, dtype, (N, width) = array_namespace(self.scale), self.x.dtype, (self.x.shape[0], self.centre.shape[0])
        y, n = xp.empty((N, width), dtype=dtype), xp.empty(N, dtype=dtype)

        def work(rows: slice) -> None:
            _, n[rows] = self.pick(rows, dtype, y[rows])

        for_each(xp, work, pieces(xp, self.x))
        return replace(self, kept=(y, n))


def pieces(xp: Any, x: Array) -> list[slice]:
    """Some rows at a time, `rows_at_once`."""
    N, step = x.shape[0], rows_at_once(xp, x.shape[1])
    return [slice(i, min(i + step, N)) for i in range(0, N, step)]


def for_each(xp: Any, work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """work(item) for all items: on all cores, or one after another on the GPU."""
    if on_host(xp):
        parallel(work, items)
    else:
        for item in items:
            work(item)


def square_norms(xp: Any, parts: tuple[Array, ...]) -> Array:
    """|x|^2 of all rows, (N,), float64; of rows too small to be squared, a small number that is not 0."""
    found = [xp.empty(x.shape[0], dtype=xp.float64) for x in parts]

    def work(piece: tuple[Array, Array, slice]) -> None:
        out, part, rows = piece
        x = xp.astype(part[rows], xp.float64, copy=False)
        out[rows] = squares = xp.vecdot(x, x)
        lost = squares < SMALLEST_VARIANCE / 10
        if bool(xp.any(lost)):  # rows of zeros, or so small that their squares are not all numbers
            out[rows] = xp.where(lost & xp.any(x != 0, axis=1), SMALLEST_VARIANCE / 10, squares)

    with np.errstate(over="ignore"):  # `rows_in_range` reports it
        for_each(xp, work, [(out, x, rows) for out, x in zip(found, parts) for rows in pieces(xp, x)])
    return xp.concatenate(found)


SAMPLED = 256
"""The centre is the mean of about as many rows of x1, and of x2; any point near the mean of all will do."""


def prepare_rows(xp: Any, parts: tuple[Array, ...], norms2: Array, first: AffineRow | None) -> list[Rows]:
    """The Rows of x1 (and x2), with the weight and bias coefficients of the first layer if it is a Dense."""
    scale, bias = xp.sqrt(0.5 / xp.where(norms2 > 0, norms2, xp.inf))[:, None], None
    if first is not None and first.mix is not None:
        scale = scale * first.mix.a[:, :1]
        bias = sqrt(0.5) * first.mix.b[:, :1] if float(first.mix.b.max()) > 0 else None
    low, high = float(xp.where(scale > 0, scale, 1.0).min()), float(scale.max())
    single = 1 / FLOAT32_VARIANCES[1] < low and high < FLOAT32_VARIANCES[1]
    centre = xp.zeros(parts[0].shape[1] + (bias is not None), dtype=xp.float64)
    sides, count = (slice(0, parts[0].shape[0]), slice(parts[0].shape[0], None))[: len(parts)], 0
    for x, at in zip(parts, sides, strict=True):
        some = slice(None, None, -(-x.shape[0] // SAMPLED))
        weights = scale[at][some]
        count += weights.shape[0]
        centre[: x.shape[1]] += ((xp.astype(weights, x.dtype) if single else weights).T @ x[some])[0]
        if bias is not None:
            centre[-1] += xp.sum(bias[at][some])
    centre /= count
    return [
        Rows(x, scale[at], None if bias is None else bias[at], centre, single)
        for x, at in zip(parts, sides, strict=True)
    ]


# ----------------------------------------------------------------------------------------------- tiles


@dataclass(frozen=True)
class Begin(Step):
    """Theta of the inputs is 0.   first : the Dense that follows, if one does: the product has computed its p."""

    first: Affine | None

    def law(self, law: Law) -> Law:
        return law

    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        return (rows, None) if self.first is None else self.first.rows(rows)

    def pairs(self, pairs: Pairs, row: Any) -> None:
        if self.first is not None:
            self.first.tangents(pairs, row, first=True)
        elif pairs.tau is not None:
            pairs.tau[...] = 0


class EndRow(NamedTuple):
    """gain : G and 2 G, G = sqrt q of the outputs.   tau_gain : the same of `scale`, for Theta, if some q = 0."""

    gain: tuple[Array, Array]
    tau_gain: tuple[Array, Array] | None


@dataclass(frozen=True)
class End(Step):
    """p <- K = G G' c,   tau <- Theta = 2 G G' tau."""

    def law(self, law: Law) -> Law:
        return law

    def rows(self, rows: RowState) -> tuple[RowState, EndRow]:
        xp = array_namespace(rows.q)
        gain, scale = (columns(xp, g) for g in (xp.sqrt(rows.q), rows.scale))
        return rows, EndRow((gain, 2 * gain), (scale, 2 * scale) if rows.has_zero_rows else None)

    def pairs(self, pairs: Pairs, row: EndRow) -> None:
        xp, p, tau = pairs.xp, pairs.p, pairs.tau
        with pairs.borrow(1) as (w,):
            pairs.dot(*row.gain, w)
            xp.subtract(0.5, p, out=p)
            p *= w
            if tau is not None:
                tau *= w if row.tau_gain is None else pairs.dot(*row.tau_gain, w)


@dataclass(frozen=True)
class VectorPlan:
    """Everything needed to take pairs through the layers, in one precision."""

    program: Program
    coefficients: tuple[Any, ...]

    def __call__(self, pairs: Pairs) -> None:
        """p <- K,   tau <- Theta."""
        run_pairs(self.program, pairs, self.coefficients)

    @cached_property
    def flat(self) -> Flat:
        """The coefficients' arrays."""
        return Flat(self.coefficients)

    def cast(self, dtype: Any) -> VectorPlan:
        """The same in another precision."""
        return VectorPlan(self.program, cast(self.coefficients, dtype))

    def passes(self, xp: Any, *of: Any) -> list[Callable[[Block], None]]:
        """The same for blocks, one after another: compiled where that is possible.   of : as in `passes.passes`."""
        if not on_host(xp) or (made := compiler()) is None:
            return [self.__call__]
        found: list[Callable[[Block], None]] = made.passes(self.program, self.coefficients, self.flat, *of)
        return found


def plan_vectors(program: Program, examples: Examples) -> tuple[list[Rows], RowState, VectorPlan, bool]:
    """Take the rows through all layers: rows ready for the product, the kernels' diagonals, the plan for pairs.

    And whether the inputs' precision can hold the plan's numbers.
    """
    xp, parts = examples.xp, tuple(flat(x) for x in examples.x)
    norms2 = square_norms(xp, parts)
    rows, coefficients, fits = rows_in_range(program, examples, norms2)
    check_results(examples, rows.q, rows.theta)
    first = program[0] if program and isinstance(program[0], Affine) else None
    prepared = prepare_rows(xp, parts, norms2, coefficients[0] if first else None)
    begin, end, inner = Begin(first), End(), 0 if first is None else 1
    between = coefficients[0] if first else None, *coefficients[inner:], end.rows(rows)[1]
    return prepared, rows, VectorPlan((begin, *program[inner:], end), between), fits


@cache
def compiler() -> Any:
    """`analytic.vectors.passes`; None without Numba's compiler, or, with a warning, where that does not load."""
    if not numba_is_here():
        return None
    try:
        return import_module("analytic.vectors.passes")
    except Exception as error:  # whatever an extension module raises
        warnings.warn(f"Numba is installed but does not load, so NumPy is used alone: {error}", RuntimeWarning, 2)
        return None


@dataclass(frozen=True)
class VectorEngine:
    """One evaluation of the kernels: the rows are done, the pairs follow tile by tile.

    left, right : of x1 and x2.   rows : their diagonals.   shape : (N, M).   nngp, ntk : results, or None.
    largest_distance : the largest |y|^2/2 + |y'|^2/2 of the `Distances` that activations add to p where norms differ.
    symmetric : x2 = x1; compute the upper triangle only.
    fine, coarse : the plan in float64, for single pairs, and in the inputs' precision, for blocks; None if that
        precision cannot hold it: blocks are then computed in float64 too.
    """

    left: Rows
    right: Rows
    rows: RowState
    largest_distance: float
    fine: VectorPlan
    coarse: VectorPlan | None
    shape: tuple[int, int]
    symmetric: bool
    nngp: Array | None
    ntk: Array | None

    def run(self, progress: Progress | None) -> None:
        """Compute all tiles, on all cores."""
        xp, dtype = array_namespace(self.left.scale), self.left.x.dtype
        size = tile_width(xp, max(self.shape))
        n, m = self.shape
        height = 2 * size if on_host(xp) else size
        if m < size:  # few columns: about as many pairs, in eight tiles or more
            height = max(height, min(height * (size // m), -(-n // 8)))
        tiles = list(self.tiles(height, size))
        own, lock, done, _ = local(), Lock(), [0], self.coarse_passes  # which two threads would prepare twice

        def work(tile: tuple[slice, slice]) -> None:
            if not hasattr(own, "scratches"):
                numbers = 2 * size * pitch(xp, size)
                own.scratches = {p: Scratch(xp, p, numbers) for p in (dtype, xp.dtype(xp.float64))}
            self.tile(*tile, own.scratches, None if self.coarse is not None else xp.dtype(xp.float64))
            if progress is not None:
                with lock:
                    done[0] += 1
                    progress(done[0], len(tiles))

        for_each(xp, work, tiles)

    def tiles(self, height: int, width: int) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of tiles that cover the matrix; if symmetric, its upper triangle and diagonal squares.

        height : a multiple of width, so that a diagonal square is the lower end of its tile.
        """
        n, m = self.shape
        for j in range(0, m, width):
            last = min(j + width, m)
            for i in range(0, last if self.symmetric else n, height):
                yield slice(i, min(i + height, last if self.symmetric else n)), slice(j, last)

    def tile(self, rows: slice, columns: slice, scratches: dict[Any, Scratch], precision: Any = None) -> None:
        """One tile: product, layers, pairs that start again, results.

        scratches : a thread's working memory, in either precision.   precision : the inputs' unless given.
        """
        xp, dtype = array_namespace(self.left.scale), self.left.x.dtype if precision is None else precision
        scratch, second = scratches[dtype], slice(columns.start + self.first, columns.stop + self.first)
        square = columns.start - rows.start if self.symmetric and columns.stop == rows.stop else None
        n, m = rows.stop - rows.start, columns.stop - columns.start
        with scratch.borrow(2, (n, pitch(xp, m))) as buffers:  # passes write on whole vectors
            p, tau = (buffer[:, :m] for buffer in buffers)
            block = Block(scratch, rows, second, p, None if self.ntk is None else tau)
            again = self.angles(block, *self.products(rows, columns, p, scratch), square)
            if p.dtype != xp.float64 and again[0].shape[0] > p.shape[0] * p.shape[1] // 50:
                self.tile(rows, columns, scratches, xp.dtype(xp.float64))  # too many for one by one
                return
            passes = self.fine_passes if precision is not None or self.coarse is None else self.coarse_passes
            for part in block.parts(rows_at_once(xp, p.shape[1] * p.dtype.itemsize // 4)):
                for run in passes:
                    run(part)
            if again[0].shape[0]:
                self.restart(again, block)
            own = xp.arange(m)
            for out, kernel, values in ((self.nngp, p, self.rows.q), (self.ntk, tau, self.rows.theta)):
                if out is not None:
                    if square is not None:
                        corner = kernel[square:]
                        corner *= 0.5
                        corner += corner.T  # the product may round (i, j) and (j, i) differently
                        corner[own, own] = values[columns]
                    if self.symmetric and square != 0:
                        out[columns, rows] = kernel.T
                    out[rows, columns] = kernel

    def products(self, rows: slice, columns: slice, p: Array, scratch: Scratch) -> tuple[Array, Array]:
        """p <- y . y', and |y|^2/2 of rows and columns.  Rows that are not kept are prepared some at a time."""
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
        """`fine` for blocks."""
        return self.passes(self.fine, np.dtype(np.float64))

    @cached_property
    def coarse_passes(self) -> list[Callable[[Block], None]]:
        """`coarse` for blocks."""
        return self.passes(self.fine if self.coarse is None else self.coarse, self.left.x.dtype)

    def passes(self, plan: VectorPlan, dtype: Any) -> list[Callable[[Block], None]]:
        """A plan for blocks in that precision."""
        xp, count = array_namespace(self.left.scale), self.rows.q.shape[0]
        return plan.passes(xp, count, prod(self.shape), dtype, self.ntk is not None)

    @property
    def first(self) -> int:
        """The position of x2's first row among all, where those of x2 come after those of x1."""
        return 0 if self.symmetric else self.shape[0]

    def angles(self, block: Block, n: Array, n2: Array, square: int | None) -> tuple[Array, Array]:
        """Compute p from y . y'; return the places of the pairs that have to start again, with p = 1/2 until then.

        n, n2 : |y|^2/2 of rows and columns.   square : the row where the diagonal square begins, if the tile has one.
        """
        xp, p = block.xp, block.p
        with block.borrow(1) as (w,):
            xp.matmul(columns(xp, n, xp.ones_like(n)), columns(xp, xp.ones_like(n2), n2).T, out=w)
            xp.subtract(w, p, out=p)
        if square is not None:  # the diagonal is known from the rows
            own = xp.arange(p.shape[1])
            p[square + own, own] = 0.5
        size = max(float(n.max()) + float(n2.max()), self.largest_distance)  # 1/2 if rows point in all directions
        limit = ((0.3 if p.dtype.itemsize == 4 else 0.05) * size) ** 2  # what a product in that precision resolves
        if float(xp.min(p)) >= limit and float(xp.max(p)) <= 1 - limit:
            none = xp.empty(0, dtype=xp.int64)
            return none, none
        again: tuple[Array, Array] = xp.nonzero((p < limit) | (p > 1 - limit))
        p[again] = 0.5
        return again

    def restart(self, again: tuple[Array, Array], block: Block) -> None:
        """Compute the kernels of the pairs at the places `again` from differences and sums of rows, in float64."""
        xp = block.xp
        step = min(rows_at_once(xp, 8), rows_at_once(xp, self.left.centre.shape[0]))
        scratch = Scratch(xp, xp.float64, step)
        for start in range(0, again[0].shape[0], step):
            places = again[0][start : start + step], again[1][start : start + step]
            i, j = places[0] + block.i.start, places[1] + block.j.start
            left, right = self.left.unit(i, xp.float64), self.right.unit(j - self.first, xp.float64)
            with scratch.borrow(3, i.shape) as (low, high, tau):
                for total, out in ((left - right, low), (left + right, high)):
                    total *= total
                    xp.sum(total, axis=1, out=out)
                    out /= 2
                pairs = Listing(scratch, i, j, low, high, None if block.tau is None else tau)
                pairs.clip()
                self.fine(pairs)
                block.p[places] = low
                if block.tau is not None:
                    block.tau[places] = tau
