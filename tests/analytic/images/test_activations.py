"""Theta of images through activations: what the layer before adds to it, whatever its weights' rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.spec.parametrization import Parametrization, Role, Row
from tests.kit.montecarlo import assert_mean, kernels
from tests.kit.structure_laws import PHIS, affine_twice_is_once


@pytest.mark.parametrize("phi", [*PHIS, mn.Tanh(), mn.Softplus()], ids=repr)
def test_affine_twice_is_affine_once(phi: mn.spec.Layer) -> None:
    affine_twice_is_once(phi)


@dataclass(frozen=True)
class BiasesOnly(Parametrization):
    """NTK parametrization; the weights of the first layer have learning rate 0."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        rate = 0.0 if role.kind == "weight" and role.place == "input" else 1.0
        return Row(sigma / fan_in**0.5 if role.kind == "weight" else sigma, 1.0, rate)


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.LeakyReLU(0.1), mn.Abs(), mn.Erf(), mn.Tanh()], ids=repr)
@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=repr)
def test_frozen_weights_with_trained_biases(phi: mn.spec.Layer, end: mn.spec.Layer) -> None:
    """One hidden layer, so the mean over networks is Theta at every width; it refuses Theta without the biases."""
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 2))
    spec = mn.Sequential(mn.Conv2d(4, w_std=2**0.5, b_std=0.7), phi, end, mn.Dense(4))
    k, upper = an.kernel(spec, BiasesOnly()), np.triu_indices(2)
    _, drawn = kernels(spec, x, 4000, parametrization=BiasesOnly())
    assert_mean("Theta", drawn, k.ntk(x)[upper])
    with pytest.raises(AssertionError, match="z = "):
        assert_mean("Theta without the biases' share", drawn, k.nngp(x)[upper])  # of the readout alone
