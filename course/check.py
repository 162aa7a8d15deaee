"""Grade the whole course (all solutions, starters, correct and wrong submissions), and print a table.

    python3 make.py course release OUT          the course for students, without solutions: see build.py
    python3 make.py course class HW FOLDER      grades a class into one table: see classroom.py
    python3 make.py course [hw1 hw2 ...] [--all-variants] [--processes 2] [--times] [--attacks]

Expected results for each assignment:

    solution      all points: once in a separate process like students' submissions, and for every choice of the
                  variants in this process with students' numbers; other gradings use the authors' numbers
    right/*.py    all points, for every choice of the variants
    starter       no points
    wrong/*.py    all points except those of the exercises that its first line names, under one choice of the
                  variants, or with --all-variants under each choice that it concerns, unless it is isolated

A wrong submission is the text of the solution followed by the text of the file, which redefines some functions.
The first lines of the file are its header:

    # refused by: softmax, softmax backward     the exercises that it loses, and no others; or `all`
    # variant: activation = relu, loss = mean   the choices that the mistake needs, if any; a | b for either
    # isolated                                  run it in a separate process, because it would harm the grader
    # alone                                     a complete file, without the solution before it

On Linux, unless HW or --kind is given, the script then runs course/attacks against the sandbox; all attacks must fail.

Exit status: 0 if all results are as expected, 1 if not.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from classroom import main as classroom

from build import folders, starter
from build import main as build
from minintk.grade import Assignment, grade, load


@dataclass(frozen=True)
class Task:
    """A submission to grade, with the exercises that must reject it."""

    folder: str
    kind: str
    name: str
    seed: str
    refused: tuple[str, ...] | None  # None: no points at all
    text: str = field(repr=False)
    isolated: bool = False
    drawn: bool = False  # True for a student's variant, False for the authors' variant


@dataclass(frozen=True)
class Outcome:
    """The outcome of one task; `wrong` describes an unexpected result, and is "" if there is none."""

    task: Task
    score: float
    refused: tuple[str, ...]
    seconds: float
    wrong: str


# ------------------------------------------------------------------------------------------------ the tasks


def seeds(assignment: Assignment, *, every: bool = False) -> list[str]:
    """Return a few seeds that together give each value of each variant or, with `every`, each combination of values.

    >>> from minintk.grade import Assignment
    >>> some = Assignment("demo", (), variants={"a": (1, 2), "b": (3, 4)})
    >>> len(seeds(some, every=True)), len(seeds(Assignment("none", ())))
    (4, 1)
    """
    found: list[str] = []
    missing = {frozenset(pair) for pair in _pairs(assignment)}
    if every:
        missing = {
            frozenset(zip(assignment.variants, map(str, some))) for some in product(*assignment.variants.values())
        }
    for seed in map("check-{}".format, count()):
        drawn = {(name, str(choice)) for name, choice in assignment.variant(seed).items()}
        new = {pair for pair in missing if pair <= drawn}
        if new or not found:
            found.append(seed)
        missing -= new
        if not missing:
            return found
    raise AssertionError


def _pairs(assignment: Assignment) -> Iterator[tuple[tuple[str, str]]]:
    yield from (((name, str(choice)),) for name, some in assignment.variants.items() for choice in some)


def fits(variant: Mapping[str, Any], needs: Mapping[str, Sequence[str]]) -> bool:
    """Return True if the variant satisfies `needs`."""
    return all(str(variant[name]) in choices for name, choices in needs.items())


def fitting(assignment: Assignment, needs: Mapping[str, Sequence[str]]) -> str:
    """Return the first seed whose variant satisfies `needs`; raise ValueError for an unknown name or choice."""
    for name, choices in needs.items():
        if not set(choices) <= set(map(str, assignment.variants.get(name, ()))):
            raise ValueError(f"{assignment.name} expects one of its variants {dict(assignment.variants)}, got {needs}")
    return next(seed for seed in map("check-{}".format, count()) if fits(assignment.variant(seed), needs))


HEADER = re.compile(r"^# (refused by|variant|isolated|alone)(?:: *(.*))?$")


def header(text: str) -> dict[str, str]:
    """Return {"refused by": ..., ...} from a wrong submission's first lines.

    Raises ValueError if "refused by" is missing.
    """
    found = {}
    for line in text.splitlines():
        if not (m := HEADER.match(line)):
            break
        found[m[1]] = m[2] or ""
    if not found.get("refused by"):
        raise ValueError("a wrong submission expects a first line `# refused by: exercise, ...`")
    return found


def wrong(folder: Path, assignment: Assignment, solution: str, more: Sequence[str] = ()) -> Iterator[Task]:
    """Yield each wrong submission with one seed and, unless it is isolated, with the seeds in `more` that fit it."""
    names = [exercise.name for exercise in assignment.exercises]
    for path in sorted(folder.glob("wrong/*.py")):
        text = path.read_text(encoding="utf-8")
        said = header(text)
        refused = names if said["refused by"] == "all" else [name.strip() for name in said["refused by"].split(",")]
        if unknown := set(refused) - set(names):
            raise ValueError(f"{path} expects exercises among {names}, got {sorted(unknown)}")
        parts = [part.split("=") for part in said.get("variant", "").split(",") if part.strip()]
        needs = {name.strip(): [some.strip() for some in choice.split("|")] for name, choice in parts}
        whole, isolated = text if "alone" in said else f"{solution}\n\n{text}", "isolated" in said
        others = [seed for seed in more if fits(assignment.variant(seed), needs) and not isolated]
        for seed in dict.fromkeys([fitting(assignment, needs), *others]):
            yield Task(str(folder), "wrong", path.stem, seed, tuple(refused), whole, isolated=isolated)


def tasks(folder: Path, *, every: bool = False) -> Iterator[Task]:
    """Yield the tasks of one assignment's folder, one for each submission and seed."""
    assignment = load(folder).own()
    solution = (folder / "solution.py").read_text(encoding="utf-8")
    several = seeds(assignment, every=every)
    yield Task(str(folder), "solution", "isolated", several[0], (), solution, isolated=True)
    for seed in several:
        yield Task(str(folder), "solution", seed, seed, (), solution, drawn=True)
    yield Task(str(folder), "starter", "starter", several[0], None, starter(solution, assignment.variant(several[0])))
    for path in sorted(folder.glob("right/*.py")):
        for seed in several:
            text = f"{solution}\n\n{path.read_text(encoding='utf-8')}"  # the solution's experiment with these functions
            yield Task(str(folder), "right", path.stem, seed, (), text)
    yield from wrong(folder, assignment, solution, seeds(assignment) if every else ())


