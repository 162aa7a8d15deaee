"""What the passes by Numba share (`pip install minintk[fast]`): how they are compiled, and arcs by polynomials.

Where these functions are called in a loop over arrays, the loop becomes vector instructions.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit
from numba.extending import intrinsic as typed_intrinsic
from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import cheb2poly, chebfit, chebpts1

NUMBA_OPTIONS: Any = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""No exception for a division by 0; the compiler may round a b + c once instead of twice, and reorder nothing."""

TERMS = {4: (8, 7), 8: (18, 17)}
"""By bytes per number: so many of the terms of P and R leave less than a rounding error of 1."""


def compiled(f: Any) -> Any:
    """f compiled for this machine, and cached on disk if some folder can be written to."""
    try:
        return njit(nogil=True, cache=True, **NUMBA_OPTIONS)(f)
    except RuntimeError:  # neither this folder nor one of the user's can be written to
        return njit(nogil=True, **NUMBA_OPTIONS)(f)


intrinsic: Any = typed_intrinsic  # its type does not count the arguments right
jit = njit(nogil=True, **NUMBA_OPTIONS)


class Apart(numba.core.compiler.Compiler):
    """Compiles functions whose arrays never overlap: else loops over many arrays would not become vector code."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()  # type: ignore[no-untyped-call]


apart = njit(nogil=True, pipeline_class=Apart, **NUMBA_OPTIONS)


def power_series(terms: int = 64) -> tuple[Polynomial, Polynomial]:
    """P and R of p = sin(a/2)^2, for angles a up to pi / 2, so p <= 1/2:

        a / 2 = sqrt(p) P(p)            a cos a - sin a = 2 p sqrt(p) R(p)

    From asin(s) = s sum_k P_k s^2k, sqrt(1 - p) = sum_k Q_k p^k and a cos a - sin a = 2 s [P (1 - 2p) - Q], s^2 = p.
    """
    P, Q = np.ones(terms), np.ones(terms)
    for k in range(1, terms):
        P[k] = P[k - 1] * (2 * k - 1) ** 2 / (2 * k * (2 * k + 1))
        Q[k] = Q[k - 1] * (k - 1.5) / k
    return Polynomial(P), Polynomial(P[1:] - 2 * P[:-1] - Q[1:])


def short_series(series: Polynomial, terms: int) -> list[float]:
    """The polynomial in z = 4p - 1 nearest to the series at 400 Chebyshev nodes of [0, 1/2], highest power first.

    >>> p = np.linspace(0, 0.5, 1001)
    >>> P = short_series(power_series()[0], TERMS[8][0])
    >>> bool(np.abs(np.sqrt(p) * np.polyval(P, 4 * p - 1) - np.arcsin(np.sqrt(p))).max() < 4e-16)
    True
    """
    z = chebpts1(400)
    return [float(c) for c in cheb2poly(chebfit(z, series((z + 1) / 4), terms - 1))[::-1]]


def arc_series(dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """P and R in that precision."""
    info = np.finfo(dtype)
    both = (short_series(s, n) for s, n in zip(power_series(), TERMS[info.bits // 8], strict=True))
    P, R = (tuple(info.dtype.type(v) for v in values) for values in both)
    return P, R


@intrinsic
def where(context: Any, condition: Any, a: Any, b: Any) -> Any:
    """a if condition else b, both computed: a branch would keep the compiler from vector instructions."""
    return a(condition, a, b), lambda context, builder, signature, values: builder.select(*values)


@intrinsic
def polynomial(context: Any, z: Any, coefficients: Any) -> Any:
    """The value at z, by Horner's rule, written out: a loop over a tuple is not, and keeps the loop around it slow."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        flags, total = ("contract",), builder.extract_value(values[1], 0)
        for k in range(1, len(coefficients)):
            total = builder.fmul(total, values[0], flags=flags)
            total = builder.fadd(total, builder.extract_value(values[1], k), flags=flags)
        return total

    return z(z, coefficients), emit
