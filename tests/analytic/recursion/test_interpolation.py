"""Test interpolation in the logarithm of a positive number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analytic.recursion.interpolation import by_rows, chebyshev, interpolated

Array = np.ndarray[Any, Any]


def curve(s: Array) -> Array:
    return np.stack([1 / (1 + s), np.tanh(s), np.sqrt(s)], axis=1)


@pytest.mark.parametrize(("low", "high"), [(-3.0, 2.0), (0.0, 8.0), (0.1, 0.1 + 1e-9)])
def test_a_smooth_curve_is_found_between_its_nodes(low: float, high: float) -> None:
    log_s = np.linspace(low, high, 101)
    part = chebyshev(np, curve, low, high)
    want = curve(np.exp(log_s))
    assert np.max(np.abs(interpolated(part, log_s, low, high) - want)) < 1e-13 * np.max(want)


def test_a_kink_is_not() -> None:
    """Negative control: at a kink, the interpolated value is wrong by more than 1e-6."""
    part = chebyshev(np, lambda s: np.abs(s - 2.0)[:, None], 0.0, 2.0)
    assert 1e-6 < np.abs(interpolated(part, np.log(np.array([2.0])), 0.0, 2.0)).max() < 0.1


def test_rows_at_a_time_are_all_rows() -> None:
    s = np.arange(1.0, 1000.0)
    assert np.array_equal(by_rows(curve, s, 2**14), curve(s))
