"""Compute dual activations from the covariance by the papers' formulas, with mpmath or in extended precision."""

from __future__ import annotations

from math import comb, factorial, prod
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import numpy as np

import minintk as mn

MP = SimpleNamespace(
    exp=mp.exp, cos=mp.cos, sqrt=mp.sqrt, acos=mp.acos, one=mp.mpf, where=lambda c, a, b: a if c else b
)
LONG = SimpleNamespace(
    exp=np.exp, cos=np.cos, sqrt=np.sqrt, acos=np.arccos, one=np.longdouble, where=np.where
)  # fmt: skip


def odd_factorial(n: int) -> int:
    """Return E z^n for z ~ N(0, 1), which is 0 for odd n and (n - 1)!! for even n."""
    return 0 if n % 2 else prod(range(1, n, 2))


def monomials(i: int, j: int, q: Any, q2: Any, k: Any) -> Any:
    """Return E u^i u'^j as a sum over pairings, where m pairs contain one u and one u'."""
    total = 0 * k
    for m in range(min(i, j) + 1):
        if (a := odd_factorial(i - m)) and (b := odd_factorial(j - m)):
            across = factorial(m) * comb(i, m) * comb(j, m) * k**m
            total = total + a * b * across * q ** ((i - m) // 2) * q2 ** ((j - m) // 2)
    return total


def closed_dual(layer: Any, q: Any, q2: Any, k: Any, m: Any = MP) -> tuple[Any, Any] | None:
    """Return E phi(u) phi(u') and E phi'(u) phi'(u'), or None if no closed form is given here. m : MP or LONG."""
    one = m.one
    pi = m.acos(-one(1))
    if isinstance(layer, mn.Sin):
        a2, b2, C = one(layer.a) ** 2 / 2, one(layer.b) ** 2, m.cos(2 * one(layer.c))
        minus, plus = m.exp(-b2 * ((q + q2) / 2 - k)), m.exp(-b2 * ((q + q2) / 2 + k))
        return a2 * (minus - C * plus), a2 * b2 * (minus + C * plus)
    if isinstance(layer, mn.Exp):
        K = one(layer.a) ** 2 * m.exp(one(layer.b) ** 2 * ((q + q2) / 2 + k))
        return K, one(layer.b) ** 2 * K
    if isinstance(layer, mn.Gaussian):
        A = -2 * one(layer.b)
        X = (1 + A * q) * (1 + A * q2) - A * A * k * k
        return one(layer.a) ** 2 / m.sqrt(X), one(layer.a) ** 2 * A * A * k / m.sqrt(X) ** 3
    if isinstance(layer, mn.Polynomial):
        coef = [one(c) for c in layer.coef]
        slope = [n * c for n, c in enumerate(coef)][1:]
        K, dot = (
            sum((a * b * monomials(i, j, q, q2, k) for i, a in enumerate(c) for j, b in enumerate(c)), 0 * k)
            for c in (coef, slope)
        )
        return K, dot
    if isinstance(layer, mn.RectifiedMonomial | mn.Sign):
        norm = m.sqrt(q * q2)
        c = k / m.where(norm > 0, norm, one(1))
        c = m.where(c > 1, one(1), m.where(c < -1, -one(1), c))
        a = m.acos(c)
        if isinstance(layer, mn.Sign):
            return m.where(norm > 0, 1 - 2 * a / pi, 0 * a), 0 * a
        if layer.degree == 2:
            sin = m.sqrt(1 - c * c)
            J1, J2 = sin + (pi - a) * c, 3 * sin * c + (pi - a) * (1 + 2 * c * c)
            return q * q2 * J2 / (2 * pi), 4 * norm * J1 / (2 * pi)
    return None
