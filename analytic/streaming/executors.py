"""Blocks of a kernel in other processes, or on other machines, by any `concurrent.futures.Executor`.

Threads of one process take turns at running Python between two array operations; processes do not.  But each block's
inputs and result have to be sent, and its inputs prepared again: on two cores, threads and processes are equally fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from math import ceil, sqrt
from typing import Any, TypeVar

from analytic.vectors.results import Examples, Place
from minintk.arrays import Array, on_host, to_host
from minintk.fast.threads import alone, single_threaded_blas

Key = TypeVar("Key")

Evaluate = Callable[[Array, "Array | None"], "list[Array | None]"]
"""(x1, x2) -> NNGP and NTK of a block, None for one that is not requested."""

BLOCKS_IN_FLIGHT = 32
"""Largest number of blocks submitted and not yet finished: more would only take memory while they wait."""

BLOCKS_PER_CORE = 5
"""Smallest number of blocks per core: with several each, all workers finish at about the same time."""


def check_executor(executor: Executor, xp: Any) -> None:
    """TypeError for anything but an executor, and for arrays on a device."""
    if not isinstance(executor, Executor):
        raise TypeError(f"executor expects a concurrent.futures.Executor, got {executor!r}")
    if not on_host(xp):
        raise TypeError("executor= is for arrays of NumPy; a GPU does not need it")


def block_size(shape: tuple[int, int], most: int, workers: int) -> int:
    """Rows, and columns, of a block: as large as keeps all workers busy, as every block prepares its inputs again.

    >>> block_size((16, 16), 2048, 2), block_size((60_000, 60_000), 2048, 64)
    (4, 2048)
    """
    side = ceil(sqrt(2 * BLOCKS_PER_CORE * workers) - 0.5)  # side (side + 1) / 2 blocks of a symmetric matrix
    return max(1, min(most, ceil(max(shape) / side)))


def on_one_core(evaluate: Evaluate, x1: Array, x2: Array | None) -> list[Array | None]:
    """evaluate(x1, x2) without threads, as the other cores have their own workers."""
    with alone(), single_threaded_blas():
        return evaluate(x1, x2)


def evaluate_each(
    evaluate: Evaluate, blocks: Iterable[tuple[Key, Array, Array | None]], executor: Executor | None
) -> Iterator[tuple[Key, list[Array | None]]]:
    """(key, evaluate(x1, x2)) of each block (key, x1, x2); in order without an executor, else as they finish.

    After an error, or if the caller stops early, blocks that have not begun are cancelled.
    """
    if executor is None:
        for key, x1, x2 in blocks:
            yield key, evaluate(x1, x2)
        return
    running: dict[Future[Any], Key] = {}
    left = iter(blocks)
    try:
        while True:
            while len(running) < BLOCKS_IN_FLIGHT and (block := next(left, None)) is not None:
                key, x1, x2 = block
                running[executor.submit(on_one_core, evaluate, x1, x2)] = key
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


def evaluate_blocks(
    results: list[Any], places: dict[int, Place], inputs: Examples, evaluate: Evaluate, executor: Executor | None
) -> Iterator[int]:
    """Evaluate the blocks at these places and write them into the results; yields the number of each when it is."""
    symmetric, x1, x2 = inputs.symmetric, inputs.x[0], inputs.x[-1]
    parts = ((n, x1[i], None if symmetric and i == j else x2[j]) for n, (i, j) in places.items())
    for number, found in evaluate_each(evaluate, parts, executor):
        i, j = places[number]
        for result, block in zip(results, found, strict=True):
            if result is not None and block is not None:
                result[i, j] = to_host(block)
                if symmetric and i != j:
                    result[j, i] = to_host(block).T
        yield number
