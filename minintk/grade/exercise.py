"""What an assignment is made of: exercises, each a list of cases drawn from a seed, and variants drawn from the same
seed.

    case         one call, or one law, and what is right: Values, Gradient or Law
    Exercise     a name, points, a function (rng, variant) -> cases; public or hidden; a hint
    Assignment   exercises, and the choices from which an instructor's secret seed draws one variant

A case says what is called and what must come out, and never calls anything of the submission's itself before it is run:
answers stay on the grader's side.  See docs/course/writing-an-exercise.md.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from minintk.files.reading import reading, whole_file
from minintk.files.writing import write_atomically
from minintk.grade.compare import compare
from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.gradient import check_pair
from minintk.grade.submission import Submission
from minintk.grade.worker import pack, unpack

Variant = Mapping[str, Any]


class Case(Protocol):
    """Something to ask of a submission; `run` gives what is wrong with the answer."""

    @property
    def title(self) -> str:
        """What is tried, in a few words."""

    def run(self, student: Submission) -> Diagnosis:
        """Ask it; SubmissionError where the submission fails to answer."""


@dataclass(frozen=True, eq=False)
class Values:
    """function(*args) must be `want`: arrays, numbers, strings, or tuples and dicts of them.

    rtol : relative to the largest of `want`; see `minintk.grade.compare`.
    suspects : {what it looks like: the wrong result}, the mistakes that this exercise invites, to be told by name.
    """

    function: str
    args: tuple[Any, ...]
    want: Any
    title: str = ""
    rtol: float | None = None
    suspects: Mapping[str, Any] = field(default_factory=dict)
    dtype: bool = True

    def run(self, student: Submission) -> Diagnosis:
        do = "call" if isinstance(self.want, tuple | list) else "output"  # without a forward's cache
        got, changed = student.ask(do, self.function, self.args)
        said = compare(self.function, got, self.want, rtol=self.rtol, suspects=self.suspects, dtype=self.dtype)
        text = "argument {} is changed in place: work on a copy"
        return Diagnosis((*said.findings, *(Finding(self.function, "in place", text.format(i + 1)) for i in changed)))


@dataclass(frozen=True, eq=False)
class Gradient:
    """backward must give the gradients of forward's output, as `minintk.grade.check_gradient` finds; no answer is
    needed.

    The submission has both: forward(*args) -> y or (y, cache), backward(u, *args) or backward(u, cache).  A Values case
    shall check that forward itself is right.
    """

    forward: str
    backward: str
    args: tuple[Any, ...]
    title: str = ""
    wrt: Sequence[int] | None = None
    float32: bool = True
    hard: bool = True

    def run(self, student: Submission) -> Diagnosis:
        def value(*args: Any) -> tuple[Any, list[int]]:
            return student.output(self.forward, *args)

        def pull(u: Any, *args: Any) -> tuple[Any, list[int]]:
            return student.pull(self.forward, self.backward, u, *args)

        names = student.parameters(self.forward)
        if len(names) != len(self.args):
            names = [f"arg{i}" for i in range(len(self.args))]
        return check_pair(value, pull, self.args, names, wrt=self.wrt, float32=self.float32, hard=self.hard)


@dataclass(frozen=True, eq=False)
class Law:
    """Anything else: check(student) calls `student.call("function", ...)` as it likes, and says what is wrong.

    It returns None or "" where all is well, a sentence, a Diagnosis, or a Verdict of `minintk.grade.exponent`, which
    has to be a pass.
    """

    title: str
    check: Callable[[Submission], Any]

    def run(self, student: Submission) -> Diagnosis:
        said = self.check(student)
        if isinstance(said, Diagnosis):
            return said
        outcome = getattr(said, "outcome", "fail" if said else "pass")
        return Diagnosis() if outcome == "pass" else Diagnosis((Finding(self.title, outcome, str(said)),))


@dataclass(frozen=True)
class Exercise:
    """One line of the grade: points for the submission that answers every case.

    name : unique in the assignment; a wrong submission names the exercise that refuses it.  cases : (rng, variant) ->
    the cases, a generator function as a rule.  hidden : not shown to students before the due date.  hint : shown when
    it fails.
    partial : points for the part of the cases that pass; False asks for all of them.
    """

    name: str
    points: float
    cases: Callable[[np.random.Generator, Variant], Iterable[Case]]
    hidden: bool = False
    hint: str = ""
    partial: bool = False


@dataclass(frozen=True)
class Assignment:
    """Exercises, and what the secret seed varies.

    variants : {"activation": ("relu", "erf"), ...}: each seed draws one of each; the submission sees the choice as
    `from variant import activation`.  allowed : packages that submissions may import beside NumPy, SciPy and the
    standard library, "minintk" say (never "analytic").  seconds : for one call.  memory : bytes of the student's
    process.

    >>> drawn = Assignment("demo", (), variants={"loss": ("mean", "sum")}).variant("a secret")
    >>> drawn["loss"] in ("mean", "sum")
    True
    """

    name: str
    exercises: Sequence[Exercise]
    variants: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    allowed: Sequence[str] = ()
    seconds: float = 10.0
    memory: int = 2**32
    folder: str = ""

    def __post_init__(self) -> None:
        names = [exercise.name for exercise in self.exercises]
        if len(set(names)) < len(names):
            raise ValueError(f"exercises expects a name of its own for each, got {names}")

    @property
    def points(self) -> float:
        """Of all exercises together."""
        return sum(exercise.points for exercise in self.exercises)

    def variant(self, seed: str) -> dict[str, Any]:
        """The choice that the seed draws; the same seed, the same choice, however many variants are added after it."""
        return {
            name: some[int(stream(seed, self.name, "variant", name).integers(len(some)))]
            for name, some in self.variants.items()
        }

    def cases(self, exercise: Exercise, seed: str, variant: Variant) -> Iterable[Case]:
        """The exercise's cases under this seed."""
        return exercise.cases(stream(seed, self.name, "cases", exercise.name), variant)


