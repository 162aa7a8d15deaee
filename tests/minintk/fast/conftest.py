"""Let small networks take the fast ways too, which are tested here."""

from collections.abc import Iterator

import pytest

from minintk.thresholds import THRESHOLDS


@pytest.fixture(autouse=True)
def _fast_ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(THRESHOLDS, "plain", 0)
    yield
    monkeypatch.undo()
