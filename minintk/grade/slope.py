"""Estimate the exponent of a power law in the width, adding seeds until a verdict is reached or the budget is spent.

Theory predicts the exponent b; a mistake would give b'.  The verdict is a pass if the whole confidence interval is
within |b - b'| / 2 of b, and a fail if no part of it is.  The verdict is undecided if the budget is spent first.  The
level (the largest probability of a wrong verdict) is divided among the intervals: level / 2, level / 4, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minintk.diagnostics.power_laws import Verdict, judged, power_law
from minintk.grade.exercise import Assignment, Case, Exercise, Variant
from minintk.validate import generator, number, whole


def exponent(
    measure: Callable[[int, np.random.Generator], float],
    theory: float,
    against: float,
    budget: int = 64,
    *,
    widths: Sequence[int] = (64, 128, 256, 512),
    level: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Verdict:
    """Decide whether measure(width, rng) scales as width^theory rather than as width^against.

    measure : returns one positive number for a width and a generator.  budget : the largest number of seeds per width.
    The first interval uses 4 seeds per width, and each later one twice as many as the one before.  level : the largest
    probability of a wrong verdict.  rng : default_rng(0) if None.

    The test uses Student's t interval for the exponent fitted by `minintk.diagnostics.power_law`, which covers only the
    scatter between seeds.  A relative correction c / n shifts the exponent by about c / n, so use widths where it is
    small.  Raises ValueError for equal exponents, for a budget below 4 and for measurements that are not positive.

    >>> verdict = exponent(lambda n, rng: np.exp(0.2 * rng.standard_normal()) / n, theory=-1.0, against=-0.5)
    >>> verdict.outcome, verdict.seeds
    ('pass', 8)
    """
    from scipy.special import stdtrit

    number("1 - level", 1 - number("level", level))
    whole("budget", budget, 4)
    if not abs(theory - against) > 0:
        raise ValueError(f"against expects another exponent than theory's, got {against} for both")
    rng, half = generator(rng), abs(against - theory) / 2
    values: list[list[float]] = [[] for _ in widths]
    seeds, looks = 4, 0
    while True:
        looks += 1
        for n, found in zip(widths, values, strict=True):
            found += [float(measure(n, child)) for child in rng.spawn(seeds - len(found))]
        fit = power_law(widths, [np.array(v) for v in values], resamples=1)
        sure = 1 - level / 2**looks
        reach = float(stdtrit(len(widths) * (seeds - 1), (1 + sure) / 2)) * fit.error
        low, high = fit.exponent - reach, fit.exponent + reach
        outcome = judged((low, high), theory - half, theory + half)
        if outcome != "undecided" or 2 * seeds > budget:
            break
        seeds *= 2
    said = f"exponent {fit.exponent:.3f} ({low:.3f} to {high:.3f}, {sure:.2%}, {seeds} seeds)"
    text = f"{said}, expected {theory:g}, and not {against:g}"
    return Verdict(outcome, text, seeds, looks, sure, fit.exponent, (low, high))


def slope_interval(x: Sequence[float], values: Any, confidence: float = 0.95) -> tuple[float, float, float]:
    """Fit values = A x^b and return (b, low, high), the exponent b and the ends of its confidence interval.

    x : (K,), for example widths.  values : (K, S), with S independent positive measurements at each x.  The line is a
    least-squares fit to all K S logarithms; the interval uses Student's t with K S - 2 degrees of freedom.  Raises
    ValueError for other shapes and for values that are not positive.
    """
    from scipy.special import stdtrit

    number("1 - confidence", 1 - number("confidence", confidence))
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 2 or len(v) != len(x) or len({*x}) < 2 or v.size < 3 or not np.all((v > 0) & (v < np.inf)):
        raise ValueError(f"values expects positive numbers, ({len(x)}, S), got shape {v.shape}: give a row for each x")
    p, q = np.repeat(np.log([number("x", one) for one in x]), v.shape[1]), np.log(v).ravel()
    p -= p.mean()
    b = p @ q / (p @ p)
    rest = q - q.mean() - b * p
    reach = stdtrit(v.size - 2, (1 + confidence) / 2) * np.sqrt(rest @ rest / (v.size - 2) / (p @ p))
    return float(b), float(b - reach), float(b + reach)


def with_experiment(
    assignment: Assignment, cases: Callable[[np.random.Generator, Variant], Iterable[Case]], hint: str = ""
) -> Assignment:
    """Add an exercise "measurement" worth 20 points to the assignment, and scale the others to 80 points in total.

    cases : as in `Exercise`.  These cases run the student's measurement with the grader's seeds.
    """
    kept = 80 / sum(e.points for e in assignment.exercises)
    others = [replace(e, points=round(kept * e.points, 2)) for e in assignment.exercises]
    return replace(assignment, exercises=(*others, Exercise("measurement", 20, cases, hint=hint)))
