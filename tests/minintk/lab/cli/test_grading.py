"""A class graded into one table: right, empty, missing, and a copy."""

import csv
import shutil
from pathlib import Path

import pytest

from minintk.lab import cli
from tests.minintk.grade.tiny import SOLUTION, STARTER

TINY = Path(__file__).parents[2] / "grade" / "tiny.py"


def test_a_class_becomes_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "course").mkdir()
    shutil.copy(TINY, tmp_path / "course" / "exercises.py")
    handed, table = tmp_path / "handed", tmp_path / "grades.csv"
    (handed / "cy").mkdir(parents=True)
    (handed / "cy" / "check.py").write_text("x = 1")
    for name, text in {"ada": SOLUTION, "bob": STARTER, "dan": SOLUTION.replace("db", "g"), "eve": "1 +"}.items():
        (handed / f"{name}.py").write_text(text)
    assert cli.main(["grade-class", str(tmp_path / "course"), str(handed), "--csv", str(table)]) == cli.OK
    rows = {row["Student"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert {name: float(row["tiny (10)"]) for name, row in rows.items()} == {
        "ada": 10, "bob": 0, "cy": 0, "dan": 10, "eve": 0,
    }  # fmt: skip
    assert "expected a script or notebook with dense" in rows["cy"]["remark"]
    assert "SyntaxError" in rows["eve"]["remark"]
    out = " ".join(capsys.readouterr().out.split())
    assert "100% ada dan" in out
    assert cli.main(["grade", str(tmp_path / "course"), str(handed / "ada.py"), "--similar", str(handed)]) == cli.FAILED
