"""Test sums over windows against a loop over pixels."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from analytic.images.fields import Edges, Field
from analytic.images.memory import FieldLayout, Workspace
from analytic.images.pixel_pairs import BYTES_PER_PIECE, Diagonal, Square
from analytic.images.window_sums import add_windows, plain, reads, window_matrix
from minintk.spec.windows import Axis

AXES = [
    *(Axis(5, 1), Axis(5, 3, 1, 1, 1), Axis(5, 4, 1, 3, 0), Axis(5, 9, 1, 2, 6)),
    *(Axis(5, 3, stride, 1, after) for stride, after in ((1, 0), (2, 1), (3, 3), (7, 0))),
    *(Axis(5, 2, 1, 1, 0, True), Axis(5, 7, 1, 3, 3, True), Axis(5, 3, 2, 1, 1, True)),
    *(Axis(1, 1), Axis(1, 3, 1, 1, 1), Axis(2, 1, 4, 3, 3), Axis(3, 1, 1, 1, 1)),
]


def inside(axis: Axis, p: int, s: int) -> int | None:
    """Return the pixel that output p reads at shift s, or None if the position is outside the image."""
    place = axis.stride * p - axis.before + s
    place = place % axis.size if axis.circular else place
    return place if 0 <= place < axis.size else None


@pytest.mark.parametrize("axis", AXES, ids=repr)
def test_windows_read_each_pixel_that_is_inside(axis: Axis) -> None:
    """For each shift, pixels that are one stride apart are read as one slice. A gap begins a new slice.

    `window_matrix` counts how often each window contains each pixel.
    """
    counts = np.zeros((axis.out, axis.size))
    for s in range(axis.kernel):
        every = [(p, inside(axis, p, s)) for p in range(axis.out)]
        pairs = [(p, i) for p, i in every if i is not None]
        runs = reads(axis, s)
        found = [pair for o, i in runs for pair in zip(range(axis.out)[o], range(axis.size)[i], strict=True)]
        assert found == pairs
        assert len(runs) == bool(pairs) + sum(b != a + axis.stride for (_, a), (_, b) in pairwise(pairs))
        for p, i in pairs:
            counts[p, i] += 1
    np.testing.assert_array_equal(window_matrix(axis), counts)


@pytest.mark.parametrize("axis", AXES, ids=repr)
def test_sums_over_windows_are_sums_over_their_pixels(axis: Axis) -> None:
    """Sums for all outputs and for a range of outputs equal loops over pixels.

    If one pixel of a pair is outside the image, the substitute for that pair is added.
    """
    rng = np.random.default_rng(0)
    a, left, right = rng.standard_normal((2, axis.size, 3, axis.size, 2)), *rng.standard_normal((2, axis.size))
    want = np.zeros((2, axis.out, 3, axis.out, 2))
    for p, p2, s in product(range(axis.out), range(axis.out), range(axis.kernel)):
        i, i2 = inside(axis, p, s), inside(axis, p2, s)
        if i is not None and i2 is not None:
            want[:, p, :, p2] += a[:, i, :, i2]
        elif i is not None:
            want[:, p, :, p2] += left[i]
        elif i2 is not None:
            want[:, p, :, p2] += right[i2]
    outside: Any = left[None, :, None, None, None], right[None, None, None, :, None]
    pieces = [(0, 2), (2, 3), (3, 5)] if plain(axis) and axis.out == 5 else []
    for start, stop in ((0, axis.out), *pieces):
        out = np.full((2, stop - start, 3, axis.out, 2), np.nan)
        if axis.kernel > 1 or not plain(axis):  # no step is made for windows of single pixels
            add_windows(a, out, axis, (1, 3), outside, start)
            np.testing.assert_allclose(out, want[:, start:stop], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("rows", "columns", "limit", "alone"),
    [
        (Axis(5, 3, 1, 1, 1), Axis(4, 3, 1, 1, 1), 10**6, True),
        (Axis(5, 3, 1, 1, 1), Axis(4, 3, 1, 1, 1), 1000, False),
        (Axis(5, 3, 1, 1, 1), Axis(4, 1), 10**6, False),
        (Axis(5, 1), Axis(4, 3, 1, 1, 1), 10**6, False),
        (Axis(5, 3, 2, 1, 1), Axis(4, 3, 1, 1, 1), 10**6, False),
        (Axis(5, 2, 1, 1, 0, True), Axis(4, 3, 1, 1, 1), 10**6, True),
    ],
)
def test_sums_across_and_along_the_lines_may_overwrite_the_field(
    rows: Axis, columns: Axis, limit: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums overwrite the field if both axes are summed, the grid does not change and the field is one piece.

    The sums across the lines are written to another array. The sums along the lines are then written to the field.
    """
    monkeypatch.setattr("analytic.images.pixel_pairs.BYTES_PER_PIECE", limit)
    layout = FieldLayout(np, np.dtype(np.float64), diagonal=False)
    field = Square(layout, Workspace(np, np.float64), slice(0, 2), slice(2, 5), (5, 4), asked=False)
    before, half = field.a, np.zeros((5, 5, 4))
    before[...] = np.random.default_rng(0).standard_normal(before.shape)
    want = before[0].reshape((2, 5, 4, 3, 5, 4))
    for axis, (first, second) in ((rows, (1, 4)), (columns, (2, 5))):
        summed = np.zeros([axis.out if k in (first, second) else n for k, n in enumerate(want.shape)])
        for s in range(axis.kernel):
            T = np.array([[float(inside(axis, p, s) == i) for i in range(axis.size)] for p in range(axis.out)])
            part = np.moveaxis(np.tensordot(T, want, (1, first)), 0, first)
            summed += np.moveaxis(np.tensordot(T, part, (1, second)), 0, second)
        want = summed
    one, two = (np.stack((v, np.zeros_like(v))) for v in (half, np.zeros((5, rows.out, 4))))
    field.slide((rows, columns), Edges(one, two))
    assert (field.a is before) == alone
    assert field.grid == (rows.out, columns.out)
    np.testing.assert_allclose(field.a[0].reshape(want.shape), want, rtol=0, atol=1e-13)


def test_an_activation_takes_a_field_in_pieces() -> None:
    """For equal pixels, a piece contains 1 / `finer` of the images, but at least one.

    A piece of other fields has at most BYTES_PER_PIECE / finer bytes, up to a line.
    """

    def field(kind: type[Square | Diagonal], grid: tuple[int, int]) -> Field:
        layout = FieldLayout(np, np.dtype(np.float64), diagonal=kind is Diagonal)
        return kind(layout, Workspace(np, np.float64), slice(1, 8), slice(0, 2), grid, asked=False)

    equal, square = field(Diagonal, (5, 4)), field(Square, (50, 5))
    for finer, sizes in ((1, [7]), (2, [3, 3, 1]), (3, [2, 2, 2, 1]), (16, [1] * 7)):
        found = [range(7)[piece] for piece in (equal.pieces() if finer == 1 else equal.pieces(finer))]
        assert [n for part in found for n in part] == list(range(7))
        assert [len(part) for part in found] == sizes
    for finer, count in ((1, 6), (16, 94)):
        found = [range(1750)[piece] for piece in (square.pieces() if finer == 1 else square.pieces(finer))]
        assert [n for part in found for n in part] == list(range(1750))
        assert len(found) == -(-1750 // -(-1750 // count))
        assert count - 1 < 1750 * 500 * 8 * finer / BYTES_PER_PIECE <= count
