"""Who computes what, when several processes share a folder: a claim is a file that only one of them can create.

    with Watch().claim(folder / "17.claim") as claim:      # None instead if another one computes this unit
        ...
        if claim.held():
            ...                                            # publish the result

A claim holds its owner's host, process id, start of that process and a random token; on a second line stands a
heartbeat, which the owner's process raises every BEAT seconds.  On the owner's host a claim dies with its process,
elsewhere once an observer has seen the same heartbeat for LEASE seconds of its own monotonic clock.  Whoever finds a
dead claim may succeed it:

    17.claim  <-  17.claim.TOKEN  <-  17.claim.TOKEN'      each named after the token of the claim that it succeeds

None of these files is created if it exists, so a claim has one successor at most; the last one is the owner.
The whole rule stands in docs/long-runs.md.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import NamedTuple

from minintk.files.reading import reading

BEAT = 10.0
"""Seconds between two heartbeats."""

LEASE = 120.0
"""Seconds after which a heartbeat that has not moved means death, to an observer on another host."""

PAUSE = 0.1
"""Seconds between two looks at what others hold."""


class Held(RuntimeError):
    """Another process holds what was asked for; the message says which, and where."""


class Owner(NamedTuple):
    """What a claim says of the process that made it.

    host : name, boot and process namespace, within which process ids mean something.   start : when the process began,
    None where the system does not tell.   token : random, of this claim alone.
    """

    host: str
    pid: int
    start: str | None
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition(' ')[0]}" if self.token else "an unknown process"


# ------------------------------------------------------------------------------------------- hosts, processes


def start_of(pid: int) -> str | None:
    """When a process began, in ticks since the machine was started; None if there is none, and outside Linux.

    PermissionError for a process that exists, but that the system hides.
    """
    if sys.platform != "linux":
        return None
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin1").rpartition(")")[2].split()
    except OSError:
        with suppress(ProcessLookupError, OverflowError):
            os.kill(pid, 0)  # PermissionError: /proc shows a user his own processes only
        return None
    return None if state in "ZXx" else fields[18]  # a zombie has died


@cache
def _me(pid: int) -> Owner:
    """This process as an owner; pid : its id, which changes when it forks."""
    host = platform.node().replace(" ", "-") or "localhost"
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        host = f"{host} {boot} {os.stat('/proc/self/ns/pid').st_ino}"
    return Owner(host, pid, start_of(pid), "")


def lives(owner: Owner) -> bool | None:
    """Whether an owner on this host may still be at work; None if only the heartbeat can tell."""
    me = _me(os.getpid())
    if owner[:3] == me[:3]:
        return owner.token in _held
    if owner.host == me.host and owner.start is not None and me.start is not None:
        with suppress(PermissionError):
            return start_of(owner.pid) == owner.start
    return None


# ---------------------------------------------------------------------------------------------------- claims

_held = set[str]()
"""The tokens of the claims that this process holds."""


class Claim:
    """A claim that this process holds, until `release`; a context that releases it.   Made by `Watch.claim`.

    place : the path that all who want this unit look at.   at : the file of this claim, `place` or a successor's.
    FileExistsError if another one was quicker.
    """

    def __init__(self, place: Path, chain: list[Path], at: Path) -> None:
        self.place, self.chain = place, [*chain, at]
        self.owner = _me(os.getpid())._replace(token=os.urandom(8).hex())
        self._line = json.dumps(self.owner._asdict()).encode() + b"\n"
        self._file = open(at, "xb", buffering=0)  # noqa: SIM115 (until `release`)
        _held.add(self.owner.token)
        try:
            self._file.write(self._line + b"0\n")
        except OSError:  # the disk is full
            self._file.close()
            at.unlink()
            _held.discard(self.owner.token)
            raise
        self._ended = Event()
        self._heart = Thread(target=self._beat, name="minintk heartbeat", daemon=True)
        try:
            self._heart.start()
        except RuntimeError:  # no thread can start, in a browser: only other hosts would miss the heartbeat
            self._file.close()

    def _beat(self) -> None:
        """Raise the heartbeat in the file that is open: never in the claim of another one at the same path."""
        beats = 0
        with self._file:
            while not self._ended.wait(BEAT):
                beats += 1
                with suppress(OSError):  # lost with its disk
                    self._file.seek(len(self._line))
                    self._file.write(b"%d\n" % beats)
                    os.fsync(self._file.fileno())

    def held(self) -> bool:
        """Whether the claim is still this process's: not if others thought it dead, and one has succeeded it."""
        chain, last, _ = _follow(self.place)
        return chain == self.chain and _owner(last).token == self.owner.token

    def check(self, what: str) -> None:
        """`Held`, naming the successor, if the claim is not this process's any more.   what : is being done."""
        if not self.held():
            successor = _owner(_follow(self.place)[1])
            raise Held(
                f"{what}: for more than {LEASE:.0f} s nothing was heard of this process, so {successor} has taken over "
                "and this one stops; what it had saved before is kept"
            )

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return self._ended.is_set()

    def release(self) -> None:
        """Give the unit free; remove the claim and those that it succeeded, unless another one goes on."""
        self._ended.set()
        if self._heart.is_alive():
            self._heart.join()
        if os.getpid() == self.owner.pid and self.held():  # a fork's claim is its parent's
            for path in self.chain:  # the first one first: what remains after a kill is then not reached any more
                with suppress(OSError):
                    path.unlink()
        _held.discard(self.owner.token)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _read(path: Path) -> bytes | None:
    """The text of a claim; None if there is none."""
    with suppress(FileNotFoundError), reading(path, "a claim", "move it away") as file:
        return file.read(4096)
    return None


