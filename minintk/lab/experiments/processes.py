"""Start processes that share the work of a sweep and end when their parent ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from threading import Thread


@contextmanager
def processes(count: int) -> Iterator[Executor | None]:
    """Yield an executor with `count` processes that end when this process ends, or None if `count` is 1."""
    if count == 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor  # not available in a browser
    from multiprocessing import get_context

    with ProcessPoolExecutor(count, get_context("spawn"), _end_with_parent) as pool:
        yield pool


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()

    def wait_for_it() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait_for_it, daemon=True).start()
