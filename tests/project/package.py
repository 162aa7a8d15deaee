"""Build the wheel and the sdist, and test the wheel in new environments: `python3 make.py package [--only 3.12]`.

Both are written to dist/.  A wheel built from the sdist must contain the same files as the wheel.  For each Python in
PYTHONS on the PATH, the wheel with the extra `test` is installed into a new environment.  There, `minintk doctor` and
the tests in TESTS run outside the checkout.  The exit status is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TESTS = ("tests/oracles/test_golden.py", "tests/device", "tests/minintk/lab/test_doctor.py")


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command in `cwd` without PYTHONPATH, and return its output. Raise SystemExit if the command fails."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def build(place: Path) -> tuple[Path, Path]:
    """Build the wheel and the sdist in dist/. Raise SystemExit if the two would install different files."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    call(sys.executable, "-m", "hatchling", "build", "-d", "dist")
    (wheel,), (sdist,) = (list((ROOT / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, sdist)
    one, two = (sorted(zipfile.ZipFile(path).namelist()) for path in (wheel, place / wheel.name))
    if one != two:
        raise SystemExit(f"the wheel and that of the sdist differ: {sorted(set(one) ^ set(two))}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e3:.0f} KB, {len(one)} files; {sdist.name}", flush=True)
    return wheel, sdist


def pythons(only: list[str] | None) -> Iterator[tuple[str, str]]:
    """Yield (version, path) of each requested Python that is on the PATH and runs. Print those left out."""
    for version in only or PYTHONS:
        path = shutil.which(f"python{version}")
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            yield version, path
        else:
            print(f"{version}: not on this machine, not tried", flush=True)


def tried(version: str, python: str, wheel: Path, sdist: Path, place: Path) -> None:
    """Install the wheel into a new environment, and run `minintk doctor` and TESTS there."""
    venv = place / version
    call(python, "-m", "venv", venv)
    inside = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    call(inside, "-m", "pip", "install", "-q", f"{wheel}[test]")
    doctor = call(inside, "-m", "minintk", "doctor", cwd=place)
    away = place / f"away-{version}"
    shutil.unpack_archive(sdist, away)
    (home,) = away.iterdir()
    for package in ("minintk", "analytic"):  # so that the tests import the installed packages
        shutil.rmtree(home / package)
    said = call(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, cwd=home)
    numpy = next(line for line in doctor.splitlines() if line.startswith("numpy")).split()[-1]
    print(f"{version}: NumPy {numpy}, doctor finds nothing broken, {said.strip().splitlines()[-1]}", flush=True)


def main() -> None:
    """Build the wheel and the sdist, and test the wheel with each Python."""
    parser = argparse.ArgumentParser(prog="make.py package", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=PYTHONS, help="this Python; may be given again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = build(Path(folder))
        for version, python in pythons(options.only):
            tried(version, python, wheel, sdist, Path(folder))


if __name__ == "__main__":
    main()
