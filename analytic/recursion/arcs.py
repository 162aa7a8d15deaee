"""Fit the polynomials P and R, from which compiled code computes angles to rounding error, without branches."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import cheb2poly, chebfit, chebpts1

TERMS = {4: (8, 7), 8: (18, 17)}
"""{bytes per number: (number of terms of P, of R)}, such that truncation errors are below the rounding error of 1."""


def power_series(terms: int = 64) -> tuple[Polynomial, Polynomial]:
    """Return the power series P and R in p = sin(a/2)^2, for angles a up to pi / 2, so p <= 1/2:

        a / 2 = sqrt(p) P(p)            a cos a - sin a = 2 p sqrt(p) R(p)

    With s^2 = p, use asin(s) = s sum_k P_k s^2k, sqrt(1 - p) = sum_k Q_k p^k, a cos a - sin a = 2 s [P (1 - 2p) - Q].
    """
    P, Q = np.ones(terms), np.ones(terms)
    for k in range(1, terms):
        P[k] = P[k - 1] * (2 * k - 1) ** 2 / (2 * k * (2 * k + 1))
        Q[k] = Q[k - 1] * (k - 1.5) / k
    return Polynomial(P), Polynomial(P[1:] - 2 * P[:-1] - Q[1:])


def short_series(series: Polynomial, terms: int) -> list[float]:
    """Fit a polynomial in z = 4p - 1 to the series at 400 nodes of [0, 1/2]; return coefficients, highest power first.

    >>> p = np.linspace(0, 0.5, 1001)
    >>> P = short_series(power_series()[0], TERMS[8][0])
    >>> bool(np.abs(np.sqrt(p) * np.polyval(P, 4 * p - 1) - np.arcsin(np.sqrt(p))).max() < 4e-16)
    True
    """
    z = chebpts1(400)
    return [float(c) for c in cheb2poly(chebfit(z, series((z + 1) / 4), terms - 1))[::-1]]


@cache
def arc_series(dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the coefficients of P and of R for the precision `dtype`, highest power first."""
    info = np.finfo(dtype)
    both = (short_series(s, n) for s, n in zip(power_series(), TERMS[info.bits // 8], strict=True))
    P, R = (tuple(info.dtype.type(v) for v in values) for values in both)
    return P, R
