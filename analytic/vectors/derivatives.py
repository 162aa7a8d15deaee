"""Differentiate both kernels with respect to log w_std and log b_std, jointly in all layers, by central differences:

    f'(0) = (f(h) - f(-h)) / 2h - h^2 f'''(0) / 6 + ...

The kernels are accurate to rounding at all angles, so the differences have errors of about rounding / h + h^2 = 1e-10.
For hundreds of rows, forward-mode differentiation is just as slow.  It loses 8 digits of dTheta at small ReLU angles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import exp
from typing import Any

from minintk import spec as s
from minintk.arrays import Array

PARAMETERS = ("w_std", "b_std")


def scaled(layer: s.Layer, name: str, factor: float) -> s.Layer:
    """Multiply the parameter `name` (w_std or b_std) by `factor` in every layer that has this parameter.

    >>> scaled(s.Sequential(s.Dense(8, w_std=2.0), s.ReLU()), "w_std", 3.0)
    Sequential(Dense(width=8, w_std=6.0, b_std=0.0, b_init='normal'), ReLU())
    """
    if isinstance(layer, s.Several):
        return type(layer)(*(scaled(inner, name, factor) for inner in layer))
    changed: dict[str, Any] = {}
    here: Any = layer  # every layer is a dataclass
    for each in fields(here):
        value = getattr(layer, each.name)
        if isinstance(value, s.Layer):
            changed[each.name] = scaled(value, name, factor)
        elif each.name == name:
            changed[name] = value * factor
    return replace(here, **changed) if changed else layer


STEP = 1e-5
"""The step h of log w_std or log b_std."""
ROWS_AT_ONCE, BYTES_OF_A_PAIR = 2048, 8 * 6
"""Rows and columns of a block; bytes per pair of rows needed besides the result, for six numbers."""


def differences(kernel_of: Callable[[float], Any], x1: Array, x2: Array | None = None) -> list[Array]:
    """Return the derivatives of K and Theta.   kernel_of(factor) : the kernel with the parameter scaled by `factor`."""
    there, back = (kernel_of(exp(h)).both(x1, x2) for h in (STEP, -STEP))
    return [(a - b) / (2 * STEP) for a, b in zip(there, back, strict=True)]
