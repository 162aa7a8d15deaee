"""Test that the hand-ins of a class are graded into one table: a tiny class, thirty hand-ins, and copied hand-ins."""

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import classroom
import pytest
from check import header
from classroom import alike, pairs

import build
from build import folders, hard_coded, notebook, starter, student
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
    (handed / "gus.txt").write_text(SOLUTION)
    (names := tmp_path / "names.txt").write_text("ada bob cy dan eve fay gus\n")
    words = ["class", str(tmp_path / "course"), str(handed), "--csv", str(path)]
    assert classroom.main([*words, "--names", str(names)]) == 0
    rows = table(path)
    assert {name: float(row["tiny (10)"]) for name, row in rows.items()} == {
        "ada": 10, "bob": 0, "cy": 0, "dan": 10, "eve": 0, "fay": 0, "gus": 0,
    }  # fmt: skip
    assert "expected a script or notebook with dense" in rows["cy"]["remark"]
    assert rows["bob"]["remark"] == "dense: dense is not written yet"
    assert not rows["ada"]["remark"]
    assert rows["eve"]["remark"].startswith("dense: the file does not load: SyntaxError")
    assert rows["gus"]["remark"] == "nothing handed in"
    said = capsys.readouterr().out
    assert f"alike  100%  {handed / 'ada.py'}  {handed / 'dan.py'}" in said
    assert "not graded: gus.txt is no script" in said
    assert re.search("^sandbox: (confined by|NO WALL)", said, re.MULTILINE)
    listed = [*words, "--names", str(names)]
    for refused, text, more in ((words, "--names FILE", "hal.py"), (listed, r"got \['hal'\]", "hal.py"),
                                (listed, r"second one for \['ada.ipynb'\]", "ada.ipynb")):  # fmt: skip
        (handed / more).write_text(SOLUTION)
        with pytest.raises(SystemExit):
            classroom.main(refused)
        assert re.search(text, capsys.readouterr().err)


def test_a_class_is_graded_in_the_variants_it_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Building and grading reject variants of a kind not handed out, with which correct answers would lose points."""
    secret, names = tmp_path / "secret.txt", tmp_path / "names.txt"
    secret.write_text("a secret")
    names.write_text("ada")
    (tmp_path / "handed").mkdir()
    seed = ["--seed", f"@{secret}"]
    grading = ["class", "hw1_backprop", str(tmp_path / "handed"), *seed, "--csv", str(tmp_path / "grades.csv")]
    kinds = {"student": ["--one-variant"], "class": ["--names", str(names)]}
    for kind, other in (("student", "class"), ("class", "student")):
        secret.with_suffix(".made.json").unlink(missing_ok=True)
        assert build.main([kind, str(tmp_path / kind), "hw1", *seed, "--names", str(names)]) == 0
        assert classroom.main([*grading, *kinds[kind]]) == 0
        capsys.readouterr()
        kit = ["instructor", str(tmp_path), "hw1", *seed, *(["--names", str(names)] if kind == "student" else [])]
        for program, words in ((classroom, [*grading, *kinds[other]]), (build, kit)):
            with pytest.raises(SystemExit):
                program.main(words)
            assert "hw1_backprop was handed out with" in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        classroom.main(["class", "hw1_backprop", str(tmp_path / "none"), "--one-variant"])
    assert "No such file" in capsys.readouterr().err


def thirty(folder: Path, place: Path, secret: str) -> dict[str, float | None]:
    """Write thirty students' hand-ins. Return {student: expected points, or None for a number between 0 and 100}."""
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
    (tmp_path / "names.txt").write_text("\n".join(points))
    assert classroom.main([*words, "--names", str(tmp_path / "names.txt")]) == 0
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


def test_untouched_starters_are_not_alike(tmp_path: Path) -> None:
    folder = next(folder for folder in folders() if "hw1" in folder.name)
    for name in ("ada", "bob"):
        student(folder, name, tmp_path / name)
    (handed := tmp_path / "handed").mkdir()
    for name in ("ada", "bob"):
        shutil.copy(tmp_path / name / folder.name / "starter.py", handed / f"{name}.py")
    assert pairs(load(folder), handed, 0.01) == []
