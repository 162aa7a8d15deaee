"""Compute kernels of vectors with Numba (`pip install minintk[fast]`): a line of a tile passes all layers in cache.

NumPy moves a tile through the cache once per operation.  Here a line of a few hundred pairs passes one layer after
another while it is in the nearest cache.  Every step is a formula as in `analytic.recursion.scalar_forms`.  It is
compiled once for all programs and called by address; one table holds the rows' numbers that it reads.  Programs are cut
into parts: steps without such a formula, user-defined steps and rows of zeros run in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any, NamedTuple

import numpy as np

from analytic.fast.compiled import TEXTS, call, compiled, steps_of_form
from analytic.fast.llvm import VECTOR
from analytic.recursion.closed_forms import ClosedForm
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Affine, Fork, Normalise
from analytic.recursion.scalar_forms import FORMS, bent
from analytic.recursion.state import Block, Program
from analytic.vectors.plan import Begin, End
from minintk.arrays import Array

# ------------------------------------------------------------------------------------------------- texts
# (m, p, tau, numbers of the left row, of the right row, constants) -> p', tau'.  tau is ignored if it is None.


def dense(m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Set p' = A A' p + d^2,   tau' = A A' tau + ratio (1/2 - p') + rest/2 / (scale scale'),   as `rules.mix_pairs`.

    one, two : 1/scale if rest is not 0, then A and two numbers whose inner product is d if there is a bias.
    """
    if len(one) >= 3:
        *_, a, turn, turn2 = one
        *_, a2, back, back2 = two
        w, d = a * a2, turn * back + turn2 * back2
        p = m.smallest(m.largest(d * d + p * w, 0.0), 1.0)
        tau = None if tau is None else tau * w
    if tau is not None:
        tau = tau + (0.5 - p) * k[0]
        tau = tau + one[0] * two[0] * k[1] if len(one) in (1, 4) else tau
    return p, tau


