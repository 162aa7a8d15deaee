"""Test that checks of arguments convert valid values to built-in types, and that errors name invalid values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minintk.validate import check_generator, generator, number, numbers, precision, real, times, whole


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int8(3), np.array(3.0)])
def test_a_number_is_pythons(value: Any) -> None:
    assert type(number("alpha", value)) is float
    assert number("alpha", value) == 3.0


@pytest.mark.parametrize("value", [True, np.True_, "3", b"3", 3j, [3.0], None, np.nan, np.inf, 10**400, -1, 0])
def test_no_positive_number(value: Any) -> None:
    with pytest.raises(ValueError, match=r"alpha expects a finite number > 0, got"):
        number("alpha", value)


def test_zero_and_negative_numbers_where_they_may_be() -> None:
    assert number("b", 0, zero=True) == 0.0
    assert number("b", -2, negative=True) == -2.0
    with pytest.raises(ValueError, match="b expects a finite number >= 0, got -2"):
        number("b", -2, zero=True)
    with pytest.raises(ValueError, match="b expects a finite number, got inf"):
        number("b", np.inf, negative=True)


def test_real_is_nan_for_what_is_none() -> None:
    assert np.isnan([real(value) for value in (True, "1", 1j, [1], None, object())]).all()
    assert real(np.float64(-0.5)) == -0.5


def test_numbers_of_a_sequence() -> None:
    assert numbers(np.array([[1, 2], [3, 4]])) == (1.0, 2.0, 3.0, 4.0)
    assert numbers([1, "2"]) == numbers([True]) == numbers([1j]) == ()


@pytest.mark.parametrize("value", [True, 2.0, "2", None, 0, 6, np.array([2])])
def test_no_whole_number_from_1_to_5(value: Any) -> None:
    with pytest.raises(ValueError, match="steps expects a whole number from 1 to 5, got"):
        whole("steps", value, high=5)


def test_a_whole_number_is_pythons() -> None:
    assert type(whole("steps", np.uint8(5), high=5)) is int
    with pytest.raises(ValueError, match="steps expects a whole number >= 2, got 1"):
        whole("steps", 1, 2)


def test_times() -> None:
    assert times(3).shape == ()
    np.testing.assert_array_equal(times(np.array([0, 2], np.float32)), [0.0, 2.0])
    for wrong in (-1, [0, np.nan], [[1.0]], "1", [1j]):
        with pytest.raises(ValueError, match="t expects numbers >= 0"):
            times(wrong)
    with pytest.raises(ValueError, match="t expects finite numbers >= 0"):
        times([1, np.inf], finite=True)


@pytest.mark.parametrize("dtype", ["float16", "int32", "complex64", "nothing", object(), bool, np.longdouble])
def test_other_precisions_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="dtype expects float32 or float64, got"):
        precision(dtype)


def test_a_seed_is_no_generator() -> None:
    rng = np.random.default_rng(3)
    assert generator(rng) is rng
    assert generator(None).integers(2**32) == np.random.default_rng(0).integers(2**32)
    for wrong in (0, None, np.random.RandomState(0)):
        with pytest.raises(TypeError, match=r"rng expects a numpy.random.Generator"):
            check_generator("rng", wrong)
