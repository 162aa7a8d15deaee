"""Define closed forms for one pair; NumPy, Numba and CUDA run the same formulas, except NumPy for the ReLU family.

For pixels with Gaussian u, u' of variances q, q' and covariance k,

    D = E (u - u')^2 / 2 = (q + q')/2 - k     ->     D' = E (phi(u) - phi(u'))^2 / 2,   slope = E phi'(u) phi'(u')

A formula's inputs are D and both pixels' precomputed values, mostly functions of q.  Most formulas use s = sqrt(q) and

    U = s s'        A = U - k = U (1 - cos a) = D - (s - s')^2 / 2        B = U + k = U (1 + cos a) = 2U - A

Every D' is a sum of terms that vanish with D, so equal pixels stay equal, and nearly parallel pixels keep their angle.
The terms due to different norms are computed from differences of the two pixels' values.

For vectors, A and B are computed from p and r.  This keeps the angle accurate at every ratio of norms, while A computed
from D has an error of about eps times that ratio.  Vectors therefore need another formula for the part due to different
norms (see `closed_forms`, which also lists the sources).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sqrt
from typing import Any

from analytic.recursion.duals import asin_u, nonzero
from minintk.arrays import Array

OPPOSITE_ROUNDINGS = 8.0
"""If B = U (1 + cos a) is below this many roundings of A = U (1 - cos a), pixels are opposite: a = pi, B = 0."""


class Arithmetic:
    """Elementwise functions that formulas use besides + - * / >.   eps, tiny : constants of the arrays' precision."""

    def __init__(self, xp: Any, dtype: Any) -> None:
        self.xp, self.eps, self.tiny = xp, float(xp.finfo(dtype).eps), float(xp.finfo(dtype).tiny)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Return `a` where `condition` is true, else `b`.  Both are evaluated."""
        return self.xp.where(condition, a, b)

    def largest(self, a: Any, b: Any) -> Any:
        """Return max(a, b)."""
        return self.xp.maximum(a, b)

    def smallest(self, a: Any, b: Any) -> Any:
        """Return min(a, b)."""
        return self.xp.minimum(a, b)

    def sqrt(self, x: Any) -> Any:
        """Return the square root of x >= 0."""
        return self.xp.sqrt(x)

    def expm1(self, x: Any) -> Any:
        """Return e^x - 1 for x <= 0, accurate to the last digit."""
        return self.xp.expm1(x)

    def asin(self, p: Any, s: Any) -> Any:
        """Return the arcsine of s for p = s^2 <= 1/2."""
        return self.xp.arcsin(s)

    def angle(self, y: Any, x: Any) -> Any:
        """Return the angle of the point (x, y) for x, y >= 0."""
        return self.xp.arctan2(y, x)

    def lag(self, p: Any, s: Any) -> Any:
        """Return (sin a - a cos a) / 2 for p = s^2 = sin(a/2)^2 <= 1/2."""
        return s * self.xp.sqrt(1 - p) - self.xp.arcsin(s) * (1 - 2 * p)


Numbers = tuple[Any, ...]


def nothing(*arguments: Any) -> Any:
    """Raise TypeError.  Placeholder for functions that a form lacks, and for `numbers` that depend on more than q."""
    raise TypeError("the numbers of this form depend on the unit, or on the other pixels: the step prepares them")


@dataclass(frozen=True)
class Form:
    """Describe the effect of an activation on pairs of pixels and on pairs of vectors.

    numbers : (xp, q) -> the values of pixels, float64.
    pair : (arithmetic, D, numbers, numbers', constants) -> D', slope, 2k.   constants : parameters of phi.
    rows : (xp, q, constants) -> the values of vectors.
    turn : (arithmetic, p, r, numbers, numbers', constants) -> p', slope.  This p' may omit the part due to different
        norms (see `duals`).  The last of a vector's values is its gain, sqrt(q / v).
    """

    name: str
    numbers: Callable[[Any, Array], tuple[Array, ...]]
    pair: Callable[[Any, Any, Numbers, Numbers, Numbers], tuple[Any, Any, Any]]
    constants: tuple[float, ...] = ()
    rows: Callable[[Any, Array, Numbers], tuple[Array, ...]] = nothing
    turn: Callable[[Any, Any, Any, Numbers, Numbers, Numbers], tuple[Any, Any]] = nothing

    def through(self, m: Any, D: Any, theta: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
        """Return D' and 2 Theta', given D and theta = 2 Theta in the unit k[2]; if theta is None, so is 2 Theta'.

        one, two : the two pixels' values, and E phi(u)^2 / 2, which is 0 outside the image and positive inside.
        k : ratio and 2 rest of Theta's pending term (ratio times the covariance, plus rest); the unit; the constants.
        """
        (ratio, rest2, unit), (*first, half), (*second, half2) = k[:3], one, two
        after, slope, two_k = self.pair(m, D * unit, tuple(first), tuple(second), k[3:])
        inside = m.smallest(half, half2) > 0
        after = m.where(inside, m.largest(after, 0.0), half + half2)
        if theta is not None:
            theta = m.where(inside, ((theta + rest2) * unit + two_k * ratio) * slope, 0.0)
        return after, theta


def sides(m: Any, D: Any, s: Any, s2: Any) -> tuple[Any, Any, Any, Any]:
    """Return s - s', U, A and B; B = 0 for opposite pixels."""
    gap, U = s - s2, s * s2
    U2, A = U + U, m.largest(D - gap * gap * 0.5, 0.0)
    A = m.where(U2 * (1 - OPPOSITE_ROUNDINGS * m.eps) > A, A, U2)
    return gap, U, A, U2 - A


def acute(m: Any, A: Any, B: Any, U2: Any = None) -> tuple[Any, Any, Any]:
    """Return (a > pi/2), sin(b/2)^2 and sin(b/2) for the acute angle b = a or pi - a.   U2 : A + B; None means 1."""
    wide = A > B
    p = m.where(wide, B, A) if U2 is None else m.where(wide, B, A) / m.largest(U2, m.tiny)
    return wide, p, m.sqrt(p)


def bent(m: Any, A: Any, B: Any, U2: Any = None) -> tuple[Any, Any, Any]:
    """Return (a > pi/2), a/2 and (sin b - b cos b) / 2, with the acute angle b = a or pi - a.   U2 : as in `acute`."""
    wide, p, s = acute(m, A, B, U2)
    h = m.asin(p, s)
    return wide, m.where(wide, pi / 2 - h, h), m.lag(p, s)


# ------------------------------------------------------------------------------------------ ReLU, LeakyReLU, Abs


class Kinked(Form):
    """Apply alpha x + beta |x| in its own unit (see `analytic.images.activations`).  With c = pi / (2 b2),

        D'     = [c D + a k - U sin a] scale            Theta' = [c - a] scale Theta

    A pixel's values are h = sqrt(q / 2 unit) and c h^2 scale, or 0 outside; constants : (ratio, 2 rest, c, b2, scale).
    For opposite pixels, A is set to 2U.  Then k = -U, so |x| (b2 = 1) gives D' = 0 exactly for equal norms.
    """

    def through(self, m: Any, D: Any, theta: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
        (half, _), (half2, _), (ratio, rest2, c, b2, scale) = one, two, k
        gap, product = half - half2, half * half2
        gap = gap * gap
        U2 = (product + product) + (product + product)
        A = D - gap
        A = m.largest(A, 0.0 - A)
        A = m.where(U2 * (1 - OPPOSITE_ROUNDINGS * m.eps) > A, A, U2)  # 0 for a pixel outside the image
        B = U2 - A
        wide, h, lag = bent(m, A, B, U2)
        two_k = B - A
        after = ((gap + A + m.where(wide, two_k * b2, 0.0)) * c - U2 * lag) * scale
        if theta is not None:
            theta = m.where(U2 > 0, (theta + two_k * ratio + rest2) * ((c - (h + h)) * scale), 0.0)
        return after, theta


class Linear(Form):
    """Add ratio k + rest to Theta in its unit, for pairs inside the image.  A pixel's value is q/2, or 0 outside."""

    def through(self, m: Any, D: Any, theta: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
        (half,), (half2,), (ratio, rest2) = one, two, k
        both, inside = half + half2, m.smallest(half, half2) > 0
        if theta is not None:
            theta = m.where(inside, theta + (both - D) * (ratio + ratio) + rest2, 0.0)
        return m.where(inside, D, both), theta


KINKED, LINEAR = Kinked("kinked", nothing, nothing), Linear("linear", nothing, nothing)

# ------------------------------------------------------------------------------------------------ erf and GELU


def arcs_of_pixels(xp: Any, q: Array) -> tuple[Array, ...]:
    """Return s, kappa = (1 + 2q)^-1/2, tan and cos of x/2 and of y/2 = pi/4 - x/2, and x;  sin x = 2q / (1 + 2q)."""
    kappa = (1 + 2 * q) ** -0.5
    x, y = asin_u(xp, q), 2 * xp.arcsin(sqrt(0.5) * kappa)
    return xp.sqrt(q), kappa, xp.tan(x / 2), xp.cos(x / 2), xp.tan(y / 2), xp.cos(y / 2), x


def arc(m: Any, kappa: Any, kappa2: Any, unit: Any, A: Any, B: Any) -> tuple[Any, Any, Any, Any]:
    """Return (z_1 - z)/2, its tangent, cos z and cos z_1.

    sin z = unit k; z_1 is z at k = U.  A = U - k, B = U + k.  U is 1 for vectors; unit is 2 kappa kappa' for pixels:

        tan((z_1 - z)/2) = unit A / (cos z_1 + cos z)        cos(z)^2 = cos(z_1)^2 + unit^2 A B
        cos(z_1)^2 = 1 - u u' = kappa^2 + kappa'^2 - (kappa kappa')^2          u = 1 - kappa^2
    """
    kk, over = kappa * kappa2, unit * A
    square = kappa * kappa + kappa2 * kappa2 - kk * kk
    cos1, cosz = m.sqrt(square), m.sqrt(square + over * (unit * B))
    under = cos1 + cosz
    return m.angle(over, under), over / m.largest(under, m.tiny), cosz, cos1


def turns(m: Any, U: Any, A: Any, B: Any, one: Numbers, two: Numbers) -> tuple[Any, ...]:
    """Return (z_1 - z)/2, its tangent, mu = (x + x')/2 - z_1, sin((x - x')/2)^2, cos z, cos z_1 and kappa kappa'.

    sin z = 2k kappa kappa' as in `arc`.  sin(z_1)^2 = sin x sin x':   sin(mu) sin((x + x')/2 + z_1) = sin((x - x')/2)^2
    """
    (kappa, x, cx, y, cy), (kappa2, x2, cx2, y2, cy2) = one, two  # x, y : the tangents
    kk, cxx, cyy = kappa * kappa2, cx * cx2, cy * cy2
    h, tan, cosz, cos1 = arc(m, kappa, kappa2, kk + kk, A, B)
    e = (x - x2) * cxx
    e = e * e
    sines = (x + x2) * cxx * cos1 + (y + y2) * cyy * ((U + U) * kk)
    s = e / m.largest(sines, m.tiny)
    mu = m.asin(s * s, s)
    return h, tan, mu, e, cosz, cos1, kk


def erf_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D', slope and 2k:   (pi/2) D' = (z_1 - z) + mu,   slope = (4/pi) kappa kappa' / cos z."""
    _, U, A, B = sides(m, D, one[0], two[0])
    h, _, mu, _, cosz, _, kk = turns(m, U, A, B, one[1:], two[1:])
    return (h + h + mu) * (2 / pi), kk * (4 / pi) / m.largest(cosz, m.tiny), B - A


def erf_rows(xp: Any, q: Array, k: Numbers) -> tuple[Array, ...]:
    """Return kappa = (1 + 2q)^-1/2, sqrt(u), and 1 / sqrt x, with u = sin x = 2q / (1 + 2q), v = (2/pi) x."""
    kappa = (1 + 2 * q) ** -0.5
    return kappa, xp.sqrt(2 * q) * kappa, 1 / xp.sqrt(nonzero(xp, asin_u(xp, q)))


def erf_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return (E(1) - E(c)) / (2 sqrt(v v')) = (z_1 - z) / (2 sqrt(x x')) for sin z = sqrt(u u') c, and the slope."""
    (kappa, u, root, _), (kappa2, u2, root2, _) = one, two
    h, _, cosz, _ = arc(m, kappa, kappa2, u * u2, p + p, r + r)
    return h * (root * root2), kappa * kappa2 * (4 / pi) / m.largest(cosz, m.tiny)


ERF = Form("erf", lambda xp, q: arcs_of_pixels(xp, q)[:-1], erf_pair, (), erf_rows, erf_turn)


def gelu_numbers(xp: Any, q: Array) -> tuple[Array, ...]:
    """Return kappa, ..., cos(y/2) of `arcs_of_pixels(q / 2)`, s, x, root = sqrt(cos x), part = q kappa^2 / root."""
    _, *arcs, x = arcs_of_pixels(xp, q / 2)
    kappa = 1 / (1 + q)
    root = (kappa * (2 - kappa)) ** 0.25
    return *arcs, xp.sqrt(q), x, root, q * kappa / root


def gelu_arc(
    m: Any, A: Any, B: Any, U2: Any, arcs: Numbers, quarter: Any, sin: Any, g: Any, kk: Any
) -> tuple[Any, Any]:
    """Return 2 pi (E(U) - E(k)) and 2 pi dE / dk from `arc`.   U2 : 2U.   quarter : pi/2 + z.   sin : sin z.

    With kk = kappa kappa', g = 1/(1+q) + 1/(1+q') and h = (z_1 - z)/2,

        E(k) = E phi phi' = [k (pi/2 + z) + (q q' + k^2 (g - 1)) kk / cos z] / (2 pi)
        2 pi (E(U) - E(k)) = 2 U h + A (pi/2 + z) + tan(h) B (kk^2 / (cos z cos z_1) + g - 1)
    """
    h, tan, cosz, cos1 = arcs
    over, both = 1.0 / cosz, kk * kk
    turned = U2 * h + A * quarter + tan * B * (both * over * (1.0 / cos1) + (g - 1.0))
    return turned, quarter + sin * over * (g + both * over * over)


def gelu_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D', slope and 2k of phi(x) = x Phi(x): `gelu_arc` for sin z = k kk, and a part due to unequal norms:

    4 pi ((v + v')/2 - E(U)) = (s - s')^2 pi/2 + (s - s') (s x - s' x') + 2 U mu + 2 (part - part')^2
        + 2 U^2 kk / cos z_1 [4 kk sin((x - x')/2)^2 / (root root' (cos z_1 + root root')) - (kappa - kappa')^2]
    """
    (*arcs, s, x, root, part), (*arcs2, s2, x2, root2, part2) = one, two
    gap, U, A, B = sides(m, D, s, s2)
    h, tan, mu, e, cosz, cos1, kk = turns(m, U * 0.5, A * 0.5, B * 0.5, tuple(arcs), tuple(arcs2))
    apart, parts, roots = arcs[0] - arcs2[0], part - part2, root * root2
    g = arcs[0] * arcs[0] + arcs2[0] * arcs2[0]
    quarter = (x + x2) * 0.5 - mu - (h + h) + pi / 2  # pi/2 + z
    turned, slope = gelu_arc(m, A, B, U + U, (h, tan, cosz, cos1), quarter, (U - A) * kk, g, kk)
    norms = gap * (gap * (pi / 2) + (s * x - s2 * x2)) + (U + U) * mu
    bend = (4.0 * kk) / (roots * (cos1 + roots)) * e - apart * apart
    norms = norms + 2.0 * (parts * parts + (U * kk) * (U * bend) * (1.0 / cos1))  # U^2 could overflow
    return (turned + turned + norms) * (1 / (4 * pi)), slope * (1 / (2 * pi)), B - A


def gelu_rows(xp: Any, q: Array, k: Numbers) -> tuple[Array, ...]:
    """Return kappa = (1 + q)^-1/2, and sqrt(u), u = q / (1 + q)."""
    kappa = (1 + q) ** -0.5
    return kappa, xp.sqrt(q) * kappa


def gelu_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return p' from the angle, and the slope, using `gelu_arc` with U = 1.  sin z = sqrt(u u') c."""
    (kappa, u, gain), (kappa2, u2, gain2) = one, two
    unit, A, B = u * u2, p + p, r + r
    arcs, sin = arc(m, kappa, kappa2, unit, A, B), unit * (r - p)
    cosz, size = arcs[2], m.largest(sin, 0.0 - sin)
    s = m.smallest(size, cosz)
    h = m.asin(s * s, s)
    h = m.where(size > cosz, pi / 2 - h, h)
    g = kappa * kappa + kappa2 * kappa2
    quarter = m.where(sin > 0, pi / 2 + h, pi / 2 - h)
    turned, slope = gelu_arc(m, A, B, 2.0, arcs, quarter, sin, g, kappa * kappa2)
    return turned * (gain * gain2) * (1 / (4 * pi)), slope * (1 / (2 * pi))


GELU = Form("gelu", gelu_numbers, gelu_pair, (), gelu_rows, gelu_turn)

# ----------------------------------------------------------------------------------- the other activations


def sine(a: float, b: float, c: float) -> Form:
    """Return the form of phi(x) = a sin(b x + c).  With C = cos 2c, q and D scaled by b^2, and S = B + (s - s')^2 / 2:

    E phi phi' = a^2/2 (e^-D - C e^-S)                E phi' phi' = a^2 b^2/2 (e^-D + C e^-S)
    D' = a^2/2 [(1 - e^-D) (1 + C e^-S) - C (e^-q - e^-q')^2 / 2]
    """
    C, b2 = cos(2 * c), b * b

    def numbers(xp: Any, q: Array) -> tuple[Array, ...]:
        return abs(b) * xp.sqrt(q), -xp.expm1(-b2 * q)

    return Form("sine", numbers, sine_pair, (a * a / 2, b2, 1 / b2 if b2 else 0.0, C), sine_rows, sine_turn)


def waves(m: Any, D: Any, S: Any, C: Any) -> tuple[Any, Any]:
    """Return (1 - e^-D) (1 + C e^-S) and e^-D + C e^-S."""
    t, e = m.expm1(0.0 - D), m.expm1(0.0 - S) * C
    return t * (0.0 - 1.0 - C - e), t + e + (C + 1.0)


def sine_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D', slope and 2k using the formulas in `sine`."""
    (s, lost), (s2, lost2), (gain, b2, inverse, C) = one, two, k
    D = D * b2
    apart, _, A, B = sides(m, D, s, s2)
    gap = lost - lost2
    turned, slope = waves(m, D, B + apart * apart * 0.5, C)
    return (turned - gap * gap * (C * 0.5)) * gain, slope * (gain * b2), (B - A) * inverse


def sine_rows(xp: Any, q: Array, k: Numbers) -> tuple[Array, ...]:
    """Return s, and 1 / sqrt V,  V = 2 v / a^2 = 1 - C e^(-2q)."""
    _, b2, _, C = k
    q = b2 * q
    return xp.sqrt(q), 1 / xp.sqrt(nonzero(xp, (1 - C) - C * xp.expm1(-2 * q)))


def sine_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return e^-d (1 - e^-A) (1 + C e^-B) / (2 sqrt(V V')) and the slope, with d = (s - s')^2 / 2 = D - A."""
    (s, root, _), (s2, root2, _), (gain, b2, _, C) = one, two, k
    U2, gap = (s * s2) * 2.0, s - s2
    decay = m.expm1(gap * gap * -0.5) + 1.0
    turned, slope = waves(m, U2 * p, U2 * r, C)
    return decay * turned * (root * root2) * 0.5, slope * decay * (gain * b2)


def exponential(a: float, b: float) -> Form:
    """Return the form of a e^(bx): D' = (w - w')^2/2 + ww' - h, slope b^2 h, h = ww' e^(-b^2 D), w = |a| e^(b^2 q)."""
    b2 = b * b
    numbers = lambda xp, q: (q, abs(a) * xp.exp(b2 * q))  # noqa: E731
    return Form("exponential", numbers, exponential_pair, (b2, a * a), exponential_rows, exponential_turn)


def exponential_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D', slope and 2k using the formulas in `exponential`."""
    (q, w), (q2, w2), (b2, _) = one, two, k
    t, gap = m.expm1(0.0 - D * b2), w - w2
    return gap * gap * 0.5 - w * w2 * t, w * w2 * (t + 1.0) * b2, q + q2 - (D + D)


def exponential_rows(xp: Any, q: Array, k: Numbers) -> tuple[Array, ...]:
    """Return s = sqrt(q) and w = |a| e^(b^2 q)."""
    b2, a2 = k
    return xp.sqrt(q), a2**0.5 * xp.exp(b2 * q)


def exponential_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return p' = (1 - c') / 2 and the slope, for c' = e^(-b^2 D), D = (s - s')^2 / 2 + 2 s s' p."""
    (s, w, _), (s2, w2, _), (b2, _) = one, two, k
    gap = s - s2
    t = m.expm1((gap * gap * 0.5 + (s * s2) * 2.0 * p) * (0.0 - b2))
    return t * -0.5, w * w2 * (t + 1.0) * b2


def gaussian(a: float, b: float) -> Form:
    """Return the form of a e^(b x^2).  With A_ = -2b, w = sqrt(1 + 2 A_ q) and X = 1 + A_ (q + q') + A_^2 (q q' - k^2):

    E phi phi' = a^2 / sqrt X    v = a^2 / w    E phi' phi' = a^2 A_^2 k / X^(3/2)    X / (w w') = 1 + e
    e = [(w - w')^2 / 2 + A_^2 A B] / (w w')        D' = (sqrt v - sqrt v')^2 / 2 + sqrt(v v') (1 - (1 + e)^-1/2)
    """

    def numbers(xp: Any, q: Array) -> tuple[Array, ...]:
        w = xp.sqrt(1 - 4 * b * q)
        return xp.sqrt(q), w, 1 / w, abs(a) / xp.sqrt(w)

    return Form("gaussian", numbers, gaussian_pair, (4 * b * b, abs(a), b), gaussian_rows, gaussian_turn)


def widened(m: Any, e: Any) -> tuple[Any, Any]:
    """Return 1 - (1 + e)^-1/2 and (1 + e)^-3/2."""
    x = e + 1.0
    x_root = m.sqrt(x)
    return e / (x + x_root), 1.0 / x / x_root


def gaussian_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D', slope and 2k using the formulas in `gaussian`."""
    (s, w, inverse, root), (s2, w2, inverse2, root2), (A2, _, _) = one, two, k
    _, U, A, B = sides(m, D, s, s2)
    gap, roots, gap_root = w - w2, root * root2, root - root2
    turned, slope = widened(m, (gap * inverse) * (gap * inverse2) * 0.5 + (A * inverse) * (B * inverse2) * A2)
    after = gap_root * gap_root * 0.5 + roots * turned
    return after, roots * A2 * ((U - A) * inverse * inverse2) * slope, B - A


def gaussian_rows(xp: Any, q: Array, k: Numbers) -> tuple[Array, ...]:
    """Return w, 1/w, A_ q / w and a A_ s w^-3/2."""
    _, a, b = k
    w = xp.sqrt(1 - 4 * b * q)
    return w, 1 / w, -2 * b * q / w, 2 * a * abs(b) * xp.sqrt(q) * w**-1.5


def gaussian_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return p' = (1 - c') / 2 and the slope, for c' = (1 + e)^-1/2, where e includes the part due to unequal norms."""
    (w, inverse, y, root, _), (w2, inverse2, y2, root2, _) = one, two
    gap = w - w2
    turned, slope = widened(m, (gap * inverse) * (gap * inverse2) * 0.5 + (y * y2) * 4.0 * (p * r))
    return turned * 0.5, root * root2 * (r - p) * slope


def rectified(m: Any, A: Any, B: Any, U2: Any = None) -> tuple[Any, Any]:
    """Return the two terms below for phi(x) = max(x, 0)^2.  With L = sin a - a cos a, the arc-cosine kernel has

        (2 pi / U^2) (E(U) - E(k)) = (2 pi + a) sin(a)^2 - 3 L cos a        (pi / 2U) dE / dk = L + pi cos a

    v = 3/2 q^2.   U2 : as in `acute`.
    """
    wide, p, half_sin = acute(m, A, B, U2)
    h, lag, cos_b = m.asin(p, half_sin), m.lag(p, half_sin) * 2.0, 1.0 - (p + p)
    a = m.where(wide, pi - (h + h), h + h)
    L, cos_a = m.where(wide, lag + cos_b * pi, lag), m.where(wide, 0.0 - cos_b, cos_b)
    return (a + 2 * pi) * (4.0 * p * (1.0 - p)) - 3.0 * L * cos_a, m.where(wide, lag, lag + cos_b * pi)


def rectified_square_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D' = 3/4 (q - q')^2 + E(U) - E(k), the slope and 2k, using `rectified`."""
    (s,), (s2,) = one, two
    gap, U, A, B = sides(m, D, s, s2)
    turned, slope = rectified(m, A, B, U + U)
    norms = gap * (s + s2)
    return norms * norms * 0.75 + U * U * turned * (1 / (2 * pi)), (2 / pi) * U * slope, B - A


def root_of(xp: Any, q: Array, k: Numbers = ()) -> tuple[Array, ...]:
    """Return s = sqrt(q)."""
    return (xp.sqrt(q),)


def rectified_square_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return p' from the angle, and the slope, using `rectified`."""
    turned, slope = rectified(m, p, r)
    return turned * (1 / (6 * pi)), (one[0] * two[0]) * (2 / pi) * slope


RECTIFIED_SQUARE = Form("rectified square", root_of, rectified_square_pair, (), root_of, rectified_square_turn)


def sign_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Return D' of sign x, 2a/pi or, if a pixel is 0, (v + v')/2; the slope, unused and set to 0; and 2k."""
    (s, v), (s2, v2) = one, two
    _, U, A, B = sides(m, D, s, s2)
    wide, p, half_sin = acute(m, A, B, U + U)
    h = m.asin(p, half_sin) * (4 / pi)
    return m.where(v * v2 > 0, m.where(wide, 2.0 - h, h), (v + v2) * 0.5), 0.0 * h, B - A


def sign_numbers(xp: Any, q: Array) -> tuple[Array, ...]:
    """Return s and v; v is 1, or 0 for pixels of variance 0."""
    return xp.sqrt(q), xp.astype(q > 0, q.dtype)


def sign_turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
    """Return p' = a / pi, and 0 for the unused slope."""
    h = bent(m, p, r)[1] * (2 / pi)
    return h, 0.0 * h


def normalised_pair(m: Any, D: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any, Any]:
    """Apply layer normalisation, u -> r u:   D' = r r' A + (r s - r' s')^2 / 2,   slope = r r'."""
    (s, r), (s2, r2) = one, two
    _, _, A, B = sides(m, D, s, s2)
    gap, both = s * r - s2 * r2, r * r2
    return A * both + gap * gap * 0.5, both, B - A


SIGN = Form("sign", sign_numbers, sign_pair, (), lambda xp, q, k: (), sign_turn)
NORMALISED = Form("normalised", nothing, normalised_pair)

KINDS = KINKED, LINEAR, ERF, GELU, RECTIFIED_SQUARE, SIGN, NORMALISED, sine(1, 1, 0), exponential(1, 1), gaussian(1, -1)
FORMS = {form.name: form for form in KINDS}
"""{name: a form with this name}.  Forms of one name differ only in their constants, so they share compiled code."""
