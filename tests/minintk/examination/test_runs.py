"""Compare gaps with descent on the frozen kernel, rates with eigenvalues, and sharpness with the diagnostic."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.examination.runs import Problem, full_run, moved_features, parted

X = np.random.default_rng(1).standard_normal((12, 5))
Y = np.random.default_rng(2).standard_normal((12, 2))


def problem(spec: Any, how: Any = None) -> Any:
    net = mn.Network(spec, (5,), how)
    return Problem(net, net.init(np.random.default_rng(0)), X, Y, mn.mse)


def test_a_linear_model_has_no_gap() -> None:
    run, _ = parted(problem(mn.Dense(2)), 0.5, 30)
    assert run.gap.max() < 1e-12
    assert not run.diverged


def test_the_gap_is_that_of_the_network_from_descent_on_its_frozen_kernel() -> None:
    one = problem(mn.Sequential(mn.Dense(20), mn.Tanh(), mn.Dense(2)))
    lr, steps = 0.5 * one.stable_rate(), 40
    run, snaps = parted(one, lr, steps)
    K, f0 = mn.ntk_full(one.net, one.theta, X), one.net(one.theta, X)
    frozen = [s.f for s in mn.kernel_descent(K, f0, Y, loss=mn.mse, optimizer=mn.SGD(lr), steps=steps)]
    own = [s.f for s in mn.train(one.net, one.theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr), steps=steps)]
    moved = max(np.linalg.norm(f - f0) for f in frozen)
    wanted = [np.linalg.norm(a - f) / moved for a, f in zip(own, frozen, strict=True)]
    assert np.allclose(run.gap, wanted, atol=1e-10)
    assert [s.step for s in snaps] == [*range(0, 41, 2)]
    assert run.learned == pytest.approx(moved / np.linalg.norm(Y - f0))
    assert run.gap.max() > 0.01


def test_rates_sharpness_and_movements() -> None:
    one = problem(mn.Sequential(mn.Dense(20), mn.Tanh(), mn.Dense(2)))
    start = one.stable_rate()
    run = full_run(one, 0.25 * start, 20, start, points=3, hessian=True)
    *_, end = mn.train(one.net, one.theta, X, Y, loss=mn.mse, optimizer=mn.SGD(0.25 * start), steps=20, every=20)
    K = [mn.ntk_full(one.net, theta, X).reshape(24, 24) for theta in (one.theta, end.theta)]
    assert np.allclose(run.rates[[0, -1]], [2 * 12 / np.linalg.eigvalsh(k)[-1] for k in K], rtol=1e-2)
    assert run.sharpness[0] == pytest.approx(mn.diagnostics.sharpness(one.net, one.theta, X, Y, loss=mn.mse), rel=1e-2)
    moved = float(mn.diagnostics.kernel_movement(one.net, one.theta, end.theta, X))
    assert run.kernel is not None
    assert run.kernel.movement[-1] == pytest.approx(moved)
    assert run.weights["0.W"] == pytest.approx(
        float(np.linalg.norm((end.theta - one.theta)[:100]) / np.linalg.norm(one.theta[:100]))
    )
    assert run.features == moved_features(one.net, one.theta, end.theta, X)
    assert list(run.features) == ["2"]


def test_a_rate_beyond_the_bound_is_seen_to_diverge() -> None:
    one = problem(mn.Sequential(mn.Dense(2)))
    run = full_run(one, 3 * one.stable_rate(), 60, 1.0, points=3, hessian=True)
    assert run.diverged
    assert run.kernel is None
    grown = parted(one, 1.5 * one.stable_rate(), 12)[0]  # still finite
    assert grown.diverged
    assert grown.loss[-1] < 1e9
    assert not parted(one, 0.5 * one.stable_rate(), 60)[0].diverged


def test_a_first_loss_that_overflows_is_reported_with_its_cause() -> None:
    one = problem(mn.Sequential(mn.Dense(2)))
    theta, x, y = (a.astype(np.float32) for a in (one.theta, X, 1e25 * Y))
    run, snaps = parted(replace(one, theta=theta, x=x, y=y), 0.1, 10)
    assert run.diverged
    assert run.steps.shape == run.loss.shape == (1,)
    assert not snaps
    with np.errstate(over="ignore"):
        assert "the root mean square of the targets is" in str(mn.examine(one.net, theta, x, y, seconds=1))


def test_features_moved_are_relative_to_the_start() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(8), mn.Dense(8), mn.Dense(1)), (5,))
    theta = net.init(np.random.default_rng(0))
    other = theta.copy()
    other[net.layout.slices["0.W"]] *= 1.2
    other[net.layout.slices["1.W"]] *= 2
    assert np.allclose(list(moved_features(net, theta, other, X).values()), [0.2, 1.4])
