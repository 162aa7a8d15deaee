"""Derivatives of both kernels in the logarithms of all w_std and of all b_std, by central differences.

Kernels are exact to a few roundings, also between nearly parallel rows, and take all cores; so eight of them are right
to about 1e-11 everywhere, in the time of one sweep that carries derivatives along in cosines, which is right to 1e-8.
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


STEP = 5e-4
"""In the logarithm; the stencil's error is STEP^4 / 30 of the fifth derivative, rounding about eps / STEP."""


def differences(kernel_of: Callable[[float], Any], *x: Array | None) -> list[Array]:
    """dK, dTheta by central differences of fourth order; kernel_of(factor) : the kernel with a scaled parameter."""
    twice, once, minus, far = (kernel_of(exp(i * STEP)).both(*x) for i in (2, 1, -1, -2))
    return [(8 * (b - c) - (a - d)) / (12 * STEP) for a, b, c, d in zip(twice, once, minus, far)]
