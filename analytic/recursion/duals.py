"""Compute closed-form duals:  K' = E phi(u) phi(u'),  Theta' = Theta E phi'(u) phi'(u'),  (u, u') ~ N(0, K).

Each p' is a sum of terms >= 0 in p = (1 - c)/2 and r = (1 + c)/2 (see `analytic.recursion.state`), so nearly parallel
pairs stay accurate.  Write E(c) for E phi(u) phi(u') at correlation c:

    p' = (E(1) - E(c)) / (2 sqrt(v v'))   +   (1 - E(1) / sqrt(v v')) / 2          v = E phi(u)^2, v' = E phi(u')^2
         from the inputs' angle               from their norms: 0 if q = q'

This module defines the duals of ReLU and its family (Cho and Saul 2009); `closed_forms` defines the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from analytic.recursion.arcs import arc_series
from analytic.recursion.state import Dual, Pairs, RowState, columns
from minintk.arrays import Array, array_namespace


def nonzero(xp: Any, q: Array) -> Array:
    """Return q with 1 in place of 0, for use as a divisor.  The kernel of zero rows is 0 whatever the divisor."""
    return xp.where(q > 0, q, 1.0)


LARGEST_SCALE = 1e33
"""For larger s, phi(s z) / sqrt(E phi(s z)^2) equals its limit to 1e-16: a step (erf) or a multiple of ReLU (GELU)."""


NORM_GRID = 0.25
"""Spacing, in log sqrt(q), of the possible ends of the curves that `quadrature.mismatch` caches."""


def seen(xp: Any, q: Array) -> Array:
    """Return s = sqrt(q), or LARGEST_SCALE if s is larger."""
    return xp.minimum(xp.sqrt(q), LARGEST_SCALE)


# ------------------------------------------------------------------------------- ReLU, LeakyReLU, Abs


class HomogeneousRow(NamedTuple):
    """Coefficients for pairs that contain a row with q = 0; None if all q > 0.   nonzero : 0 if q = 0, else 1.

    factor : if one of two rows has q = 0, their factors' product is E phi' phi' divided by the other row's sqrt(v / q).
    """

    nonzero: Array | None
    factor: Array | None


def folded(xp: Any, s: Array) -> Array:
    """Return p' of |x| for p = s <= 1/2, s - (2/pi) (w - h cos a), as s (1 + (2/pi) sqrt(s) R(s)), R as in `arcs`."""
    R = reduce(lambda y, c: y * (4 * s - 1) + float(c), arc_series(np.dtype(np.float64))[1], 0 * s)
    return s * (1 + 2 / pi * xp.sqrt(s) * R)


@dataclass(frozen=True)
class Homogeneous(Dual):
    """Step of phi(x) = alpha x + beta |x|.

    With a the angle, b2 = beta^2 / (alpha^2 + beta^2) (1/2 for ReLU) and variances v = (alpha^2 + beta^2) q,

        c'     = (1 - b2) c + b2 (2 / pi) (sin a + (pi/2 - a) cos a)
        E phi' phi' = (alpha^2 + beta^2) k0,   k0 = 1 - b2 2 a / pi

    and with h = a/2 = asin(sqrt p), w = sin(a)/2 = sqrt(p (1 - p)):   p' = k0 p + (2 b2 / pi) (h - w).

    NumPy has its own in-place code, because the compiled code's formula, `scalar_forms.bent`, would take at least 7
    times as long on a block.  The relative rounding error of h - w is eps / h^2, no more than the error of a p computed
    from an inner product.  For pairs in a `Listing`, whose p is accurate to rounding, we use `folded`.

    at_zero : phi'(0), the slope used if all pre-activations of a row are 0.
    """

    alpha: float
    beta: float
    at_zero: float

    @property
    def b2(self) -> float:
        """Return b2, the weight of |x|."""
        return self.beta**2 / (self.alpha**2 + self.beta**2)

    def rows(self, rows: RowState) -> tuple[RowState, HomogeneousRow]:
        xp, gain = array_namespace(rows.q), self.alpha**2 + self.beta**2
        if not rows.has_zero_rows:
            return rows.to(gain * rows.q, gain * rows.theta), HomogeneousRow(None, None)
        after = rows.to(gain * rows.q, xp.where(rows.q > 0, gain, self.at_zero**2) * rows.theta)
        nonzero, factor = (xp.where(rows.q > 0, a, b) for a, b in ((1.0, 0.0), (self.alpha / sqrt(gain), self.at_zero)))
        return after, HomogeneousRow(columns(xp, nonzero), columns(xp, factor))

    def pairs(self, pairs: Pairs, row: HomogeneousRow) -> None:
        xp, p, r, b2 = pairs.xp, pairs.p, pairs.r, self.b2
        with pairs.borrow(3) as (u, h, w):
            if r is None:
                xp.sqrt(p, out=u)
                xp.arcsin(u, out=h)
                xp.subtract(1, p, out=w)
                xp.sqrt(w, out=w)
                w *= u  # unlike sqrt(p (1 - p)), this keeps h >= w, so p' >= 0, even for tiny p
                xp.subtract(h, w, out=w)
                w *= 2 * b2 / pi
                h *= -4 * b2 / pi
                h += 1
                p *= h
                p += w
            else:  # |u| |u'| is the same for c and -c, so use the acute angle
                s = xp.minimum(p, r)
                xp.arcsin(xp.sqrt(s), out=h)
                acute = folded(xp, s)
                p_less = p < r
                r[...] = (1 - b2) * r + b2 * (1 - acute)
                p[...] = (1 - b2) * p + b2 * acute
                h *= 4 / pi
                h[...] = (1 - b2) + b2 * xp.where(p_less, 1 - h, h - 1)
            if pairs.tau is not None:
                if row.nonzero is not None and row.factor is not None:
                    zero = pairs.dot(row.nonzero, row.nonzero, w) == 0
                    h[...] = xp.where(zero, pairs.dot(row.factor, row.factor, w), h)
                pairs.tau *= h


# ------------------------------------------------------------------------------------------------ erf


def asin_u(xp: Any, q: Array) -> Array:
    """Return x = asin(2q / (1 + 2q)), accurate to the last digit even near pi/2."""
    kappa = 1 / (1 + 2 * q)
    return xp.where(q < 0.5, xp.arcsin(xp.minimum(2 * q * kappa, 0.5)), pi / 2 - 2 * xp.arcsin(xp.sqrt(kappa / 2)))


def erf_variance(xp: Any, q: Array) -> Array:
    """Return E erf(u)^2."""
    return (2 / pi) * asin_u(xp, q)
