"""The step of ReLU in a single pass on the CPU, by Numba (`pip install minintk[fast]`).

The formula is that of `analytic.images.activations`, entry by entry.  NumPy takes twenty calls for it, and a thread
needs the interpreter between two of them; here a thread computes a whole field without it.
"""

from __future__ import annotations

from functools import cache
from math import pi, sqrt
from typing import Any

import numba
import numpy as np
from numpy.polynomial import Polynomial

from analytic.images.gpu_kernels import OPPOSITE_ROUNDINGS
from minintk.arrays import Array

ARCTAN_TERMS = 19
"""From this k on, 2 (sqrt 2 - 1)^(2k+1) / (2k+1) is less than the rounding error of 1."""

NUMBA_OPTIONS: Any = {"error_model": "numpy", "fastmath": {"contract"}}
"""No exception for a division by 0; the compiler may round a b + c once instead of twice, and reorder nothing."""


def arctan_series(terms: int) -> list[float]:
    """p with arctan t = t sum_k p_k z^k, z = 2 t^2 - 1, for 0 <= t <= 1.

    From arctan t = 2 sum_k (-1)^k (sqrt 2 - 1)^(2k+1) / (2k+1) T_{2k+1}(t), where T_{2k+1}(t) = t V_k(z) and
    V_{k+1} = 2 z V_k - V_{k-1}, V_0 = V_{-1} = 1 (Chebyshev polynomials of the first and the third kind).

    >>> t = np.linspace(0, 1, 1001)
    >>> p = arctan_series(ARCTAN_TERMS)
    >>> bool(np.abs(t * np.polynomial.polynomial.polyval(2 * t**2 - 1, p) - np.arctan(t)).max() < 4e-16)
    True
    """
    z, total = Polynomial([0.0, 1.0]), Polynomial([0.0])
    before, V = Polynomial([1.0]), Polynomial([1.0])
    for k in range(terms):
        total += 2 * (-1) ** k * (sqrt(2) - 1) ** (2 * k + 1) / (2 * k + 1) * V
        before, V = V, 2 * z * V - before
    return [float(p) for p in total.coef]


@cache
def constants(dtype: Any) -> Array:
    """The series, highest power first, 1, pi / 2 and the A / 2U of opposite pixels, in the precision of the arrays."""
    opposite = 1 - OPPOSITE_ROUNDINGS * np.finfo(dtype).eps
    return np.array([*reversed(arctan_series(ARCTAN_TERMS)), 1.0, pi / 2, opposite], dtype)


@numba.njit(inline="always", **NUMBA_OPTIONS)
def half_angle(D: Any, half: Any, half2: Any, p: Any) -> Any:
    """2 K, U sin a and a / 2, from t = tan(a / 2), or from 1 / t if that is less than 1."""
    gap, product = half - half2, half * half2
    A, U2 = abs(D - gap * gap), (product + product) + (product + product)
    A = A if U2 * p[ARCTAN_TERMS + 2] > A else U2
    X = U2 - A
    low, high = (X, A) if A > X else (A, X)
    square = low / high
    t, z, series = np.sqrt(square), square + square - p[ARCTAN_TERMS], p[0]
    for k in range(1, ARCTAN_TERMS):
        series = series * z + p[k]
    h = t * series
    return X - A, high * t, p[ARCTAN_TERMS + 1] - h if A > X else h


@numba.njit(nogil=True, **NUMBA_OPTIONS)
def line(D: Any, half: Any, half2: Any, c: Any, scale: Any, p: Any, theta: Any, ratio: Any, rest: Any) -> None:
    """D', and Theta' where there is one, of one contiguous line of pixels."""
    for k in range(D.size):
        two_k, W, h = half_angle(D[k], half[k], half2[k], p)
        D[k] = (D[k] * c + (two_k * h - W)) * scale
        if theta is not None:
            theta[k] = (theta[k] + two_k * ratio + (rest + rest)) * ((c - (h + h)) * scale)


def compiled(f: Any) -> Any:
    """f compiled for this machine, and cached on disk if some folder can be written to."""
    try:
        return numba.njit(nogil=True, cache=True, **NUMBA_OPTIONS)(f)
    except RuntimeError:  # neither this folder nor one of the user's can be written to
        return numba.njit(nogil=True, **NUMBA_OPTIONS)(f)


@compiled
def field(D: Any, half: Any, half2: Any, c: Any, scale: Any, p: Any, theta: Any, ratio: Any, rest: Any) -> None:
    """D', and Theta' where there is one, of all lines; Numba compiles it for either."""
    left = np.empty_like(half2[0])
    for a in range(D.shape[0]):
        left[:] = half[a]
        for b in range(D.shape[1]):
            if theta is None:
                line(D[a, b], left, half2[b], c, scale, p, None, ratio, rest)
            else:
                line(D[a, b], left, half2[b], c, scale, p, theta[a, b], ratio, rest)


def kinked(
    D: Array, half: Array, half2: Array, c: float, scale: float,
    theta: Array | None = None, ratio: float = 0.0, rest: float = 0.0,
) -> None:  # fmt: skip
    """D and theta : (A, B, n) through alpha x + beta |x|, in place; names as in `activations` for Homogeneous.

    half : (A, n), or (A, 1), and half2 : (B, n), sqrt(q / 2 unit) of the pixels of x and of x'.
    """
    T, p = D.dtype.type, constants(D.dtype)
    field(D, half, half2, T(c), T(scale), p, theta, T(ratio), T(rest))
