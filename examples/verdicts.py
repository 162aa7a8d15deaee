"""Decide whether measured numbers agree with a paper, by two one-sided tests with fixed margins.

A row "agrees" only if the whole interval of each number lies inside the paper's range plus a margin.  A row "differs"
if a whole interval lies outside this range; otherwise it is undecided.  If a number differs from the paper's by less
than the margin, more networks narrow its interval until the row agrees.  Without a margin, more networks would make the
row differ, because no number at finite width equals the paper's exactly.

    kind of number          margin          why
    exponent                .1              A relative correction c / n to a power law shifts the exponent fitted over
                                            a decade of widths by c / n at the narrow end, about .1 at our widths.
                                            Over that decade, .1 is a factor of 1.26, which a figure barely shows.
    bound on an exponent    .1              The same correction applies, but only to the upper end.
    ratio to theory         10 %            The same correction shifts the ratio.
    loss, curve             5 %             Closer curves look like one curve in a figure.
    accuracy                2 points        Closer curves look like one curve in a figure.
    order (larger, falls)   none            The paper gives only a direction.
    much smaller            a half          The paper gives only a word, which means a factor of at least 2.

If a row has several numbers, Holm's rule sets the level of each test, so that the probability of a wrong verdict is at
most 5 % per row. The margins were fixed before the runs to which they are applied, and these runs use new networks.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log, nan
from re import sub
from typing import NamedTuple

import numpy as np
from intervals import LEVEL, Measured
from scipy.special import ndtri, stdtr, stdtrit

EXPONENT, RATIO, LOSS, POINTS, MUCH = 0.1, 0.1, 0.05, 0.02, 0.5
"""The margins in the table of the module's docstring. MUCH is the largest factor that counts as "much smaller"."""


class Claim(NamedTuple):
    """A paper's claim about one or several numbers, and the results of its tests.

    rule : the claim in words.
    tests : (p, q) for each number, the p-values of the tests that it lies inside (p) and outside (q) the range.
    """

    rule: str
    tests: tuple[tuple[float, float], ...]

    @property
    def agrees(self) -> bool | None:
        """True if all numbers lie inside the range, False if one lies outside, None if the tests show neither."""
        p, q = np.array(self.tests).T
        most = (1 - LEVEL) / 2 / np.arange(len(p), 0, -1)
        if np.all(np.sort(p) <= most):  # False if a number has no interval (NaN)
            return True
        return False if np.any(q <= most[0]) else None

    @property
    def more(self) -> float:
        """Return the factor by which the number of seeds must grow for a verdict, if all means stay the same.

        The absolute value of the factor is (a / b)^2, where `a` standard errors are needed and `b` standard errors
        separate the mean from the edge of the range.

        A negative factor means that a mean lies outside the range, so more seeds would decide against the paper. The
        factor is infinite if a mean is on the edge, and NaN for an unfinished run.

        >>> v = Measured(1.05, 0.05, df=1000)           # two standard errors from the margin, which it takes
        >>> round(near([v], 1, RATIO).more, 2), round(near([v], 1.2, RATIO).more, 2)
        (1.0, -1.0)
        """
        p, q = np.array(self.tests).T
        if np.any((p == 1) & (q == 1)):
            return nan
        away = np.sort(np.where(p < q, ndtri(1 - p), -ndtri(1 - q)))  # in standard errors; inf without spread
        takes = ndtri(1 - (1 - LEVEL) / 2 / np.arange(1, len(p) + 1))  # Holm's rule
        if away[0] <= 0:
            return -float((takes[-1] / away[0]) ** 2) if away[0] else inf
        return float(np.max((takes / away) ** 2))

    def __and__(self, other: Claim) -> Claim:
        """Combine two claims, and test them at a joint level.

        >>> (above([Measured(1, 0.5, df=9)]) & near([Measured(1, 0.05, df=9)], 1, RATIO)).rule
        '> 0; within 0.1 of 1'
        """
        return Claim(self.rule if self.rule == other.rule else f"{self.rule}; {other.rule}", self.tests + other.tests)

    def __invert__(self) -> Claim:
        """Claim that at least one number lies outside the claim's range.

        >>> (~near([Measured(1.35, 0.05, df=9), Measured(1, 0.2, df=9)], 1, RATIO)).agrees
        True
        """
        p, q = zip(*self.tests)
        return Claim(f"not {self.rule}", ((min(1.0, len(q) * min(q)), max(p)),))


