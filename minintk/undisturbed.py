"""Import and compile in a thread where no signal handler runs.

Python runs signal handlers in the main thread, between any two lines of code.  A handler in the middle of an import
would find half a module, and a handler that raises would leave half a module behind.  Entering a compiler twice, or
leaving it early, can end the process.  In a separate thread, such work runs to its end, and the next call can use it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")


def undisturbed(work: Callable[[], T]) -> T:
    """Return work().  If called in the main thread, run it in another thread and raise its errors here.

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
