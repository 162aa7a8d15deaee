"""Test that long runs give the same bits even if processes are killed, work in parallel, or fill the disk."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import numpy as np
import pytest

from tests.laws import long_runs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 and a server that forks")

Start = Callable[..., Any]
Unbroken = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def start() -> Start:
    """Return a function that starts a run in a process forked from a server that has already imported everything."""
    context: Any = get_context("forkserver")
    context.set_forkserver_preload([long_runs.__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the server does not inherit sys.path
        first = context.Process()
        first.start()
        first.join()

    def begin(kind: str, folder: Path, starters: int = 1) -> Any:
        process = context.Process(target=long_runs.run, args=(kind, folder, starters))
        process.start()
        return process

    return begin


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder, in memory if possible. Data written before a kill survive even if not flushed to disk."""
    with TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def unbroken(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Return a function that returns the result of an uninterrupted run."""

    @cache
    def of(kind: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("unbroken") / kind
        process = start(kind, folder)
        process.join()
        assert process.exitcode == 0
        assert long_runs.computed(folder) == long_runs.UNITS[kind]
        return long_runs.result(kind, folder)

    return of


def leftovers(folder: Path) -> list[Path]:
    joint = ("record.lock", "sweep.lock", "fit.lock")  # lock files that may remain
    return [path for path in folder.rglob("*") if path.suffix in (".part", ".lock") and path.name not in joint]


def wait_for(units: float, folder: Path, at_work: list[Any]) -> None:
    """Wait until `units` (possibly fractional) more units are computed, or a process ends."""
    goal = long_runs.computed(folder) + int(units)
    while long_runs.computed(folder) < goal and all(process.is_alive() for process in at_work):
        sleep(0.001)
    sleep(units % 1 * long_runs.UNIT)


@pytest.mark.parametrize("kind", long_runs.UNITS)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(kind: str, kills: int, folder: Path, start: Start, unbroken: Unbroken) -> None:
    """Processes are killed at random moments. If one finishes before it is killed, the next run uses a new folder."""
    want = unbroken(kind)
    folders, killed, rng = [folder / "killed-0"], 0, np.random.default_rng(kills)
    for _ in range(20 * kills):
        process = start(kind, folders[-1])
        left = max(1, long_runs.UNITS[kind] - long_runs.computed(folders[-1]))
        wait_for(rng.uniform(0, left), folders[-1], [process])
        process.kill()
        process.join()
        if process.exitcode == 0:
            folders.append(folder / f"killed-{len(folders)}")
        elif (killed := killed + 1) == kills:
            break
    last = start(kind, folders[-1])
    last.join()
    assert last.exitcode == 0
    for at in folders:
        assert long_runs.result(kind, at) == want
        assert not leftovers(at)
    repeated = sum(map(long_runs.computed, folders)) - len(folders) * long_runs.UNITS[kind]
    assert killed == kills
    assert repeated <= killed  # at most the unit that each kill interrupted


@pytest.mark.parametrize("kind", long_runs.FILES)
@pytest.mark.parametrize("starters", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_starters_share_the_work(kind: str, starters: int, folder: Path, start: Start, unbroken: Unbroken) -> None:
    """Each unit is computed once, by one of the processes.

    Every process computes at least one unit, because each process waits in its first unit until all have begun a unit.
    """
    shared = folder / "shared"
    together = [start(kind, shared, starters) for _ in range(starters)]
    for process in together:
        process.join()
        assert process.exitcode == 0
    assert long_runs.result(kind, shared) == unbroken(kind)
    assert long_runs.computed(shared) == long_runs.UNITS[kind]
    assert not leftovers(shared)
    assert len(list(folder.glob("shared-*.log"))) == starters


@pytest.mark.slow
@pytest.mark.parametrize("kind", long_runs.FILES)
def test_starters_of_whom_some_are_killed(kind: str, folder: Path, start: Start, unbroken: Unbroken) -> None:
    """Three processes work on a run. From time to time, one is killed and another is started.

    The result must be bitwise identical to that of an uninterrupted run.
    """
    want, rng, all_killed = unbroken(kind), np.random.default_rng(0), 0
    for number in range(10):
        shared, killed = folder / f"shared-{number}", 0
        at_work = [start(kind, shared) for _ in range(3)]
        while all(process.is_alive() for process in at_work) and killed < 5:
            wait_for(rng.uniform(0, 4), shared, at_work)
            victim = at_work.pop(int(rng.integers(3)))
            victim.kill()
            victim.join()
            killed += victim.exitcode != 0
            at_work.append(start(kind, shared))
        all_killed += killed
        for process in at_work:
            process.join()
            assert process.exitcode == 0
        assert long_runs.result(kind, shared) == want
        assert long_runs.computed(shared) <= long_runs.UNITS[kind] + killed
        assert not leftovers(shared)
    assert all_killed >= 10


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 512 KiB in memory and yield its folder. Skip the test if no file system can be mounted."""
    place, mount = tmp_path / "disk", shutil.which("mount")
    place.mkdir()
    how = [mount or "no mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if mount is None or subprocess.run(how, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("kind", long_runs.UNITS)
def test_a_disk_that_fills_up(kind: str, full_disk: Path, unbroken: Unbroken) -> None:
    """A run that fills the disk raises OSError. With more space, it resumes, bitwise as if uninterrupted."""
    want = unbroken(kind)
    folder, ballast = full_disk / "inside" / "run", full_disk / "ballast"
    refusals = []
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as worker:
        for free in (4096, 8192, 12288, 16384, 24576, 32768):
            ballast.unlink(missing_ok=True)
            state = os.statvfs(full_disk)
            ballast.write_bytes(bytes(max(0, state.f_bfree * state.f_frsize - free)))
            refusals.append(worker.submit(long_runs.run, kind, folder).exception())
        ballast.unlink()
        worker.submit(long_runs.run, kind, folder).result()
    told = [error for error in refusals if error is not None]
    assert {getattr(error, "errno", error) for error in told} == {errno.ENOSPC}
    assert long_runs.result(kind, folder) == want
    assert not leftovers(folder)
