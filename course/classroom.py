"""Grade a class's hand-ins, write one table, and find similar hand-ins.

    python3 make.py course class hw1_backprop handed-in --seed @secret.txt --names names.txt --csv grades.csv
    python3 make.py course class hw1_backprop handed-in --seed @secret.txt --one-variant --csv grades.csv
    python3 make.py course similar hw1_backprop handed-in

The folder contains a script, a notebook or a folder for each student, under the student's name in names.txt, for
example ada@example.org.py. The table also lists hand-ins that cannot be graded, with the reason, and students in
names.txt without a hand-in. The names of its first columns are those in the documentation of Canvas and Moodle.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from operator import methodcaller
from pathlib import Path

from kit import chosen, functions

from build import OTHER, made, starter
from minintk.files.writing import write_atomically
from minintk.grade import Assignment, grade, load
from minintk.grade.hand_in import text_of
from minintk.grade.submission import GraderError

# ------------------------------------------------------------------------------------------------ fingerprints

GRAM = 14
"""Number of syntax-tree nodes in one fingerprint, which corresponds to about two lines of code."""


def fingerprint(text: str) -> frozenset[int]:
    """Hash each sequence of GRAM syntax-tree nodes, ignoring comments, names (except attributes) and constants."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return frozenset()
    nodes = list(_kinds(tree))
    return frozenset(hash(tuple(nodes[i : i + GRAM])) for i in range(len(nodes) - GRAM + 1))


def _kinds(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Load | ast.Store) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        yield f"{type(node).__name__} {getattr(node, 'attr', '')}"
        for child in ast.iter_child_nodes(node):
            yield from _kinds(child)


def alike(text: str, other: str, given: str = "") -> float:
    """Return the fraction of the shorter script's fingerprints that the other shares. Code in `given` is ignored.

    >>> a = "def f(x, y): return (x + y) * x - y / (x * 2 + 1)"
    >>> alike(a, "def g(a, b): return (a + b) * a - b / (a * 3 + 1)")
    1.0
    """
    a, b = (fingerprint(one) - fingerprint(given) for one in (text, other))
    return len(a & b) / max(1, min(len(a), len(b)))


def scripts(folder: Path) -> dict[str, str]:
    """Return {file: text} of undamaged scripts and notebooks outside `wrong`, except exercises.py and __init__.py."""
    files = sorted(p for end in ("py", "ipynb") for p in folder.rglob(f"*.{end}") if "wrong" not in p.parts)
    found = {}
    for path in files:
        if path.name not in ("exercises.py", "__init__.py"):
            try:
                found[str(path)] = text_of(path)
            except (ValueError, KeyError):  # a damaged notebook, which the table reports
                continue
    return found


def pairs(assignment: Assignment, folder: Path, least: float) -> list[tuple[float, str, str]]:
    """Return [(shared fraction, file, other file)] for pairs of hand-ins with a shared fraction of at least `least`.

    The most similar come first.  Hand-ins are also compared with the course's solutions.  The starter's code is
    ignored.
    """
    solution = Path(assignment.folder) / "solution.py"
    given = starter(solution.read_text("utf-8"), assignment.variant("")) if solution.exists() else ""
    texts, known = scripts(folder), scripts(Path(assignment.folder))
    found = {}
    for name, text in texts.items():
        for other, its in (texts | known).items():
            if name != other and frozenset((name, other)) not in found:
                found[frozenset((name, other))] = (alike(text, its, given), name, other)
    return sorted((pair for pair in found.values() if pair[0] >= least), reverse=True)


# ---------------------------------------------------------------------------------------------------- a class


def graded(assignment: Assignment, place: Path, seed: str) -> list[object]:
    """Return [points, points of each exercise ..., a remark, a description of the sandbox].

    A hand-in that cannot be graded gets 0 points, and the remark gives the reason.
    """
    try:
        path = chosen(place, functions(assignment)) if place.is_dir() else place
        found = grade(assignment, path, seed=seed)
    except GraderError:
        raise
    except (OSError, ValueError, KeyError) as error:
        return [0, *[""] * len(assignment.exercises), str(error), ""]
    wrong = [f"{g.exercise.name}: {g.text}".partition("\n")[0] for g in found.exercises if g.passed < g.cases][:1]
    halves = [g for g in found.exercises if g.carried]
    points, names = sum(g.score for g in halves), ", ".join(g.exercise.name for g in halves)
    carried = [f"{points:g} points carried forward: {names}"] * bool(halves)
    remark = " ".join(filter(None, [found.warning, "; ".join([*wrong, *carried])]))
    return [round(found.score, 2), *(round(g.score, 2) for g in found.exercises), remark, found.sandbox]


