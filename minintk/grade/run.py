"""Run one submission through one assignment, and write the grade in several formats.

The formats are JUnit XML for CI (read by Jenkins and GitLab), Gradescope's results.json, an HTML page, and table rows
for the terminal.  For results.json, see https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from minintk.files.pages import page
from minintk.grade.compare import Diagnosis, Finding
from minintk.grade.exercise import Assignment, Case, Exercise
from minintk.grade.submission import GraderError, Submission, SubmissionError
from minintk.grade.worker import UNWRITTEN

CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa0-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""Control characters in a submission's messages.  They must not reach terminals, pages or XML."""


@dataclass(frozen=True)
class Graded:
    """The result of one exercise of one submission.

    failures : pairs (title of the case, its errors).  passed : the number of passed cases, out of `cases`.  carried :
    wrong functions; with correct versions of them, the exercise passes and earns half of its points.
    """

    exercise: Exercise
    cases: int
    passed: int
    failures: tuple[tuple[str, Diagnosis], ...]
    seconds: float
    carried: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """Return the points: all if all cases pass, in proportion if the exercise is `partial`, half if carried."""
        part = self.passed / self.cases if self.cases else 0.0
        return self.exercise.points * (0.5 if self.carried else part if self.exercise.partial else part == 1)

    @property
    def text(self) -> str:
        """Describe the errors, one line for each finding with the cases that show it, then any hint.

        Unwritten functions, errors on one line, and NaN or unexplained values in one place are each reported only once.
        """
        alike: dict[tuple[str, ...], tuple[str, dict[str, None]]] = {}
        for title, found in self.failures:
            for one in found.findings:
                said = one.text if one.where == self.exercise.name else str(one)
                line = one.text.find(" (line ") if one.cause == "error" else -1
                kind = one.text[line:] if line >= 0 else one.cause if one.cause in ("nan", "unnamed") else ""
                same = (one.where, kind) if kind else (said,)
                alike.setdefault(same, (said, {}))[1][title] = None
        others, hint = ", ".join(self.carried), ""
        lines = [f"half of the points: right, but for what comes from {others}"] * bool(others)
        for key, (said, (first, *more)) in alike.items():
            if said.endswith(UNWRITTEN) or said.startswith("the file does not load"):
                lines.append(said)
                continue
            others = "; ".join(more) if len(more) < 3 else f"{len(more)} others"
            if len(key) > 1 and more:
                said += f" (and in {others})"
            elif more:
                first = f"all {self.cases} cases" if len(more) == self.cases - 1 else f"{first}; {others}"
            lines.append(f"{first}: {said}".removeprefix(": "))
            hint = "" if self.carried else self.exercise.hint
        return CONTROL.sub("", "\n".join([*lines, f"hint: {hint}"] if hint else lines))


@dataclass(frozen=True)
class Grade:
    """The grade of a submission.  exercises : the results, in order.  variant : the variant selected by the seed.

    wall : the mechanisms of the sandbox, e.g. "Landlock 7, seccomp"; None if no sandbox was built.
    """

    assignment: str
    submission: str
    variant: dict[str, Any]
    exercises: tuple[Graded, ...]
    isolated: bool
    wall: str | None = None

    @property
    def warning(self) -> str:
        """Return the warning that the sandbox or a part of it is missing, or "" if it is complete or unknown."""
        if not self.isolated:
            return "Run without a process of its own: not for marks."
        if self.wall is None or ("Landlock" in self.wall and "seccomp" in self.wall):
            return ""
        missing = " and no ".join(name for name in ("Landlock", "seccomp") if name not in self.wall)
        return f"NO WALL: this system has no {missing}; a submission can read and write what its user can."

    @property
    def sandbox(self) -> str:
        """Return the line about the sandbox that every report contains: the warning, or the mechanisms in use."""
        return self.warning or f"confined by {self.wall}" * bool(self.wall)

    @property
    def score(self) -> float:
        """Return the points that the submission earned."""
        return sum(graded.score for graded in self.exercises)

    @property
    def points(self) -> float:
        """Return the maximum number of points."""
        return sum(graded.exercise.points for graded in self.exercises)

    @property
    def refused(self) -> tuple[str, ...]:
        """Return the names of the exercises that did not earn full points."""
        return tuple(graded.exercise.name for graded in self.exercises if graded.score < graded.exercise.points)


