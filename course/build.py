"""Build the course's folders from its sources: one version for students (without solutions) and one for graders.

    python3 make.py python course/build.py student --seed "spring secret/ada" OUT [hw1_backprop ...]
    python3 make.py python course/build.py class --seed @secret.txt --names names.txt OUT [hw1_backprop ...]
    python3 make.py python course/build.py instructor --seed @secret.txt --names names.txt OUT [hw1_backprop ...]
    python3 make.py course release [--seed "spring secret"] OUT      the whole course as a zip, without solutions

An assignment is a folder hwN_name with the following files, from which everything else is generated:

    handout.md     the questions; the first line, for readers of the repository, is omitted;
                   {{name}} is replaced by the variant's choice, and the text between
                   <!-- if name = choice --> and <!-- end --> is kept only for that choice (a | b: for either)
    solution.py    the right answers; lines from # BEGIN SOLUTION to # END SOLUTION become `raise NotImplementedError`
                   in the starter, or nothing if they are not indented (a helper function, say)
    exercises.py   `assignment`, an Assignment of minintk.grade
    wrong/*.py     text appended to the solution for a wrong submission; its first line names the exercises that
                   refuse it, # refused by: exercise, exercise
    right/*.py     other right submissions, with the solution's experiment
    hwN_experiment.py   the data of the experiment; students get it, and graders use it with other seeds
    rubric.md      points and common mistakes

The seed determines the variants, the handout's text, and the inputs of the grader. Keep the seed secret.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import json
import re
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minintk.grade import load, record
from minintk.grade.hand_in import MARK

COURSE = Path(__file__).resolve().parent
ROOT = COURSE.parent


def folders(names: Sequence[str] = ()) -> list[Path]:
    """Return the folders of all assignments, or of those whose names begin with one of `names`.

    Raises ValueError for a name that matches no folder.
    """
    found = sorted(path.parent for path in COURSE.glob("hw*/exercises.py"))
    for name in names:
        if not any(folder.name.startswith(name) for folder in found):
            raise ValueError(f"expected the beginning of {[folder.name for folder in found]}, got {name!r}")
    return [folder for folder in found if not names or folder.name.startswith(tuple(names))]


# ------------------------------------------------------------------------------------------------- starter

READ = re.compile(r"^from variant import (\w+) as (\w+).*\n", re.MULTILINE)
SOLUTION = re.compile(r"^( *)# BEGIN SOLUTION *\n(.*?)^ *# END SOLUTION *\n", re.MULTILINE | re.DOTALL)


def starter(solution: str, variant: Mapping[str, Any]) -> str:
    r"""Return the starter for one variant: the solution without the text between its markers.

    Raises ValueError if a marker has no partner, or if nothing is removed.

    >>> print(starter("def f(x):\n    # BEGIN SOLUTION\n    return x\n    # END SOLUTION\n", {}), end="")
    def f(x):
        raise NotImplementedError
    """
    found, count = SOLUTION.subn(lambda m: f"{m[1]}raise NotImplementedError\n" if m[1] else "", solution)
    if not count or "BEGIN SOLUTION" in found or "END SOLUTION" in found:
        raise ValueError("the solution expects pairs of # BEGIN SOLUTION and # END SOLUTION, each on a line of its own")
    found = READ.sub(lambda m: m[0] if found.count(m[2]) > 1 else "", found)  # keep a name that the given code uses
    found = hard_coded(found, variant)
    return re.sub(r"\n{4,}", "\n\n\n", found)


def hard_coded(solution: str, variant: Mapping[str, Any]) -> str:
    r"""Return the solution of one variant, with the variant's values as literals, as a student would write it.

    >>> hard_coded("from variant import gain as GAIN  # a number\n", {"gain": 1.2})
    'GAIN = 1.2\n'
    """
    return READ.sub(lambda m: f"{m[2]} = {variant[m[1]]!r}\n", solution)


# ------------------------------------------------------------------------------------------------- handout

IF = r"<!-- if (\w+) = ([\w |.-]+?) -->"
LINES = re.compile(rf"^{IF}\n(.*?)^<!-- end -->\n", re.MULTILINE | re.DOTALL)
INLINE = re.compile(rf"{IF}(.*?)<!-- end -->", re.DOTALL)
WORD = re.compile(r"\{\{(\w+)\}\}")
TEMPLATE = re.compile(r"\A> The template of every variant.*\n\n")
"""The first line of a handout in the repository."""


def handout(text: str, variant: Mapping[str, Any]) -> str:
    """Return the handout of one variant, without the line that describes it as a template.

    Raises KeyError for a name that the variant lacks, and ValueError for an unmatched `if` or `end`.

    >>> handout("Use {{f}}<!-- if f = relu -->, that is max(z, 0)<!-- end -->.", {"f": "relu"})
    'Use relu, that is max(z, 0).'
    >>> handout("Use {{f}}<!-- if f = relu -->, that is max(z, 0)<!-- end -->.", {"f": "tanh"})
    'Use tanh.'
    """

    def kept(m: re.Match[str]) -> str:
        return m[3] if str(variant[m[1]]) in [choice.strip() for choice in m[2].split("|")] else ""

    text = INLINE.sub(kept, LINES.sub(kept, TEMPLATE.sub("", text)))
    if left := re.search(r"<!-- (if|end)\b.*?-->", text):
        raise ValueError(f"a handout expects <!-- if name = choice --> ... <!-- end -->, got {left[0]} alone")
    return WORD.sub(lambda m: str(variant[m[1]]), text)


# ------------------------------------------------------------------------------------------------ notebook


def cells(code: str) -> list[tuple[str, str]]:
    r"""Return this code as cells of a notebook, a list of (kind, text).

    The module's docstring becomes a text cell. Each function becomes a code cell, as does the code between functions.

    >>> [kind for kind, text in cells("'Words.'\nimport numpy\n\ndef f(): pass\n\ndef g(): pass")]
    ['markdown', 'code', 'code', 'code']
    """
    tree, lines = ast.parse(code), code.splitlines()
    found, body = [], tree.body
    if doc := ast.get_docstring(tree):
        found.append(("markdown", doc))
        body = body[1:]
    begin = (tree.body[0].end_lineno or 0) if doc else 0
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef) or isinstance(after, ast.FunctionDef) or after is None:
            end = node.end_lineno or 0
            found.append(("code", "\n".join(lines[begin:end]).strip("\n")))
            begin = end
    return found


def notebook(handed: str, code: str) -> dict[str, Any]:
    """Build a notebook (nbformat 4.5) that shows the handout, then the starter's functions, one per cell."""
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate([("markdown", handed), *cells(code)]):
        marks = {"tags": [MARK]} if kind == "code" else {}
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": marks, "source": text.splitlines(keepends=True)}
        made.append(cell | ({"outputs": [], "execution_count": None} if kind == "code" else {}))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": made}


