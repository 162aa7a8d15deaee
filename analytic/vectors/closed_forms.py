"""Activations with a closed form, a few lines each: the table is `closed_form`, at the end.

    v  = E phi(u)^2        p' = (1 - c') / 2, c' = E phi(u) phi(u') / sqrt(v v')        slope = E phi'(u) phi'(u')

for Gaussian u, u' of variances q, q' and covariance k, written in numbers that are exact for nearly parallel and nearly
opposite rows too (`Gram`): in D and S, the halved squared distances, in place of k.  Every formula for p' is a sum
of terms that vanish with D, so a rounding error moves no angle; E phi phi' itself would have to be subtracted from v.
What the formulas come from is written at each of them; papers' own forms are `tests/oracles`, in 50 digits.

Sources: Pearce et al. 2019 (sin, Rbf), Cho and Saul 2009 (rectified monomials, Sign), Tsuchida et al. 2020 (GELU).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import cos, inf, pi
from typing import Any, NamedTuple

from analytic.vectors.duals import Erf, Homogeneous, seen
from analytic.vectors.quadrature import Quadrature, mismatch
from analytic.vectors.state import Distances, Dual, Pairs, RowState
from minintk import spec as s
from minintk.arrays import Array, array_namespace, on_host
from minintk.layers.activation import pointwise

NUMBERS_AT_ONCE = 2**15
"""How many pairs, in float64, the formulas work on at a time on the host: their temporary arrays stay in cache."""


def product(xp: Any, *terms: tuple[Array, Array]) -> Array:
    """The sum of a b', numbers a of rows and b' of others; (n, 1) and (m,) by a matrix product, in half the time."""
    first, second = zip(*terms, *([(0 * terms[0][0], terms[0][1])] if len(terms) == 1 else []), strict=True)
    if first[0].ndim != 2:
        return sum((a * b for a, b in terms[1:]), terms[0][0] * terms[0][1])
    return xp.concatenate(first, axis=1) @ xp.reshape(xp.concatenate(second), (len(second), -1))


@dataclass(frozen=True)
class Gram:
    """Pairs of rows before an activation: s = sqrt(q) and s2 = sqrt(q') of the two, p = (1 - c)/2, r = (1 + c)/2.

    alike : all q are equal, s, s2 : (1,).   by_formula : they are not, and no `Distances` give what that adds to p'.
    gain : sqrt(q q' / (v v')), with v, v' the variances behind the activation.
    """

    xp: Any
    s: Array
    s2: Array
    p: Array
    r: Array
    alike: bool = True
    by_formula: bool = False
    gain: Any = 1.0

    @cached_property
    def q(self) -> Array:
        """E u^2."""
        return self.s**2

    @cached_property
    def q2(self) -> Array:
        """E u'^2."""
        return self.s2**2

    @cached_property
    def root(self) -> Array:
        """sqrt(q q')."""
        return product(self.xp, (self.s, self.s2))

    @cached_property
    def k(self) -> Array:
        """E u u'."""
        return self.root * (self.r - self.p)

    @cached_property
    def d(self) -> Array:
        """D at p = 0, and S at r = 0."""
        one, one2 = self.xp.ones_like(self.s), self.xp.ones_like(self.s2)
        return 0.5 * product(self.xp, (self.s, one2), (-one, self.s2)) ** 2

    @cached_property
    def D(self) -> Array:
        """E (u - u')^2 / 2 = (q + q')/2 - k."""
        return self.d + 2 * self.root * self.p

    @cached_property
    def S(self) -> Array:
        """E (u + u')^2 / 2 = (q + q')/2 + k."""
        return self.d + 2 * self.root * self.r

    @cached_property
    def sin2(self) -> Array:
        """sin(a)^2 = 1 - c^2."""
        return 4 * self.p * self.r

    @cached_property
    def angle(self) -> Array:
        """a = arccos c."""
        return 2 * self.xp.arctan2(self.xp.sqrt(self.p), self.xp.sqrt(self.r))


class ClosedFormRow(NamedTuple):
    """s: sqrt(q).   gain: sqrt(q / v).   alike: all q are equal, s and gain (1,).   distances: from `norms`."""

    s: Array
    gain: Array
    alike: bool
    distances: Distances | None


