"""Test that pieces cover all the work and depend only on its size."""

from __future__ import annotations

import pytest

from minintk.threads import alone
from minintk.thresholds import cut


@pytest.mark.parametrize("length", [0, 1, 3, 16, 100])
@pytest.mark.parametrize("work", [0, 1, 2, 7.5, 10**9])
def test_pieces_cover_all_and_depend_on_the_work_alone(length: int, work: float) -> None:
    found = cut(length, work, 1)
    assert [i for at in found for i in range(at.start, at.stop)] == list(range(length))
    assert len(found) in (1, 2, 4, 8, 16)
    assert len(found) == 1 or (len(found) <= work and len(found) <= length)
    assert alone(cut, length, work, 1) == found
