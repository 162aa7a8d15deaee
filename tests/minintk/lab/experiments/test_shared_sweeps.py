"""Test that several callers share a sweep: each call is made once, and every caller gets the whole table."""

from __future__ import annotations

import errno
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, get_ident
from time import sleep
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.files import locks
from tests.minintk.lab.experiments.test_sweeps import GRID, work


@pytest.mark.parametrize("starters", [2, 5])
def test_starters_share_the_calls(starters: int, tmp_path: Path) -> None:
    """Each call is made once, by one of the callers. Every caller gets the whole table."""
    mn.sweep(work, GRID, store=tmp_path / "whole", together="seed", batch=2)
    begin, made = Barrier(starters), deque[Any]()  # a list would be a bound value

    def spy(a: int, b: float, seed: tuple[int, ...]) -> list[dict[str, Any]]:
        made.append((a, b, seed))
        sleep(0.01)
        return work(a, b, seed)

    def start(_: int) -> mn.Table:
        begin.wait()
        return mn.sweep(spy, GRID, store=tmp_path / "shared", together="seed", batch=2)

    spy.__module__, spy.__qualname__ = work.__module__, work.__qualname__
    with ThreadPoolExecutor(starters) as pool:
        tables = list(pool.map(start, range(starters)))
    assert len(made) == len(set(made)) == 12
    want = (tmp_path / "whole" / "results.json").read_bytes()
    assert (tmp_path / "shared" / "results.json").read_bytes() == want
    assert all(np.array_equal(table["value"], tables[0]["value"]) for table in tables)


def test_without_claims_the_calls_would_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: if both of two callers get every claim, both make the first call."""
    both, made = Barrier(2, timeout=60), deque[int]()

    def spy(a: int) -> dict[str, Any]:
        made.append(a)
        if a == 0:
            both.wait()
        return {"a": a}

    def start(_: int) -> mn.Table:
        return mn.sweep(spy, {"a": range(6)}, store=tmp_path)

    monkeypatch.setattr(locks, "claimed", lambda place: locks.Claim(place.with_name(f"{place.name} {get_ident()}")))
    with ThreadPoolExecutor(2) as pool:  # each caller may also remove files of the other, which causes errors
        for future in [pool.submit(start, i) for i in range(2)]:
            future.exception()
    assert made.count(0) == 2


def test_a_part_is_a_filter_on_calls(tmp_path: Path) -> None:
    """Parts 2 and 0 of three make only their own calls. Part 1 completes the sweep, and the results are written."""
    made = deque[int]()

    def counted(a: int) -> dict[str, Any]:
        made.append(a)
        return {"square": a**2}

    for i in (2, 0):
        table = mn.sweep(counted, {"a": range(7)}, store=tmp_path, part=(i, 3))
    assert list(made) == [2, 5, 0, 3, 6]
    assert table.results[5] == {"square": 25}
    assert table.results[1] == {}
    with pytest.raises(KeyError, match=r"'square': the result at \{'a': 1\} has \[\]"):
        table["square"]
    assert not (tmp_path / "results.json").exists()
    assert mn.sweep(counted, {"a": range(7)}, store=tmp_path, part=(1, 3))["square"].tolist() == [
        0,
        1,
        4,
        9,
        16,
        25,
        36,
    ]
    assert (tmp_path / "results.json").exists()
    for wrong in ((3, 3), (-1, 2), (0, 0), (0.0, 2), 1, [0, 2], (True, 2)):
        with pytest.raises(ValueError, match=r"part expects \(i, n\)"):
            mn.sweep(counted, {"a": range(7)}, store=tmp_path, part=wrong)  # type: ignore[arg-type]


def test_a_read_only_folder_is_said_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("minintk.files.locks.Claim.__init__", refused)
    with pytest.raises(OSError, match="Read-only file system"):
        mn.sweep(lambda a: pytest.fail("worked"), {"a": [1]}, store=tmp_path)
