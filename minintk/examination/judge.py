"""Turn measurements into intervals and a verdict.

The verdict uses two distances, each with an interval: the gap to the linearisation and the kernel's movement.

    lazy         gap < 5 %
    rich         gap > 25 % and kernel > 25 %
    between      gap > 5 %, and gap < 25 % or kernel < 25 %
    undecided    an interval contains the deciding threshold, or the runs diverge or hardly learn
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from typing import Literal

import numpy as np

Regime = Literal["lazy", "between", "rich", "undecided"]
Kind = Literal["unstable", "dead", "badly scaled", "short"]
Ends = tuple[float, float]

LAZY, RICH = 0.05, 0.25
"""The thresholds between the regimes, on the gap and, for RICH, also on the kernel's movement."""
PARTS = "share", "weights", "features"
"""The first words of the keys of statements about a single layer."""
LEARNED = 0.1
"""The smallest progress of the linearisation towards y, |f_lin - f_0| / |y - f_0|, that counts as training."""


@dataclass(frozen=True)
class Statement:
    """A measured number with its 95 % interval.  how : its definition.  percent : True to show it as a percentage.

    value : see `interval`.  own : the number for your network, or NaN if its training diverged.
    """

    name: str
    value: float
    interval: Ends
    how: str
    percent: bool = False
    own: float = nan

    def text(self, number: float, unit: str = " %") -> str:
        """Return a number as text with three significant digits, in this statement's unit."""
        return f"{100 * number:.3g}{unit}" if self.percent else f"{number:.3g}"

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.text(self.value)} ({self.text(low, '')} to {self.text(high)})"


@dataclass(frozen=True)
class Finding:
    """A detected problem: its kind, its description with numbers, and advice."""

    kind: Kind
    text: str
    advice: str


def interval(values: Sequence[float], drawn: bool) -> tuple[float, Ends]:
    """Return the value and its 95 % interval from R replicates, the first of which is the examined network.

    drawn : True if the others differ in initial weights.  The value is then the mean, with standard error
    std / sqrt(R).  Otherwise, they are the same network on halves of the examples, and the value is values[0], with the
    others' std as error (delete-half jackknife; Shao, Wu 1989).  If all values are > 0, their logarithms are used.
    """
    from scipy.special import stdtrit

    a = np.asarray(values, dtype=np.float64)
    positive = bool(np.all(a > 0))
    logs = np.log(a) if positive else a
    sample = logs if drawn else logs[1:]
    middle = float(logs.mean() if drawn else logs[0])
    half = inf
    if len(sample) > 1:
        half = float(stdtrit(len(sample) - 1, 0.975) * np.std(sample, ddof=1)) / (sqrt(len(sample)) if drawn else 1.0)
    with np.errstate(over="ignore"):
        value, low, high = (float(np.exp(z)) if positive else z for z in (middle, middle - half, middle + half))
    return value, (low, high)


def above(ends: Ends, border: float) -> bool | None:
    """Return True if the interval is above the border, False if it is below, None if it contains the border."""
    return True if ends[0] > border else False if ends[1] < border else None


def regime(gap: Ends, kernel: Ends, learned: float, broken: str = "") -> tuple[Regime, str]:
    """Return the verdict and its reason.  learned : the progress towards y.  broken : why no run can be judged."""
    far, rich, moved = above(gap, LAZY), above(gap, RICH), above(kernel, RICH)
    if broken or learned < LEARNED:
        return "undecided", broken or f"only {100 * learned:.2g} % of the way to the targets was learned"
    if far is False:
        return "lazy", "the gap's interval is below 5 %: the linearisation describes the run"
    if far is None:
        return "undecided", "the gap's interval holds 5 %, the border of lazy"
    if rich and moved:
        return "rich", "the gap and the kernel's movement are above 25 %: features are learned"
    if rich is False or moved is False:
        return "between", "the gap is above 5 %, and it or the kernel's movement is below 25 %"
    what = "gap" if rich is None else "kernel's movement"
    return "undecided", f"the interval of the {what} holds 25 %, the border of rich"
