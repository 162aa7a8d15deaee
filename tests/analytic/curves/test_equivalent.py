"""The equivalent of a random problem beside an exact mean."""

from __future__ import annotations

import numpy as np

import analytic as an


def test_the_distance_falls_as_one_over_the_size() -> None:
    """Pure noise on 2N equal modes without ridge: exactly 1 + N / (2N - N - 1), in the limit 2."""
    apart = []
    for N in (10, 100, 1000):
        curve = an.learning_curve(an.Modes(np.ones(1), np.array([2 * N])), [0.0], examples=N, noise=1.0)
        apart.append(N * (1 + N / (N - 1) - curve.ridge()))
    np.testing.assert_allclose(apart, [10 / 9, 100 / 99, 1000 / 999], rtol=1e-6)
