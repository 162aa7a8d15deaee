"""Test that a killed run of a paper's script resumes from its last snapshot, with bit-identical results."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.files.locks import Claim
from minintk.training import fit
from tests.project.reruns import importable


class Killed(Exception):
    pass


@pytest.fixture
def resuming(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    importable(monkeypatch, "common", "resuming")
    module = importlib.import_module("resuming")
    monkeypatch.setenv(module.PLACE, str(tmp_path / "unfinished"))
    return module


def counted(resuming: Any, stop: int = 1000) -> tuple[list[Any], int]:
    """Train two networks up to snapshot `stop`, and return (rows, number of snapshots that were read)."""
    net, rng = mn.Network(mn.zoo.mlp(1, 8, 1), (3,)), np.random.default_rng(0)
    theta0, x, y = net.init(rng, ensemble=2, dtype=np.float32), rng.normal(size=(20, 3)), rng.normal(size=(20, 1))
    x, y, read = x.astype(np.float32), y.astype(np.float32), list[int]()

    def run(resume: Any) -> Any:
        how: dict[str, Any] = {"optimizer": mn.SGD(0.05, momentum=0.9), "batch_size": 4, "resume": resume}
        return mn.train(net, theta0, x, y, loss=mn.mse, steps=30, rng=np.random.default_rng(1), **how)

    def of(snap: Any) -> Any:
        if len(read) == stop:
            raise Killed
        read.append(snap.step)
        return snap.step, net(snap.theta, x)

    try:
        return resuming.collected(run, of, theta0, "two", 8), len(read)
    except Killed:
        return [], len(read)


def test_another_work_does_not_continue_the_runs(resuming: Any, tmp_path: Path) -> None:
    """Resuming accepts changed comments and docstrings of `work`, but not changed formulas or constants."""
    same_work = resuming.same_work

    def works() -> list[Any]:
        def work(width: int, seed: int) -> float:
            """One run."""
            c = 1.0
            return c / width + seed

        first = work

        def work(width: int, seed: int) -> float:  # type: ignore[no-redef]
            c = 1.0
            return c / width + seed  # the same

        second = work

        def work(width: int, seed: int) -> float:  # type: ignore[no-redef]
            c = 1.0
            return c / width - seed

        third = work

        def work(width: int, seed: int) -> float:  # type: ignore[no-redef]
            c = 7.0
            return c / width + seed

        return [first, second, third, work]

    first, second, *others = works()
    for one in (first, second, first):
        same_work(one, tmp_path / "s.runs" / "work.source")
    for other in others:
        with pytest.raises(SystemExit, match="made by another `work`: use another --out"):
            same_work(other, tmp_path / "s.runs" / "work.source")


def test_snapshots_go_on_where_they_were(resuming: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole, every = counted(resuming)
    assert every == len(whole) == 31
    for often, again in ((0.0, 31 - 12), (np.inf, 31)):  # the control: without a snapshot, everything is recomputed
        monkeypatch.setattr(resuming, "SECONDS", often)
        assert counted(resuming, stop=12) == ([], 12)
        rows, read = counted(resuming)
        assert read == again
        assert [row[0] for row in rows] == list(range(31))
        assert all(a[1].dtype == np.float32 and np.array_equal(a[1], b[1]) for a, b in zip(rows, whole, strict=True))
        assert not list((tmp_path / "unfinished").iterdir())


def test_all_seeds_of_a_script_go_on_together(resuming: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = importlib.import_module("lenet_and_its_linearisation")
    run = {"data": "digits", "n_train": 64, "n_test": 20, "epochs": 5, "shift": 0, "width": 1, "seed": (0, 1)}
    whole = script.train(kind="LinLeNet", **run)
    save, saved = fit._Folder.save, list[int]()

    def until_third(self: Any, *arguments: Any, **named: Any) -> Any:
        found = save(self, *arguments, **named)
        saved.append(1)
        if len(saved) == 3:
            raise Killed
        return found

    monkeypatch.setattr(fit._Folder, "save", until_third)
    with pytest.raises(Killed):
        script.train(kind="LinLeNet", **run)
    assert script.train(kind="LinLeNet", **run) == whole
    assert len(saved) == 5  # three before the interruption, two afterwards
    assert not list((tmp_path / "unfinished").iterdir())


def test_a_run_that_diverges_leaves_nothing(resuming: Any, tmp_path: Path) -> None:
    def diverging() -> None:
        with resuming.unfinished("one") as folder:
            (folder / "checkpoint.npz").touch()
            raise FloatingPointError("at step 7")

    with pytest.raises(FloatingPointError, match="at step 7"):
        diverging()
    assert not list((tmp_path / "unfinished").iterdir())


def test_a_run_waits_for_a_worker_that_is_still_at_it(resuming: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call for the same run waits until the worker that still computes the run releases the folder."""
    waits, seen = Event(), list[str]()

    def claimed(*arguments: Any, **named: Any) -> Any:
        if seen:
            waits.set()
        return Claim(*arguments, **named)

    def second() -> None:
        with resuming.unfinished("one") as folder:
            seen.append(f"second, {len(list(folder.iterdir()))} files")

    monkeypatch.setattr(resuming, "Claim", claimed, raising=False)
    with ThreadPoolExecutor(1) as pool:
        with resuming.unfinished("one") as folder:
            (folder / "run.npz").touch()
            seen.append("first")
            other = pool.submit(second)
            while not (waits.is_set() or other.done()):
                sleep(0.001)
            seen.append("first ends")
        other.result()
    assert seen == ["first", "first ends", "second, 0 files"]
    assert not list(folder.parent.iterdir())
