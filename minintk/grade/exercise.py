"""Define assignments and exercises.  A secret seed determines the cases, the hard inputs and the variant.

A case specifies calls and checks their results.  During grading, the correct results stay in the grader's process.  See
docs/course/writing-an-exercise.md.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from minintk.files.reading import reading, whole_file
from minintk.files.writing import write_atomically
from minintk.grade.compare import Diagnosis, Finding, compare
from minintk.grade.gradient import check_pair, floating
from minintk.grade.submission import Submission
from minintk.grade.worker import execute, pack, unpack

Variant = Mapping[str, Any]
Examples = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Values:
    """Require that function(*args) returns `want`: arrays, numbers, strings, or tuples and dicts of them.

    rtol : the tolerance relative to the largest magnitude in `want`; see `minintk.grade.compare`.
    suspects : {description of a mistake that this exercise invites: the wrong result}, reported if it matches.
    """

    function: str
    args: tuple[Any, ...]
    want: Any
    title: str = ""
    rtol: float | None = None
    suspects: Mapping[str, Any] = field(default_factory=dict)
    dtype: bool = True

    def run(self, student: Submission) -> Diagnosis:
        do = "call" if isinstance(self.want, tuple | list) else "output"  # "output" drops a forward function's cache
        got, changed = student.ask(do, self.function, self.args)
        said = compare(self.function, got, self.want, rtol=self.rtol, suspects=self.suspects, dtype=self.dtype)
        names = student.ask("parameters", self.function)[0] if changed else ()
        what = [names[i] if i < len(names) else f"argument {i + 1}" for i in changed]
        text = "{} is changed in place: work on a copy"
        return Diagnosis((*said.findings, *(Finding(self.function, "in place", text.format(one)) for one in what)))


@dataclass(frozen=True, eq=False)
class Gradient:
    """Require that backward(u, *args) or backward(u, cache) gives the gradients of forward(*args) -> y or (y, cache).

    The submission defines both functions.  right : the function (*args) -> y that forward has to compute.  Defaults to
    the submission's own forward.  In that case, the correct gradient of a wrong forward passes.  output : right(*args),
    which a recording stores instead of `right`.  large : True to compare only slopes along a few random directions, for
    arguments with many entries.  dtype : True if float32 arguments must give float32 results.
    """

    forward: str
    backward: str
    args: tuple[Any, ...]
    title: str = ""
    wrt: Sequence[int] | None = None
    hard: bool = True
    right: Callable[..., Any] | None = None
    large: bool = False
    dtype: bool = True
    output: Any = None

    def run(self, student: Submission) -> Diagnosis:
        own, pull = partial(student.output, self.forward), partial(student.pull, self.forward, self.backward)
        names, _ = student.ask("parameters", self.forward)
        value = own if self.right is None else partial(_computed, self.right)
        if student.imaginary:
            said = f"line {student.imaginary} has complex numbers: write the derivative, and no complex step"
            return Diagnosis((Finding(self.backward, "complex step", said),))
        forward = Values(self.forward, self.args, self.output, rtol=1e-6, dtype=False)
        if self.output is not None and forward.run(student):
            said = f"put {self.forward} right first: its differences are what this is compared with"
            return Diagnosis((Finding(self.backward, "forward", said),))
        told = {name: getattr(self, name) for name in ("wrt", "hard", "dtype", "large")}
        return check_pair(value, pull, self.args, names, own=own, **told)


def _computed(right: Callable[..., Any], *args: Any) -> tuple[Any, list[int]]:
    """Return the result of `right` in the dtype of its arguments and in the form of a submission's answer."""
    return np.asarray(right(*args), dtype=next(a.dtype for a in args if floating(a))), []


@dataclass(frozen=True, eq=False)
class Law:
    """Any other check: check(student) uses `student.call("function", ...)` and describes any error.

    It returns None or "" if it finds no error, otherwise a sentence or a Diagnosis.  It can also return a Verdict.
    """

    title: str
    check: Callable[[Submission], Any]

    def run(self, student: Submission) -> Diagnosis:
        said = self.check(student)
        if isinstance(said, Diagnosis):
            return said
        outcome = getattr(said, "outcome", "fail" if said else "pass")
        return Diagnosis() if outcome == "pass" else Diagnosis((Finding(self.title, outcome, str(said)),))


Case = Values | Gradient | Law
"""One test of a submission: `title` names the test, and `run(student)` returns a Diagnosis of the answer."""


@dataclass(frozen=True)
class Exercise:
    """One graded exercise.  It earns full points if every case passes or, if `partial`, a share for each passed case.

    cases : the cases, or a function (rng, variant) that returns them.  hidden : True to hide the exercise from students
    until the due date.  hint : text that is shown if the exercise fails.
    """

    name: str
    points: float
    cases: Callable[[np.random.Generator, Variant], Iterable[Case]] | Sequence[Case]
    hidden: bool = False
    hint: str = ""
    partial: bool = False


