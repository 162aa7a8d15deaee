"""Test that one-pass SGD starts at the loss of gradient flow and follows the flow at small rates."""

from __future__ import annotations

import numpy as np

import analytic as an

K = np.arange(1, 101.0)
MODES, V2 = an.Modes(K**-1.5, np.ones(100)), K**-1.6


def test_small_rates_follow_the_flow() -> None:
    curve = an.learning_curve(MODES, V2)
    lr, steps = 1e-3, 1000
    flow, sgd = curve.flow([0.0, lr * steps]), curve.sgd([0, steps], lr)
    np.testing.assert_allclose(sgd[0], flow[0], rtol=1e-6)
    np.testing.assert_allclose(sgd[1], flow[1], rtol=0.01)
    assert curve.sgd([steps], 0.3)[0] < 0.8 * flow[1]
