"""Derivatives of both kernels in the logarithms of all w_std and of all b_std, by central differences:

    f'(0) = (f(h) - f(-h)) / 2h - h^2 f'''(0) / 6 + ...

The kernels are right to rounding at every angle, so their differences are right to about rounding / h + h^2 = 1e-10.
From some hundred rows on, forward mode takes as long; it knows dTheta of nearly parallel rows behind ReLU to 1e-8.
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
    """The spec with w_std or b_std of every layer that has one times `factor`.

    >>> scaled(s.Sequential(s.Dense(8, w_std=2.0), s.ReLU()), "w_std", 3.0)
    Sequential(Dense(width=8, w_std=6.0, b_std=0.0, b_init='normal'), ReLU())
    """
    if isinstance(layer, s.Several):
        return type(layer)(*(scaled(inner, name, factor) for inner in layer))
    changed: dict[str, Any] = {}
    here: Any = layer  # a dataclass, as every layer is
    for each in fields(here):
        value = getattr(layer, each.name)
        if isinstance(value, s.Layer):
            changed[each.name] = scaled(value, name, factor)
        elif each.name == name:
            changed[name] = value * factor
    return replace(here, **changed) if changed else layer


STEP = 1e-5
"""h, in the logarithm."""

ROWS_AT_ONCE, BYTES_OF_A_PAIR = 2048, 8 * 6
"""Rows, and columns, of a block, each pair of which takes six numbers beside the result."""


def differences(kernel_of: Callable[[float], Any], x1: Array, x2: Array | None = None) -> list[Array]:
    """dK, dTheta.   kernel_of(factor) : the kernel with a scaled parameter."""
    there, back = (kernel_of(exp(h)).both(x1, x2) for h in (STEP, -STEP))
    return [(a - b) / (2 * STEP) for a, b in zip(there, back, strict=True)]
