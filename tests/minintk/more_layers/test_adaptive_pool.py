"""Compare adaptive pooling with loops over windows, and test one window, one window per pixel, and invalid sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk import more_layers as more
from minintk.more_layers.adaptive_pool import means
from minintk.spec.shapes import out_shape
from minintk.testing import check_layer
from tests.kit.grouped import adaptive, outputs

Array = np.ndarray[Any, Any]
SIZES = st.integers(1, 7)


@given(SIZES, SIZES, SIZES, SIZES)
def test_the_loop_over_windows(H: int, W: int, down: int, right: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, H, W, 3))
    want = adaptive(x, (down, right)).reshape(2, -1)
    np.testing.assert_allclose(outputs(more.AdaptiveAvgPool((down, right)), x), want, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("size", "shape"), [((2, 3), (3, 2, 2)), (4, (1, 1, 3)), (3, (5, 2)), ((5, 1), (3, 4, 1))], ids=str
)
def test_the_laws(size: Any, shape: tuple[int, ...]) -> None:
    check_layer(more.AdaptiveAvgPool(size), shape)


def test_one_window_is_the_mean_and_as_many_as_pixels_the_identity() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 2))
    np.testing.assert_allclose(outputs(more.AdaptiveAvgPool(1), x), outputs(mn.GlobalAvgPool(), x), rtol=1e-14)
    assert np.array_equal(outputs(more.AdaptiveAvgPool((4, 5)), x), x.reshape(3, -1))
    assert np.array_equal(outputs(more.AdaptiveAvgPool(2), x[:, :1, :1]), np.tile(x[:, 0, 0], 4))


@given(SIZES, SIZES)
def test_rows_are_means(m: int, n: int) -> None:
    A = means(m, n)
    assert A.shape == (n, m)
    np.testing.assert_allclose(A.sum(axis=1), 1, rtol=1e-15)
    assert A[0, 0] > 0 < A[-1, -1]


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"AdaptiveAvgPool\(size=\.\.\.\) expects a whole number >= 1, got 0"):
        more.AdaptiveAvgPool(0)
    for size, shape in ((2, (3,)), ((2, 2), (3, 4)), (2, (2, 2, 2, 2))):
        with pytest.raises(ValueError, match="expects images"):
            out_shape(more.AdaptiveAvgPool(size), shape)
