"""Kernels by blocks: into memory by an executor, or into a store on disk that survives kills and is shared by many.

A store is a folder, as docs/long-runs.md describes it:

    nngp.npy, ntk.npy   the results, plain .npy files that numpy.load(..., mmap_mode="r") opens
    record.txt          a fingerprint of network, inputs and precision, then a line for each block that is in the
                        results: its number, and the checksum of its bytes in each of them
    blocks/             17.lock, the claim on a block

A block is written into the results, and flushed to disk, before its line is written.  The same call on the same store
computes the blocks without a line, and ends with the same bytes as one process that nobody interrupted.
"""

from __future__ import annotations

import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import closing
from math import ceil, sqrt
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from analytic.images.engine import image_diagonals
from analytic.images.plan import pixel_pairs_followed
from analytic.images.rules import needs_images
from analytic.vectors.engine import vector_diagonals
from analytic.vectors.results import Examples, Place, Wanted, blocks
from analytic.vectors.state import Program
from minintk.arrays import Array, Host, on_host, to_host
from minintk.fast.threads import alone, single_threaded_blas
from minintk.files.claims import Claim, InFlight, InTurn, remove_claims, shared
from minintk.files.reading import Unreadable, map_npy, npy_header, read_lines
from minintk.files.writing import digest, made_folder, remove_parts, space_on_disk, write_atomically, write_bytes

KERNEL_NAMES = ("nngp", "ntk")

Lines = dict[int, str]
"""{number of a block: the rest of its line, " " and the checksum of its bytes in each result}."""


def images_of(place: Place, symmetric: bool) -> list[tuple[slice, slice, Callable[[Host], Host]]]:
    """(rows, columns, how a block lies there) of a block, and where the matrix is symmetric of its mirror image."""
    i, j = place
    return [(i, j, np.asarray)] + [(j, i, np.transpose)] * (symmetric and i != j)


