"""Activations with a closed form, a few lines each: the table is `closed_form`, at the end.

    v  = E phi(u)^2        p' = (1 - c') / 2, c' = E phi(u) phi(u') / sqrt(v v')        slope = E phi'(u) phi'(u')

for Gaussian u, u' of variances q, q' and covariance k, written in numbers that are exact for nearly parallel and nearly
opposite rows too (`Gram`): in D and S, the halved squared distances, in place of k.  Every formula for p' is a sum
of terms that vanish with D, so a rounding error moves no angle; E phi phi' itself would have to be subtracted from v.
What the angle adds is in `scalar_forms`, for images too; papers' own forms are `tests/oracles`, in 50 digits.

Sources: Williams 1997 (erf), Pearce et al. 2019 (sin, Rbf), Cho and Saul 2009 (rectified monomials, Sign), Tsuchida et
al. 2020 (GELU).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import cos, inf, pi
from typing import Any, NamedTuple

from analytic.vectors import scalar_forms
from analytic.vectors.duals import NORM_GRID, Homogeneous, erf_variance, nonzero, seen
from analytic.vectors.quadrature import Quadrature, mismatch
from analytic.vectors.scalar_forms import ERF, GELU, RECTIFIED_SQUARE, SIGN, Arithmetic, Form
from analytic.vectors.state import Distances, Dual, Pairs, RowState
from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.activation import pointwise


@dataclass(frozen=True)
class Gram:
    """Pairs of rows before an activation: s = sqrt(q) and s2 = sqrt(q') of the two, p = (1 - c)/2, r = (1 + c)/2.

    opposite : r, or None where 1 - p is exact enough.
    alike : all q are equal, s, s2 : (1,).   by_formula : they are not, and no `Distances` give what that adds to p'.
    gains : sqrt(q / v) and sqrt(q' / v'), with v, v' the variances behind the activation.
    """

    xp: Any
    s: Array
    s2: Array
    p: Array
    opposite: Array | None
    alike: bool = True
    by_formula: bool = False
    gains: tuple[Array, Array] | None = None

    @cached_property
    def gain(self) -> Any:
        """sqrt(q q' / (v v'))."""
        return 1.0 if self.gains is None else self.gains[0] * self.gains[1]

    @cached_property
    def r(self) -> Array:
        """(1 + c) / 2."""
        return 1 - self.p if self.opposite is None else self.opposite

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
        return 0.5 * (self.s - self.s2) ** 2

    @cached_property
    def D(self) -> Array:
        """E (u - u')^2 / 2 = (q + q')/2 - k."""
        return self.d + 2 * self.root * self.p

    @cached_property
    def S(self) -> Array:
        """E (u + u')^2 / 2 = (q + q')/2 + k."""
        return self.d + 2 * self.root * self.r


@dataclass(frozen=True)
class Turn:
    """A step by the text of a form.   norms : adds to p' what different norms do, if the rows have no `Distances`."""

    form: Form
    norms: Callable[[Gram], Array] | None = None

    def __call__(self, g: Gram) -> tuple[Array, Array]:
        form, gains = self.form, g.gains or (1.0, 1.0)
        one, two = ((*form.rows(g.xp, q, form.constants), gain) for q, gain in zip((g.q, g.q2), gains, strict=True))
        after, slope = form.turn(Arithmetic(g.xp, g.p.dtype), g.p, g.r, one, two, form.constants)
        return after + self.norms(g) if g.by_formula and self.norms is not None else after, slope


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
    form : the same in terms of D, by which kernels of images are several times faster.
    """

    variance: Callable[[Any, Array], Array]
    step: Callable[[Gram], tuple[Array, Array]]
    odd: bool = False
    norms: Callable[[Any, Array], Array] | None = None
    reach: float = inf
    form: Form | None = None

    def after(self, rows: RowState) -> RowState:
        """The rows after the activation."""
        xp = array_namespace(rows.q)
        s = xp.sqrt(rows.q)
        _, slope = self.step(Gram(xp, s, s, xp.zeros_like(s), xp.ones_like(s)))
        return rows.to(self.variance(xp, rows.q), rows.theta * slope)

    def rows(self, rows: RowState) -> tuple[RowState, ClosedFormRow]:
        xp, after = array_namespace(rows.q), self.after(rows)
        s, alike, distances = xp.sqrt(rows.q), rows.alike, None
        norm = xp.where(after.q > 0, rows.q, 1.0)  # 1 for rows that vanish, whose angles do not matter
        if self.norms is not None and not alike and rows.ends[1] <= self.reach and float(norm.min()) > 0:
            distances = mismatch(self.norms, self.variance, seen(xp, norm), NORM_GRID)
        of = slice(1 if alike else None)
        return after, ClosedFormRow(s[of], (rows.scale / after.scale)[of], alike, distances)

    def pairs(self, pairs: Pairs, row: ClosedFormRow) -> None:
        flags = row.alike, row.distances is None and not row.alike
        xp, p, r, tau = pairs.xp, pairs.p, pairs.r, pairs.tau
        (s, s2), gains = ((one, one) if row.alike else pairs.sides(one) for one in (row.s, row.gain))
        gram = Gram(xp, s, s2, p, r, *flags, gains)
        new, slope = self.step(gram)
        if tau is not None:
            tau *= slope
            tau *= gram.gain
        if self.odd and r is not None:
            r[...] = self.step(Gram(xp, s, s2, r, p, *flags, gains))[0]
        p[...] = new
        self.apart(pairs, row)

    def apart(self, pairs: Pairs, row: ClosedFormRow) -> None:
        """Add to p' what different norms do, if the rows have `Distances`."""
        xp, p, r = pairs.xp, pairs.p, pairs.r
        if row.distances is not None:
            with pairs.borrow(1) as (w,):
                for side in (p, r) if self.odd and r is not None else (p,):
                    side += pairs.quarter_squared_distance(row.distances, w)
        if r is not None and not self.odd:
            xp.subtract(1, p, out=r)
        pairs.clip()