# ----------------------------------------------------------------------------------------------- one task

LOADED: dict[str, Assignment] = {}


def run(task: Task) -> Outcome:
    """Grade one task, and describe any unexpected result."""
    if task.folder not in LOADED:
        LOADED[task.folder] = load(task.folder)
    assignment = LOADED[task.folder].own(drawn=task.drawn)
    with tempfile.TemporaryDirectory(prefix="minintk-course-") as place:
        path = Path(place, "submission.py")
        path.write_text(task.text, encoding="utf-8")
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a submission's own process discards them
            found = grade(assignment, path, seed=task.seed, isolated=task.isolated, carry=False)
        seconds = time.perf_counter() - began
    refused = found.refused
    if task.refused is None:
        said = f"{found.score:g} points, and not 0" if found.score else ""
    else:
        accepted, lost = set(task.refused) - set(refused), set(refused) - set(task.refused)
        said = ", ".join(
            [f"not refused by {name!r}" for name in sorted(accepted)]
            + [f"refused by {name!r}: {_text(found, name)}" for name in sorted(lost)]
        )
    if task.kind != "wrong" and round(found.points, 9) != 100:
        said = ", ".join(filter(None, [said, f"{found.points:g} points in all, and not 100"]))
    return Outcome(task, found.score, refused, seconds, said)


