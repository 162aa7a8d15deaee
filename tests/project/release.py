"""Run every check that a release must pass, and write a table of the results.

    python3 make.py release-check                     all rows, which takes hours; a later call runs the rows left
    python3 make.py release-check --rows "test|lint"  some rows
    python3 make.py release-check --table             only write the table of what ran so far

A row that passed (green) is run again only if a file that it reads has changed, or with `--again`.  lint, docs, test,
package, course and browser read every tracked file.  The other rows read programs without docstrings and comments, so
they remain green if only prose changes.  `PASSED_BY` lists, by row, folders whose programs are not read.
The records are in benchmarks/release.jsonl and the table is in release.md.  No row reads these two files.  The output
of a row is in .release/NAME.log.  The exit status is 1 if a requested row is red (failed) or has never run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".release"
RECORD = ROOT / "benchmarks" / "release.jsonl"
TABLE = RECORD.with_suffix(".md")
MAKE = "make.py"
PYTHONS = "3.11", "3.12", "3.13", "3.14"

ROWS: dict[str, list[str]] = {
    "lint": [MAKE, "lint"],
    "docs": [MAKE, "docs"],
    "test": [MAKE, "test"],
    "test-all": [MAKE, "test-all"],
    "lowest": [MAKE, "lowest"],
    **{f"newest-{python}": [MAKE, "newest"] for python in PYTHONS},
    "package": [MAKE, "package"],
    "deletions": [MAKE, "deletions"],
    "course": [MAKE, "course"],
    "browser": [MAKE, "browser"],
    "verify": [MAKE, "verify", "--out", ".release/verify"],
    "draw": [MAKE, "verify", "--draw", "100", "--out", ".release/draw"],
    **{f"mup-{s}": [MAKE, "verify", "--mup", "--seed", s, "--out", f".release/mup-{s}"] for s in ("101", "102", "103")},
    "fuzz": [MAKE, "python", "-m", "tests.kit.fuzz", "100000"],
    "storms": [MAKE, "python", "-m", "tests.laws.signal_storms", "10000"],
    "explore": [MAKE, "explore", "--minutes", "60"],
    "mutants": [MAKE, "mutants", "--sample", "200", "--seed", "36"],
    "replicate": [MAKE, "replicate", "--out", ".release/replicate"],
    "reproduce": [MAKE, "python", "-m", "minintk", "reproduce", "--scale", "small", "--out", ".release/reproduce"],
    "bench": [MAKE, "bench", "--quick", "--out", ".release/bench"],
}
"""{row: command-line arguments of Python}, in the order in which the rows run."""

PROGRAMS = re.compile("test-all|lowest|newest|deletions|verify|draw|mup|fuzz|storms|explore|mutants|repl|repro|bench")
"""Matches rows that read only programs (Python files without docstrings and comments), versions and .npz files."""
PASSED_BY = {
    "fuzz|storms|explore|mutants": ("docs/", "course/", "tests/project/", "benchmarks/", "examples/"),
    "verify|draw|mup": ("docs/", "course/", "tests/", "benchmarks/", "examples/"),
    "replicate|reproduce": ("docs/", "course/", "tests/", "benchmarks/"),
    "bench": ("docs/", "course/", "tests/", "examples/"),
}
"""{pattern of rows: folders that matching rows do not read}."""
HEAD = """# What a release has to pass

`python3 make.py release-check` runs these rows and writes this table. A row is old if a file that it reads has changed
since. The rows lint, docs, test, package, course and browser read every file; the others read programs without their
docstrings and comments.

"""


@dataclass(frozen=True)
class Record:
    """One run of a row. status : exit status, None if the row cannot run here. files : the result of `files_hash`."""

    row: str
    commit: str
    files: str
    status: int | None
    seconds: float
    at: str
    where: str
    said: str


def git(*arguments: str) -> str:
    """Run a git command and return the output."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@cache
def program(text: str) -> str:
    """Return the syntax tree of a Python file as text, without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
        if isinstance(node, ast.JoinedStr):  # Python 3.12 adds an empty text
            node.values[:] = [n for n in node.values if not (isinstance(n, ast.Constant) and n.value == "")]
    return outline(tree)


def outline(node: object) -> str:
    """Return a syntax tree as text that is equal in all versions of Python. `ast.dump` changed in 3.13."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(f'{name}={outline(value)}' for name, value in fields)})"
    return f"[{', '.join(map(outline, node))}]" if isinstance(node, list) else repr(node)


