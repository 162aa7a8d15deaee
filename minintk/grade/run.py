"""One submission through one assignment: a grade, exercise by exercise."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.exercise import Assignment, Case, Exercise
from minintk.grade.submission import GraderError, Submission, SubmissionError

PUBLIC = "public"
"""The seed of those who have none."""


@dataclass(frozen=True)
class Graded:
    """One exercise of one submission.

    failures : (title of the case, what is wrong with it).  passed : how many of the `cases` are right.
    """

    exercise: Exercise
    cases: int
    passed: int
    failures: tuple[tuple[str, Diagnosis], ...]
    seconds: float

    @property
    def score(self) -> float:
        """Points: all for all cases, or for the part that passes where the exercise is `partial`."""
        if self.passed == self.cases and self.cases:
            return self.exercise.points
        return self.exercise.points * self.passed / self.cases if self.exercise.partial and self.cases else 0.0

    @property
    def text(self) -> str:
        """What is wrong, and the hint, a line each."""
        lines = [
            f"{title}: {finding}" if title else str(finding)
            for title, said in self.failures
            for finding in said.findings
        ]
        return "\n".join(
            [*dict.fromkeys(lines), *([f"hint: {self.exercise.hint}"] if self.exercise.hint and lines else [])]
        )


@dataclass(frozen=True)
class Grade:
    """A submission's grade.  exercises : in the assignment's order.  variant : what was asked of this submission."""

    assignment: str
    submission: str
    variant: dict[str, Any]
    exercises: tuple[Graded, ...]
    isolated: bool

    @property
    def score(self) -> float:
        """Points reached."""
        return sum(graded.score for graded in self.exercises)

    @property
    def points(self) -> float:
        """Points to be had."""
        return sum(graded.exercise.points for graded in self.exercises)

    @property
    def refused(self) -> tuple[str, ...]:
        """Names of the exercises that are not right."""
        return tuple(graded.exercise.name for graded in self.exercises if graded.score < graded.exercise.points)


def grade(
    assignment: Assignment,
    submission: str | os.PathLike[str],
    *,
    seed: str = PUBLIC,
    isolated: bool = True,
    hidden: bool = True,
    only: Sequence[str] = (),
) -> Grade:
    """Run the assignment's exercises on a submission, in a process of its own unless `isolated` is False.

    seed : the instructor's; it draws the variant and every input, and the same seed gives the same grade.  One for each
    student is a good idea: "spring-2027 secret/student".  hidden : include hidden exercises.  only : names of
    exercises. FileNotFoundError if there is no such file, ValueError for a name in `only` that no exercise has.
    Whatever goes wrong inside the submission is a finding, never an exception; GraderError for a case that
    cannot be sent to it, and where no process can start.
    """
    if unknown := set(only) - {exercise.name for exercise in assignment.exercises}:
        raise ValueError(f"only expects names of exercises, got {sorted(unknown)}")
    variant = assignment.variant(seed)
    chosen = [e for e in assignment.exercises if (hidden or not e.hidden) and (not only or e.name in only)]
    settings: dict[str, Any] = {
        "seconds": assignment.seconds,
        "memory": assignment.memory,
        "allowed": assignment.allowed,
    }
    closed = [assignment.folder] if assignment.folder else []
    with Submission(submission, variant, isolated=isolated, closed=closed, **settings) as student:
        graded = tuple(_one(student, e, list(assignment.cases(e, seed, variant))) for e in chosen)
    return Grade(assignment.name, os.fspath(submission), variant, graded, isolated)


def _one(student: Submission, exercise: Exercise, cases: Sequence[Case]) -> Graded:
    began, failures = time.perf_counter(), []
    for case in cases:
        said = _asked(student, exercise, case)
        if not said.passed:
            failures.append((case.title, said))
    return Graded(exercise, len(cases), len(cases) - len(failures), tuple(failures), time.perf_counter() - began)


def _asked(student: Submission, exercise: Exercise, case: Case) -> Diagnosis:
    try:
        return case.run(student)
    except SubmissionError as error:
        return Diagnosis((Finding(exercise.name, "error", str(error)),))
    except GraderError:
        raise
    except Exception as error:  # an answer of a shape that a Law did not expect: the student's to mend, and not a crash
        return Diagnosis(
            (Finding(exercise.name, "error", f"the answer cannot be checked: {type(error).__name__}: {error}"),)
        )
