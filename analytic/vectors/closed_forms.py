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
from math import cos, pi
from typing import Any, NamedTuple

from analytic.vectors.duals import Erf, Homogeneous, seen
from analytic.vectors.quadrature import Quadrature, mismatch
from analytic.vectors.state import Distances, Dual, Pairs, RowState, columns
from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.activation import pointwise


@dataclass(frozen=True)
class Gram:
    """Pairs of rows before an activation: s = sqrt(q) and s2 = sqrt(q') of the two, p = (1 - c)/2, r = (1 + c)/2.

    alike : all q are equal.
    """

    xp: Any
    s: Array
    s2: Array
    p: Array
    r: Array
    alike: bool

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
        return self.s * self.s2

    @cached_property
    def k(self) -> Array:
        """E u u'."""
        return self.root * (self.r - self.p)

    @cached_property
    def d(self) -> Array:
        """D at p = 0, and S at r = 0."""
        return (self.s - self.s2) ** 2 / 2

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
    """s: sqrt(q).   gain: sqrt(q / v), the factor of tau.   alike: all q are equal.   distances: from `norms`."""

    s: Array
    gain: Array
    alike: bool
    distances: Distances | None


@dataclass(frozen=True)
class ClosedForm(Dual):
    """An activation by its formulas, elementwise on NumPy's or CuPy's arrays.

    variance : (xp, q) -> v.   p : Gram -> p'.   slope : Gram -> E phi' phi'.
    odd : phi(-x) = -phi(x), so that r' is p' with p and r exchanged; for others, r' = 1 - p'.
    norms : phi, where p leaves out what different norms add to p' (see `analytic.vectors.duals`).
    """

    variance: Callable[[Any, Array], Array]
    p: Callable[[Gram], Array]
    slope: Callable[[Gram], Array]
    odd: bool = False
    norms: Callable[[Any, Array], Array] | None = None

    def rows(self, rows: RowState) -> tuple[RowState, ClosedFormRow]:
        xp = array_namespace(rows.q)
        s, alike = xp.sqrt(rows.q), bool(xp.all(rows.q == rows.q[:1]))
        slope = self.slope(Gram(xp, s, s, xp.zeros_like(s), xp.ones_like(s), alike))
        after = RowState(self.variance(xp, rows.q), rows.theta * slope, rows.error)
        distances, phi = None, self.norms
        if phi is not None:
            one = seen(xp, xp.where(rows.q > 0, rows.q, 1.0))
            distances = mismatch(lambda x: phi(xp, x), one, lambda s: self.variance(xp, s * s))
        return after, ClosedFormRow(s, columns(xp, rows.scale / after.scale), alike, distances)

    def pairs(self, pairs: Pairs, row: ClosedFormRow) -> None:
        xp, p, r = pairs.xp, pairs.p, pairs.r
        gram = Gram(xp, *pairs.sides(row.s), p, 1 - p if r is None else r, row.alike)
        turned = Gram(xp, gram.s, gram.s2, gram.r, gram.p, row.alike) if self.odd and r is not None else None
        with pairs.borrow(1) as (w,):
            if pairs.tau is not None:
                pairs.tau *= self.slope(gram)
                pairs.tau *= pairs.dot(row.gain, row.gain, w)
            found = [(p, self.p(gram)), *([] if turned is None else [(r, self.p(turned))])]
            for out, new in found:
                xp.maximum(new, 0, out=out)
                if row.distances is not None:
                    out += pairs.quarter_squared_distance(row.distances, w)
        if r is not None and turned is None:
            xp.subtract(1, p, out=r)
        pairs.clip()


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

    def norms(g: Gram, root: Array, root2: Array) -> Array:
        xp = g.xp
        decay, both = -xp.expm1(-b2 * g.d), 2 * b2 * g.root
        rest = C * (xp.exp(-b2 * g.q) - xp.exp(-b2 * g.q2)) ** 2 + (root - root2) ** 2
        near = decay * (1 + C * xp.exp(-b2 * (g.d + 2 * g.root))) - rest / 2
        far = root * root2 - (1 - decay) * ((1 - C) - C * xp.expm1(-both))  # as 1 - c', where norms are far apart
        return xp.where(xp.abs(root - root2) < xp.minimum(root, root2), near, far)

    def p(g: Gram) -> Array:
        xp, both = g.xp, 2 * b2 * g.root
        root, root2 = (xp.sqrt(positive(xp, V(xp, q))) for q in (g.q, g.q2))
        apart = -xp.expm1(-both * g.p) * ((1 + C) + C * xp.expm1(-both * g.r))
        if not g.alike:
            apart = apart * xp.exp(-b2 * g.d) + xp.maximum(norms(g, root, root2), 0)
        return apart / (2 * root * root2)

    def slope(g: Gram) -> Array:
        return gain * b2 * (g.xp.exp(-b2 * g.D) + C * g.xp.exp(-b2 * g.S))

    return ClosedForm(name, lambda xp, q: gain * V(xp, q), p, slope, odd=C == 1)


def exponential(name: str, a: float, b: float) -> ClosedForm:
    """phi(x) = a e^(b x):   E phi phi' = a^2 e^(b^2 S),   E phi' phi' = b^2 E phi phi',   c' = e^(-b^2 D)."""
    a2, b2 = a * a, b * b
    return ClosedForm(
        name,
        lambda xp, q: a2 * xp.exp(2 * b2 * q),
        lambda g: -g.xp.expm1(-b2 * g.D) / 2,
        lambda g: a2 * b2 * g.xp.exp(b2 * g.S),
    )


