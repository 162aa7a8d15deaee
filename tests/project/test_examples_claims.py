"""Test scripts that replicate claims. Small runs agree with the papers, but fail if `work` ignores its arguments."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.project.reruns import EXAMPLES, importable

PAPERS: dict[str, dict[str, Any]] = {}
"""{script of examples/: arguments of a small run}."""

ON_THE_PAGE = {"linearisation_by_width": {"widths": (16, 64, 256), "seeds": 6, "steps": 30}}
"""{script of PAGE: arguments of a small run}."""
PAGE = EXAMPLES.parent / "docs" / "project" / "adding.md"


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    importable(monkeypatch, "common", "lee")
    if PAGE.exists():
        monkeypatch.syspath_prepend(str(tmp_path))
        (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        (tmp_path / f"{next(iter(ON_THE_PAGE))}.py").write_text(code, encoding="utf-8")


def check_rows(script: Any, folder: Path, sizes: dict[str, Any]) -> None:
    """Check that every row with a rule agrees, that not all of these rows are controls, and that a figure is drawn."""
    rows = script.main(importlib.import_module("common").Setting(script.__name__, folder), **sizes)["table"]
    others = [(row["claim"], row["here"], row["rule"]) for row in rows if row["rule"] and row["agrees"] is not True]
    assert not others, f"not in agreement: {others}; for an undecided row, use more seeds or distant widths"
    assert any(row["rule"] and not row["claim"].startswith("control") for row in rows), "no row says what must hold"
    assert (folder / f"{script.__name__}.png").read_bytes().startswith(b"\x89PNG")


def blind(script: Any) -> Any:
    """Return a version of the script's `work` in which each argument, except seeds, keeps its first value."""
    right, first = script.work, dict[str, Any]()

    def work(**point: Any) -> Any:
        return right(**{k: v if k in ("seed", "repeat") else first.setdefault(k, v) for k, v in point.items()})

    return work


@pytest.mark.parametrize("name", [*PAPERS, *(ON_THE_PAGE if PAGE.exists() else ())])
def test_claim(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, sizes = importlib.import_module(name), (PAPERS | ON_THE_PAGE)[name]
    check_rows(script, tmp_path, sizes)
    monkeypatch.setattr(script, "work", blind(script))
    (tmp_path / "blind").mkdir()
    with pytest.raises(AssertionError):
        check_rows(script, tmp_path / "blind", sizes)
