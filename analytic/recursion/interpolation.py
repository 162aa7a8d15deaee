"""Interpolate smooth functions of the logarithm of a positive number by Chebyshev polynomials."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, pi
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, on_host

LARGEST_DEGREE = 1024
"""The largest degree of an interpolation, and of a Hermite series (`analytic.recursion.quadrature`)."""
NARROW = 1e-3
"""Minimum half-length of an interval in log s.  Shorter intervals are extended, so that their nodes differ."""
NUMBERS_AT_ONCE = 2**21
"""Size of a batch of `by_rows` on a GPU, in numbers."""
NUMBERS_IN_CACHE = 2**17
"""Size of a batch of `by_rows` on the host, in numbers.  A batch takes about a dozen arrays of this size."""

Function = Callable[[Array], Array]

legendre = cache(np.polynomial.legendre.leggauss)
"""Gauss-Legendre nodes and weights on (-1, 1), given their number."""


def by_rows(work: Callable[[Array], Array], s: Array, width: int) -> Array:
    """Return work(s), computed in batches of rows."""
    xp = array_namespace(s)
    step = max(1, (NUMBERS_IN_CACHE if on_host(xp) else NUMBERS_AT_ONCE) // width)
    return xp.concatenate([work(s[i : i + step]) for i in range(0, s.shape[0], step)], axis=0)


def chebyshev(xp: Any, curve: Function, low: float, high: float) -> Array:
    """Return Chebyshev coefficients, (degree + 1, K), of the K components of curve(s) in log s on [low, high]."""
    middle, half = (low + high) / 2, max((high - low) / 2, NARROW)
    degree, lost, before = 8, 1.0, inf
    while lost > 4e-15 and degree < LARGEST_DEGREE and (lost > 1e-3 or lost < before / 2):  # else only rounding is left
        degree, before = degree * 2, lost
        k = xp.arange(degree + 1, dtype=xp.float64)
        angles = (k + 0.5) * (pi / (degree + 1))
        part = (2 / (degree + 1)) * xp.cos(k[:, None] * angles) @ curve(xp.exp(middle + half * xp.cos(angles)))
        part[0] /= 2
        lost = float(xp.max(xp.sum(part[-2:] ** 2, axis=1))) ** 0.5
    return part


def interpolated(part: Array, log_s: Array, low: float, high: float) -> Array:
    """Evaluate the polynomial of `chebyshev`: return curve(s), (N, K), from its coefficients `part`."""
    xp, middle, half = array_namespace(log_s), (low + high) / 2, max((high - low) / 2, NARROW)
    k = xp.arange(part.shape[0], dtype=xp.float64)

    def place(log_s: Array) -> Array:
        angle = xp.arccos(((log_s - middle) / half).clip(-1, 1))
        return xp.cos(angle[:, None] * k) @ part

    return by_rows(place, log_s, part.shape[0])
