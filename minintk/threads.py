"""Divide independent tasks among threads, while BLAS is limited to one thread.

NumPy's ufuncs and BLAS release the interpreter lock, so threads can use all cores.  More BLAS threads would
oversubscribe the cores.  Sums run over pieces that depend only on the size of the work, in a fixed order.

Any public call can run inside another call in the same thread (in a signal handler or a callback), and an exception
can end any call.  The following rules make this safe.

    no thread waits for unstarted work                a call runs its own items and waits only for running items
    no flag has to be reset                           a flag lives in a copied context or ends with its frame
    no lock is held across lines of Python            queues, deques and dictionaries change in one atomic step
    the next call repairs the state                   after an exception in `wait`, `end`, `__exit__` or `_leave`
"""

from __future__ import annotations

import os
import sys
import weakref
from _thread import get_ident, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import cache
from importlib import import_module
from queue import SimpleQueue
from threading import local
from time import monotonic, sleep
from typing import Any, TypeVar

from minintk.cores import cores

T = TypeVar("T")

PATIENCE = 0.05  # longest wait, in seconds, for another thread (perhaps interrupted) to restore BLAS's thread counts
_inside: ContextVar[bool] = ContextVar("minintk_inside", default=False)


def inside() -> bool:
    """Return True if the caller is a pool thread or runs in `alone`.  `parallel` is then a plain loop."""
    return _inside.get()


def alone(work: Callable[..., T], *args: Any) -> T:
    """Call work(*args).  Inside this call, `parallel` is a plain loop."""
    context = copy_context()
    context.run(_inside.set, True)
    return context.run(work, *args)


class _Job:
    """A call of `parallel`.  Threads take item positions from one iterator, whose steps are atomic."""

    def __init__(self, work: Callable[..., Any], items: list[Any]) -> None:
        self.work, self.items, self.places = work, items, iter(range(len(items)))
        self.results, self.errors, self.ending = list[Any]([None] * len(items)), dict[int, BaseException](), False
        self.entered, self.left, self.bell = deque[None](), deque[None](), SimpleQueue[None]()

    def take(self) -> None:
        """Work on items until none is left.  After an error, record it and discard the remaining items."""
        i = -1
        try:
            for i in self.places:
                self.results[i] = self.work(self.items[i])
        except BaseException as error:
            deque(self.places, 0)  # discards the remaining items
            if not isinstance(error, Exception):  # e.g. a keyboard interrupt
                raise
            self.errors[i] = error

    def wait(self) -> None:
        """Wait until all threads that entered have left, then raise any exception that occurred during the wait.
        A thread enters before it takes an item, so later threads find no items.  After it leaves, it signals `bell`.
        """
        caught = None
        while True:
            try:
                while len(self.left) < len(self.entered):
                    self.bell.get()
                self.bell.put(None)  # wakes a waiting call that this one interrupted
                break
            except BaseException as error:  # e.g. a keyboard interrupt or a time limit
                caught = error
        try:
            if caught is not None:
                raise caught
        finally:
            caught = None  # breaks the reference cycle of this frame and the traceback

    def end(self) -> None:
        """Discard the remaining items, wait for the threads, and drop the references to arrays."""
        self.ending = True
        deque(self.places, 0)
        try:
            self.wait()
        finally:
            _own.jobs.pop(self, None)
            self.work, self.items = abs, []  # a placeholder that is never called


class _Pool:
    """A pool of threads that wait for jobs.  Each thread registers itself, so a failed start leaves no entry."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[_Job, Context]] = SimpleQueue()
        self.threads: deque[int] = deque()

    def hand_over(self, job: _Job, count: int) -> None:
        """Offer the job to `count` threads, or to fewer if the system does not allow more (e.g. in a browser)."""
        with suppress(RuntimeError):
            for _ in range(count - len(self.threads)):
                start_new_thread(self.serve, (count,))
        for _ in range(min(count, 8 * count - self.jobs.qsize())):  # bounds the queue while threads are busy
            self.jobs.put((job, copy_context()))

    def serve(self, count: int) -> None:
        """Serve jobs forever, or return immediately if `count` other threads already serve them."""
        self.threads.append(me := get_ident())
        if self.threads.index(me) >= count:
            self.threads.remove(me)
            return
        while True:
            job, context = self.jobs.get()
            job.entered.append(None)
            try:
                context.run(alone, job.take)
            except BaseException as error:
                job.errors[-1] = error
            finally:
                job.left.append(None)
                job.bell.put(None)
            del job, context  # drops the references to the caller's arrays


_pool, _own = _Pool(), local()


def _place() -> tuple[int, int]:
    """Return (depth, frame) of the caller's caller.  Any other frame recorded at this depth or deeper has ended."""
    depth, caller = 0, id(frame := sys._getframe(2))
    while frame := frame.f_back:  # type: ignore[assignment]
        depth += 1
    return depth, caller


