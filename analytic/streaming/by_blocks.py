"""Kernels computed by blocks: into memory by an executor, or into a store by all who share it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import closing
from time import sleep
from typing import Any

from analytic.images.engine import image_diagonals, pixel_pairs_followed, plan_images, reserve_images
from analytic.images.rules import needs_images
from analytic.streaming.executors import Evaluate, begin_block, block_size, check_executor, evaluate_blocks
from analytic.streaming.store import KernelStore
from analytic.vectors.engine import reserve_vectors, vector_diagonals
from analytic.vectors.results import Examples, Wanted, blocks
from analytic.vectors.state import Program
from minintk.arrays import Array
from minintk.files.claims import PAUSE, Claim, remove_dead
from minintk.files.units import InFlight, calls_in_flight, shared

Store = str | os.PathLike[str] | None

PIXEL_PAIRS_PER_BLOCK = 2**31
"""Largest number of pixel pairs in one block of a store, or of an executor."""

SECONDS_PER_PAIR = 5e-9
"""What a step of the recursion takes on one core for a pair of pixels, or of vectors: 3e-9 to 2e-8 were measured."""


def kernels_by_blocks(
    steps: Program, inputs: Examples, wanted: Wanted, block: Evaluate, of: str, store: Store, executor: Executor | None
) -> list[Array | None]:
    """NNGP and NTK of x1 (and x2), in the store or in memory.

    block : the same for some rows of each, here or in a worker.   of : all that it depends on beside the inputs.
    ValueError for two places of one result; otherwise errors as in `check_executor`, `KernelStore`, `Wanted`.
    """
    images = needs_images(steps)
    followed = pixel_pairs_followed(steps, inputs.example)
    most = max(1, min(2048, int((PIXEL_PAIRS_PER_BLOCK / followed) ** 0.5)))
    size = block_size(inputs.shape, most, SECONDS_PER_PAIR * followed * max(1, len(steps)))
    if executor is not None:
        check_executor(executor, inputs.xp)
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
    every = dict(enumerate(blocks(inputs.shape, size, inputs.symmetric)))
    for done, _ in enumerate(evaluate_blocks(results, every, inputs, block, executor), 1):
        if wanted.progress is not None:
            wanted.progress(done, len(every))
    return results


def fill(
    store: KernelStore, evaluate: Evaluate, executor: Executor | None, progress: Callable[[int, int], None] | None
) -> list[Any]:
    """The results of a store; evaluates the blocks that are not finished and that no other process evaluates."""
    told = 0

    def tell() -> None:
        nonlocal told
        if progress is not None and len(store.merged) > told:
            told = len(store.merged)
            progress(told, len(store.places))

    def begin(job: tuple[int, Claim]) -> Future[Any]:
        return begin_block(store.inputs, store.places[job[0]], evaluate, executor)

    tell()
    while missing := store.places.keys() - store.merged.keys():
        with (
            closing(shared(sorted(missing), store.claim_of, store.finished)) as units,
            InFlight(units, begin, calls_in_flight(executor)) as flight,
        ):
            for (number, claim), future in flight:
                with claim:
                    found = future.result()
                    if claim.held():
                        store.keep(number, found)
                store.merge()
                tell()
        store.merge()
        tell()
        if store.places.keys() - store.merged.keys():
            sleep(PAUSE)  # another process merges
    remove_dead(store.waiting)  # of those who were killed meanwhile
    return store.results()
