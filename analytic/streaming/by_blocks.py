"""Kernels computed by blocks: into memory by an executor, or into a store by all who share it.

Threads of one process take turns at running Python between two array operations; processes do not.  But each block's
inputs and result have to be sent, and its inputs prepared again: on two cores, threads and processes are equally fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import closing
from math import ceil, sqrt
from typing import Any

from analytic.images.engine import image_diagonals, reserve_images
from analytic.images.plan import pixel_pairs_followed, plan_images
from analytic.images.rules import needs_images
from analytic.streaming.store import KernelStore, images_of
from analytic.vectors.engine import reserve_vectors, vector_diagonals
from analytic.vectors.results import Examples, Place, Wanted, blocks
from analytic.vectors.state import Program
from minintk.arrays import Array, on_host, to_host
from minintk.fast.threads import alone, single_threaded_blas
from minintk.files.claims import Claim, InFlight, InTurn, shared

Store = str | os.PathLike[str] | None
Evaluate = Callable[[Array, "Array | None"], "list[Array | None]"]
"""(x1, x2) -> NNGP and NTK of a block, None for one that is not requested."""

PIXEL_PAIRS_PER_BLOCK = 2**31
"""Largest number of pixel pairs in one block of a store, or of an executor."""

SECONDS_PER_PAIR = 5e-9
"""What a step of the recursion takes on one core for a pair of pixels, or of vectors: 3e-9 to 2e-8 were measured."""

SHORTEST, LONGEST = 0.1, 2.0
"""Seconds that a block takes at least, or its file costs as much, and at most, or workers wait for the last one."""

FEWEST, MOST = 12, 512
"""Rows of blocks: for so many workers to share at least, and so many lines of a record at most."""


def block_size(shape: tuple[int, int], most: int, cost: float) -> int:
    """Rows, and columns, of a block, the same on every machine; cost : seconds for an entry on one core, about.

    >>> block_size((4000, 4000), 2048, 4e-8), block_size((200, 200), 2048, 3e-3), block_size((10**5, 10**5), 45, 4e-2)
    (1582, 17, 45)
    """
    size = min(max(shape) / FEWEST, sqrt(LONGEST / cost))
    return max(1, min(most, ceil(max(size, sqrt(SHORTEST / cost), max(shape) / MOST))))


def kernels_by_blocks(
    steps: Program, inputs: Examples, wanted: Wanted, block: Evaluate, of: str, store: Store, executor: Executor | None
) -> list[Array | None]:
    """NNGP and NTK of x1 (and x2), in the store or in memory.

    block : the same for some rows of each, here or in a worker.   of : all that it depends on beside the inputs.
    TypeError for anything but an executor, and for arrays on a device beside one; ValueError for two places of one
    result; otherwise errors as in `KernelStore`, `Wanted`.
    """
    images = needs_images(steps)
    followed = pixel_pairs_followed(steps, inputs.example)
    most = max(1, min(2048, int((PIXEL_PAIRS_PER_BLOCK / followed) ** 0.5)))
    size = block_size(inputs.shape, most, SECONDS_PER_PAIR * followed * max(1, len(steps)))
    if executor is not None:
        if not isinstance(executor, Executor):
            of_dask = "(of a dask client: get_executor())"
            raise TypeError(f"executor expects a concurrent.futures.Executor, got {executor!r} {of_dask}")
        if not on_host(inputs.xp):
            raise TypeError("executor= is for arrays of NumPy; a GPU does not need it")
        diagonals = image_diagonals if images else vector_diagonals
        wanted.warn(max(diagonals(steps, Examples(x)).error for x in inputs.x))  # a worker's warnings would be lost
    if store is not None:
        if any(o is not None for o in wanted.out):
            raise ValueError("store and out are two places for one result: give one of them")
        return fill(KernelStore(store, of, inputs, wanted.asked, size), block, executor, wanted.progress)
    if images:
        results = reserve_images(plan_images(steps, inputs), inputs, wanted)
    else:
        results = reserve_vectors(inputs, wanted)
    places = list(blocks(inputs.shape, size, inputs.symmetric))
    with InFlight(places, lambda place: begin_block(inputs, place, block, executor), executor) as flight:
        for done, (place, future) in enumerate(flight, 1):
            for result, found in zip(results, future.result(), strict=True):
                if result is not None and found is not None:
                    for rows, columns, turned in images_of(place, inputs.symmetric):
                        result[rows, columns] = turned(to_host(found))
            if wanted.progress is not None:
                wanted.progress(done, len(places))
    return results


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


def fill(
    store: KernelStore, evaluate: Evaluate, executor: Executor | None, progress: Callable[[int, int], None] | None
) -> list[Any]:
    """The results of a store; evaluates the blocks that are not finished and that no other process evaluates."""
    told = 0

    def tell() -> None:
        nonlocal told
        if progress is not None and len(store.done) > told:
            told = len(store.done)
            progress(told, len(store.places))

    def begin(job: tuple[int, Claim]) -> Future[Any]:
        return begin_block(store.inputs, store.places[job[0]], evaluate, executor)

    tell()
    missing = sorted(store.places.keys() - store.done.keys())
    with closing(shared(missing, store.claim_of, store.finished)) as units, InFlight(units, begin, executor) as flight:
        for (number, claim), future in flight:
            with claim:
                store.keep(number, future.result())
            tell()
    tell()  # what others have computed
    store.clear()
    return store.results()
