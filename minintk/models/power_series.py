"""Compute with truncated power series x(t) = x_0 + x_1 t + ... + x_k t^k, as lists of arrays, with None for zero.

    product    (a b)_j = sum_i a_i b_{j-i}
    integral   y_j = 1/j sum_{i >= 1} i u_i p_{j-i}       the coefficients of y if y' = p u'

Every y = phi(x) satisfies the equation y' = p x'.  Here, p = phi'(x) is a formula in x, y or other series, which
satisfy equations of their own (exp, sigmoid).  The rule for phi therefore returns y up to t^k and p up to t^(k-1).
Derivatives need only p, because a change dx(t) of x changes y by dy(t) = p(t) dx(t).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from math import pi, sqrt
from typing import Any

from minintk import spec as s
from minintk.arrays import Array, scipy_module
from minintk.layers.activation import pointwise
from minintk.spec.shapes import UnsupportedLayer

Series = list[Any]
"""Coefficients: arrays, or None for zero.  The first coefficient is an array."""


def add(a: Array | None, b: Array | None) -> Array | None:
    """Return a + b for two coefficients, either of which can be None."""
    return b if a is None else a if b is None else a + b


def scaled(c: Any, a: Array | None) -> Array | None:
    """Return c a for a coefficient `a`, which can be None."""
    return None if a is None else c * a


def product(a: Series, b: Series, j: int, weight: Callable[[int, int], float] | None = None) -> Array | None:
    """Return (a b)_j = sum_i a_i b_{j-i}, or sum_i weight(i, j) a_i b_{j-i}."""
    total = None
    for i in range(j + 1):
        x, y = a[i] if i < len(a) else None, b[j - i] if j - i < len(b) else None
        if x is not None and y is not None and (weight is None or weight(i, j)):
            total = add(total, x * y if weight is None else weight(i, j) * x * y)
    return total


def times(a: Series, b: Series) -> Series:
    """Return the series of the product a b, up to the order to which both `a` and `b` are known.

    >>> times([1.0, 2.0, None], [3.0, 4.0, 5.0])
    [3.0, 10.0, 13.0]
    """
    return [product(a, b, j) for j in range(min(len(a), len(b)))]


def integral(u: Series, p: Series, j: int) -> Array | None:
    """Return y_j for j >= 1, where y' = p u'."""
    return product(u, p, j, lambda i, j: i / j)


def solved(x: Series, y0: Array, p0: Array, p: Callable[[Series, Series, int], Array | None]) -> tuple[Series, Series]:
    """Solve y' = p x' for y up to t^k and p up to t^(k-1), given y_0, p_0 and p_j = p(x, y, j), j >= 1."""
    y: Series = [y0]
    slopes: Series = [p0]
    for j in range(1, len(x)):
        y.append(integral(x, slopes, j))
        slopes.append(p(x, y, j))
    return y, slopes[: len(x) - 1]


def from_slope(x: Series, y0: Array, p: Series) -> Series:
    """Solve y' = p x' for y, with a known series p."""
    return [y0, *(integral(x, p, j) for j in range(1, len(x)))]


def inverse_root(v: Series) -> Series:
    """Return r = 1/sqrt(v):  v r' = -v' r / 2, so v_0 r_j = sum_{i >= 1} (i/(2j) - 1) v_i r_{j-i}.

    >>> inverse_root([4.0, 1.0])
    [0.5, -0.0625]
    """
    r: Series = [v[0] ** -0.5]
    for j in range(1, len(v)):
        r.append(scaled(1 / v[0], product(v, r, j, lambda i, j: i / (2 * j) - 1)))
    return r


# ----------------------------------------------------------------------------------- phi(x), phi'(x): (y, p)


@singledispatch
def expanded(layer: s.Layer, xp: Any, x: Series) -> tuple[Series, Series]:
    """Return (y, p), the series of phi(x(t)) up to t^k and of phi'(x(t)) up to t^(k-1).  Register a new phi here."""
    kind = type(layer).__name__
    raise UnsupportedLayer(f"{kind} has no Taylor series: register minintk.models.power_series.expanded for it")


def sigmoid(xp: Any, x: Series) -> tuple[Series, Series]:
    """Solve y' = p x' with p = y - y^2."""
    y0 = scipy_module(xp, "special").expit(x[0])
    return solved(x, y0, y0 * (1 - y0), lambda x, y, j: add(y[j], scaled(-1, product(y, y, j))))


