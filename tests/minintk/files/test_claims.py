"""Claims: one owner at a time, who dies with his process, or when his heartbeat stands still; races, forks, clocks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from minintk.files import claims, units
from minintk.files.claims import BEAT, LEASE, Claim, Held, Watch, remove_dead

needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")


def dead(place: Path, **changes: Any) -> bytes:
    """A claim as an owner who has not released it leaves it; by default of a process that is gone, on this host."""
    me = claims._me(os.getpid())
    owner = {**me._asdict(), "pid": 2**22 + 1, "start": "1", "token": "00" * 8, **changes}
    place.write_bytes(json.dumps(owner).encode() + b"\n7\n")
    return place.read_bytes()


@pytest.fixture(autouse=True)
def _nothing_is_held_in_the_end() -> Iterator[None]:
    yield
    assert claims._held == set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the monotonic clock of the claims."""
    now = [1000.0]

    def move(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(claims, "monotonic", lambda: now[0])
    monkeypatch.setattr(claims, "sleep", move)
    return move


# ------------------------------------------------------------------------------------------------- one owner


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    place = tmp_path / "17.claim"
    first = Watch().claim(place)
    assert first is not None
    assert first.held()
    assert Watch().claim(place) is None
    first.release()
    first.release()
    assert list(tmp_path.iterdir()) == []
    with Watch().wait(place) as second:
        assert second.held()
        assert not first.held()


@pytest.mark.parametrize("left", ["nothing", "a dead claim", "two dead claims"])
def test_of_many_who_want_a_unit_one_gets_it(left: str, tmp_path: Path) -> None:
    """At the same moment, ten times: with a free unit, and with dead claims that all of them find."""
    for i in range(10):
        place, begin = tmp_path / f"{i}.claim", Barrier(8)
        if left != "nothing":
            dead(place)
        if left == "two dead claims":
            dead(tmp_path / f"{i}.claim.{'00' * 8}", token="11" * 8)

        def attempt(_: int, place: Path = place, begin: Barrier = begin) -> Claim | None:
            begin.wait()
            return Watch().claim(place)

        with ThreadPoolExecutor(8) as pool:
            got = [claim for claim in pool.map(attempt, range(8)) if claim is not None]
        assert len(got) == 1
        assert (len(got[0].chain) > 1) == (left != "nothing")
        got[0].release()
        assert list(tmp_path.iterdir()) == []


def test_removing_a_dead_claim_and_making_ones_own_lets_two_in(tmp_path: Path) -> None:
    """The negative control: why a successor never touches the claim that it found dead."""
    place = tmp_path / "17.claim"
    dead(place)
    judged_by_two = [Watch(), Watch()]
    owners = []
    for _ in judged_by_two:  # both have found it dead; then one after the other
        place.unlink()
        owners.append(Claim(place, [], place))
    assert owners[0].owner.token in claims._held
    assert owners[1].owner.token in claims._held
    for claim in owners:
        claim.release()


def test_a_chain_that_was_released_while_it_was_followed_is_not_gone_on_with(tmp_path: Path) -> None:
    """The last claim of the chain is released, another one begins anew, and only then the successor's file appears."""
    place = tmp_path / "17.claim"
    dead(place)
    right = claims._follow(place)
    place.unlink()
    anew = Watch().claim(place)
    assert anew is not None
    late = Claim(place, right[0], right[2])
    assert not late.held()
    late.release()
    assert anew.held()
    anew.release()


# ------------------------------------------------------------------------------------------ owners on this host


@needs_kill
def test_a_claim_dies_with_its_owner(tmp_path: Path) -> None:
    place = tmp_path / "17.claim"
    code = "import sys, time; from pathlib import Path; from minintk.files.claims import Watch\n"
    code += "claim = Watch().claim(Path(sys.argv[1])); print('mine', flush=True); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "mine\n"
        with pytest.raises(Held, match=rf"a test: process {owner.pid} on .* is at work .*17\.claim\)"):
            Watch().claim_or_say_who(place, "a test")
        owner.send_signal(signal.SIGSTOP)  # stopped is not dead
        assert Watch().claim(place) is None
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # a zombie, which nobody has waited for
        with Watch().claim_or_say_who(place, "a test") as claim:
            assert len(claim.chain) == 2
        assert list(tmp_path.iterdir()) == []


def test_a_process_with_the_same_id_is_another_one(tmp_path: Path) -> None:
    """The parent of this process lives; one of its id that began at another time does not."""
    place, parent = tmp_path / "17.claim", os.getppid()
    dead(place, pid=parent, start=claims.start_of(parent))
    assert Watch().claim(place) is None
    dead(place, pid=parent, start="1")
    with Watch().wait(place) as claim:
        assert len(claim.chain) == 2


def test_a_claim_of_this_process_that_nobody_holds_is_dead(tmp_path: Path) -> None:
    """Its release failed, or this process has the id and start of one in a lost container."""
    place = tmp_path / "17.claim"
    dead(place, **claims._me(os.getpid())._asdict() | {"token": "22" * 8})
    with Watch().wait(place):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_does_not_release_its_parents_claims(tmp_path: Path) -> None:
    claim = Watch().wait(tmp_path / "17.claim")
    if (child := os.fork()) == 0:
        claim.release()
        os._exit(0 if Watch().claim(tmp_path / "17.claim") is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert claim.held()
    claim.release()


def test_processes_that_the_system_hides_are_judged_by_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    def hidden(pid: int) -> str:
        raise PermissionError

    dead(place := tmp_path / "17.claim")
    claims._me(os.getpid())
    monkeypatch.setattr(claims, "start_of", hidden)
    watch = Watch()
    assert watch.claim(place) is None
    clock(LEASE)
    with watch.wait(place) as claim:
        assert len(claim.chain) == 2


def test_where_no_process_tells_its_start_the_heartbeat_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows and macOS; on this system the same process is dead at once."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert claims.start_of(os.getpid()) is None
    me = claims._me(os.getpid())
    assert claims.lives(me._replace(pid=2**22 + 1, start=None)) is None
    monkeypatch.undo()
    assert claims.lives(me._replace(pid=2**22 + 1, start="1")) is (False if me.start else None)


# --------------------------------------------------------------------------------- owners on other hosts, clocks


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A unit that a process of another host has claimed."""
    dead(place := tmp_path / "17.claim", host="far", pid=os.getpid())
    yield place
    assert not list(tmp_path.iterdir())


def test_another_hosts_claim_dies_when_its_heartbeat_stands_still(
    elsewhere: Path, clock: Callable[[float], None]
) -> None:
    watch = Watch()
    assert watch.claim(elsewhere) is None
    clock(LEASE - 1)
    assert watch.claim(elsewhere) is None
    elsewhere.write_bytes(elsewhere.read_bytes().replace(b"\n7\n", b"\n8\n"))
    clock(LEASE - 1)
    assert watch.claim(elsewhere) is None  # 2 LEASE - 2 after the first look, but it has moved
    clock(LEASE - 1)
    assert watch.claim(elsewhere) is None  # LEASE - 1 after that was seen
    clock(1)
    with watch.wait(elsewhere) as claim:
        assert len(claim.chain) == 2


def test_no_clock_but_the_observers_counts(
    elsewhere: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock goes backwards, and the file's stamps lie in the far past and future."""
    backwards = iter(range(10**9, 0, -10_000))
    monkeypatch.setattr(time, "time", lambda: float(next(backwards)))
    watch = Watch()
    for stamp in (0, 2**31):
        os.utime(elsewhere, (stamp, stamp))
        assert watch.claim(elsewhere) is None
        clock(LEASE / 3)
    assert watch.claim(elsewhere) is None
    clock(LEASE / 3)
    with watch.wait(elsewhere):
        pass


def test_a_second_starter_waits_until_it_knows(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat on another host that moves after a while: told then.  One that does not: taken over after LEASE."""
    now, looks = [0.0], 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        now[0], looks = now[0] + seconds, looks + 1
        if looks == 50:
            elsewhere.write_bytes(elsewhere.read_bytes().replace(b"\n7\n", b"\n8\n"))

    monkeypatch.setattr(claims, "monotonic", lambda: now[0])
    monkeypatch.setattr(claims, "sleep", sleep)
    with pytest.raises(Held, match=r"on far is at work"):
        Watch().claim_or_say_who(elsewhere, "a test")
    assert looks == 50
    with Watch().claim_or_say_who(elsewhere, "a test"):
        assert looks * claims.PAUSE == pytest.approx(50 * claims.PAUSE + LEASE, abs=1)


def test_an_owner_that_was_thought_dead_finds_out(tmp_path: Path, clock: Callable[[float], None]) -> None:
    """A suspended laptop: it wakes up, and neither publishes, nor removes the claim of its successor."""
    place = tmp_path / "17.claim"
    asleep = Watch().wait(place)
    text = place.read_bytes()
    claims._held.discard(asleep.owner.token)
    place.write_bytes(text.replace(json.dumps(asleep.owner.host).encode(), b'"far"'))
    watch = Watch()
    assert watch.claim(place) is None
    clock(LEASE)
    successor = watch.claim(place)
    assert successor is not None
    claims._held.add(asleep.owner.token)
    assert not asleep.held()
    with pytest.raises(Held, match=rf"fit: for more than 120 s nothing .* process {os.getpid()} on .* has taken over"):
        asleep.check("fit")
    asleep.release()
    assert successor.held()
    successor.release()
    assert list(tmp_path.iterdir()) == []


def test_the_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every BEAT, until the claim is released."""
    assert LEASE >= 5 * BEAT
    monkeypatch.setattr(claims, "BEAT", 0.01)
    place = tmp_path / "17.claim"
    with Watch().wait(place) as claim:
        assert claim._heart.is_alive()
        seen = {place.read_bytes()}
        until = time.monotonic() + 20
        while len(seen) < 4 and time.monotonic() < until:
            seen.add(place.read_bytes())
    assert len(seen) == 4
    assert len({text.partition(b"\n")[0] for text in seen}) == 1
    assert not claim._heart.is_alive()


# ----------------------------------------------------------------------------------------- what is left behind


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"host": 3}', b"\xff\n", b"null\n1\n", b"[" * 4096])
def test_a_claim_that_was_cut_short_dies_by_standing_still(
    text: bytes, tmp_path: Path, clock: Callable[[float], None]
) -> None:
    place, watch = tmp_path / "17.claim", Watch()
    place.write_bytes(text)
    assert watch.claim(place) is None
    clock(LEASE)
    with watch.wait(place) as claim:
        assert len(claim.chain) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_release_that_was_killed_half_way_leaves_nothing_for_long(tmp_path: Path) -> None:
    """The first file of a chain is removed first: the others are then reached by nobody."""
    dead(tmp_path / f"17.claim.{'33' * 8}")
    dead(tmp_path / "19.claim")
    with Watch().wait(tmp_path / "17.claim") as claim:
        remove_dead(tmp_path)
        assert claim.held()
    assert list(tmp_path.iterdir()) == []


def test_two_claims_of_nobody_hold_nothing_up_for_ever(tmp_path: Path, clock: Callable[[float], None]) -> None:
    """Two owners were killed between creating and writing, the second one as the successor of the first."""
    place, watch = tmp_path / "17.claim", Watch()
    for name in ("17.claim", "17.claim.unsigned1"):
        (tmp_path / name).touch()
        assert watch.claim(place) is None
        clock(LEASE)
    with watch.wait(place) as claim:
        assert len(claim.chain) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            Watch().claim(tmp_path / "17.claim")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------- units


def test_units_come_once_and_those_of_others_when_they_are_given_up(tmp_path: Path) -> None:
    place: Callable[[int], Path] = lambda unit: tmp_path / f"{unit}.claim"  # noqa: E731
    done, other = set[int](), Watch().wait(place(2))
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
        pass  # nor has this one
    again = next(jobs)
    assert again is not None
    assert again[0] == 2
    done.add(2)
    jobs.close()
    assert list(tmp_path.iterdir()) == []


def test_a_unit_that_was_finished_before_it_was_claimed_is_not_computed(tmp_path: Path) -> None:
    looks = iter([False, True, True])
    assert list(units.shared([0], lambda _: tmp_path / "0.claim", lambda _: next(looks))) == []
    assert list(tmp_path.iterdir()) == []


def test_workers_are_kept_busy_and_no_more() -> None:
    with ThreadPoolExecutor(3) as pool:
        assert units.calls_in_flight(pool) == 6
    assert units.calls_in_flight(None) == 1
    assert units.calls_in_flight(units.InTurn()) == units.MOST_IN_FLIGHT
