"""Compute activations:  y = phi(x)

jvp     dy = phi'(x) dx
vjp     dx = phi'(x) u
gram    0: there are no weights

`pointwise` returns phi and phi', which infinite-width kernels also use.  phi' is computed from x or, if cheaper,
from y (tanh' = 1 - y^2), so that a layer stores only x or only y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """The Jacobian of phi.  It stores x or y : ([E], N, *shape), from which phi' is computed."""

    point: Pointwise
    kept: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = phi'(x) dx."""
        return None if dx is None else dx * self.point.dphi(array_namespace(self.kept), self.kept)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute dx = phi'(x) u."""
        return u * self.point.dphi(array_namespace(self.kept), self.kept)


@dataclass(frozen=True)
class BoundActivation:
    """An activation bound to a network."""

    layer: s.Layer
    point: Pointwise
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ActivationJacobian]:
        """Compute y = phi(x)."""
        y = self.point.phi(array_namespace(x), x)
        return y, ActivationJacobian(self.point, x if self.point.keeps == "x" else y)


@bind.register
def _(layer: s.Activation, site: Site, parametrization: Parametrization, name: str) -> BoundActivation:
    return BoundActivation(layer, pointwise(layer))


# ------------------------------------------------------------------------------------------ phi and phi'


Formula = Callable[[Array, Array, Array], Array]
"""A function (q, q', k) -> E phi(u) phi(u') or E phi'(u) phi'(u'), elementwise (see `Pointwise`)."""


@dataclass(frozen=True)
class Pointwise:
    """An activation phi(xp, x) -> y, with phi' as dphi(xp, x) or dphi(xp, y).  keeps : dphi's argument, "x" or "y".

    xp : the namespace of the arrays.  `minintk.arrays.scipy_module(xp, "special")` provides special functions for these
    arrays.  phi' is an array of numbers, or of booleans that act as 0 and 1.
    kinks : the points where phi or a derivative jumps.  Quadrature splits its panels at the kinks, so list all of them.
    clipped : True if phi is linear between the kinks and constant beyond them, so that its kernels have a closed form.
    dual : functions (q, q', k) -> E phi(u) phi(u') and E phi'(u) phi'(u'), for Gaussian u, u' with variances q, q' and
        covariance k, elementwise.  None if no closed form is given.  For the precision, see `analytic.register_dual`.
    """

    phi: Callable[[Any, Array], Array]
    dphi: Callable[[Any, Array], Array]
    keeps: Literal["x", "y"] = "x"
    kinks: tuple[float, ...] = ()
    clipped: bool = False
    dual: tuple[Formula, Formula] | None = None

    def derivative(self, xp: Any, x: Array) -> Array:
        """Return phi'(x) computed from x, in the dtype of x."""
        return xp.astype(self.dphi(xp, x if self.keeps == "x" else self.phi(xp, x)), x.dtype, copy=False)


@singledispatch
def pointwise(layer: s.Layer) -> Pointwise:
    """Return phi and phi' of an activation.  New activations register a function with `pointwise`."""
    kind = type(layer).__name__
    raise UnsupportedLayer(f"{kind} has no phi: register minintk.layers.activation.pointwise for it")


def special(name: str, xp: Any, x: Array) -> Array:
    """Evaluate the function `name` of scipy.special at x."""
    return getattr(scipy_module(xp, "special"), name)(x)


erf, expit, ndtr = (partial(special, name) for name in ("erf", "expit", "ndtr"))


def horner(coef: tuple[float, ...], xp: Any, x: Array) -> Array:
    """Return coef[0] + coef[1] x + coef[2] x^2 + ..."""
    total = xp.full_like(x, coef[-1] if coef else 0.0)
    for c in coef[-2::-1]:
        total = total * x + c
    return total


def hermite_polynomials(xp: Any, x: Array, degree: int) -> Iterator[Array]:
    """Yield h_0(x), ..., h_degree(x) by the stable recurrence  sqrt(n + 1) h_{n+1} = x h_n - sqrt(n) h_{n-1}."""
    last, h = xp.zeros_like(x), xp.ones_like(x)
    for n in range(degree + 1):
        yield h
        last, h = h, (x * h - sqrt(n) * last) / sqrt(n + 1)


def hermite(degree: int, xp: Any, x: Array) -> Array:
    """Return h_degree(x)."""
    return list(hermite_polynomials(xp, x, degree))[-1]


