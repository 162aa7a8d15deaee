"""Blocks of a kernel on other processes, or on other machines: any `concurrent.futures.Executor`.

The threads of one process take turns at Python between two array operations; processes do not, but a block's inputs and
result travel, and every block prepares its inputs anew: on two cores the two are equally fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from math import ceil, sqrt
from typing import Any, TypeVar

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.threads import alone, single_threaded_blas

Key = TypeVar("Key")

Evaluate = Callable[[Array, "Array | None"], "list[Array | None]"]
"""(x1, x2) -> NNGP and NTK of a block, None for one that was not asked for."""

AHEAD = 32
"""Blocks given to the executor before the first of them is back: more would only wait, in somebody's memory."""

EACH = 5
"""Blocks for each core at least, so that the workers end at about the same time."""


def check(executor: Executor, *arrays: Array) -> None:
    """TypeError for what is no executor, and for arrays on a device."""
    if not isinstance(executor, Executor):
        raise TypeError(f"executor expects a concurrent.futures.Executor, got {executor!r}")
    for x in arrays:
        if not on_host(array_namespace(x)):
            raise TypeError("executor= is for arrays of NumPy; a GPU is kept busy without it")


def block_size(shape: tuple[int, int], most: int, workers: int) -> int:
    """Rows, and columns, of a block: as large as that many workers allow, for each block prepares its inputs anew.

    >>> block_size((16, 16), 2048, 2), block_size((60_000, 60_000), 2048, 64)
    (4, 2048)
    """
    side = ceil(sqrt(2 * EACH * workers) - 0.5)  # side (side + 1) / 2 blocks of a symmetric matrix
    return max(1, min(most, ceil(max(shape) / side)))


def on_one_core(evaluate: Evaluate, x1: Array, x2: Array | None) -> list[Array | None]:
    """evaluate(x1, x2) without threads: the other cores have workers of their own."""
    with alone(), single_threaded_blas():
        return evaluate(x1, x2)


def each(
    evaluate: Evaluate, blocks: Iterable[tuple[Key, Array, Array | None]], executor: Executor | None
) -> Iterator[tuple[Key, list[Array | None]]]:
    """(key, evaluate(x1, x2)) of each block (key, x1, x2): in their order here, as they come from an executor.

    After an error, or when the caller leaves, blocks that have not begun are cancelled.
    """
    if executor is None:
        for key, x1, x2 in blocks:
            yield key, evaluate(x1, x2)
        return
    running: dict[Future[Any], Key] = {}
    left = iter(blocks)
    try:
        while True:
            while len(running) < AHEAD and (block := next(left, None)) is not None:
                key, x1, x2 = block
                running[executor.submit(on_one_core, evaluate, x1, x2)] = key
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()
