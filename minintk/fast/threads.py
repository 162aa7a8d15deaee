"""Threads on the CPU: a pool over independent pieces of work, each with single-threaded matrix products.

NumPy's ufuncs and BLAS release the interpreter lock, so Python threads use all cores.  BLAS's own threads are
held at one meanwhile, or the two kinds fight for the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from threading import Lock, Thread, get_ident, local
from typing import Any, TypeVar

T = TypeVar("T")

_inside = local()
_holder = Lock()
_user: dict[str, int] = {}  # the thread that the pool works for


def cores() -> int:
    """Number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Helper:
    """A thread that waits for a task.  With two bare locks the hand-over takes half as long as with a queue."""

    def __init__(self) -> None:
        self._begun, self._ended = Lock(), Lock()
        self._begun.acquire()
        self._ended.acquire()
        self._task: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._on = False
        Thread(target=self._run, name="minintk", daemon=True).start()

    def _run(self) -> None:
        _inside.on = True
        while True:
            self._begun.acquire()
            try:
                if self._task is not None:
                    self._task()
            except BaseException as error:  # raised again where it is waited for
                self._error = error
            self._task, self._on = None, False
            if self._ended.locked():
                self._ended.release()

    def begin(self, task: Callable[[], None]) -> None:
        """Start a task.  One that nobody has waited for, since a keyboard interrupt came in between, ends first."""
        if (came := self._wait()) is not None:
            raise came
        self._ended.acquire(blocking=False)
        self._task, self._error = task, None
        self._on = True  # nothing can come between this and the next line
        self._begun.release()

    def end(self) -> BaseException | None:
        """Wait for the task; what it raised, or what came while waiting (a keyboard interrupt)."""
        return self._wait() or self._error

    def _wait(self) -> BaseException | None:
        """Wait until the helper is at rest: `_on` says so, `_ended` only wakes."""
        came: BaseException | None = None
        while self._on:
            try:
                self._ended.acquire()
            except BaseException as error:
                came = error
        return came


@cache
def _pool() -> list[_Helper]:
    return [_Helper() for _ in range(cores() - 1)]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the threads stay behind, in the parent


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """BLAS at one thread a call, inside.

    Whoever sets this must undo it, in the same thread: of callers that overlap from several threads the first one does,
    and when it leaves, the others go on with BLAS's own threads.
    """
    if not _holder.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _holder.release()


def inside() -> bool:
    """Whether the caller is in the pool already, or asked to be treated so: `parallel` is then a plain loop."""
    return getattr(_inside, "on", False)


@contextmanager
def alone() -> Iterator[None]:
    """`parallel` is a plain loop, inside.

    >>> with alone():
    ...     inside()
    True
    """
    before, _inside.on = inside(), True
    try:
        yield
    finally:
        _inside.on = before


def blas_is_held() -> bool:
    """Whether BLAS is at one thread a call."""
    return _holder.locked()


def parallel(work: Callable[..., T], items: Iterable[Any]) -> list[T]:
    """[work(item) for item in items] on all cores; the first error is raised once the others have stopped.

    The caller's thread takes items like those of the pool, so that with an item for each core one thread fewer has to
    wake up.  Called from inside the pool, while the pool works for another thread, or with a single core or item, it is
    the plain loop.

    >>> parallel(lambda i: i * i, range(4))
    [0, 1, 4, 9]
    """
    items = list(items)
    me = get_ident()  # still its user, where a keyboard interrupt kept it from leaving
    if len(items) < 2 or cores() == 1 or inside() or _user.setdefault("pool", me) != me:
        return [work(item) for item in items]
    results: list[Any] = [None] * len(items)
    left = iter(range(len(items)))  # each item goes to whoever asks for it first

    def take() -> None:
        try:
            for i in left:
                results[i] = work(items[i])
        finally:
            for _ in left:  # where an error ended the loop: nothing is left for the others
                pass

    try:
        with single_threaded_blas():
            helpers = _pool()[: len(items) - 1]
            try:
                for helper in helpers:
                    helper.begin(partial(copy_context().run, take))  # numpy.errstate comes along
                _inside.on = True
                take()
            finally:
                _inside.on = False
                errors = [helper.end() for helper in helpers]
    finally:
        _user.pop("pool", None)
    for error in errors:
        if error is not None:
            raise error
    return results


def free() -> bool:
    """Whether the cores wait for what the caller may have for them: BLAS is held at one thread, by nobody's pool."""
    return blas_is_held() and not inside()


def share(work: Callable[[slice], None], length: int, *, worth: bool = True) -> None:
    """work(slice) on slices that make up 0 ... length: one for each core where it is worth it and the cores are free.

    They are free where BLAS is held at one thread; otherwise BLAS's own threads keep them busy even between products.

    >>> with single_threaded_blas():
    ...     share(lambda at: None, 10)
    """
    count = cores() if worth and free() else 1
    if count == 1:
        work(slice(0, length))
    else:
        parallel(work, [slice(i * length // count, (i + 1) * length // count) for i in range(count)])
