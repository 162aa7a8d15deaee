"""Threads on the CPU: a pool over independent pieces of work, each with single-threaded matrix products.

NumPy's ufuncs and BLAS release the interpreter lock, so Python threads use all cores.  BLAS's own threads are
held at one meanwhile, or the two kinds fight for the cores.  Limits that the caller has set stay: the pool too takes no
more threads than OMP_NUM_THREADS says, and BLAS gets back the number of threads that it had, whoever set it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import cache
from signal import SIGINT, getsignal, signal
from threading import Barrier, BrokenBarrierError, Lock, get_ident, local
from typing import Any, TypeVar

from minintk.fast.board import STOP, board

T = TypeVar("T")

_inside = local()
_holder = Lock()
_user: dict[str, int] = {}  # the thread that the pool works for
_before: list[tuple[Any, int]] = []  # BLAS libraries and their threads, while they are held at one


def cores() -> int:
    """Number of threads to work with: of cores this process may run on, and no more than OMP_NUM_THREADS says."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, threads_asked())


@cache
def threads_asked() -> int:
    """OMP_NUM_THREADS, its first number where it lists one for each level; 2**30 where it says none."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(asked) if asked.isdecimal() and int(asked) else 2**30


@cache
def blas_libraries() -> list[Any]:
    """threadpoolctl's handles of the BLAS libraries that are loaded when they are first asked for."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        max(1, cores() - 1), thread_name_prefix="minintk", initializer=setattr, initargs=(_inside, "on", True)
    )


def _forked() -> None:
    """In the child of a fork: the pool's threads, and whoever used them and held BLAS, stay behind in the parent."""
    global _holder
    _pool.cache_clear()
    board.cache_clear()
    _user.clear()
    _inside.on = False
    _holder = Lock()
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class single_threaded_blas(AbstractContextManager[None]):
    """Inside, BLAS takes one thread a call; some microseconds.

    Where callers from several threads overlap, the first one sets the limit and lifts it when it leaves; the others
    then continue with BLAS's own threads.
    """

    def __enter__(self) -> None:
        self.holder = _holder if _holder.acquire(blocking=False) else None  # also at the end, in the child of a fork
        try:
            for library in blas_libraries() if self.holder else ():
                if (count := library.num_threads) != 1:
                    _before.append((library, count))
                    library.set_num_threads(1)
        except BaseException:  # a keyboard interrupt
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        if self.holder is not None:
            _give_back()
            self.holder.release()


def _give_back() -> None:
    """Each BLAS library its threads."""
    while _before:
        library, count = _before.pop()
        library.set_num_threads(count)


def inside() -> bool:
    """Whether the caller is in the pool already, or asked to be treated so: `parallel` is then a plain loop."""
    return getattr(_inside, "on", False)


@contextmanager
def alone() -> Iterator[None]:
    """Inside, `parallel` is a plain loop."""
    before, _inside.on = inside(), True
    try:
        yield
    finally:
        _inside.on = before


def parallel(work: Callable[..., T], items: Iterable[Any], meeting: Meeting | None = None) -> list[T]:
    """[work(item) for item in items] on all cores; the first error is raised once the others have stopped.

    The caller's thread takes items too, so that one thread fewer has to wake up; and where it has taken all of them
    before another thread woke up, on a busy machine, it does not wait for that one.  It is a plain loop from inside the
    pool, while the pool works for another thread, with a single core or item, and where no thread can start: in a
    browser, or at a limit of the system.  For a `meeting` (`together`) it is BrokenBarrierError instead.

    >>> parallel(lambda i: i * i, range(4))
    [0, 1, 4, 9]
    """
    items = list(items)
    me = get_ident()  # still its user, where a keyboard interrupt kept it from leaving
    if len(items) < 2 or cores() == 1 or inside() or _user.setdefault("pool", me) != me:
        if meeting is not None:
            raise BrokenBarrierError
        return [work(item) for item in items]
    results: list[Any] = [None] * len(items)
    left = iter(range(len(items)))  # each item goes to the thread that asks first

    def take() -> None:
        try:
            for i in left:
                results[i] = work(items[i])
        finally:
            for _ in left:  # after an error, nothing is left for the others
                pass

    begun: list[Future[None]] = []
    board()[STOP] = 1  # threads that look for compiled loops come back to the pool
    try:
        with single_threaded_blas():
            try:
                for _ in range(min(len(items), cores()) - 1):
                    try:
                        with uninterrupted():
                            begun.append(_pool().submit(copy_context().run, take))  # an interrupt loses none
                    except RuntimeError:  # no thread can start; a pool whose queue nobody empties is let go
                        _pool.cache_clear()
                        if meeting is not None:
                            meeting.barrier.abort()
                        break
                _inside.on = True
                take()
            except BaseException:
                if meeting is not None:
                    meeting.barrier.abort()  # nobody waits for a caller whom an interrupt kept from coming
                raise
            finally:
                _inside.on = False
                for _ in left:  # after an interrupt, nothing is left for the others
                    pass
                _finish(begun)
    finally:
        _user.pop("pool", None)
    for future in begun:
        if not future.cancelled():
            future.result()  # raises what it raised
    return results


