"""Test which steps run offset by offset, and which poolings are computed by planes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.fast import offsets
from analytic.images.rules import Pool

CONV, RELU = mn.Conv2d(2, 3, b_std=0.2), mn.ReLU()
WRAPPED, STRIDED = mn.Conv2d(2, 3, padding="circular"), mn.Conv2d(2, 3, stride=2)
FOLLOWED: dict[str, tuple[list[mn.spec.Layer], int]] = {
    "windows": ([CONV, RELU, CONV, mn.Erf()], 4),
    "a smaller grid": ([mn.Conv2d(2, 3, padding="valid"), RELU], 2),
    "a larger grid": ([mn.Conv2d(2, 1, padding=1), RELU], 0),
    "no activation": ([CONV, CONV], 0),
    "a quadrature": ([CONV, mn.Tanh()], 0),
    "a quadrature behind": ([CONV, RELU, CONV, mn.Tanh()], 3),
    "wrapped": ([WRAPPED, RELU], 0),
    "wrapped behind": ([CONV, RELU, WRAPPED, RELU], 2),
    "strided": ([CONV, RELU, STRIDED, RELU], 2),
    "a trained zero": ([CONV, RELU, mn.Conv2d(2, 3, b_std=0.1, b_init="zeros")], 2),
    "normalised": ([CONV, mn.LayerNorm(), RELU], 3),
    "masks": ([CONV, RELU, mn.Dropout(0.5)], 2),
    "a pooling": ([CONV, RELU, mn.AvgPool(2)], 2),
    "a sum": ([CONV, mn.Residual(mn.Sequential(RELU, CONV))], 2),
    "a wrapped branch": ([CONV, RELU, CONV, mn.Residual(mn.Sequential(RELU, WRAPPED))], 3),
    "a wrapped shortcut": ([CONV, RELU, CONV, mn.Residual(mn.Sequential(RELU, CONV), shortcut=WRAPPED)], 3),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_steps_up_to_the_first_that_offsets_do_not_know(name: str) -> None:
    """Check how many leading steps can run offset by offset. Without an activation, no step can."""
    layers, count = FOLLOWED[name]
    assert offsets.split(an.kernel(mn.Sequential(*layers, mn.Flatten()))._program((6, 6, 2))) == count


@pytest.mark.parametrize(
    ("pool", "added"),
    [
        *((mn.AvgPool(2), True), (mn.AvgPool((4, 1)), True), (mn.AvgPool((1, 4), stride=(1, 5)), True)),
        *((mn.AvgPool((5, 1)), False), (mn.AvgPool(2, stride=1), False), (mn.AvgPool(2, stride=(2, 1)), False)),
        (mn.AvgPool(2, padding="circular"), False),
    ],
    ids=repr,
)
def test_windows_apart_of_four_pixels_are_added_up(pool: mn.spec.Layer, added: bool) -> None:
    _, step, _ = an.kernel(mn.Sequential(CONV, pool, mn.Flatten()))._program((6, 6, 2))
    assert isinstance(step, Pool)
    assert offsets.added_up(step, np) == added
    assert not offsets.added_up(step, Any)
