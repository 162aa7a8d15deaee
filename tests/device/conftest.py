"""Let small networks use the fast paths, as most networks on a GPU do."""

import pytest

from minintk.thresholds import THRESHOLDS


@pytest.fixture(autouse=True)
def _fast_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(THRESHOLDS, "plain", 0)
