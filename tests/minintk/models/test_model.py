"""Test the defaults of `Model` for a user-defined model with only the required parts, and test the checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model, check_model
from minintk.models.wrappers import Scaled
from minintk.spec.shapes import UnsupportedLayer

NET = mn.Network(mn.Sequential(mn.Dense(2)), (3,))


class Doubled(Model):
    """The model 2 f of a network f."""

    input_shape, layout, outputs = NET.input_shape, NET.layout, NET.outputs
    footprint = NET.footprint

    def forward(self, theta: mn.Array, x: mn.Array) -> tuple[mn.Array, Jacobian]:
        f, J = NET.forward(theta, x)
        return 2 * f, Scaled(J, 2.0)


@pytest.fixture
def theta() -> Any:
    return NET.init(np.random.default_rng(0))


def test_a_model_from_outside_has_the_defaults(theta: Any) -> None:
    model, x = Doubled(), np.random.default_rng(1).standard_normal((4, 3))
    np.testing.assert_allclose(model(theta, x), 2 * x @ theta.reshape(3, 2) / np.sqrt(3), rtol=1e-14)
    assert model.size == 6
    assert model.advance(theta) is model
    assert model.anchors() == {}
    assert model.anchored({}) is model
    assert model.members(slice(0, 1)) is model
    assert model.fixed(x) is model
    assert not model.coupled


def test_outputs_are_the_callers_own(theta: Any) -> None:
    x = np.ones((2, 3))
    model, f = Doubled(), Doubled()(theta, x)
    f[...] = 0
    assert np.any(model(theta, x))


def test_it_checks_what_it_gets(theta: Any) -> None:
    model, x = Doubled(), np.ones((2, 3))
    with pytest.raises(ValueError, match=r"theta expects shape \(6,\) or \(E, 6\), got \(5,\)"):
        model(theta[:5], x)
    with pytest.raises(ValueError, match="it looks like x, and theta comes before x"):
        model(x, theta[None])
    with pytest.raises(TypeError, match="theta and x must be of one dtype, got float64 and float32"):
        model(theta, x.astype(np.float32))
    with pytest.raises(ValueError, match="theta holds 1 values that are NaN or infinite"):
        model(np.where(np.arange(6) == 2, np.nan, theta), x)


def test_without_a_series_it_says_so(theta: Any) -> None:
    with pytest.raises(UnsupportedLayer, match="has no Taylor expansion"):
        Doubled().expand(theta, theta, np.ones((1, 3)), 2)


def test_the_check_tells_models_networks_and_others_apart() -> None:
    check_model(Doubled())
    check_model(NET, mn.Network)
    with pytest.raises(TypeError, match=r"expected a network, .* give the network inside it"):
        check_model(Doubled(), mn.Network)
    with pytest.raises(TypeError, match=r"expected a model such as .* got 3$"):
        check_model(3)
