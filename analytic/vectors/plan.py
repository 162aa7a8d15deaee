"""What a program does to pairs, from the product of the inputs to the kernels' entries: by NumPy, or compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any, NamedTuple

from analytic.vectors.rules import Affine
from analytic.vectors.state import (
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
from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.numba_here import numba_is_here


@cache
def compiler() -> Any:
    """`analytic.fast.passes`; None without Numba's compiler, or, with a warning, where that does not load."""
    if not numba_is_here():
        return None
    try:
        return import_module("analytic.fast.passes")
    except Exception as error:  # whatever an extension module raises
        warnings.warn(f"Numba is installed but does not load, so NumPy is used alone: {error}", RuntimeWarning, 2)
        return None


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
    """Everything needed to take pairs through the layers, in one precision.

    known : `Flat.known` of all rows, if these coefficients are of some of them: so both are compiled alike.
    """

    program: Program
    coefficients: tuple[Any, ...]
    known: Any = None

    def __call__(self, pairs: Pairs) -> None:
        """p <- K,   tau <- Theta."""
        run_pairs(self.program, pairs, self.coefficients)

    @cached_property
    def flat(self) -> Flat:
        """The coefficients' arrays."""
        found = Flat(self.coefficients)
        found.known = found.known if self.known is None else self.known
        return found

    def taken(self, take: Take) -> VectorPlan:
        """The plan for some rows, without the program: `replace` gives it back."""
        return VectorPlan((), taken(self.coefficients, take), self.flat.known)

    def cast(self, dtype: Any) -> VectorPlan:
        """The same in another precision."""
        return VectorPlan(self.program, cast(self.coefficients, dtype))

    def passes(self, xp: Any, *of: Any) -> list[Callable[[Block], None]]:
        """The same for blocks, one after another: compiled where that is possible.   of : as in `passes.passes`."""
        if not on_host(xp) or (made := compiler()) is None:
            return [self.__call__]
        found: list[Callable[[Block], None]] = made.passes(self.program, self.coefficients, self.flat, *of)
        return found