def homogeneous(m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Compute `duals.Homogeneous`: p' = p - (2 b2/pi) lag for acute angles, tau' = (1 - (4 b2/pi) a/2) tau."""
    r = 1.0 - p
    wide, h, lag = bent(m, p, r)
    after = p + m.where(wide, (r - p) * k[0], 0.0) - lag * k[1]
    return after, None if tau is None else tau - h * (k[1] + k[1]) * tau


def end(m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Set p <- K = G G' (1 - 2 p),   tau <- Theta = 2 G G' tau."""
    both = one[0] * two[0] * 2.0
    return both * (0.5 - p), None if tau is None else tau * both


def turned(form: Any, m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Compute p' from the angle, and tau' = slope gain gain' tau, as in `closed_forms.ClosedForm`."""
    after, slope = form.turn(m, p, 1.0 - p, one, two, k)
    after = m.smallest(m.largest(after, 0.0), 1.0)
    return after, None if tau is None else tau * slope * (one[-1] * two[-1])


TEXTS |= {f"a row's {text.__name__}": text for text in (dense, homogeneous, end)}
TEXTS |= {f"a row's {name}": partial(turned, form) for name, form in FORMS.items()}


@compiled
def follow(steps: Any, constants: Any, table: Any, p: Any, tau: Any, i: Any, j: Any, begin: Any, work: Any) -> None:
    """Carry the pairs of rows i, i + 1, ... and rows j, j + 1, ... through the steps.

    steps : (address, first line in the table for the left rows, and for the right).   tau : empty if not requested.
    begin : 1 if tau is 0 at the start.   work : two lines of whole vectors; nothing is written beyond them.
    """
    m, tangent = p.shape[1], tau.shape[0] > 0
    x, y = work[0], work[1]
    for line in range(p.shape[0]):
        for n in range(m):
            x[n] = p[line, n]
        for n in range(m if tangent else 0):
            y[n] = 0 if begin > 0 else tau[line, n]
        for s in range(steps.shape[0]):
            one, two = table[steps[s, 1], i + line :], table[steps[s, 2], j:]
            call(steps[s, 0], (x.ctypes.data, y.ctypes.data, one.ctypes.data, two.ctypes.data, table.shape[1], m,
                               constants[s].ctypes.data))  # fmt: skip
        for n in range(m):
            p[line, n] = x[n]
        for n in range(m if tangent else 0):
            tau[line, n] = y[n]


# ------------------------------------------------------------------------------------------------- programs


Part = Callable[[Block], None]


class Text(NamedTuple):
    """Hold a step's formula: its name, the left and right rows' numbers, (N,) or (1,) each, and its constants."""

    name: str
    left: tuple[Array, ...] = ()
    right: tuple[Array, ...] = ()
    constants: tuple[float, ...] = ()


def as_written(step: Any, kind: type, *methods: str) -> bool:
    """Return True if a step's class is `kind`, or a subclass with the same methods, and none is monkeypatched."""
    found = [getattr(type(step), name, None) for name in ("pairs", *methods)]
    whole = [(kind.__module__, f"{kind.__name__}.{name}") for name in ("pairs", *methods)]
    return isinstance(step, kind) and [(one.__module__, one.__qualname__) for one in found if one] == whole


def texts(step: Any, row: Any) -> list[Text] | None:
    """Return a step as a list of formulas; None if it has none, or if there are rows of zeros."""
    if as_written(step, Begin):
        return [] if step.first is None else texts(step.first, row and row._replace(mix=None))
    if as_written(step, Affine, "tangents"):
        if row.nonzero is not None:
            return None
        left = right = () if row.inverse is None else (row.inverse[:, 0],)
        if row.mix is not None:
            left, right = ((*left, row.mix.a[:, 0], *of.T) for of in (row.mix.turn, row.mix.back))
        return [Text("dense", left, right, (step.ratio, step.rest / 2))]
    if as_written(step, Homogeneous):
        if row.nonzero is not None:
            return None
        return [Text("homogeneous", constants=(step.b2, 2 * step.b2 / pi))] if step.b2 else []
    if as_written(step, ClosedForm, "turn") and row.s is None:
        known = FORMS.get(step.form.name)
        if known is not None and known.turn is step.form.turn:
            return [Text(known.name, row.numbers, row.numbers, step.form.constants)]
    if as_written(step, Normalise) and row is None:
        return []
    if as_written(step, End) and row.tau_gain is None:
        gain = (row.gain[0][:, 0],)
        return [Text("end", gain, gain)]
    return None


@dataclass(frozen=True)
class Lines:
    """Hold compiled steps.   steps, constants, table, begin : as in `follow`."""

    steps: Array
    constants: Array
    table: Array
    begin: bool

    @staticmethod
    def of(found: list[Text], count: int, dtype: Any, tangent: bool, begin: bool) -> Lines:
        """Compile formulas for `count` rows."""
        rows: list[Array] = []

        def place(numbers: tuple[Array, ...]) -> int:
            rows.extend(numbers)
            return len(rows) - len(numbers)

        steps, constants = np.zeros((len(found), 3), np.int64), np.zeros((len(found), 8), dtype)
        for k, text in enumerate(found):
            left = place(text.left)
            right = left if text.right is text.left else place(text.right)
            at = steps_of_form(f"a row's {text.name}", dtype, tangent, len(text.left), len(text.constants), row=True)
            steps[k], constants[k, : len(text.constants)] = (at, left, right), text.constants
        table = np.zeros((max(1, len(rows)), count + VECTOR), dtype)
        for line, numbers in zip(table, rows, strict=False):
            line[:count] = numbers
        return Lines(steps, constants, table, begin)

    def __call__(self, block: Block) -> None:
        p, tau = block.p, block.tau
        work = np.full((2, p.shape[1] + VECTOR), 0.5, p.dtype)
        none = np.empty((0, p.shape[1]), p.dtype)
        args = self.steps, self.constants, self.table, p, none if tau is None else tau
        follow(*args, block.i.start, block.j.start, int(self.begin), work)


def fork(step: Any, row: Any, one: list[Part], two: list[Part], block: Block) -> None:
    """Run `Fork.pairs` with both programs cut into parts."""
    other: Any
    with block.copy() as other:
        for run in two:
            run(other)
        for run in one:
            run(block)
        step.join_pairs(block, row[2], other)


def passes(program: Program, coefficients: tuple[Any, ...], count: int, dtype: Any, tangent: bool) -> list[Part]:
    """Return the program for blocks, in parts that are compiled or in NumPy.   count : the number of all rows."""
    found: list[Part] = []
    waiting: list[Text] = []
    begin = False

    def close() -> None:
        nonlocal begin
        if waiting or begin:
            found.append(Lines.of(waiting, count, np.dtype(dtype), tangent, begin))
        waiting.clear()
        begin = False

    for step, row in zip(program, coefficients, strict=True):
        made = texts(step, row)
        if made is not None:
            begin = begin or isinstance(step, Begin)
            waiting.extend(made)
            if isinstance(step, ClosedForm) and row.distances is not None:
                close()
                found.append(partial(step.apart, row=row))
            continue
        close()
        if as_written(step, Fork):
            inner: Any = step
            one, two = (
                passes(part, of, count, dtype, tangent) for part, of in zip((inner.branch, inner.shortcut), row[:2])
            )
            found.append(partial(fork, inner, row, one, two))
        else:
            found.append(partial(step.pairs, row=row))
    close()
    return found
