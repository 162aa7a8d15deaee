"""Numbers as a reader wants them, the same in the terminal, the report and the figures."""

from __future__ import annotations

import numpy as np

from minintk.verify.claims import Row, Score, Verdict
from minintk.verify.scores import LARGEST

SUMMARY: dict[Verdict, str] = {
    "pass": "The networks obey the theory.",
    "fail": "The networks and the theory disagree.",
    "undecided": "Nothing contradicts the theory, but some of it could not be decided: use more seeds or more widths.",
}


def power(value: float) -> str:
    """A power of n.

    >>> power(-0.5), power(-1.0)
    ('n^−1/2', 'n^−1')
    """
    return {-0.5: "n^−1/2", -1.0: "n^−1"}[value]


def theory_of(row: Row) -> str:
    """The theory's exponent, with ≤ for a bound: "−1/2", "≤ −1/2"."""
    return ("≤ " if row.relation == "at most" else "") + power(row.theory).removeprefix("n^")


def interval_of(row: Row) -> str:
    """The 95 % interval of the exponent."""
    return " to ".join(map(signed, row.fit.interval))


def typical(row: Row) -> float:
    """Geometric mean over the networks of the largest width."""
    return float(np.exp(np.mean(np.log(row.values[-1]))))


def wanted(test: Score) -> str:
    """What a z-score should be."""
    return f"{'>' if test.control else '≤'} {test.critical:.2f}"


def signed(value: float, digits: int = 2) -> str:
    """A number with a minus sign that is one.

    >>> signed(-0.504)
    '−0.50'
    """
    return f"{value:.{digits}f}".replace("-", "−")


def z_text(z: float) -> str:
    """A z-score, or its bound where it is beyond float64.

    >>> z_text(1.234), z_text(37.0)
    ('1.2', '> 37')
    """
    return f"> {LARGEST:.0f}" if z >= LARGEST else signed(z, 1)
