"""Test which cases run by default: the first of each family, and a sample that depends only on the cases' names."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.thinned import FAMILIES, SECONDS, listed, thin

ROOT = Path(__file__).resolve().parents[2]


def text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


class Item(SimpleNamespace):
    """A stand-in for a collected test. `slow` is True if the test is marked slow."""

    slow = False

    def get_closest_marker(self, name: str) -> bool | None:
        return self.slow or None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.slow = mark.name == "slow"


def cases(count: int) -> list[Any]:
    return [Item(nodeid=f"tests/test_a.py::test_b[{i}]") for i in range(count)]


def chosen(items: list[Any], families: str) -> set[str]:
    thin(items, families)
    return {item.nodeid for item in items if not item.slow}


def test_one_case_in_every_and_the_first_are_run() -> None:
    """Check that a quarter of 1000 cases (to four standard errors) runs. Reversing the cases changes at most two."""
    found = chosen(cases(1000), "4 tests/test_a.py::test_b\n")
    assert abs(len(found) - 250) < 4 * (1000 * 0.25 * 0.75) ** 0.5
    assert "tests/test_a.py::test_b[0]" in found
    assert len(found ^ chosen(cases(1000)[::-1], "4 tests/test_a.py::test_b\n")) <= 2


def test_families_that_are_not_listed_run_whole() -> None:
    assert len(chosen(cases(20), "4 tests/test_a.py::test_other\n")) == 20


def test_the_first_case_that_is_not_slow_is_run() -> None:
    items = cases(20)
    items[0].slow = True
    assert items[1].nodeid in chosen(items, "20 tests/test_a.py::test_b\n")


def test_the_list_is_made_of_durations() -> None:
    line = "{:.2f}s call     {}::test_b[{}]"
    slow, fast = [SECONDS, SECONDS, SECONDS / 2], [SECONDS / 4] * 3
    text = "\n".join(line.format(s, "tests/test_a.py", i) for i, s in enumerate(slow))
    text += "\n" + "\n".join(line.format(s, "tests/test_c.py", i) for i, s in enumerate(fast))
    text += f"\n{9:.2f}s call     tests/test_d.py::test_alone"
    assert listed(text) == "3 tests/test_a.py::test_b\n"


def test_each_listed_family_exists() -> None:
    """Each file defines or imports the families that are listed for it."""
    families = [line.split()[1].split("::") for line in FAMILIES.read_text("utf-8").splitlines()]
    words = {file: set(re.findall(r"\w+", text(ROOT / file))) for file, *_ in families}
    missing = ["::".join((file, *names)) for file, *names in families if not words[file].issuperset(names)]
    assert not missing, f"{FAMILIES.name} lists families that are not there: write it again by {FAMILIES.stem}.py"
