"""Let small networks take the fast paths too, so that they are tested here."""

from collections.abc import Iterator

import pytest

from minintk.thresholds import THRESHOLDS


@pytest.fixture(autouse=True)
def _fast_ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(THRESHOLDS, "plain", 0)
    yield
    monkeypatch.undo()
