"""Manage CPU memory: cut arrays into pieces that fit a core's cache, and keep freed memory in the process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from minintk.arrays import Array, array_namespace, on_host
from minintk.thresholds import THRESHOLDS


def cache_slices(a: Array) -> list[slice]:
    """Cut the last axis of `a` into pieces that stay in a core's cache over several passes; one piece on the GPU."""
    if not on_host(array_namespace(a)):
        return [slice(0, a.shape[-1])]
    step = max(1, THRESHOLDS.vector_piece // max(1, math.prod(a.shape[:-1])))
    return [slice(i, min(i + step, a.shape[-1])) for i in range(0, a.shape[-1], step)]


@contextmanager
def short_rows() -> Iterator[None]:
    """Speed up NumPy's ufuncs on rows of a few hundred numbers, inside this context and in this thread.

    NumPy copies rows shorter than its buffer of 8192 numbers into that buffer and back, which triples the work.  Inside
    the context, the buffer holds 256.
    """
    before = np.setbufsize(256)
    try:
        yield
    finally:
        np.setbufsize(before)


def keep_freed_memory(like: Array) -> None:
    """Keep memory that this process frees from now on; for loops that allocate and free the same arrays repeatedly.

    Linux's C library returns freed blocks above a size limit to the system.  The limit is twice the largest block freed
    so far (at most 64 MiB), so the next step gets the same pages back one by one, zeroed.  Freeing one such block that
    was never written to raises the limit.
    """
    if on_host(array_namespace(like)):
        np.empty(2**25 - 2**16, np.uint8)
