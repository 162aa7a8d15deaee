"""Test claims, which have one owner at a time and end with the owner's process, and work that several owners share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from minintk.files import locks as units
from minintk.files.locks import Claim, Held, claim_or_say_who, claimed, remove_claims

needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
OWNER = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from minintk.files.locks import claim_or_say_who

held = ExitStack()
held.enter_context(claim_or_say_who(Path(sys.argv[1]), "a test"))
{between}
print("mine", flush=True)
time.sleep(100)
"""


def owner(place: Path, between: str = "") -> subprocess.Popen[str]:
    """Start a process that holds the claim at `place` until the process ends."""
    code = OWNER.format(between=between)
    process = subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    place = tmp_path / "17.lock"
    first = claimed(place)
    assert first is not None
    assert first.held
    assert claimed(place) is None
    first.release()
    first.release()
    with Claim(place, wait=True) as second:
        assert second.held
        assert not first.held
        first.release()
        assert claimed(place) is None
    remove_claims([place, place])
    assert list(tmp_path.iterdir()) == []


def test_of_many_who_want_a_unit_one_gets_it(tmp_path: Path) -> None:
    """Only one of eight threads that claim a unit at the same moment obtains the claim."""
    for i in range(10):
        place, begin = tmp_path / f"{i}.lock", Barrier(8)

        def attempt(_: int, place: Path = place, begin: Barrier = begin) -> Claim | None:
            begin.wait()
            return claimed(place)

        with ThreadPoolExecutor(8) as pool:
            got = [claim for claim in pool.map(attempt, range(8)) if claim is not None]
        assert len(got) == 1
        got[0].release()


@needs_kill
def test_a_claim_dies_with_its_owner(tmp_path: Path) -> None:
    """A stopped owner keeps the claim. A killed owner loses the claim at once, even before its exit status is read."""
    place = tmp_path / "17.lock"
    with owner(place) as process:
        told = rf"a test: process {process.pid} on .* is at work .*17\.lock\)\. Wait for it"
        with pytest.raises(Held, match=told), claim_or_say_who(place, "a test"):
            pass
        process.send_signal(signal.SIGSTOP)
        assert claimed(place) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        with claim_or_say_who(place, "a test"):
            assert place.read_text().startswith(f"process {os.getpid()} on ")