# ------------------------------------------------------------------------------------------- whole folders

CHECK = """
## Check your work

Write your functions into `starter.py`, or into the cells of the notebook, and hand in that file as it is. In cells
that you add, only imports, functions and constants count. Then run

    minintk grade public.json starter.py
    minintk grade public.json starter.py --only "{first}"

to try the public cases of all exercises or of one. Run it after each function: it lists functions that are not written
yet as such, and finds no other fault with them. In its messages, `f[1]` is the second result of `f`, and `at (0, 2)`
is an entry of an array, counted from 0. The points do not add up to 100, because some exercises are kept for the grade.
The other exercises have more cases there, so full points here do not guarantee full points there.

`minintk` is the library of this course. If the command is not found, run `pip install minintk.zip` in an environment
with Python 3.11 or later. That file is next to the folders that you were given. What your file prints is not shown
here: to look at numbers, import your file in Python and call its functions. Your file must not import `minintk`. Put
checks that use it into a file of their own.
"""


def student(folder: Path, seed: str, out: Path) -> None:
    """Write a student's files into out/hwN_name.

    The files are handout.md, starter.py, starter.ipynb, report.md, public.json (the public exercises as data for
    `minintk grade`) and hwN_experiment.py (the data of the experiment).
    """
    assignment, place = load(folder), out / folder.name
    place.mkdir(parents=True, exist_ok=True)
    variant = assignment.variant(seed)
    code = starter((folder / "solution.py").read_text(encoding="utf-8"), variant)
    handed = handout((folder / "handout.md").read_text(encoding="utf-8"), variant).rstrip() + "\n"
    handed += CHECK.format(first=assignment.exercises[0].name)
    files = {
        "handout.md": handed,
        "starter.py": code,
        "starter.ipynb": json.dumps(notebook(handed, code), indent=1, ensure_ascii=False) + "\n",
    }
    data = folder / f"{folder.name[:3]}_experiment.py"
    files |= {
        data.name: data.read_text(encoding="utf-8"),
        "report.md": (COURSE / "report.md").read_text(encoding="utf-8"),
    }
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
    record(assignment, seed, place / "public.json")


