"""Test t1, which is interpolated, and t2, which is an element of `t`, for curves, ensembles and bad input."""

from __future__ import annotations

import numpy as np
import pytest

from minintk.diagnostics.times import t1, t2

T = np.array([0.0, 1.0, 3.0, 4.0])


def test_t1_is_where_the_line_between_two_points_crosses_half() -> None:
    curves = np.array([[4.0, 3.0, 1.0, 0.0], [4.0, 2.0, 2.0, 0.0], [4.0, 4.0, 4.0, 2.1], [1.0, 0.9, 0.1, 0.0]]).T
    np.testing.assert_allclose(t1(T, curves), [2.0, 1.0, np.inf, 1 + 2 * 0.4 / 0.8], rtol=1e-15)
    assert t1(T, curves[:, 0]) == 2.0


def test_t1_is_that_of_an_exponential() -> None:
    t = np.linspace(0, 3, 30_001)
    assert abs(t1(t, 5 * np.exp(-2 * t)) - np.log(2) / 2) < 1e-8


def test_t2_is_the_first_time_at_zero() -> None:
    curves = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 0.5, 0.1, 0.0], [1.0, 1e-300, 1e-300, 1e-300]]).T
    np.testing.assert_array_equal(t2(T, curves), [1.0, 4.0, np.inf])


def test_curves_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="t expects increasing times"):
        t1(np.array([0.0, 1.0, 1.0]), np.ones(3))
    with pytest.raises(ValueError, match="t1 expects a loss that starts above 0, got 0"):
        t1(T, np.zeros(4))
    with pytest.raises(ValueError, match=r"expected t \(T,\) and loss"):
        t2(T, np.ones(3))
    with pytest.raises(ValueError, match="NaN or infinite"):
        t2(T, np.array([1.0, np.nan, 0.0, 0.0]))
    with pytest.raises(TypeError, match="loss expects float32 or float64"):
        t2(T, np.array([3, 2, 1, 0]))
