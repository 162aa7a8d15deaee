"""Test the pool: order, errors, nesting, and the limit of one BLAS thread while the pool runs."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

from minintk import threads
from minintk.threads import parallel, single_threaded_blas


def blas_threads() -> set[int]:
    """Return the thread counts of the BLAS libraries that the pool knows.

    They do not include SciPy's own library, which is loaded later.
    """
    return {int(library.num_threads) for library in threads.blas_libraries()}


@contextmanager
def blas_at(count: int) -> Iterator[None]:
    """Set BLAS to `count` threads inside the block. threadpoolctl 3.8 ignores limits from all threads but one."""
    before = [(library, library.num_threads) for library in threads.blas_libraries()]
    for library, _ in before:
        threads.set_threads(library, count)
    try:
        yield
    finally:
        for library, own in before:
            threads.set_threads(library, own)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a new pool, and pretend that the machine has two cores, so that the pool runs on any machine."""
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(threads, "_pool", threads._Pool())


def test_results_come_in_order(two_cores: None) -> None:
    def work(i: int) -> int:
        time.sleep(0.001 * (5 - i % 5))
        return i * i

    assert parallel(work, range(20)) == [i * i for i in range(20)]
    assert parallel(work, []) == []
    assert parallel(work, [3]) == [9]


def test_the_pool_and_the_calling_thread_share_the_work(two_cores: None) -> None:
    meet = threading.Barrier(2, timeout=60)  # two items at once, so two threads

    def work(_: int) -> int:
        meet.wait()
        return threading.get_ident()

    found = parallel(work, range(2))
    assert threading.get_ident() in found
    assert set(found) - {threading.get_ident()} <= set(threads._pool.threads)
    assert not threads.inside()
    assert parallel(lambda _: threading.get_ident(), [0]) == [threading.get_ident()]  # one item: no pool


def test_nobody_waits_for_a_thread_that_has_nothing_left_to_do(two_cores: None) -> None:
    """Threads of the pool that find no items do not delay the caller.

    On a busy machine the caller often takes all items first.
    """
    wake, begun = threading.Event(), threading.Event()
    parallel(abs, range(2))  # starts a thread, which may not have joined this job yet

    def asleep(_: int) -> None:
        if threading.get_ident() == caller.ident:
            begun.wait(60)
        else:
            begun.set()
            wake.wait(60)

    caller = threading.Thread(target=parallel, args=(asleep, range(2)))
    caller.start()
    assert begun.wait(60)
    try:
        for _ in range(50):  # at most eight jobs per thread wait in the queue
            assert parallel(lambda i: i * i, range(4)) == [0, 1, 4, 9]
            assert threads._pool.jobs.qsize() <= 8
    finally:
        wake.set()
    caller.join(60)
    assert parallel(lambda i: i * i, range(4)) == [0, 1, 4, 9]


def test_an_error_stops_the_others(two_cores: None) -> None:
    done = []

    def work(i: int) -> None:
        if i == 1:
            raise ArithmeticError("number 1")
        time.sleep(0.001)
        done.append(i)

    with pytest.raises(ArithmeticError, match="number 1"):
        parallel(work, range(10_000))
    assert len(done) < 5_000  # all items are ten seconds of work
    assert not threads.inside()


def test_an_error_is_raised(two_cores: None) -> None:
    def work(i: int) -> int:
        if i == 3:
            raise ArithmeticError("number 3")
        return i

    with pytest.raises(ArithmeticError, match="number 3"):
        parallel(work, range(10))
    assert parallel(abs, [-1, -2]) == [1, 2]  # and the pool still works


