"""Scale input rows to equal length and centre them, so that inner products yield angles (`analytic.vectors.engine`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np

from analytic.recursion.range_checks import FLOAT32_VARIANCES, SMALLEST_VARIANCE
from analytic.recursion.rules import AffineRow
from minintk.arrays import Array, array_namespace, on_host
from minintk.threads import parallel


def flat(x: Array) -> Array:
    """Reshape x : (N, H, W, C) to (N, d)."""
    return x.reshape((x.shape[0], prod(x.shape[1:])))


def rows_at_once(xp: Any, width: int) -> int:
    """Return how many rows of `width` entries to prepare or subtract at once, so that these rows fit into a cache."""
    return max(1, (2**16 if on_host(xp) else 2**26) // max(1, width))


def product_rest(a: Array, b: Array, product: Array) -> Array:
    """Return the exact error `a * b - product` of a rounded product, using 26-bit halves of the factors (Dekker 1971).

    >>> product_rest(np.array(1 + 2.0**-30), np.array(1 + 2.0**-40), np.array(1 + 2.0**-30 + 2.0**-40)) == 2.0**-70
    np.True_
    """
    (a1, a2), (b1, b2) = ((high := (2**27 + 1) * v - ((2**27 + 1) * v - v), v - high) for v in (a, b))
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


@dataclass(frozen=True)
class Rows:
    """Rows of x1 or x2, prepared for the matrix product of x1 and x2.

    x : the given rows, (N, d).   scale : (N, 1), A / (sqrt(2) |x|), or 0 for zero rows.   bias : (N, 1), B / sqrt(2),
    or None if B = 0; `rules.Mix` defines A and B.   centre : (d or d + 1,), a point near the mean of the rows' `unit`.
    single : True if float32 can hold `scale`.   narrow : True if rows typically lie within 0.1 rad of the centre.
    kept : results of `pick` for all rows, in the precision of x, or None.
    """

    x: Array
    scale: Array
    bias: Array | None
    centre: Array
    single: bool
    narrow: bool
    kept: tuple[Array, Array] | None = None

    def at(self, rows: slice) -> Rows:
        """Return a slice of the rows."""
        bias = None if self.bias is None else self.bias[rows]
        return replace(self, x=self.x[rows], scale=self.scale[rows], bias=bias, kept=None)

    def unit(self, rows: Any, dtype: Any, out: Array | None = None) -> Array:
        """Return (A x / |x|, B) / sqrt(2) for some rows.   rows : indices or a slice."""
        xp, x, scale = array_namespace(self.scale), self.x[rows], self.scale[rows]
        out = xp.empty((x.shape[0], self.centre.shape[0]), dtype=dtype) if out is None else out
        xp.multiply(x, xp.astype(scale, dtype) if self.single else scale, out=out[:, : x.shape[1]])
        if self.bias is not None:
            out[:, -1:] = self.bias[rows]
        return out

    def unit_and_rest(self, rows: Any) -> tuple[Array, Array]:
        """Return `unit` in float64, and the rounding errors of x times scale, which matter for nearly equal rows."""
        xp, d = array_namespace(self.scale), self.x.shape[1]
        high = self.unit(rows, xp.float64)
        rest = xp.zeros_like(high)
        rest[:, :d] = product_rest(xp.astype(self.x[rows], xp.float64), self.scale[rows], high[:, :d])
        return high, rest

    def pick(self, rows: slice, dtype: Any, out: Array | None = None) -> tuple[Array, Array]:
        """Return y = `unit` - centre, and |y|^2 / 2 computed from the rounded y, so that equal rows have p = 0."""
        xp = array_namespace(self.scale)
        if self.kept is not None and dtype == self.x.dtype:
            return self.kept[0][rows], self.kept[1][rows]
        y = self.unit(rows, dtype, out)
        if self.narrow:  # y is much shorter than the row, so that rounding errors of `unit` matter
            high, rest = self.unit_and_rest(rows)
            y[...] = high - self.centre + rest
        else:
            y -= xp.astype(self.centre, dtype)
        return y, xp.vecdot(y, y) / 2

    def keep(self) -> Rows:
        """Return the rows with y and |y|^2 / 2 stored, for use by several tiles."""
        xp, dtype, (N, width) = array_namespace(self.scale), self.x.dtype, (self.x.shape[0], self.centre.shape[0])
        y, n = xp.empty((N, width), dtype=dtype), xp.empty(N, dtype=dtype)

        def work(rows: slice) -> None:
            _, n[rows] = self.pick(rows, dtype, y[rows])

        for_each(xp, work, pieces(xp, self.x))
        return replace(self, kept=(y, n))


def pieces(xp: Any, x: Array) -> list[slice]:
    """Return slices of `rows_at_once` rows that cover x."""
    N, step = x.shape[0], rows_at_once(xp, x.shape[1])
    return [slice(i, min(i + step, N)) for i in range(0, N, step)]


def for_each(xp: Any, work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Call work(item) for all items, on all cores of the host, or one after another on the GPU."""
    if on_host(xp):
        parallel(work, items)
    else:
        for item in items:
            work(item)


def square_norms(xp: Any, parts: tuple[Array, ...]) -> Array:
    """Return |x|^2 of all rows in float64, (N,), with a tiny positive number for rows whose squares underflow."""
    found = [xp.empty(x.shape[0], dtype=xp.float64) for x in parts]

    def work(piece: tuple[Array, Array, slice]) -> None:
        out, part, rows = piece
        x = xp.astype(part[rows], xp.float64, copy=False)
        out[rows] = squares = xp.vecdot(x, x)
        lost = squares < SMALLEST_VARIANCE / 10
        if bool(xp.any(lost)):  # rows of zeros, or rows whose squares underflow
            out[rows] = xp.where(lost & xp.any(x != 0, axis=1), SMALLEST_VARIANCE / 10, squares)

    with np.errstate(over="ignore"):  # `rows_in_range` reports overflow
        for_each(xp, work, [(out, x, rows) for out, x in zip(found, parts) for rows in pieces(xp, x)])
    return xp.concatenate(found)


SAMPLED = 256
"""The centre is the mean of at most this many rows of x1 and as many of x2.  Any point near the rows' mean suffices."""


def prepare_rows(xp: Any, parts: tuple[Array, ...], norms2: Array, first: AffineRow | None) -> list[Rows]:
    """Return the `Rows` of x1 (and x2).   first : weight and bias coefficients of a first Dense layer, or None."""
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
    narrow = float(centre @ centre) > 0.495
    return [
        Rows(x, scale[at], None if bias is None else bias[at], centre, single, narrow)
        for x, at in zip(parts, sides, strict=True)
    ]
