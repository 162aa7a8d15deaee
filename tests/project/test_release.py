"""Test the release command: green rows are not rerun, failures are red, and the table shows both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.project import release


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Define the rows `a`, `b` (which fails) and a row whose Python is missing. Return the file that lists the runs."""
    monkeypatch.setattr(release, "FOLDER", tmp_path)
    monkeypatch.setattr(release, "RECORD", tmp_path / "release.jsonl")
    monkeypatch.setattr(release, "TABLE", tmp_path / "release.md")
    monkeypatch.setattr(release, "git", lambda *arguments: "abc1234")
    monkeypatch.setattr(release, "files_hash", lambda row: "unchanged")
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
    assert rows.read_text() == "abb"  # row b was red and ran again; row a did not
    assert called(monkeypatch, "--rows", "a", "--again") == 0
    assert rows.read_text() == "abba"


def test_changed_files_are_run_again(
    rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for files, marks in (("unchanged", "a"), ("unchanged", "a"), ("changed", "aa"), ("unchanged", "aaa")):
        monkeypatch.setattr(release, "files_hash", lambda row, files=files: files)
        assert called(monkeypatch, "--rows", "a") == 0
        assert rows.read_text() == marks
    monkeypatch.setattr(release, "files_hash", lambda row: "changed")
    capsys.readouterr()
    called(monkeypatch, "--table")
    assert "| a | green, old |" in capsys.readouterr().out


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a program, a page, an example, a test, and a record of the release check."""
    files = {"code.py": 'def f():\n    """Say one."""\n    return 1\n', "page.md": "One."}
    files |= {"examples/one.py": "n = 1", "tests/one.py": "n = 1", "records": "", "table": ""}
    for folder in ("examples", "tests"):
        (tmp_path / folder).mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "RECORD", tmp_path / "records")
    monkeypatch.setattr(release, "TABLE", tmp_path / "table")
    monkeypatch.setattr(release, "git", lambda *arguments: "\n".join(files))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text", "changes"),
    [
        ("code.py", 'def f():\n    """Return one."""\n    return 1  # always\n', {"test"}),
        ("code.py", 'def f():\n    """Say one."""\n    return 2\n', {"test", "test-all", "mutants", "replicate"}),
        ("code.py", 'def f():\n    """Say one."""\n    return "1"\n', {"test", "test-all", "mutants", "replicate"}),
        ("page.md", "Two.", {"test"}),
        ("examples/one.py", "n = 2", {"test", "test-all", "replicate"}),
        ("tests/one.py", "n = 2", {"test", "test-all", "mutants"}),
        ("records", "{}", set()),
        ("table", "| a | green |", set()),
    ],
)
def test_prose_makes_no_row_of_programs_old(checkout: Path, file: str, text: str, changes: set[str]) -> None:
    before = {row: release.files_hash(row) for row in ("test", "test-all", "mutants", "replicate")}
    (checkout / file).write_text(text)
    assert {row for row, old in before.items() if release.files_hash(row) != old} == changes


def test_the_table_alone_runs_nothing(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(monkeypatch, "--table") == 1
    assert not rows.exists()


def test_a_program_is_the_same_in_each_python() -> None:
    """A program's text must not depend on the version of Python, because records contain its hash."""
    assert release.program('"""Say."""\ndef f(x): return f"{x!r:{3}}"') == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')]), body=[Return(value=JoinedStr(values="
        "[FormattedValue(value=Name(id='x', ctx=Load()), conversion=114, format_spec=JoinedStr(values=[FormattedValue("
        "value=Constant(value=3), conversion=-1)]))]))])])"
    )
