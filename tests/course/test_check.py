"""Test the program that checks the course, on correct and wrong submissions. By default, only a few are checked."""

from dataclasses import replace
from pathlib import Path

import check
import pytest

from build import folders
from minintk.grade import load

FOLDER = folders()[0]


def sample() -> list[check.Task]:
    """Return tasks of assignment 1: the solution, the starter, a correct submission, wrong submissions and a cheat.

    The solution is not isolated here, because `test_kit` tests the solution in isolation.
    """
    found = list(check.tasks(FOLDER))
    wrong = [task for task in found if task.kind == "wrong"]
    cheat = next(task for task in wrong if task.isolated)
    names = ("solution", "starter", "right")
    solution, *others = (next(task for task in found if task.kind == kind) for kind in names)
    return [replace(solution, isolated=False), *others, *wrong[:5], cheat]


@pytest.mark.parametrize("task", sample(), ids=lambda task: f"{task.kind}-{task.name}")
def test_a_sample_comes_out_as_it_should(task: check.Task) -> None:
    outcome = check.run(task)
    assert not outcome.wrong, outcome.wrong


@pytest.mark.slow
@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_the_whole_course_comes_out_as_it_should(folder: Path) -> None:
    outcomes = check.course([folder.name], every=True)
    assert not [outcome for outcome in outcomes if outcome.wrong], check.report(outcomes)


def test_what_should_not_pass_is_found() -> None:
    """The check reports accepted wrong submissions, points lost in other exercises, and starters with answers."""
    solution, gone, right, wrong, *_ = sample()
    accepted = check.run(replace(wrong, text=solution.text, seed=solution.seed))
    assert "not refused by 'dense backward'" in accepted.wrong
    other = check.run(replace(wrong, refused=("sgd",)))
    assert "not refused by 'sgd'" in other.wrong
    assert "refused by 'dense backward': " in other.wrong
    assert "refused by 'dense backward': " in check.run(replace(right, text=wrong.text)).wrong
    given = check.run(replace(gone, text=solution.text, seed=solution.seed))
    assert given.wrong == "100 points, and not 0"
    table = check.report([accepted, check.run(gone)])
    assert "2 gradings, 1 wrong submissions: 1 came out otherwise than they should" in table


def test_headers() -> None:
    assert check.header("# refused by: a, b\n# isolated\nx = 1\n# variant: c") == {"refused by": "a, b", "isolated": ""}
    with pytest.raises(ValueError, match="expects a first line"):
        check.header("x = 1")


def test_wrong_submissions_name_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    assignment = load(FOLDER)
    for head, says in (("# refused by: nothing", "nothing"), ("# refused by: sgd\n# variant: loss = huber", "huber")):
        (tmp_path / "wrong" / "a.py").write_text(head)
        with pytest.raises(ValueError, match=says):
            list(check.wrong(tmp_path, assignment, ""))


def test_every_choice_is_graded() -> None:
    assignment = load(FOLDER).own()
    for every, count in ((False, 2), (True, 12)):  # seeds draw the numbers, and `every` draws all combinations
        drawn = [assignment.variant(seed) for seed in check.seeds(assignment, every=every)]
        assert len(drawn) >= count
        for name, some in assignment.variants.items():
            assert {variant[name] for variant in drawn} == set(some)