SATURATION = 40.0
"""e^-2q is rounding beyond: sines of such variances oscillate too fast for `mismatch`."""


# ------------------------------------------------------------------------------------------- the formulas


@lru_cache(maxsize=64)
def sine(name: str, a: float, b: float, c: float) -> ClosedForm:
    """phi(x) = a sin(b x + c), as `scalar_forms.sine`, with V = 1 - C e^(-2q) = 2 v / a^2.

    Let d and s be D and S at p = 0.  Different norms add to p'

        [(1 - e^-d)(1 + C e^-s) - C (e^-q - e^-q')^2 / 2 - (sqrt V - sqrt V')^2 / 2] / (2 sqrt(V V'))

    which is (1 - c')/2 at p = 0, as d + s = q + q'.  Cos is c + pi/2; for C = 0, c' = e^-D.
    """
    C, b2, gain = cos(2 * c), b * b, a * a / 2

    def V(xp: Any, q: Array) -> Array:
        return (1 - C) - C * xp.expm1(-2 * b2 * q)

    def norms(g: Gram) -> Array:
        xp, d, lost = g.xp, -g.xp.expm1(-b2 * g.d), -g.xp.expm1(-2 * b2 * g.root)  # 1 - e^-d, 1 - e^-(s - d)
        root, root2 = (xp.sqrt(nonzero(xp, V(xp, q))) for q in (g.q, g.q2))
        decay = 1 - d
        rest = (C * (xp.exp(-b2 * g.q) - xp.exp(-b2 * g.q2)) ** 2 + (root - root2) ** 2) / 2
        near = d * (1 + C * decay * (1 - lost)) - rest
        far = root * root2 - decay * ((1 - C) + C * lost)  # as 1 - c', where norms are far apart
        found = xp.maximum(xp.where(xp.abs(root - root2) < xp.minimum(root, root2), near, far), 0)
        return found / (2 * root) / root2

    point, reach, form = pointwise(s.Sin(a, b, c)), SATURATION / b2 if b2 else inf, scalar_forms.sine(a, b, c)
    return ClosedForm(name, lambda xp, q: gain * V(xp, q), Turn(form, norms), C == 1, point.phi, reach, form)


@cache
def erf(name: str) -> ClosedForm:
    """The error function, v = (2/pi) asin(2q / (1 + 2q))."""
    return ClosedForm(name, erf_variance, Turn(ERF), odd=True, norms=pointwise(s.Erf()).phi, form=ERF)


def exponential(name: str, a: float, b: float) -> ClosedForm:
    """phi(x) = a e^(b x)."""
    form = scalar_forms.exponential(a, b)
    return ClosedForm(name, lambda xp, q: a * a * xp.exp(2 * b * b * q), Turn(form), form=form)


def gaussian(name: str, a: float, b: float) -> ClosedForm:
    """phi(x) = a e^(b x^2)."""
    form = scalar_forms.gaussian(a, b)
    return ClosedForm(name, lambda xp, q: a * a / xp.sqrt(1 - 4 * b * q), Turn(form), form=form)


def rectified_square(name: str) -> ClosedForm:
    """phi(x) = max(x, 0)^2."""
    return ClosedForm(name, lambda xp, q: 1.5 * q * q, Turn(RECTIFIED_SQUARE), form=RECTIFIED_SQUARE)


def sign(name: str) -> ClosedForm:
    """phi(x) = sign x.  E phi'^2 is infinite, and `analytic.kernel` refuses Theta; for K alone, 0 stands for it."""
    return ClosedForm(name, lambda xp, q: xp.astype(q > 0, q.dtype), Turn(SIGN), odd=True, form=SIGN)


@cache
def gelu(name: str) -> ClosedForm:
    """phi(x) = x Phi(x)."""

    def variance(xp: Any, q: Array) -> Array:
        kappa = 1 / (1 + q)
        cos = xp.sqrt(kappa * (1 + q * kappa))
        return q * (pi / 2 + xp.arctan(q * kappa / cos) + q * kappa * (kappa * kappa + cos * cos) / cos) / (2 * pi)

    return ClosedForm(name, variance, Turn(GELU), norms=pointwise(s.GELU()).phi, form=GELU)


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
            return erf(name)
        case s.GELU():
            return gelu(name)
        case s.Sin(a, b, c):
            return sine(name, float(a), float(b), float(c))
        case s.Exp(a, b):
            return exponential(name, float(a), float(b))
        case s.Gaussian(a, b):
            return gaussian(name, float(a), float(b))
    return Quadrature(name, pointwise(layer))