@pytest.fixture
def item_0_is_taken(two_cores: None, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that item 0 must set when it begins. Until then, the calling thread takes no items."""
    hand_over, began = threads._Pool.hand_over, threading.Event()

    def late(pool: threads._Pool, job: threads._Job, count: int) -> None:
        hand_over(pool, job, count)
        assert began.wait(60)

    monkeypatch.setattr(threads._Pool, "hand_over", late)
    return began


def test_the_error_of_the_earliest_item_is_raised(item_0_is_taken: threading.Event) -> None:
    """The error of the earliest item is raised, even if a later item fails first."""
    failed = threading.Event()

    def work(i: int) -> None:
        if i == 0:
            item_0_is_taken.set()
            assert failed.wait(60)
        failed.set()
        raise ArithmeticError(f"number {i}")

    with pytest.raises(ArithmeticError, match="number 0"):
        parallel(work, range(2))


def test_an_interrupt_is_raised_before_errors_of_items(item_0_is_taken: threading.Event) -> None:
    stopped = threading.Event()

    def work(i: int) -> None:
        if i == 0:
            item_0_is_taken.set()
            assert stopped.wait(60)
            raise ArithmeticError("number 0")
        stopped.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel(work, range(2))


def test_a_pool_inside_the_pool_is_a_plain_loop(two_cores: None) -> None:
    """A call of `parallel` inside the pool could deadlock, so it runs as a plain loop."""

    def outer(i: int) -> list[int]:
        return parallel(lambda _: threading.get_ident(), range(3))

    for names in parallel(outer, range(8)):
        assert len(set(names)) == 1


@pytest.mark.filterwarnings("error")
def test_the_callers_error_state_holds_in_the_pool(two_cores: None) -> None:
    """numpy.errstate applies to one thread. If the pool did not copy the state, an overflow in the pool would warn."""

    def overflow(i: int) -> float:
        return float(np.float32(1e38) * np.float32(10.0))

    with np.errstate(over="ignore"):
        assert parallel(overflow, range(4)) == [float("inf")] * 4
    with pytest.raises(RuntimeWarning, match="overflow"):
        parallel(overflow, range(4))


def test_blas_has_one_thread_inside_and_its_own_again_afterwards(two_cores: None) -> None:
    before = blas_threads()
    assert parallel(lambda _: blas_threads(), range(4)) == [{1}] * 4
    assert blas_threads() == before
    with single_threaded_blas(), single_threaded_blas():
        assert blas_threads() == {1}
    assert blas_threads() == before
    with pytest.raises(ZeroDivisionError), single_threaded_blas():
        1 / 0  # noqa: B018
    assert blas_threads() == before


def test_callers_that_overlap_leave_blas_as_it_was(two_cores: None) -> None:
    """Callers may leave `single_threaded_blas` in any order. The limit ends when the last caller leaves."""
    before, entered, leave = blas_threads(), threading.Event(), threading.Event()

    def other() -> None:
        with single_threaded_blas():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with single_threaded_blas():
        thread.start()
        assert entered.wait(60)
        assert blas_threads() == {1}
    assert blas_threads() == {1}  # the other caller is still inside
    leave.set()
    thread.join()
    assert blas_threads() == before
    with single_threaded_blas():
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_arrays_come_back(two_cores: None) -> None:
    a = np.random.default_rng(0).standard_normal((6, 50, 50))
    for product, expected in zip(parallel(lambda i: a[i] @ a[i], range(6)), a @ a, strict=True):
        np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12)


def test_blas_is_given_back_although_a_frame_is_kept() -> None:
    """The next call lifts the limit that an interrupted call left on BLAS, even if a notebook keeps the traceback."""

    def left_early() -> None:
        single_threaded_blas.__enter__(held := single_threaded_blas())
        assert held is not None
        raise KeyboardInterrupt

    with blas_at(2):
        with pytest.raises(KeyboardInterrupt) as kept:
            left_early()
        assert blas_threads() == {1}
        with single_threaded_blas():
            assert parallel(lambda i: i, range(2)) == [0, 1]
            with single_threaded_blas():
                pass
            assert blas_threads() == {1}
        assert blas_threads() == {2}
    assert kept.tb is not None


def test_many_threads_hold_blas_and_give_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lock, threads that limit BLAS always see one BLAS thread. Afterwards, BLAS has all its threads."""
    monkeypatch.setattr(threads, "PATIENCE", 60.0)  # even if a thread that restores is paused for long
    wrong = list[set[int]]()

    def hold() -> None:
        for _ in range(2000):
            with single_threaded_blas():
                if (found := blas_threads()) != {1}:
                    wrong.append(found)

    others = [threading.Thread(target=hold) for _ in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with blas_at(2):
        try:
            for other in others:
                other.start()
            for other in others:
                other.join()
        finally:
            sys.setswitchinterval(interval)
        assert wrong == []
        assert blas_threads() == {2}
    assert not threads._holders


def test_without_patience_a_thread_inside_would_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with PATIENCE = 0, a thread that enters while another restores BLAS sees several threads."""
    restores, inside, right = threading.Event(), threading.Event(), threads.set_threads

    def paused(library: Any, count: int) -> None:
        if count > 1:
            restores.set()
            inside.wait(60)
        right(library, count)

    def hold() -> None:
        with single_threaded_blas():
            pass

    with blas_at(2), monkeypatch.context() as patch:
        patch.setattr(threads, "PATIENCE", 0.0)
        patch.setattr(threads, "set_threads", paused)
        other = threading.Thread(target=hold)
        other.start()
        assert restores.wait(60)
        with single_threaded_blas():
            inside.set()
            other.join()
            assert blas_threads() != {1}


def test_of_threads_that_start_at_once_one_stays() -> None:
    """If two threads register before either counts the threads, one of them stays and does the job."""
    both, pool, job = threading.Barrier(3, timeout=60), threads._Pool(), threads._Job(abs, [-1])

    class Slow(deque[int]):
        def append(self, ident: int) -> None:
            super().append(ident)
            both.wait()

        def remove(self, ident: int) -> None:
            time.sleep(0.1)
            super().remove(ident)

    pool.threads = Slow()
    for _ in range(2):
        threading.Thread(target=pool.serve, args=(1,), daemon=True).start()
    both.wait()
    pool.jobs.put((job, copy_context()))
    job.bell.get(timeout=60)
    assert job.results == [1]


def test_where_no_thread_can_start_it_is_a_plain_loop(two_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", threads._Pool())
    monkeypatch.setattr(threads, "start_new_thread", refused)
    assert parallel(lambda _: threading.get_ident(), range(3)) == [threading.get_ident()] * 3


def test_what_is_done_holds_no_arrays(two_cores: None) -> None:
    """A finished call that no thread of the pool joined stays in the queue, but holds no arrays."""
    pool, job = threads._Pool(), threads._Job(abs, [1, 2])
    jobs: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_pool", pool)
        patch.setattr(pool, "hand_over", lambda job, count: jobs.append(job))
        assert parallel(lambda a: a.sum(), [np.ones(3)] * 2) == [3.0, 3.0]
    assert (jobs[0].work, jobs[0].items) == (abs, [])
    job.take()
    assert job.results == [1, 2]
