"""Test errors carried forward: a later exercise earns half its points if correct with the solution's functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minintk.grade import Assignment, Exercise, Grade, Gradient, Law, Submission, Values, grade, record

SOLUTION = """
def first(x):
    return 2 * x, x

def first_backward(u, cache):
    return 2 * u * (1 + 0 * cache)

def second(x):
    return first(x)[0] + 1

def third(x):
    return first_backward(second(x=x), first(x)[1])
"""


def one(*cases: Any) -> Any:
    return lambda rng, variant: list(cases)


X = np.arange(3.0)


def asked(student: Submission) -> str:
    return "" if student.call("first", X)[0][1] == 2 else "wrong"


ASSIGNMENT = Assignment(
    "chain",
    (
        Exercise("first", 4, one(Values("first", (X,), (2 * X, X)))),
        Exercise("first again", 4, one(Law("by itself", asked))),
        Exercise("second", 6, one(Values("second", (X,), 2 * X + 1)), hint="add 1"),
        Exercise("third", 10, one(Values("third", (X,), 4 * X + 2))),
    ),
)


@pytest.fixture(params=[True, False], ids=["isolated", "here"])
def graded(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    (tmp_path / "solution.py").write_text(SOLUTION)

    def run(text: str, **more: Any) -> Grade:
        path = tmp_path / "sub.py"
        path.write_text(text)
        folder = "" if more.pop("without", False) else str(tmp_path)
        chain = Assignment(ASSIGNMENT.name, ASSIGNMENT.exercises, folder=folder, seconds=2)
        return grade(chain, path, isolated=request.param, **more)

    return run


def scores(found: Grade) -> list[float]:
    return [g.score for g in found.exercises]


def test_what_comes_after_an_error_has_half(graded: Any) -> None:
    wrong = f"{SOLUTION}\ndef first(x):\n    return 3 * x, x\n"
    found = graded(wrong)
    assert scores(found) == [0, 0, 3, 5]  # functions graded directly are the student's own
    assert found.exercises[2].text.startswith("half of the points: right, but for what comes from first\n")
    assert "hint" not in found.exercises[2].text  # `second` is right
    assert graded(SOLUTION.replace("[0] + 1", "[0] + 2")).exercises[2].text.endswith("hint: add 1")
    assert found.refused == ("first", "first again", "second", "third")
    assert scores(graded(wrong, carry=False)) == scores(graded(wrong, without=True)) == [0, 0, 0, 0]
    assert scores(graded(SOLUTION)) == [4, 4, 6, 10]


def test_one_error_is_carried_and_no_second(graded: Any) -> None:
    """If two functions are wrong, an exercise that depends on both earns nothing.

    A copy of the solution to another student's variant therefore earns few points by carried errors.
    """
    assert scores(graded(SOLUTION.replace("2 * x, x", "3 * x, x").replace("[0] + 1", "[0] + 2"))) == [0, 0, 0, 0]


def test_a_second_error_costs_only_what_uses_it(graded: Any) -> None:
    wrong = SOLUTION.replace("2 * x, x", "3 * x, x").replace("second(x=x), ", "second(x=x) + 1, ")
    assert scores(graded(wrong)) == [0, 0, 3, 0]
    again = wrong.replace("def second(x):\n    return first(x)[0] + 1", "def second(x):\n    return 2 * x + 2")
    assert scores(graded(again.replace("second(x=x) + 1, ", "first(x)[0] + 1, "))) == [0, 0, 0, 5]


def test_what_is_not_written_yet_can_be_left_out(graded: Any) -> None:
    # a student has not written `first`
    assert scores(graded(SOLUTION.replace("return 2 * x, x", "raise NotImplementedError"))) == [0, 0, 3, 5]
    assert scores(graded("def second(x):\n    return first(x)[0] + 1\n")) == [0, 0, 3, 0]  # third is missing


def test_nothing_is_lent_to_who_has_made_no_error(graded: Any) -> None:
    """The grader lends its functions only after it finds an error, so a correct submission cannot reach the answers."""
    assert scores(graded(SOLUTION.replace("[0] + 1", "[0] + 2"))) == [4, 4, 0, 5]
    found = graded(SOLUTION.replace("2 * x, x", "3 * x, x").replace("first(x)[0] + 1", "third(x)"))
    assert scores(found)[2] == 0


def test_arguments_that_never_end_are_given_up(tmp_path: Path) -> None:
    """A solution that is called with a submission's arguments runs in a process with a time limit."""
    (tmp_path / "solution.py").write_text(
        SOLUTION.replace("def first(x):\n", "def first(x):\n    while x[0] > 10: pass\n")
    )
    path = tmp_path / "sub.py"
    path.write_text("def first(x):\n    return 3 * x, x\n\ndef second(x):\n    return first(x + 11)[0]\n")
    chain = Assignment(ASSIGNMENT.name, ASSIGNMENT.exercises, folder=str(tmp_path), seconds=1)
    assert grade(chain, path).score == 0  # without the limit, grading would not end


def test_a_submission_that_asks_for_what_is_not_lent_gets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sub.py"
    path.write_text(
        "import sys\n\ndef second(x):\n    frame = sys._getframe()\n    while 'lend' not in frame.f_locals:\n"
        "        frame = frame.f_back\n    return frame.f_locals['lend']('second', (x,), {})\n"
    )
    (tmp_path / "solution.py").write_text(SOLUTION)
    chain = Assignment(ASSIGNMENT.name, ASSIGNMENT.exercises, folder=str(tmp_path), seconds=2)
    found = grade(chain, path)
    assert found.score == 0
    assert "it asks for second, which is not lent" in found.exercises[2].text


def test_a_wrong_forward_function_is_blamed_and_not_its_right_backward_function(tmp_path: Path) -> None:
    """If a forward function is wrong, the report blames this function instead of the backward function.

    A recorded assignment compares gradients with finite differences of the submission's forward function.
    """
    rng = np.random.default_rng(0)
    args = rng.standard_normal((4, 3)), rng.standard_normal((3, 3)), rng.standard_normal(3)
    case = Gradient("dense", "dense_backward", args, title="square", right=lambda x, W, b: x @ W.T + b)
    whole = Assignment("square", [Exercise("dense backward", 1, [case])])
    right = "def dense(x, W, b): return x @ W.T + b\ndef dense_backward(u, x, W, b): return u @ W, u.T @ x, u.sum(0)\n"
    other = right.replace("u @ W, u.T @ x", "u @ W.T, x.T @ u")

    def result(assignment: Assignment, text: str) -> Grade:
        (tmp_path / "sub.py").write_text(text)
        return grade(assignment, tmp_path / "sub.py")

    given = record(whole, "a", tmp_path / "public.json")
    for assignment in (whole, given):
        assert result(assignment, right).score == 1
        turned = result(assignment, other).exercises[0].text
        assert "the map is transposed: u W and u W' are exchanged" in turned, turned
    said = "square: dense_backward: put dense right first: its differences are what this is compared with"
    for backward in (right, other):  # the wrong forward's own gradient fails too
        found = result(given, backward.replace("x @ W.T + b", "x @ W + b"))
        assert (found.score, found.exercises[0].text) == (0, said)
    assert result(whole, right.replace("x @ W.T + b", "x @ W + b")).score == 1  # compared with `right`
