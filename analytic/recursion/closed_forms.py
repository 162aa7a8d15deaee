"""Define the recursion steps of activations with a closed form.  `closed_form` returns the step of any activation.

    v  = E phi(u)^2        p' = (1 - c') / 2, c' = E phi(u) phi(u') / sqrt(v v')        slope = E phi'(u) phi'(u')

The formulas hold for Gaussian u, u' of variances q, q' and covariance k.  They use p = (1 - c)/2 and r = (1 + c)/2
instead of k, because p and r stay accurate for nearly parallel and nearly opposite rows.  Except in `textbook`, p' is a
sum of terms that vanish if p = 0 and q = q', so p' of nearly parallel rows stays accurate.  Differences such as v - E
phi(u) phi(u') would lose digits.  `scalar_forms` defines most formulas for the angle's part of p', and for images.
`tests/kit` evaluates the papers' own formulas with up to 70 digits.  Sources: Williams 1997 (erf), Pearce et al. 2019
(sin, Rbf), Cho and Saul 2009 (rectified monomials, Sign), Tsuchida et al. 2020 (GELU).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from math import cos, inf, pi
from typing import Any, NamedTuple

import numpy as np

from analytic.recursion import scalar_forms
from analytic.recursion.clipped import clipped
from analytic.recursion.duals import NORM_GRID, Homogeneous, erf_variance, nonzero, seen
from analytic.recursion.quadrature import Quadrature, mean_square, mismatch
from analytic.recursion.scalar_forms import ERF, GELU, RECTIFIED_SQUARE, SIGN, Arithmetic, Form, Numbers, nothing
from analytic.recursion.state import Block, Distances, Dual, Pairs, RowState
from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.activation import Formula, pointwise


class ClosedFormRow(NamedTuple):
    """A form's values and the gain sqrt(q / v), (N,), or (1,) if alike.   alike : as in `RowState`.

    distances : from `norms`, or None.   s : sqrt(q) if norms differ and `by_norms` replaces distances, otherwise None.
    """

    numbers: tuple[Array, ...]
    alike: bool
    distances: Distances | None
    s: Array | None


@dataclass(frozen=True)
class ClosedForm(Dual):
    """Evaluate an activation's formulas elementwise on NumPy or CuPy arrays.

    variance : (xp, q) -> v.   form : provides `rows` and `turn` and, for images, an optional `pair`.
    odd : True if phi(-x) = -phi(x); r' is then p' with p and r exchanged.  Otherwise, r' = 1 - p'.
    norms : phi if `turn` omits the part of p' that different norms cause (see `analytic.recursion.duals`), else None.
        `mismatch` adds it if all variances are at most `reach`; otherwise, by_norms(xp, sqrt q, sqrt q') returns it.
    parts : number of parts into which a block is cut, more than 1 if `turn` needs over a dozen temporary arrays.
    """

    variance: Callable[[Any, Array], Array]
    form: Form
    odd: bool = False
    norms: Callable[[Any, Array], Array] | None = None
    reach: float = inf
    by_norms: Callable[[Any, Array, Array], Array] | None = None
    parts: int = 1

    def turn(self, xp: Any, p: Array, r: Array, one: Numbers, two: Numbers) -> tuple[Array, Array]:
        """Return p', except for the part due to `norms` if that is not None, and E phi'(u) phi'(u')."""
        return self.form.turn(Arithmetic(xp, p.dtype), p, r, one, two, self.form.constants)

    def after(self, rows: RowState) -> RowState:
        """Return the rows after the activation."""
        xp = array_namespace(rows.q)
        numbers = *self.form.rows(xp, rows.q, self.form.constants), 1.0
        _, slope = self.turn(xp, xp.zeros_like(rows.q), xp.ones_like(rows.q), numbers, numbers)
        return rows.to(self.variance(xp, rows.q), rows.theta * slope)

    def rows(self, rows: RowState) -> tuple[RowState, ClosedFormRow]:
        xp, after, alike, distances = array_namespace(rows.q), self.after(rows), rows.alike, None
        norm = xp.where(after.q > 0, rows.q, 1.0)  # 1 for zero rows, whose angles do not matter
        if self.norms is not None and not alike and rows.ends[1] <= self.reach and float(norm.min()) > 0:
            distances = mismatch(self.norms, self.variance, seen(xp, norm), NORM_GRID)
        of = slice(1 if alike else None)
        numbers = *self.form.rows(xp, rows.q[of], self.form.constants), (rows.scale / after.scale)[of]
        by_norms = self.by_norms is not None and distances is None and not alike
        return after, ClosedFormRow(numbers, alike, distances, xp.sqrt(rows.q) if by_norms else None)

    def pairs(self, pairs: Pairs, row: ClosedFormRow) -> None:
        if self.parts > 1 and isinstance(pairs, Block):
            for part in pairs.parts(-(-pairs.p.shape[0] // self.parts)):
                replace(self, parts=1).pairs(part, row)
            return
        xp, p, r, tau = pairs.xp, pairs.p, pairs.r, pairs.tau
        one, two = zip(*((v, v) if row.alike else pairs.sides(v) for v in row.numbers), strict=True)
        other = 1 - p if r is None else r
        new, slope = self.turn(xp, p, other, one, two)
        apart = 0.0 if row.s is None or self.by_norms is None else self.by_norms(xp, *pairs.sides(row.s))
        if tau is not None:
            for factor in (slope, one[-1], two[-1]):  # the product of the last two can overflow
                tau *= factor
        if self.odd and r is not None:
            r[...] = self.turn(xp, r, p, one, two)[0] + apart
        p[...] = new + apart
        self.apart(pairs, row)

    def apart(self, pairs: Pairs, row: ClosedFormRow) -> None:
        """Add to p' the part due to unequal norms, if the rows have `Distances`; complete r', and clip p' and r'."""
        xp, p, r = pairs.xp, pairs.p, pairs.r
        if row.distances is not None:
            with pairs.borrow(1) as (w,):
                for side in (p, r) if self.odd and r is not None else (p,):
                    side += pairs.quarter_squared_distance(row.distances, w)
        if r is not None and not self.odd:
            xp.subtract(1, p, out=r)
        pairs.clip()


SATURATION = 40.0
"""If b^2 q exceeds this, e^(-2 b^2 q) is below rounding, and sin(b x) oscillates too fast for `mismatch`."""


# ------------------------------------------------------------------------------------------- the formulas


@lru_cache(maxsize=64)
def sine(name: str, a: float, b: float, c: float) -> ClosedForm:
    """Return the step of phi(x) = a sin(b x + c), with V = 1 - C e^(-2q) = 2 v / a^2 (see `scalar_forms.sine`).

    Let d and s be D and S at p = 0.  Different norms add this part to p':

        [(1 - e^-d)(1 + C e^-s) - C (e^-q - e^-q')^2 / 2 - (sqrt V - sqrt V')^2 / 2] / (2 sqrt(V V'))

    This part is (1 - c')/2 at p = 0, because d + s = q + q'.  For a cosine, add pi/2 to c.  If C = 0, c' = e^-D.
    """
    C, b2, gain = cos(2 * c), b * b, a * a / 2

    def V(xp: Any, q: Array) -> Array:
        return (1 - C) - C * xp.expm1(-2 * b2 * q)

    def norms(xp: Any, s: Array, s2: Array) -> Array:
        d, lost = -xp.expm1(-b2 * 0.5 * (s - s2) ** 2), -xp.expm1(-2 * b2 * s * s2)  # 1 - e^-d, 1 - e^-(s - d)
        root, root2 = (xp.sqrt(nonzero(xp, V(xp, one**2))) for one in (s, s2))
        decay = 1 - d
        rest = (C * (xp.exp(-b2 * s**2) - xp.exp(-b2 * s2**2)) ** 2 + (root - root2) ** 2) / 2
        near = d * (1 + C * decay * (1 - lost)) - rest
        far = root * root2 - decay * ((1 - C) + C * lost)  # for norms that are far apart, use 1 - c'
        found = xp.maximum(xp.where(xp.abs(root - root2) < xp.minimum(root, root2), near, far), 0)
        return found / (2 * root) / root2

    point, reach, form = pointwise(s.Sin(a, b, c)), SATURATION / b2 if b2 else inf, scalar_forms.sine(a, b, c)
    return ClosedForm(name, lambda xp, q: gain * V(xp, q), form, C == 1, point.phi, reach, norms)


@cache
def gelu(name: str) -> ClosedForm:
    """Return the step of phi(x) = x Phi(x)."""

    def variance(xp: Any, q: Array) -> Array:
        kappa = 1 / (1 + q)
        cos = xp.sqrt(kappa * (1 + q * kappa))
        return q * (pi / 2 + xp.arctan(q * kappa / cos) + q * kappa * (kappa * kappa + cos * cos) / cos) / (2 * pi)

    return ClosedForm(name, variance, GELU, norms=pointwise(s.GELU()).phi)


def textbook(name: str, kappa: Formula, kappa_dot: Formula) -> ClosedForm:
    """Return an activation's step, given two textbook formulas in the variances and the covariance.

        kappa(q, q', k) = E phi(u) phi(u'),    kappa_dot(q, q', k) = E phi'(u) phi'(u')

    The precision is limited, because rounding k changes an angle a by eps / a.
    """

    def rows(xp: Any, q: Array, k: Numbers) -> Numbers:
        """Return q, sqrt q, and sqrt v,  v = kappa(q, q, q)."""
        return q, xp.sqrt(q), xp.sqrt(nonzero(xp, kappa(q, q, q)))

    def turn(m: Any, p: Array, r: Array, one: Numbers, two: Numbers, k: Numbers) -> tuple[Array, Array]:
        """Return p' = (1 - kappa / sqrt(v v')) / 2, and the slope."""
        (q, s, root, _), (q2, s2, root2, _) = one, two
        given = m.xp.broadcast_arrays(q, q2, m.xp.where(q == q2, q, s * s2) * (r - p))  # k = q for equal rows
        return (1 - kappa(*given) / root / root2) / 2, kappa_dot(*given)

    return ClosedForm(name, lambda xp, q: kappa(q, q, q), Form(name, nothing, nothing, (), rows, turn))


def closed_form(layer: s.Activation) -> Dual:
    """Return the step of an activation: in closed form if there is one, otherwise by quadrature."""
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
            return ClosedForm(name, lambda xp, q: 1.5 * q * q, RECTIFIED_SQUARE)
        case s.Sign():  # `analytic.kernel` rejects Theta, because E phi'^2 is infinite; the slope 0 is unused
            return ClosedForm(name, lambda xp, q: xp.astype(q > 0, q.dtype), SIGN, odd=True)
        case s.Erf():
            return ClosedForm(name, erf_variance, ERF, odd=True, norms=pointwise(layer).phi)
        case s.GELU():
            return gelu(name)
        case s.Sin(a, b, c):
            return sine(name, a, b, c)
        case s.Exp(a, b):
            return ClosedForm(name, lambda xp, q: a * a * xp.exp(2 * b * b * q), scalar_forms.exponential(a, b))
        case s.Gaussian(a, b):
            return ClosedForm(name, lambda xp, q: a * a / xp.sqrt(1 - 4 * b * q), scalar_forms.gaussian(a, b))
    point = pointwise(layer)
    if point.dual:
        return textbook(name, *point.dual)
    if not point.clipped:
        return Quadrature(name, point)
    ends, v = np.asarray(point.kinks), lambda xp, q: mean_square(partial(point.phi, xp), xp.sqrt(q), point.kinks)
    return ClosedForm(name, v, clipped(point), bool(np.all(point.phi(np, -ends) == -point.phi(np, ends))), parts=4)
