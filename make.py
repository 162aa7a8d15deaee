"""Run each task of this checkout with one command.  Only Python 3.11 or newer must be installed.

    python3 make.py verify [options]    compare finite networks with infinite-width theory, on real digits
    python3 make.py test [options]      run the tests (options go to pytest: -k name, -x, ...)
    python3 make.py test-all            run all tests, including the slow ones
    python3 make.py explore [options]   run the property tests on fresh examples (--minutes 20, options of pytest)
    python3 make.py lowest [options]    run the tests with the oldest versions in pyproject.toml, on Python 3.11
    python3 make.py newest [options]    run the tests with the newest versions (--pre: with pre-releases too)
    python3 make.py lint                run ruff and mypy, and check the words and claims of docstrings and pages
    python3 make.py format              format the code with ruff
    python3 make.py bench [options]     run the benchmarks against peers
    python3 make.py mutants [options]   change the numerical modules a little and see whether the tests notice
    python3 make.py deletions [names]   run the core's tests without each satellite in turn, and without all of them
    python3 make.py docs                build the documentation into site/
    python3 make.py lite                build a JupyterLite site, which runs the notebooks in a browser, into site/lite
    python3 make.py replicate [options] repeat rows of docs/papers with other networks: coverage, flipped verdicts
    python3 make.py course [options]    grade the course's own submissions, in minutes (hw1: only this assignment)
    python3 make.py package [options]   build wheel and sdist, and test them on each Python on the PATH (--only 3.12)
    python3 make.py release-check       check everything that a release has to pass, in hours; a later call resumes
    python3 make.py browser             build site/, then test it in a real browser: widths, formulas, links, search
    python3 make.py python [arguments]  run Python with the project installed, in the current folder
    python3 make.py clean               remove caches and build outputs, but not .venv (delete it to start over)

The first run makes a virtual environment in .venv and installs the project and the packages that the command needs.
Later runs reuse .venv, and update it if the requirements in pyproject.toml or constraints.txt have changed.  Nothing is
installed outside the checkout, so an externally managed Python (PEP 668) is fine.  If Python lacks ensurepip, pip
installs virtualenv into .bootstrap, and virtualenv makes the environment.  pip's own settings (mirrors, proxies) apply.

.venv contains the package versions in constraints.txt.  With these versions, tests fail on warnings.  With other
versions, warnings are only reported, because deprecations in a library are not this checkout's fault.  `lowest` and
`newest` use other versions (in .venv-lowest and .venv-newest).  The other commands also do so if constraints.txt does
not cover this version of Python, or if pip's index lacks one of the pinned versions.
"""

# Use only old syntax here. Old versions of Python must parse this file to report that they are too old.

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BOOTSTRAP = ROOT / ".bootstrap"
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST = (3, 11)
UNTRIED = (3, 15)  # the first version of Python that constraints.txt does not cover

# This warning occurred once for correct products, but in none of 40,000 products with NaN and inf in BLAS's buffers.
SPURIOUS = "ignore:invalid value encountered in matmul:RuntimeWarning"
PYTEST = ["-m", "pytest", "-n", "auto", "--maxprocesses=4", "--dist=worksteal"]  # tests sharing fixtures stay together
THOROUGH = "--hypothesis-profile=thorough"  # more random examples; defined in tests/conftest.py
SITE = ["-m", "sphinx", "-W", "--keep-going", "-q", "-d", "build/doctrees", "docs", "site"]
AFRESH = ["-c", "import shutil; [shutil.rmtree(name, ignore_errors=True) for name in ('site', 'build/doctrees')]"]