def _text(found: object, name: str) -> str:
    graded = next(g for g in getattr(found, "exercises", ()) if g.exercise.name == name)
    return str(graded.text)


def course(
    names: Sequence[str] = (), *, every: bool = False, processes: int = 2, kinds: Sequence[str] = ()
) -> list[Outcome]:
    """Grade the assignments (all, or those whose names begin with one of `names`) in `processes` processes.

    kinds : some of "solution", "starter", "right" and "wrong".  Defaults to all four.
    """
    todo = [task for folder in folders(names) for task in tasks(folder, every=every) if not kinds or task.kind in kinds]
    if processes == 1:
        return [run(task) for task in todo]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run, todo))


# ------------------------------------------------------------------------------------------------- the table


def report(outcomes: Sequence[Outcome], *, times: bool = False) -> str:
    """Return a line per assignment, then a line per unexpected result (with `times`, a line per result)."""
    lines = [f"{'assignment':<20}{'solution':>9}{'starter':>9}{'right':>7}{'wrong':>7}{'seconds':>9}{'slowest':>9}"]
    for name in dict.fromkeys(outcome.task.folder for outcome in outcomes):
        some = [outcome for outcome in outcomes if outcome.task.folder == name]
        columns = []
        for kind, width in (("solution", 9), ("starter", 9), ("right", 7), ("wrong", 7)):
            of = [outcome for outcome in some if outcome.task.kind == kind]
            columns.append(f"{f'{sum(not o.wrong for o in of)}/{len(of)}':>{width}}")
        spent = [outcome.seconds for outcome in some]
        lines.append(f"{Path(name).name:<20}{''.join(columns)}{sum(spent):>9.1f}{max(spent):>9.1f}")
    for o in outcomes:
        where = f"{Path(o.task.folder).name}, {o.task.kind} {o.task.name}, seed {o.task.seed}"
        if o.wrong:
            lines.append(f"WRONG  {where}: {o.wrong}")
        elif times:
            lines.append(f"{o.seconds:6.2f} s  {where}: {o.score:g} points")
    bad = sum(bool(outcome.wrong) for outcome in outcomes)
    planted = len({(o.task.folder, o.task.name) for o in outcomes if o.task.kind == "wrong"})
    lines.append(
        f"{len(outcomes)} gradings, {planted} wrong submissions: "
        + (f"{bad} came out otherwise than they should" if bad else "all as they should")
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade the assignments that the arguments name, print the table, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["release"]:
        return build(words)
    if words[:1] in (["class"], ["similar"]):
        return classroom(words)
    parser = argparse.ArgumentParser(prog="make.py course", description="Grade the whole course.")
    parser.add_argument("assignments", nargs="*", metavar="HW", help="hw1, hw2, ...: all of them by default")
    parser.add_argument("--all-variants", action="store_true", help="every combination; every choice for wrong ones")
    parser.add_argument("--kind", action="append", default=[], choices=("solution", "starter", "right", "wrong"))
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1), metavar="N")
    parser.add_argument("--attacks", action="store_true", help="the attempts of course/attacks, and nothing else")
    parser.add_argument("--times", action="store_true", help="a line for every submission")
    args = parser.parse_args(words)
    began = time.perf_counter()
    outcomes = [] if args.attacks else course(
        args.assignments, every=args.all_variants, processes=args.processes, kinds=args.kind
    )  # fmt: skip
    if outcomes:
        print(report(outcomes, times=args.times))
    won = 0
    if sys.platform == "linux" and not args.assignments and not args.kind:
        from attack import main as attack

        won = attack([])
    print(f"{time.perf_counter() - began:.0f} s")
    return int(won or any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
