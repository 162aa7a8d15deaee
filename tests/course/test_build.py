"""Test the files that students and instructors receive, and the parts of every assignment's folder."""

import ast
import json
import re
import zipfile
from pathlib import Path

import pytest
from check import header

import build
from minintk.grade import grade, load

FOLDERS = build.folders()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_assignment_has_all_of_its_parts(folder: Path) -> None:
    assignment = load(folder)
    assert round(sum(exercise.points for exercise in assignment.exercises), 9) == 100
    assert assignment.variants
    assert any(exercise.hidden for exercise in assignment.exercises)
    assert len(list(folder.glob("wrong/*.py"))) >= 14
    assert len(list(folder.glob("right/*.py"))) >= 3
    text = (folder / "handout.md").read_text(encoding="utf-8")
    assert text.partition("\n")[0].endswith(f"course/build.py student --seed ANY-WORD mine {folder.name[:3]}`")
    for number in range(8):
        made = build.handout(text, assignment.variant(str(number)))
        assert made.startswith("# Assignment ")  # the line for readers of the repository is removed
        assert "{{" not in made
        assert "<!-- if" not in made
    assert (folder / "rubric.md").read_text(encoding="utf-8").count("|") > 10


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_handout_and_the_starter_name_every_function_that_is_asked_for(folder: Path) -> None:
    solution, variant = (folder / "solution.py").read_text(encoding="utf-8"), load(folder).variant("a")
    left = {
        node.name for node in ast.walk(ast.parse(build.starter(solution, variant))) if isinstance(node, ast.FunctionDef)
    }
    text = (folder / "handout.md").read_text(encoding="utf-8")
    assert left
    assert not [name for name in sorted(left) if f"`{name}" not in text]


def test_the_cheats_are_among_the_wrong_ones() -> None:
    wrong = [path.read_text(encoding="utf-8") for folder in FOLDERS for path in folder.glob("wrong/*.py")]
    assert all(header(text)["refused by"] for text in wrong)
    for cheat in ('sys.modules["analytic"]', "np.allclose =", "while True", "from minintk import"):
        assert any(cheat in text for text in wrong), cheat


def test_a_students_folder_holds_no_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = FOLDERS[0]
    assert build.main(["student", str(tmp_path), folder.name, "--seed", "s/ada"]) == 0
    place = tmp_path / folder.name
    assert f"-m minintk grade {place} {place / 'starter.py'}" in capsys.readouterr().out  # names the next command
    assert (place / "handout.md").read_text(encoding="utf-8").startswith("# Assignment 1")
    assert {path.name for path in place.iterdir()} == {
        "handout.md", "hw1_experiment.py", "public.json", "report.md", "starter.ipynb", "starter.py",
    }  # fmt: skip
    left = (place / "starter.py").read_text(encoding="utf-8")
    solution = (folder / "solution.py").read_text(encoding="utf-8")
    dropped = [m[2].strip() for m in build.SOLUTION.finditer(solution)]
    everything = b"".join(path.read_bytes() for path in place.iterdir()).decode("latin-1")
    assert len(dropped) > 3
    assert len(everything) < 200_000
    assert not [text for text in dropped if text in everything]
    holes = [m for m in build.SOLUTION.finditer(solution) if m[1]]  # indented solutions are bodies of functions
    assert left.count("raise NotImplementedError") == len(holes) > 3  # each body is left for the student to write
    given = load(place / "public.json")
    hidden = {exercise.name for exercise in load(folder).exercises if exercise.hidden}
    assert not hidden & {exercise.name for exercise in given.exercises}
    mine = tmp_path / "mine.py"
    mine.write_text(build.hard_coded(solution, load(folder).variant("s/ada")))
    assert grade(given, mine, isolated=False).score == sum(e.points for e in given.exercises) > 0
    assert grade(given, place / "starter.py", isolated=False).score == 0


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_points_and_hours_on_the_pages_are_those_of_the_course(folder: Path) -> None:
    """The rubric lists the points of all exercises. The handout's table, if any, omits the measurement."""
    worth = {exercise.name: exercise.points for exercise in load(folder).exercises}
    row = re.compile(r"^\| ([^|(]+?)(?: \(hidden\))? \| ([\d.]+) \|", re.MULTILINE)
    rubric, handout = ((folder / page).read_text(encoding="utf-8") for page in ("rubric.md", "handout.md"))
    assert {name: float(points) for name, points in row.findall(rubric)} == worth
    listed = {name: float(points) for name, points in row.findall(handout)}
    assert listed in ({}, {name: points for name, points in worth.items() if name != "measurement"})
    hours = re.search(rf"\({folder.name}/handout.md\).*\| (\d+) \|", (build.COURSE / "README.md").read_text("utf-8"))
    assert hours
    assert f"bout {('six', 'seven', 'eight')[int(hours[1]) - 6]} hours" in handout