def _owner(text: bytes | None) -> Owner:
    """Whose claim it is; nobody's yet, with an empty token, for one that is not written yet, or damaged."""
    try:
        found = Owner(**json.loads((text or b"").partition(b"\n")[0]))
        if isinstance(found.host, str) and type(found.pid) is int and re.fullmatch("[0-9a-f]{16}", found.token):
            return found
    except (ValueError, TypeError, RecursionError):
        pass
    return Owner("", 0, None, "")


def _follow(place: Path) -> tuple[list[Path], bytes | None, Path]:
    """(the chain of claims, the text of the last one, the path of its successor)."""
    chain: list[Path] = []
    at, last = place, None
    while (text := _read(at)) is not None and at not in chain:
        chain.append(at)
        at, last = place.with_name(f"{place.name}.{_owner(text).token or f'unsigned{len(chain)}'}"), text
    return chain, last, at


class Watch:
    """An observer of claims, who remembers when it saw each heartbeat first."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[bytes | None, float]] = {}

    def claim(self, place: Path) -> Claim | None:
        """A claim on the unit at `place`; None if another one's is alive, or was made at the same moment.

        OSError where the folder cannot be written to.
        """
        chain, text, free = _follow(place)
        if text is not None and self.alive(chain[-1], text):
            return None
        try:
            claim = Claim(place, chain, free)
        except FileExistsError:
            return None
        if not claim.held():  # the chain was released meanwhile, and perhaps begun anew
            claim.release()
            free.unlink(missing_ok=True)
            return None
        return claim

    def alive(self, at: Path, text: bytes) -> bool:
        """Whether the owner of the claim `text`, found at `at`, may still be at work."""
        if (known := lives(_owner(text))) is not None:
            return known
        seen, since = self._seen.get(at, (None, 0.0))
        if seen != text:
            self._seen[at] = text, monotonic()
            return True
        return monotonic() - since < LEASE

    def wait(self, place: Path) -> Claim:
        """A claim on what is needed for a moment only, as soon as it is free."""
        while (claim := self.claim(place)) is None:
            sleep(PAUSE)
        return claim

    def claim_or_say_who(self, place: Path, what: str) -> Claim:
        """A claim on the unit at `place`; `Held` as soon as its owner is seen alive.

        Where that owner is on another host, this takes until its heartbeat moves, or LEASE seconds if it does not.
        what : for the message, what is being done there.
        """
        first: bytes | None = None
        while (claim := self.claim(place)) is None:
            chain, text, _ = _follow(place)
            owner, first = _owner(text), first or text
            if chain and (lives(owner) or (owner.token and text != first)):
                raise Held(
                    f"{what}: {owner} is at work (its claim: {chain[-1]}). Wait for it, end it, or take another folder"
                )
            sleep(PAUSE)
        return claim


def remove_dead(*folders: Path) -> None:
    """Remove what killed processes of this host have left: claims on finished units, and half released chains."""
    for folder in folders:
        for place in folder.glob("*.claim"):
            if (claim := Watch().claim(place)) is not None:
                claim.release()
        for path in folder.glob("*.claim.*"):
            place = path.with_name(f"{path.name.rpartition('.claim.')[0]}.claim")
            if path not in _follow(place)[0]:  # what is reached by nobody belongs to nobody, or is about to be dropped
                path.unlink(missing_ok=True)
