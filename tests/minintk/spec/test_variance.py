"""Compare a chain's variance gain with that of random networks, and test the warning for vanishing outputs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minintk as mn
from minintk.spec.variance import SMALLEST_SILENT_GAIN, variance_gain


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.LeakyReLU(0.3), mn.Abs(), mn.Identity()])
def test_the_gain_is_the_mean_square_of_random_networks(phi: mn.spec.Layer) -> None:
    """The gain is the mean squared output of random networks for inputs of 1. Half that value fails the test."""
    spec = mn.Sequential(mn.Dense(24, w_std=1.3), phi, mn.Dense(24), phi, mn.Dense(1, w_std=1.2))
    net = mn.Network(spec, (5,))
    squares = net(net.init(np.random.default_rng(0), ensemble=4000), np.ones((1, 5)))[:, 0, 0] ** 2
    error = squares.std() / len(squares) ** 0.5
    assert abs(squares.mean() - variance_gain(spec)) < 4 * error < 0.25 * variance_gain(spec)


@pytest.mark.parametrize("layer", [mn.Tanh(), mn.Dense(3, b_std=0.1), mn.Residual(mn.Dense(3)), mn.GELU()])
def test_no_gain_is_known_of_others(layer: mn.spec.Layer) -> None:
    assert np.isnan(variance_gain(mn.Sequential(mn.Dense(3), layer)))


def deep(depth: int, w_std: float = 1.0) -> mn.Sequential:
    return mn.Sequential(*[layer for _ in range(depth) for layer in (mn.Dense(2, w_std=w_std), mn.ReLU())], mn.Dense(1))


def test_fourteen_layers_warn_and_thirteen_do_not() -> None:
    assert variance_gain(mn.LeakyReLU(0.5)) == 0.625
    assert variance_gain(deep(14)) < SMALLEST_SILENT_GAIN < variance_gain(deep(13))
    with pytest.warns(RuntimeWarning, match="the outputs' variance at initialisation is about 6e-05"):
        mn.Network(deep(14), (3,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mn.Network(deep(13), (3,))
        mn.Network(deep(14, 2**0.5), (3,))
        mn.Network(deep(14), (3,), mn.SpectralMuP())
