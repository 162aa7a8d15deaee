"""Define claims: a quantity at every width, its theoretical exponent, and the verdict on the measured exponent.

A claim's exponent is fitted on the wider half of the widths.  At width n, a relative correction c/n to the leading
power shifts the local exponent by about c/n.  Every verdict allows a shift of MARGIN, which covers all but large c.

    equal       passes if the theory's exponent is within `critical` standard errors + MARGIN of the fitted exponent
    at most     passes if the fitted exponent exceeds the bound by no more than `critical` standard errors + MARGIN
    undecided   replaces a pass if `critical` standard errors exceed RESOLUTION, as n^0 might then pass for n^-1/2

By Bonferroni's correction, the probability that a run fails any test by chance is at most FAMILY_WISE_ERROR.
`critical` is Student's t for a normal quantile z: each width has one degree of freedom less than seeds.

Each row of `verify --mup` is a `Finding`.  An exponent passes if its whole interval, at level CONFIDENCE, is within the
tolerance of the theory's exponent.  It fails if the whole interval is outside; otherwise, it is undecided.  A mean
passes within CRITICAL_Z standard errors of the theory's mean.  A control is a wrong theory, which the test must reject.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from scipy.special import ndtr, stdtrit

from analytic.verify.problem import ACTIVATIONS, KINKED
from analytic.verify.scores import LARGEST_Z
from minintk.arrays import Host
from minintk.diagnostics.power_laws import Outcome, PowerLaw, judged, power_law

SUMMARY: dict[Outcome, str] = {
    "pass": "The networks obey the theory.",
    "fail": "The networks and the theory disagree.",
    "undecided": "Nothing contradicts the theory, but some of it could not be decided: use more seeds or more widths.",
}


def overall(verdicts: Iterable[Outcome]) -> Outcome:
    """Return "fail" if any verdict is "fail", otherwise "undecided" if any is "undecided", otherwise "pass"."""
    found = set(verdicts)
    return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"


LINEARISED_TOLERANCE = 1e-9
"""Allowed relative difference between a trained linearised network and its closed form, in float64."""
FAMILY_WISE_ERROR, MARGIN, RESOLUTION = 0.01, 0.05, 0.25


@dataclass(frozen=True)
class Claim:
    """A quantity that `analytic.verify.networks.errors` returns under `key`, and its theoretical exponent.

    formula : the quantity's formula in HTML.  smooth, kinked : the exponent for either kind of activation.
    bound_if_kinked : True if the exponent for kinked activations is only a bound.
    """

    key: str
    title: str
    formula: str
    meaning: str
    smooth: float = -0.5
    kinked: float = -0.5
    bound_if_kinked: bool = False

    def theory(self, activation: str) -> tuple[Literal["equal", "at most"], float]:
        """Return the relation ("equal" or "at most") and the theoretical exponent for this activation."""
        if not isinstance(ACTIVATIONS[activation][0], KINKED):
            return "equal", self.smooth
        return "at most" if self.bound_if_kinked else "equal", self.kinked


LINEARISED, INFINITE = (f"sup<sub>t</sub> ‖f<sub>t</sub> − f<sub>t</sub><sup>{of}</sup>‖" for of in ("lin", "∞"))
CLAIMS = (
    Claim("ntk", "tangent kernel at the start", "‖Θ̂₀ − Θ‖ / ‖Θ‖",
        "The tangent kernel of a random network is a mean over units; it converges to the analytic one like any mean."),
    Claim("nngp", "NNGP kernel at the start", "‖K̂ − K‖ / ‖K‖",
        "The covariance of the last hidden layer's pre-activations, a mean over its units, converges to the analytic "
        "NNGP kernel."),
    Claim("kernel movement", "movement of the tangent kernel", "‖Θ̂<sub>T</sub> − Θ̂₀‖ / ‖Θ̂₀‖",
        "Training moves the kernel less the wider the network: as n^-1 where phi' has no jumps, otherwise about n^-3/4 "
        "(a count, docs/lazy.md). Eq. 17 proves at most n^-1/2, for smooth phi.", smooth=-1.0, bound_if_kinked=True),
    Claim("input weights", "movement of the input weights", "‖W<sub>T</sub> − W₀‖ / ‖W₀‖",
        "Each input weight changes by a fraction n^-1/2; together they change the function by order 1."),
    Claim("hidden weights", "movement of the hidden weights", "‖W<sub>T</sub> − W₀‖ / ‖W₀‖",
        "There are n times as many hidden weights, and each changes by a fraction n^-1.", smooth=-1.0, kinked=-1.0),
    Claim("output weights", "movement of the output weights", "‖W<sub>T</sub> − W₀‖ / ‖W₀‖",
        "Each output weight changes by a fraction n^-1/2."),
    Claim("linearisation, train", "network − its linearisation, train", LINEARISED,
        "A wide network trains like its own first-order Taylor expansion (eqs. 5, 9): at most n^-1/2 apart (eq. 17), "
        "and n^-1 where phi' has no jumps.", smooth=-1.0, bound_if_kinked=True),
    Claim("linearisation, test", "network − its linearisation, test", LINEARISED,
        "The same on held-out images (eqs. 10, 11).", smooth=-1.0, bound_if_kinked=True),
    Claim("infinite width, train", "network − infinite width, train", INFINITE,
        "The analytic kernel predicts a real network's training from its initial outputs; the error is the kernel's."),
    Claim("infinite width, test", "network − infinite width, test", INFINITE,
        "The same on held-out images."),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class JudgedClaim:
    """A measured claim, its fit on the wider half of widths, and its verdict.   values[i] : (S_i,), at widths[i]."""

    activation: str
    claim: Claim
    relation: Literal["equal", "at most"]
    theory: float
    widths: tuple[int, ...]
    values: tuple[Host, ...]
    fit: PowerLaw
    critical: float

    def __repr__(self) -> str:
        return f"JudgedClaim({self.activation}, {self.claim.key}: {self.fit!r}, {self.verdict})"

    @property
    def cells(self) -> tuple[str, str, str]:
        """Return the theory's exponent ("≤ −1/2" for a bound), the fitted exponent and its 95 % interval as strings."""
        theory = ("≤ " if self.relation == "at most" else "") + {-0.5: "−1/2", -1.0: "−1"}[self.theory]
        return theory, signed(self.fit.exponent), " to ".join(map(signed, self.fit.interval))

    @property
    def verdict(self) -> Outcome:
        room = self.critical * self.fit.error
        off = self.fit.exponent - self.theory
        if (off if self.relation == "at most" else abs(off)) > room + MARGIN:
            return "fail"
        return "pass" if room <= RESOLUTION else "undecided"