# {command: (extras of pyproject.toml it needs, Python command lines)}; the last one receives the user's options
COMMANDS: Dict[str, Tuple[List[str], List[List[str]]]] = {
    "verify": ([], [["-m", "minintk", "verify"]]),
    "test": (["test"], [PYTEST]),
    "test-all": (["test"], [[*PYTEST, "-m", "", THOROUGH]]),
    "explore": (["test"], [["-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=explore", "-rf"]]),
    "lowest": (["test"], [PYTEST]),
    "newest": (["test"], [PYTEST]),
    "lint": (
        ["lint", "test"],
        [
            *(["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"]),
            *(["tests/project/words.py"], ["-m", "tests.project.claims"], ["-m", "mypy"]),
        ],
    ),
    "format": (["lint", "test"], [["-m", "ruff", "check", "--fix"], ["-m", "ruff", "format"]]),
    "bench": (["test", "bench"], [["benchmarks/run.py"]]),
    "mutants": (["test"], [["tests/mutants/mutants.py"]]),
    "deletions": (["test"], [["tests/project/deletions.py"]]),
    "docs": (["docs"], [AFRESH, SITE]),
    "lite": (["lite"], [["docs/notebooks/lite.py"]]),
    "replicate": ([], [["examples/replicate.py"]]),
    "course": ([], [["course/check.py"]]),
    "package": (["package"], [["tests/project/package.py"]]),
    "release-check": (["test", "lint"], [["tests/project/release.py"]]),
    "browser": (["browser"], [AFRESH, SITE, ["-m", "pytest", "-m", "", "-rs", "tests/docs"]]),
    "python": ([], [[]]),
}

LITTER = (".pytest_cache", ".mypy_cache", ".ruff_cache", "build", "dist", "site", "jupyter_execute")
# `clean` keeps .hypothesis, which contains the failing examples that `explore` found


class Failed(Exception):
    """Raised if the environment for a command cannot be set up. The message says what to do."""


