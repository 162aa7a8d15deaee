"""Test that an executor computes kernels correctly in blocks, and that errors and kills lose no finished block."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.large import streaming
from minintk.arrays import to_library
from minintk.files import locks as units
from tests.kit.arrays_under_test import namespace

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((9, 4, 5, 2))
OTHERS = RNG.standard_normal((4, 4, 5, 2))
DENSE = mn.Sequential(mn.Dense(8, w_std=1.4, b_std=0.3), mn.ReLU(), mn.Dense(1))
POOLED = mn.Sequential(mn.Conv2d(8, 3, w_std=1.4, b_std=0.3), mn.ReLU(), mn.Conv2d(8), mn.GlobalAvgPool(), mn.Dense(1))
SPECS = {"dense": DENSE, "pooled": POOLED}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each block a single tile, which contains one image of 4 x 5 pixels."""
    monkeypatch.setattr(streaming, "SHORTEST", 0.0)
    monkeypatch.setattr("analytic.images.engine.SHORTEST_TILE", 0.0)


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


def inputs(name: str) -> tuple[Any, Any]:
    return (IMAGES, OTHERS) if name == "pooled" else (IMAGES.reshape(9, 40), OTHERS.reshape(4, 40))


@pytest.mark.parametrize("name", SPECS)
def test_processes_find_what_one_process_finds(name: str, processes: Executor) -> None:
    kernel, (x, x2) = an.kernel(SPECS[name]), inputs(name)
    for given in ((x,), (x, x2)):
        there, here = kernel.both(*given, executor=processes), kernel.both(*given)
        for a, b in zip(there, here, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(there.ntk, kernel.ntk(x, x2, executor=processes))
    assert np.array_equal(kernel.ntk(x, executor=processes), kernel.ntk(x, executor=processes).T)


@pytest.mark.usefixtures("small_blocks")
def test_a_wrong_block_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: swapped blocks change the kernel."""
    right = streaming.begin_block

    def swapped(inputs: Any, place: Any, evaluate: Any, executor: Any) -> Any:
        i, j = place
        return right(inputs, (i, i) if i != j else (slice(0, 1), slice(0, 1)), evaluate, executor)

    monkeypatch.setattr(streaming, "begin_block", swapped)
    kernel, (x, _) = an.kernel(POOLED), inputs("pooled")
    with ThreadPoolExecutor(2) as pool:
        wrong = kernel.ntk(x, executor=pool)
    assert np.abs(wrong - kernel.ntk(x)).max() > 0.1


def test_out_and_progress_and_empty() -> None:
    kernel, (x, x2) = an.kernel(POOLED), inputs("pooled")
    out, told = np.empty((9, 4)), []
    with ThreadPoolExecutor(2) as pool:
        found = kernel.nngp(x, x2, executor=pool, out=out, progress=lambda done, total: told.append((done, total)))
        assert kernel.ntk(x[:0], x2, executor=pool).shape == (0, 4)
        vectors = an.kernel(mn.Sequential(mn.Dense(4), mn.ReLU(), mn.Dense(1)))
        assert vectors.ntk(np.ones((3, 2)), np.ones((0, 2)), executor=pool).shape == (3, 0)
    assert found is out
    np.testing.assert_allclose(out, kernel.nngp(x, x2), rtol=1e-13)
    assert [done for done, _ in told] == list(range(1, told[0][1] + 1))


@pytest.mark.usefixtures("small_blocks")
def test_a_store_filled_by_an_executor_is_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store filled by an executor has the same bytes as one filled by a loop. A loop can complete a partial store."""
    monkeypatch.setattr(streaming, "FEWEST", 3)
    monkeypatch.setattr(streaming, "PIXEL_PAIRS_PER_BLOCK", 3600)  # 3 x 3 images of 400 pairs of pixels
    kernel, (x, _) = an.kernel(POOLED), inputs("pooled")
    kernel.both(x, store=tmp_path / "loop")
    with ThreadPoolExecutor(3) as pool:
        kernel.both(x, store=tmp_path / "farm", executor=pool)
        with pytest.raises(Stop):
            kernel.both(x, store=tmp_path / "cut", executor=pool, progress=stop_at(2))
    records = [next((tmp_path / name).glob("record-*.txt")).read_text() for name in ("loop", "farm", "cut")]
    assert [text.count("\n") for text in records] == [6, 6, 2]
    kernel.both(x, store=tmp_path / "cut")
    for name in ("nngp.npy", "ntk.npy"):
        whole = (tmp_path / "loop" / name).read_bytes()
        assert (tmp_path / "farm" / name).read_bytes() == whole
        assert (tmp_path / "cut" / name).read_bytes() == whole


class Stop(Exception):
    """An exception that the caller's progress function raises."""


def stop_at(count: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done == count:
            raise Stop

    return progress


class Counting(Executor):
    """An executor that records submitted calls without running them, and fails the first."""

    def __init__(self) -> None:
        self.given: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.given.append(future)
        if len(self.given) == 1:
            future.set_exception(RuntimeError("the machine is gone"))
        return future


@pytest.mark.usefixtures("small_blocks")
def test_an_error_ends_the_call_and_cancels_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytic.images.engine.FEWEST", 60)
    monkeypatch.setattr(streaming, "FEWEST", 60)
    pool = Counting()
    with pytest.raises(RuntimeError, match="the machine is gone"):
        an.kernel(POOLED).ntk(RNG.standard_normal((60, 4, 5, 2)), executor=pool)
    assert len(pool.given) == units.MOST_IN_FLIGHT  # the largest number of waiting blocks
    assert all(future.cancelled() for future in pool.given[1:])


def test_what_is_no_executor() -> None:
    x: Any = inputs("dense")[0]
    with pytest.raises(TypeError, match=r"executor expects a concurrent\.futures\.Executor, got 2"):
        an.kernel(DENSE).ntk(x, executor=2)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match="is for arrays of NumPy"):
        an.kernel(DENSE).ntk(to_library(x, namespace("standin")), executor=pool)


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "disk"])
def test_an_inexact_quadrature_is_told_here_not_in_a_worker(tmp_path: Path, stored: bool) -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(8, w_std=300.0), mn.Tanh(), mn.Dense(1)))
    x = np.random.default_rng(0).standard_normal((4, 3))
    processes = ProcessPoolExecutor(1, mp_context=get_context("spawn"))  # a fork would inherit other threads' locks
    with processes as executor, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kernel.ntk(x, executor=executor, store=tmp_path if stored else None)
    assert any("by quadrature and exact to" in str(w.message) for w in told)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
@pytest.mark.usefixtures("small_blocks")
def test_a_pool_whose_worker_is_killed_keeps_its_blocks(tmp_path: Path) -> None:
    """After a kill at the fourth block, a call without a pool computes the other blocks. The result is unchanged."""
    kernel, (x, _), found = an.kernel(POOLED), inputs("pooled"), list[int]()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        worker = pool.submit(os.getpid).result()

        def kill(done: int, total: int) -> None:
            found.append(done)
            if done == 4:
                os.kill(worker, signal.SIGKILL)

        with pytest.raises(BrokenProcessPool):
            kernel.ntk(x, store=tmp_path, executor=pool, progress=kill)
    again = list[int]()
    got = kernel.ntk(x, store=tmp_path, progress=lambda done, total: again.append(done))
    assert again[-1] > again[0] >= found[-1] >= 4
    np.testing.assert_array_equal(got, kernel.ntk(x))
