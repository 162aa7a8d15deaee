"""Manage memory on the CPU: pieces that fit a core's cache, and freed memory that the process keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.thresholds import THRESHOLDS


def cache_slices(a: Array) -> list[slice]:
    """Cut the last axis of `a` into pieces that stay in a core's cache through several passes; one piece on the GPU."""
    if not on_host(array_namespace(a)):
        return [slice(0, a.shape[-1])]
    step = max(1, THRESHOLDS.vector_piece // max(1, math.prod(a.shape[:-1])))
    return [slice(i, min(i + step, a.shape[-1])) for i in range(0, a.shape[-1], step)]


@contextmanager
def short_rows() -> Iterator[None]:
    """Speed up NumPy's ufuncs on rows of a few hundred numbers, inside this context, in this thread.

    NumPy copies rows shorter than its buffer of 8192 numbers to that buffer and back, which triples the work.  Inside
    the context, the buffer has 256.
    """
    before = np.setbufsize(256)
    try:
        yield
    finally:
        np.setbufsize(before)


def keep_freed_memory(like: Array) -> None:
    """Keep memory that this process frees from now on; for loops that repeatedly allocate and free the same arrays.

    Linux's C library returns free memory to the system above a limit: twice the largest block freed so far (64 MiB at
    most).  The next step then gets the same pages again, one by one, cleared.  Freeing one such block, which was never
    written to, raises that limit.
    """
    if on_host(array_namespace(like)):
        np.empty(2**25 - 2**16, np.uint8)
