"""Compare optimisers with their formulas, written as loops over steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn

settings = {
    "lr": st.floats(1e-3, 1.0),
    "momentum": st.sampled_from((0.0, 0.5, 0.9)),
    "weight_decay": st.sampled_from((0.0, 0.1)),
    "scaled": st.booleans(),
    "seed": st.integers(0, 2**32 - 1),
}


@given(**settings)
def test_steps_follow_the_formula(lr: float, momentum: float, weight_decay: float, scaled: bool, seed: int) -> None:
    """v <- m v + s g + wd theta, theta <- theta - lr v. For s = 1, SGD equals torch.optim.SGD, whose first v is g."""
    rng = np.random.default_rng(seed)
    theta, gradients = rng.standard_normal((2, 7)), rng.standard_normal((6, 2, 7))
    s = rng.uniform(0.1, 2, 7) if scaled else None
    optimizer = mn.SGD(lr=lr, momentum=momentum, weight_decay=weight_decay)
    ours, memory = theta.copy(), optimizer.init(theta)
    velocity = np.zeros_like(theta)
    for g in gradients:
        optimizer.step(ours, g.copy(), memory, s)
        velocity = momentum * velocity + (1.0 if s is None else s) * g + weight_decay * theta
        theta = theta - lr * velocity
        np.testing.assert_allclose(ours, theta, rtol=1e-13, atol=1e-13)


@given(**settings)
def test_nesterov_follows_the_formula(lr: float, momentum: float, weight_decay: float, scaled: bool, seed: int) -> None:
    """g' = s g + wd theta, v <- m v + g', theta <- theta - lr (g' + m v).

    For s = 1, Nesterov equals torch.optim.SGD(nesterov=True).
    """
    rng = np.random.default_rng(seed)
    theta, gradients = rng.standard_normal((2, 7)), rng.standard_normal((6, 2, 7))
    s = rng.uniform(0.1, 2, 7) if scaled else None
    optimizer = mn.Nesterov(lr=lr, momentum=momentum, weight_decay=weight_decay)
    ours, memory = theta.copy(), optimizer.init(theta)
    velocity = np.zeros_like(theta)
    for g in gradients:
        optimizer.step(ours, g.copy(), memory, s)
        decayed = (1.0 if s is None else s) * g + weight_decay * theta
        velocity = momentum * velocity + decayed
        theta = theta - lr * (decayed + momentum * velocity)
        np.testing.assert_allclose(ours, theta, rtol=1e-13, atol=1e-13)


@given(
    lr=st.floats(1e-3, 1.0), b1=st.sampled_from((0.0, 0.9)), b2=st.sampled_from((0.0, 0.99, 0.999)),
    eps=st.sampled_from((1e-8, 1e-2)), weight_decay=st.sampled_from((0.0, 0.1)), scaled=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_adam_follows_the_formula(
    lr: float, b1: float, b2: float, eps: float, weight_decay: float, scaled: bool, seed: int
) -> None:
    """For s = 1, Adam equals torch.optim.AdamW. The decay is lr weight_decay theta for any scale s."""
    rng = np.random.default_rng(seed)
    theta, gradients = rng.standard_normal((2, 7)), rng.standard_normal((6, 2, 7))
    s = rng.uniform(0.1, 2, 7) if scaled else None
    optimizer = mn.Adam(lr=lr, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay)
    ours, memory = theta.copy(), optimizer.init(theta)
    m, r = np.zeros_like(theta), np.zeros_like(theta)
    for i, g in enumerate(gradients):
        optimizer.at(i).step(ours, g.copy(), memory, s)
        m, r = b1 * m + (1 - b1) * g, b2 * r + (1 - b2) * g * g
        corrected, square = m / (1 - b1 ** (i + 1)), r / (1 - b2 ** (i + 1))
        decay = weight_decay * theta
        theta = theta - lr * ((1.0 if s is None else s) * corrected / (np.sqrt(square) + eps) + decay)
        np.testing.assert_allclose(ours, theta, rtol=1e-11, atol=1e-11)


def test_adam_needs_its_step() -> None:
    adam = mn.Adam(lr=0.1)
    with pytest.raises(TypeError, match=r"depends on the step: optimizer\.at\(step\)\.step\(\.\.\.\)"):
        adam.step(np.ones(2), np.ones(2), adam.init(np.ones(2)), None)
    assert repr(adam.at(3)) == repr(adam) == "Adam(lr=0.1, b1=0.9, b2=0.999, eps=1e-08, weight_decay=0.0)"


@pytest.mark.parametrize("optimizer", [mn.Nesterov(lr=0.1, weight_decay=0.01), mn.Adam(lr=0.1, weight_decay=0.01)])
def test_the_pieces_of_a_long_theta_do_not_show(optimizer: mn.training.optimizers.Optimizer) -> None:
    n = 200_001
    rng = np.random.default_rng(0)
    theta, g, s = (rng.standard_normal(n) for _ in range(3))
    for order in (np.arange(n), np.arange(n)[::-1]):
        ours = theta[order].copy()
        optimizer.at(0).step(ours, g[order].copy(), optimizer.init(ours), s[order])
        if order[0] == 0:
            first = ours
    assert np.array_equal(first[::-1], ours)


@pytest.mark.parametrize(
    "optimizer", [mn.SGD(lr=1.0, momentum=0.5), mn.Nesterov(lr=1.0, momentum=0.5), mn.SGD(lr=1.0), mn.Nesterov(lr=1.0)]
)
def test_reach_is_where_descent_on_a_parabola_turns_unstable(optimizer: mn.training.optimizers.Optimizer) -> None:
    """Descent on lambda theta^2 / 2 is stable if lr lambda is just below the reach, and unstable if it is just above.

    The reach of Adam is infinite, because Adam's step is not linear in the gradient.
    """
    sizes = []
    for curvature in (0.99 * optimizer.reach, 1.01 * optimizer.reach):
        theta = np.ones(1)
        memory = optimizer.init(theta)
        for _ in range(5000):
            optimizer.step(theta, curvature * theta, memory, None)
            if abs(theta[0]) > 1e10:
                break
        sizes.append(abs(theta[0]))
    assert sizes[0] < 1e-10 < 1e10 < sizes[1]
    assert mn.Adam(lr=1.0).reach == np.inf


def test_a_state_of_another_optimiser() -> None:
    net = mn.Network(mn.Dense(1), (2,))
    data = np.ones(2), np.eye(2), np.ones((2, 1))
    *_, snap = mn.train(net, *data, loss=mn.mse, optimizer=mn.Nesterov(lr=0.1), steps=2)
    with pytest.raises(ValueError, match=r"expects a state of this run, .* momentum \(2, 2\), got .* momentum \(2,\)"):
        next(mn.train(net, *data, loss=mn.mse, optimizer=mn.Adam(lr=0.1), steps=3, resume=snap.state))


def test_a_long_theta_is_one_theta() -> None:
    """A step processes theta in pieces, whose boundaries do not affect the result."""
    n = 200_001
    rng = np.random.default_rng(0)
    theta, g, s = (rng.standard_normal(n) for _ in range(3))
    optimizer = mn.SGD(lr=0.1, momentum=0.9, weight_decay=0.01)
    ours, memory = theta.copy(), np.asarray(optimizer.init(theta))
    s = np.abs(s)
    optimizer.step(ours, g.copy(), memory, s)
    np.testing.assert_allclose(ours, theta - 0.1 * (s * g + 0.01 * theta), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(memory, s * g + 0.01 * theta, rtol=1e-14, atol=1e-14)


def test_no_memory_without_momentum() -> None:
    assert mn.SGD(lr=0.1).init(np.ones(3)) is None
    assert np.array_equal(np.asarray(mn.SGD(lr=0.1, momentum=0.9).init(np.ones(3))), np.zeros(3))
