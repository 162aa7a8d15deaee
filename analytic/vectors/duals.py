"""Dual activations in closed form:  K' = E phi(u) phi(u'),  Theta' = Theta E phi'(u) phi'(u'),  (u, u') ~ N(0, K).

Each is a sum of terms >= 0 in p = (1 - c)/2 and r = (1 + c)/2 (see `analytic.vectors.state`), so that nearly parallel
pairs keep their digits.  Write E(c) for E phi(u) phi(u') at correlation c:

    p' = (E(1) - E(c)) / (2 sqrt(v v'))   +   (1 - E(1) / sqrt(v v')) / 2          v = E phi(u)^2, v' = E phi(u')^2
         from the inputs' angle               from their norms: 0 where q = q'

Sources: Cho and Saul 2009 (ReLU), Williams 1997 (erf).  The other activations: `analytic.vectors.closed_forms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import Any, NamedTuple

from analytic.vectors.quadrature import mismatch
from analytic.vectors.state import Distances, Dual, Pairs, RowState, columns
from minintk import spec
from minintk.arrays import Array, array_namespace
from minintk.layers.activation import pointwise


def nonzero(xp: Any, q: Array) -> Array:
    """q, or 1 where q = 0: the kernel of such rows is 0 whatever their angles are."""
    return xp.where(q > 0, q, 1.0)


LARGEST_SCALE = 1e33
"""For s above this, phi(s z) / sqrt(E phi(s z)^2) is that of a step, for erf, or of ReLU, for GELU, up to 1e-16."""


NORM_GRID = 0.25
"""In log sqrt(q): how coarsely the norms of the rows choose a curve of `mismatch` that is kept."""


def seen(xp: Any, q: Array) -> Array:
    """s = sqrt(q), cut off where larger ones make no difference to `mismatch`."""
    return xp.minimum(xp.sqrt(q), LARGEST_SCALE)


# ------------------------------------------------------------------------------- ReLU, LeakyReLU, Abs


class HomogeneousRow(NamedTuple):
    """If some q = 0 (`RowState.has_zero_rows`), else None; the product for a pair is

    nonzero: 0 if either row has q = 0.
    factor: for such pairs, E phi'(u) phi'(u'), divided by sqrt(v / q) of a row with q > 0.
    """

    nonzero: Array | None
    factor: Array | None


@dataclass(frozen=True)
class Homogeneous(Dual):
    """phi(x) = alpha x + beta |x|.

    With a the angle, b2 = beta^2 / (alpha^2 + beta^2) (1/2 for ReLU) and variances v = (alpha^2 + beta^2) q,

        c'     = (1 - b2) c + b2 (2 / pi) (sin a + (pi/2 - a) cos a)
        E phi' phi' = (alpha^2 + beta^2) k0,   k0 = 1 - b2 2 a / pi

    and with h = a/2 = asin(sqrt p), w = sin(a)/2 = sqrt(p (1 - p)):   p' = k0 p + (2 b2 / pi) (h - w).

    at_zero : phi'(0), the slope if all of a row's pre-activations are 0.
    """

    alpha: float
    beta: float
    at_zero: float

    @property
    def b2(self) -> float:
        """The weight of |x|."""
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
                w *= u  # rather than sqrt(p (1 - p)), so that h >= w for the smallest p too, and p' >= 0
                xp.subtract(h, w, out=w)
                w *= 2 * b2 / pi
                h *= -4 * b2 / pi
                h += 1
                p *= h
                p += w
            else:  # |u| |u'| is the same for c and -c: compute with the acute angle
                s = xp.minimum(p, r)
                xp.arcsin(xp.sqrt(s), out=h)
                xp.multiply(p, r, out=w)
                xp.sqrt(w, out=w)
                folded = xp.maximum(s - (w - h * (1 - 2 * s)) * (2 / pi), 0)
                p_less = p < r
                r[...] = (1 - b2) * r + b2 * (1 - folded)
                p[...] = (1 - b2) * p + b2 * folded
                h *= 4 / pi
                h[...] = (1 - b2) + b2 * xp.where(p_less, 1 - h, h - 1)
            if pairs.tau is not None:
                if row.nonzero is not None and row.factor is not None:
                    zero = pairs.dot(row.nonzero, row.nonzero, w) == 0
                    h[...] = xp.where(zero, pairs.dot(row.factor, row.factor, w), h)
                pairs.tau *= h


# ------------------------------------------------------------------------------------------------ erf


def asin_u(xp: Any, q: Array) -> Array:
    """x = asin(2q / (1 + 2q)), to the last digit even where it is almost pi/2."""
    kappa = 1 / (1 + 2 * q)
    return xp.where(q < 0.5, xp.arcsin(xp.minimum(2 * q * kappa, 0.5)), pi / 2 - 2 * xp.arcsin(xp.sqrt(kappa / 2)))


def erf_variance(xp: Any, q: Array) -> Array:
    """E erf(u)^2."""
    return (2 / pi) * asin_u(xp, q)


class ErfRow(NamedTuple):
    """Coefficients of rows for u = 2q / (1 + 2q) = sin x and 1 - u = kappa = 1 / (1 + 2q); left . right of each pair is

    root: 2 sqrt(u u').   outer, inner: 1 - u u' = kappa + u kappa'.   spread: 1 / sqrt(x x').
    slope: (4/pi) sqrt(kappa kappa' q q' / (v v')).   distances: for the norms' term of p', None if all q are equal.
    """

    root: Array
    outer: Array
    inner: Array
    spread: Array
    slope: Array
    distances: Distances | None


@dataclass(frozen=True)
class Erf(Dual):
    """phi(x) = erf(x).

        E phi phi   = (2/pi) asin rho,   rho = 2k / sqrt((1+2q)(1+2q')) = sqrt(u u') c,   u = 2q / (1 + 2q)
        E phi' phi' = (4/pi) / sqrt((1+2q)(1+2q') - 4k^2)

    With rho = sin z, z_1 the same at c = 1, and v = (2/pi) x, u = sin x:

        (E(1) - E(c)) / (2 sqrt(v v')) = (z_1 - z) / (2 sqrt(x x'))
        tan((z_1 - z)/2) = 2 sqrt(u u') p / (cos z_1 + cos z)
        cos(z)^2 = 1 - u u' + 4 u u' p r
    """

    def after(self, rows: RowState) -> RowState:
        """The rows after the activation."""
        xp = array_namespace(rows.q)
        return rows.to(erf_variance(xp, rows.q), rows.theta * (4 / pi) / xp.sqrt(1 + 4 * rows.q))

    def rows(self, rows: RowState) -> tuple[RowState, ErfRow]:
        xp, after = array_namespace(rows.q), self.after(rows)
        kappa = 1 / (1 + 2 * rows.q)
        u, q = 2 * rows.q * kappa, nonzero(xp, rows.q)
        return after, ErfRow(
            root=columns(xp, xp.sqrt(2 * u)),
            outer=columns(xp, kappa, u),
            inner=columns(xp, xp.ones_like(q), kappa),
            spread=columns(xp, xp.sqrt(2 / pi / nonzero(xp, after.q))),
            slope=columns(xp, 2 / sqrt(pi) * xp.sqrt(kappa) * rows.scale / after.scale),
            distances=mismatch(pointwise(spec.Erf()).phi, erf_variance, seen(xp, q), NORM_GRID),
        )

    def pairs(self, pairs: Pairs, row: ErfRow) -> None:
        xp, p, r = pairs.xp, pairs.p, pairs.r
        sides = (p,) if r is None else (p, r)  # erf is odd, so p and r follow one formula
        with pairs.borrow(3) as (cos, both, w):
            # cos <- cos z,  both <- cos z + cos z_1
            if r is None:
                xp.subtract(1, p, out=cos)
            cos = xp.multiply(p, cos if r is None else r, out=cos)
            pairs.dot(row.root, row.root, w)
            for _ in range(2):
                cos *= w
            for side in sides:
                side *= w
            cos += pairs.dot(row.outer, row.inner, both)
            xp.sqrt(cos, out=cos)
            xp.sqrt(both, out=both)
            both += cos
            if pairs.tau is not None:
                pairs.tau *= pairs.dot(row.slope, row.slope, w)
                pairs.tau /= cos
            for side in sides:
                side /= both
                xp.arctan(side, out=side)
                side *= pairs.dot(row.spread, row.spread, w)
                if row.distances is not None:
                    side += pairs.quarter_squared_distance(row.distances, w)
        pairs.clip()
