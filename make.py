"""One command each for what one does with this checkout; only Python 3.11 or newer is assumed, nothing installed.

    python3 make.py verify [options]    real networks against infinite-width theory, on real digits
    python3 make.py test [options]      the tests (options go to pytest: -k name, -x, ...)
    python3 make.py test-all            the tests, the slow ones too
    python3 make.py lint                ruff and mypy
    python3 make.py format              let ruff lay out the code
    python3 make.py bench [options]     the benchmarks against peers
    python3 make.py docs                the documentation, into site/
    python3 make.py python [arguments]  Python with the project installed: python3 make.py python examples/...
    python3 make.py clean               remove caches and build outputs (.venv stays: delete it to start afresh)

The first run makes a virtual environment in .venv and installs the project there with what the command needs; later
runs find it ready, and a change of pyproject.toml brings it up to date.  Nothing is installed outside the checkout,
so an externally managed Python (PEP 668) is fine.  A Python that comes without ensurepip gets its virtual environment
from virtualenv, which pip places in .bootstrap.  pip's own settings (a mirror, a proxy, PIP_INDEX_URL) are honoured.
"""

# Old Pythons must be able to parse this file, to be told that they are too old: no newer syntax here.

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BOOTSTRAP = ROOT / ".bootstrap"
OLDEST = (3, 11)

# command -> (extras of pyproject.toml that it needs, the Python command lines; the user's options join the last one)
COMMANDS: Dict[str, Tuple[List[str], List[List[str]]]] = {
    "verify": ([], [["-m", "minintk", "verify"]]),
    "test": (["test"], [["-m", "pytest", "-n", "auto", "--maxprocesses=4"]]),
    "test-all": (["test"], [["-m", "pytest", "-n", "auto", "--maxprocesses=4", "-m", ""]]),
    "lint": (["lint", "test"], [["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"], ["-m", "mypy"]]),
    "format": (["lint", "test"], [["-m", "ruff", "check", "--fix"], ["-m", "ruff", "format"]]),
    "bench": (["test", "bench"], [["benchmarks/run.py"]]),
    "docs": (["docs"], [["-m", "mkdocs", "build", "--strict"]]),
    "python": ([], [[]]),
}

LITTER = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "build", "dist", "site")


class Failed(Exception):
    """The environment could not be made; the message says what to do."""


def environment() -> Dict[str, str]:
    """The variables for child processes: the caller's, less those that make Python look outside .venv."""
    drop = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    settings = {"USER": "0", "REQUIRE_VIRTUALENV": "0", "DISABLE_PIP_VERSION_CHECK": "1", "ROOT_USER_ACTION": "ignore"}
    return dict(kept, **{"PIP_" + name: value for name, value in settings.items()})


def call(command: List[str], quiet: bool = False) -> int:
    """Run a command from the checkout and return its exit status, 127 where it cannot be started."""
    pipe = subprocess.DEVNULL if quiet else None
    try:
        return subprocess.call(command, cwd=str(ROOT), env=environment(), stdout=pipe, stderr=pipe)
    except OSError:
        return 127


