"""Who computes what, when several processes share a folder, until everything is finished.

A claim is a lock on a file, which the operating system releases when its process ends, however it ends: a file that
stays is no claim.  docs/long-runs.md has the whole rule, and what it asks of network folders.

    with (
        closing(shared(missing, place=..., finished=...)) as units,
        closing(in_flight(units, lambda job: pool.submit(work, job[0]), pool)) as calls,
    ):
        for (unit, claim), future in calls:
            with claim:
                ...                                         # publish future.result()

Without an executor the calls are made one after the other, by `InTurn`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

from minintk.files.reading import reading

PAUSE = 0.1
"""Seconds between two looks at what others hold."""


class Held(RuntimeError):
    """Another process holds what was asked for; the message says which, and where."""


class Claim(AbstractContextManager["Claim"]):
    """A claim that this process holds, until `release`; a context that releases it.

    TimeoutError if another one holds it, unless one may wait.  OSError where the folder cannot be written to, or
    its file system has no locks.
    """

    def __init__(self, place: Path, wait: bool = False) -> None:
        from filelock import FileLock  # warns when it is imported where there are no locks, in a browser

        self._lock = FileLock(place, thread_local=False)
        self._lock.acquire(blocking=wait)

    @property
    def held(self) -> bool:
        """True until it is released."""
        return self._lock.is_locked

    def release(self) -> None:
        """Give the unit free; the file stays, as another process may be about to lock it."""
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.release()


def claimed(place: Path) -> Claim | None:
    """Return a claim on the unit at `place`, or None if another process holds it."""
    try:
        return Claim(place)
    except TimeoutError:
        return None


def claim_or_say_who(place: Path, what: str) -> Claim:
    """Return a claim on the unit at `place`, with this process's name in the file; `Held` if another one holds it.

    what : for the message, what is being done there.
    """
    if (claim := claimed(place)) is None:
        owner = ""
        with suppress(OSError, ValueError), reading(place, "a claim", "") as file:  # Windows may hide a locked file
            owner = file.read(200).decode()
        who = f"{owner or 'another process'} is at work (it has locked {place})"
        raise Held(f"{what}: {who}. Wait for it, end it, or take another folder")
    with suppress(OSError):  # as above, or the disk is full
        place.write_text(f"process {os.getpid()} on {platform.node() or 'localhost'}", encoding="utf-8")
    return claim


def remove_claims(places: Iterable[Path]) -> None:
    """Remove the files of claims on finished units: whoever still gets one sees that nothing is left to do."""
    for place in places:
        with suppress(OSError):  # none is there; on Windows, another process has it open
            place.unlink()


Unit = TypeVar("Unit")
Job = TypeVar("Job")

MOST_IN_FLIGHT = 256
"""Calls submitted and not yet finished, for an executor that does not tell how many workers it has."""


def shared(
    units: Iterable[Unit], place: Callable[[Unit], Path], finished: Callable[[Unit], bool]
) -> Generator[tuple[Unit, Claim] | None, None, None]:
    """Yield (unit, a claim on it) for each unit that nobody else computes; None while others hold all that is left.

    Ends when all units are finished, whoever did it; one whose claim was released without a result comes again.
    place : of a unit's claim.   finished : True if there is a result.   Closed, it releases the claims it has given.
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
                if finished(unit):  # between the look above and the claim
                    claim.release()
                else:
                    yield unit, claim
            if not free:
                yield None
    finally:
        for claim in taken.values():
            claim.release()


class InTurn(Executor):
    """Makes each call at once, in this thread: an executor for those who have none."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the finished call; what is no Exception, such as Ctrl-C, is raised here."""
        future: Future[Any] = Future()
        try:
            found = fn(*args, **kwargs)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(found)  # a signal's exception here is raised, not a result
        try:
            return future
        finally:
            del future  # or the error would hold this frame, and this frame the error


def in_flight(
    jobs: Iterable[Job | None], submit: Callable[[Job], Future[Any]], executor: Executor | None,
    stopped: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Job, Future[Any]], None, None]:  # fmt: skip
    """Yield (job, its finished future) for each job, in the order in which they finish.

    jobs : may give None for "none is free now, ask again".   submit : begins one, on the executor if there is one,
    which is given two for each worker.   stopped : once True, begins no more and cancels what has not begun, as does
    closing.
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