class KernelStore:
    """The kernels of `inputs` in a folder.   asked : of NNGP and NTK.   size : rows, and columns, of a block.

    what : all that the results depend on except the inputs.   ValueError for a store of another kernel, and for files
    that are no store; NotADirectoryError for a file; OSError for a full disk, or a folder that is read-only and not
    finished.
    """

    def __init__(self, path: str | os.PathLike[str], what: str, inputs: Examples, asked: tuple[bool, bool], size: int):
        self.folder, self.inputs = made_folder(path, "store="), inputs
        self.record, self.claims = self.folder / "record.txt", self.folder / "blocks"
        self.names = [name for name, wanted in zip(KERNEL_NAMES, asked, strict=True) if wanted]
        self.mark = digest(f"minintk store 3; {what}; {asked}; blocks of {size}", *inputs.x)
        self.places = dict(enumerate(blocks(inputs.shape, size, inputs.symmetric)))
        self._length = -1
        self.done: Lines = self._lines() or {}
        if self.done and self.done.keys() == self.places.keys() and not self._damaged():
            self.clear()
            return
        self.claims.mkdir(exist_ok=True)
        with Claim(self.folder / "record.lock", wait=True):
            self._open()

    def _open(self) -> None:
        """Make what is not there yet, remove what dead writers left, take damaged blocks off the record."""
        for name in self.names:
            remove_parts(self._file(name))
        lines = self._lines()
        if lines is None and (strangers := [name for name in self.names if self._file(name).exists()]):
            what = f"{str(self.folder)!r} holds {strangers[0]}.npy but is not a store"
            raise ValueError(f"{what}: choose another path, or move it away")
        self._write_record(lines or {})
        for name in self.names:
            if not self.done and not self._file(name).exists():
                self._reserve(name)
        if damaged := self._damaged():
            warnings.warn(
                f"store {str(self.folder)!r}: the bytes of {len(damaged)} blocks are not those that were written "
                f"(the first one: {damaged[0]}), so these are computed again; is the disk sound?",
                stacklevel=5,
            )
            self._write_record({number: sums for number, sums in self.done.items() if number not in damaged})

    def _write_record(self, lines: Lines) -> None:
        """A record of these lines, unless the one there is the same, to the last line's end."""
        text = "".join(f"{n}{sums}\n" for n, sums in sorted(lines.items()))
        write_bytes(self.record, f"{self.mark}\n{text}".encode())
        self.done = lines

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _lines(self) -> Lines | None:
        """What the record lists; None if there is none, ValueError for that of another kernel."""
        try:
            first, *lines = read_lines(self.record, "the record of a store", "delete the store and start again") or [""]
        except FileNotFoundError:
            return None
        if first != self.mark:
            raise ValueError(
                f"store {str(self.folder)!r} holds the kernel of another network, or of other inputs: "
                "choose another path, or delete it"
            )
        whole = re.compile(rf"(\d{{1,18}})((?: [0-9a-f]{{8}}){{{len(self.names)}}})")  # not one that was cut short
        found = {int(line[1]): line[2] for line in map(whole.fullmatch, lines) if line}
        return {number: sums for number, sums in found.items() if number in self.places}

    def _reserve(self, name: str) -> None:
        """A result full of NaN, whose space on disk is ours."""
        shape, dtype = self.inputs.shape, np.dtype(str(self.inputs.dtype))
        row = np.full(shape[1], np.nan, dtype)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}

        def fill(file: BinaryIO) -> None:
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(shape[0]):
                file.write(row.data)

        write_atomically(self._file(name), fill, shape[0] * row.nbytes)

    def results(self) -> list[Any]:
        """NNGP and NTK as read-only numpy.memmap; None for one that is not asked for."""
        remedy = f"delete the store {str(self.folder)!r} and start again"
        shape, dtype = self.inputs.shape, str(self.inputs.dtype)
        try:
            return [map_npy(self._file(n), shape, dtype, remedy) if n in self.names else None for n in KERNEL_NAMES]
        except FileNotFoundError as error:
            raise Unreadable(f"{error.filename} is missing: {remedy}") from error

    def _damaged(self) -> list[int]:
        """The blocks whose bytes, or those of their mirror image, are not those of their line."""
        results = [result for result in self.results() if result is not None]
        return [n for n, sums in self.done.items() if any(
            checksums(turned(result[rows, columns]) for result in results) != sums
            for rows, columns, turned in images_of(self.places[n], self.inputs.symmetric)
        )]  # fmt: skip

    def clear(self) -> None:
        """Remove the files of the claims, once all blocks are there."""
        remove_claims(self.claims.glob("*.lock"))

    def finished(self, number: int) -> bool:
        """Whether a block is in the results."""
        if number not in self.done and (length := self.record.stat().st_size) != self._length:
            self.done, self._length = self._lines() or {}, length
        return number in self.done

    def keep(self, number: int, found: list[Array | None]) -> None:
        """Write a block that this process has claimed and computed: into the results, then its line."""
        arrays = {name: to_host(a) for name, a in zip(KERNEL_NAMES, found, strict=True) if a is not None}
        with Claim(self.folder / "record.lock", wait=True):
            for name, block in arrays.items():
                self._write(self._file(name), self.places[number], block)
            sums = checksums(arrays.values())
            with space_on_disk(self.record), open(self.record, "r+b") as lines:
                lines.seek(-1, os.SEEK_END)
                end = "" if lines.read() == b"\n" else "\n"  # after a line that was cut short
                lines.write(f"{end}{number}{sums}\n".encode())
                lines.flush()
                os.fsync(lines.fileno())
        self.done[number] = sums

    def _write(self, path: Path, place: Place, block: Host) -> None:
        """Write a block into a result, row by row, and flush it; OSError, and no signal, on a full disk."""
        with space_on_disk(path), open(path, "r+b") as file:
            npy_header(file)
            start = file.tell()
            for rows, columns, turned in images_of(place, self.inputs.symmetric):
                for row, values in enumerate(np.ascontiguousarray(turned(block)), rows.start):
                    file.seek(start + (row * self.inputs.shape[1] + columns.start) * block.itemsize)
                    file.write(values.data)
            file.flush()
            os.fsync(file.fileno())


def checksums(arrays: Iterable[Host]) -> str:
    """A space and the CRC-32 of the bytes, eight hexadecimal digits, for each array."""
    return "".join(f" {zlib.crc32(np.ascontiguousarray(a).data):08x}" for a in arrays)


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
    followed = pixel_pairs_followed(steps, inputs.example)
    most = max(1, min(2048, int((PIXEL_PAIRS_PER_BLOCK / followed) ** 0.5)))
    size = block_size(inputs.shape, most, SECONDS_PER_PAIR * followed * max(1, len(steps)))
    if executor is not None:
        if not isinstance(executor, Executor):
            of_dask = "(of a dask client: get_executor())"
            raise TypeError(f"executor expects a concurrent.futures.Executor, got {executor!r} {of_dask}")
        if not on_host(inputs.xp):
            raise TypeError("executor= is for arrays of NumPy; a GPU does not need it")
        diagonals = image_diagonals if needs_images(steps) else vector_diagonals
        wanted.warn(max(diagonals(steps, Examples(x)).error for x in inputs.x))  # a worker's warnings would be lost
    if store is not None:
        if any(o is not None for o in wanted.out):
            raise ValueError("store and out are two places for one result: give one of them")
        return fill(KernelStore(store, of, inputs, wanted.asked, size), block, executor, wanted.progress)
    results = wanted.arrays(inputs, 16 * inputs.dtype.itemsize * size**2)  # eight blocks on their way
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
    with single_threaded_blas():
        return alone(evaluate, x1, x2)


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
    claims = shared(missing, lambda number: store.claims / f"{number}.lock", store.finished)
    with closing(claims) as units, InFlight(units, begin, executor) as flight:
        for (number, claim), future in flight:
            with claim:
                store.keep(number, future.result())
            tell()
    tell()  # what others have computed
    store.clear()
    return store.results()