def gaussian(xp: Any, x: Series, a: float, c: float) -> Series:
    """Return e = c exp(-a x^2) from  e' = -q' e  with q = a x^2."""
    q: Series = [scaled(a, z) for z in times(x, x)]
    e0 = c * xp.exp(-q[0])
    return solved(q, e0, -e0, lambda q, e, j: scaled(-1, e[j]))[0]


def horner(coef: tuple[float, ...], xp: Any, x: Series) -> Series:
    """Return coef[0] + coef[1] x + coef[2] x^2 + ..."""
    total: Series = [None for _ in x]
    for c in reversed(coef):
        total = [add(c * xp.ones_like(x[0]), product(total, x, 0)), *times(total, x)[1:]]
    return total


def hermite(degree: int, xp: Any, x: Series) -> Series:
    """Return h_degree(x) by the recurrence  sqrt(n + 1) h_{n+1} = x h_n - sqrt(n) h_{n-1}."""
    last, h = ([f(x[0]), *(None for _ in x[1:])] for f in (xp.zeros_like, xp.ones_like))
    for n in range(degree):
        terms = zip(times(x, h), last)
        last, h = h, [scaled((n + 1) ** -0.5, add(a, scaled(-sqrt(n), b))) for a, b in terms]
    return h


@expanded.register
def _(layer: s.Activation, xp: Any, x: Series) -> tuple[Series, Series]:
    """Solve y' = p x'.  The comments state p in most cases."""
    point, x0 = pointwise(layer), x[0]
    y0, p0 = point.phi(xp, x0), point.derivative(xp, x0)
    match layer:
        case s.Identity() | s.ReLU() | s.LeakyReLU() | s.ABRelu() | s.Abs() | s.Sign() | s.Scale():  # p = p_0
            return [y0, *(scaled(p0, c) for c in x[1:])], [p0, *(None for _ in x[2:])]
        case s.Tanh():  # p = 1 - y^2
            return solved(x, y0, p0, lambda x, y, j: scaled(-1, product(y, y, j)))
        case s.Sigmoid():
            return sigmoid(xp, x)
        case s.Exp(_, b):  # p = b y
            return solved(x, y0, p0, lambda x, y, j: scaled(b, y[j]))
        case s.Sin(_, b):  # p' = -b^2 y x'
            return solved(x, y0, p0, lambda x, y, j: scaled(-b * b, integral(x, y, j)))
        case s.Softplus(beta, scale):  # p = scale sigmoid(beta x)
            p = [scaled(scale, c) for c in sigmoid(xp, [scaled(beta, c) for c in x[:-1]])[0]]
        case s.Erf():  # p = 2/sqrt(pi) exp(-x^2)
            p = gaussian(xp, x[:-1], 1.0, 2 / sqrt(pi))
        case s.Gaussian(a, b):  # p = 2 b x y
            y = gaussian(xp, x[:-1], -b, a)
            p = [scaled(2 * b, product(x, y, j)) for j in range(len(y))]
        case s.GELU():  # y = x F,  F' = g x',  g = exp(-x^2 / 2) / sqrt(2 pi),  p = F + x g
            g = gaussian(xp, x[:-1], 0.5, 1 / sqrt(2 * pi))
            F = from_slope(x, scipy_module(xp, "special").ndtr(x0), g)
            p = [add(F[j], product(x, g, j)) for j in range(len(g))]
        case s.Swish(beta):  # y = x F,  F = sigmoid(beta x),  F' = beta G x',  p = F + beta x G
            F, G = sigmoid(xp, [scaled(beta, c) for c in x])
            p = [add(F[j], scaled(beta, product(x, G, j))) for j in range(len(G))]
        case s.Polynomial(coef):
            p = horner(tuple(n * c for n, c in enumerate(coef))[1:] or (0.0,), xp, x[:-1])
        case s.RectifiedMonomial(n):  # p = n x^(n - 1) where x_0 > 0
            p = [scaled(n, scaled(x0 > 0, c)) for c in horner((0.0,) * (n - 1) + (1.0,), xp, x[:-1])]
        case s.Hermite(n):  # p = sqrt(n) h_{n-1}
            p = [scaled(sqrt(n), c) for c in hermite(max(0, n - 1), xp, x[:-1])]
        case _:
            return expanded.dispatch(s.Layer)(layer, xp, x)
    return from_slope(x, y0, p), p
