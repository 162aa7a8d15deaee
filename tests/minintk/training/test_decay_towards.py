"""Test weight decay towards a point: training ends at the ridge solution, and the point is copied and recorded."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import to_host, to_library
from minintk.spec.parametrization import Role, Row
from minintk.training.optimizers import Optimizer
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.thinned import thinned

SPEC = mn.Sequential(mn.Dense(9, b_std=0.3), mn.Tanh(), mn.Dense(2))
NET = mn.Network(SPEC, (4,))
RNG = np.random.default_rng(0)
THETA0, X, Y = NET.init(RNG, ensemble=3), RNG.standard_normal((12, 4)), RNG.standard_normal((12, 2))
DECAY = 0.05


class Half(mn.NTK):
    """The NTK parametrization, except that weights learn at half the rate of biases."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return replace(super().row(role, fan_in, fan_out, sigma), lr=0.5 if role.kind == "weight" else 1.0)


OPTIMIZERS = (mn.SGD(0.2, 0.9, DECAY), mn.Nesterov(0.2, 0.9, DECAY), mn.Adam(0.05, weight_decay=DECAY))


def like(optimizer: Optimizer, towards: Any) -> Any:
    """Return the same optimiser with weight decay towards the point `towards`."""
    named = {name: getattr(optimizer, name) for name in ("lr", "momentum", "b1", "b2") if hasattr(optimizer, name)}
    kind: Any = type(optimizer)
    return kind(**named, weight_decay=DECAY, towards=towards)


def ridge_solution(net: mn.Network, theta0: Any, ridge: float) -> Any:
    """Solve S J'(J u + f_0 - y) + ridge u = 0 for u, with J as an explicit matrix."""
    f0, J = net.linearize(theta0, X)
    whole = np.stack([J.jvp(d).ravel() for d in np.eye(net.size)], axis=1)
    scales = net.layout.learning_rate_scales()
    S = np.ones(net.size) if scales is None else scales
    return np.linalg.solve(S[:, None] * (whole.T @ whole) + ridge * np.eye(net.size), -S * (whole.T @ (f0 - Y).ravel()))


def check_end_is_the_ridge_solution(
    optimizer: Optimizer, loss: Any, ridge: float, library: str = "numpy", net: mn.Network = NET
) -> None:
    """Check that each member's u = theta - theta_0 solves S J'(J u + f_0 - y) + ridge u = 0 (S: rate scales)."""
    xp = namespace(library)
    theta0, x, y = (to_library(a, xp) for a in (THETA0, X, Y))
    how: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "steps": 500, "every": 500}
    *_, end = mn.train(mn.Linearized(net, theta0), theta0, x, y, **how)
    for e in range(len(THETA0)):
        solved = ridge_solution(net, THETA0[e], ridge)
        assert np.abs(to_host(end.theta)[e] - THETA0[e] - solved).max() <= 1e-10 * np.abs(solved).max()


@pytest.mark.parametrize(
    ("optimizer", "loss", "library"), thinned(product(OPTIMIZERS[:2], (mn.mse, mn.sum_of_squares), LIBRARIES))
)
def test_it_ends_at_the_ridge_solution(optimizer: Optimizer, loss: Any, library: str) -> None:
    c = 1 if loss is mn.mse else 2
    towards = to_library(THETA0, namespace(library))
    check_end_is_the_ridge_solution(like(optimizer, towards), loss, len(X) * DECAY / c, library)
    with_rates = mn.Network(SPEC, (4,), Half())
    check_end_is_the_ridge_solution(like(optimizer, towards), loss, len(X) * DECAY / c, library, with_rates)


@pytest.mark.parametrize("wrong", [OPTIMIZERS[0], like(OPTIMIZERS[0], THETA0[::-1]), like(OPTIMIZERS[0], THETA0[0])])
def test_decay_to_zero_or_to_another_point_is_refused(wrong: Optimizer) -> None:
    with pytest.raises(AssertionError):
        check_end_is_the_ridge_solution(wrong, mn.mse, len(X) * DECAY)
    with pytest.raises(AssertionError):
        check_end_is_the_ridge_solution(like(wrong, THETA0), mn.mse, len(X) * DECAY / 2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_a_point_is_an_origin(optimizer: Optimizer) -> None:
    """With equal gradients, decaying theta towards `a` equals decaying theta - `a` towards 0 and adding `a`."""
    gradients = RNG.standard_normal((20, *THETA0.shape))
    for a in (THETA0[::-1], THETA0[1]):
        there, here = like(optimizer, a), optimizer
        theta, moved = THETA0.copy(), THETA0 - a
        memories = there.init(theta), here.init(moved)
        for k, g in enumerate(gradients):
            there.at(k).step(theta, g.copy(), memories[0], None)
            here.at(k).step(moved, g.copy(), memories[1], None)
        np.testing.assert_allclose(theta - a, moved, rtol=0, atol=1e-12)


def test_it_is_the_callers_point_as_it_was_and_tells_optimisers_apart() -> None:
    point = THETA0[0].copy()
    sgd, same = like(OPTIMIZERS[0], point), like(OPTIMIZERS[0], THETA0[0])
    point += 1
    assert np.array_equal(sgd.towards, THETA0[0])
    assert sgd == same
    assert hash(sgd) == hash(same)
    assert sgd not in (like(OPTIMIZERS[0], point), OPTIMIZERS[0])


def test_the_point_belongs_to_the_run(tmp_path: Path) -> None:
    how: dict[str, Any] = {"loss": mn.mse, "every": 5}
    whole = mn.fit(NET, THETA0, X, Y, optimizer=like(OPTIMIZERS[0], THETA0), steps=20, **how)
    for steps in (10, 20):
        how["checkpoint"] = tmp_path
        run = mn.fit(NET, THETA0, X, Y, optimizer=like(OPTIMIZERS[0], THETA0), steps=steps, **how)
    assert np.array_equal(run.theta, whole.theta)
    for other in (THETA0[0], 2 * THETA0, None):
        with pytest.raises(ValueError, match="another run: optimizer"):
            mn.fit(NET, THETA0, X, Y, optimizer=like(OPTIMIZERS[0], other), steps=20, **how)


@pytest.mark.parametrize(
    ("towards", "error", "words"),
    [
        (THETA0[:2], ValueError, r"towards expects a point like theta, \(3, 63\), got \(2, 63\)"),
        (THETA0[0, :5], ValueError, r"got \(5,\)"),
        (THETA0.astype(np.float32), TypeError, "towards must have the dtype of theta, float64, got float32"),
        (np.full_like(THETA0, np.nan), ValueError, "towards"),
    ],
)
def test_a_point_of_another_kind_is_refused_before_the_first_step(towards: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        list(mn.train(NET, THETA0, X, Y, loss=mn.mse, optimizer=like(OPTIMIZERS[2], towards), steps=1))
