"""Compute activations used in convolutional and language models:  y = phi(x)

jvp     dy = phi'(x) dx
vjp     dx = phi'(x) u
gram    0: there are no weights

`minintk.layers.activation` derives these three rules from phi and phi', which are registered below.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

from minintk.arrays import Array
from minintk.layers.activation import Pointwise, pointwise
from minintk.spec.activations import Numbered
from minintk.spec.layers import Activation


@dataclass(frozen=True)
class Hardtanh(Numbered):
    """phi(x) = min(max(x, low), high); phi'(low) = phi'(high) = 0.  Raises ValueError unless low < high.

    >>> Hardtanh(1.0, 0.0)
    Traceback (most recent call last):
    ValueError: Hardtanh(low=..., high=...) expects low < high, got 1.0 and 0.0
    """

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low >= self.high:
            raise ValueError(f"Hardtanh(low=..., high=...) expects low < high, got {self.low} and {self.high}")


def ReLU6() -> Hardtanh:
    """Return phi(x) = min(max(x, 0), 6) (Krizhevsky 2010; Sandler et al. 2018, MobileNetV2).

    >>> ReLU6()
    Hardtanh(low=0.0, high=6.0)
    """
    return Hardtanh(0.0, 6.0)


@dataclass(frozen=True)
class Hardsigmoid(Activation):
    """phi(x) = min(max(x/6 + 1/2, 0), 1); phi'(-3) = phi'(3) = 0 (Howard et al. 2019, MobileNetV3)."""


@dataclass(frozen=True)
class Hardswish(Activation):
    """phi(x) = x min(max(x/6 + 1/2, 0), 1); phi'(-3) = -1/2, phi'(3) = 3/2 (Howard et al. 2019, eq. for h-swish)."""


@dataclass(frozen=True)
class ELU(Numbered):
    """phi(x) = x for x > 0, else alpha (exp(x) - 1); phi'(0) = alpha (Clevert, Unterthiner, Hochreiter 2016)."""

    alpha: float = 1.0


@dataclass(frozen=True)
class TanhGELU(Activation):
    """phi(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), an approximation of GELU (Hendrycks, Gimpel 2016)."""


# ------------------------------------------------------------------------------------------ phi and phi'


@pointwise.register
def _(layer: Hardtanh) -> Pointwise:
    low, high = layer.low, layer.high
    return Pointwise(lambda xp, x: xp.clip(x, low, high), lambda xp, y: (y > low) & (y < high), "y", (low, high), True)


@pointwise.register
def _(layer: Hardsigmoid) -> Pointwise:
    def dphi(xp: Any, x: Array) -> Array:
        """Return 1/6 between -3 and 3, 0 elsewhere."""
        return xp.where((x > -3) & (x < 3), xp.full_like(x, 1 / 6), xp.zeros_like(x))

    return Pointwise(lambda xp, x: xp.clip(x / 6 + 0.5, 0, 1), dphi, "x", (-3.0, 3.0), clipped=True)


@pointwise.register
def _(layer: Hardswish) -> Pointwise:
    def phi(xp: Any, x: Array) -> Array:
        return x * xp.clip(x / 6 + 0.5, 0, 1)

    def dphi(xp: Any, x: Array) -> Array:
        """Return x/3 + 1/2 from -3 to 3, 0 below, 1 above."""
        return xp.where(x > 3, xp.ones_like(x), (x >= -3) * (x / 3 + 0.5))

    return Pointwise(phi, dphi, "x", (-3.0, 3.0))


@pointwise.register
def _(layer: ELU) -> Pointwise:
    a = layer.alpha

    def phi(xp: Any, x: Array) -> Array:
        return xp.where(x > 0, x, a * xp.expm1(xp.minimum(x, 0)))

    def dphi(xp: Any, x: Array) -> Array:
        """Return 1 for x > 0, alpha exp(x) otherwise."""
        return xp.where(x > 0, xp.ones_like(x), a * xp.exp(xp.minimum(x, 0)))

    return Pointwise(phi, dphi, "x", (0.0,))


@pointwise.register
def _(layer: TanhGELU) -> Pointwise:
    k, a = sqrt(2 / pi), 0.044715

    def phi(xp: Any, x: Array) -> Array:
        return x / 2 * (1 + xp.tanh(k * (x + a * x**3)))

    def dphi(xp: Any, x: Array) -> Array:
        """Return (1 + t)/2 + x/2 (1 - t^2) k (1 + 3 a x^2) with t = tanh(k (x + a x^3))."""
        t = xp.tanh(k * (x + a * x**3))
        return (1 + t) / 2 + x / 2 * (1 - t * t) * (k * (1 + 3 * a * x * x))

    return Pointwise(phi, dphi)
