"""Compute means and confidence intervals for the scripts that rerun papers."""

from __future__ import annotations

from math import hypot, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95


class Measured(NamedTuple):
    """A mean and half the width of its 95 % interval. `half` is NaN if there is no interval, and 0 for a constant.

    of : the source of the variation: "seeds", "images" or "both".
    df : the degrees of freedom of Student's t for the interval.
    """

    mean: float
    half: float = nan
    of: str = "seeds"
    df: float = nan


def interval(values: Any) -> Measured:
    """Return the mean over independent seeds, and half the width of its Student t interval (NaN for a single seed).

    >>> interval([1.0, 3.0])                                      # two seeds: 12.7 standard errors, not 1.96
    Measured(mean=2.0, half=12.706..., of='seeds', df=1)
    """
    v = np.asarray(values, dtype=float).ravel()
    if len(v) < 2:
        return Measured(float(v.mean()))
    t = float(stdtrit(len(v) - 1, (1 + LEVEL) / 2))
    return Measured(float(v.mean()), t * float(v.std(ddof=1)) / sqrt(len(v)), df=len(v) - 1)


def tested(score: Any) -> Measured:
    """Return the mean of a score (E, M) over seeds and test examples, with an interval that covers both sources.

    The half-width is the root sum of squares of the half-widths of two Student t intervals.  The first interval is
    computed from each seed's mean over examples.  The second interval is computed from each example's mean over seeds.
    Their degrees of freedom are combined using the Welch-Satterthwaite formula.  With a single seed the interval covers
    only the choice of examples ("images"), not the variation between networks.
    """
    score = np.asarray(score, dtype=float)
    over_seeds, over_images = interval(score.mean(1)), interval(score.mean(0))
    if len(score) == 1:
        return over_images._replace(of="images")
    half = hypot(over_seeds.half, over_images.half)
    share = sum((part.half / half) ** 4 / part.df for part in (over_seeds, over_images)) if half else 1.0
    return Measured(over_images.mean, half, "both", 1 / share)


def percent(value: Measured | tuple[float, float], digits: int = 2) -> str:
    """Format a fraction and its half-width as percentages."""
    return plus((100 * value[0], 100 * value[1]), digits)


def plus(value: Measured | tuple[float, float], digits: int = 2) -> str:
    """Format a number, followed by ± and its half-width unless the half-width is NaN."""
    return f"{value[0]:.{digits}f}" + (f" ± {value[1]:.{digits}f}" if value[1] == value[1] else "")