def slopes(a: float, b: float, xp: Any, x: Array) -> Array:
    """Return the slope of phi: `b` for x > 0, otherwise `a`."""
    return xp.where(x > 0, xp.full_like(x, b), xp.full_like(x, a))


def swish_slope(beta: float, xp: Any, x: Array) -> Array:
    """Return the derivative of x sigmoid(beta x)."""
    y = expit(xp, beta * x)
    return y + beta * x * y * (1 - y)


def gelu_slope(xp: Any, x: Array) -> Array:
    """Return the derivative of x Phi(x)."""
    return ndtr(xp, x) + x * xp.exp(-(x**2) / 2) / sqrt(2 * pi)


def softplus(beta: float, xp: Any, x: Array) -> Array:
    """Return log(1 + exp(beta x)), without overflow."""
    b = beta * x
    return xp.maximum(b, 0) + xp.log1p(xp.exp(-xp.abs(b)))


@pointwise.register
def _(layer: s.Activation) -> Pointwise:
    """Return phi, phi' and the argument of dphi for the activations in `minintk.spec`."""
    match layer:
        case s.Identity():
            return Pointwise(lambda xp, x: x, lambda xp, x: xp.ones_like(x))
        case s.ReLU():
            return Pointwise(lambda xp, x: xp.maximum(x, 0), lambda xp, y: y > 0, "y", (0.0,))
        case s.LeakyReLU(a):
            return pointwise(s.ABRelu(a, 1.0))
        case s.ABRelu(a, b):
            slope = partial(slopes, a, b)
            return Pointwise(lambda xp, x: slope(xp, x) * x, slope, "x", (0.0,))
        case s.Abs():
            return Pointwise(lambda xp, x: xp.abs(x), lambda xp, x: xp.sign(x), "x", (0.0,))
        case s.RectifiedMonomial(1):
            return pointwise(s.ReLU())
        case s.RectifiedMonomial(n):
            power = s.RectifiedMonomial(n - 1)
            return Pointwise(
                lambda xp, x: xp.maximum(x, 0) ** n, lambda xp, x: n * pointwise(power).phi(xp, x), "x", (0.0,)
            )
        case s.Sign():
            return Pointwise(lambda xp, x: xp.sign(x), lambda xp, x: xp.zeros_like(x), "x", (0.0,))
        case s.Polynomial(coef):
            derivative = tuple(n * c for n, c in enumerate(coef))[1:]
            return Pointwise(partial(horner, coef), partial(horner, derivative))
        case s.Hermite(n):
            return Pointwise(partial(hermite, n), lambda xp, x: sqrt(n) * hermite(max(0, n - 1), xp, x))
        case s.Exp(a, b):
            return Pointwise(lambda xp, x: a * xp.exp(b * x), lambda xp, y: b * y, "y")
        case s.Gaussian(a, b):
            return Pointwise(lambda xp, x: a * xp.exp(b * x**2), lambda xp, x: 2 * a * b * x * xp.exp(b * x**2))
        case s.Sin(a, b, c):
            return Pointwise(lambda xp, x: a * xp.sin(b * x + c), lambda xp, x: a * b * xp.cos(b * x + c))
        case s.Erf():
            return Pointwise(erf, lambda xp, x: 2 / sqrt(pi) * xp.exp(-(x**2)))
        case s.GELU():
            return Pointwise(lambda xp, x: x * ndtr(xp, x), gelu_slope)
        case s.Swish(beta):
            return Pointwise(lambda xp, x: x * expit(xp, beta * x), partial(swish_slope, beta))
        case s.Tanh():
            return Pointwise(lambda xp, x: xp.tanh(x), lambda xp, y: 1 - y**2, "y")
        case s.Sigmoid():
            return Pointwise(expit, lambda xp, y: y * (1 - y), "y")
        case s.Softplus(beta, scale):
            gain = scale / beta
            return Pointwise(lambda xp, x: gain * softplus(beta, xp, x), lambda xp, x: scale * expit(xp, beta * x))
    return pointwise.dispatch(s.Layer)(layer)


@pointwise.register
def _(layer: s.Scale) -> Pointwise:
    c = float(layer.factor)
    return Pointwise(lambda xp, x: c * x, lambda xp, x: xp.full_like(x, c))