def hand_ins(folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """Return {student: script, notebook or folder}, and a list of the other visible files, which are not graded.

    Raises ValueError if a student has two hand-ins.
    """
    there = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    fit = [p for p in there if p.is_dir() or p.suffix in (".py", ".ipynb")]
    found = {p.name if p.is_dir() else p.stem: p for p in fit}
    if twice := [p.name for p in fit if p not in found.values()]:
        raise ValueError(f"expected one hand-in for each student, got a second one for {twice}; keep one of them")
    return found, [p for p in there if p not in fit]


def whole_class(
    assignment: Assignment, folder: Path, seed: str, table: Path, *, one: bool = False, names: Collection[str] = ()
) -> list[list[object]]:
    """Grade all hand-ins in a folder, and rewrite the table after each student.

    one : True for one variant for all students, determined by the seed alone.  names : the names of the students.
    A student in `names` without a hand-in gets a row with 0 points.  Returns the rows.  Raises ValueError for a second
    hand-in by a student or, unless `names` is empty, a hand-in by a student who is not in `names`.
    """
    found, others = hand_ins(folder)
    if names and (strangers := sorted({*found} - {*names})):
        raise ValueError(f"expected hand-ins named as in the list of names, got {strangers}; rename them or add names")
    for path in others:
        print(f"not graded: {path.name} is no script, notebook or folder", flush=True)
    exercises = [e.name for e in assignment.exercises]
    title = f"{assignment.name} ({sum(e.points for e in assignment.exercises):g})"
    head = ["Student", "SIS Login ID", "Email address", title, *exercises, "remark"]  # Canvas: 1, 2, 4; Moodle: 3, 4
    rows: list[list[object]] = []
    closed: dict[object, None] = {}
    for name in sorted({*found, *names}):
        row: list[object] = [0, *[""] * len(exercises), "nothing handed in"]
        if name in found:
            *row, wall = graded(assignment, found[name], seed if one else f"{seed}/{name}")
            closed[wall] = None
        rows.append([name, name, name, *row])
        text = io.StringIO()
        csv.writer(text).writerows([head, *rows])
        write_atomically(table, methodcaller("write", text.getvalue().encode()))
        print(f"{name}: {rows[-1][3]} {rows[-1][-1]}", flush=True)
    print("sandbox:", "; ".join(str(wall) for wall in closed if wall) or "no submission ran")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade and compare hand-ins, or only compare them. Exit with status 2 if options or hand-ins do not fit."""
    parser = argparse.ArgumentParser(prog="make.py course", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("class", "similar"), help="grade and compare, or compare alone")
    parser.add_argument("assignment", help="a folder with exercises.py, or its name in ./course")
    parser.add_argument("folder", type=Path, help="what the students have handed in")
    parser.add_argument("--seed", default="public", help="the instructor's secret, or @FILE that holds it")
    parser.add_argument("--names", type=Path, metavar="FILE", help="the names that build.py class was given")
    parser.add_argument(
        "--one-variant", action="store_true", help="the same variant for all, as build.py student makes"
    )
    parser.add_argument("--csv", type=Path, default=Path("grades.csv"), metavar="FILE", help="the table (grades.csv)")
    parser.add_argument("--alike", type=float, default=0.6, metavar="PART", help="least part that two share (0.6)")
    args = parser.parse_args(arguments)
    assignment, began = load(args.assignment), time.perf_counter()
    seed = Path(args.seed[1:]).read_text(encoding="utf-8").strip() if args.seed.startswith("@") else args.seed
    if args.what == "class":
        if not (args.names or args.one_variant):
            parser.error("class expects --names FILE (build.py class) or --one-variant (build.py student)")
        kind = "one" if args.one_variant else "own"
        if (kinds := made(args.seed, Path(assignment.folder))) and kind not in kinds:
            parser.error(OTHER[kind].format(name=assignment.name))
        names = args.names.read_text(encoding="utf-8").split() if args.names else ()
        try:
            rows = whole_class(assignment, args.folder, seed, args.csv, one=args.one_variant, names=names)
        except (OSError, ValueError) as error:
            parser.error(str(error))
        print(f"{len(rows)} students in {time.perf_counter() - began:.0f} s, in {args.csv}")
    for part, one, other in pairs(assignment, args.folder, args.alike):
        print(f"alike  {part:.0%}  {one}  {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
