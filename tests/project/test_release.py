"""Test the release command: green steps are not rerun, failures are red, and the table says both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.project import release


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two rows, one of which fails; both leave a mark at each run."""
    monkeypatch.setattr(release, "FOLDER", tmp_path)
    monkeypatch.setattr(release, "commit", lambda: "abc1234")
    monkeypatch.setattr(release, "python_of", lambda row: None if row == "newest-3.99" else sys.executable)
    marks = tmp_path / "marks"
    script = f"import sys; a = sys.argv[1]; open({str(marks)!r}, 'a').write(a); print('said', a); sys.exit(a == 'b')"
    monkeypatch.setattr(
        release, "ROWS", {"a": ["-c", script, "a"], "b": ["-c", script, "b"], "newest-3.99": ["-c", script, "c"]}
    )
    return marks


def called(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["release.py", *options])
    return release.main()


def test_what_is_green_is_not_run_again(
    rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch) == 1
    table = capsys.readouterr().out
    assert [line.split(" | ")[1] for line in table.splitlines()[2:]] == ["green", "red (1)", "not here"]
    assert "said a" in table
    assert called(monkeypatch) == 1
    assert rows.read_text() == "abb"  # b was red, and a was not asked again
    assert called(monkeypatch, "--rows", "a", "--again") == 0
    assert rows.read_text() == "abba"


def test_another_commit_or_changed_files_are_run_again(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for head, marks in (("abc1234", "a"), ("fff0000", "aa"), ("fff0000+", "aaa"), ("fff0000+", "aaaa")):
        monkeypatch.setattr(release, "commit", lambda head=head: head)
        assert called(monkeypatch, "--rows", "a") == 0
        assert rows.read_text() == marks


def test_the_table_alone_runs_nothing(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(monkeypatch, "--table") == 1
    assert not rows.exists()
