"""Let small networks take the fast paths, which most networks on a GPU take."""

import pytest

from minintk.thresholds import THRESHOLDS


@pytest.fixture(autouse=True)
def _fast_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(THRESHOLDS, "plain", 0)
