"""Test an exponent sequentially: add rounds of networks until the test shows whether an error falls as fast as n^-1/2.

One seed gives a network at every width and hence one exponent, the least-squares slope of log(error) against log(n).
Exponents of different seeds are independent, with mean b.  After each round of SEEDS seeds, we test two hypotheses:

    refused   b <= REFUSED_ABOVE = -1/2 + MARGIN is rejected, i.e. the error falls more slowly than the law
    holds     b >= PASSED_BELOW is rejected, i.e. the error falls more than half as fast as the law

The p-value p_i of the t-test in round i is independent of the other rounds.  If b equals the boundary,
z_i = Phi^-1(1 - p_i) is standard normal, and the rounds combine into one statistic (Lehmacher, Wassmer 1999):

    Z_k = (z_1 + ... + z_k) / sqrt(k),    cov(Z_j, Z_k) = sqrt(j / k) for j <= k

so P(Z_k > CRITICAL for any k <= ROUNDS) = LEVEL, exactly for normal exponents (Pocock 1977).  The rounds spend .0022,
.0018, .0014, .0012, .0010, .0009, .0008 and .0007 of LEVEL.  Thus, if D draws obey the law, the number refused by
this test is stochastically at most Binomial(D, LEVEL).  So are the passes among D controls with b >= PASSED_BELOW.
A relative correction c/n to the leading power shifts the slope over n ... 4n by .54 c/n, so MARGIN covers c < .09 n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from minintk.arrays import Host

LEVEL, ROUNDS, SEEDS, CRITICAL = 0.01, 8, 12, 2.847887
LEVEL_OF_ALL, CRITICAL_OF_OTHERS = 0.02, 3.42
"""Level of a draw judged by four more quantities, LEVEL + 4 x 8 P(Z > 3.42) = .0200, and their critical z."""
MARGIN = 0.05
REFUSED_ABOVE, PASSED_BELOW = -0.5 + MARGIN, -0.25


def slopes(widths: Sequence[int], errors: Host) -> Host:
    """Return the least-squares slopes, (...), of log(error) against log(width), for errors : (..., K) at K widths.

    >>> slopes((2, 4, 8), np.array([[1.0, 0.5, 0.25]])).round(9).tolist()
    [-1.0]
    """
    log_n = np.log(np.asarray(widths, dtype=np.float64))
    log_n -= log_n.mean()
    return np.log(errors) @ (log_n / (log_n @ log_n))


def z_scores(exponents: Host, boundary: float) -> Host:
    """Return Z_k, (..., K), to test b against `boundary`.   exponents : (..., K, S), from K rounds of S seeds."""
    from scipy.special import ndtri, stdtr

    K, S = exponents.shape[-2:]
    error = np.maximum(exponents.std(axis=-1, ddof=1) / S**0.5, 1e-300)
    t = (exponents.mean(axis=-1) - boundary) / error
    z = np.clip(-np.sign(t) * ndtri(stdtr(S - 1, -np.abs(t))), -37, 37)
    return np.cumsum(z, axis=-1) / np.sqrt(np.arange(1, K + 1))


def decide(exponents: Host) -> tuple[Literal["holds", "refused", "undecided"], int]:
    """Return (decision, its round) for exponents : (K, S).  If a round rejects both hypotheses, decide "refused".

    >>> rng = np.random.default_rng(0)
    >>> [decide(b + 0.3 * rng.standard_normal((ROUNDS, SEEDS))) for b in (-1.0, 0.0)]
    [('holds', 1), ('refused', 1)]
    """
    for k, (refused, holds) in enumerate(zip(z_scores(exponents, REFUSED_ABOVE), z_scores(exponents, PASSED_BELOW)), 1):
        if refused >= CRITICAL:
            return "refused", k
        if holds <= -CRITICAL:
            return "holds", k
    return "undecided", len(exponents)


def refuses(exponents: Host) -> bool:
    """Return True if another quantity's exponents, (K, S), are significantly above REFUSED_ABOVE after K rounds.

    >>> rng = np.random.default_rng(0)
    >>> [refuses(b + 0.3 * rng.standard_normal((2, SEEDS))) for b in (-0.5, 0.0)]
    [False, True]
    """
    return bool(z_scores(exponents, REFUSED_ABOVE)[-1] > CRITICAL_OF_OTHERS)
