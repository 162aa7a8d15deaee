"""Apply a program to pairs, from the inputs' inner products to the kernels' entries, in NumPy or in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from analytic.recursion.rules import Affine
from analytic.recursion.state import (
    Block,
    Flat,
    Law,
    Pairs,
    Program,
    RowState,
    Step,
    Take,
    cast,
    columns,
    run_pairs,
    taken,
)
from minintk.arrays import Array, array_namespace
from minintk.doors import through

ROWS_WORTH_COMPILED = 64
"""For fewer rows, compiled passes save no time, and a traceback through NumPy code shows the formula's file."""


@dataclass(frozen=True)
class Begin(Step):
    """Set Theta of the inputs to 0.   first : the leading Dense layer, or None; p already includes it."""

    first: Affine | None

    def law(self, law: Law) -> Law:
        return law

    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        return (rows, None) if self.first is None else self.first.rows(rows)

    def pairs(self, pairs: Pairs, row: Any) -> None:
        if pairs.tau is not None:
            pairs.tau[...] = 0
        if self.first is not None:
            self.first.tangents(pairs, row)


class EndRow(NamedTuple):
    """Output factors: gain = (G, 2 G) with G = sqrt q; tau_gain is the same with G = `scale`, or None if all q > 0."""

    gain: tuple[Array, Array]
    tau_gain: tuple[Array, Array] | None


@dataclass(frozen=True)
class End(Step):
    """Set p <- K = G G' c,   tau <- Theta = 2 G G' tau."""

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
    """Program and coefficients that propagate pairs through the layers in one precision."""

    program: Program
    coefficients: tuple[Any, ...]

    def __call__(self, pairs: Pairs) -> None:
        """Set p <- K,   tau <- Theta."""
        run_pairs(self.program, pairs, self.coefficients)

    @cached_property
    def flat(self) -> Flat:
        """Return the coefficients' arrays."""
        return Flat(self.coefficients)

    def taken(self, take: Take) -> VectorPlan:
        """Return the plan for some rows, without the program; restore the program with `replace`."""
        return VectorPlan((), taken(self.coefficients, take))

    def cast(self, dtype: Any) -> VectorPlan:
        """Return the plan in another precision."""
        return VectorPlan(self.program, cast(self.coefficients, dtype))

    def passes(self, xp: Any, count: int, dtype: Any, tangent: bool) -> list[Callable[[Block], None]]:
        """Return the passes for blocks in order, compiled for a GPU or by Numba if possible and if `count` is large."""
        passes = None
        if count >= ROWS_WORTH_COMPILED and (faster := through("kernels")) is not None:
            passes = faster.passes(xp)
        if passes is None:
            return [self.__call__]
        found: list[Callable[[Block], None]] = passes(self.program, self.coefficients, count, dtype, tangent)
        return found