def venv_python() -> str:
    """Where the virtual environment keeps its Python."""
    return str(VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def new_enough(python: str) -> bool:
    """Whether the command `python` runs, and is at least OLDEST."""
    return call([python, "-c", "import sys; sys.exit(sys.version_info < {0!r})".format(OLDEST)], quiet=True) == 0


def find_python() -> str:
    """A Python that is new enough: .venv's, or one on the PATH."""
    names = ["python3.13", "python3.12", "python3.14", "python3.11", "python3", "python"]
    candidates = [venv_python()] + [found for found in map(shutil.which, names) if found]
    for python in candidates:
        if Path(python).exists() and new_enough(python):
            return python
    raise Failed(
        "minintk needs Python {0}.{1} or newer; this is {2}.{3}, and no newer one is on the PATH.\n".format(
            *OLDEST, *sys.version_info[:2]
        )
        + "Install one (from python.org or your system's packages) and run: python3.13 make.py ..."
    )


# ------------------------------------------------------------------------------------ the environment


def requirements_digest() -> str:
    """Changes whenever the environment has to: what pyproject.toml asks for, and where the checkout lies."""
    import tomllib  # Python 3.11

    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = json.dumps([tables["build-system"], tables["project"], str(ROOT)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other run of this script is installing; the system frees the lock if a run is killed."""
    with open(str(ROOT / ".venv.lock"), "w") as lock:
        try:
            import fcntl
        except ImportError:  # Windows: two first runs at the same time are up to the user there
            yield
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def create_venv() -> None:
    """A fresh .venv with pip in it: from the standard library, else from virtualenv, which pip puts in .bootstrap."""
    if call([sys.executable, "-m", "venv", "--clear", str(VENV)], quiet=True) == 0:
        return
    if call([sys.executable, "-m", "pip", "--version"], quiet=True) != 0:
        raise Failed(
            "this Python has neither ensurepip nor pip, so it cannot make a virtual environment.\n"
            "Debian, Ubuntu: sudo apt install python3-venv.   Others: install Python's pip package, or Python from\n"
            "python.org.   Then run the same command again."
        )
    say("this Python has no ensurepip: fetching virtualenv into .bootstrap")
    shutil.rmtree(str(VENV), ignore_errors=True)
    if call([sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(BOOTSTRAP), "virtualenv"]) != 0:
        raise Failed(offline("virtualenv"))
    runner = "import sys; sys.path.insert(0, {0!r}); from virtualenv import cli_run; cli_run([{1!r}])"
    if call([sys.executable, "-c", runner.format(str(BOOTSTRAP), str(VENV))]) != 0:
        raise Failed("virtualenv could not make .venv; its message stands above.")


def install(extras: List[str]) -> None:
    """The project, editable, with its extras, into .venv."""
    project = "." + ("[" + ",".join(extras) + "]" if extras else "")
    started = VENV / "installing"  # left behind by an interrupted run: that environment is made anew
    if started.exists() or call([venv_python(), "-c", "import pip"], quiet=True) != 0:
        say("making a virtual environment in .venv")
        create_venv()
    started.touch()
    say("installing minintk and what it needs into .venv (the first time takes a minute)")
    status = call([venv_python(), "-m", "pip", "install", "--quiet", "--editable", project])
    started.unlink()
    if status != 0:
        raise Failed(offline("the packages"))


def ensure(extras: List[str]) -> None:
    """Make .venv hold the project with these extras; nothing to do where its stamp says that it does."""
    digest = requirements_digest()
    stamp = VENV / ("installed-" + "-".join(["minintk", *extras]))

    def ready() -> bool:
        return Path(venv_python()).exists() and stamp.exists() and stamp.read_text() == digest

    if not ready():
        with alone():
            if not ready():
                install(extras)
                stamp.write_text(digest)


def offline(what: str) -> str:
    """The message for a failed download."""
    return (
        "could not install " + what + "; pip's message stands above.\n"
        "No network?  The first run needs one; a mirror or proxy set for pip (PIP_INDEX_URL, pip config) is used.\n"
        "With the packages installed by other means: python3 -m minintk verify, python3 -m pytest."
    )


# ----------------------------------------------------------------------------------------- commands


def say(text: str) -> None:
    """A line about what this script does, apart from the commands' own output."""
    print("make.py: " + text, file=sys.stderr, flush=True)


def clean() -> int:
    """Remove caches and build outputs; .venv stays."""
    for name in LITTER:
        shutil.rmtree(str(ROOT / name), ignore_errors=True)
    for folder in ("minintk", "analytic", "tests", "examples", "benchmarks"):
        for cache in (ROOT / folder).rglob("__pycache__"):
            shutil.rmtree(str(cache), ignore_errors=True)
    return 0


def main(arguments: List[str]) -> int:
    """Run the command named first; the exit status is the first one that is not 0."""
    if arguments and arguments[0] == "clean":
        return clean()
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help", "help") else 2
    try:
        if sys.version_info < OLDEST:
            return call([find_python(), str(Path(__file__).resolve()), *arguments])
        extras, lines = COMMANDS[arguments[0]]
        ensure(extras)
    except Failed as error:
        say(str(error))
        return 1
    lines = [*lines[:-1], lines[-1] + arguments[1:]]
    statuses = [call([venv_python(), *line]) for line in lines]
    return next((status for status in statuses if status != 0), 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
