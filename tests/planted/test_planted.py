"""Test that each law fails with its planted error and passes without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planted.planted import caught
from tests.planted.planting import PLANTED, Planted

PAGE = Path(__file__).resolve().parents[2] / "docs" / "planted-errors.md"
LAWS = list(dict.fromkeys(case.law for case in PLANTED))  # in the order of the sheet, the same in every process


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds_without_an_error(law: object) -> None:
    assert callable(law)
    law()


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.error)
def test_the_error_is_caught(case: Planted) -> None:
    said = caught(case)
    assert said is not None, f"{case.error}: the law let it pass"
    assert re.search(r"\d", said), f"no number in: {said}"


def test_the_page_lists_the_same_errors() -> None:
    """`python -m tests.planted.planted > docs/planted-errors.md` updates the page."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    page = sorted((row[0].removeprefix("| "), row[1]) for row in rows)
    assert page == sorted((case.error, case.law.__doc__) for case in PLANTED)  # independent of the import order
    assert not any("NOT CAUGHT" in row[2] for row in rows)


def test_there_are_many_and_no_two_are_the_same() -> None:
    assert len({case.error for case in PLANTED}) == len(PLANTED) >= 20
    assert len(LAWS) >= 15