def library() -> dict[Path, Path]:
    """Return {file of minintk or analytic: its path in an archive}."""
    found = [p for package in ("minintk", "analytic") for p in sorted((ROOT / package).rglob("*")) if p.is_file()]
    return {p: p.relative_to(ROOT) for p in found if "__pycache__" not in p.parts}


def installed(out: Path) -> Path:
    """Write out/minintk.zip, from which `pip install` installs the library, and return the path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "minintk.zip"
    about = {ROOT / name: Path(name) for name in ("pyproject.toml", "README.md", "LICENSE")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source, inside in (about | library()).items():
            archive.write(source, inside)
    return path


NEXT = """
Next: read {place}/handout.md, write into {place}/starter.py, and after each function:

    python3 make.py python -m minintk grade {place} {place}/starter.py
"""

RUN = """#!/usr/bin/env bash
# Gradescope calls this. Whatever happens, there is a results.json.
cd /autograder/source
PYTHONPATH=packages python3 kit.py /autograder/submission /autograder/submission_metadata.json \\
    /autograder/results/results.json
"""

SETUP = """#!/usr/bin/env bash
# the container is the grader's alone, so its system's Python may be added to
PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install {requirements}
"""


def instructor(folder: Path, seed: str, names: Iterable[str], out: Path) -> Path:
    """Write out/hwN_name.zip with all that grading needs: exercises, solution, data, seed, students, and the library.

    The solution's functions replace wrong functions when errors are carried forward.

    The archive has the layout of a Gradescope autograder; its kit.py finds the student, the file and the seed.
    names : the e-mail addresses of students who have their own variant.  Returns the path of the archive.
    """
    assignment = load(folder)
    out.mkdir(parents=True, exist_ok=True)
    rows = [(name, *assignment.variant(f"{seed}/{name}").values()) for name in names]
    sources = [folder / name for name in ("exercises.py", "solution.py", f"{folder.name[:3]}_experiment.py")]
    path = out / f"{folder.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("seed.txt", seed)
        archive.writestr("setup.sh", SETUP.format(requirements=" ".join(f"'{name}'" for name in needed())))
        archive.writestr("run_autograder", RUN)
        archive.write(COURSE / "kit.py", "kit.py")
        table = io.StringIO()
        csv.writer(table).writerows([["name", *assignment.variants], *rows])
        archive.writestr("students.csv", table.getvalue())
        for source in sources:
            archive.write(source, Path("assignment", source.relative_to(folder)))
        for source, inside in library().items():
            archive.write(source, Path("packages", inside))
    return path


KEPT_BACK = (
    *("solution.py", "right", "wrong", "exercises.py", "rubric.md", "attacks", "check.py", "attack.py", "kit.py"),
    *("classroom.py", "build.py", "instructors.md", "Dockerfile"),
)
"""Files and folders that students must not receive (answers, exercises) or do not need."""


def release(seed: str, out: Path) -> Path:
    """Write out/course.zip for students: the whole course without solutions, rubrics or the grader's exercises."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "course.zip"
    with tempfile.TemporaryDirectory() as made, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in folders():
            student(folder, seed, Path(made))
        installed(Path(made))
        for base in (COURSE, Path(made)):
            for source in sorted(p for p in base.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
                inside = source.relative_to(base)
                started = base == COURSE and inside.parts[0].startswith("hw")  # the variant's handout is in `made`
                if not started and not {*inside.parts} & {*KEPT_BACK, "README.md"}:
                    archive.write(source, Path("course", inside))
        about, _, _ = (COURSE / "README.md").read_text(encoding="utf-8").partition("## For instructors")
        archive.writestr("course/README.md", re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", about))
    return path


def needed() -> list[str]:
    """Return the library's dependencies, from pyproject.toml."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])


def made(seed: str, folder: Path, kind: str = "") -> set[str]:
    """Record which kind of variant was made for an assignment from this secret file, and return all recorded kinds.

    kind : "own" for one variant per student, "one" for one variant for all students, "" to add no kind.  For
    @secret.txt, the kinds are stored in secret.made.json beside it.  If the command contains the seed itself, nothing
    is stored, and the set is empty.
    """
    if not seed.startswith("@"):
        return set()
    path = Path(seed[1:]).with_suffix(".made.json")
    known: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kinds = {*known.get(folder.name, ()), *filter(None, [kind])}
    if kind:
        path.write_text(json.dumps(known | {folder.name: sorted(kinds)}), encoding="utf-8")
    return kinds


OTHER = {
    "own": "{name} was handed out with one variant for all (build.py student): "
    "grade it with --one-variant, build its kit without --names",
    "one": "{name} was handed out with a variant for each student (build.py class); give --names FILE",
}
"""{requested kind: error message if only the other kind was handed out}."""


# ---------------------------------------------------------------------------------------------- command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the folders or archives that the arguments request. Exit with status 2 if the arguments are invalid."""
    parser = argparse.ArgumentParser(prog="course/build.py", description="Make the course's folders.")
    whats = ("student", "class", "instructor", "release")
    parser.add_argument("what", choices=whats, help="one folder, one for each name, zips for graders, one for students")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder, made where it is missing")
    parser.add_argument("assignments", nargs="*", metavar="HW", help="hw1, hw2, ...: all of them by default")
    parser.add_argument("--seed", default="public", help="the secret, or @FILE that holds it (public)")
    parser.add_argument("--names", type=Path, metavar="FILE", help="one name (an e-mail address) on each line")
    args = parser.parse_args(arguments)
    seed = Path(args.seed[1:]).read_text(encoding="utf-8").strip() if args.seed.startswith("@") else args.seed
    names = args.names.read_text(encoding="utf-8").split() if args.names else []
    if args.what == "class" and not names:
        parser.error("class expects --names FILE, one name on each line")
    if args.what == "release" and args.assignments:
        parser.error(f"release makes all assignments, got {', '.join(args.assignments)}: name none")
    try:
        chosen = folders(args.assignments)
    except ValueError as error:
        parser.error(str(error))
    if args.what == "release":
        print(release(seed, args.out))
        for folder in chosen:
            made(args.seed, folder, kind="one")
        return 0
    if args.what != "instructor":
        installed(args.out)
    kind = "own" if names else "one"
    for folder in chosen:
        if args.what == "student":
            student(folder, seed, args.out)
            made(args.seed, folder, kind="one")
        elif args.what == "class":
            for name in names:
                student(folder, f"{seed}/{name}", args.out / name)
            made(args.seed, folder, kind="own")
        elif (kinds := made(args.seed, folder)) and kind not in kinds:
            parser.error(OTHER[kind].format(name=folder.name))
        else:
            instructor(folder, seed, names, args.out)
        print(f"{args.out}: {folder.name}")
    count = {"student": "one variant for all", "class": f"a variant for each of {len(names)} students"}
    print(f"done: {len(chosen)} of the assignments in {args.out}, {count.get(args.what, 'a zip file each')}")
    if args.what == "student" and chosen:
        print(NEXT.format(place=args.out / chosen[0].name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