def parallel(work: Callable[..., T], items: Iterable[Any]) -> list[T]:
    """Return [work(item) for item in items], computed on all cores.  All threads stop before an error is raised.
    Inside the pool, on one core or for one item, this is a plain loop.  For several items, BLAS uses only one thread.

    >>> parallel(lambda i: i * i, range(4))
    [0, 1, 4, 9]
    """
    items = list(items)
    if len(items) < 2:
        return [work(item) for item in items]
    with single_threaded_blas():
        count = min(len(items), cores()) - 1
        if count == 0 or inside():
            return [work(item) for item in items]
        jobs = _own.__dict__.setdefault("jobs", {})
        for earlier in list(jobs):  # calls that this call interrupted
            finish = earlier.end if earlier.ending else earlier.wait
            finish()
        job = _Job(work, items)
        try:
            jobs[job] = _place()[0] + 1
            _pool.hand_over(job, count)
            alone(job.take)
        finally:
            job.end()
    found, job.results = job.results, []  # a thread can take this job from the queue much later
    if job.errors:
        raise job.errors.pop(min(job.errors))  # of the earliest item, for any sharing among threads
    return found


_holders: dict[int, tuple[Any, ...]] = {}  # (thread, place, reference) of each entered `single_threaded_blas`
_before: dict[Any, int] = {}  # original thread counts of the BLAS libraries that are limited to one thread
_returning: dict[int, float] = {}  # threads that are restoring these counts, with their start times
_held: list[bool] = [False]  # True if all libraries are limited to one thread


@cache
def blas_libraries() -> list[Any]:
    """Return threadpoolctl's handles of the BLAS libraries that were loaded at the first call."""
    return list(import_module("threadpoolctl").ThreadpoolController().select(user_api="blas").lib_controllers)


def set_threads(library: Any, count: int) -> None:
    """Set a BLAS library's thread count, also in threads whose calls threadpoolctl 3.8 ignores (all but the first)."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


class single_threaded_blas(AbstractContextManager[None]):
    """Limit BLAS to one thread per call, in all threads.  The last context to exit restores BLAS's thread counts."""

    def __enter__(self) -> None:
        key, me, here = id(self), get_ident(), _place()
        try:
            _holders[key] = me, here, weakref.ref(self, lambda _: _leave(key))  # in case `__exit__` is never reached
            for other, (thread, place, _) in list(_holders.items()):  # ended frames that a notebook kept alive
                if thread == me and place[0] >= here[0] and place != here:
                    _holders.pop(other, None)
            for job, depth in list(_own.__dict__.get("jobs", {}).items()):  # an exception interrupted `end`
                if depth >= here[0]:
                    job.end()
            while any(monotonic() - since < PATIENCE for who, since in list(_returning.items()) if who != me):
                sleep(1e-5)
            if not _held[0]:
                for library in blas_libraries():
                    if (count := library.num_threads) != 1:
                        _before[library] = count
                        set_threads(library, 1)
                _held[0] = True
        except BaseException:
            _leave(key)
            raise

    def __exit__(self, *error: object) -> None:
        try:
            _leave(id(self))
        finally:
            _leave(id(self))


def _leave(key: int) -> None:
    """Restore BLAS's thread counts once no holder is left.  A new holder is noticed here or waits for `_returning`."""
    _holders.pop(key, None)
    if _holders:
        return
    _returning[get_ident()] = monotonic()
    try:
        if not _holders:
            _held[0] = False
            for library, count in list(_before.items()):
                if not _holders:
                    set_threads(library, count)
                if not _holders:  # a new holder needs the counts
                    _before.pop(library, None)
    finally:
        _returning.pop(get_ident(), None)


def _forked() -> None:
    """Reset the pool in a forked child process.  Pool threads, and others that limit BLAS, exist only in the parent."""
    global _pool
    _pool = _Pool()
    _own.__dict__.clear()
    _returning.clear()
    for key, (thread, *_) in list(_holders.items()):
        if thread != get_ident():
            _leave(key)


getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_forked)