def environment() -> Dict[str, str]:
    """Return the environment variables for child processes, without those that make Python look outside .venv.

    PYTHONDONTWRITEBYTECODE is also removed, so the hundreds of processes that tests start need not recompile modules.
    """
    drop = ["PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"]
    drop.append("PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    settings = {"USER": "0", "REQUIRE_VIRTUALENV": "0", "DISABLE_PIP_VERSION_CHECK": "1", "ROOT_USER_ACTION": "ignore"}
    return dict(kept, **{"PIP_" + name: value for name, value in settings.items()})


def call(command: List[str], quiet: bool = False, here: bool = False) -> int:
    """Run a command in the checkout, or in the caller's folder if `here`. Return its status (127: it did not start)."""
    pipe = subprocess.DEVNULL if quiet else None
    try:
        return subprocess.call(command, cwd=None if here else str(ROOT), env=environment(), stdout=pipe, stderr=pipe)
    except OSError:
        return 127


def folder(versions: str) -> Path:
    """Return the folder of the virtual environment for the versions "pinned", "lowest" or "newest"."""
    return VENV if versions == "pinned" else VENV.with_name(VENV.name + "-" + versions)


def venv_python(versions: str = "pinned") -> str:
    """Return the path of Python in the virtual environment for `versions`."""
    return str(folder(versions) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def find_python(unfit: str = "sys.version_info < {0!r}".format(OLDEST)) -> str:
    """Return the path of a Python, in .venv or on the PATH, that runs and in which the expression `unfit` is false."""
    names = ["python3.13", "python3.12", "python3.14", "python3.11", "python3", "python"]
    candidates = [venv_python()] + [found for found in map(shutil.which, names) if found]
    for python in candidates:
        if Path(python).exists() and call([python, "-c", "import sys; sys.exit({0})".format(unfit)], quiet=True) == 0:
            return python
    if sys.version_info >= OLDEST:
        raise Failed("this command runs on Python {0}.{1}, and none is on the PATH.".format(*OLDEST))
    raise Failed(
        "minintk needs Python {0}.{1} or newer; this is {2}.{3}, and no newer one is on the PATH.\n".format(
            *OLDEST, *sys.version_info[:2]
        )
        + "Install one (from python.org or your system's packages) and run: python3.13 make.py ..."
    )


# ------------------------------------------------------------------------------------ the environment


def project_table() -> Dict[str, Any]:
    """Return the table [project] of pyproject.toml, with the table [build-system] as its entry "build"."""
    import tomllib  # Python 3.11

    tables: Dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(tables["project"], build=tables["build-system"])


def requirements_digest() -> str:
    """Return a digest of the requirements, their pinned versions and the path of the checkout."""
    asked = json.dumps([project_table(), CONSTRAINTS.read_text(encoding="utf-8"), str(ROOT)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


def lower_bounds(extras: List[str]) -> str:
    """Return pip's constraints for the oldest versions that pyproject.toml allows: name>=1.2 becomes name==1.2."""
    project = project_table()
    named = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return "".join(line.replace(">=", "==") + "\n" for line in named)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold a lock, so that processes install one at a time (except on Windows). A killed process releases its lock."""
    with open(str(ROOT / ".venv.lock"), "w") as lock:
        try:
            import fcntl
        except ImportError:  # Windows has no fcntl, so users must not start two first runs at the same time there
            yield
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def create_venv(place: Path) -> None:
    """Make a virtual environment that contains pip, with the module venv or, if that fails, with virtualenv."""
    if call([sys.executable, "-m", "venv", "--clear", str(place)], quiet=True) == 0:
        return
    if call([sys.executable, "-m", "pip", "--version"], quiet=True) != 0:
        raise Failed(
            "this Python has neither ensurepip nor pip, so it cannot make a virtual environment.\n"
            "Debian, Ubuntu: sudo apt install python3-venv.   Others: install Python's pip package, or Python from\n"
            "python.org.   Then run the same command again."
        )
    say("this Python has no ensurepip: fetching virtualenv into .bootstrap")
    shutil.rmtree(str(place), ignore_errors=True)
    if call([sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(BOOTSTRAP), "virtualenv"]) != 0:
        raise Failed(offline("virtualenv"))
    runner = "import sys; sys.path.insert(0, {0!r}); from virtualenv import cli_run; cli_run([{1!r}])"
    if call([sys.executable, "-c", runner.format(str(BOOTSTRAP), str(place))]) != 0:
        raise Failed("virtualenv could not make " + place.name + "; its message stands above.")


def install(extras: List[str], versions: str, options: List[str]) -> bool:
    """Install the project (editable) with these extras. Return True if all versions are those of constraints.txt."""
    place, python = folder(versions), venv_python(versions)
    started = place / "installing"  # if an interrupted run leaves this file, the next run makes the environment again
    if started.exists() or call([python, "-c", "import pip"], quiet=True) != 0:
        say("making a virtual environment in " + place.name)
        create_venv(place)
    started.touch()
    say("installing minintk and what it needs into " + place.name + " (the first time takes a minute)")
    project = "." + ("[" + ",".join(extras) + "]" if extras else "")
    command = [python, "-m", "pip", "install", "--quiet", "--editable", project, *options]
    if versions == "lowest":
        (place / "lowest.txt").write_text(lower_bounds(extras), encoding="utf-8")
        command += ["--constraint", str(place / "lowest.txt")]
    pinned = versions == "pinned" and sys.version_info < UNTRIED
    status = call([*command, "--constraint", str(CONSTRAINTS)] if pinned else command)
    if pinned and status != 0:
        say("the versions of constraints.txt are not all to be had here: trying the newest ones that are")
        pinned, status = False, call(command)
    started.unlink()
    if status != 0:
        raise Failed(offline("the packages"))
    return pinned


def ensure(extras: List[str], versions: str, options: List[str]) -> bool:
    """Install the project and these extras if they are missing or outdated. Return True if their versions are pinned.

    If the environment's stamp is current, nothing is done, except for `newest`, which always looks for newer versions.
    """
    digest = requirements_digest()
    stamp = folder(versions) / ("installed-" + "-".join(["minintk", *extras]))

    def found() -> List[str]:
        return stamp.read_text().split() if Path(venv_python(versions)).exists() and stamp.exists() else [""]

    if found()[0] != digest or versions == "newest":
        with alone():
            if found()[0] != digest or versions == "newest":
                pinned = install(extras, versions, options)
                stamp.write_text(digest + (" pinned" if pinned else " free"))
    return found()[1:] == ["pinned"]


def offline(what: str) -> str:
    """Return the error message for packages that could not be installed."""
    return (
        "could not install " + what + "; pip's message stands above.\n"
        "No network?  The first run needs one; a mirror or proxy set for pip (PIP_INDEX_URL, pip config) is used.\n"
        "With the packages installed by other means: python3 -m minintk verify, python3 -m pytest."
    )


# ----------------------------------------------------------------------------------------- commands


def say(text: str) -> None:
    """Print a message of this script to stderr, because stdout is for the output of the commands."""
    print("make.py: " + text, file=sys.stderr, flush=True)


def explore(line: List[str], options: List[str]) -> int:
    """Repeat the property tests with new seeds until the time is up, then print how to reproduce the failures.

    Hypothesis prints the smallest failing example and stores it in .hypothesis/examples for the next round.
    """
    parser = argparse.ArgumentParser(prog="make.py explore", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=10.0, help="no round begins later than that")
    own, others = parser.parse_known_args(options)
    end, rounds, status = time.monotonic() + 60 * own.minutes, 0, 0
    failed = []  # type: List[str]
    while status < 2 and (rounds == 0 or time.monotonic() < end):  # 2 or more: pytest was interrupted or found no tests
        seed = "--hypothesis-seed={0}".format(random.SystemRandom().randrange(2**32))
        status = call([*line, seed, *others])
        rounds, failed = rounds + 1, failed + ([seed] if status else [])
    say("rounds: {0}, failed: {1}".format(rounds, len(failed)))
    for seed in failed:
        say("a test that failed there: python3 make.py explore --minutes 0 " + seed + " tests/FILE.py::NAME")
    return status or (1 if failed else 0)


def clean() -> int:
    """Remove caches and build outputs, but not .venv."""
    for name in LITTER:
        shutil.rmtree(str(ROOT / name), ignore_errors=True)
    for folder in ("minintk", "analytic", "tests", "examples", "benchmarks", "course", "docs"):
        for cache in (ROOT / folder).rglob("__pycache__"):
            shutil.rmtree(str(cache), ignore_errors=True)
    return 0


def main(arguments: List[str]) -> int:
    """Run the command that the first argument names. Return the first nonzero exit status, or 0."""
    if arguments and arguments[0] == "clean":
        return clean()
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help", "help") else 2
    command, options = arguments[0], arguments[1:]
    versions = command if command in ("lowest", "newest") else "pinned"
    extras, lines = COMMANDS[command]
    try:
        if sys.version_info < OLDEST:
            return call([find_python(), str(Path(__file__).resolve()), *arguments], here=True)
        if versions == "lowest" and sys.version_info[:2] != OLDEST:
            oldest = find_python("sys.version_info[:2] != {0!r}".format(OLDEST))
            return call([oldest, str(Path(__file__).resolve()), *arguments], here=True)
        upgrade = ["--upgrade", "--upgrade-strategy", "eager"] if versions == "newest" else []
        if versions == "newest" and "--pre" in options:
            options.remove("--pre")
            upgrade.append("--pre")
        pinned = ensure(extras, versions, upgrade)
    except Failed as error:
        say(str(error))
        return 1
    fatal = ["-W", "error", "-W", SPURIOUS] if pinned else []  # turns warnings into errors
    lines = [[venv_python(versions), *line, *(fatal if line[1:2] == ["pytest"] else [])] for line in lines]
    if command == "explore":
        return explore(lines[-1], options)
    statuses = [call(line, here=command == "python") for line in [*lines[:-1], lines[-1] + options]]
    return next((status for status in statuses if status != 0), 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