@dataclass(frozen=True)
class ClosedForm(Dual):
    """An activation by its formulas, elementwise on NumPy's or CuPy's arrays.

    variance : (xp, q) -> v.   step : Gram -> (p', E phi' phi').
    odd : phi(-x) = -phi(x), so that r' is p' with p and r exchanged; for others, r' = 1 - p'.
    norms : phi, where p' leaves out what different norms add to it (see `analytic.vectors.duals`), for variances up to
        `reach`; it is to add that too where a variance is larger, `Gram.by_formula`.
    """

    variance: Callable[[Any, Array], Array]
    step: Callable[[Gram], tuple[Array, Array]]
    odd: bool = False
    norms: Callable[[Any, Array], Array] | None = None
    reach: float = inf

    def rows(self, rows: RowState) -> tuple[RowState, ClosedFormRow]:
        xp = array_namespace(rows.q)
        s, low, high = xp.sqrt(rows.q), xp.min(rows.q), xp.max(rows.q)
        alike = bool(high - low <= rows.spread * high)
        _, slope = self.step(Gram(xp, s, s, xp.zeros_like(s), xp.ones_like(s)))
        after = RowState(self.variance(xp, rows.q), rows.theta * slope, rows.error)
        distances, phi = None, self.norms
        norm = xp.where(after.q > 0, rows.q, 1.0)  # 1 for rows that vanish, whose angles do not matter
        if phi is not None and not alike and float(xp.max(rows.q)) <= self.reach and bool(xp.all(norm > 0)):
            one = seen(xp, norm)
            distances = mismatch(lambda x: phi(xp, x), one, lambda s: self.variance(xp, s * s))
        of = slice(1 if alike else None)
        return after, ClosedFormRow(s[of], (rows.scale / after.scale)[of], alike, distances)

    def pairs(self, pairs: Pairs, row: ClosedFormRow) -> None:
        flags = row.alike, row.distances is None and not row.alike
        xp, p, r, tau = pairs.xp, pairs.p, pairs.r, pairs.tau
        sides = [v for one in (row.s, row.gain) for v in ((one, one) if row.alike else pairs.sides(one))]
        numbers = NUMBERS_AT_ONCE * 8 // p.dtype.itemsize if on_host(xp) else p.size
        rows = max(1, numbers * p.shape[0] // max(1, p.size))
        for start in range(0, p.shape[0], rows):
            at = slice(start, start + rows)
            s, s2, *gains = (v[at] if v.shape[:1] == p.shape[:1] and v.ndim == p.ndim else v for v in sides)
            gain = product(xp, (gains[0], gains[1]))
            turned = 1 - p[at] if r is None else r[at]
            new, slope = self.step(Gram(xp, s, s2, p[at], turned, *flags, gain))
            if tau is not None:
                tau[at] *= slope
                tau[at] *= gain
            if self.odd and r is not None:
                other, _ = self.step(Gram(xp, s, s2, turned, p[at], *flags, gain))
                r[at] = xp.maximum(other, 0)
            p[at] = xp.maximum(new, 0)
        with pairs.borrow(1) as (w,):
            if row.distances is not None:
                p += pairs.quarter_squared_distance(row.distances, w)
                if self.odd and r is not None:
                    r += w
        if r is not None and not self.odd:
            xp.subtract(1, p, out=r)
        pairs.clip()


SATURATION = 40.0
"""e^-2q is rounding beyond: sines of such variances oscillate too fast for `mismatch`."""


def positive(xp: Any, v: Array) -> Array:
    """v, or 1 where v = 0: the kernel of such rows is 0 whatever their angles are."""
    return xp.where(v > 0, v, 1)


# ------------------------------------------------------------------------------------------- the formulas


def sine(name: str, a: float, b: float, c: float) -> ClosedForm:
    """phi(x) = a sin(b x + c).  With C = cos 2c, all variances times b^2, and V = 1 - C e^(-2q) = 2 v / a^2:

        E phi phi' = a^2/2 (e^-D - C e^-S)                E phi' phi' = a^2 b^2/2 (e^-D + C e^-S)

    Let d, s be D, S at p = 0, e = D - d and f = S - d.  The angle adds to p', and different norms add,

        (1 - e^-e) e^-d (1 + C e^-f) / (2 sqrt(V V'))
        [(1 - e^-d)(1 + C e^-s) - C (e^-q - e^-q')^2 / 2 - (sqrt V - sqrt V')^2 / 2] / (2 sqrt(V V'))

    the second of which is (1 - c')/2 at p = 0, as d + s = q + q'.  Cos is c + pi/2; for C = 0, c' = e^-D.
    """
    C, b2, gain = cos(2 * c), b * b, a * a / 2

    def V(xp: Any, q: Array) -> Array:
        return (1 - C) - C * xp.expm1(-2 * b2 * q)

    def norms(g: Gram, lost: Array, root: Array, root2: Array) -> Array:
        """The second term, without its denominator.   lost : 1 - e^-(e + f)."""
        xp, d = g.xp, -g.xp.expm1(-b2 * g.d)
        decay = 1 - d
        rest = (C * (xp.exp(-b2 * g.q) - xp.exp(-b2 * g.q2)) ** 2 + (root - root2) ** 2) / 2
        near = d * (1 + C * decay * (1 - lost)) - rest
        far = root * root2 - decay * ((1 - C) + C * lost)  # as 1 - c', where norms are far apart
        return xp.maximum(xp.where(xp.abs(root - root2) < xp.minimum(root, root2), near, far), 0)

    def step(g: Gram) -> tuple[Array, Array]:
        xp = g.xp
        both = product(xp, (-2 * b2 * g.s, g.s2))
        e, f = xp.expm1(both * g.p), xp.expm1(both * g.r)  # e^-e - 1, e^-f - 1
        root, root2 = (xp.sqrt(positive(xp, V(xp, q))) for q in (g.q, g.q2))
        more = norms(g, -(e + f + e * f), root, root2) if g.by_formula else None
        f *= C
        f += 1 + C
        slope = e + f
        e *= f
        if not g.alike:
            decay = xp.exp(-b2 * g.d)
            slope *= decay
            e *= decay
        if more is not None:
            e -= more
        e *= product(xp, (-0.5 / root, 1 / root2))
        slope *= gain * b2
        return e, slope

    point, reach = pointwise(s.Sin(a, b, c)), SATURATION / b2 if b2 else inf
    return ClosedForm(name, lambda xp, q: gain * V(xp, q), step, odd=C == 1, norms=point.phi, reach=reach)


def exponential(name: str, a: float, b: float) -> ClosedForm:
    """phi(x) = a e^(b x):   E phi phi' = a^2 e^(b^2 S),   E phi' phi' = b^2 E phi phi',   c' = e^(-b^2 D)."""
    a2, b2 = a * a, b * b

    def step(g: Gram) -> tuple[Array, Array]:
        return -g.xp.expm1(-b2 * g.D) / 2, a2 * b2 * g.xp.exp(b2 * g.S)

    return ClosedForm(name, lambda xp, q: a2 * xp.exp(2 * b2 * q), step)


def gaussian(name: str, a: float, b: float) -> ClosedForm:
    """phi(x) = a e^(b x^2).  With A = -2b, w = sqrt(1 + 2 A q) and X = 1 + A (q + q') + A^2 (q q' - k^2):

    E phi phi' = a^2 / sqrt X        E phi' phi' = a^2 A^2 k / X^(3/2)        v = a^2 / w
    X / (w w') = 1 + e,   e = (w - w')^2 / (2 w w') + (A q / w) (A q' / w') sin(a)^2,   c' = 1 / sqrt(1 + e)
    """
    A = -2 * b

    def wide(xp: Any, q: Array) -> Array:
        return xp.sqrt(1 + 2 * A * q)

    def step(g: Gram) -> tuple[Array, Array]:
        w, w2 = wide(g.xp, g.q), wide(g.xp, g.q2)
        e = (A * g.q / w) * (A * g.q2 / w2) * g.sin2
        if not g.alike:
            e = e + (w - w2) ** 2 / w / (2 * w2)
        x, x_root = 1 + e, g.xp.sqrt(1 + e)
        slope = (a * A * a * A * g.s * w**-1.5) * (g.s2 * w2**-1.5) * (g.r - g.p) / (x * x_root)
        return e / (2 * (x + x_root)), slope

    return ClosedForm(name, lambda xp, q: a * a / wide(xp, q), step)


def rectified_square(name: str) -> ClosedForm:
    """phi(x) = max(x, 0)^2, the arc-cosine kernel of order 2, with J_2 = 3 sin a cos a + (pi - a)(1 + 2 cos(a)^2):

    E phi phi' = q q' J_2 / (2 pi)       E phi' phi' = 2 sqrt(q q') (sin a + (pi - a) cos a) / pi
    6 pi p' = 3 pi - J_2 = 3 (a - sin a cos a) + 2 (pi - a) sin(a)^2
    """

    def step(g: Gram) -> tuple[Array, Array]:
        sin, cos, left = g.xp.sqrt(g.sin2), g.r - g.p, pi - g.angle
        return (3 * (g.angle - sin * cos) + 2 * left * g.sin2) / (6 * pi), 2 / pi * g.root * (sin + left * cos)

    return ClosedForm(name, lambda xp, q: 1.5 * q * q, step)


def sign(name: str) -> ClosedForm:
    """phi(x) = sign x:   E phi phi' = 1 - 2 a / pi, so p' = a / pi.

    E phi'^2 is infinite, and `analytic.kernel` refuses Theta; the zero stands for it where only K is asked for.
    """

    def variance(xp: Any, q: Array) -> Array:
        return xp.astype(q > 0, q.dtype)

    return ClosedForm(name, variance, lambda g: (g.angle / pi, g.xp.zeros_like(g.p)), odd=True)


def gelu(name: str) -> ClosedForm:
    """phi(x) = x Phi(x).  With kappa = 1/(1+q), u = q kappa, sin z = rho = sqrt(u u') c, and z_1 the same at c = 1:

        2 pi E phi' phi' = pi/2 + z + tan z (kappa + kappa' + kappa kappa' / cos(z)^2)
        2 pi (E(1) - E(c)) / sqrt(q q') = z_1 - z + 2 p (pi/2 + z)
             + (q q' kappa kappa')^(3/2) / (q q') (1 + 1/(cos z cos z_1) - q q') 4 p r / (cos z + cos z_1)
        tan((z_1 - z)/2) = 2 sqrt(u u') p / (cos z + cos z_1)

    With T = tan((z_1 - z)/2), half of the right side is (z_1 - z)/2 + p (pi/2 + z) + T r (...), times kappa kappa'.
    E(1) - E(c) is what the angle adds to p'; the norms' part is from the distances of phi.
    """

    def variance(xp: Any, q: Array) -> Array:
        kappa = 1 / (1 + q)
        cos = xp.sqrt(kappa * (1 + q * kappa))
        return q * (pi / 2 + xp.arctan(q * kappa / cos) + q * kappa * (kappa * kappa + cos * cos) / cos) / (2 * pi)

    def step(g: Gram) -> tuple[Array, Array]:
        xp, kappa, kappa2 = g.xp, 1 / (1 + g.q), 1 / (1 + g.q2)
        both, root = product(xp, (kappa, kappa2)), product(xp, (g.s * xp.sqrt(kappa), g.s2 * xp.sqrt(kappa2)))
        cos1 = product(xp, (kappa, xp.ones_like(kappa2)), (g.q * kappa, kappa2))  # the square of cos z_1: 1 - u u'
        uu = root * root
        cos = uu * g.sin2 + cos1
        slope = both / cos + cos1 + both
        cos, cos1 = xp.sqrt(cos), xp.sqrt(cos1)
        tan = root * (g.r - g.p) / cos
        z = xp.arctan(tan) + pi / 2
        T = 2 * root * g.p / (cos + cos1)
        apart = (both / (cos * cos1) + (both - uu)) * g.r * T + xp.arctan(T) + g.p * z
        return apart * g.gain * (1 / (2 * pi)), (tan * slope + z) * (1 / (2 * pi))

    return ClosedForm(name, variance, step, norms=pointwise(s.GELU()).phi)


def closed_form(layer: s.Activation) -> Dual:
    """The step of an activation: in closed form where there is one, else by quadrature."""
    name = type(layer).__name__
    match layer:
        case s.ReLU() | s.RectifiedMonomial(1):
            return Homogeneous(name, 0.5, 0.5, 0.0)
        case s.LeakyReLU(slope):
            return Homogeneous(name, (1 + slope) / 2, (1 - slope) / 2, slope)
        case s.ABRelu(a, b):
            return Homogeneous(name, (b + a) / 2, (b - a) / 2, a)
        case s.Abs():
            return Homogeneous(name, 0.0, 1.0, 0.0)
        case s.RectifiedMonomial(2):
            return rectified_square(name)
        case s.Sign():
            return sign(name)
        case s.Erf():
            return Erf(name)
        case s.GELU():
            return gelu(name)
        case s.Sin(a, b, c):
            return sine(name, float(a), float(b), float(c))
        case s.Exp(a, b):
            return exponential(name, float(a), float(b))
        case s.Gaussian(a, b):
            return gaussian(name, float(a), float(b))
    return Quadrature(name, pointwise(layer))
