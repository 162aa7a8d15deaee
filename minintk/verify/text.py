"""Numbers as text, the same in the terminal, the report and the figures."""

from __future__ import annotations

import numpy as np

from minintk.verify.claims import JudgedClaim, Score, Verdict
from minintk.verify.scores import LARGEST_Z

SUMMARY: dict[Verdict, str] = {
    "pass": "The networks obey the theory.",
    "fail": "The networks and the theory disagree.",
    "undecided": "Nothing contradicts the theory, but some of it could not be decided: use more seeds or more widths.",
}


def theory_of(row: JudgedClaim) -> str:
    """The theory's exponent, with ≤ for a bound: "−1/2", "≤ −1/2"."""
    return ("≤ " if row.relation == "at most" else "") + {-0.5: "−1/2", -1.0: "−1"}[row.theory]


def interval_of(row: JudgedClaim) -> str:
    """The 95 % interval of the exponent."""
    return " to ".join(map(signed, row.fit.interval))


def typical(row: JudgedClaim) -> float:
    """The geometric mean over the networks of the largest width."""
    return float(np.exp(np.mean(np.log(row.values[-1]))))


def wanted(test: Score) -> str:
    """The range in which a z-score passes."""
    return f"{'>' if test.control else '≤'} {test.critical:.2f}"


def signed(value: float, digits: int = 2) -> str:
    """A number with a typographic minus sign.

    >>> signed(-0.504)
    '−0.50'
    """
    return f"{value:.{digits}f}".replace("-", "−")


def z_text(z: float) -> str:
    """A z-score, or its bound if it was clipped.

    >>> z_text(1.234), z_text(37.0)
    ('1.2', '> 37')
    """
    return f"> {LARGEST_Z:.0f}" if z >= LARGEST_Z else signed(z, 1)
