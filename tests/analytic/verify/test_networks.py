"""Test how `minintk verify` measures the movement of weights."""

from __future__ import annotations

import numpy as np
import pytest

from analytic.training.gp import ensemble
from analytic.verify.networks import Trajectory, errors


@pytest.mark.parametrize("hidden", [0, 1, 3])
def test_movement_is_that_of_the_first_the_last_and_all_other_weights(hidden: int) -> None:
    """The hidden weights' movement is the root mean square of their matrices' movements. Biases are ignored."""
    movement = {"0.W": np.array([0.1, 0.2]), "0.b": np.full(2, 9.0)}
    movement |= {f"{2 * i}.W": np.array([3.0, 4.0]) * i for i in range(1, hidden + 1)}
    movement |= {f"{2 * hidden + 2}.W": np.array([0.5, 0.7]), f"{2 * hidden + 2}.b": np.full(2, 9.0)}
    kernels = np.broadcast_to(np.eye(3), (2, 3, 3))
    run = Trajectory(np.array([0, 1]), np.zeros((2, 2, 3)), kernels, kernels, kernels, movement)
    theory = ensemble((np.eye(3), np.eye(3)), np.arange(2), np.ones((2, 1)), lr=0.1, by="descent")
    found = errors(run, theory, np.eye(3), 1)
    np.testing.assert_array_equal(found["input weights"], [0.1, 0.2])
    np.testing.assert_array_equal(found["output weights"], [0.5, 0.7])
    assert ("hidden weights" in found) == (hidden > 0)
    if hidden:
        root = {1: 1.0, 3: (14 / 3) ** 0.5}[hidden]  # of the mean of i^2
        np.testing.assert_allclose(found["hidden weights"], [3 * root, 4 * root], rtol=1e-14)
