"""Enable the fast paths for small networks too, because the tests in this folder test the fast paths."""

from collections.abc import Iterator

import pytest

from minintk.thresholds import THRESHOLDS


@pytest.fixture(autouse=True)
def _fast_ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(THRESHOLDS, "plain", 0)
    yield
    monkeypatch.undo()
