"""Test public calls inside public calls, and exceptions raised at any line.

All tests use a deterministic tracer, except for one, which uses signals.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from minintk import threads
from tests.kit.guests import STORES, Host, cleaning, guest_inside, hosts, left_by_error, stopped

THOROUGH = ("pool", "step")  # slow tests stop these hosts at every line
OTHERS = (
    "train", "train a coupled batch", "fit", "empirical kernel", "kernel of points", "kernel of images",
    *["store"] * STORES,
)  # fmt: skip

House = tuple[Host, str, dict[str, tuple[Host, str]]]


@pytest.fixture
def house(name: str) -> Iterator[House]:
    """Yield (host, result of the host, {guest: (call, result of the call)}). Each result comes from a separate call."""
    with hosts() as (all_hosts, guests):
        yield all_hosts[name], all_hosts[name](), {guest: (call, call()) for guest, call in guests.items()}


def lines(host: Host) -> int:
    """Count the lines that a host executes."""
    return stopped(host, 0, lambda: None, lambda frame: True)[1]


def sample(name: str, host: Host, some: int) -> list[int]:
    """Return at most `some` random indices of executed lines of a host. The sample is the same in every run."""
    count = lines(host)
    return sorted(random.Random(f"{name} {some}").sample(range(1, count + 1), min(some, count)))


@pytest.mark.parametrize("name", [*THOROUGH, *OTHERS])
def test_a_guest_changes_nothing(name: str, house: House) -> None:
    host, right, guests = house
    for k in sample(name, host, 12):
        guest_inside(host, right, guests, k)


@pytest.mark.parametrize("name", [*THOROUGH, *OTHERS])
def test_an_exception_leaves_nothing_behind(name: str, house: House) -> None:
    host, right, _ = house
    for k in sample(name, host, 12):
        left_by_error(host, right, k)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*THOROUGH, *OTHERS])
def test_a_guest_changes_nothing_at_many_lines(name: str, house: House) -> None:
    """Call all guests at every line of the hosts `pool` and `step`, and at up to 2,000 lines of all other hosts."""
    host, right, guests = house
    for k in sample(name, host, 10**9 if name in THOROUGH else 2000 // len(OTHERS)):
        guest_inside(host, right, guests, k)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*THOROUGH, *OTHERS])
def test_an_exception_leaves_nothing_behind_at_many_lines(name: str, house: House) -> None:
    host, right, _ = house
    for k in sample(name, host, 10**9 if name in THOROUGH else 2000 // len(OTHERS)):
        left_by_error(host, right, k)


@pytest.mark.parametrize("name", ["pool", "step"])
def test_the_next_call_repairs_what_an_exception_in_a_clean_up_leaves(name: str, house: House) -> None:
    host, right, _ = house
    count = stopped(host, 0, lambda: None, cleaning)[1]
    assert count > 10
    for k in range(1, count + 1, 1 + count // 60):
        left_by_error(host, right, k, cleaning)


# ------------------------------------------------------------------------------------------- negative controls


def broken_by(name: str, law: Any, *planted: tuple[Any, str, Any], some: int = 10**9, rounds: int = 1) -> bool:
    """Return True if, with the errors `planted`, the law fails at any of `some` lines of the host."""
    with hosts() as (all_hosts, guests), pytest.MonkeyPatch.context() as patch:
        host, right = all_hosts[name], all_hosts[name]()
        known, all_lines = {guest: (call, call()) for guest, call in guests.items()}, sample(name, host, some)
        for error in planted:
            patch.setattr(*error)
        random.Random(0).shuffle(all_lines)  # the lines at which an error shows are close together
        for k in all_lines * rounds:
            try:
                with np.errstate(all="ignore"):  # uninitialised memory can contain any value, even a signalling NaN
                    law(host, right, known, k)
            except (
                AssertionError,
                IndexError,
                TypeError,
                RuntimeWarning,
            ):  # RuntimeWarning: np.errstate has no effect in the threads of the pool
                return True
    return False


def error_law(host: Host, right: str, _: Any, k: int) -> int:
    return left_by_error(host, right, k)


def test_memory_of_the_thread_is_refused() -> None:
    """Plant an error: a thread reuses the memory of patches, so its next call (by a guest) overwrites the patches."""
    Patches = pytest.importorskip("minintk.fast.patches", reason="the satellite of speed was taken away").Patches
    kept: dict[Any, Any] = {}
    right = Patches.read

    def read(self: Any, x: Any, out: Any = None) -> Any:
        P = right(self, x, out)
        memory = kept.setdefault((threading.get_ident(), P.shape, P.dtype), np.empty_like(P))
        memory[...] = P
        return memory

    assert broken_by("step", guest_inside, (Patches, "read", read))


def test_a_call_that_does_not_wait_is_refused() -> None:
    """Plant an error: a call does not wait for other threads and can therefore return before all pieces are computed.

    Pauses in the pieces keep the caller from computing all of them, so that waiting makes a difference.
    """
    caller = threading.get_ident()

    def take(self: Any) -> None:
        for i in self.places:
            time.sleep(0.001 if threading.get_ident() == caller else 0.01)
            self.results[i] = self.work(self.items[i])

    paused, does_not_wait = (threads._Job, "take", take), (threads._Job, "wait", lambda self: None)
    assert not broken_by("pool", guest_inside, paused, some=10)
    assert broken_by("pool", guest_inside, paused, does_not_wait)


def test_a_limit_that_an_error_leaves_is_refused() -> None:
    """Plant an error: the limit of one BLAS thread is not removed after an exception."""

    def enter(self: Any) -> None:
        threads._holders[id(self)] = threading.get_ident(), None
        for library in threads.blas_libraries():
            if (count := library.num_threads) != 1:
                threads._before[library] = count
                library.set_num_threads(1)
        assert threads._holders

    def exit_(self: Any, kind: Any, *_: Any) -> None:
        if kind is None:
            threads._leave(id(self))

    held = threads.single_threaded_blas
    with threadpool_limits(2, user_api="blas"):
        try:
            assert broken_by("pool", error_law, (held, "__enter__", enter), (held, "__exit__", exit_))
        finally:
            for key in list(threads._holders):
                threads._leave(key)


def test_marks_that_have_to_be_unset_are_refused() -> None:
    """Plant an error: the mark of a busy thread remains if an exception is raised before the mark is removed."""

    def alone(work: Any, *args: Any) -> Any:
        token = threads._inside.set(True)
        found = work(*args)
        threads._inside.reset(token)
        return found

    outer = threads._inside.set(False)
    try:
        assert broken_by("pool", error_law, (threads, "alone", alone))
    finally:
        threads._inside.reset(outer)
        threads._inside.set(False)


# ------------------------------------------------------------------------------------------------- storms


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_storms_of_signals(count: int) -> None:
    """Run `signal_storms` in a separate process, with a limit of 20 minutes."""
    storm = Path(__file__).with_name("signal_storms.py")
    done = subprocess.run(
        [sys.executable, storm, str(count)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"'storms': {count}" in done.stdout
