"""Change the numerical modules slightly, in one place at a time, and check whether the tests notice.

    python3 make.py mutants --sample 150 --seed 1
    python3 make.py mutants --modules "analytic/images/*" --sample 20 --again

Mutants are written to a copy of the last commit under `.mutants/`, never to the checkout.  Tests that call the changed
function run, or all tests of a compiled module: first those in the module's test file, then quick ones in other files.
Mutants that survive these face slower tests that reach the function and, with `--whole`, all others, which can take an
hour. One run of the suite records the functions that each test calls. Later runs reuse it (`--map` renews it).

Verdicts are appended to `.mutants/results.jsonl`, so that a stopped run can resume. Use `--again` to test survivors
again after tests have been added. Mutants that compute the same results, or that no test should distinguish from the
original, are listed in equivalent.toml with the reason.

mutmut and cosmic-ray are not used, because they do not change axes or dtypes, nor drop terms or factors.
Selecting tests by the functions called avoids running a slow suite for most mutants.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

from tests.mutants.mutations import Mutation, mutations, valid

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

ROOMS = (
    "beyond", "diagnostics", "examination", "fast", "lab/experiments", "large", "layers", "lifting", "models",
    "more_layers", "spec", "training",
)  # fmt: skip
NUMERICAL = ("analytic/*", "minintk/arrays.py", *(f"minintk/{room}/*" for room in ROOMS))
"""Modules that compute. Readers, writers and the command line are tested with hostile files and killed runs instead."""

NOT_NUMERICAL = (
    "*/__init__.py",
    "*/conftest.py",
    "analytic/large/streaming.py",
    "analytic/fast/gpu_kernels.py",  # runs only on a GPU
    "analytic/verify/command.py",
    "analytic/verify/draw_report.py",
    "analytic/verify/figures.py",
    "analytic/verify/report.py",
    "minintk/examination/command.py",
    "minintk/examination/figures.py",
    "minintk/thresholds.py",  # thresholds affect only speed
    "minintk/training/checkpoints.py",
    "minintk/training/history.py",
    "minintk/lab/experiments/sweeps.py",
    "minintk/lab/experiments/papers.py",
)

COMPILED = ("minintk/fast/numba_loops.py",)
"""Modules whose functions run while Numba compiles. With a full disk cache, the map does not contain such calls."""

ABOUT_FILES = (*(f"tests/project/test_{name}.py" for name in ("literals", "make", "project", "rooms")), "tests/mutants")
"""Tests of the checkout, not of computed results. Such tests would fail in a copy, or because of a mutant's layout."""

NEAR_OWN, NEAR_OTHERS = 60, 4  # tests of one file
NEAR_SECONDS = 12.0  # for the tests of the module's test file, and again for quick tests of all files
PATIENCE = 30.0  # seconds of processor time in addition to four times the usual time of the tests
MEMORY = 12 << 30  # bytes of address space for a mutant, so that endless allocation fails


@dataclass(frozen=True)
class Verdict:
    """The result for a mutant (killed, timeout, survived or equivalent), and the test that decided it."""

    key: str
    status: str
    by: str = ""
    seconds: float = 0.0

    @property
    def path(self) -> str:
        return self.key.split("::")[0]