def stream(*words: str) -> np.random.Generator:
    """A generator that the words determine, and from whose numbers they cannot be found."""
    seed = hashlib.sha256("\0".join(words).encode()).digest()
    return np.random.default_rng(int.from_bytes(seed, "little"))


def record(assignment: Assignment, seed: str, path: str | Path) -> Assignment:
    """Write the public exercises, drawn from the seed, as data: what students check their work with, without
    exercises.py.

    The file holds inputs and right results, and no code that computes them; `load` and `minintk grade` take it in place
    of the assignment.  The inputs are others than those of a grade with this seed, which a table of the results in the
    file would pass.  Cases of kinds other than Values and Gradient are left out, and so are exercises that have no
    others. Returns the assignment as it can be read back.
    """
    variant, exercises = assignment.variant(seed), []
    for e in assignment.exercises:
        drawn = [] if e.hidden else assignment.cases(e, f"{seed}/handed out", variant)
        cases = [case for case in drawn if type(case).__name__ in RECORDED]
        kept = [{"kind": type(case).__name__, **vars(case)} for case in cases]
        if kept:
            exercises.append({"name": e.name, "points": e.points, "hint": e.hint, "partial": e.partial, "cases": kept})
    limits = {"allowed": list(assignment.allowed), "seconds": assignment.seconds, "memory": assignment.memory}
    data = pack({"name": assignment.name, "variants": variant, "exercises": exercises, **limits})
    write_atomically(path, methodcaller("write", data))
    return load(path)


RECORDED: dict[str, Callable[..., Case]] = {"Values": Values, "Gradient": Gradient}
"""Cases that are data."""


class _Same:
    """The same cases under every seed."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases = cases

    def __call__(self, rng: np.random.Generator, variant: Variant) -> list[Case]:
        return self.cases


def _recorded(data: bytes) -> Assignment:
    found = unpack(data)
    exercises = []
    for told in found.pop("exercises"):
        cases = [RECORDED[case.pop("kind")](**case) for case in told.pop("cases")]
        exercises.append(Exercise(**told, cases=_Same(cases)))
    variants = {name: (choice,) for name, choice in found.pop("variants").items()}
    return Assignment(exercises=tuple(exercises), variants=variants, **found)


def load(path: str | Path) -> Assignment:
    """The assignment in a folder's exercises.py, or in a Python file: its variable `assignment`; or what `record`
    wrote.

    A bare name, hw1, is also looked for in ./course.  FileNotFoundError if there is none, TypeError if it is something
    else, ValueError for a damaged recording.
    """
    tried = [Path(path), Path("course", path)]
    files = [p / "exercises.py" if p.is_dir() else p for p in tried]
    file = next((f for f in files if f.is_file() and f.suffix in (".py", ".npz")), None)
    if file is None:
        raise FileNotFoundError(f"assignment expects a folder with exercises.py, or such a file, got {str(path)!r}")
    if file.suffix == ".npz":
        with reading(file, "a recorded assignment", "record it again") as recorded:
            return _recorded(whole_file(recorded))
    name = f"minintk_assignment_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in it look themselves up
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent.resolve()))
    found = getattr(module, "assignment", None)
    if not isinstance(found, Assignment):
        raise TypeError(f"{file} expects a variable `assignment = Assignment(...)`, got {found!r}")
    return found if found.folder else Assignment(**{**vars(found), "folder": str(file.parent.resolve())})
