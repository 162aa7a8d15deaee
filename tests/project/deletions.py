"""Delete satellites from a copy of the checkout, and run the tests of the core in the copy.

    python3 make.py deletions [speed laboratory course large beyond examination lifting all]

Without names, each satellite in turn is deleted, and the laws and doctests run.  Then all satellites are deleted, and
every test of the core runs.  Tests that import a deleted satellite are deleted too, and printed.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SATELLITES = {
    "speed": ("minintk/fast", "analytic/fast"),
    "laboratory": ("minintk/lab", "analytic/verify"),
    "course": ("minintk/grade", "course"),
    "large": ("analytic/large", "minintk/large"),
    "beyond": ("analytic/curves", "analytic/limits", "analytic/phases", "minintk/beyond"),
    "examination": ("minintk/examination",),
    "lifting": ("minintk/lifting", "minintk/more_layers"),
}
"""{satellite: folders}. The tests of a folder are in tests/, under the same path."""

NEEDED_BY = {"laboratory": "examination"}
"""{satellite: a satellite that needs the first one, and is therefore deleted too}."""

WHOLE = ("tests/project", "tests/docs", "tests/planted", "tests/mutants", "tests/course", "examples")
"""Folders that test or demonstrate the whole project, including its satellites. Such folders are always deleted."""


QUIETLY = "-p", "no:cacheprovider", "--ignore=tests/device"


def deleted(names: list[str]) -> list[str]:
    """Return the folders of the satellites `names` and of the satellites that need them."""
    gone = names + [NEEDED_BY[name] for name in names if name in NEEDED_BY]
    return [folder for name in gone for folder in SATELLITES[name]]


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules that a file imports at the top level, as paths without suffixes."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(name.replace(".", "/") for name in found)


def left_out(root: Path, folders: list[str]) -> list[Path]:
    """Return the files under tests/ that import a module in one of the folders, directly or through a helper."""
    files, out = sorted((root / "tests").rglob("*.py")), set[Path]()
    gone = tuple(f"{folder}/" for folder in folders)
    while True:
        helpers = {path.relative_to(root).with_suffix("").as_posix() for path in out}
        more = {
            path for path in files if any(f"{name}/".startswith(gone) or name in helpers for name in imported(path))
        }
        if more <= out:
            return sorted(out)
        out |= more


def run(names: list[str], everything: bool) -> int:
    """Delete satellites from a copy, run all tests there or only laws and doctests, and return pytest's exit status."""
    start, folders = time.monotonic(), deleted(names)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name in ("minintk", "analytic", "tests", "course", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        for folder in (*folders, *(f"tests/{folder}" for folder in folders), *WHOLE):
            shutil.rmtree(root / folder, ignore_errors=True)
        out = left_out(root, folders)
        for path in out:
            path.unlink()
        tests = ["tests", "minintk", "analytic"] if everything else ["tests/laws", "minintk", "analytic"]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--maxprocesses=4", "--dist=worksteal", *tests]
        env = os.environ | {"PYTHONPATH": place}
        done = subprocess.run(
            [*command, *QUIETLY],
            cwd=root,
            env=env,
            capture_output=True,
            text=True,
        )
    last = done.stdout.strip().split("\n")[-1]
    print(f"without {', '.join(names)} ({time.monotonic() - start:.0f} s): {last}")
    print(f"    with it go {len(out)} files of tests: {', '.join(path.name for path in out)}")
    if done.returncode:
        print(done.stdout[-20000:], done.stderr[-5000:])
    return done.returncode


def main() -> int:
    """Run the requested deletions, and return the largest exit status."""
    asked = sys.argv[1:] or [*SATELLITES, "all"]
    runs = [(list(SATELLITES), True) if name == "all" else ([name], False) for name in asked]
    return max([run(*what) for what in runs])


if __name__ == "__main__":
    sys.exit(main())
