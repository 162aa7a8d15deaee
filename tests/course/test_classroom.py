"""A class graded into one table: a tiny one, and thirty hand-ins of an assignment; copies."""

import csv
import json
import shutil
import sys
from pathlib import Path

import classroom
import pytest
from check import header
from classroom import alike

from build import folders, hard_coded, notebook, starter
from minintk.grade import load
from tests.minintk.grade import tiny
from tests.minintk.grade.tiny import SOLUTION, STARTER


def table(path: Path) -> dict[str, dict[str, str]]:
    return {row["Student"]: row for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())}


def test_a_class_becomes_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "course").mkdir()
    shutil.copy(tiny.__file__, tmp_path / "course" / "exercises.py")
    handed, path = tmp_path / "handed", tmp_path / "grades.csv"
    (handed / "cy").mkdir(parents=True)
    (handed / "cy" / "check.py").write_text("x = 1")
    (handed / "fay.ipynb").write_text("{")
    for name, text in {"ada": SOLUTION, "bob": STARTER, "dan": SOLUTION.replace("db", "g"), "eve": "1 +"}.items():
        (handed / f"{name}.py").write_text(text)
    assert classroom.main(["class", str(tmp_path / "course"), str(handed), "--csv", str(path)]) == 0
    rows = table(path)
    assert {name: float(row["tiny (10)"]) for name, row in rows.items()} == {
        "ada": 10, "bob": 0, "cy": 0, "dan": 10, "eve": 0, "fay": 0,
    }  # fmt: skip
    assert "expected a script or notebook with dense" in rows["cy"]["remark"]
    assert "SyntaxError" in rows["eve"]["remark"]
    assert f"alike  100%  {handed / 'ada.py'}  {handed / 'dan.py'}" in capsys.readouterr().out


def thirty(folder: Path, place: Path, secret: str) -> dict[str, float | None]:
    """Hand in for thirty students; {student: the points he has to get, None for some of them}."""
    assignment, solution = load(folder), (folder / "solution.py").read_text(encoding="utf-8")
    place.mkdir()
    points: dict[str, float | None] = {}

    def hand_in(name: str, text: str, worth: float | None, end: str = "py") -> None:
        (place / f"{name}.{end}").write_text(text, encoding="utf-8")
        points[name] = worth

    def own(name: str) -> str:
        return hard_coded(solution, assignment.variant(f"{secret}/{name}"))

    for k in range(9):
        hand_in(f"right-{k}", own(f"right-{k}"), 100)
    for k in range(3):
        hand_in(f"notebook-{k}", json.dumps(notebook("# Words", own(f"notebook-{k}"))), 100, "ipynb")
    mistakes = [
        p for p in sorted(folder.glob("wrong/*.py")) if not {"alone", "variant", "isolated"} & {*header(p.read_text())}
    ]
    for k, path in enumerate(mistakes[:8]):
        hand_in(f"wrong-{k}", f"{own(f'wrong-{k}')}\n\n{path.read_text(encoding='utf-8')}", None)
    hand_in("starter", starter(solution, assignment.variant(f"{secret}/starter")), 0)
    hand_in("empty", "", 0)
    hand_in("syntax", "def f(:", 0)
    hand_in("damaged", "{", 0, "ipynb")
    hand_in("hangs", f"{own('hangs')}\nwhile True: pass\n", 0)
    hand_in("slow", f"{own('slow')}\n\ndef dense(*args):\n    while True: pass\n", None)
    hand_in("dies", "import os\nos._exit(0)", 0)
    hand_in("published", solution, 0)
    for name in ("copy-1", "copy-2"):
        hand_in(name, f"{own('copy-1')}# mine\n", 100 if name == "copy-1" else None)
    return points


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_thirty_hand_ins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = next(folder for folder in folders() if "hw3" in folder.name)
    points = thirty(folder, tmp_path / "handed", "secret")
    assert len(points) == 30
    words = ["class", str(folder), str(tmp_path / "handed"), "--seed", "secret", "--csv", str(tmp_path / "grades.csv")]
    assert classroom.main(words) == 0
    said = capsys.readouterr().out
    print(said)
    rows = table(tmp_path / "grades.csv")
    assert len(rows) == 30
    for name, worth in points.items():
        got = float(rows[name]["hw3_kernels (100)"])
        assert 0 < got < 100 if worth is None else got == pytest.approx(worth), (name, got, rows[name]["remark"])
    assert "no answer within 30 s" in rows["hangs"]["remark"]
    assert "the grader hands over no variant" in rows["published"]["remark"]
    assert f"alike  100%  {tmp_path / 'handed' / 'copy-1.py'}  {tmp_path / 'handed' / 'copy-2.py'}" in said


def test_a_copy_with_other_names_is_alike_and_other_work_is_not() -> None:
    copy = SOLUTION.replace("x", "inputs").replace("W", "weights").replace("db", "grad") + "# my own words\n"
    other = "import numpy as np\n" + "\n".join(
        f"def g{i}(a):\n    out = []\n    for k in range(len(a)):\n        out.append(np.exp(a[k]))\n    return out"
        for i in range(3)
    )
    assert alike(SOLUTION, copy) > 0.95
    assert alike(SOLUTION, other) < 0.2
    assert alike(SOLUTION, SOLUTION, given=SOLUTION) == 0
    assert alike("1 +", SOLUTION) == 0
