"""Linearized, Centred, IterativelyLinearized: definitions, anchors, errors (their laws: tests/test_laws.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import SMOOTH, Case, cases, networks

import minintk as mn
from minintk.testing import assert_close, roundings

NET = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,))
THETA = NET.init(np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((5, 3))
ONES = np.ones_like(THETA)


def test_definitions() -> None:
    theta = THETA + 0.3
    f0, J = NET.linearize(THETA, X)
    np.testing.assert_array_equal(mn.Linearized(NET, THETA)(theta, X), f0 + J.jvp(theta - THETA))
    np.testing.assert_array_equal(mn.Centred(NET, THETA, 7.0)(theta, X), 7.0 * (NET(theta, X) - f0))


@given(cases(networks(SMOOTH)))
def test_the_linearisation_is_of_first_order(case: Case) -> None:
    """Halving the distance quarters the error, or it is a rounding: |f - f_lin| = O(|theta - theta_0|^2)."""
    lin = mn.Linearized(case.net, case.theta)
    v = case.rng.standard_normal(case.theta.shape)
    v /= np.linalg.norm(v, axis=-1, keepdims=True)

    def error(step: float) -> float:
        return float(np.abs(lin(case.theta + step * v, case.x) - case.net(case.theta + step * v, case.x)).max())

    rows = case.net.linearize(case.theta, case.x)[1].dense()
    size = (
        np.linalg.norm(rows.reshape(-1, case.net.size)) * np.linalg.norm(case.theta)
        + np.abs(lin(case.theta, case.x)).max()
    )
    floor = roundings(case.net, case.theta, case.x) * size
    coarse, fine = error(2**-8), error(2**-9)
    assert_close("error at half the distance", fine, coarse / 4, 0.1 * coarse / 4 + floor + 1e-3 * 2**-16 * size)


def test_a_model_keeps_its_own_anchor() -> None:
    """Writing to the array that was passed as theta_0 changes nothing."""
    theta0 = THETA.copy()
    models = (mn.Linearized(NET, theta0), mn.Centred(NET, theta0, 2.0), mn.IterativelyLinearized(NET, theta0, 3))
    before = [model(THETA, X) for model in models]
    theta0 += 1
    for model, f in zip(models, before, strict=True):
        np.testing.assert_array_equal(model(THETA, X), f)


def test_a_shared_anchor_serves_an_ensemble() -> None:
    theta = np.stack([THETA, THETA + 0.1, THETA - 0.1])
    for model in (mn.Linearized(NET, THETA), mn.Centred(NET, THETA, 2.0)):
        f = model(theta, X)
        for e in range(3):
            np.testing.assert_array_equal(f[e], model(theta[e], X))


def test_anchors_move_when_they_should() -> None:
    model = mn.IterativelyLinearized(NET, THETA, every=3)
    theta = THETA
    for step in range(1, 8):
        theta = theta + 0.1
        old, model = model, model.advance(theta)
        expected = theta if step % 3 == 0 else old.theta0
        np.testing.assert_array_equal(model.theta0, expected)
    assert mn.Linearized(NET, THETA).advance(THETA + 1).theta0[0] == THETA[0]
    assert NET.advance(THETA) is NET


def test_centring_an_iterated_model_keeps_its_zero() -> None:
    """f(theta_0) stays the function at the start while the model inside re-anchors."""
    centred = mn.Centred(mn.IterativelyLinearized(NET, THETA, every=1), THETA, alpha=3.0)
    moved = centred.advance(THETA + 0.2)
    np.testing.assert_allclose(moved(THETA + 0.2, X), 3.0 * (NET(THETA + 0.2, X) - NET(THETA, X)), rtol=1e-13)


def test_a_model_knows_its_network() -> None:
    model = mn.Centred(mn.Linearized(NET, THETA), THETA, 2.0)
    assert model.size == NET.size
    assert model.outputs == NET.outputs
    assert model.input_shape == NET.input_shape
    assert model.layout is NET.layout
    assert model.footprint == NET.footprint


def test_float32_stays_float32() -> None:
    theta, x = THETA.astype(np.float32), X.astype(np.float32)
    for model in (
        mn.Linearized(NET, theta),
        mn.Centred(NET, theta, np.float64(3.0)),
        mn.IterativelyLinearized(mn.Centred(NET, theta, 2.0), theta, 2),
    ):
        f, J = model.linearize(theta + 1, x)
        assert {a.dtype for a in (f, J.gram(), J.vjp(f), J.jvp(theta))} == {np.dtype(np.float32)}


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("alpha", [0, -1.0, np.inf, np.nan])
def test_alpha_is_positive(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"Centred\(alpha=\.\.\.\) expects a finite number > 0, got"):
        mn.Centred(NET, THETA, alpha)


@pytest.mark.parametrize("every", [0, -2, 2.5, np.nan, True])
def test_every_is_a_whole_number_or_inf(every: float) -> None:
    with pytest.raises(ValueError, match=r"every=\.\.\.\) expects a whole number >= 1, or inf, .* got"):
        mn.IterativelyLinearized(NET, THETA, every)


def test_an_anchor_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"theta0 expects shape \(24,\) or \(E, 24\), got \(23,\)"):
        mn.Linearized(NET, THETA[:-1])
    with pytest.raises(TypeError, match=r"Linearized expects a model such as mn\.Network\(\.\.\.\), got Sequential"):
        mn.Linearized(NET.spec, THETA)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="theta and theta0 must be of one dtype, got float32 and float64"):
        mn.Linearized(NET, THETA)(THETA.astype(np.float32), X.astype(np.float32))


@pytest.mark.parametrize("nest", [lambda m, t: m, lambda m, t: mn.Linearized(m, t), lambda m, t: mn.Centred(m, t, 2.0)])
def test_a_theta_for_another_ensemble_than_the_anchors(nest: Any) -> None:
    """Said in words, and where the anchored model sits inside another one too."""
    model = nest(mn.Linearized(NET, np.stack([THETA, ONES])), THETA)
    with pytest.raises(ValueError, match=r"theta expects the shape of theta0, \(2, 24\), got \(24,\)"):
        model(THETA, X)
