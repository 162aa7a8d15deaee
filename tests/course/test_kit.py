"""Test that the unpacked Gradescope kit chooses the right variant and file, and always writes results.json."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from kit import chosen, written

import build
from minintk.grade import load
from minintk.grade.hand_in import MARK
from tests.minintk.grade import tiny
from tests.minintk.grade.test_hand_in import notebook

NAMES = ["dense", "dense_backward"]
FOLDER = build.folders()[0]
VARIANT = load(FOLDER).variant("secret/ada@example.org")
SOLUTION = build.hard_coded((FOLDER / "solution.py").read_text(encoding="utf-8"), VARIANT)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kit")
    (out / "names.txt").write_text("ada@example.org\nbob@example.org\n")
    words = ["instructor", str(out), FOLDER.name, "--seed", "secret", "--names", str(out / "names.txt")]
    assert build.main(words) == 0
    with zipfile.ZipFile(out / f"{FOLDER.name}.zip") as archive:
        names = archive.namelist()
        archive.extractall(out / "source")
    assert not [name for name in names if "rubric" in name or "/right/" in name or "/wrong/" in name]
    return out / "source"


def ran(kit: Path, place: Path, mail: str, files: dict[str, str]) -> dict[str, Any]:
    """Run the kit in the same way as run_autograder, and return its results."""
    submission = place / "submission"
    shutil.rmtree(submission, ignore_errors=True)
    submission.mkdir()
    for name, text in files.items():
        (submission / name).write_text(text)
    (place / "metadata.json").write_text(json.dumps({"users": [{"email": mail}]}))
    words = [str(kit / "kit.py"), str(submission), str(place / "metadata.json"), str(place / "out" / "results.json")]
    env = {"PYTHONPATH": str(kit / "packages"), "PATH": "/usr/bin:/bin"}
    assert subprocess.run([sys.executable, *words], env=env, cwd=kit, capture_output=True).returncode == 0
    found: dict[str, Any] = json.loads((place / "out" / "results.json").read_text())
    return found


def test_the_file_is_chosen_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("from starter import dense\nprint(dense)\n")
    (tmp_path / "variant.py").write_text("bias = 'plus'\n")
    (tmp_path / "a_starter.py").write_text(tiny.STARTER)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "week1.py").write_text(tiny.SOLUTION)
    assert chosen(tmp_path, NAMES).name == "week1.py"
    # one function is written, the other is not
    half = tiny.STARTER.replace("W, b):\n    raise NotImplementedError", "W, b):\n    return x @ W", 1)
    (tmp_path / "sub" / "week1.py").write_text(half)
    assert chosen(tmp_path, NAMES).name == "week1.py"
    notebook(tmp_path / "z.ipynb", [("code", tiny.SOLUTION, [MARK])])
    assert chosen(tmp_path, NAMES).name == "z.ipynb"
    assert (written(tiny.STARTER, NAMES), written(half, NAMES), written(tiny.SOLUTION, NAMES)) == (0, 1, 2)
    with pytest.raises(FileNotFoundError, match="a script or notebook with network"):
        chosen(tmp_path, ["network"])


def test_the_right_file_is_graded_for_the_right_student(kit: Path, tmp_path: Path) -> None:
    files = {"check.py": "print(1)", "week1.py": SOLUTION, "variant.py": "activation = 'x'"}
    found = ran(kit, tmp_path, "Ada@Example.org", files)
    assert sum(test["score"] for test in found["tests"]) == pytest.approx(100)
    assert "graded: week1.py\nvariant of ada@example.org" in found["output"]


@pytest.mark.slow  # tests/minintk/grade/test_carried.py covers this by default
def test_an_error_is_carried_forward_there_too(kit: Path, tmp_path: Path) -> None:
    found = ran(kit, tmp_path, "ada@example.org", {"a.py": f"{SOLUTION}\n\ndef activate(z):\n    return 3 * z, z\n"})
    scores = {test["name"]: (test["score"], test["output"].partition("\n")[0]) for test in found["tests"]}
    assert scores["activation"][0] == 0
    said = "half of the points: right, but for what comes from activate, activate_backward"
    assert scores["gradients"] == (4, said)
    short = tmp_path / "kit"
    shutil.copytree(kit, short, ignore=lambda folder, names: ["solution.py"])
    found = ran(short, tmp_path, "ada@example.org", {"a.py": f"{SOLUTION}\n\ndef activate(z):\n    return 3 * z, z\n"})
    alone = {test["name"]: test["score"] for test in found["tests"]}
    assert alone == {name: 0 if text.startswith("half") else score for name, (score, text) in scores.items()}


@pytest.mark.parametrize(
    ("mail", "files", "says"),
    [
        ("eve@example.org", {"a.py": SOLUTION}, "eve@example.org: no variant is known for this address"),
        ("ada@example.org", {"readme.py": "x = 1"}, "expected a script or notebook with dense"),
        ("ada@example.org", {}, "got 0 files without"),
    ],
)
def test_what_is_not_graded_says_so(kit: Path, tmp_path: Path, mail: str, files: dict[str, str], says: str) -> None:
    found = ran(kit, tmp_path, mail, files)
    assert found["score"] == 0
    assert "tests" not in found
    assert says in found["output"]


def test_a_grader_that_fails_leaves_results(kit: Path, tmp_path: Path) -> None:
    broken = tmp_path / "kit"
    shutil.copytree(kit, broken, ignore=lambda folder, names: ["assignment"] * (Path(folder) == kit))
    found = ran(broken, tmp_path, "ada@example.org", {"a.py": SOLUTION})
    assert found["score"] == 0
    assert "The grader failed (FileNotFoundError" in found["output"] or "assignment expects" in found["output"]


def test_the_release_holds_no_solution(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        build.main(["release", str(tmp_path), "hw1"])
    assert build.main(["release", str(tmp_path)]) == 0
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        names = archive.namelist()
        everything = b"".join(archive.read(name) for name in names).decode("utf-8", "replace")
        about = archive.read("course/README.md").decode()
    assert "course/hw1_backprop/starter.ipynb" in names
    links = re.findall(r"\]\((?!https?:)([^)#]+)", about)
    assert len(links) == 6
    assert not [link for link in links if f"course/{link}" not in names]
    assert not [name for name in names if {*Path(name).parts} & {*build.KEPT_BACK}]
    dropped = [m[2].strip() for folder in build.folders() for m in build.SOLUTION.finditer(
        (folder / "solution.py").read_text(encoding="utf-8"))]  # fmt: skip
    assert len(dropped) > 40
    assert not [text for text in dropped if len(text) > 60 and text in everything]
