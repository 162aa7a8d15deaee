"""Whether anything of the inputs arrives at the outputs: a deep ReLU network with w_std = 1 is silent."""

from __future__ import annotations

import warnings
from math import nan, prod

from minintk import spec as s
from minintk.spec.parametrization import NTK, Parametrization, Standard

SMALLEST_SILENT_GAIN = 1e-4
"""A network whose outputs have less than this much of its inputs' variance warns: fourteen ReLU layers of w_std = 1."""


def variance_gain(layer: s.Layer) -> float:
    """What a chain of weights without biases and of ReLU-like activations multiplies the variance by; nan for others.

    A layer of weights contributes w_std^2, an activation with phi(s z) = s phi(z) for s > 0 contributes E phi(z)^2.

    >>> variance_gain(s.Sequential(s.Dense(8), s.ReLU(), s.Dense(8), s.ReLU(), s.Dense(1)))
    0.25
    """
    if isinstance(layer, s.Sequential):
        return prod(map(variance_gain, layer.layers))
    if isinstance(layer, s.Dense | s.Convolution):
        return layer.w_std**2 if layer.b_std == 0 else nan
    if isinstance(layer, s.LeakyReLU):
        return (1 + layer.slope**2) / 2
    kept = isinstance(layer, (s.Abs, s.Identity, s.Flatten, s.Pooling, s.GlobalAvgPool))
    return 0.5 if isinstance(layer, s.ReLU) else 1.0 if kept else nan


def warn_if_nothing_arrives(spec: s.Layer, parametrization: Parametrization) -> None:
    """RuntimeWarning for a network whose outputs start at almost nothing, as w_std = 1 makes every ReLU's."""
    gain = variance_gain(spec) if isinstance(parametrization, (NTK, Standard)) else 1.0
    if gain < SMALLEST_SILENT_GAIN:
        warnings.warn(
            f"the outputs' variance at initialisation is about {gain:.1g} of the inputs': each ReLU halves it where "
            "w_std is 1; w_std=2**0.5 in the layers before them keeps it",
            RuntimeWarning,
            stacklevel=3,
        )
