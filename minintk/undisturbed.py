"""Import and compile where no signal handler runs.

Python runs signal handlers in the main thread, between any two of its lines.  A handler in the middle of an import
would find half a module, and one that leaves the import by an exception would leave half a module behind.  Entering a
compiler twice, or leaving it, may end the process.  In its own thread such work runs to its end, whatever happens in
the main thread, and its result is there for the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")


def undisturbed(work: Callable[[], T]) -> T:
    """Return work(), called in another thread if this is the main thread; errors are raised again.

    A handler may run while the main thread waits, may call this again, and may leave by an exception: the work goes on.

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
    except RuntimeError:  # no threads, as in a browser or when Python exits
        return work()
    return done.result()
