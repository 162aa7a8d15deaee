"""Test the precision of normalisation statistics in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.layers.norm import mean_over, statistics


def test_statistics_of_many_equal_pixels_in_float32() -> None:
    """Statistics over 8 million pixels, most of them equal, have an error below 1e-6.

    Negative control: NumPy's mean over the first axis adds the rows one after another in float32.
    """
    x = np.full((2_000_000, 4), 0.6, np.float32)
    x[::3] = 0.0
    exact = x.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(mean_over((0,), x)[0], exact, rtol=1e-6)
    mean, r = statistics(x, (0,), 0.0)
    np.testing.assert_allclose(mean[0], exact, rtol=1e-6)
    np.testing.assert_allclose(r[0], 1 / x.astype(np.float64).std(axis=0), rtol=1e-6)
    assert np.abs(x.mean(axis=0) / exact - 1).max() > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_calibrated_network_is_the_network_in_training_mode(dtype: type) -> None:
    """On images with a constant border, statistics of calibration are those of the batch, also in float32."""
    spec = mn.Sequential(mn.Conv2d(2, 3, b_std=0.5), mn.BatchNorm(), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(3))
    net, rng = mn.Network(spec, (28, 28, 1)), np.random.default_rng(0)
    x: Any = np.zeros((2000, 28, 28, 1), dtype)
    x[:, 6:22, 6:22] = rng.random((2000, 16, 16, 1))
    theta = net.init(rng, dtype=dtype)
    np.testing.assert_allclose(net.calibrate(theta, x)(theta, x), net(theta, x), atol=2e-5)
