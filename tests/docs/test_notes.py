"""Test that the notes' figures exist, are small and are used, and that functions in the notes occur in assignments."""

import ast
import re
from pathlib import Path

import pytest

from minintk.grade.worker import execute

NOTES = Path(__file__).resolve().parents[2] / "docs" / "notes"
CHAPTERS = sorted(NOTES.glob("[1-6]-*.md"))
OF_THE_LIBRARY = {"forward", "backward", "MeanField", "slope_interval"}


def asked() -> set[str]:
    """Return the names of the functions in the solutions of all assignments."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in NOTES.parents[1].glob("course/hw*/solution.py")]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_figure_is_there_and_every_file_is_a_figure() -> None:
    shown = [name for page in CHAPTERS for name in re.findall(r"\{figure\} (\S+)", page.read_text(encoding="utf-8"))]
    assert len(CHAPTERS) == 6
    assert sorted(shown) == sorted(path.name for path in NOTES.glob("*.svg"))
    assert max((NOTES / name).stat().st_size for name in shown) < 150_000


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_a_chapter_has_what_a_chapter_needs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)(?:\([^`]*\))?`", text)) - OF_THE_LIBRARY
    assert named <= asked(), named - asked()
    assert named, "a chapter names the student's own function"
    assert text.count("*Proof") >= 2
    for part in ("## Questions", "## Sources", "python docs/notes/figures"):
        assert text.count(part) == 1, part


def test_links_lead_somewhere_in_the_repository_and_on_the_site() -> None:
    pages = execute("pages", NOTES.parent / "_ext" / "pages.py")
    for page in NOTES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
        assert not [link for link in links if not (NOTES / link).exists()], page
        source = [text]
        pages.on_source(None, f"notes/{page.stem}", source)
        assert source[0].count("](../course/kit-hw") == text.count("](../../course/hw") > 0
