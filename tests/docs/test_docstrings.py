"""Test the conversion of docstrings to reStructuredText: no text is lost, split or mistaken for markup."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def docstrings() -> ModuleType:
    path = ROOT / "docs" / "_ext" / "docstrings.py"
    if not path.exists():
        pytest.skip("there are no docs in this tree (an installed package, say)")
    spec = importlib.util.spec_from_file_location("docstrings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(docstrings: ModuleType, text: str) -> list[str]:
    return [line for line in docstrings.restructured(text) if line]


def test_prose_is_plain_text_but_for_backticks(docstrings: ModuleType) -> None:
    assert lines(docstrings, "a * b * c in [0, 1], x_ and <u, J v>.\nA *meaning* of `x[i]`.") == [
        r"a \* b \* c in [0, 1], x\_ and <u, J v>. A *meaning* of ``x[i]``\ ."
    ]


def test_a_name_in_backticks_is_a_link(docstrings: ModuleType) -> None:
    assert lines(docstrings, "See `mn.ntk` or `train`.") == [
        r"See :py:obj:`mn.ntk <minintk.ntk>`\  or :py:obj:`train <train>`\ ."
    ]


def test_an_argument_keeps_its_continuation(docstrings: ModuleType) -> None:
    text = "memory : bytes; MemoryError, before any\n    work, if it does not fit.\nx : (N, d), y : (N, C).\n"
    text += "ValueError for NaN."
    assert lines(docstrings, text) == [
        "``memory``",
        "   bytes; MemoryError, before any work, if it does not fit.",
        "``x``",
        "   (N, d)",
        "``y``",
        "   (N, C).",
        "ValueError for NaN.",
    ]


def test_formulas_tables_and_examples_keep_their_form(docstrings: ModuleType) -> None:
    text = "The flow:\n\n    f'  = -K g\n      g = dL/df\n\nfirst   column\nsecond  column\n\nSo\n>>> f(0)\n[1]\n\nEnd."
    assert lines(docstrings, text) == [
        *["The flow:", ".. code-block:: text", "   f'  = -K g", "     g = dL/df"],
        *[".. code-block:: text", "   first   column", "   second  column"],
        *["So", ".. code-block:: pycon", "   >>> f(0)", "   [1]", "End."],
    ]


def test_two_spaces_after_a_full_stop_are_no_table(docstrings: ModuleType) -> None:
    assert lines(docstrings, "One.  Two.\nThree.  Four.") == ["One. Two. Three. Four."]


def test_an_underlined_line_is_a_heading(docstrings: ModuleType) -> None:
    assert lines(docstrings, "From outside\n------------\n\nText.") == [".. rubric:: From outside", "Text."]
