"""Memory on the CPU: pieces that stay in a core's cache, and arrays that are taken again instead of made again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import finalize

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.threads import parallel
from minintk.thresholds import THRESHOLDS, cut


def cache_slices(a: Array) -> list[slice]:
    """The last axis of `a` in pieces that stay in a core's cache through several passes; one piece on the GPU."""
    if not on_host(array_namespace(a)):
        return [slice(0, a.shape[-1])]
    step = max(1, THRESHOLDS.vector_piece // max(1, math.prod(a.shape[:-1])))
    return [slice(i, min(i + step, a.shape[-1])) for i in range(0, a.shape[-1], step)]


@contextmanager
def short_rows() -> Iterator[None]:
    """NumPy's ufuncs on rows of some hundred numbers at full speed, inside, in this thread.

    NumPy copies rows shorter than its buffer of 8192 numbers into that buffer and back: three times the work.  Inside,
    the buffer has 256.
    """
    before = np.setbufsize(256)
    try:
        yield
    finally:
        np.setbufsize(before)


class Copies:
    """Copies of arrays, each in the memory of one as large that nobody holds any more, neither it nor a view.

    Fresh memory costs several times a pass over it; so who keeps no copy pays for the pass alone, on all cores.

    >>> copies, a = Copies(), np.ones(2**16)
    >>> first, second = copies(a), copies(a)
    >>> at, row = first.ctypes.data, second[1:]
    >>> del first, second
    >>> copies(a).ctypes.data == at, bool(row.all())
    (True, True)
    """

    def __init__(self) -> None:
        self.free: dict[int, deque[np.ndarray[Any, Any]]] = {}  # by their bytes

    def __call__(self, a: Array) -> Array:
        if not isinstance(a, np.ndarray) or a.nbytes < THRESHOLDS.copy_bytes:
            return array_namespace(a).asarray(a, copy=True)
        free = self.free.setdefault(a.nbytes, deque(maxlen=4))
        memory = free.pop() if free else np.empty(a.nbytes, np.uint8)
        copy = np.frombuffer(memory.data, a.dtype)  # what is cut out of it holds it, as its memory is no array
        finalize(copy, free.append, memory).atexit = False
        parallel(lambda at: np.copyto(copy[at], a.reshape(-1)[at]), cut(a.size, a.size, THRESHOLDS.vector))
        return copy.reshape(a.shape)


def keep_freed_memory(like: Array) -> None:
    """From now on, memory that this process frees stays with it; for loops that take and free the same arrays.

    The C library of Linux returns to the system what is free above twice the size of the largest block that was freed
    so far (64 MiB at most), and the next step gets the same pages again, one by one and cleared.  Freeing one such
    block, which was never written to, raises that limit.
    """
    if on_host(array_namespace(like)):
        np.empty(2**25 - 2**16, np.uint8)