@needs_kill
def test_workers_that_outlive_their_owner_do_not_keep_its_claim(tmp_path: Path) -> None:
    """Forked workers inherit all open files, including the lock file, but close the lock file when they start."""
    place, born = tmp_path / "17.lock", tmp_path / "child"
    child_starts = f"if not os.fork():\n    Path({str(born)!r}).write_text(str(os.getpid()))\n    time.sleep(100)"
    until_it_has = (
        f"while not (Path({str(born)!r}).exists() and Path({str(born)!r}).read_text()):\n    time.sleep(0.01)"
    )
    with owner(place, f"import os\n{child_starts}\n{until_it_has}") as process:
        process.kill()
        process.wait()
        child = int(born.read_text())
        try:
            os.kill(child, 0)  # the child is alive
            assert claimed(place) is not None
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_does_not_release_its_parents_claims(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "17.lock")
    if (child := os.fork()) == 0:
        claim.release()
        os._exit(0 if claimed(tmp_path / "17.lock") is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert claim.held
    assert claimed(tmp_path / "17.lock") is None
    claim.release()


def test_a_claim_that_does_not_say_whose_it_is(tmp_path: Path) -> None:
    place = tmp_path / "17.lock"
    place.write_bytes(b"\xff\xfe")
    told = "a test: another process is at work"
    with Claim(place), pytest.raises(Held, match=told), claim_or_say_who(place, "a test"):
        pass


def late(right: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises KeyboardInterrupt at the first call and behaves like `right` afterwards."""
    calls: list[Any] = []

    def once(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return right(*arguments, **named)

    return once


def named(place: Path) -> Any:
    return claim_or_say_who(place, "a test")


@pytest.mark.parametrize(
    ("claim", "owner", "name"), [(Claim, Claim, "release"), (named, Claim, "release"), (named, Path, "write_text")]
)
def test_a_claim_that_an_exception_leaves_is_free(
    claim: Any, owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is released even if a notebook keeps the traceback of the exception."""
    place = tmp_path / "17.lock"
    monkeypatch.setattr(owner, name, late(getattr(owner, name)))
    with pytest.raises(KeyboardInterrupt) as kept, claim(place):
        pass
    again = claimed(place)
    assert again is not None, kept.traceback
    again.release()


def test_a_full_disk_costs_the_name_alone(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with claim_or_say_who(tmp_path / "17.lock", "a test"):
            assert claimed(tmp_path / "17.lock") is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --------------------------------------------------------------------------------------------------- units


def test_units_come_once_and_those_of_others_when_they_are_given_up(tmp_path: Path) -> None:
    place: Callable[[int], Path] = lambda unit: tmp_path / f"{unit}.lock"  # noqa: E731
    done, other = set[int](), Claim(place(2))
    jobs = units.shared(range(4), place, done.__contains__)
    for expected in (0, 1, 3):
        job = next(jobs)
        assert job is not None
        assert job[0] == expected
        with job[1]:
            done.add(expected)
    assert next(jobs) is None
    assert next(jobs) is None
    other.release()  # without a result
    job = next(jobs)
    assert job is not None
    with job[1]:
        pass  # no result here either
    again = next(jobs)
    assert again is not None
    assert again[0] == 2
    done.add(2)
    jobs.close()
    assert not again[1].held


def test_a_unit_that_was_finished_before_it_was_claimed_is_not_computed(tmp_path: Path) -> None:
    looks = iter([False, True, True])
    assert list(units.shared([0], lambda _: tmp_path / "0.lock", lambda _: next(looks))) == []
    assert claimed(tmp_path / "0.lock") is not None


class Counting(Executor):
    """An executor that records each call and leaves it to the test to complete the call's future."""

    def __init__(self, **of: Any) -> None:
        self.given = list[Future[Any]]()
        vars(self).update(of)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given.append(Future())
        return self.given[-1]


@pytest.mark.parametrize(("of", "most"), [({"_max_workers": 3}, 6), ({"_max_workers": None}, 256), ({}, 256)])
def test_workers_are_kept_busy_and_no_more(of: dict[str, Any], most: int) -> None:
    pool = Counting(**of)
    calls = units.in_flight(range(1000), lambda job: pool.submit(print, job), pool)
    with ThreadPoolExecutor(1) as other:
        found = other.submit(next, calls)
        while len(pool.given) < most:
            assert not found.done()
        pool.given[2].set_result("two")
        job, future = found.result()
    assert (job, future.result(), len(pool.given)) == (2, "two", most)
    calls.close()
    assert [future.cancelled() for future in pool.given].count(False) == 1


def test_without_an_executor_calls_are_made_one_by_one() -> None:
    made = list[int]()
    for done, (job, future) in enumerate(
        units.in_flight(range(3), lambda job: units.InTurn().submit(made.append, job), None), 1
    ):
        assert (future.result(), job, len(made)) == (None, done - 1, done)


def test_stopped_it_begins_no_more_and_cancels_what_has_not_begun() -> None:
    pool, stop = Counting(_max_workers=2), list[int]()
    calls = units.in_flight(range(9), lambda job: pool.submit(print, job), pool, lambda: bool(stop))
    with ThreadPoolExecutor(1) as other:
        found = other.submit(next, calls)
        while len(pool.given) < 4:
            assert not found.done()
        pool.given[0].set_running_or_notify_cancel()
        pool.given[1].set_result(1)
        assert found.result()[0] == 1
    stop.append(1)
    pool.given[0].set_result(0)
    assert [job for job, _ in calls] == [0]
    assert len(pool.given) == 4
    assert pool.given[2].cancelled()
    assert pool.given[3].cancelled()
