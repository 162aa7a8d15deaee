"""Test the checker of words, its record (which may only shrink) and the subjects of commits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.project import words

SINCE = "5e87c8b"
"""The last commit before the rule for commit subjects was introduced."""
SUBJECT = re.compile(r"[\w./-]+(, [\w./-]+)*: (?!(the|a|an|what|how|of|where)\b)[a-z][\w'-]*(?<!ing)(?<!ed)\b.*")
ENDS_SO = re.compile(r": (bring|embed|exceed|feed|need|seed|shed|speed|string)\b")


def docstring(text: str) -> list[words.Offence]:
    return words.offences(f'def f():\n    """{text}"""\n', python=True)


@pytest.mark.parametrize("word", ["What", "Whether", "How", "Of", "Where", "Who", "Which"])
def test_a_docstring_that_is_a_noun_clause(word: str) -> None:
    assert docstring(f"{word} it gives.") == [(2, f"a docstring that begins with {word!r}: begin with a verb")]
    assert not docstring(f"Return {word.lower()} it gives.\n\n    {word} stands in a later paragraph.\n    ")


@pytest.mark.parametrize("count", [35, 36])
def test_a_long_sentence(count: int) -> None:
    long = " ".join(["word"] * (count - 1))
    for text in (f"Return {long}.", f"Return 1.\n\n    n : {long}.\n    ", f"Short one. A {long}. Another."):
        assert len(docstring(text)) == (count > 35), text
    assert len(words.offences(f"- Short.\n- A {long}.\n", python=False)) == (count > 35)


def test_code_and_tables_are_no_sentences() -> None:
    long = "word " * 50
    for text in (f"```python\n{long}\n```", f"| {long} |", f"    {long}", f"$$\n{long}\n$$", f"`{long}`, ${long}$"):
        assert not words.offences(f"Short.\n\n{text}\n\nShort.", python=False), text
        assert words.offences(f"Short.\n\n{text}\n\n{long}", python=False) != []


def test_words_of_our_own() -> None:
    found = docstring("Begin it anew.\n\n    What is no kernel,\n    for whoever comes.\n    ")
    assert [line for line, _ in found] == [2, 4, 5]
    assert words.offences("x = 'anew'  # afresh\n", python=True) == [(1, "says 'afresh'")]
    assert not docstring("Sinews are renewed: there is no bias, and it is no longer this now.")


def test_the_record_only_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, page = tmp_path / "words.toml", tmp_path / "page.md"
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "RECORD", record)
    page.write_text("Begin anew, and afresh.")
    assert words.main([]) == words.main(["--update"]) == 1
    assert "page.md: 2 offences, 0 in words.toml" in capsys.readouterr().out
    assert words.main(["--update", "--moved"]) == words.main([]) == 0
    page.write_text("Begin anew.")
    assert words.main([]) == 0
    assert "fewer offences than words.toml says in page.md" in capsys.readouterr().out
    assert words.main(["--update"]) == words.main([]) == 0
    assert '"page.md" = 1' in record.read_text()


def fits(subject: str) -> bool:
    """Return True for a subject "module: imperative ..." of at most 60 characters."""
    return len(subject) <= 60 and bool(SUBJECT.fullmatch(subject) or ENDS_SO.search(subject))


def test_a_subject_says_what_to_do() -> None:
    right = ("spread: mark the caller", "analytic/images: add terms", "losses, kappa: name it", "a: feed b")
    wrong = ("Mark the caller", "spread: Mark it", "spread: marked it", "spread: the mark", "a: " + "b" * 60)
    assert all(map(fits, right))
    assert not any(map(fits, wrong))


def test_subjects_of_commits() -> None:
    try:
        command = ["git", "log", "--no-merges", "--format=%s", f"{SINCE}..HEAD"]
        done = subprocess.run(command, cwd=words.ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git history back to the commit from which the rule holds")
    assert not (wrong := [subject for subject in done.stdout.splitlines() if not fits(subject)]), wrong
