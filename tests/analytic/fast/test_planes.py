"""Images of every scale, degenerate ones and those at the ends of the range, again, with planes by Numba."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from analytic.fast import planes as plan
from tests.analytic.images import test_engine as degenerate
from tests.analytic.images import test_precision as scales

pytest.importorskip("numba")

test_every_scale = scales.test_equal_opposite_and_black_images_at_every_scale
test_bright_next_to_dim = scales.test_bright_next_to_dim_images
test_end_of_the_range = scales.test_kernels_at_the_end_of_the_range_are_right_or_refused
test_equal_and_opposite = degenerate.test_degenerate_images
test_opposite_windows = degenerate.test_opposite_windows_keep_their_digits
test_opposite_of_any_size = degenerate.test_opposite_images_of_any_size
test_black = degenerate.test_black_images_without_bias_have_kernels_of_zero
test_black_in_float32 = degenerate.test_black_images_in_float32
test_black_next_to_bright = degenerate.test_float32_of_a_black_image_next_to_bright_ones
test_no_variance = degenerate.test_images_of_no_variance_have_kernels_of_exact_zeros
test_any_size = degenerate.test_float32_of_images_of_any_size
test_one_row_and_one_column = degenerate.test_windows_of_one_row_and_of_one_column
test_sequences = degenerate.test_sequences_are_images_of_one_row


@pytest.fixture(scope="module", autouse=True)
def numba() -> Iterator[None]:
    """Whatever the size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "BYTES_WORTH_NUMBA", 0)
        yield