class Meeting:
    """Where threads that work on parts of a batch exchange what belongs to all of it."""

    def __init__(self, count: int) -> None:
        self.barrier, self.brought = Barrier(count), [list[Any]() for _ in range(count)]
        self.errors: list[BaseException] = []


def together(work: Callable[..., T], items: Iterable[Any]) -> list[T] | None:
    """`parallel`, all items at the same time, so that `everyones` works in them; None where that is not to be had.

    items : no more than there are cores.

    >>> together(lambda i: sum(everyones(i)), range(cores())) in (None, [sum(range(cores()))] * cores())
    True
    """
    items = list(items)
    meeting = Meeting(len(items))

    def one(i: int) -> T:
        _inside.meeting = meeting, i
        try:
            return work(items[i])
        except BrokenBarrierError:
            raise
        except BaseException as error:
            meeting.errors.append(error)
            meeting.barrier.abort()  # nobody waits for who has left
            raise
        finally:
            del _inside.meeting

    if len(items) > min(cores(), 1 + _pool()._max_workers):
        return None
    try:
        return parallel(one, range(len(items)), meeting)
    except BrokenBarrierError:
        if meeting.errors:
            raise meeting.errors[0] from None
        return None


def meets() -> bool:
    """Whether the caller is one of the threads that work `together`."""
    return hasattr(_inside, "meeting")


def everyones(part: T) -> list[T]:
    """What each of the threads that work `together` brings here, in the order of their items; [part] in one alone."""
    if not meets():
        return [part]
    meeting, i = _inside.meeting
    meeting.brought[i].append(part)
    with uninterrupted():
        meeting.barrier.wait()
    return [brought[len(meeting.brought[i]) - 1] for brought in meeting.brought]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Control-C takes effect at the end: raised inside, it could leave a lock of the pool taken for good."""
    came: list[Any] = []
    try:
        if callable(before := getsignal(SIGINT)):
            signal(SIGINT, lambda *how: came.append(how))
    except ValueError:  # another thread than the main one, which alone is interrupted
        before = None
    try:
        yield
    finally:
        if callable(before):
            signal(SIGINT, before)
            if came:
                before(*came[0])


def _finish(begun: list[Future[None]]) -> None:
    """Wait until all that have started are done, since they write to `results`; a keyboard interrupt is raised then."""
    interrupt: KeyboardInterrupt | None = None
    with uninterrupted():
        while not all(future.cancel() or future.done() for future in begun):
            try:
                wait([future for future in begun if not future.cancelled()])
            except KeyboardInterrupt as came:
                interrupt = came
    if interrupt is not None:
        raise interrupt


def free() -> bool:
    """Whether the caller may use the other cores: BLAS is held at one thread, and the pool is idle."""
    return _holder.locked() and not inside()


def share(work: Callable[[slice], None], length: int, *, worth: bool = True) -> None:
    """work(slice) on slices that make up 0 ... length: one for each core where that is worth it and the cores are free.

    They are free where BLAS is held at one thread; otherwise its threads keep them busy even between products.

    >>> with single_threaded_blas():
    ...     share(lambda at: None, 10)
    """
    count = cores() if worth and free() else 1
    if count == 1:
        work(slice(0, length))
    else:
        parallel(work, [slice(i * length // count, (i + 1) * length // count) for i in range(count)])