def judge(activation: str, claim: Claim, widths: Sequence[int], values: Sequence[Host], z: float) -> JudgedClaim:
    """Fit the exponent of one claim on the wider half of the widths (at least two), and judge it.   z : quantile."""
    wider = min(len(widths) // 2, len(widths) - 2)
    fit = power_law(widths[wider:], values[wider:])
    critical = -float(stdtrit(sum(len(value) - 1 for value in values[wider:]), ndtr(-z)))
    return JudgedClaim(activation, claim, *claim.theory(activation), tuple(widths), tuple(values), fit, critical)


@dataclass(frozen=True)
class Score:
    """One z-score of the trained ensemble.

    control : True for a deliberately wrong theory, which the same networks must reject.
    """

    title: str
    t: float
    z: float
    critical: float
    control: bool = False

    @property
    def cells(self) -> tuple[str, str, str]:
        """Return the time, z (or the bound at which it was clipped) and the range in which z passes, as strings."""
        z = f"> {LARGEST_Z:.0f}" if self.z >= LARGEST_Z else signed(self.z, 1)
        return f"{self.t:g}", z, f"{'>' if self.control else '≤'} {self.critical:.2f}"

    @property
    def verdict(self) -> Outcome:
        rejected = self.z > self.critical
        if self.control:
            return "pass" if rejected else "undecided"
        return "fail" if rejected else "pass"


def critical_z(tests: int) -> float:
    """Return the |z| that any of `tests` tests exceeds by chance in at most a fraction FAMILY_WISE_ERROR of runs.

    >>> round(critical_z(1), 3), round(critical_z(50), 2)
    (2.576, 3.72)
    """
    return NormalDist().inv_cdf(1 - FAMILY_WISE_ERROR / (2 * tests))


def signed(value: float, digits: int = 2) -> str:
    """Format a number with a typographic minus sign.

    >>> signed(-0.504)
    '−0.50'
    """
    return f"{value:.{digits}f}".replace("-", "−")


CONFIDENCE, CRITICAL_Z = 0.99, 3.0


@dataclass(frozen=True)
class Finding:
    """One row of a report: a law, the theory's prediction, the measurement and the verdict.

    control : True for a wrong scale or theory, which passes if the measurement rejects it.  seconds : the duration.
    """

    law: str
    theory: str
    measured: str
    verdict: Outcome
    control: bool = False
    seconds: float = 0.0


def refused(found: Finding) -> Finding:
    """Return the finding as a control, which passes if the finding failed and is otherwise undecided."""
    return replace(found, control=True, verdict="pass" if found.verdict == "fail" else "undecided")


def exponent(law: str, expected: float, tolerance: float, widths: Sequence[int], values: Sequence[Host]) -> Finding:
    """Return a finding that compares the expected exponent with the fitted one.   values[i] : (S,), at widths[i]."""
    fit = power_law(widths, values, confidence=CONFIDENCE)
    low, high = fit.interval
    verdict = judged(fit.interval, expected - tolerance, expected + tolerance)
    measured = f"{signed(fit.exponent)} ± {(high - low) / 2:.2f}, n = {widths[0]} to {widths[-1]}"
    return Finding(law, f"{signed(expected, 1)} ± {tolerance:g}", measured, verdict)


def bounded(law: str, bound: float, value: float) -> Finding:
    """Return a finding that passes if `value` does not exceed `bound`."""
    return Finding(law, f"≤ {bound:g}", f"{value:.2g}", "pass" if value <= bound else "fail")


def score(law: str, expected: float, found: float, error: float) -> Finding:
    """Return a finding that passes if a mean is within CRITICAL_Z standard errors of the expected value."""
    z = abs(found - expected) / error
    measured = f"{signed(found, 4)} ± {error:.4f}, z = {z:.1f}"
    return Finding(law, signed(expected, 4), measured, "pass" if z <= CRITICAL_Z else "fail")
