"""Test the largest stable rate of iterative linearisation by training two wide linear layers on one example."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

import minintk as mn

X, Y = np.ones((1, 1)), np.ones((1, 1))
NET = mn.Network(mn.Sequential(mn.Dense(2000), mn.Dense(1)), (1,))


def survives(theta0: mn.Array, K: float, lr_times_curvature: float) -> bool:
    """True if 200 periods of K steps (200 steps if K = inf) bring the loss below 1e-6. The curvature is the NTK."""
    model = mn.IterativelyLinearized(NET, theta0, K)
    sgd = mn.SGD(lr=lr_times_curvature / float(mn.ntk(NET, theta0, X)[0, 0]))
    steps = 200 if inf == K else 200 * int(K)
    run = mn.train(model, theta0, X, Y, loss=mn.mse, optimizer=sgd, steps=steps, every=steps)
    try:
        *_, end = run
    except FloatingPointError:
        return False
    return float(end.loss) < 1e-6


def check_reach(theta0: mn.Array, K: float, reach: float) -> None:
    """Check that a rate 4 % below the threshold converges and a rate 4 % above does not.

    The finite width n = 2000 and the target shift the threshold by about 1/sqrt(n).
    """
    assert survives(theta0, K, 0.96 * reach)
    assert not survives(theta0, K, 1.04 * reach)


@pytest.mark.filterwarnings("ignore:learning rate:RuntimeWarning")
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, inf])
def test_reach_is_the_largest_rate(K: float) -> None:
    theta0 = NET.init(np.random.default_rng(0))
    right = mn.IterativelyLinearized(NET, theta0, K).reach
    check_reach(theta0, K, right)
    for wrong in {2.0, 4.0, 1 + 3**0.2} - {right}:  # right for the linearisation, descent, K = 5
        if abs(wrong / right - 1) > 0.08:
            with pytest.raises(AssertionError):
                check_reach(theta0, K, wrong)


def test_other_rules_have_none() -> None:
    with pytest.raises(TypeError, match=r"reach expects every=K, a number, got \(1, 5\)"):
        _ = mn.IterativelyLinearized(NET, np.zeros(NET.size), (1, 5)).reach


def test_members_that_share_a_start_resume() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    rng, x, y = np.random.default_rng(0), np.eye(3), np.ones((3, 1))
    model, theta = mn.IterativelyLinearized(net, net.init(rng), 2), net.init(rng, ensemble=4)
    whole = list(mn.train(model, theta, x, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=8))
    for step in (0, 1, 5):
        *_, rest = mn.train(model, theta, x, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=8, resume=whole[step].state)
        np.testing.assert_array_equal(rest.theta, whole[-1].theta)


def test_a_rule_that_was_used_belongs_to_the_same_run(tmp_path: Path) -> None:
    """`Moved` keeps the drawn cotangent. A second call of `fit` with the same model continues the first call's run."""
    net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    theta, x, y = net.init(np.random.default_rng(0)), np.eye(3), np.ones((3, 1))
    model = mn.IterativelyLinearized(net, theta, mn.Moved(0.05, x))
    for steps in (10, 20):
        run = mn.fit(model, theta, x, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=steps, checkpoint=tmp_path)
    assert [row["step"] for row in run.history.rows][-1] == 20
