"""Compare the number, positions and padding of windows with a padded array, and test windows that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import minintk as mn
from minintk.spec.windows import Axis, axes, axis, check_channels_last

CASES = [
    (size, kernel, stride, padding)
    for size in (1, 4, 7)
    for kernel in (1, 2, 3, 5)
    for stride in (1, 2, 3)
    for padding in ("same", "valid", "circular", (2, 0), (1, 3))
]


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), CASES)
def test_windows_are_those_that_can_be_counted(size: int, kernel: int, stride: int, padding: str) -> None:
    try:
        found = axis("Conv2d", size, kernel, stride, padding)
    except ValueError:
        assert padding != "same"
        assert kernel > size + (sum(padding) if isinstance(padding, tuple) else 0)
        return
    canvas = np.full(found.before + size + found.after, -1)
    for place, image in found.copies:
        canvas[place] = np.arange(size)[image]
    assert found.circular or np.sum(canvas >= 0) == size
    assert not found.circular or np.all(canvas == (np.arange(len(canvas)) - found.before) % size)
    starts = [p for p in range(0, len(canvas), stride) if p + kernel <= len(canvas)]
    windows = np.stack([canvas[found.along(k)] for k in range(kernel)], axis=1)
    np.testing.assert_array_equal(windows, [canvas[p : p + kernel] for p in starts])
    assert found.out == len(starts)
    assert found.inside == np.sum(windows >= 0, axis=1).tolist()
    if padding in ("same", "circular"):
        assert found.out == -(-size // stride)


def test_windows_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Conv2d: a window of 5 pixels does not fit into an image of 2 pixels"):
        axis("Conv2d", 2, 5, 1, (1, 0))
    with pytest.raises(ValueError, match="a window lies in the padding altogether"):
        axes(mn.MaxPool(2, padding=3), (4, 4, 1))


def test_one_number_serves_both_axes_and_a_pair_each() -> None:
    both = axes(mn.Conv2d(1, (3, 2), stride=(1, 2), padding=((1, 0), (2, 1))), (5, 6, 1))
    assert both == (Axis(5, 3, 1, 1, 0), Axis(6, 2, 2, 2, 1))
    with pytest.raises(ValueError, match="on 1 spatial axis expects single numbers"):
        axes(mn.AvgPool((2, 2)), (6, 1))
    with pytest.raises(ValueError, match="expects padding as one number"):
        axes(mn.Conv2d(1, 3, padding=(1, 2, 3)), (5, 5, 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expects padding as one number"):
        axes(mn.Conv2d(1, 3, padding=((1, 2, 3), 1)), (5, 5, 1))  # type: ignore[arg-type]


def test_images_with_channels_first_are_told() -> None:
    spec = mn.Sequential(mn.Conv2d(4, 3), mn.Flatten(), mn.Dense(1))
    with pytest.raises(ValueError, match=r"channels-last here, .* look channels-first"):
        check_channels_last(spec, (3, 32, 32))
    check_channels_last(spec, (32, 32, 3))
    check_channels_last(mn.Sequential(mn.Flatten(), mn.Dense(1)), (3, 32, 32))  # no layer reads windows