def grade(
    assignment: Assignment,
    submission: str | os.PathLike[str],
    *,
    seed: str = "public",
    isolated: bool = True,
    hidden: bool = True,
    only: Sequence[str] = (),
    told: Callable[[Grade], Any] | None = None,
    carry: bool = True,
) -> Grade:
    """Run the assignment's exercises on a submission, in its own process unless `isolated` is False.

    seed : the instructor's seed.  It determines the variant and random inputs, so grades are reproducible unless a call
    times out.  hidden : True to include hidden exercises.  only : exercises or functions to grade.  told : called
    with the grade after each exercise.  carry : True to carry the first error forward, if solution.py is next to the
    exercises.  A later exercise that passes with the solution's function in place of the wrong one earns half of its
    points.  Errors in the submission are reported in the grade, not raised.  Raises FileNotFoundError for a missing
    submission, ValueError for an unknown name in `only`, and GraderError if a case cannot be sent or no process starts.
    """
    variant = assignment.variant(seed)
    shown = [e for e in assignment.exercises if hidden or not e.hidden]
    names = {e.name: {e.name} for e in shown}
    for e in shown if {*only} - {*names} else ():  # a function in `only` selects the exercises that need it
        cases = assignment.cases(e, seed, variant)
        names[e.name] |= {getattr(case, "backward", getattr(case, "function", "")) for case in cases}
    if unknown := {*only}.difference(*names.values()):
        raise ValueError(f"only (--only) expects functions or exercises {[*names]}, got {sorted(unknown)}")
    chosen = [e for e in shown if not only or names[e.name] & {*only}]
    limits = {name: getattr(assignment, name) for name in ("seconds", "memory", "allowed")} | {"isolated": isolated}
    with Submission(submission, variant if assignment.tells else {}, **limits) as student:
        graded = [Graded(e, 0, 0, (("", NOT_YET),), 0.0) for e in chosen]
        found = Grade(assignment.name, os.fspath(submission), variant, tuple(graded), isolated)
        reference, error = Path(assignment.folder, "solution.py"), set[str]()
        carry = carry and bool(assignment.folder) and reference.is_file()
        for k, e in enumerate(chosen):
            student.asked.clear()
            graded[k] = _one(student, e, list(assignment.cases(e, seed, variant)))
            mine, lent = set(student.asked), sorted(error - student.asked)
            if carry and graded[k].failures and lent and not student.broken:
                with Submission(reference, variant, **limits) as lender, student.lent(lent, lender):  # lender can hang
                    if not _one(student, e, list(assignment.cases(e, seed, variant))).failures:
                        graded[k] = replace(graded[k], carried=tuple(lent))
            if error & mine or (graded[k].failures and not error):
                error |= mine  # a backward function belongs to its forward function, whose cache it reads
            found = replace(found, exercises=tuple(graded), wall=student.wall)
            if told is not None:
                told(found)
        return found


NOT_YET = Diagnosis((Finding("", "stopped", "the grader has not come to it: it was stopped, or is still at work"),))


def _one(student: Submission, exercise: Exercise, cases: Sequence[Case]) -> Graded:
    began, failures = time.perf_counter(), []
    for case in cases:
        student.warned = ""
        try:
            said = case.run(student)
            if student.warned and "nan" in (finding.cause for finding in said.findings):
                said = Diagnosis((*said.findings, Finding(exercise.name, "warning", f"NumPy: {student.warned}")))
        except GraderError:
            raise
        except Exception as error:  # the student's error, e.g. an answer with a shape that a Law did not expect
            known = isinstance(error, SubmissionError)
            text = str(error) if known else f"the answer cannot be checked: {type(error).__name__}: {error}"
            said = Diagnosis((Finding(exercise.name, "error", text),))
        if said:
            failures.append((case.title, said))
    return Graded(exercise, len(cases), len(cases) - len(failures), tuple(failures), time.perf_counter() - began)


COLUMNS = ("exercise", "points", "cases", "what is wrong")  # the columns of `rows`


def rows(grade: Grade) -> list[tuple[str, str, str, str]]:
    """Return a row for each exercise: its name, its points, the number of passed cases, and reasons for failures."""
    return [
        (f"{e.name}{' (hidden)' * e.hidden}", f"{g.score:g} / {e.points:g}", f"{g.passed} / {g.cases}", g.text)
        for g, e in ((g, g.exercise) for g in grade.exercises)
    ]


def junit(grade: Grade) -> str:
    """Return JUnit XML: a test case for each exercise, with a failure and its reasons if any case fails."""
    failed, seconds = sum(bool(g.failures) for g in grade.exercises), sum(g.seconds for g in grade.exercises)
    numbers = {"name": grade.assignment, "tests": f"{len(grade.exercises)}", "failures": f"{failed}", "errors": "0"}
    top = ElementTree.Element("testsuites", numbers := numbers | {"time": f"{seconds:.3f}"})
    suite = ElementTree.SubElement(top, "testsuite", numbers | {"skipped": "0"})
    ElementTree.SubElement(suite, "system-out").text = grade.sandbox
    for g in grade.exercises:
        said = {"name": g.exercise.name, "classname": grade.assignment, "time": f"{g.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", said)
        if g.failures:
            ElementTree.SubElement(case, "failure", message=g.text.partition("\n")[0], type="wrong").text = g.text
    ElementTree.indent(top)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(top, encoding='unicode')}\n"


def gradescope(grade: Grade) -> str:
    """Return Gradescope's results.json with scores and reasons.  Hidden exercises become visible after the due date."""
    tests = [
        {
            "name": g.exercise.name, "number": str(number), "score": g.score, "max_score": g.exercise.points,
            "status": "failed" if g.failures else "passed", "output": g.text or "all right", "output_format": "text",
            "visibility": "after_due_date" if g.exercise.hidden else "visible",
        }
        for number, g in enumerate(grade.exercises, 1)
    ]  # fmt: skip
    found = {
        "execution_time": round(sum(g.seconds for g in grade.exercises), 3), "output_format": "text",
        "output": "\n".join(filter(None, (grade.sandbox, asked(grade)))), "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"variant": grade.variant, "isolated": grade.isolated, "wall": grade.wall}, "tests": tests,
    }  # fmt: skip
    return json.dumps(found, indent=2, default=str)


def asked(grade: Grade) -> str:
    """Return the assignment's name and the variant's choices as one line of text."""
    return ", ".join([grade.assignment, *(f"{name}: {choice}" for name, choice in grade.variant.items())])


def html(grade: Grade) -> str:
    """Return a self-contained page with the score and, for each exercise, the points and reasons for failures."""
    title = f"{grade.assignment}: {grade.score:g} of {grade.points:g} points"
    known = {"submission": grade.submission, "asked": asked(grade), "warning": grade.warning, "wall": grade.wall}
    return page("minintk.grade", title=title, exercises=rows(grade), **known)
