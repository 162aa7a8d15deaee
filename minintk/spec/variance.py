"""Compute the gain in variance from inputs to outputs.  Deep ReLU networks with w_std = 1 lose most of the variance."""

from __future__ import annotations

import warnings
from math import nan, prod

from minintk import spec as s
from minintk.spec.parametrization import NTK, Parametrization, Standard

SMALLEST_SILENT_GAIN = 1e-4
"""We warn if the ratio of output to input variance is lower.  The ratio is 6e-5 for 14 ReLU layers with w_std = 1."""


def variance_gain(layer: s.Layer) -> float:
    """Return the factor by which a layer scales the variance, or nan if it has a bias or is not listed below.

    Factors: w_std^2 for weights; E phi(z)^2, z ~ N(0, 1), for ReLU, LeakyReLU, Abs, Identity; 1 for Flatten, pooling.

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
    """Issue a RuntimeWarning if the outputs' initial variance is low.  Only NTK and Standard networks are checked."""
    gain = variance_gain(spec) if isinstance(parametrization, (NTK, Standard)) else 1.0
    if gain < SMALLEST_SILENT_GAIN:
        warnings.warn(
            f"the outputs' variance at initialisation is about {gain:.1g} of the inputs': each ReLU halves it where "
            "w_std is 1; w_std=2**0.5 in the layers before them keeps it",
            RuntimeWarning,
            stacklevel=3,
        )