class Copy:
    """A copy of the last commit, with its tests, in which one file at a time is replaced by a mutant."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.map = folder, folder / "tree", folder / "reached.json"
        self.reached: dict[str, dict[str, Any]] = {}

    def fill(self, revision: str = "HEAD") -> str:
        """Copy a commit unless the folder already contains it, and return the abbreviated hash."""
        commit = subprocess.check_output(["git", "rev-parse", "--short", revision], cwd=ROOT, text=True).strip()
        stamp = self.folder / "commit"
        if not stamp.exists() or stamp.read_text() != commit:
            shutil.rmtree(self.tree, ignore_errors=True)
            self.tree.mkdir(parents=True)
            packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
            subprocess.run(["tar", "-x", "-C", str(self.tree)], input=packed.stdout, check=True)
            stamp.write_text(commit)
        return commit

    def note(self, anew: bool, globs: Sequence[str] = ()) -> None:
        """Record the functions that each test calls.

        The first call runs the whole suite. Later calls run only test files that the record does not contain.

        globs : patterns of the test files to run. Defaults to all files, except those in ABOUT_FILES.
        """
        known = {} if anew or not self.map.exists() else json.loads(self.map.read_text(encoding="utf-8"))
        noted = {test.split("::")[0] for test in known}
        every = (path.relative_to(self.tree).as_posix() for path in (self.tree / "tests").rglob("test_*.py"))
        wanted = (name for name in every if any(fnmatch(name, glob) for glob in globs or ["*"]))
        unknown = sorted(name for name in wanted if name not in noted and not name.startswith(ABOUT_FILES))
        if unknown:
            say(f"noting which test reaches which function: {len(unknown)} files")
            part = self.folder / "part.json"
            files = unknown if known or globs else [f"--ignore={name}" for name in ABOUT_FILES]
            self.pytest(files, {"REACHED_RECORD": str(part)})
            known |= json.loads(part.read_text(encoding="utf-8"))
            self.map.write_text(json.dumps(known), encoding="utf-8")
        self.reached = {test: entry for test, entry in known.items() if entry["passed"]}

    def pytest(self, arguments: list[str], variables: dict[str, str], limit: float = inf) -> tuple[int | None, str]:
        """Run pytest in the copy and return (exit status, output). The status is None if time ran out.

        limit : seconds of processor time, because wall time depends on the machine's load.
        """
        here = os.pathsep.join((str(self.tree), str(HERE)))
        settings = {"CI": "1", "PYTHONPATH": here, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        first = "-q" if "REACHED_RECORD" in variables else "-qx"
        plugins = ["-p", "reached", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", first, "-W", "error", "--tb=line", *plugins]
        child = subprocess.Popen(
            command + arguments,
            cwd=self.tree,
            env={**os.environ, **settings, **threads, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=partial(humble, limit),
        )
        try:
            output, _ = child.communicate(timeout=10 * limit if limit < inf else None)
        except BaseException as stopped:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            if isinstance(stopped, subprocess.TimeoutExpired):
                return None, ""
            raise
        return None if child.returncode == -signal.SIGXCPU else child.returncode, output

    def tests(self, mutation: Mutation) -> dict[str, list[str]]:
        """Return the tests that call the mutated function, in three groups: the module's tests, quick tests, others."""
        names = {mutation.path + "::" + mutation.scope.split(".<locals>")[0]}
        found = [test for test, entry in self.reached.items() if names & set(entry["reached"])]
        if not found or mutation.path in COMPILED:  # a constant of the module, a class, compiled code
            starts = mutation.path + "::", mirrored(mutation.path) + "::"
            found = [
                t for t, known in self.reached.items() if any(n.startswith(starts) for n in [t, *known["reached"]])
            ]
        found.sort(key=lambda test: (self.reached[test]["seconds"], test))
        homes: tuple[str, ...] = (mirrored(mutation.path), mutation.path)
        if sum(test.startswith(homes) for test in found) < 4:  # add the quickest three files
            homes = (*homes, *list(dict.fromkeys(test.split("::")[0] for test in found if "project" not in test))[:3])
        stages: dict[str, list[str]] = {"own": [], "near": [], "reaching": []}
        spent, taken = dict.fromkeys(stages, 0.0), Counter[str]()
        for test in found:
            file, stage = test.split("::")[0], "own" if test.startswith(homes) else "near"
            if (
                self.reached[test]["seconds"] > 3
                or spent[stage] > NEAR_SECONDS
                or taken[file] == (NEAR_OWN if stage == "own" else NEAR_OTHERS)
            ):
                stage = "reaching"
            stages[stage].append(test)
            spent[stage] += self.reached[test]["seconds"]
            taken[file] += stage != "reaching"
        return stages

    def judge(self, mutation: Mutation, whole: bool) -> Verdict:
        """Run the tests against a mutant, and restore the file."""
        path = self.tree / mutation.path
        source, stat = path.read_bytes(), path.stat()
        stages = self.tests(mutation)
        if whole:
            stages["whole"] = sorted(self.reached.keys() - {test for tests in stages.values() for test in tests})
        started = time.monotonic()
        path.write_bytes(mutation.applied(source))
        try:
            for name, tests in stages.items():
                if name != "own" and not tests:
                    continue
                status, by = self.stage(mutation.path, tests, with_new=name == "own")
                if status != "survived":
                    break
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return Verdict(mutation.key, status, f"{name}: {by}" if by else "", round(time.monotonic() - started, 1))

    def innocent(self, verdicts: list[Verdict]) -> set[str]:
        """Return the tests that failed for a mutant but also fail without a mutant, and therefore prove nothing."""
        killers = {verdict.by.partition(": ")[2] for verdict in verdicts if verdict.status == "killed"}
        found: set[str] = set()
        while True:
            left = sorted({test.split("::")[0] for test in killers - found})
            only = self.folder / "only.json"
            only.write_text(json.dumps({"run": sorted(killers - found), "known": [], "young": []}))
            code, output = self.pytest(left, {"REACHED_ONLY": str(only)}) if left else (0, "")
            failed = failures(output)
            if code == 0 or not failed:
                return found
            found |= {killer for killer in killers if killer in failed or killer.split("::")[0] in failed}

    def stage(self, path: str, tests: list[str], with_new: bool) -> tuple[str, str]:
        """Run some tests and return (status, test that failed).

        If `with_new`, unrecorded tests in the module's test file run too.
        """
        only = self.folder / "only.json"
        young = [mirrored(path), path] if with_new else []
        only.write_text(json.dumps({"run": tests, "known": list(self.reached), "young": young}))
        files = {test.split("::")[0] for test in tests} | {path} | ({mirrored(path)} if with_new else set())
        present = sorted(name for name in files if (self.tree / name).exists())
        limit = PATIENCE + 4 * sum(self.reached[test]["seconds"] for test in tests)
        code, output = self.pytest(present, {"REACHED_ONLY": str(only)}, limit)
        if code is None:
            return "timeout", f"{limit:.0f} s"
        if code in (0, 5):
            return "survived", ""
        failed = failures(output)
        if code < 0 or code in (1, 2) or failed:
            return "killed", failed[0] if failed else f"exit status {code}"
        raise RuntimeError(f"pytest ended with status {code} and judged nothing; its words:\n{output[-2000:]}")


