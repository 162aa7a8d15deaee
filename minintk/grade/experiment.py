"""Experiments that are graded: a fitted exponent with its interval, and 20 of 100 points for a measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minintk.grade.exercise import Assignment, Case, Exercise, Variant
from minintk.validate import number

SHARE = 20
"""Points of an experiment; the other exercises share the rest as they did the whole."""


def slope_interval(x: Sequence[float], values: Any, confidence: float = 0.95) -> tuple[float, float, float]:
    """Fit values = A x^b and return b with the ends of its confidence interval, (b, low, high).

    x : (K,), widths, say.  values : (K, S), S measurements at each, positive and independent.  The line goes through
    all K S logarithms by least squares; the interval is Student's with K S - 2 degrees of freedom.  ValueError for
    other shapes and for values that are not positive.

    >>> b, low, high = slope_interval([1, 2, 4], 3 / np.array([[1.0, 1.1], [2.0, 2.1], [4.0, 4.1]]))
    >>> low < -1 < high < -0.5
    True
    """
    from scipy.special import stdtrit

    number("confidence", confidence)
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 2 or len(v) != len(x) or v.size < 3 or not np.all(v > 0):
        raise ValueError(f"values expects positive numbers, ({len(x)}, S), got shape {v.shape}: give a row for each x")
    p = np.repeat(np.log(np.asarray(x, dtype=np.float64)), v.shape[1])
    q = np.log(v).ravel()
    p -= p.mean()
    b = p @ q / (p @ p)
    rest = q - q.mean() - b * p
    reach = stdtrit(v.size - 2, (1 + confidence) / 2) * np.sqrt(rest @ rest / (v.size - 2) / (p @ p))
    return float(b), float(b - reach), float(b + reach)


def with_experiment(
    assignment: Assignment, cases: Callable[[np.random.Generator, Variant], Iterable[Case]], hint: str = ""
) -> Assignment:
    """Return the assignment with an exercise "measurement" of 20 points; its other points are multiplied by 0.8.

    cases : run the student's measurement on seeds of the grader's, as the cases of `Exercise` do.
    """
    kept = (100 - SHARE) / sum(e.points for e in assignment.exercises)
    others = [replace(e, points=round(kept * e.points, 2)) for e in assignment.exercises]
    return replace(assignment, exercises=(*others, Exercise("measurement", SHARE, cases, hint=hint)))
