"""Compiled loops on all cores, handed over in some microseconds, to threads that stay awake for a while.

A thread that sleeps takes longer to wake up, and one that has to return to the interpreter waits longer for its lock,
than many a layer takes to compute.  `minintk.fast.crew` is what the threads do meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import get_ident
from typing import Any

from minintk.fast import threads
from minintk.fast.board import CAME, LEFT, STOP, board
from minintk.fast.thresholds import THRESHOLDS


@cache
def crew() -> Any:
    """`minintk.fast.crew`, loaded when it is first needed."""
    return import_module("minintk.fast.crew")


def spread(f: Callable[..., None], worth: bool, *args: Any) -> None:
    """f(*args), a loop of `minintk.fast.direct`, on all cores where that is worth it and the pool is free."""
    me, count = get_ident(), threads.cores()
    alone = not worth or count == 1 or threads.inside() or (loop := crew().LOOPS.get(f)) is None
    if alone or threads._user.setdefault("pool", me) != me:
        f(*args)
        return
    try:
        call_up(count - 1)
        loop(board(), count, *args)
    finally:
        threads._user.pop("pool", None)


def call_up(count: int) -> None:
    """So many threads of the pool to the board, if they are not there."""
    places = board()
    places[STOP] = 0
    for _ in range(count - int(places[CAME] - places[LEFT])):
        try:
            with threads.uninterrupted():
                threads._pool().submit(crew().serve, places, THRESHOLDS.looks)
                places[CAME] += 1
        except RuntimeError:  # no thread can start: the caller takes all pieces
            threads._pool.cache_clear()
            return
