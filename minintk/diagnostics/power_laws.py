"""Fit power laws in the width or any other variable, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minintk.arrays import Array, to_host
from minintk.validate import generator, numbers, whole

Outcome = Literal["pass", "fail", "undecided"]


def judged(interval: tuple[float, float], least: float, most: float) -> Outcome:
    """Return "pass" if the interval lies inside [least, most], "fail" if they are disjoint, otherwise "undecided".

    >>> [judged(interval, -0.1, 0.1) for interval in ((-0.05, 0.05), (0.05, 0.15), (0.15, 0.25))]
    ['pass', 'undecided', 'fail']
    """
    low, high = interval
    if high < least or low > most:
        return "fail"
    return "pass" if least <= low and high <= most else "undecided"


@dataclass(frozen=True, eq=False, repr=False)
class PowerLaw:
    """The fit v = A n^b of `power_law`.

    exponent : b.  prefactor : A.  error : the standard error of b.  interval : (low, high) for b at level `confidence`.
    widths : (K,).  draws : (R, 2), with log A and b of the R bootstrap fits.
    """

    exponent: float
    prefactor: float
    error: float
    interval: tuple[float, float]
    confidence: float
    widths: np.ndarray[Any, Any]
    draws: np.ndarray[Any, Any]

    def __repr__(self) -> str:
        low, high = self.interval
        return f"PowerLaw({self.prefactor:.3g} n^{self.exponent:.3g}, exponent {low:.3g} to {high:.3g})"

    def __call__(self, n: Any) -> Any:
        """Return A n^b at widths n."""
        return self.prefactor * np.asarray(n, dtype=np.float64) ** self.exponent

    def band(self, n: Any) -> tuple[Any, Any]:
        """Return the bootstrap confidence band (low, high) of the fitted power law at each width n."""
        logs = self.draws[:, :1] + self.draws[:, 1:] * np.log(np.asarray(n, dtype=np.float64))
        tail = 50 * (1 - self.confidence)
        low, high = np.exp(np.percentile(logs, [tail, 100 - tail], axis=0))
        return low, high


def power_law(
    widths: Sequence[float],
    values: Sequence[Array],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    rng: np.random.Generator | None = None,
) -> PowerLaw:
    """Fit the exponent b of v = A n^b to positive measurements with several seeds at each width.

        log v_ns = log A + b log n + noise,    least squares over all widths n and seeds s

    Each width is thus weighted by its number of seeds.  The confidence interval is bootstrapped over seeds.  The
    deviations of log v from the mean over the S seeds of a width are multiplied by sqrt(S/(S-1)), because the mean is
    estimated.  These deviations are pooled and resampled for every width and seed, and the line is refitted.  With few
    seeds, the estimate of the scatter is inaccurate.  The spread of the lines is therefore multiplied by the ratio of
    the quantiles of Student's t, with sum_n (S_n - 1) degrees of freedom, and of the normal distribution.  Pooling
    assumes equal scatter of log v at all widths.  The interval ignores deviations of the means from the line.

    widths : (K,), with at least two different widths.  values : K arrays; values[i] : (S_i,) for the seeds at
        widths[i].  At least one width needs two seeds.  rng : the bootstrap's generator, by default default_rng(0).
    Raises ValueError for values that are not positive and finite, for too few values, and for resamples < 1.

    >>> rng = np.random.default_rng(1)
    >>> widths = [64, 128, 256, 512]
    >>> law = power_law(widths, [3 / n**0.5 * np.exp(0.1 * rng.standard_normal(8)) for n in widths])
    >>> round(law.exponent, 2), law.interval[0] < -0.5 < law.interval[1]
    (-0.53, True)
    """
    from scipy.special import ndtri, stdtrit

    n = np.asarray(numbers(widths))
    v = [np.asarray(to_host(value), dtype=np.float64) for value in values]
    if n.ndim != 1 or len(n) != len(v) or len(set(n)) < 2 or not np.all((n > 0) & np.isfinite(n)):
        raise ValueError(f"power_law expects two or more widths > 0, values for each, got {widths!r}, {len(v)} arrays")
    for width, value in zip(n, v, strict=True):
        if value.ndim != 1 or not len(value) or not np.all((value > 0) & np.isfinite(value)):
            raise ValueError(f"power_law expects (S,) positive finite values, got {value!r} at width {width:g}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence expects a number between 0 and 1, got {confidence!r}")
    whole("resamples", resamples)
    rng = generator(rng)
    S = np.array([len(value) for value in v])
    logs = np.concatenate([np.log(value) for value in v])
    pooled = [(np.log(a) - np.log(a).mean()) * (len(a) / (len(a) - 1)) ** 0.5 for a in v if len(a) > 1]
    if not pooled:
        raise ValueError("power_law expects two or more seeds at one width at least: there is no interval without them")
    scatter = np.concatenate(pooled)

    log_n = np.repeat(np.log(n), S)
    design = np.stack([np.ones_like(log_n), log_n], axis=1)
    solve = np.linalg.pinv(design)
    log_A, b = solve @ logs
    drawn = rng.choice(scatter, size=(resamples, len(logs)))
    upper = (1 + confidence) / 2
    spread = float(stdtrit(np.sum(S - 1), upper) / ndtri(upper))
    draws = (solve @ logs) + spread * (drawn @ solve.T)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(draws[:, 1], [tail, 100 - tail])
    error = float(np.sqrt(np.sum(scatter**2) / len(scatter)) * np.linalg.norm(solve[1]))
    return PowerLaw(float(b), float(np.exp(log_A)), error, (float(low), float(high)), confidence, n, draws)


@dataclass(frozen=True)
class Estimate:
    """An estimated number and its interval (low, high) at confidence level `confidence`."""

    value: float
    interval: tuple[float, float]
    confidence: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.interval[0]:.3g} to {self.interval[1]:.3g})"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a sequential test.  exponent, interval : those of the last fit, or NaN for several exponents."""

    outcome: Outcome
    text: str
    seeds: int
    looks: int
    confidence: float
    exponent: float = float("nan")
    interval: tuple[float, float] = (float("nan"), float("nan"))

    @property
    def passed(self) -> bool:
        """True if the outcome is "pass", and False if it is "fail" or "undecided"."""
        return self.outcome == "pass"

    def __str__(self) -> str:
        return f"{self.outcome}: {self.text}"
