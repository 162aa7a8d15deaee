"""The commands that grade: one submission, and all of a class."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

from minintk.lab.cli.options import FAILED, OK, command, option
from minintk.lab.cli.terminal import console, print_table

if TYPE_CHECKING:
    from minintk.grade import Assignment, Grade

SEED = option("--seed", "S", "the instructor's secret, or @FILE that holds it", "public")
ASSIGNMENT = option("assignment", "ASSIGNMENT", "a folder with exercises.py, or its name in ./course")


def _secret(text: str) -> str:
    return Path(text[1:]).read_text(encoding="utf-8").strip() if text.startswith("@") else text


def _scripts(folder: Path) -> dict[str, str]:
    """Read {file: its text} of all scripts and notebooks below a folder."""
    from minintk.grade.hand_in import text_of

    files = sorted(p for end in ("py", "ipynb") for p in folder.rglob(f"*.{end}") if "wrong" not in p.parts)
    return {str(path): text_of(path) for path in files if path.name not in ("exercises.py", "__init__.py")}


@command(
    "grade",
    "grade a submission: scores and reasons, for the terminal, a CI or Gradescope",
    "Run an assignment's exercises on a submission, in a process of its own that holds no answers, and "
    "say what is wrong with it. Exit status: 0 with full points, 1 with fewer.",
    ASSIGNMENT,
    option("submission", "SUBMISSION", "the student's script or notebook, or a folder that holds it"),
    SEED,
    option("--only", "NAME", "only this exercise; may be given again", action="append"),
    option("--public", about="leave hidden exercises out", action="store_true"),
    option("--in-process", about="without a process of its own: no time limit, not for marks", action="store_true"),
    option("--similar", "FOLDER", "do not grade: compare with the scripts in this folder, and with the solutions"),
    option("--junit", "FILE", "write JUnit's XML"),
    option("--gradescope", "FILE", "write Gradescope's results.json, anew after each exercise"),
    option("--html", "FILE", "write a page"),
)
def _grade(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.files.writing import write_atomically
    from minintk.grade import grade, load
    from minintk.grade import run as reports
    from minintk.grade.hand_in import chosen, text_of

    assignment, path, screen = load(args.assignment), Path(args.submission), console(120)
    if path.is_dir():
        path = chosen(path, assignment.functions())
    if args.similar:
        mine, others = text_of(path), _scripts(Path(args.similar)) | _scripts(Path(assignment.folder))
        others.pop(str(path), None)
        pairs = _alike({str(path): mine}, others, _given(assignment))
        print_table(screen, f"like {path}", ("part", "", "with"), [map(escape, row) for row in pairs])
        return FAILED if pairs else OK

    def write(found: Grade, *names: str) -> None:
        for name in names:
            if file := getattr(args, name):
                write_atomically(file, methodcaller("write", getattr(reports, name)(found).encode()))

    found = grade(
        assignment, path, seed=_secret(args.seed), isolated=not args.in_process, hidden=not args.public,
        only=args.only or (), told=lambda part: write(part, "gradescope"),
    )  # fmt: skip
    write(found, "gradescope", "junit", "html")
    if found.warning:
        screen.print(found.warning, style="bold red")
    title = f"{found.assignment}, {found.submission}"
    print_table(screen, title, reports.COLUMNS, [map(escape, row) for row in reports.rows(found)])
    screen.print(f"{found.score:g} of {found.points:g} points")
    return OK if found.score == found.points else FAILED


@command(
    "grade-class",
    "grade all submissions of a class, into one table",
    "FOLDER holds a script, a notebook or a folder for each student, named as the student is in the seed: "
    "ada@example.org.py, say. Whatever cannot be graded stands in the table with its reason.",
    ASSIGNMENT,
    option("folder", "FOLDER", "what the students have handed in"),
    SEED,
    option("--one-variant", about="the same variant for all: the seed without the student's name", action="store_true"),
    option("--csv", "FILE", "write the table, with the columns that Canvas and Moodle read", "grades.csv"),
    option("--alike", "PART", "report pairs that share more of their syntax trees than this", 0.6),
)
def _grade_class(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.files.writing import write_atomically
    from minintk.grade import grade, load
    from minintk.grade.hand_in import chosen, text_of
    from minintk.grade.submission import GraderError

    assignment, seed, screen = load(args.assignment), _secret(args.seed), console(120)
    names = [e.name for e in assignment.exercises]
    title = f"{assignment.name} ({sum(e.points for e in assignment.exercises):g})"
    head = ["Student", "SIS Login ID", "Email address", title, *names, "remark"]  # Canvas: 1, 2, 4; Moodle: 3, 4
    rows: list[list[object]] = []
    texts: dict[str, str] = {}
    for place in sorted(p for p in Path(args.folder).iterdir() if p.is_dir() or p.suffix in (".py", ".ipynb")):
        name = place.name if place.is_dir() else place.stem
        try:
            path = chosen(place, assignment.functions()) if place.is_dir() else place
            texts[name] = text_of(path)
            found = grade(assignment, path, seed=seed if args.one_variant else f"{seed}/{name}")
        except GraderError:
            raise
        except (OSError, ValueError, KeyError) as error:
            row: list[object] = [0, *[""] * len(names), str(error)]
        else:
            broken = [g.text for g in found.exercises if "the file does not load" in g.text][:1]
            remark = " ".join(filter(None, [found.warning, *broken])).partition("\n")[0]
            row = [found.score, *(g.score for g in found.exercises), remark]
        rows.append([name, name, name, *row])
        table = io.StringIO()
        csv.writer(table).writerows([head, *rows])
        write_atomically(args.csv, methodcaller("write", table.getvalue().encode()))
        screen.print(f"{name}: {row[0]} {row[-1]}", markup=False)
    pairs = _alike(texts, texts | _scripts(Path(assignment.folder)), _given(assignment), args.alike)
    if pairs:
        print_table(screen, "alike", ("part", "", "with"), [map(escape, row) for row in pairs])
    screen.print(f"{len(rows)} submissions, in {args.csv}")
    return OK


def _given(assignment: Assignment) -> str:
    """Return what every student is given, as far as its fingerprints count: nothing has been graded for it."""
    return "\n".join(f"def {name}():\n    raise NotImplementedError" for name in assignment.functions())


def _alike(texts: dict[str, str], others: dict[str, str], given: str, least: float = 0.6) -> list[tuple[str, str, str]]:
    """List (part, one, other), the most alike first, for pairs that share at least this part."""
    from minintk.grade.hand_in import alike

    found = {}
    for name, text in texts.items():
        for other, its in others.items():
            if name != other and frozenset((name, other)) not in found:
                found[frozenset((name, other))] = (alike(text, its, given), name, other)
    return [(f"{p:.0%}", a, b) for p, a, b in sorted(found.values(), reverse=True) if p >= least]
