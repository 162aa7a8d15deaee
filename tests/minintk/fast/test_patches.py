"""Test the multiplication counts by which convolutions choose between patches and compiled loops."""

from __future__ import annotations

from typing import Any

import pytest

import minintk as mn
from minintk.fast.patches import Patches
from minintk.layers.patches import Windows


@pytest.mark.parametrize(("padding", "rows"), [("same", 5 * 3 - 2), ("circular", 5 * 3), ("valid", 3 * 3)])
def test_compiled_loops_skip_rows_of_zeros_but_not_of_copies(
    padding: Any, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled loops skip rows of zero padding. Each row that a window reads costs K_w C C_out multiplications."""
    windows = Windows.of(mn.Conv2d(16, 3, padding=padding), (5, 18, 2))
    for here, count in ((True, rows), (False, windows.rows.out * 3)):  # patches contain all rows
        monkeypatch.setattr("minintk.fast.patches.numba_is_here", lambda here=here: here)
        assert Patches(windows, (2, 16)).work == count * windows.columns.out * 3 * 2 * 16
