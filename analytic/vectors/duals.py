"""Dual activations in closed form:  K' = E phi(u) phi(u'),  Theta' = Theta E phi'(u) phi'(u'),  (u, u') ~ N(0, K).

Each is a sum of terms >= 0 in p = (1 - c)/2 and r = (1 + c)/2 (see `analytic.vectors.state`), so that nearly parallel
pairs keep their digits.  Write E(c) for E phi(u) phi(u') at correlation c:

    p' = (E(1) - E(c)) / (2 sqrt(v v'))   +   (1 - E(1) / sqrt(v v')) / 2          v = E phi(u)^2, v' = E phi(u')^2
         from the inputs' angle               from their norms: 0 where q = q'

Sources: Cho and Saul 2009 (ReLU), Williams 1997 (erf), Tsuchida et al. 2020 (GELU), Pearce et al. 2019 (sin).
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
        slope = xp.where(rows.q > 0, gain, self.at_zero**2)
        after = RowState(gain * rows.q, slope * rows.theta, rows.error)
        if not rows.has_zero_rows:
            return after, HomogeneousRow(None, None)
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


class ErfRow(NamedTuple):
    """Coefficients of rows for u = 2q / (1 + 2q) = sin x and 1 - u = kappa = 1 / (1 + 2q); left . right of each pair is

    root: sqrt(u u').   twice: 4 u u'.   outer, inner: 1 - u u' = kappa + u kappa'.   spread: 1 / sqrt(x x').
    slope: (4/pi) sqrt(kappa kappa' q q' / (v v')).   distances: for the norms' term of p', None if all q are equal.
    """

    root: Array
    twice: Array
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
        return RowState((2 / pi) * asin_u(xp, rows.q), rows.theta * (4 / pi) / xp.sqrt(1 + 4 * rows.q), rows.error)

    def rows(self, rows: RowState) -> tuple[RowState, ErfRow]:
        xp, after = array_namespace(rows.q), self.after(rows)
        kappa = 1 / (1 + 2 * rows.q)
        u, q = 2 * rows.q * kappa, nonzero(xp, rows.q)
        phi = pointwise(spec.Erf()).phi
        return after, ErfRow(
            root=columns(xp, xp.sqrt(u)),
            twice=columns(xp, 2 * u),
            outer=columns(xp, kappa, u),
            inner=columns(xp, xp.ones_like(q), kappa),
            spread=columns(xp, 1 / xp.sqrt(asin_u(xp, q))),
            slope=columns(xp, 2 / sqrt(pi) * xp.sqrt(kappa) * rows.scale / after.scale),
            distances=mismatch(lambda x: phi(xp, x), seen(xp, q), lambda s: (2 / pi) * asin_u(xp, s * s)),
        )

    def pairs(self, pairs: Pairs, row: ErfRow) -> None:
        xp, p, r = pairs.xp, pairs.p, pairs.r
        with pairs.borrow(3) as (cos, both, w):
            # cos <- cos z,  both <- cos z + cos z_1
            if r is None:
                xp.subtract(1, p, out=cos)
                cos *= p
            else:
                xp.multiply(p, r, out=cos)
            cos *= pairs.dot(row.twice, row.twice, w)
            cos += pairs.dot(row.outer, row.inner, both)
            xp.sqrt(cos, out=cos)
            xp.sqrt(both, out=both)
            both += cos
            if pairs.tau is not None:
                pairs.tau *= pairs.dot(row.slope, row.slope, w)
                pairs.tau /= cos
            for side in (p,) if r is None else (p, r):  # erf is odd, so p and r follow one formula
                side *= 2
                side *= pairs.dot(row.root, row.root, w)
                side /= both
                xp.arctan(side, out=side)
                side *= pairs.dot(row.spread, row.spread, w)
                if row.distances is not None:
                    side += pairs.quarter_squared_distance(row.distances, w)
        pairs.clip()


# ------------------------------------------------------------------------------------------------ sin


class SinRow(NamedTuple):
    """Coefficients of rows; left . right of each pair is

    root: sqrt(q q').   left, right: (sqrt q - sqrt q')/sqrt 2.   over: 1 / sqrt(F(q) F(q')), F(t) = 1 - e^-2t.
    slope: sqrt(q q' / (v v')) / 2.   large: 1 where q > SATURATION, else 0.   distances: for the norms' term of p'.
    """

    root: Array
    left: Array
    right: Array
    over: Array
    slope: Array
    large: Array | None
    distances: Distances | None


SATURATION = 40.0
"""F(SATURATION) = 1 to the last digit."""


@dataclass(frozen=True)
class Sin(Dual):
    """phi(x) = sin(x).   E phi phi = e^-m sinh k,   E phi' phi' = e^-m cosh k,   m = (q + q')/2,   v = F(q)/2.

    With F(t) = 1 - e^-2t and m -+ k = g + 2 sqrt(q q') (p, r), where g = (sqrt q - sqrt q')^2 / 2:

        (E(1) - E(c)) / (2 sqrt(v v')) = e^-g F(sqrt(q q') p) (2 - F(sqrt(q q') r)) / (2 sqrt(F(q) F(q')))
        c' = (e^-(m-k) - e^-(m+k)) / sqrt(F(q) F(q'))                                where q or q' is large
    """

    def rows(self, rows: RowState) -> tuple[RowState, SinRow]:
        xp = array_namespace(rows.q)
        after = RowState(-0.5 * xp.expm1(-2 * rows.q), rows.theta * 0.5 * (1 + xp.exp(-2 * rows.q)), rows.error)
        q = nonzero(xp, rows.q)
        root, one, large = xp.sqrt(rows.q), xp.ones_like(q), q > SATURATION
        capped = xp.where(large, sqrt(SATURATION), xp.sqrt(q))
        return after, SinRow(
            root=columns(xp, root),
            left=sqrt(0.5) * columns(xp, root, one),
            right=columns(xp, one, -root),
            over=columns(xp, 1 / xp.sqrt(-xp.expm1(-2 * q))),
            slope=sqrt(0.5) * columns(xp, rows.scale / after.scale),
            large=columns(xp, xp.astype(large, xp.float64)) if bool(xp.any(large)) else None,
            distances=mismatch(xp.sin, capped, lambda s: -0.5 * xp.expm1(-2 * s * s)),
        )

    def pairs(self, pairs: Pairs, row: SinRow) -> None:
        xp, p, r = pairs.xp, pairs.p, pairs.r
        with pairs.borrow(5) as (less, more, g, over, w):
            pairs.dot(row.root, row.root, w)
            w *= -2
            xp.multiply(w, p, out=less)
            xp.multiply(w, xp.subtract(1, p, out=more) if r is None else r, out=more)
            pairs.dot(row.left, row.right, g)
            g *= g
            saturated = None if row.large is None else self.saturated(pairs, row, less - g, more - g, over)
            xp.expm1(less, out=less)  # -F(sqrt(q q') p), -F(sqrt(q q') r)
            xp.expm1(more, out=more)
            g *= -1
            xp.exp(g, out=g)
            if pairs.tau is not None:  # e^-(m-k) + e^-(m+k)
                xp.add(less, more, out=w)
                w += 2
                w *= g
                pairs.tau *= w
                pairs.tau *= pairs.dot(row.slope, row.slope, w)
            g *= pairs.dot(row.over, row.over, over)
            g *= -0.5
            xp.multiply(less, xp.add(more, 2, out=w), out=p)
            p *= g
            if r is not None:  # sin is odd, so p and r follow one formula
                xp.multiply(more, xp.add(less, 2, out=w), out=r)
                r *= g
            for side in (p,) if r is None else (p, r):
                if row.distances is not None:
                    side += pairs.quarter_squared_distance(row.distances, w)
            if saturated is not None:
                one, large_p, large_r = saturated
                p[...] = xp.where(one, large_p, p)
                if r is not None:
                    r[...] = xp.where(one, large_r, r)
        pairs.clip()

    def saturated(self, pairs: Pairs, row: SinRow, less: Array, more: Array, w: Array) -> tuple[Array, Array, Array]:
        """Which pairs have a large q, and p' and r' for these; from k - m and -(m + k)."""
        xp = pairs.xp
        assert row.large is not None
        with pairs.borrow(1) as (one,):
            chosen = (
                pairs.dot(row.large, xp.ones_like(row.large), one) + pairs.dot(xp.ones_like(row.large), row.large, w)
            ) > 0
        over = pairs.dot(row.over, row.over, w)
        low, high = xp.expm1(less), xp.expm1(more)
        rest = 1 - over
        apart, small = less - more, over > 2  # where the other q is small and `over` large, c' is exact in another form
        half_c = 0.5 * over * xp.sign(apart) * xp.exp(xp.maximum(less, more)) * -xp.expm1(-xp.abs(apart))
        near, far = 0.5 * (rest + over * (high + 1 - low)), 0.5 * (rest + over * (low + 1 - high))
        return chosen, xp.where(small, 0.5 - half_c, near), xp.where(small, 0.5 + half_c, far)


# ----------------------------------------------------------------------------------------------- GELU


class GeluRow(NamedTuple):
    """Coefficients of rows for kappa = 1 / (1 + q), u = q kappa = 1 - kappa; left . right of each pair is

    root: sqrt(u u').   twice: 4 u u'.   outer, inner: 1 - u u'.   kappa: kappa kappa'.
    kappa_one, one_kappa: kappa + kappa'.
    first, second: (q q')^(1/2), and ^(3/2), times (kappa kappa')^(3/2).   slope: sqrt(q q' / (v v')) / (2 pi).
    distances: for the norms' term of p', None if all q are equal.
    """

    root: Array
    twice: Array
    outer: Array
    inner: Array
    kappa: Array
    kappa_one: Array
    one_kappa: Array
    first: Array
    second: Array
    slope: Array
    distances: Distances | None


@dataclass(frozen=True)
class Gelu(Dual):
    """phi(x) = x Phi(x).

    With kappa = 1/(1+q), u = q kappa, sin z = rho = sqrt(u u') c, and z_1 the same at c = 1:

        2 pi E phi' phi' = pi/2 + z + tan z (kappa + kappa' + kappa kappa' / cos(z)^2)
        2 pi (E(1) - E(c)) / sqrt(q q') = z_1 - z + 2 p (pi/2 + z)
             + (q q' kappa kappa')^(3/2) / (q q') (1 + 1/(cos z cos z_1) - q q') 4 p r / (cos z + cos z_1)
        tan((z_1 - z)/2) = 2 sqrt(u u') p / (cos z + cos z_1)
    """

    def rows(self, rows: RowState) -> tuple[RowState, GeluRow]:
        xp = array_namespace(rows.q)

        def square(q: Array) -> Array:  # E phi(sqrt(q) z)^2
            kappa = 1 / (1 + q)
            cos = xp.sqrt(kappa * (1 + q * kappa))
            return q * (pi / 2 + xp.arctan(q * kappa / cos) + q * kappa * (kappa * kappa + cos * cos) / cos) / (2 * pi)

        kappa = 1 / (1 + rows.q)
        cos = xp.sqrt(kappa * (1 + rows.q * kappa))
        tan = rows.q * kappa / cos
        slope = (pi / 2 + xp.arctan(tan) + tan * (2 * kappa + (kappa / cos) ** 2)) / (2 * pi)
        after = RowState(square(rows.q), rows.theta * slope, rows.error)
        q, u, one = nonzero(xp, rows.q), rows.q * kappa, xp.ones_like(kappa)
        first = xp.sqrt(u) * kappa
        phi = pointwise(spec.GELU()).phi
        return after, GeluRow(
            root=columns(xp, xp.sqrt(u)),
            twice=columns(xp, 2 * u),
            outer=columns(xp, kappa, u),
            inner=columns(xp, one, kappa),
            kappa=columns(xp, kappa),
            kappa_one=columns(xp, kappa, one),
            one_kappa=columns(xp, one, kappa),
            first=columns(xp, first),
            second=columns(xp, first * rows.q),
            slope=columns(xp, rows.scale / after.scale) / sqrt(2 * pi),
            distances=mismatch(lambda x: phi(xp, x), seen(xp, q), lambda s: square(s * s)),
        )

    def pairs(self, pairs: Pairs, row: GeluRow) -> None:
        xp, p, r, tau = pairs.xp, pairs.p, pairs.r, pairs.tau
        with pairs.borrow(6) as (four, cos1, cos, z, w, d):
            # four <- 4 p r;  cos, cos1 <- cos z, cos z_1;  z <- z
            xp.multiply(p, xp.subtract(1, p, out=w) if r is None else r, out=four)
            four *= 4
            xp.subtract(w if r is None else r, p, out=z)
            z *= pairs.dot(row.root, row.root, d)
            pairs.dot(row.outer, row.inner, cos1)
            pairs.dot(row.twice, row.twice, cos)
            cos *= 0.25
            cos *= four
            cos += cos1
            xp.sqrt(cos, out=cos)
            xp.sqrt(cos1, out=cos1)
            z /= cos  # tan z
            if tau is not None:
                pairs.dot(row.kappa, row.kappa, w)
                w /= cos
                w /= cos
                w += pairs.dot(row.kappa_one, row.one_kappa, d)
                w *= z
                xp.arctan(z, out=z)
                w += z
                w += pi / 2
                tau *= w
                tau *= pairs.dot(row.slope, row.slope, d)
            else:
                xp.arctan(z, out=z)
            # z <- 2 p (pi/2 + z) + (z_1 - z)
            z += pi / 2
            z *= p
            p *= 2
            p *= pairs.dot(row.root, row.root, d)
            xp.add(cos, cos1, out=w)
            p /= w
            xp.arctan(p, out=p)
            z += p
            z *= 2
            # cos <- (1 + 1/(cos z cos z_1) - q q') 4 p r / (cos z + cos z_1), weighted
            cos *= cos1
            xp.divide(1, cos, out=cos)
            cos += 1
            cos *= pairs.dot(row.first, row.first, d)
            cos -= pairs.dot(row.second, row.second, d)
            cos *= four
            cos /= w
            z += cos
            z *= pairs.dot(row.slope, row.slope, d)
            xp.multiply(z, 0.5, out=p)
            if row.distances is not None:
                p += pairs.quarter_squared_distance(row.distances, d)
            xp.maximum(p, 0, out=p)
            if r is not None:  # GELU is far from odd: r' is not small
                xp.subtract(1, p, out=r)
        pairs.clip()