@dataclass(frozen=True)
class Assignment:
    """An assignment: its exercises, and the variants, one of which the secret seed selects.

    variants : {"activation": ("relu", "erf"), ...}.  The seed determines one value per key.  authors : replacements for
    `variants` when the course's own solutions run.  tells : True if submissions can import `variant`.  allowed :
    packages that submissions can import, besides NumPy and the standard library; list their dependencies too.
    seconds : the time limit for one call.  memory : the limit of the student's process in bytes.  folder : the folder
    of exercises.py.  withheld : the points of exercises that a recording leaves out.
    """

    name: str
    exercises: Sequence[Exercise]
    variants: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    authors: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tells: bool = True
    allowed: Sequence[str] = ()
    seconds: float = 10.0
    memory: int = 2**32
    folder: str = ""
    withheld: float = 0.0

    def __post_init__(self) -> None:
        names = [exercise.name for exercise in self.exercises]
        if len(set(names)) < len(names):
            raise ValueError(f"exercises expects a name of its own for each, got {names}")

    def variant(self, seed: str) -> dict[str, Any]:
        """Return the variant for this seed.  Adding a key to `variants` does not change the values of other keys."""
        draw = {name: stream(seed, self.name, "variant", name) for name in self.variants}
        return {name: some[int(draw[name].integers(len(some)))] for name, some in self.variants.items()}

    def own(self, *, drawn: bool = False) -> Assignment:
        """Return the assignment for the course's own solutions.  Unless `drawn`, `authors` overrides `variants`."""
        return replace(self, tells=True, variants={**self.variants, **({} if drawn else self.authors)})

    def cases(self, exercise: Exercise, seed: str, variant: Variant) -> Iterable[Case]:
        """Return the exercise's cases for this seed."""
        drawn = exercise.cases
        return drawn(stream(seed, self.name, "cases", exercise.name), variant) if callable(drawn) else drawn


def stream(*words: str) -> np.random.Generator:
    """Return a generator seeded with a hash of the words, so that its numbers do not reveal the words."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest(), "little"))


def record(assignment: Assignment, seed: str, path: str | Path) -> Assignment:
    """Write the public exercises to a file that students use to check their work, and return what `load` reads from it.

    The file contains inputs and results, but no code that computes them.  Its drawn inputs differ from those of a grade
    with this seed, so copied results do not pass.  Any `Law` and any case of 1 MiB or more is left out.
    """
    variant, exercises = assignment.variant(seed), list[dict[str, Any]]()
    for e in assignment.exercises:
        drawn = [] if e.hidden else assignment.cases(e, f"{seed}/handed out", variant)
        kept = [
            replace(c, right=None, output=c.right and _computed(c.right, *c.args)[0]) if isinstance(c, Gradient) else c
            for c in drawn
        ]
        cases = [case for case in (vars(case) for case in kept if not isinstance(case, Law)) if len(pack(case)) < 2**20]
        if cases:
            exercises.append({"name": e.name, "points": e.points, "hint": e.hint, "partial": e.partial, "cases": cases})
    limits: Any = {name: getattr(assignment, name) for name in ("allowed", "tells", "seconds", "memory")}
    limits["withheld"] = sum(e.points for e in assignment.exercises) - sum(e["points"] for e in exercises)
    data = pack({"name": assignment.name, "variants": variant, "exercises": exercises, **limits})
    write_atomically(path, methodcaller("write", data))
    return load(path)


def load(path: str | Path) -> Assignment:
    """Load the `assignment` from exercises.py in a folder, another Python file, or a file that `record` wrote.

    A student's folder contains public.json instead of exercises.py.  A name such as hw1 is also looked up in ./course.
    Raises FileNotFoundError, ValueError for a damaged file, and TypeError unless `assignment` is an Assignment.
    """
    files = [p / name for p in (Path(path), Path("course", path)) for name in ("", "exercises.py", "public.json")]
    file = next((f for f in files if f.is_file() and f.suffix in (".py", ".json")), None)
    if file is None:
        raise FileNotFoundError(f"assignment expects public.json, exercises.py or their folder, got {str(path)!r}")
    if file.suffix == ".json":
        with reading(file, "a recorded assignment", "record it again") as recorded:
            told = unpack(whole_file(recorded))
        variants, exercises = {name: (choice,) for name, choice in told.pop("variants").items()}, told.pop("exercises")
        for e in exercises:
            e["cases"] = [(Gradient if "backward" in case else Values)(**case) for case in e["cases"]]
        return Assignment(exercises=[Exercise(**e) for e in exercises], variants=variants, **told)
    home = str(file.parent.resolve())
    sys.path.insert(0, home)
    try:
        module = execute(f"minintk_assignment_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}", file)
    finally:
        sys.path.remove(home)
    found = getattr(module, "assignment", None)
    if not isinstance(found, Assignment):
        raise TypeError(f"{file} expects a variable `assignment = Assignment(...)`, got {found!r}")
    return replace(found, folder=found.folder or home)


def hard_inputs(rng: np.random.Generator, shape: Sequence[int] = (4,)) -> Iterator[tuple[str, Examples]]:
    """Yield pairs (description, x), with x : (N, *shape).  The first word of the description names the difficulty.

    shape : the shape of one example, (d,) or (H, W, C).

    >>> [title for title, x in hard_inputs(np.random.default_rng(0))][:4]
    ['random', 'random, more examples than entries', 'random, two examples', 'equal examples']
    """
    shape = tuple(shape)

    def normal(n: int) -> Examples:
        return rng.standard_normal((n, *shape))

    base = normal(5)
    rays = rng.uniform(0.1, 10, (30, *([1] * len(shape)))) * normal(1)
    yield from {
        "random": base,
        "random, more examples than entries": normal(prod(shape) + 3),
        "random, two examples": normal(2),
        "equal examples": np.concatenate([base, base[:2]]),  # angles of 0, whose cosines can round to more than 1
        "collinear examples": rays,  # 435 cosines that can round to more than 1: code without clipping fails
        "opposite examples": np.concatenate([base, -base[:2], -2.5 * base[:1]]),  # cosines of -1
        "zero: an example of zeros": np.concatenate([base, np.zeros((1, *shape))]),  # the angle is undefined
        "close: examples 1e-09 apart": np.concatenate([base, base[:2] + 1e-9 * normal(2)]),  # arccos loses digits
        "ties: entries of -1, 0 and 1": rng.integers(-1, 2, (6, *shape)).astype(np.float64),  # equal maxima, and kinks
        "one example": normal(1),
        "large entries": 1e3 * normal(4),  # exponentials overflow
    }.items()
