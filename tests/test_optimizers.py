"""SGD against its formula written as a loop, number by number."""

from __future__ import annotations

from typing import Any

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
    """v <- m v + g + wd theta, theta <- theta - lr s v: torch.optim.SGD's, with its v = g in the first step."""
    rng = np.random.default_rng(seed)
    theta, gradients = rng.standard_normal((2, 7)), rng.standard_normal((6, 2, 7))
    s = rng.uniform(0, 2, 7) if scaled else None
    optimizer = mn.SGD(lr=lr, momentum=momentum, weight_decay=weight_decay)
    ours, memory = theta.copy(), optimizer.init(theta)
    velocity = np.zeros_like(theta)
    for g in gradients:
        optimizer.step(ours, g.copy(), memory, s)
        velocity = momentum * velocity + g + weight_decay * theta
        theta = theta - lr * (1.0 if s is None else s) * velocity
        np.testing.assert_allclose(ours, theta, rtol=1e-13, atol=1e-13)


def test_a_long_theta_is_one_theta() -> None:
    """The step works through theta in pieces; their borders do not show."""
    n = 200_001
    rng = np.random.default_rng(0)
    theta, g, s = (rng.standard_normal(n) for _ in range(3))
    optimizer = mn.SGD(lr=0.1, momentum=0.9, weight_decay=0.01)
    ours, memory = theta.copy(), np.asarray(optimizer.init(theta))
    optimizer.step(ours, g.copy(), memory, s)
    np.testing.assert_allclose(ours, theta - 0.1 * s * (g + 0.01 * theta), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(memory, g + 0.01 * theta, rtol=1e-14, atol=1e-14)


def test_no_memory_without_momentum() -> None:
    assert mn.SGD(lr=0.1).init(np.ones(3)) is None
    assert np.array_equal(np.asarray(mn.SGD(lr=0.1, momentum=0.9).init(np.ones(3))), np.zeros(3))


def test_a_learning_rate_from_numpy_is_a_number() -> None:
    """A NumPy scalar would make float32 steps compute in float64: the same bits either way."""
    theta, g = (np.random.default_rng(0).standard_normal(99).astype(np.float32) for _ in range(2))
    results = []
    for number in (float, np.float64):
        optimizer = mn.SGD(lr=number(0.1), momentum=number(0.9), weight_decay=number(0.01))
        mine, memory = theta.copy(), optimizer.init(theta)
        optimizer.step(mine, g.copy(), memory, None)
        optimizer.step(mine, g.copy(), memory, None)
        results.append(mine)
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lr": 0.0}, r"SGD\(lr=\.\.\.\) expects a finite number > 0, got 0\.0"),
        ({"lr": -1.0}, r"SGD\(lr=\.\.\.\) expects a finite number > 0"),
        ({"lr": np.inf}, r"SGD\(lr=\.\.\.\) expects a finite number > 0, got inf"),
        ({"lr": np.nan}, r"SGD\(lr=\.\.\.\) expects a finite number > 0, got nan"),
        ({"lr": 0.1, "momentum": 1.0}, r"SGD\(momentum=\.\.\.\) expects a number in \[0, 1\), got 1\.0"),
        ({"lr": 0.1, "momentum": -0.1}, r"SGD\(momentum=\.\.\.\)"),
        ({"lr": 0.1, "weight_decay": -0.1}, r"SGD\(weight_decay=\.\.\.\) expects a finite number >= 0, got -0\.1"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mn.SGD(**arguments)
