"""Kernels that survive a killed run: results on disk, block by block, with a record of the finished blocks.

A store is a folder:

    nngp.npy, ntk.npy   the results, plain .npy files that numpy.load(..., mmap_mode="r") opens
    record.txt          a fingerprint of network, inputs and precision, then a line for each finished block

A block is written and flushed before its line is.  The same call on the same store computes the blocks without a line,
and ends with the same bytes as an uninterrupted run.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from analytic.images.engine import image_diagonals, pixel_pairs_followed, plan_images, reserve_images
from analytic.images.rules import needs_images
from analytic.streaming.executors import Evaluate, block_size, check_executor, evaluate_blocks
from analytic.vectors.engine import reserve_vectors, vector_diagonals
from analytic.vectors.results import Examples, Wanted, blocks
from analytic.vectors.state import Program
from minintk.arrays import Array, to_host
from minintk.fast.threads import cores
from minintk.files import made_folder, write_atomically

KERNEL_NAMES = ("nngp", "ntk")

Folder = str | os.PathLike[str]
Store = Folder | None

PIXEL_PAIRS_PER_BLOCK = 2**31
"""Largest number of pixel pairs in one block of a store, or of an executor."""


def kernels_by_blocks(
    steps: Program, inputs: Examples, wanted: Wanted, block: Evaluate, of: str, store: Store, executor: Executor | None
) -> list[Array | None]:
    """NNGP and NTK of x1 (and x2), in the store or in memory.

    block : the same for some rows of each, here or in a worker.   of : all that it depends on beside the inputs.
    ValueError for two places of one result; otherwise errors as in `check_executor`, `evaluate_into_store`, `Wanted`.
    """
    images = needs_images(steps)
    followed = pixel_pairs_followed(steps, inputs.example)
    most = max(1, min(2048, int((PIXEL_PAIRS_PER_BLOCK / followed) ** 0.5)))
    if executor is not None:
        check_executor(executor, inputs.xp)
        diagonals = image_diagonals if images else vector_diagonals
        wanted.warn(max(diagonals(steps, Examples(x)).error for x in inputs.x))  # a worker's warnings would be lost
    if store is not None:
        if any(o is not None for o in wanted.out):
            raise ValueError("store and out are two places for one result: give one of them")
        return evaluate_into_store(store, of, inputs, wanted, most, block, executor)
    if images:
        results = reserve_images(plan_images(steps, inputs), inputs, wanted)
    else:
        results = reserve_vectors(inputs, wanted)
    size = block_size(inputs.shape, most, cores())
    every = dict(enumerate(blocks(inputs.shape, size, inputs.symmetric)))
    for done, _ in enumerate(evaluate_blocks(results, every, inputs, block, executor), 1):
        if wanted.progress is not None:
            wanted.progress(done, len(every))
    return results


def fingerprint(what: str, *arrays: Array) -> str:
    """A digest of a description and of arrays, exact to the last bit."""
    digest = hashlib.sha256(what.encode())
    for a in arrays:
        host = np.ascontiguousarray(to_host(a))
        digest.update(f"{host.shape}{host.dtype}".encode())
        digest.update(host.data if host.size else b"")
    return digest.hexdigest()


def evaluate_into_store(
    path: Folder, what: str, inputs: Examples, wanted: Wanted, size: int, evaluate: Evaluate, executor: Executor | None
) -> list[Any]:
    """The kernels as numpy.memmap in the store `path`; evaluates all blocks that are not finished.

    what : all that the results depend on except the inputs.   size : rows, and columns, of a block.
    ValueError for a store of another kernel; NotADirectoryError for a file.
    """
    folder = made_folder(path, "store=")
    mark = fingerprint(f"minintk store 1; {what}; {wanted.asked}; blocks of {size}", *inputs.x)
    record = folder / "record.txt"
    done = finished_blocks(record, mark)
    names = [name for name, a in zip(KERNEL_NAMES, wanted.asked, strict=True) if a]
    if done is None:
        for name in names:
            if (folder / f"{name}.npy").exists():
                raise ValueError(
                    f"{str(folder)!r} holds {name}.npy but is not a store: choose another path, or move it away"
                )
        done = set()
    text = "".join(f"{line}\n" for line in (mark, *sorted(done)))  # drops a truncated line, which the next would join
    write_atomically(record, lambda file: file.write(text.encode()))
    results = [
        open_result(folder / f"{name}.npy", inputs.shape, str(inputs.dtype), new=not done) if name in names else None
        for name in KERNEL_NAMES
    ]
    every = list(blocks(inputs.shape, size, inputs.symmetric))
    missing = {n: place for n, place in enumerate(every) if n not in done}
    ready = len(every) - len(missing)
    with record.open("a") as lines:
        if wanted.progress is not None and ready:
            wanted.progress(ready, len(every))
        for count, number in enumerate(evaluate_blocks(results, missing, inputs, evaluate, executor), ready + 1):
            for result in results:
                if result is not None:
                    result.flush()
            lines.write(f"{number}\n")
            lines.flush()
            os.fsync(lines.fileno())
            if wanted.progress is not None:
                wanted.progress(count, len(every))
    return results


def finished_blocks(record: Path, mark: str) -> set[int] | None:
    """The numbers of the blocks that the record lists as finished; None if there is no record yet."""
    if not record.exists():
        return None
    first, *lines = record.read_text().split("\n")
    if first != mark:
        raise ValueError(
            f"store {str(record.parent)!r} holds the kernel of another network, or of other inputs: "
            "choose another path, or delete it"
        )
    return {int(line) for line in lines[:-1] if line.isdecimal()}  # the last line is empty, or truncated


def open_result(path: Path, shape: tuple[int, int], dtype: str, *, new: bool) -> Any:
    """A .npy file as a writable numpy.memmap; a new one is filled with NaN."""
    if new:
        found = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        found[...] = np.nan
        return found
    try:
        found = np.load(path, mmap_mode="r")  # read-only: opened for writing, a file that is too short would grow
        if found.shape == shape and str(found.dtype) == dtype:
            return np.load(path, mmap_mode="r+")
        reason = f"{found.dtype} of shape {found.shape} in place of {dtype} of shape {shape}"
    except (ValueError, EOFError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"{str(path)!r} is damaged, or missing ({reason}): delete the store {str(path.parent)!r} and start again"
    )
