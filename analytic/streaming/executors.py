"""Blocks of a kernel in other processes, or on other machines, by any `concurrent.futures.Executor`.

Threads of one process take turns at running Python between two array operations; processes do not.  But each block's
inputs and result have to be sent, and its inputs prepared again: on two cores, threads and processes are equally fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from math import ceil, sqrt
from typing import Any

from analytic.vectors.results import Examples, Place
from minintk.arrays import Array, on_host, to_host
from minintk.fast.threads import alone, single_threaded_blas
from minintk.files.units import InFlight, InTurn, calls_in_flight

Evaluate = Callable[[Array, "Array | None"], "list[Array | None]"]
"""(x1, x2) -> NNGP and NTK of a block, None for one that is not requested."""

SHORTEST, LONGEST = 0.1, 2.0
"""Seconds that a block takes at least, or its file costs as much, and at most, or workers wait for the last one."""

FEWEST, MOST = 12, 512
"""Rows of blocks: for so many workers to share at least, and so many lines of a record at most."""


def check_executor(executor: Executor, xp: Any) -> None:
    """TypeError for anything but an executor, and for arrays on a device."""
    if not isinstance(executor, Executor):
        raise TypeError(
            f"executor expects a concurrent.futures.Executor, got {executor!r} (of a dask client: get_executor())"
        )
    if not on_host(xp):
        raise TypeError("executor= is for arrays of NumPy; a GPU does not need it")


def block_size(shape: tuple[int, int], most: int, cost: float) -> int:
    """Rows, and columns, of a block, the same on every machine; cost : seconds for an entry on one core, about.

    >>> block_size((4000, 4000), 2048, 4e-8), block_size((200, 200), 2048, 3e-3), block_size((10**5, 10**5), 45, 4e-2)
    (1582, 17, 45)
    """
    size = min(max(shape) / FEWEST, sqrt(LONGEST / cost))
    return max(1, min(most, ceil(max(size, sqrt(SHORTEST / cost), max(shape) / MOST))))


def on_one_core(evaluate: Evaluate, x1: Array, x2: Array | None) -> list[Array | None]:
    """evaluate(x1, x2) without threads, as the other cores have their own workers."""
    with alone(), single_threaded_blas():
        return evaluate(x1, x2)


def begin_block(inputs: Examples, place: Place, evaluate: Evaluate, executor: Executor | None) -> Future[Any]:
    """The kernels of the block at `place`, begun in a worker, or finished in this process without an executor."""
    i, j = place
    x1, x2 = inputs.x[0][i], None if inputs.symmetric and i == j else inputs.x[-1][j]
    if executor is None:
        return InTurn().submit(evaluate, x1, x2)
    return executor.submit(on_one_core, evaluate, x1, x2)


def evaluate_blocks(
    results: list[Any], places: dict[int, Place], inputs: Examples, evaluate: Evaluate, executor: Executor | None
) -> Iterator[int]:
    """Evaluate the blocks at these places and write them into the results; yields the number of each when it is."""

    def begin(number: int) -> Future[Any]:
        return begin_block(inputs, places[number], evaluate, executor)

    with InFlight(places, begin, calls_in_flight(executor)) as flight:
        for number, future in flight:
            i, j = places[number]
            for result, block in zip(results, future.result(), strict=True):
                if result is not None and block is not None:
                    result[i, j] = to_host(block)
                    if inputs.symmetric and i != j:
                        result[j, i] = to_host(block).T
            yield number
