"""Import and compile in a thread where no signal handler runs.

Python runs signal handlers in the main thread, between bytecode instructions.  During an import, a handler would find a
partially initialised module, and a handler that raises would leave one behind.  Re-entering or interrupting a compiler
can crash the process.  In a separate thread, such work runs to completion, and the next call can use its result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")


def undisturbed(work: Callable[[], T]) -> T:
    """Return work().  In the main thread, run `work` in another thread, wait for it, and re-raise its errors.

    While the main thread waits, a handler can call this function again or raise an exception.  The work continues.

    >>> undisturbed(lambda: current_thread() is main_thread())
    False
    """
    if current_thread() is not main_thread():
        return work()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    try:
        Thread(target=run, name="minintk-undisturbed").start()
    except RuntimeError:  # no threads, as in a browser or while Python exits
        return work()
    return done.result()