def files_hash(row: str) -> str:
    """Return a hash of the current content of the files that the row reads."""
    elsewhere = next((folders for rows, folders in PASSED_BY.items() if re.match(rows, row)), ())
    found = hashlib.sha256()
    for name in git("ls-files").splitlines():
        file = ROOT / name
        if file in (RECORD, TABLE) or not file.is_file():
            continue
        if not PROGRAMS.match(row):
            found.update(name.encode() + file.read_bytes())
        elif file.suffix == ".py" and not name.startswith(elsewhere):
            found.update((name + program(file.read_text("utf-8"))).encode())
        elif name in ("pyproject.toml", "constraints.txt") or file.suffix == ".npz":
            found.update(name.encode() + file.read_bytes())
    return found.hexdigest()[:10]


def python_of(row: str) -> str | None:
    """Return the path of the Python that runs a row, or None if it is neither on the PATH nor in pyenv."""
    if (found := re.search(r"\d\.\d+$", row)) is None:
        return sys.executable if os.environ.get("VIRTUAL_ENV") is None else shutil.which("python3")
    folders = [None, *map(str, Path.home().glob(f".pyenv/versions/{found[0]}.*/bin"))]
    for python in (shutil.which(f"python{found[0]}", path=folder) for folder in folders):
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


def run(row: str) -> Record:
    """Run a row, write the output to the row's log, and return the record."""
    python, start, at = python_of(row), time.monotonic(), time.strftime("%Y-%m-%d %H:%M")
    head, files = git("rev-parse", "--short", "HEAD"), files_hash(row)
    where = f"Python {re.search(r'[0-9.]+$', row)[0] if 'newest' in row else platform.python_version()}"  # type: ignore[index]
    others = ", newest packages" if "newest" in row else ", lowest packages" if row == "lowest" else ""
    where += others or f", NumPy {version('numpy')}, SciPy {version('scipy')}"
    if python is None:
        return Record(row, head, files, None, 0.0, at, where, "this Python is neither on the PATH nor in pyenv")
    if "newest" in row:
        shutil.rmtree(ROOT / ".venv-newest", ignore_errors=True)  # made by another Python
    log = FOLDER / f"{row}.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run([python, *ROWS[row]], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    said = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    seconds, last = time.monotonic() - start, said[-1][:160] if said else ""
    return Record(row, head, files, done.returncode, seconds, at, where, last)


def records() -> dict[str, Record]:
    """Return {row: latest record}."""
    lines = RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else []
    return {said["row"]: Record(**said) for said in map(json.loads, lines)}


def table(found: dict[str, Record]) -> str:
    """Return the results of all rows as a Markdown table."""
    now = {row: files_hash(row) for row in found}
    lines = ["| row | result | minutes | commit | when | with | last line |", "| --- " * 7 + "|"]
    for row in ROWS:
        if (r := found.get(row)) is None:
            lines.append(f"| {row} | not run | | | | | |")
            continue
        result = "not here" if r.status is None else "green" if r.status == 0 else f"red ({r.status})"
        result += ", old" * (r.status is not None and r.files != now[row])
        said = r.said.replace("|", "/")
        lines.append(f"| {row} | {result} | {r.seconds / 60:.1f} | {r.commit} | {r.at} | {r.where} | {said} |")
    return "\n".join(lines)


def main() -> int:
    """Run each requested row unless its record is green and current. Write the table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make.py release-check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="", metavar="PATTERN", help="rows whose names match")
    parser.add_argument("--again", action="store_true", help="also those that are green on this commit")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    found = records()
    asked = [] if options.table else [row for row in ROWS if re.search(options.rows, row)]
    for row in asked:
        old = found.get(row)
        if old and old.status == 0 and old.files == files_hash(row) and not options.again:
            continue
        print(f"release-check: {row}", file=sys.stderr, flush=True)
        found[row] = run(row)
        with RECORD.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found[row])) + "\n")
    TABLE.write_text(HEAD + table(found) + "\n", encoding="utf-8")
    print(table(found))
    return int(any(row not in found or found[row].status for row in ROWS if not options.rows or row in asked))


if __name__ == "__main__":
    sys.exit(main())