def between(values: Iterable[Measured], low: float, high: float, rule: str) -> Claim:
    """Return the claim that each number lies between low and high, tested by two one-sided t-tests."""

    def judge(v: Measured) -> tuple[float, float]:
        if v.half == 0:
            return (0.0, 1.0) if low <= v.mean <= high else (1.0, 0.0)
        error = v.half / stdtrit(v.df, (1 + LEVEL) / 2)
        below, beyond = (stdtr(v.df, (v.mean - end) / error) for end in (low, high))  # small if v is far below an end
        return max(1 - below, beyond), min(below, 1 - beyond)

    return Claim(rule, tuple(judge(v) for v in values))


def near(values: Iterable[Measured], target: float, margin: float) -> Claim:
    """Claim that each number differs from `target` by less than a margin.

    >>> a, b, c = Measured(-0.55, 0.04, df=9), Measured(-0.55, 0.1, df=9), Measured(-0.8, 0.1, df=9)
    >>> [near([v], -0.5, EXPONENT).agrees for v in (a, b, c)], near([a, c], -0.5, EXPONENT).rule
    ([True, None, False], 'within 0.1 of -0.5')
    """
    return between(values, target - margin, target + margin, f"within {margin:g} of {target:g}")


def above(values: Iterable[Measured], bound: float = 0.0) -> Claim:
    """Claim that each number is larger than the bound.

    >>> [above([Measured(1, half, df=9)]).agrees for half in (0.5, 2)], above([Measured(-1, 0.5, df=9)]).agrees
    ([True, None], False)
    """
    return between(values, bound, inf, f"> {bound:g}")


def factors_above(logs: Iterable[Measured], factor: float = 1.0) -> Claim:
    """Claim that each factor, given by its logarithm, is larger than `factor`.

    >>> factors_above([Measured(0.5, 0.1, df=9)]).agrees, factors_above([Measured(0.5, 0.1, df=9)]).rule
    (True, '> 1')
    """
    return above(logs, log(factor))._replace(rule=f"> {factor:g}")


def below(values: Iterable[Measured], bound: float = 0.0) -> Claim:
    """Claim that each number is smaller than the bound.

    >>> below([Measured(0.3, 0.1, df=9)], MUCH).agrees, below([Measured(0.3, 0.1, df=9)], MUCH).rule
    (True, '< 0.5')
    """
    return between(values, -inf, bound, f"< {bound:g}")


def at_most(values: Iterable[Measured], power: float) -> Claim:
    """Claim that each exponent is at most `power` plus the margin for exponents.

    >>> wide, right = Measured(-0.34, 0.17, df=8), Measured(-0.6, 0.1, df=8)
    >>> at_most([wide], -0.5).agrees, at_most([right], -0.5).agrees, at_most([right], -0.5).rule
    (None, True, '< -0.4')
    """
    return below(values, power + EXPONENT)


def one_of(claim: Claim) -> Claim:
    """Claim that at least one number lies inside the claim's range.

    >>> one_of(near([Measured(-1.2, 0.2, df=9), Measured(-0.5, 0.04, df=9)], -0.5, EXPONENT)).agrees
    True
    """
    p, q = zip(*claim.tests)
    return Claim(f"one {claim.rule}", ((min(1.0, len(p) * min(p)), max(q)),))


def percent_of(claim: Claim) -> Claim:
    """Return the claim with its rule in per cent or percentage points, for numbers shown in these units.

    >>> percent_of(near([Measured(0.01, 0.005, df=3)], 0, POINTS)).rule
    'within 2 of 0'
    """
    return claim._replace(rule=sub(r"-?\d[\d.e-]*", lambda number: f"{100 * float(number[0]):g}", claim.rule))


def sure(holds: bool, rule: str) -> Claim:
    """Claim a fact without random error, such as a count, a limit, or the equality of numbers up to rounding.

    >>> sure(1e-15 < 1e-10, "< 1e-10").agrees
    True
    """
    return Claim(rule, ((0.0, 1.0) if holds else (1.0, 0.0),))


def unfinished(why: str) -> Claim:
    """Return a claim without a verdict, because runs have not reached the point at which the paper compares them.

    >>> unfinished("2 of 8 runs have not converged").agrees is None
    True
    """
    return Claim(why, ((1.0, 1.0),))
