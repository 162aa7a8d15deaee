"""The verdicts of the papers' rows: numbers that agree, that differ, and intervals that decide neither."""

import importlib
import sys
from math import nan
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """intervals.py, as a script imports it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setitem(sys.modules, "running", importlib.import_module("running"))
    return importlib.import_module("intervals")


@pytest.mark.parametrize(
    ("verdict", "values", "bound", "says"),
    [
        ("above", [(2, 1), (3, 1)], 0.0, True),
        ("above", [(2, 1), (1, 2)], 0.0, None),
        ("above", [(2, 1), (-2, 1), (1, 2)], 0.0, False),
        ("above", [(2, nan)], 0.0, None),
        ("within", [(-0.002, 0.02)], 0.05, True),
        ("within", [(0.022, 0.146)], 0.05, None),  # wider than what it should tell apart
        ("within", [(0.016, 0.001), (0.112, 0.06)], 0.004, False),
        ("within", [(0.0, nan)], 0.05, None),
        ("holds", [(0.995, 0.0051)], 1.0, True),
        ("holds", [(0.995, 0.0051), (0.978, 0.007), (0.941, 0.012)], 1.0, False),
        ("holds", [(1.003, 0.006), (1.007, 0.020), (0.999, 0.044)], 1.0, True),
        ("holds", [(-0.5, 0.6)], -0.5, None),
        ("holds", [(-0.5, nan)], -0.5, None),
    ],
)
def test_verdicts(shared: Any, verdict: str, values: list[Any], bound: float, says: bool | None) -> None:
    assert getattr(shared, verdict)(map(shared.Measured._make, ((*v, "seeds") for v in values)), bound) is says


def test_a_margin_is_for_the_interval_and_for_what_it_rules_out(shared: Any) -> None:
    off = [shared.Measured(-0.62, 0.05)]
    assert shared.holds(off, -0.5) is False
    assert shared.holds(off, -0.5, shared.MARGIN) is True
    assert shared.holds(off, -0.5, shared.MARGIN, apart=0.2) is None


@pytest.mark.parametrize(
    ("fit", "bound", "says"),
    [
        ((-0.45, -0.55, -0.35), False, True),
        ((-0.9, -1.0, -0.8), False, False),
        ((-0.9, -1.0, -0.8), True, True),
        ((-0.2, -0.3, -0.1), True, False),
        ((-0.45, -1.0, 0.1), True, None),  # holds 0 too: no fall at all
        ((-0.6, -1.1, -0.2), False, None),
    ],
)
def test_exponents(monkeypatch: pytest.MonkeyPatch, fit: Any, bound: bool, says: bool | None) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setitem(sys.modules, "common", importlib.import_module("common"))
    assert importlib.import_module("lee").follows(fit, -0.5, bound=bound) is says


def test_the_page_counts_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    rows = [
        {"claim": f"claim {i}", "paper": paper, "here": "1", "of": "", "size": "", "seeds": 1, "agrees": a, "why": ""}
        for i, (paper, a) in enumerate([("1", True), ("2", False), ("3", None), ("-", None)])
    ]
    found = {"script": "one", "data": "mnist", "scale": "small", "core seconds": 60, "table": rows}
    text = importlib.import_module("papers_page").page({"one-mnist": found}, {"one": "Of Lee et al. 2019."})
    assert "models | 4 | 4 | 1 | 1 | 1 | 1 |" in text
    verdicts = [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("| claim ")]
    assert verdicts == ["agrees", "yes", "no", "not decided", "", "cause", "open"]