def failures(output: str) -> list[str]:
    """Return the names in pytest's summary of failed tests and of files that could not be collected."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)


def humble(seconds: float) -> None:
    """Lower a child process's priority, limit its memory, and limit its processor time to `seconds`."""
    import resource

    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if seconds < inf:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))


def mirrored(path: str) -> str:
    """Return the test file of a module."""
    return f"tests/{Path(path).parent.as_posix()}/test_{Path(path).name}"


def say(text: str) -> None:
    """Print a line without buffering."""
    print(text, flush=True)


def modules(tree: Path, globs: list[str]) -> list[str]:
    """Return the numerical modules of a tree that match one of the patterns, or all if no patterns are given."""

    def one_of(name: str, patterns: Iterable[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    files = [path for package in ("analytic", "minintk") for path in (tree / package).rglob("*.py")]
    names = sorted(path.relative_to(tree).as_posix() for path in files)
    return [n for n in names if one_of(n, NUMERICAL) and not one_of(n, NOT_NUMERICAL) and one_of(n, globs or ["*"])]


def sample(tree: Path, names: list[str], number: int, seed: int) -> list[Mutation]:
    """Draw `number` mutations, distributed evenly over the modules, with a separate random generator per module."""
    drawn = []
    for name in names:
        source = (tree / name).read_bytes()
        every = mutations(name, source)
        random.Random(f"{seed} {name}").shuffle(every)
        wanted = -(-number // len(names))
        chosen: list[Mutation] = []
        for mutation in every:
            if len(chosen) == wanted:
                break
            if valid(mutation, source):
                chosen.append(mutation)
        drawn.append(chosen)
    rounds = zip_longest(*drawn)
    return [mutation for turn in rounds for mutation in turn if mutation is not None][:number]


def equivalent() -> dict[str, str]:
    """Return {key: reason} for the mutants that are known to be equivalent to the original program."""
    rows = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))["mutant"]
    return {row["key"]: row["reason"] for row in rows}


def room(path: str) -> str:
    """Return the row of a module in the table: its folder, or its name if it is in a package's top folder."""
    return Path(path).parent.as_posix() if path.count("/") > 1 else path.removesuffix(".py")


def table(verdicts: list[Verdict]) -> str:
    """Return a table of the numbers of killed, timed-out, equivalent and surviving mutants in each folder."""
    statuses = ("killed", "timeout", "equivalent", "survived")
    rows: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        rows.setdefault(room(verdict.path), Counter())[verdict.status] += 1
    rows = {**dict(sorted(rows.items())), "all": Counter(v.status for v in verdicts)}
    lines = ["| room | mutants | killed | too slow | equivalent | lived |", "| --- | --: | --: | --: | --: | --: |"]
    for name, counts in rows.items():
        lines.append(f"| {name} | {sum(counts.values())} | " + " | ".join(str(counts[s]) for s in statuses) + " |")
    noticed = rows["all"]["killed"] + rows["all"]["timeout"]
    real = noticed + rows["all"]["survived"]
    score = f"{noticed} of {real} that make a difference: {100 * noticed / real:.1f} %" if real else "nothing to count"
    return "\n".join([*lines, "", score])


def known(results: Path) -> dict[str, Verdict]:
    """Return the latest verdict on each mutant from earlier runs."""
    rows = map(json.loads, results.read_text(encoding="utf-8").splitlines()) if results.exists() else ()
    return {row["key"]: Verdict(row["key"], row["status"], row["by"], row["seconds"]) for row in rows}


def main(arguments: list[str] | None = None) -> int:
    """Test a sample of mutants. Return 1 if a mutant survived and is not known to be equivalent."""
    parser = argparse.ArgumentParser(prog="make.py mutants", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--modules", action="append", default=[], metavar="GLOB", help="only these paths")
    parser.add_argument("--tests", action="append", default=[], metavar="GLOB", help="note only these files of tests")
    parser.add_argument("--sample", type=int, default=20, metavar="N", help="how many mutants (20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which ones (0)")
    parser.add_argument("--commit", default="HEAD", metavar="REV", help="the state to change (HEAD)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", metavar="PATH", help="for the copy, verdicts")
    parser.add_argument("--again", action="store_true", help="judge those anew that lived in an earlier run")
    parser.add_argument("--whole", action="store_true", help="put those that live before the whole default suite")
    parser.add_argument("--map", action="store_true", help="note anew which test reaches which function")
    options = parser.parse_args(arguments)
    copy = Copy(options.folder.resolve())
    commit = copy.fill(options.commit)
    copy.note(options.map, options.tests)
    chosen = sample(copy.tree, modules(copy.tree, options.modules), options.sample, options.seed)
    results, reasons = copy.folder / "results.jsonl", equivalent()
    before, verdicts = known(results), []
    for i, mutation in enumerate(chosen, 1):
        if mutation.key in reasons:
            verdicts.append(Verdict(mutation.key, "equivalent"))
            continue
        old = before.get(mutation.key)
        if old is None or (options.again and old.status == "survived"):
            old = copy.judge(mutation, options.whole)
            row = {"key": old.key, "status": old.status, "by": old.by, "seconds": old.seconds, "commit": commit}
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            where = f"{mutation.path}:{mutation.line} {old.key.split('::')[1]}"
            say(f"{i:4d} {old.status:8s} {old.seconds:5.0f} s  {where}")
        verdicts.append(old)
    if failing := copy.innocent(verdicts):
        say(f"{len(failing)} tests fail without a mutant, and judge none: {', '.join(sorted(failing))}")
        verdicts = [v for v in verdicts if v.by.partition(": ")[2] not in failing]
    for verdict in verdicts:
        if verdict.status == "survived":
            say(f"lived: {verdict.key}")
    say(f"\ncommit {commit}, seed {options.seed}, {len(chosen)} mutants\n\n{table(verdicts)}")
    return int(any(verdict.status == "survived" for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
