"""Convert a program for pairs of vectors into a list of formulas, which are compiled for the host or for a GPU.

The formulas resemble those of `analytic.recursion.scalar_forms`, and use values precomputed for both rows of a pair.  A
program is cut into parts.  Steps without a formula, user-defined steps and most steps on zero rows use NumPy or CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi
from typing import Any, NamedTuple

from analytic.recursion.closed_forms import ClosedForm
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Affine, Fork, Normalise
from analytic.recursion.scalar_forms import FORMS, bent
from analytic.recursion.state import Block, Program
from analytic.vectors.plan import Begin, End
from minintk.arrays import Array

# ------------------------------------------------------------------------------------------------- texts
# (m, p, tau, numbers of the left row, numbers of the right row, constants) -> p', tau'.  tau can be None.


def dense(m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Set p' = A A' p + d^2,   tau' = A A' tau + ratio (1/2 - p') + rest/2 / (scale scale'),   see `rules.mix_pairs`.

    one, two : 1/scale unless rest is 0; with a bias, also A and a vector (2,).  d : the vectors' inner product.
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
    """Apply `duals.Homogeneous`: p' = p - (2 b2/pi) lag for acute angles, and tau' = (1 - (4 b2/pi) a/2) tau."""
    r = 1.0 - p
    wide, h, lag = bent(m, p, r)
    after = p + m.where(wide, (r - p) * k[0], 0.0) - lag * k[1]
    return after, None if tau is None else tau - h * (k[1] + k[1]) * tau


def end(m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Set p to K = G G' (1 - 2 p), and tau to Theta = 2 G G' tau, where G and G' are the rows' gains."""
    both = one[0] * two[0] * 2.0
    return both * (0.5 - p), None if tau is None else tau * both


def turned(form: Any, m: Any, p: Any, tau: Any, one: Any, two: Any, k: Any) -> tuple[Any, Any]:
    """Compute p' from the angle, and tau' = slope gain gain' tau, as in `closed_forms.ClosedForm`."""
    after, slope = form.turn(m, p, 1.0 - p, one, two, k)
    after = m.smallest(m.largest(after, 0.0), 1.0)
    return after, None if tau is None else tau * slope * one[-1] * two[-1]


TEXTS: dict[str, Any] = {f"a row's {text.__name__}": text for text in (dense, homogeneous, end)}
TEXTS |= {f"a row's {name}": partial(turned, form) for name, form in FORMS.items()}


# ------------------------------------------------------------------------------------------------- programs


Part = Callable[[Block], None]


class Text(NamedTuple):
    """A step's formula: its name, the values of the left and right rows, each (N,) or (1,), and its constants."""

    name: str
    left: tuple[Array, ...] = ()
    right: tuple[Array, ...] = ()
    constants: tuple[float, ...] = ()


def as_written(step: Any, kind: type, *methods: str) -> bool:
    """Return True if a step's class is `kind` or a subclass that inherits these methods, none of them monkeypatched."""
    found = [getattr(type(step), name, None) for name in ("pairs", *methods)]
    whole = [(kind.__module__, f"{kind.__name__}.{name}") for name in ("pairs", *methods)]
    return isinstance(step, kind) and [(one.__module__, one.__qualname__) for one in found if one] == whole


def texts(step: Any, row: Any) -> list[Text] | None:
    """Return a step as a list of formulas, or None if it has no formula at all or none for its zero rows."""
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


def fork(step: Any, row: Any, one: list[Part], two: list[Part], block: Block) -> None:
    """Run `Fork.pairs` on a branch and a shortcut that are cut into parts."""
    other: Any
    with block.copy() as other:
        for run in two:
            run(other)
        for run in one:
            run(block)
        step.join_pairs(block, row[2], other)


def parts(program: Program, coefficients: tuple[Any, ...], made_of: Callable[[list[Text], bool], Part]) -> list[Part]:
    """Return the program as a list of parts, which are compiled or use the array library.

    made_of : (formulas, True if Theta starts at 0) -> a compiled part.
    """
    found: list[Part] = []
    waiting: list[Text] = []
    begin = False

    def close() -> None:
        nonlocal begin
        if waiting or begin:
            found.append(made_of([*waiting], begin))
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
            one, two = (parts(part, of, made_of) for part, of in zip((inner.branch, inner.shortcut), row[:2]))
            found.append(partial(fork, inner, row, one, two))
        else:
            found.append(partial(step.pairs, row=row))
    close()
    return found