def test_the_variant_of_the_handout_is_that_of_the_grade(tmp_path: Path) -> None:
    folder = FOLDERS[0]
    names = tmp_path / "names.txt"
    names.write_text("ada\nbob\n")
    words = [str(tmp_path), folder.name, "--seed", "secret", "--names", str(names)]
    assert build.main(["class", *words]) == 0
    assert build.main(["instructor", *words]) == 0
    with zipfile.ZipFile(tmp_path / f"{folder.name}.zip") as archive:
        inside = set(archive.namelist())
        assert {"assignment/exercises.py", "packages/minintk/grade/worker.py", "run_autograder"} <= inside
        assert archive.read("seed.txt") == b"secret"
        rows = archive.read("students.csv").decode().splitlines()
    assignment = load(folder)
    for name, row in zip(("ada", "bob"), rows[1:], strict=True):
        drawn = assignment.variant(f"secret/{name}")
        assert row == ",".join([name, *map(str, drawn.values())])
        told = (tmp_path / name / folder.name / "handout.md").read_text()
        assert f"gain: `{drawn['gain']}`" in told
        assert "variant.py" not in told


def test_students_get_the_library_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(build.installed(tmp_path)) as archive:
        inside = set(archive.namelist())
    assert {"pyproject.toml", "README.md", "LICENSE", "minintk/__init__.py", "minintk/grade/page.html"} <= inside
    assert not [name for name in inside if "pycache" in name or name.startswith(("course", "tests"))]


def test_the_notebook_is_the_starter(tmp_path: Path) -> None:
    folder = FOLDERS[0]
    code = build.starter((folder / "solution.py").read_text(encoding="utf-8"), load(folder).variant("a"))
    made = json.loads(json.dumps(build.notebook("# Handout", code)))
    joined = "\n\n\n".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code")
    whole = ast.parse(code)
    whole.body = whole.body[1:]  # the docstring is in a text cell
    assert ast.dump(ast.parse(joined)) == ast.dump(whole)
    assert made["nbformat"] == 4
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])


def test_a_slip_in_the_sources_is_said() -> None:
    with pytest.raises(ValueError, match="pairs of # BEGIN SOLUTION"):
        build.starter("def f():\n    # BEGIN SOLUTION\n    return 1\n", {})
    with pytest.raises(ValueError, match="pairs of # BEGIN SOLUTION"):
        build.starter("def f():\n    return 1\n", {})
    with pytest.raises(ValueError, match="alone"):
        build.handout("a <!-- if f = relu --> b", {"f": "relu"})
    with pytest.raises(KeyError, match="g"):
        build.handout("{{g}}", {"f": "relu"})
    with pytest.raises(ValueError, match="expected the beginning of"):
        build.folders(["nothing"])


def test_given_code_is_in_the_students_variant() -> None:
    folder = next(folder for folder in FOLDERS if "hw5" in folder.name)
    text = build.starter(
        (folder / "solution.py").read_text(encoding="utf-8"), load(folder).variant("a") | {"gain": 1.23}
    )
    assert "GAIN = 1.23\n" in text  # phi needs this constant
    assert "LOSS" not in text  # the student has to write this part


def test_lines_that_belong_to_a_choice_go_as_lines() -> None:
    text = "a\n<!-- if f = x | y -->\nb\n<!-- end -->\nc\n"
    assert build.handout(text, {"f": "y"}) == "a\nb\nc\n"
    assert build.handout(text, {"f": "z"}) == "a\nc\n"
