"""Activations:  y = phi(x)

jvp     dy = phi'(x) dx
vjp     dx = phi'(x) u
gram    0: there are no weights

`pointwise` is the table of phi and phi', which the quadrature of the infinite network reads too.  phi' is written as a
function of y where that is cheaper (tanh' = 1 - y^2), so that a layer keeps one array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch
from math import pi, sqrt
from typing import Any, Literal

from minintk import spec as s
from minintk.arrays import Array, array_namespace, scipy_module
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Site, UnsupportedLayer


@dataclass(frozen=True)
class ActivationJacobian(LayerJacobian):
    """Holds x or y : ([E], N, *shape), whichever phi' is written in."""

    point: Pointwise
    kept: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy = phi'(x) dx."""
        return None if dx is None else dx * self.point.dphi(array_namespace(self.kept), self.kept)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx = phi'(x) u."""
        return u * self.point.dphi(array_namespace(self.kept), self.kept)


@dataclass(frozen=True)
class BoundActivation:
    """phi in its place."""

    layer: s.Layer
    point: Pointwise
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ActivationJacobian]:
        """y = phi(x)."""
        y = self.point.phi(array_namespace(x), x)
        return y, ActivationJacobian(self.point, x if self.point.keeps == "x" else y)


@bind.register
def _(layer: s.Activation, site: Site, parametrization: Parametrization, name: str) -> BoundActivation:
    return BoundActivation(layer, pointwise(layer))


# ------------------------------------------------------------------------------------------ phi and phi'


@dataclass(frozen=True)
class Pointwise:
    """phi(xp, x) -> y, and phi' as dphi(xp, x) or dphi(xp, y), whichever array `keeps` names.

    xp : the namespace of the arrays, NumPy's or CuPy's; `minintk.arrays.scipy_module(xp, "special")` is SciPy's for it.
    phi' is an array, of numbers or of truth values, which multiply as 0 or 1.
    kinks : the points where phi' jumps; quadrature splits its panels there, and is inexact where one is left out.
    """

    phi: Callable[[Any, Array], Array]
    dphi: Callable[[Any, Array], Array]
    keeps: Literal["x", "y"] = "x"
    kinks: tuple[float, ...] = ()

    def derivative(self, xp: Any, x: Array) -> Array:
        """phi'(x), from x alone, in its dtype."""
        return xp.astype(self.dphi(xp, x if self.keeps == "x" else self.phi(xp, x)), x.dtype, copy=False)


@singledispatch
def pointwise(layer: s.Layer) -> Pointwise:
    """phi and phi' of an activation.  Register it to add one."""
    kind = type(layer).__name__
    raise UnsupportedLayer(f"{kind} has no phi: register minintk.layers.activation.pointwise for it")


def special(name: str, xp: Any, x: Array) -> Array:
    """SciPy's special function of that name."""
    return getattr(scipy_module(xp, "special"), name)(x)


_erf, _expit, _ndtr = (partial(special, name) for name in ("erf", "expit", "ndtr"))


@pointwise.register
def _(layer: s.Identity) -> Pointwise:
    return Pointwise(lambda xp, x: x, lambda xp, x: xp.ones_like(x))


@pointwise.register
def _(layer: s.Scale) -> Pointwise:
    c = float(layer.factor)
    return Pointwise(lambda xp, x: c * x, lambda xp, x: xp.full_like(x, c))


@pointwise.register
def _(layer: s.ReLU) -> Pointwise:
    return Pointwise(lambda xp, x: xp.maximum(x, 0), lambda xp, y: y > 0, "y", (0.0,))


@pointwise.register
def _(layer: s.LeakyReLU) -> Pointwise:
    slope = float(layer.slope)  # a NumPy scalar would make float32 arrays float64

    def dphi(xp: Any, x: Array) -> Array:
        return xp.where(x > 0, xp.ones_like(x), xp.full_like(x, slope))

    return Pointwise(lambda xp, x: xp.where(x > 0, x, slope * x), dphi, "x", (0.0,))


@pointwise.register
def _(layer: s.Abs) -> Pointwise:
    return Pointwise(lambda xp, x: xp.abs(x), lambda xp, x: xp.sign(x), "x", (0.0,))


@pointwise.register
def _(layer: s.Erf) -> Pointwise:
    return Pointwise(_erf, lambda xp, x: 2 / sqrt(pi) * xp.exp(-(x**2)))


@pointwise.register
def _(layer: s.GELU) -> Pointwise:
    def dphi(xp: Any, x: Array) -> Array:
        return _ndtr(xp, x) + x * xp.exp(-(x**2) / 2) / sqrt(2 * pi)

    return Pointwise(lambda xp, x: x * _ndtr(xp, x), dphi)


@pointwise.register
def _(layer: s.Sin) -> Pointwise:
    return Pointwise(lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x))


@pointwise.register
def _(layer: s.Tanh) -> Pointwise:
    return Pointwise(lambda xp, x: xp.tanh(x), lambda xp, y: 1 - y**2, "y")


@pointwise.register
def _(layer: s.Sigmoid) -> Pointwise:
    return Pointwise(_expit, lambda xp, y: y * (1 - y), "y")


@pointwise.register
def _(layer: s.Softplus) -> Pointwise:
    beta, scale = float(layer.beta), float(layer.scale)

    def phi(xp: Any, x: Array) -> Array:
        b = beta * x
        return scale / beta * (xp.maximum(b, 0) + xp.log1p(xp.exp(-xp.abs(b))))

    return Pointwise(phi, lambda xp, x: scale * _expit(xp, beta * x))
