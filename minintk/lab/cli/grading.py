"""Define `minintk grade`, which grades one submission.  course/classroom.py grades a whole class."""

from __future__ import annotations

from argparse import Namespace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

from minintk.lab.cli.options import FAILED, OK, command, option
from minintk.lab.cli.terminal import console, print_table

if TYPE_CHECKING:
    from minintk.grade import Grade


@command(
    "grade",
    "grade a submission: scores and reasons, for the terminal, a CI or Gradescope",
    "Run an assignment's exercises on a submission, in a process of its own that holds no answers, and "
    "say what is wrong with it. Exit status: 0 with full points, 1 with fewer.",
    option("assignment", "ASSIGNMENT", "public.json, exercises.py, a folder with one of them, or its name in ./course"),
    option("submission", "SUBMISSION", "the student's script or notebook"),
    option("--seed", "S", "the instructor's secret, or @FILE that holds it", "public"),
    option("--only", "NAME", "only this exercise or function; may be given again", action="append"),
    option("--public", about="leave hidden exercises out", action="store_true"),
    option("--in-process", about="without a process of its own: no time limit, not for marks", action="store_true"),
    option("--junit", "FILE", "write JUnit's XML"),
    option("--gradescope", "FILE", "write Gradescope's results.json, anew after each exercise"),
    option("--html", "FILE", "write a page"),
)
def _grade(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.files.writing import write_atomically
    from minintk.grade import grade, load
    from minintk.grade import run as reports

    assignment, screen = load(args.assignment), console(120)
    seed = Path(args.seed[1:]).read_text(encoding="utf-8").strip() if args.seed.startswith("@") else args.seed

    def write(found: Grade, *names: str) -> None:
        for name in names:
            if file := getattr(args, name):
                write_atomically(file, methodcaller("write", getattr(reports, name)(found).encode()))

    found = grade(
        assignment, args.submission, seed=seed, isolated=not args.in_process, hidden=not args.public,
        only=args.only or (), told=lambda part: write(part, "gradescope"),
    )  # fmt: skip
    write(found, "gradescope", "junit", "html")
    if found.sandbox:
        screen.print(found.sandbox, style="bold red" if found.warning else "dim")
    drawn = seed == "public" and any(len(choices) > 1 for choices in assignment.variants.values())
    title = f"{found.submission}, {reports.asked(found)}{' (the public variant, for want of --seed)' * drawn}"
    print_table(screen, title, reports.COLUMNS, [map(escape, row) for row in reports.rows(found)])
    rest = assignment.withheld + sum(e.points for e in assignment.exercises) - found.points
    left = f"; {rest:g} of the {found.points + rest:g} are kept for the grade" if rest and not args.only else ""
    screen.print(f"{found.score:g} of {found.points:g} points{left}")
    return OK if found.score == found.points else FAILED
