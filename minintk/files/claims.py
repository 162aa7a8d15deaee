"""Who computes what, when several processes share a folder: a claim is a lock on a file, and ends with its process.

    if (claim := claimed(folder / "17.lock")) is not None:      # None: another one computes this unit
        with claim:
            ...                                                 # compute, and publish the result

The operating system releases the locks of a process that ends, however it ends, so nothing has to be cleaned up after
a kill, and a file that stays is no claim.  docs/long-runs.md has the whole rule, and what it asks of network folders.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from minintk.files.reading import reading

PAUSE = 0.1
"""Seconds between two looks at what others hold."""


class Held(RuntimeError):
    """Another process holds what was asked for; the message says which, and where."""


class Claim:
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
        """Whether it is not released yet."""
        return self._lock.is_locked

    def release(self) -> None:
        """Give the unit free; the file stays, as another process may be about to lock it."""
        self._lock.release()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def claimed(place: Path) -> Claim | None:
    """A claim on the unit at `place`; None if another one holds it."""
    try:
        return Claim(place)
    except TimeoutError:
        return None


def claim_or_say_who(place: Path, what: str) -> Claim:
    """A claim on the unit at `place`, with this process's name in the file; `Held` if another one holds it.

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
