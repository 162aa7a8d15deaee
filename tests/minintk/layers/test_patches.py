"""Compare patches of windows with hand-written rows, and test that `add`, `crop` are transposes of `read`, `pad`."""

from __future__ import annotations

import numpy as np
import pytest

import minintk as mn
from minintk.layers.patches import Windows, images

CASES = [
    (mn.Conv2d(1, 3), (4, 5, 2)),
    (mn.Conv2d(1, (2, 3), stride=2, padding="valid"), (5, 5, 1)),
    (mn.Conv2d(1, 3, padding="circular", stride=(1, 2)), (3, 4, 2)),
    (mn.Conv2d(1, 5, padding="circular"), (2, 3, 1)),  # the canvas holds the image three times
    (mn.Conv2d(1, 2, padding=((1, 0), (0, 2))), (3, 3, 2)),
    (mn.Conv1d(1, 3), (6, 2)),
    (mn.AvgPool(2), (4, 4, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), CASES)
def test_each_row_is_what_its_window_reads(layer: mn.spec.Conv2d, shape: tuple[int, ...]) -> None:
    windows, rng = Windows.of(layer, shape), np.random.default_rng(0)
    x = images(rng.standard_normal((3, *shape)), shape)
    (h, w), (down, right), (H, W) = windows.window, windows.strides, x.shape[1:3]

    def pixel(n: int, i: int, j: int) -> np.ndarray:
        i, j = i - windows.rows.before, j - windows.columns.before
        if windows.circular:
            return x[n, i % H, j % W]
        return x[n, i, j] if 0 <= i < H and 0 <= j < W else 0 * x[n, 0, 0]

    rows = [
        np.concatenate([pixel(n, down * a + i, right * b + j) for i in range(h) for j in range(w)])
        for n in range(3)
        for a in range(windows.out[0])
        for b in range(windows.out[1])
    ]
    np.testing.assert_array_equal(windows.read(x), rows)


@pytest.mark.parametrize(("layer", "shape"), CASES)
def test_transposed_maps(layer: mn.spec.Conv2d, shape: tuple[int, ...]) -> None:
    """<P(x), Q> = <x, P'(Q)> and <pad x, c> = <x, crop c>, here with a leading axis of members."""
    windows, rng = Windows.of(layer, shape), np.random.default_rng(1)
    x = images(rng.standard_normal((2, 3, *shape)), shape)
    P, canvas = windows.read(x), windows.pad(x)
    Q, c = rng.standard_normal(P.shape), rng.standard_normal(canvas.shape)
    np.testing.assert_allclose(np.sum(P * Q), np.sum(x * windows.add(Q)), rtol=1e-12)
    np.testing.assert_allclose(np.sum(canvas * c), np.sum(x * windows.crop(c)), rtol=1e-12)


def test_windows_apart() -> None:
    assert Windows.of(mn.MaxPool(2), (4, 4, 1)).apart
    assert not Windows.of(mn.MaxPool(3, stride=2), (7, 7, 1)).apart
