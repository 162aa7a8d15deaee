"""What a script that reruns a paper says: numbers with intervals, rows of the table, files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import hypot, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from running import Found, Setting
from scipy.special import stdtrit

from minintk.files.writing import write_bytes

LEVEL = 0.95


class Measured(NamedTuple):
    """A mean and half of its 95 % interval, NaN if there is none.  of : what varies, "seeds", "images" or "both"."""

    mean: float
    half: float = nan
    of: str = "seeds"


def interval(values: Any) -> Measured:
    """Mean over independent seeds, and half the width of its Student t interval (NaN for a single seed).

    >>> interval([1.0, 3.0])                                      # two seeds: 12.7 standard errors, not 1.96
    Measured(mean=2.0, half=12.706..., of='seeds')
    """
    v = np.asarray(values, dtype=float).ravel()
    if len(v) < 2:
        return Measured(float(v.mean()))
    t = float(stdtrit(len(v) - 1, (1 + LEVEL) / 2))
    return Measured(float(v.mean()), t * float(v.std(ddof=1)) / sqrt(len(v)))


def tested(score: Any) -> Measured:
    """Mean of a score (E, M) over seeds and test examples, with an interval that covers both ("both").

    Half its width is the root of the sum of squares of two Student t intervals: over seeds, of their means over
    examples, and over examples, of their means over seeds.  With a single seed only the examples count ("images"): the
    interval then says nothing about another network.
    """
    score = np.asarray(score, dtype=float)
    over_seeds, over_images = interval(score.mean(1)), interval(score.mean(0))
    if len(score) == 1:
        return Measured(over_images.mean, over_images.half, "images")
    return Measured(over_images.mean, hypot(over_seeds.half, over_images.half), "both")


def percent(value: Measured | tuple[float, float], digits: int = 2) -> str:
    """A fraction and its half-width, in per cent."""
    return plus((100 * value[0], 100 * value[1]), digits)


def plus(value: Measured | tuple[float, float], digits: int = 2) -> str:
    """A number and its half-width, if it has one."""
    return f"{value[0]:.{digits}f}" + (f" ± {value[1]:.{digits}f}" if value[1] == value[1] else "")


MARGIN = 0.1
"""Allowed beside an exponent's interval: a relative correction c / n to a power shifts the fit by about c / n."""
LOSS, POINTS = 0.05, 0.02
"""Curves of a figure "agree" if losses differ by less than 5 %, accuracies by less than 2 points."""


def above(values: Iterable[Measured], bound: float = 0.0) -> bool | None:
    """Whether all intervals lie above the bound; False if one lies below it, None if one holds it or is missing.

    >>> above([Measured(1, 0.5)]), above([Measured(1, 0.5), Measured(1, 2)]), above([Measured(-1, 0.5)])
    (True, None, False)
    """
    return every(True if v[0] - v[1] > bound else False if v[0] + v[1] < bound else None for v in values)


def within(values: Iterable[Measured], limit: float) -> bool | None:
    """Whether all intervals lie between -limit and limit; False if one lies outside, None if one does neither.

    >>> within([Measured(0, 0.01)], LOSS), within([Measured(0, 0.15)], LOSS), within([Measured(0.2, 0.1)], LOSS)
    (True, None, False)
    """
    ends = [(abs(v[0]) - v[1], abs(v[0]) + v[1]) for v in values]
    return every(True if most < limit else False if least > limit else None for least, most in ends)


def holds(values: Iterable[Measured], target: float, margin: float = 0.0, apart: float = 0.5) -> bool | None:
    """Whether all intervals, with a margin, hold the paper's number; None if one also holds a number `apart` from it.

    >>> holds([Measured(-0.55, 0.1)], -0.5), holds([Measured(-0.3, 0.4)], -0.5), holds([Measured(-0.7, 0.1)], -0.5)
    (True, None, False)
    """
    off = [(abs(v[0] - target), v[1] + margin) for v in values]
    return every(False if d > reach else True if d + reach < apart else None for d, reach in off)


def every(answers: Iterable[bool | None]) -> bool | None:
    """False if one answer is, else None if one is, else True."""
    given = set(answers)
    return False if False in given else None if None in given else True


@dataclass(frozen=True)
class Row:
    """A line of the table of claims.

    of : what the interval behind ± covers, "seeds", "images", "both", or "" without one.  size : data and networks in
    words.  agrees : whether ours is what the paper says, None where it says nothing ("-") or where our intervals decide
    nothing (`above`, `within`, `holds`).  why : if not, the cause that was tested, with its number, or "open".
    """

    claim: str
    paper: str
    here: str
    of: str = ""
    size: str = ""
    seeds: int | None = None
    agrees: bool | None = None
    why: str = ""


def finish(s: Setting, found: Found, rows: Sequence[Row], draw: Callable[[Any], None]) -> Found:
    """`found` with its table; writes KEY.json and KEY.png into --out.  draw : called with matplotlib's pyplot."""
    found = found | {"data": s.data, "scale": s.scale, "table": [asdict(row) for row in rows]}
    if s.out:
        import matplotlib.pyplot as plt

        write_bytes(s.out / f"{s.key}.json", f"{json.dumps(found, indent=1, ensure_ascii=False)}\n".encode())
        with plt.style.context("analytic.verify.look"):
            draw(plt)
            plt.savefig(s.out / f"{s.key}.png", dpi=120)
            plt.close()
    return found