def gaussian(name: str, a: float, b: float) -> ClosedForm:
    """phi(x) = a e^(b x^2).  With A = -2b, w = sqrt(1 + 2 A q) and X = 1 + A (q + q') + A^2 (q q' - k^2):

    E phi phi' = a^2 / sqrt X        E phi' phi' = a^2 A^2 k / X^(3/2)        v = a^2 / w
    X / (w w') = 1 + e,   e = (w - w')^2 / (2 w w') + (A q / w) (A q' / w') sin(a)^2,   c' = 1 / sqrt(1 + e)
    """
    A = -2 * b

    def wide(xp: Any, q: Array) -> Array:
        return xp.sqrt(1 + 2 * A * q)

    def e(g: Gram) -> Array:
        w, w2 = wide(g.xp, g.q), wide(g.xp, g.q2)
        return (w - w2) ** 2 / w / w2 / 2 + (A * g.q / w) * (A * g.q2 / w2) * g.sin2

    def p(g: Gram) -> Array:
        rest = e(g)
        return rest / (2 * (1 + rest + g.xp.sqrt(1 + rest)))

    def slope(g: Gram) -> Array:
        left, right = (s * wide(g.xp, s * s) ** -1.5 for s in (g.s, g.s2))
        return (a * A) ** 2 * left * right * (g.r - g.p) * (1 + e(g)) ** -1.5

    return ClosedForm(name, lambda xp, q: a * a / wide(xp, q), p, slope)


def rectified_square(name: str) -> ClosedForm:
    """phi(x) = max(x, 0)^2, the arc-cosine kernel of order 2, with J_2 = 3 sin a cos a + (pi - a)(1 + 2 cos(a)^2):

    E phi phi' = q q' J_2 / (2 pi)       E phi' phi' = 2 sqrt(q q') (sin a + (pi - a) cos a) / pi
    6 pi p' = 3 pi - J_2 = 3 (a - sin a cos a) + 2 (pi - a) sin(a)^2
    """

    def p(g: Gram) -> Array:
        return (3 * (g.angle - g.xp.sqrt(g.sin2) * (g.r - g.p)) + 2 * (pi - g.angle) * g.sin2) / (6 * pi)

    def slope(g: Gram) -> Array:
        return 2 / pi * g.root * (g.xp.sqrt(g.sin2) + (pi - g.angle) * (g.r - g.p))

    return ClosedForm(name, lambda xp, q: 1.5 * q * q, p, slope)


def sign(name: str) -> ClosedForm:
    """phi(x) = sign x:   E phi phi' = 1 - 2 a / pi, so p' = a / pi.

    E phi'^2 is infinite, and `analytic.kernel` refuses Theta; the zero stands for it where only K is asked for.
    """

    def variance(xp: Any, q: Array) -> Array:
        return xp.astype(q > 0, q.dtype)

    return ClosedForm(name, variance, lambda g: g.angle / pi, lambda g: g.xp.zeros_like(g.p), odd=True)


def gelu(name: str) -> ClosedForm:
    """phi(x) = x Phi(x).  With kappa = 1/(1+q), u = q kappa, sin z = rho = sqrt(u u') c, and z_1 the same at c = 1:

        2 pi E phi' phi' = pi/2 + z + tan z (kappa + kappa' + kappa kappa' / cos(z)^2)
        2 pi (E(1) - E(c)) / sqrt(q q') = z_1 - z + 2 p (pi/2 + z)
             + (q q' kappa kappa')^(3/2) / (q q') (1 + 1/(cos z cos z_1) - q q') 4 p r / (cos z + cos z_1)
        tan((z_1 - z)/2) = 2 sqrt(u u') p / (cos z + cos z_1)

    E(1) - E(c) is what the angle adds to p'; the norms' part is from the distances of phi.
    """

    def variance(xp: Any, q: Array) -> Array:
        kappa = 1 / (1 + q)
        cos = xp.sqrt(kappa * (1 + q * kappa))
        return q * (pi / 2 + xp.arctan(q * kappa / cos) + q * kappa * (kappa * kappa + cos * cos) / cos) / (2 * pi)

    def parts(g: Gram) -> tuple[Array, ...]:
        """kappa, kappa', cos(z_1), cos(z), tan(z); 1 - u u' = kappa + u kappa'."""
        kappa, kappa2 = 1 / (1 + g.q), 1 / (1 + g.q2)
        uu = (g.q * kappa) * (g.q2 * kappa2)
        cos1 = kappa + g.q * kappa * kappa2
        cos = g.xp.sqrt(cos1 + uu * g.sin2)
        return kappa, kappa2, g.xp.sqrt(cos1), cos, g.xp.sqrt(uu) * (g.r - g.p) / cos

    def p(g: Gram) -> Array:
        kappa, kappa2, cos1, cos, tan = parts(g)
        uu = (g.q * kappa) * (g.q2 * kappa2)
        apart = 2 * g.xp.arctan(2 * g.xp.sqrt(uu) * g.p / (cos + cos1)) + 2 * g.p * (pi / 2 + g.xp.arctan(tan))
        rest = (1 + 1 / (cos * cos1)) * (kappa * kappa2) - uu
        apart += g.xp.sqrt(uu) * rest * g.sin2 / (cos + cos1)
        v, v2 = (positive(g.xp, variance(g.xp, q)) for q in (g.q, g.q2))
        return apart * g.root / (4 * pi * g.xp.sqrt(v) * g.xp.sqrt(v2))

    def slope(g: Gram) -> Array:
        kappa, kappa2, _, cos, tan = parts(g)
        return (pi / 2 + g.xp.arctan(tan) + tan * (kappa + kappa2 + kappa * kappa2 / cos**2)) / (2 * pi)

    return ClosedForm(name, variance, p, slope, norms=pointwise(s.GELU()).phi)


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
