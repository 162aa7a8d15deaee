"""Compare the deterministic equivalent of random problems with exact means."""

from __future__ import annotations

import numpy as np

import analytic as an


def test_the_distance_falls_as_one_over_the_size() -> None:
    """For noise on 2N equal modes and no ridge, the exact mean error exceeds that of the equivalent by 1 / (N - 1)."""
    apart = []
    for N in (10, 100, 1000):
        curve = an.learning_curve(an.Modes(np.ones(1), np.array([2 * N])), [0.0], examples=N, noise=1.0)
        apart.append(N * (1 + N / (N - 1) - curve.ridge()))
    np.testing.assert_allclose(apart, [10 / 9, 100 / 99, 1000 / 999], rtol=1e-6)


def test_width_and_data_without_ridge_are_exact() -> None:
    """For K equal modes, n features leave an error of 1 - n / K, which acts as noise.

    Regression on N examples multiplies this noise and the noise of the targets by (N - 1) / (N - n - 1).
    """
    apart = []
    for n in (10, 100, 1000):
        curve = an.learning_curve(an.Modes(np.ones(1), np.array([8 * n])), [1.0], width=n, examples=4 * n, noise=0.3)
        apart.append(n * (((7 / 8 + 0.3) * (4 * n - 1) / (3 * n - 1)) / curve.ridge() - 1))
    np.testing.assert_allclose(apart, [10 / 116, 100 / 1196, 1000 / 11996], rtol=1e-6)
