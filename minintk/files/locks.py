"""Divide units of work between processes that share a folder, until all are finished.

A claim is a lock on a file.  The operating system releases a claim when the process that holds it ends, even if the
file remains.  docs/long-runs.md describes the protocol and its requirements for network folders.

    with (
        closing(shared(missing, place=..., finished=...)) as units,
        closing(in_flight(units, lambda job: pool.submit(work, job[0]), pool)) as calls,
    ):
        for (unit, claim), future in calls:
            with claim:
                ...                                         # publish future.result()

To make the calls one after another, use `InTurn().submit` instead of `pool.submit`, and pass None as the executor.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

from minintk.files.reading import reading

PAUSE = 0.1
"""Seconds between two checks of units that other processes hold."""


class Held(RuntimeError):
    """Raised if another process holds the requested claim.  The message names the file and, if known, the process."""


class Claim(AbstractContextManager["Claim"]):
    """A claim that this process holds until `release`, or until the end of a `with` block.

    Raises TimeoutError if another process holds it and `wait` is False, or OSError if locking fails.
    """

    def __init__(self, place: Path, wait: bool = False) -> None:
        from filelock import FileLock  # warns on import if the system has no locks, e.g. in a browser

        self._lock = FileLock(place, thread_local=False)
        self._lock.acquire(blocking=wait)

    @property
    def held(self) -> bool:
        """True until the claim is released."""
        return self._lock.is_locked

    def release(self) -> None:
        """Release the claim.  The file remains (except on Windows), because another process could be locking it."""
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        finally:
            self.release()  # again, because a signal handler's exception can end the first call


def claimed(place: Path) -> Claim | None:
    """Return a claim on the unit at `place`, or None if another process holds it."""
    with suppress(TimeoutError):
        return Claim(place)
    return None


@contextmanager
def claim_or_say_who(place: Path, what: str) -> Iterator[None]:
    """Hold the claim at `place` and write this process's id to the file.  Raise `Held` if another process holds it."""
    if (claim := claimed(place)) is None:
        owner = ""
        with suppress(OSError, ValueError), reading(place, "a claim", "") as file:  # Windows can hide a locked file
            owner = file.read(200).decode()
        who = f"{owner or 'another process'} is at work (it has locked {place})"
        raise Held(f"{what}: {who}. Wait for it, end it, or take another folder")
    with claim:
        with suppress(OSError):  # as above, or the disk is full
            place.write_text(f"process {os.getpid()} on {platform.node() or 'localhost'}", encoding="utf-8")
        yield


def remove_claims(places: Iterable[Path]) -> None:
    """Remove the claim files of finished units.  A process that later locks such a file finds the unit finished."""
    for place in places:
        with suppress(OSError):  # the file is missing, or another process has it open on Windows
            place.unlink()


Unit = TypeVar("Unit")
Job = TypeVar("Job")

MOST_IN_FLIGHT = 256
"""The largest number of calls in flight, for an executor with an unknown number of workers."""


def shared(
    units: Iterable[Unit], place: Callable[[Unit], Path], finished: Callable[[Unit], bool]
) -> Generator[tuple[Unit, Claim] | None, None, None]:
    """Yield (unit, claim) for each free unit, or None while this or other processes hold all remaining units.

    The generator ends once every unit is finished, by any process.  A unit released unfinished is yielded again.
    Closing the generator releases all claims.  place : unit -> path of its claim.  finished : unit -> True if done.
    """
    left, taken = list(units), dict[Unit, Claim]()

    def ours(unit: Unit) -> bool:
        return unit in taken and taken[unit].held

    try:
        while left := [unit for unit in left if ours(unit) or not finished(unit)]:
            free = False
            for unit in left:
                if ours(unit) or (claim := claimed(place(unit))) is None:
                    continue
                taken[unit], free = claim, True
                if finished(unit):  # finished since the check above
                    claim.release()
                else:
                    yield unit, claim
            if not free:
                yield None
    finally:
        for claim in taken.values():
            claim.release()


class InTurn(Executor):
    """An executor that runs each call immediately, in this thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` and return a finished future.  Exceptions such as KeyboardInterrupt are raised, not stored."""
        future: Future[Any] = Future()
        try:
            found = fn(*args, **kwargs)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(found)  # a signal's exception is raised here rather than stored
        try:
            return future
        finally:
            del future  # breaks the reference cycle of this frame and the error's traceback


def in_flight(
    jobs: Iterable[Job | None], submit: Callable[[Job], Future[Any]], executor: Executor | None,
    stopped: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Job, Future[Any]], None, None]:  # fmt: skip
    """Yield (job, finished future) for each job, in the order in which the jobs finish.

    jobs : yields None while no job is free.  submit : starts a job.  At most two jobs per worker are in flight, or one
    without an executor.  stopped : once it returns True, waiting jobs are cancelled, as they are by `close`.
    """
    workers = getattr(executor, "_max_workers", None)
    most = 1 if executor is None else 2 * workers if isinstance(workers, int) else MOST_IN_FLIGHT
    jobs, running = iter(jobs), dict[Future[Any], Job]()
    try:
        while True:
            ask_again = False
            for job in islice(jobs, 0 if stopped() else most - len(running)):
                if ask_again := job is None:
                    break
                running[submit(job)] = job
            if stopped():
                running = {future: job for future, job in running.items() if not future.cancel()}
            if running:
                for future in wait(running, PAUSE if ask_again else None, FIRST_COMPLETED).done:
                    yield running.pop(future), future
            elif ask_again:
                sleep(PAUSE)
            else:
                return
    finally:
        for future in running:
            future.cancel()
