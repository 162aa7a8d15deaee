"""Images of every scale, degenerate ones and those at the ends of the range, again, with planes by Numba."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_image_scales import (
    test_bright_next_to_dim_images,
    test_equal_opposite_and_black_images_at_every_scale,
    test_kernels_at_the_end_of_the_range_are_right_or_refused,
)
from test_images import (
    test_black_images_in_float32,
    test_black_images_without_bias_have_kernels_of_zero,
    test_degenerate_images,
    test_float32_of_a_black_image_next_to_bright_ones,
    test_float32_of_images_in_general_position,
    test_float32_of_images_of_any_size,
    test_images_of_no_variance_have_kernels_of_exact_zeros,
    test_many_images_in_pieces,
    test_opposite_windows_keep_their_digits,
    test_sequences_are_images_of_one_row,
    test_windows_of_one_row_and_of_one_column,
)

from analytic.images import engine

pytest.importorskip("numba")

__all__ = [name for name in dir() if name.startswith("test_")]


@pytest.fixture(scope="module", autouse=True)
def numba() -> Iterator[None]:
    """Whatever the size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "BYTES_WORTH_NUMBA", 0)
        yield
