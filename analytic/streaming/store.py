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
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from analytic.streaming.executors import Evaluate, evaluate_each
from analytic.vectors.engine import Progress, blocks
from minintk.arrays import Array, to_host
from minintk.files import made_folder, write_atomically

KERNEL_NAMES = ("nngp", "ntk")


def fingerprint(what: str, *arrays: Array) -> str:
    """A digest of a description and of arrays, exact to the last bit."""
    digest = hashlib.sha256(what.encode())
    for a in arrays:
        host = np.ascontiguousarray(to_host(a))
        digest.update(f"{host.shape}{host.dtype}".encode())
        digest.update(host.data if host.size else b"")
    return digest.hexdigest()


def evaluate_into_store(
    path: str | os.PathLike[str],
    what: str,
    x1: Array,
    x2: Array | None,
    asked: tuple[bool, bool],
    size: int,
    evaluate: Evaluate,
    progress: Progress | None,
    executor: Executor | None = None,
) -> list[Any]:
    """The kernels as numpy.memmap in the store `path`; evaluates all blocks that are not finished.

    what : a description of everything except the inputs that the results depend on.   size : rows, and columns, of a
    block.
    ValueError for a store of another kernel; NotADirectoryError for a file.
    """
    folder, symmetric = made_folder(path, "store="), x2 is None
    shape = (x1.shape[0], (x1 if x2 is None else x2).shape[0])
    inputs = (x1,) if x2 is None else (x1, x2)
    mark = fingerprint(f"minintk store 1; {what}; {asked}; blocks of {size}", *inputs)
    record = folder / "record.txt"
    done = finished_blocks(record, mark)
    wanted = [name for name, a in zip(KERNEL_NAMES, asked, strict=True) if a]
    if done is None:
        for name in wanted:
            if (folder / f"{name}.npy").exists():
                raise ValueError(
                    f"{str(folder)!r} holds {name}.npy but is not a store: choose another path, or move it away"
                )
        done = set()
    text = "".join(f"{line}\n" for line in (mark, *sorted(done)))  # drops a truncated line, which the next would join
    write_atomically(record, lambda file: file.write(text.encode()))
    results = [
        open_result(folder / f"{name}.npy", shape, str(x1.dtype), new=not done) if name in wanted else None
        for name in KERNEL_NAMES
    ]
    todo = list(blocks(shape, size, symmetric))
    count = len(todo)
    with record.open("a") as lines:
        missing = [n for n in range(count) if n not in done]
        if progress is not None and len(missing) < count:
            progress(count - len(missing), count)
        for number in evaluate_blocks(results, todo, missing, x1, x2, evaluate, executor):
            for result in results:
                if result is not None:
                    result.flush()
            lines.write(f"{number}\n")
            lines.flush()
            os.fsync(lines.fileno())
            missing.remove(number)
            if progress is not None:
                progress(count - len(missing), count)
    return results


def evaluate_blocks(
    results: Sequence[Any],
    all_blocks: Sequence[tuple[slice, slice]],
    missing: Sequence[int],
    x1: Array,
    x2: Array | None,
    evaluate: Evaluate,
    executor: Executor | None,
) -> Iterator[int]:
    """Evaluate the missing blocks and write them into the results; yields each block's number once it is written."""
    other = x1 if x2 is None else x2

    def inputs() -> Iterator[tuple[int, Array, Array | None]]:
        for number in list(missing):
            i, j = all_blocks[number]
            yield number, x1[i], None if x2 is None and i == j else other[j]

    for number, found in evaluate_each(evaluate, inputs(), executor):
        i, j = all_blocks[number]
        for result, block in zip(results, found, strict=True):
            if result is not None and block is not None:
                result[i, j] = to_host(block)
                if x2 is None and i != j:
                    result[j, i] = to_host(block).T
        yield number


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
