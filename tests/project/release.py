"""Run everything that a release has to pass, and write a table of what ran, when, and on what.

    python3 make.py release-check                     all rows, hours of work; a later call resumes where one ended
    python3 make.py release-check --rows "test|lint"  some rows
    python3 make.py release-check --table             the table of what ran so far, and nothing else

A row that passed on this commit is not run again, unless `--again` asks for it.  Records are lines of
`.release/rows.jsonl`, messages of each row are in `.release/NAME.log`.  Exit status 1 unless every row is green.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".release"
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
"""{row: arguments of Python, quick rows first within what belongs together}."""


@dataclass(frozen=True)
class Record:
    """One run of a row.   status : that of the command; None where it cannot run here."""

    row: str
    commit: str
    status: int | None
    seconds: float
    at: str
    where: str
    said: str


def commit() -> str:
    """The commit that is checked out, with + where files differ from it."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    dirty = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    return head.stdout.strip() + "+" * bool(dirty.stdout.strip())


def python_of(row: str) -> str | None:
    """Return the Python that runs a row, None if it is not on the PATH."""
    if (found := re.search(r"\d\.\d+$", row)) is None:
        return sys.executable if os.environ.get("VIRTUAL_ENV") is None else shutil.which("python3")
    python = shutil.which(f"python{found[0]}")
    works = python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    return python if works else None


def run(row: str) -> Record:
    """Run a row, its messages into its log."""
    python, start, at = python_of(row), time.monotonic(), time.strftime("%Y-%m-%d %H:%M")
    where = f"Python {re.search(r'[0-9.]+$', row)[0] if 'newest' in row else platform.python_version()}"  # type: ignore[index]
    where += f", NumPy {version('numpy')}, SciPy {version('scipy')}" if "newest" not in row else ", newest packages"
    if python is None:
        return Record(row, commit(), None, 0.0, at, where, "this Python is not on the PATH")
    if "newest" in row:
        shutil.rmtree(ROOT / ".venv-newest", ignore_errors=True)  # that of another Python
    log = FOLDER / f"{row}.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run([python, *ROWS[row]], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    said = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return Record(row, commit(), done.returncode, time.monotonic() - start, at, where, said[-1][:160] if said else "")


def records() -> dict[str, Record]:
    """{row: its latest record}."""
    file = FOLDER / "rows.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {said["row"]: Record(**said) for said in map(json.loads, lines)}


def table(found: dict[str, Record]) -> str:
    """All rows as a table of Markdown."""
    lines = ["| row | result | minutes | commit | when | with | last line |", "| --- " * 7 + "|"]
    for row in ROWS:
        if (r := found.get(row)) is None:
            lines.append(f"| {row} | not run | | | | | |")
            continue
        result = "not here" if r.status is None else "green" if r.status == 0 else f"red ({r.status})"
        said = r.said.replace("|", "/")
        lines.append(f"| {row} | {result} | {r.seconds / 60:.1f} | {r.commit} | {r.at} | {r.where} | {said} |")
    return "\n".join(lines)


def main() -> int:
    """Run the rows that are asked for and not green yet; print the table."""
    parser = argparse.ArgumentParser(prog="make.py release-check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="", metavar="PATTERN", help="rows whose names match")
    parser.add_argument("--again", action="store_true", help="also those that are green on this commit")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    found = records()
    asked = [] if options.table else [row for row in ROWS if re.search(options.rows, row)]
    for row in asked:
        here, old = commit(), found.get(row)
        if old and old.status == 0 and old.commit == here and "+" not in here and not options.again:
            continue
        print(f"release-check: {row}", file=sys.stderr, flush=True)
        found[row] = run(row)
        with (FOLDER / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found[row])) + "\n")
    print(table(found))
    return int(any(row not in found or found[row].status for row in ROWS if not options.rows or row in asked))


if __name__ == "__main__":
    sys.exit(main())
