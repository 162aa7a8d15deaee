"""Draw the figures of examples without arranging their parts, which takes twice as long as drawing them."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _unarranged(monkeypatch: pytest.MonkeyPatch) -> None:
    figure: Any = pytest.importorskip("matplotlib.figure").Figure
    right = figure.savefig

    def savefig(self: Any, *place: Any, **how: Any) -> None:
        self.set_layout_engine("none")
        right(self, *place, **how | {"dpi": 40})

    monkeypatch.setattr(figure, "savefig", savefig)
