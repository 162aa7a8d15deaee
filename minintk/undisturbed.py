"""Import and compile where no signal handler runs.

Python runs signal handlers in the main thread, between any two of its lines.  One that came in the middle of an import
would find half a module, and one that left it by an exception would leave half a module behind.  A compiler that is
entered twice, or left, may end the process.  In a thread of its own such work runs to its end, whatever the main thread
is told meanwhile, and it is there for the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import TypeVar

T = TypeVar("T")


def undisturbed(work: Callable[[], T]) -> T:
    """Return work(), called in a thread of its own if this is the main thread; raises what it raises.

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
    except RuntimeError:  # no threads, in a browser or when Python ends
        return work()
    return done.result()
