"""Scratch memory is taken again while it is small; what is large is fresh, and is given back."""

from __future__ import annotations

import numpy as np
import pytest

from minintk.fast.memory import cache_slices, scratch
from minintk.fast.thresholds import THRESHOLDS


def test_small_memory_is_taken_again_and_large_memory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(THRESHOLDS, "scratch_bytes", 8 * 100)
    like = np.zeros(1)
    one, two = scratch(like, (10, 10), "test"), scratch(like, (7,), "test")
    assert np.shares_memory(one, two)
    assert (one.shape, two.shape, one.dtype) == ((10, 10), (7,), like.dtype)
    assert not np.shares_memory(one, scratch(like, (10, 10), "another"))
    assert not np.shares_memory(scratch(like, (101,), "test"), scratch(like, (101,), "test"))
    assert scratch(like.astype(np.float32), (200,), "test").dtype == np.float32


@pytest.mark.parametrize(("shape", "pieces"), [((10,), 2), ((8,), 1), ((9,), 2), ((2, 10), 3), ((16, 3), 3), ((0,), 0)])
def test_pieces_cover_a_vector_and_are_no_longer_than_they_may(
    shape: tuple[int, ...], pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(THRESHOLDS, "vector_piece", 8)
    found = cache_slices(np.zeros(shape))
    assert [i for at in found for i in range(*at.indices(shape[-1]))] == list(range(shape[-1]))
    assert all(at.stop <= shape[-1] for at in found)
    assert len(found) == pieces
