"""Activations: phi and phi' of each, once, for the finite network and for the quadrature of the infinite one.

    y = phi(x),    dy = phi'(x) dx

phi' is written as a function of y where that is cheaper (tanh' = 1 - y^2), so that a layer keeps one array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from math import pi, sqrt
from typing import Any, Literal

from minintk import spec as s
from minintk.arrays import Array, scipy_module
from minintk.models import power_series as series
from minintk.models.power_series import Series
from minintk.spec.shapes import UnsupportedLayer


@dataclass(frozen=True)
class Pointwise:
    """phi(xp, x) -> y, and phi' as dphi(xp, x) or dphi(xp, y), whichever array `keeps` names.

    phi' may be a truth value, which multiplies as 0 or 1.
    kinks : the points where phi' jumps; quadrature splits its panels there.
    series : (xp, x) -> (y, p), the power series of phi(x(t)) and of phi'(x(t)), see `minintk.models.power_series`; for
        `minintk.Taylor` alone.
    """

    phi: Callable[[Any, Array], Array]
    dphi: Callable[[Any, Array], Array]
    keeps: Literal["x", "y"] = "x"
    kinks: tuple[float, ...] = ()
    series: Callable[[Any, Series], tuple[Series, Series]] | None = None

    def derivative(self, xp: Any, x: Array) -> Array:
        """phi'(x), from x alone, in its dtype."""
        return xp.astype(self.dphi(xp, x if self.keeps == "x" else self.phi(xp, x)), x.dtype, copy=False)


@singledispatch
def pointwise(layer: s.Layer) -> Pointwise:
    """phi and phi' of an activation.  Register it to add one."""
    raise UnsupportedLayer(f"{type(layer).__name__} has no phi: register minintk.spec.pointwise.pointwise for it")


def _erf(xp: Any, x: Array) -> Array:
    return scipy_module(xp, "special").erf(x)


def _expit(xp: Any, x: Array) -> Array:
    return scipy_module(xp, "special").expit(x)


def _ndtr(xp: Any, x: Array) -> Array:
    return scipy_module(xp, "special").ndtr(x)


def _linear(phi: Any, dphi: Any, keeps: Literal["x", "y"] = "x", kinks: tuple[float, ...] = ()) -> Pointwise:
    """phi that is linear on each side of its kinks; its series is that of the piece that x_0 lies on."""

    def pieces(xp: Any, x: Series) -> tuple[Series, Series]:
        y, slope = point.phi(xp, x[0]), point.derivative(xp, x[0])
        return [y, *(None if c is None else slope * c for c in x[1:])], [slope, *(None for _ in x[2:])]

    point = Pointwise(phi, dphi, keeps, kinks, pieces)
    return point


@pointwise.register
def _(layer: s.Identity) -> Pointwise:
    return _linear(lambda xp, x: x, lambda xp, x: xp.ones_like(x))


@pointwise.register
def _(layer: s.ReLU) -> Pointwise:
    return _linear(lambda xp, x: xp.maximum(x, 0), lambda xp, y: y > 0, "y", (0.0,))


@pointwise.register
def _(layer: s.LeakyReLU) -> Pointwise:
    slope = float(layer.slope)  # a NumPy scalar would make float32 arrays float64

    def dphi(xp: Any, x: Array) -> Array:
        return xp.where(x > 0, xp.ones_like(x), xp.full_like(x, slope))

    return _linear(lambda xp, x: xp.where(x > 0, x, slope * x), dphi, "x", (0.0,))


@pointwise.register
def _(layer: s.Abs) -> Pointwise:
    return _linear(lambda xp, x: xp.abs(x), lambda xp, x: xp.sign(x), "x", (0.0,))


@pointwise.register
def _(layer: s.Erf) -> Pointwise:
    return Pointwise(_erf, lambda xp, x: 2 / sqrt(pi) * xp.exp(-(x**2)), series=series.erf)


@pointwise.register
def _(layer: s.GELU) -> Pointwise:
    def dphi(xp: Any, x: Array) -> Array:
        return _ndtr(xp, x) + x * xp.exp(-(x**2) / 2) / sqrt(2 * pi)

    return Pointwise(lambda xp, x: x * _ndtr(xp, x), dphi, series=series.gelu)


@pointwise.register
def _(layer: s.Sin) -> Pointwise:
    return Pointwise(lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x), series=series.sin)


@pointwise.register
def _(layer: s.Tanh) -> Pointwise:
    return Pointwise(lambda xp, x: xp.tanh(x), lambda xp, y: 1 - y**2, "y", series=series.tanh)


@pointwise.register
def _(layer: s.Sigmoid) -> Pointwise:
    return Pointwise(_expit, lambda xp, y: y * (1 - y), "y", series=series.sigmoid)


@pointwise.register
def _(layer: s.Softplus) -> Pointwise:
    beta, scale = float(layer.beta), float(layer.scale)

    def phi(xp: Any, x: Array) -> Array:
        b = beta * x
        return scale / beta * (xp.maximum(b, 0) + xp.log1p(xp.exp(-xp.abs(b))))

    def softplus(xp: Any, x: Series) -> tuple[Series, Series]:
        """p = scale sigmoid(beta x)."""
        inner, _ = series.sigmoid(xp, [series.scaled(beta, c) for c in x[:-1]])
        p = [series.scaled(scale, c) for c in inner]
        return [phi(xp, x[0]), *(series.integral(x, p, j) for j in range(1, len(x)))], p

    return Pointwise(phi, lambda xp, x: scale * _expit(xp, beta * x), series=softplus)
