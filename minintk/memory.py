"""Manage CPU memory: cut arrays into pieces that fit a core's cache, and keep freed memory in the process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.thresholds import THRESHOLDS


def cache_slices(a: Array) -> list[slice]:
    """Cut the last axis of `a` into pieces that fit into a core's cache.  On the GPU, return a single piece."""
    if not on_host(array_namespace(a)):
        return [slice(0, a.shape[-1])]
    step = max(1, THRESHOLDS.vector_piece // max(1, math.prod(a.shape[:-1])))
    return [slice(i, min(i + step, a.shape[-1])) for i in range(0, a.shape[-1], step)]


@contextmanager
def short_rows() -> Iterator[None]:
    """Speed up NumPy's ufuncs on rows of a few hundred elements, in this context and in the current thread.

    NumPy copies rows shorter than its buffer of 8192 elements into the buffer and back, which can triple the work.
    Inside the context, the buffer has room for only 256 elements.
    """
    before = np.setbufsize(256)
    try:
        yield
    finally:
        np.setbufsize(before)


def keep_freed_memory(like: Array) -> None:
    """Keep freed memory in this process, for loops that allocate and free arrays of the same sizes repeatedly.

    On Linux, the C library returns freed memory above a limit to the system.  The next step must then fault in and zero
    every page again.  The limit is twice the size of the largest block freed so far (at most 64 MiB).  This function
    frees one large block that is never written to, and thus raises the limit.
    """
    if on_host(array_namespace(like)):
        np.empty(2**25 - 2**16, np.uint8)
