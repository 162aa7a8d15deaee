"""The claims: what is measured at every width, the power of the width that theory gives it, and the verdict.

A claim's exponent is fitted on the wider half of the widths: a width-n network misses the leading power by a relative
correction c/n, which shifts the local exponent by about c/n.  There it is below MARGIN, which a verdict forgives.

    equal     passes where the theory's exponent is within `critical` standard errors + MARGIN of the fitted one
    at most   passes where the fitted exponent is below the bound by the same measure
    undecided instead of passed: `critical` standard errors exceed RESOLUTION, so that n^-1/2 could not be told from n^0

`critical` is Bonferroni's: with all the tests of a run together, networks that obey the theory fail with a
probability of at most FAMILY.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minintk.diagnostics import PowerLaw, power_law
from minintk.verify.problem import smooth

Array = np.ndarray[Any, Any]
Verdict = Literal["pass", "fail", "undecided"]

FAMILY, MARGIN, RESOLUTION = 0.01, 0.05, 0.25


@dataclass(frozen=True)
class Claim:
    """What `minintk.verify.networks.errors` measures under `key`, and the theory's exponent of it.

    smooth, kinked : the exponent for activations of either kind.  bound_if_kinked : for kinked ones it is a bound.
    """

    key: str
    title: str
    formula: str
    meaning: str
    smooth: float = -0.5
    kinked: float = -0.5
    bound_if_kinked: bool = False

    def theory(self, activation: str) -> tuple[Literal["equal", "at most"], float]:
        """Relation and exponent for this activation."""
        if smooth(activation):
            return "equal", self.smooth
        return "at most" if self.bound_if_kinked else "equal", self.kinked


CLAIMS = (
    Claim(
        "ntk",
        "tangent kernel at the start",
        "‖Θ̂₀ − Θ‖ / ‖Θ‖",
        "The tangent kernel of a random network is a mean over units; it approaches the analytic one like any mean.",
    ),
    Claim(
        "nngp",
        "NNGP kernel at the start",
        "‖K̂ − K‖ / ‖K‖",
        "The covariance of the last hidden layer's pre-activations, a mean over its units, approaches the analytic "
        "NNGP kernel.",
    ),
    Claim(
        "kernel movement",
        "movement of the tangent kernel",
        "‖Θ̂_T − Θ̂₀‖ / ‖Θ̂₀‖",
        "Training moves the kernel less the wider the network: at most as n^-1/2 (eq. 17), and as n^-1 where phi' has "
        "no jumps.",
        smooth=-1.0,
        bound_if_kinked=True,
    ),
    Claim(
        "input weights",
        "movement of the input weights",
        "‖W_T − W₀‖ / ‖W₀‖",
        "Each input weight moves by n^-1/2 of itself; together they change the function by order 1.",
    ),
    Claim(
        "hidden weights",
        "movement of the hidden weights",
        "‖W_T − W₀‖ / ‖W₀‖",
        "There are n times as many hidden weights, and each moves by n^-1 of itself.",
        smooth=-1.0,
        kinked=-1.0,
    ),
    Claim(
        "output weights",
        "movement of the output weights",
        "‖W_T − W₀‖ / ‖W₀‖",
        "Each output weight moves by n^-1/2 of itself.",
    ),
    Claim(
        "linearisation, train",
        "network − its linearisation, train",
        "sup_t ‖f_t − f_t^lin‖",
        "A wide network trains like its own first-order Taylor expansion (eqs. 5, 9): at most n^-1/2 apart (eq. 17), "
        "and n^-1 where phi' has no jumps.",
        smooth=-1.0,
        bound_if_kinked=True,
    ),
    Claim(
        "linearisation, test",
        "network − its linearisation, test",
        "sup_t ‖f_t − f_t^lin‖",
        "The same on images that the network has not seen (eqs. 10, 11).",
        smooth=-1.0,
        bound_if_kinked=True,
    ),
    Claim(
        "infinite width, train",
        "network − infinite width, train",
        "sup_t ‖f_t − f_t^∞‖",
        "The analytic kernel predicts a real network's training from its own start; it errs as that kernel does.",
    ),
    Claim(
        "infinite width, test",
        "network − infinite width, test",
        "sup_t ‖f_t − f_t^∞‖",
        "The same on images that the network has not seen.",
    ),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One claim, measured: values[i] : (S_i,) at widths[i], the fit on the wider half, and the verdict."""

    activation: str
    claim: Claim
    relation: Literal["equal", "at most"]
    theory: float
    widths: tuple[int, ...]
    values: tuple[Array, ...]
    fit: PowerLaw
    critical: float

    @property
    def verdict(self) -> Verdict:
        room = self.critical * self.fit.error
        off = self.fit.exponent - self.theory
        if (off if self.relation == "at most" else abs(off)) > room + MARGIN:
            return "fail"
        return "pass" if room <= RESOLUTION else "undecided"


def judge(activation: str, claim: Claim, widths: Sequence[int], values: Sequence[Array], critical: float) -> Row:
    """Fit one claim on the wider half of the widths (two at least).

    >>> rng = np.random.default_rng(0)
    >>> widths = [64, 128, 256, 512, 1024]
    >>> seen = lambda power: [n**power * np.exp(0.2 * rng.standard_normal(20)) for n in widths]
    >>> [judge("relu", CLAIMS[0], widths, seen(power), 3.5).verdict for power in (-0.5, -1.0, 0.0)]
    ['pass', 'fail', 'fail']
    """
    wider = min(len(widths) // 2, len(widths) - 2)
    relation, theory = claim.theory(activation)
    fit = power_law(widths[wider:], values[wider:])
    return Row(activation, claim, relation, theory, tuple(widths), tuple(values), fit, critical)


@dataclass(frozen=True)
class Score:
    """One z-score of the trained ensemble.

    control : a theory that is wrong on purpose, which the same networks must reject.
    """

    activation: str
    title: str
    t: float
    z: float
    critical: float
    control: bool = False

    @property
    def verdict(self) -> Verdict:
        rejected = self.z > self.critical
        if self.control:
            return "pass" if rejected else "undecided"
        return "fail" if rejected else "pass"


def critical_z(tests: int) -> float:
    """The two-sided z of each of `tests` tests, for a probability of FAMILY that any one fails by chance.

    >>> round(critical_z(1), 3), round(critical_z(50), 2)
    (2.576, 3.72)
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(1 - FAMILY / (2 * tests))
