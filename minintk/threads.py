"""Threads on the CPU: a pool over independent pieces of work, each with single-threaded matrix products.

NumPy's ufuncs and BLAS release the interpreter lock, so Python threads use all cores.  BLAS's own threads are
held at one meanwhile, or the two kinds fight for the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any, TypeVar

T = TypeVar("T")

_inside = local()
_holder = Lock()


def cores() -> int:
    """Number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="minintk", initializer=lambda: setattr(_inside, "on", True))


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
    wake up.  Called from inside the pool, or with a single core or item, it is the plain loop.

    >>> parallel(lambda i: i * i, range(4))
    [0, 1, 4, 9]
    """
    items = list(items)
    if len(items) < 2 or cores() == 1 or inside():
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

    with single_threaded_blas():
        helpers = [_pool().submit(take) for _ in range(min(len(items), cores()) - 1)]
        try:
            with alone():
                take()
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()
    return results


def share(work: Callable[[slice], None], length: int, *, worth: bool = True) -> None:
    """work(slice) on slices that make up 0 ... length: one for each core where it is worth it and the cores are free.

    They are free where BLAS is held at one thread; otherwise BLAS's own threads keep them busy even between products.

    >>> with single_threaded_blas():
    ...     share(lambda at: None, 10)
    """
    count = cores() if worth and blas_is_held() and not inside() else 1
    if count == 1:
        work(slice(0, length))
    else:
        parallel(work, [slice(i * length // count, (i + 1) * length // count) for i in range(count)])
