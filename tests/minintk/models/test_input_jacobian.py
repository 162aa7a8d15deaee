"""Test that df/dx and its transpose agree with each other, with an input bias's gradient and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.models.jacobian import NetworkJacobian
from tests.kit.strategies import SMOOTH, Case, cases, chains, convolutional, networks

NET = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,))
THETA = NET.init(np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((5, 3))


@given(cases(st.one_of(networks(), convolutional())))
def test_adjoint(case: Case) -> None:
    f, J = case.net.linearize(case.theta, case.x, wrt="x")
    v, u = case.rng.standard_normal((*case.theta.shape[:-1], *case.x.shape)), case.rng.standard_normal(f.shape)
    dy, dx = J.jvp(v), J.vjp(u)
    assert dy.shape == f.shape
    size = np.abs(dx).sum() * np.abs(v).max(initial=0.0) + np.abs(dy).sum() * np.abs(u).max(initial=0.0)
    assert abs(np.sum(u * dy) - np.sum(v * dx)) <= 1e-13 * (size + 1e-290)


@given(cases(st.one_of(networks(SMOOTH), convolutional(SMOOTH)), ensembles=(None, 2)))
def test_differences(case: Case) -> None:
    """(f(x + h v) - f(x - h v)) / 2h equals (df/dx) v up to errors of order h^2 f''' and rounding / h."""
    f, J = case.net.linearize(case.theta, case.x, wrt="x")
    v, h = case.rng.standard_normal(case.x.shape), 1e-5
    ahead, behind = (case.net(case.theta, case.x + sign * h * v) for sign in (1, -1))
    dy = J.jvp(v)
    third = np.abs(case.net(case.theta, case.x + 1e-2 * v) - case.net(case.theta, case.x - 1e-2 * v) - 2e-2 * dy)
    limit = 1e-4 * third.max(initial=0.0) + 1e-9 * (1 + np.abs(f).max(initial=0.0)) + 1e-7 * np.abs(dy).max(initial=0.0)
    assert np.abs((ahead - behind) / (2 * h) - dy).max(initial=0.0) <= limit


@given(chains((3,)), st.integers(0, 2**32 - 1))
def test_it_is_the_gradient_of_a_bias_in_front(chain: mn.Sequential, seed: int) -> None:
    """With x + b as the input of the network, df/dx = df/db up to rounding, also at kinks."""
    rng = np.random.default_rng(seed)
    layers = (*chain, mn.Dense(2))
    net = mn.Network(mn.Sequential(*layers), (3,))
    longer = mn.Network(mn.Sequential(mn.Dense(3, b_std=1.0), *layers), (3,))
    theta, x = net.init(rng), rng.standard_normal((1, 3))
    front = {"0.W": 3**0.5 * np.eye(3), "0.b": np.zeros(3)}
    f, J = net.linearize(theta, x, wrt="x")
    g, longer_J = longer.linearize(np.concatenate([front["0.W"].ravel(), front["0.b"], theta]), x)
    u = rng.standard_normal(f.shape)
    want = longer.layout.unpack(longer_J.vjp(u))["0.b"]
    np.testing.assert_allclose(f, g, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(J.vjp(u)[0], want, rtol=1e-11, atol=1e-13 * np.abs(want).max())


def test_written_down_it_is_the_same_map() -> None:
    _, J = NET.linearize(np.stack([THETA, 2 * THETA]), X, wrt="x")
    v = np.random.default_rng(2).standard_normal((2, *X.shape))
    np.testing.assert_allclose(J.jvp(v), np.einsum("encd,end->enc", J.dense(), v), rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(J.jvp(np.stack([v, 3 * v, 0 * v]))[1], J.jvp(3 * v))


def test_the_jacobian_in_theta_does_not_change() -> None:
    """The backward sweep of training still stops at the first weights. `wrt="theta"` is the default."""
    u = np.ones((5, 2))
    default, named = NET.linearize(THETA, X)[1], NET.linearize(THETA, X, wrt="theta")[1]
    assert np.array_equal(default.vjp(u), named.vjp(u))
    assert isinstance(default, NetworkJacobian)
    assert default.root.vjp(u, None) is None


def test_one_input_moves_only_its_own_output_unless_the_batch_is_coupled() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(4), mn.BatchNorm(), mn.Tanh(), mn.Dense(1)), (3,))
    theta = net.init(np.random.default_rng(0))
    _, J = net.linearize(theta, X, wrt="x")
    u = np.zeros((5, 1))
    u[0] = 1
    assert np.all(np.abs(J.vjp(u)[1:]) > 1e-12)
    with pytest.raises(ValueError, match="calibrate"):
        J.dense()
    assert net.calibrate(theta, X).linearize(theta, X, wrt="x")[1].dense().shape == (5, 1, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda J: J.vjp(np.ones((5, 3))), ValueError, r"^u expects shape .*5, 2"),
        (lambda J: J.jvp(np.ones((5, 2))), ValueError, r"^v expects shape .*5, 3"),
        (lambda J: J.vjp(np.ones((5, 2), np.float32)), TypeError, "float64, the dtype of theta"),
        (lambda J: NET.linearize(THETA, X, wrt="w"), ValueError, "wrt expects 'theta' or, without params, 'x'"),  # type: ignore[call-overload]
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(NET.linearize(THETA, X, wrt="x")[1])
