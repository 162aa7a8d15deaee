"""The tile engine: blocks of the Gram matrix go through all layers while they sit in cache.

The input rows are made unit vectors y (with the first layer's bias as one more coordinate), centred on their mean:

    p = |y_i - y_j|^2 / 4 = |y_i|^2/4 + |y_j|^2/4 - y_i . y_j / 2

A matrix product gives that to eps * |y|^2, which is not enough for nearly parallel pairs: an error dp moves the angle
a by 2 dp / a.  Pairs too near to 0 or pi for the product (`Inputs.resolved`) start again from their rows, difference by
difference, in float64, and go through the layers as a `Listing`.  A float32 tile with many of them is done in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from threading import Lock, local
from typing import Any, NamedTuple

from analytic.rules import Affine, AffineRow
from analytic.state import Block, Law, Listing, Pairs, Program, Rows, Scratch, Step, columns, run_pairs, run_rows
from minintk.arrays import Array, array_namespace, on_host
from minintk.threads import parallel

Progress = Callable[[int, int], None]


def tile_size(xp: Any, n: int) -> int:
    """Rows, and columns, of a tile of n x n: large for the product's sake, but some tiles for every core."""
    return 4096 if not on_host(xp) else min(512, max(64, -(-n // 8)))


def strip_size(xp: Any, size: int) -> int:
    """Rows of a tile that go through the layers at a time; on the GPU, all.

    Few enough for a core's cache, but enough that a ufunc works for some ten microseconds: a thread that finds the
    interpreter taken sleeps longer than that.
    """
    return size if not on_host(xp) else max(1, 2**17 // size)


def chunk(xp: Any, width: int) -> int:
    """Rows of `width` numbers at a time, where rows are prepared and differences taken: as many as a cache holds."""
    return max(1, (2**17 if on_host(xp) else 2**26) // max(1, width))


# ------------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True)
class Inputs:
    """Rows ready for the product, N of x1 and, behind them, those of x2.

    x : the rows as given, (N, d).   scale : (N, 1), A / |x|, 0 for a row of zeros.   bias : (N, 1), B.
    y : (N, d or d + 1), (unit vector - centre) / sqrt(2), and n : (N, 1), |unit vector - centre|^2 / 4, in float64 and
    (`short`) in the inputs' precision.
    """

    x: tuple[Array, ...]
    scale: Array
    bias: Array | None
    centre: Array
    y: Array
    n: Array
    short: Array

    def unit(self, rows: Any) -> Array:
        """The unit vectors (A x / |x|, B) of some rows, float64: of a slice that stays in one part, or of indices."""
        xp, x = array_namespace(self.scale), self.take(rows)
        out = xp.empty((x.shape[0], self.centre.shape[0]), dtype=xp.float64)
        xp.multiply(x, self.scale[rows], out=out[:, : x.shape[1]])
        if self.bias is not None:
            out[:, -1:] = self.bias[rows]
        return out

    def centred(self, rows: slice) -> Array:
        """(unit vector - centre) / sqrt(2), float64."""
        unit = self.unit(rows)
        unit -= self.centre
        unit *= sqrt(0.5)
        return unit

    def take(self, rows: Any) -> Array:
        """Some of the rows as given."""
        if len(self.x) == 1:
            return self.x[0][rows]
        xp, first = array_namespace(self.scale), self.x[0].shape[0]
        if isinstance(rows, slice):
            return self.x[0][rows] if rows.start < first else self.x[1][rows.start - first : rows.stop - first]
        out = xp.empty((rows.shape[0], self.x[0].shape[1]), dtype=self.x[0].dtype)
        near = rows < first
        out[near], out[~near] = self.x[0][rows[near]], self.x[1][rows[~near] - first]
        return out

    def resolved(self, i: slice, j: slice, dtype: Any) -> float:
        """The smallest p, and r, that a product in `dtype` resolves well enough for a result in `dtype`."""
        xp = array_namespace(self.n)
        size = float(xp.max(self.n[i])) + float(xp.max(self.n[j]))  # 1/2 where the rows point everywhere
        angle = (0.6 if dtype == xp.float32 else 0.1) * size
        return (angle / 2) ** 2


def spans(parts: tuple[Array, ...], step: int) -> Iterator[tuple[slice, Array]]:
    """Slices of at most `step` rows over all parts, none across two, with the rows."""
    start = 0
    for x in parts:
        for i in range(0, x.shape[0], step):
            piece = x[i : i + step]
            yield slice(start + i, start + i + piece.shape[0]), piece
        start += x.shape[0]


def for_each(xp: Any, work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """work(item) for all items, on all cores; on the GPU one after another."""
    if on_host(xp):
        parallel(work, items)
    else:
        for item in items:
            work(item)


def square_norms(parts: tuple[Array, ...]) -> Array:
    """|x|^2 of all rows, (N,), float64."""
    xp = array_namespace(*parts)
    out = xp.empty(sum(x.shape[0] for x in parts), dtype=xp.float64)

    def work(piece: tuple[slice, Array]) -> None:
        x = xp.astype(piece[1], xp.float64)
        x *= x
        xp.sum(x, axis=1, out=out[piece[0]])

    for_each(xp, work, spans(parts, chunk(xp, parts[0].shape[1])))
    return out


def prepare(parts: tuple[Array, ...], norms2: Array, first: AffineRow | None) -> Inputs:
    """The Inputs of x1 (and x2), with the first layer's mix of weights and bias if it is a Dense."""
    xp, dtype = array_namespace(*parts), parts[0].dtype
    norm = xp.sqrt(norms2)[:, None]
    scale = xp.where(norm > 0, 1 / xp.where(norm > 0, norm, 1.0), 0.0)
    bias = None
    if first is not None:
        scale = scale * first.mix.a[:, :1]
        bias = first.mix.b[:, :1] if bool(xp.any(first.mix.b > 0)) else None
    count, d = norms2.shape[0], parts[0].shape[1]
    centre = xp.zeros(d + (bias is not None), dtype=xp.float64)  # near the mean is near enough
    for rows, x in spans(parts, count):
        centre[:d] += (xp.astype(scale[rows], dtype).T @ x)[0]
    if bias is not None:
        centre[d] = xp.sum(bias)
    centre /= count
    y, short = xp.empty((count, centre.shape[0]), dtype=dtype), xp.empty((count, 1), dtype=dtype)
    inputs = Inputs(parts, scale, bias, centre, y, xp.empty((count, 1), dtype=xp.float64), short)

    def work(piece: tuple[slice, Array]) -> None:
        rows = piece[0]
        centred = inputs.centred(rows)
        y[rows] = centred
        centred *= centred
        xp.sum(centred, axis=1, keepdims=True, out=inputs.n[rows])
        inputs.n[rows] /= 2
        short[rows] = inputs.n[rows]

    for_each(xp, work, spans(parts, chunk(xp, centre.shape[0])))
    return inputs


# ----------------------------------------------------------------------------------------------- tiles


@dataclass(frozen=True)
class Absorbed(Step):
    """The first Dense, where the product of the inputs has done its part of p already."""

    affine: Affine

    def law(self, law: Law) -> Law:
        return self.affine.law(law)

    def rows(self, rows: Rows) -> tuple[Rows, AffineRow]:
        return self.affine.rows(rows)

    def pairs(self, pairs: Pairs, row: AffineRow) -> None:
        self.affine.tangents(pairs, row)


class Finish(NamedTuple):
    """From p and tau to the kernels, through a last Dense:  K = G G' c + beta2,  Theta = 2 G G' tau + ratio K + rest.

    ghost : G for Theta, where it is another one (`Rows.ghosts`).
    """

    gain: Array
    minus_two_gain: Array
    ghost: Array | None
    minus_two_ghost: Array | None
    beta2: float = 0.0
    ratio: float = 0.0
    rest: float = 0.0

    def __call__(self, pairs: Pairs) -> None:
        """p <- K, tau <- Theta."""
        xp, k, theta = pairs.xp, pairs.p, pairs.tau
        with pairs.borrow(1) as (w,):
            pairs.dot(self.gain, self.minus_two_gain, w)
            k -= 0.5
            k *= w
            if self.beta2 != 0:
                k += self.beta2
            if theta is None:
                return
            if self.ghost is not None and self.minus_two_ghost is not None:
                pairs.dot(self.ghost, self.minus_two_ghost, w)
            theta *= w
            if self.ratio != 1:
                xp.multiply(k, self.ratio, out=w)
            xp.subtract(k if self.ratio == 1 else w, theta, out=theta)
            if self.rest != 0:
                theta += self.rest


class Plan(NamedTuple):
    """All that the pairs need, in one precision."""

    program: Program
    coefficients: tuple[Any, ...]
    finish: Finish

    def __call__(self, pairs: Pairs) -> None:
        """p <- K, tau <- Theta."""
        run_pairs(self.program, pairs, self.coefficients)
        self.finish(pairs)


def plan(program: Program, parts: tuple[Array, ...]) -> tuple[Inputs, Rows, Plan]:
    """The rows through all layers: inputs ready for the product, the kernels' diagonals, and the plan for the pairs."""
    xp = array_namespace(*parts)
    norms2 = square_norms(parts)
    rows = Rows(norms2 / max(1, parts[0].shape[1]), xp.zeros_like(norms2))
    first = None
    if program and isinstance(program[0], Affine):
        first, program = program[0], (Absorbed(program[0]), *program[1:])
    last = program[-1] if program and isinstance(program[-1], Affine) else None
    rows, coefficients = run_rows(program, rows)
    inputs = prepare(parts, norms2, None if first is None else coefficients[0])
    if last is None:
        gain, ghost = columns(xp, xp.sqrt(rows.q)), columns(xp, rows.scale) if rows.ghosts else None
    else:
        gain, ghost = coefficients[-1].gain, coefficients[-1].ghost_gain
    finish = Finish(gain, -2 * gain, ghost, None if ghost is None else -2 * ghost)
    if last is None:
        return inputs, rows, Plan(program, coefficients, finish)
    finish = finish._replace(beta2=last.beta2, ratio=last.ratio, rest=last.rest)
    return inputs, rows, Plan(program[:-1], coefficients[:-1], finish)


@dataclass(frozen=True)
class Engine:
    """One evaluation of the kernels: rows done, pairs to come, tile by tile.

    shape : (N, M).   symmetric : x2 = x1; only the upper triangle is computed.   nngp, ntk : results, None: not asked.
    fine, coarse : the plan in float64, for pairs one by one, and in the inputs' precision, for blocks.
    """

    inputs: Inputs
    rows: Rows
    fine: Plan
    coarse: Plan
    shape: tuple[int, int]
    symmetric: bool
    nngp: Array | None
    ntk: Array | None

    def run(self, progress: Progress | None) -> None:
        """All tiles, on all cores."""
        xp = array_namespace(self.inputs.y)
        size = tile_size(xp, max(self.shape))
        tiles = list(self.tiles(size))
        own, lock, done = local(), Lock(), [0]

        def work(tile: tuple[slice, slice]) -> None:
            if not hasattr(own, "desk"):
                own.desk = Desk(xp, self.inputs.y.dtype, size)
            self.tile(*tile, own.desk)
            if progress is not None:
                with lock:
                    done[0] += 1
                    progress(done[0], len(tiles))

        for_each(xp, work, tiles)

    def tiles(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Blocks of rows and columns that cover the matrix, or its upper triangle where it is symmetric."""
        n, m = self.shape
        for i in range(0, n, size):
            for j in range(i if self.symmetric else 0, m, size):
                yield slice(i, min(i + size, n)), slice(j, min(j + size, m))

    def tile(self, i: slice, j: slice, desk: Desk) -> None:
        """One tile: its product, strip by strip through the layers, results."""
        xp, y = array_namespace(self.inputs.y), self.inputs.y
        first = 0 if self.symmetric else self.shape[0]  # where the rows of the columns start
        diagonal = self.symmetric and i == j
        with desk.tile.borrow(2, (i.stop - i.start, j.stop - j.start)) as (p, tau):
            xp.matmul(y[i], y[first + j.start : first + j.stop].T, out=p)
            for low in range(0, p.shape[0], desk.rows):
                high, left = min(low + desk.rows, p.shape[0]), low if diagonal else 0
                block = Block(
                    desk.strip[p.dtype],
                    slice(i.start + low, i.start + high),
                    slice(first + j.start + left, first + j.stop),
                    p[low:high, left:],
                    None if self.ntk is None else tau[low:high, left:],
                )
                self.strip(block, desk, diagonal=diagonal)
            for out, kernel, values in ((self.nngp, p, self.rows.q), (self.ntk, tau, self.rows.theta)):
                if out is None:
                    continue
                if diagonal:
                    kernel[...] = xp.triu(kernel) + xp.triu(kernel, k=1).T
                    xp.fill_diagonal(kernel, xp.astype(values[i], kernel.dtype))
                elif self.symmetric:
                    transpose(kernel, out[j, i], desk)
                out[i, j] = kernel

    def strip(self, block: Block, desk: Desk, *, diagonal: bool) -> None:
        """p <- K and tau <- Theta, from p = y . y'."""
        xp, p, tau, dtype = block.xp, block.p, block.tau, self.inputs.y.dtype
        n = self.inputs.short if p.dtype == dtype else self.inputs.n
        xp.subtract(n[block.i], p, out=p)
        p += n[block.j].T
        if diagonal:  # known otherwise
            xp.fill_diagonal(p[:, : p.shape[0]], 0.5)
        limit = self.inputs.resolved(block.i, block.j, p.dtype)
        again = None
        if float(xp.min(p)) < limit or float(xp.max(p)) > 1 - limit:
            again = xp.nonzero((p < limit) | (p > 1 - limit))
            if p.dtype == xp.float32 and again[0].shape[0] > p.shape[0] * p.shape[1] // 50:
                self.wide_strip(block, desk, diagonal=diagonal)
                return
            p[again] = 0.5
        if tau is not None:
            tau[...] = 0
        (self.coarse if p.dtype == dtype else self.fine)(block)
        if again is not None:
            self.restart(again, block)

    def wide_strip(self, block: Block, desk: Desk, *, diagonal: bool) -> None:
        """The strip in float64: too many of its pairs would have to start again one by one."""
        xp, inputs = block.xp, self.inputs
        with desk.strip[xp.dtype(xp.float64)].borrow(2, block.p.shape) as (p, tau):
            xp.matmul(inputs.centred(block.i), inputs.centred(block.j).T, out=p)
            wide = Block(desk.strip[xp.dtype(xp.float64)], block.i, block.j, p, None if block.tau is None else tau)
            self.strip(wide, desk, diagonal=diagonal)
            block.p[...] = p
            if block.tau is not None:
                block.tau[...] = tau

    def restart(self, again: tuple[Array, Array], block: Block) -> None:
        """The kernels of the pairs at the places `again`, from differences and sums of their rows, in float64."""
        xp, inputs = block.xp, self.inputs
        step = min(chunk(xp, 8), chunk(xp, inputs.y.shape[1]))
        scratch = Scratch(xp, xp.float64, step)
        for start in range(0, again[0].shape[0], step):
            places = again[0][start : start + step], again[1][start : start + step]
            i, j = places[0] + block.i.start, places[1] + block.j.start
            left, right = inputs.unit(i), inputs.unit(j)
            with scratch.borrow(3, i.shape) as (low, high, tau):
                for total, out in ((left - right, low), (left + right, high)):
                    total *= total
                    xp.sum(total, axis=1, out=out)
                    out /= 4
                tau[...] = 0
                pairs = Listing(scratch, i, j, low, high, None if block.tau is None else tau)
                pairs.clip()
                self.fine(pairs)
                block.p[places] = low
                if block.tau is not None:
                    block.tau[places] = tau


class Desk:
    """One thread's working memory: tiles, and strips of `rows` rows of them, in either precision."""

    def __init__(self, xp: Any, dtype: Any, size: int) -> None:
        self.rows = strip_size(xp, size)
        self.tile = Scratch(xp, dtype, size * size)
        self.strip = {kind: Scratch(xp, kind, self.rows * size) for kind in (dtype, xp.dtype(xp.float64))}


def transpose(kernel: Array, out: Array, desk: Desk) -> None:
    """out = kernel': in cache first, by strips that its first level holds, then to memory row by row."""
    if not on_host(array_namespace(kernel)):
        out[...] = kernel.T
        return
    with desk.tile.borrow(1, out.shape) as (turned,):
        for i in range(0, kernel.shape[0], 32):
            turned[:, i : i + 32] = kernel[i : i + 32].T
        out[...] = turned
