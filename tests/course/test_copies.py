"""Test that the published solution earns nothing, and that a neighbour's solution earns at most half of the points."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from build import folders, hard_coded
from minintk.grade import Grade, grade, load

FOLDERS = {folder.name.partition("_")[0]: folder for folder in folders()}

SAME = {
    "hw1": {"dense", "dense backward", "log softmax", "large logits", "sgd"},
    "hw2": set[str](),
    "hw3": {"dense", "angles", "near-parallel", "z-test", "experiment"},
    "hw4": {"posterior", "measurement"},
    "hw5": {"fit", "verdict", "law of width", "law of scale"},
    "hw6": {"convention", "initial sizes", "learning rates", "shift", "initial weights", "best rate"},
}
"""Exercises whose answers can be equal for two students, namely if their layouts and conventions agree.

In hw3, the gain cancels in the quotient "experiment". In hw5, the laws are exponents, which no variant changes."""

HALF = {
    "hw1": {"network", "weights used twice"},
    "hw3": {"kernels", "kernels on hard inputs", "deep", "measurement"},
}
"""Exercises that earn half of their points, as the grader replaces the function with the neighbour's numbers."""


def graded(folder: Path, text: str, seed: str) -> Grade:
    """Grade a hand-in in the same way as students' hand-ins, but in this process."""
    with TemporaryDirectory() as place:
        path = Path(place, "sub.py")
        path.write_text(text)
        return grade(load(folder), path, seed=seed, isolated=False)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in ("hw1", "hw3") else pytest.mark.slow) for n in SAME])
def test_a_neighbours_solution_earns_nothing_that_its_variant_changes(name: str) -> None:
    """A neighbour's solution earns points only for the exercises in `SAME`, and half the points for those in `HALF`.

    The two students always differ in numbers or in the order of axes. All other choices may agree by chance.
    """
    folder = FOLDERS[name]
    assignment, solution = load(folder), (folder / "solution.py").read_text(encoding="utf-8")
    mine, its = (assignment.variant(f"secret/{student}") for student in ("ada", "bob"))
    own = next(key for key in ("gain", "weight", "layout") if key in mine)
    assert mine[own] != its[own]
    assert graded(folder, hard_coded(solution, mine), "secret/ada").score == pytest.approx(100)
    neighbours = hard_coded(solution, mine | {own: its[own]} | {k: its[k] for k in mine if k == "smoothing"})
    found = graded(folder, neighbours, "secret/ada")
    earned = {g.exercise.name for g in found.exercises if g.score and not g.carried}
    halves = {g.exercise.name for g in found.exercises if g.carried}
    assert halves <= HALF.get(name, set()), halves
    print(name, found.score)
    assert earned <= SAME[name], earned - SAME[name]
    assert found.score <= 50


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_the_published_solution_earns_nothing(folder: Path) -> None:
    found = graded(folder, (folder / "solution.py").read_text(encoding="utf-8"), "secret/ada")
    assert found.score == 0
    assert "does not load" in found.exercises[0].text


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_no_student_has_the_authors_variant(folder: Path) -> None:
    assignment = load(folder)
    assert assignment.authors
    assert not assignment.tells
    for name, choices in assignment.authors.items():
        assert len(set(assignment.variants[name])) >= 10
        assert not {*choices} & {*assignment.variants[name]}
