"""Compute kernels block by block: in memory with an executor, or in a store on disk that processes share and resume.

A store is a folder (see docs/long-runs.md):

    nngp.npy, ntk.npy   the results: plain .npy files, which numpy.load(..., mmap_mode="r") opens
    record-MARK.txt     a line for each block in the results, with its number and the checksums of its bytes;
                        MARK is a fingerprint of network, inputs and precision
    blocks/             17.lock is a claim on block 17

A block is written to the results and flushed to disk before its line is added to the record.  The same call on the same
store computes the blocks without a matching line; the result has the same bits as that of one uninterrupted process.
Checksums start from the fingerprint's checksum, so a matching line shows that the block belongs to this kernel.  If a
line of the record is damaged, only its block is recomputed.
"""

from __future__ import annotations

import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import replace
from math import ceil, sqrt
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from analytic.images.engine import ImageEngine
from analytic.images.plan import pixel_pairs_followed
from analytic.recursion.requests import FEWEST, SECONDS_PER_PAIR, Examples, Place, Store, Wanted, blocks
from analytic.recursion.state import Program
from analytic.vectors.engine import VectorEngine
from minintk.arrays import Array, Host, on_host, to_host
from minintk.files.locks import Claim, InTurn, in_flight, remove_claims, shared
from minintk.files.reading import Unreadable, map_npy, npy_header, read_lines
from minintk.files.writing import digest, made_folder, remove_parts, space_on_disk, write_atomically, write_bytes
from minintk.progress import forewarned
from minintk.threads import alone, single_threaded_blas

KERNEL_NAMES = ("nngp", "ntk")

Lines = dict[int, set[str]]
"""{block number: its lines without the number}: a space and a checksum per result.  Undamaged blocks keep one line."""


def images_of(place: Place, symmetric: bool) -> list[tuple[slice, slice, Callable[[Host], Host]]]:
    """Return (rows, columns, transformation) of a block and, in a symmetric matrix, those of its mirror image."""
    i, j = place
    return [(i, j, np.asarray)] + [(j, i, np.transpose)] * (symmetric and i != j)


class KernelStore:
    """The kernels of `inputs` in a folder.   asked : (NNGP, NTK), True if computed.   size : number of rows of a block.

    what : everything else that affects the results.   Raises ValueError if the folder has other contents,
    NotADirectoryError if it is a file, and OSError if the disk is full or a read-only folder lacks results.
    """

    def __init__(self, path: str | os.PathLike[str], what: str, inputs: Examples, asked: tuple[bool, bool], size: int):
        self.folder, self.inputs = made_folder(path, "store="), inputs
        self.names = [name for name, wanted in zip(KERNEL_NAMES, asked, strict=True) if wanted]
        self.mark = digest(f"minintk store 5; {what}; {asked}; blocks of {size}", *inputs.x)
        self.record, self.begin = self.folder / f"record-{self.mark}.txt", zlib.crc32(self.mark.encode())
        self.claims = self.folder / "blocks"
        self.places = dict(enumerate(blocks(inputs.shape, size, inputs.symmetric)))
        self._length, self._listed = -1, Lines()
        self.done: Lines = self._lines() or {}
        if self.done and self.done.keys() == self.places.keys() and not self._damaged():
            remove_claims(self.claims.glob("*.lock"))
            return
        self.claims.mkdir(exist_ok=True)
        with Claim(self.folder / "record.lock", wait=True):
            self._open()

    def _open(self) -> None:
        """Create a new store's files, remove temporary files of killed writers, and drop damaged blocks' lines."""
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
        """Write a record with only these lines, unless the current record is identical."""
        text = "".join(f"{n}{sums}\n" for n in sorted(lines) for sums in sorted(lines[n]))
        write_bytes(self.record, text.encode())
        self.done = lines

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _lines(self) -> Lines | None:
        """Return the record's complete lines, or None without one; raise ValueError if a record is another kernel's."""
        try:
            lines = read_lines(self.record, "the record of a store", "delete the store and start again")
        except FileNotFoundError:
            if any(other != self.record for other in self.folder.glob("record-*.txt")):  # self.record may be new
                what = f"store {str(self.folder)!r} holds the kernel of another network, or of other inputs"
                raise ValueError(f"{what}: choose another path, or delete it") from None
            return None
        whole, found = re.compile(rf"(\d{{1,18}})((?: [0-9a-f]{{8}}){{{len(self.names)}}})"), Lines()
        for line in filter(None, map(whole.fullmatch, lines)):
            if int(line[1]) in self.places:
                found.setdefault(int(line[1]), set()).add(line[2])
        return found

    def _reserve(self, name: str) -> None:
        """Create a result file filled with NaN, to reserve the space on disk."""
        nan = np.broadcast_to(np.asarray(np.nan, str(self.inputs.dtype)), self.inputs.shape)

        def write(file: BinaryIO) -> None:
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(nan))
            file.writelines([nan[:1].tobytes()] * len(nan))

        write_atomically(self._file(name), write, nan.nbytes)

    def results(self) -> list[Any]:
        """Return NNGP and NTK as read-only numpy.memmap, or None for a kernel that was not requested."""
        remedy = f"delete the store {str(self.folder)!r} and start again"
        shape, dtype = self.inputs.shape, str(self.inputs.dtype)
        try:
            return [map_npy(self._file(n), shape, dtype, remedy) if n in self.names else None for n in KERNEL_NAMES]
        except FileNotFoundError as error:
            raise Unreadable(f"{error.filename} is missing: {remedy}") from error

    def _sums(self, number: int, results: list[Any]) -> str:
        """Return the checksums of a block's bytes, or "" if the checksums of its mirror image differ."""
        found = {
            checksums((turned(result[rows, columns]) for result in results if result is not None), self.begin)
            for rows, columns, turned in images_of(self.places[number], self.inputs.symmetric)
        }
        return found.pop() if len(found) == 1 else ""

    def _damaged(self) -> list[int]:
        """Return blocks whose bytes, or those of the mirror image, match no line; for the others, keep the match."""
        results = self.results()
        found = {n: self._sums(n, results) for n in self.done}
        self.done |= {n: {sums} for n, sums in found.items() if sums in self.done[n]}
        return [n for n, sums in found.items() if sums not in self.done[n]]

    def finished(self, number: int) -> bool:
        """Return True if a block is in the results and, if another process wrote it, matches its line."""
        if number in self.done:
            return True
        if (length := self.record.stat().st_size) != self._length:
            self._listed, self._length = self._lines() or {}, length
        if (sums := self._listed.pop(number, None)) and self._sums(number, self.results()) in sums:
            self.done[number] = sums
        return number in self.done

    def keep(self, number: int, found: list[Array | None]) -> None:
        """Write a block, which this process claimed and computed, to the results; then add its line to the record."""
        arrays = {name: to_host(a) for name, a in zip(KERNEL_NAMES, found, strict=True) if a is not None}
        with Claim(self.folder / "record.lock", wait=True):
            for name, block in arrays.items():
                self._write(self._file(name), self.places[number], block)
            sums = checksums(arrays.values(), self.begin)
            with space_on_disk(self.record), open(self.record, "ab") as lines:
                lines.write(f"{number}{sums}\n".encode())
                lines.flush()
                os.fsync(lines.fileno())
        self.done[number] = {sums}

    def _write(self, path: Path, place: Place, block: Host) -> None:
        """Write a block to a result file by rows and flush it; a full disk raises OSError, not a signal."""
        with space_on_disk(path), open(path, "r+b") as file:
            npy_header(file)
            start = file.tell()
            for rows, columns, turned in images_of(place, self.inputs.symmetric):
                for row, values in enumerate(np.ascontiguousarray(turned(block)), rows.start):
                    file.seek(start + (row * self.inputs.shape[1] + columns.start) * block.itemsize)
                    file.write(values.data)
            file.flush()
            os.fsync(file.fileno())


def checksums(arrays: Iterable[Host], begin: int = 0) -> str:
    """Return, for each array, a space and the CRC-32 of its bytes as eight hexadecimal digits, started from `begin`."""
    return "".join(f" {zlib.crc32(np.ascontiguousarray(a).data, begin):08x}" for a in arrays)


Engine = VectorEngine | ImageEngine
"""An engine that evaluates a kernel or a block of it."""

Evaluate = Callable[[Engine], "tuple[list[Array | None], float]"]
"""(`Engine.at` of a block) -> ([NNGP, NTK], with None if not requested; an error bound of the quadratures)."""

PIXEL_PAIRS_PER_BLOCK = 2**31
"""Maximum number of pixel pairs in one block of a store or of an executor."""

SHORTEST, LONGEST = 0.1, 2.0
"""Desired range of seconds per block: storing dominates shorter blocks, and longer blocks leave workers idle."""
MOST = 512
"""Maximum number of blocks per side if blocks can be enlarged, to limit the lines of a record."""


def block_size(shape: tuple[int, int], most: int, cost: float, unit: int = 1) -> int:
    """Return the number of rows and columns of a block, a multiple of `unit` that is the same on every machine.

    cost : approximate seconds per entry on one core.   unit : number of rows of a tile, the smallest possible block.

    >>> block_size((4000, 4000), 2048, 4e-8), block_size((200, 200), 2048, 3e-3), block_size((10**5, 10**5), 45, 4e-2)
    (1582, 17, 45)
    >>> block_size((4000, 4000), 2048, 4e-8, 472), block_size((200, 200), 2048, 3e-3, 32)
    (1888, 32)
    """
    size = min(max(shape) / FEWEST, sqrt(LONGEST / cost))
    size = max(size, sqrt(SHORTEST / cost), max(shape) / MOST)
    return unit * max(1, min(ceil(size / unit), most // unit))


def kernels_by_blocks(
    steps: Program, inputs: Examples, wanted: Wanted, unit: int, begin: Callable[[], Engine], evaluate: Evaluate,
    of: str, store: Store, executor: Executor | None,
) -> list[Array | None]:  # fmt: skip
    """Compute NNGP and NTK of x1 (and x2), in the store or in memory, with the same bits as `Engine.run`.

    unit : number of rows of a tile.   begin : prepares all rows if a block has to be computed.   evaluate : computes a
    block on any worker.   of : everything else that affects a block.   Raises TypeError if `executor` is not an
    executor or gets arrays on a GPU, ValueError for both store and out, and the errors of `KernelStore` and `Wanted`.
    """
    followed = pixel_pairs_followed(steps, inputs.example)
    most = max(1, min(2048, int((PIXEL_PAIRS_PER_BLOCK / followed) ** 0.5)))
    size = block_size(inputs.shape, most, SECONDS_PER_PAIR * followed * max(1, len(steps)), unit)
    if executor is not None:
        if not isinstance(executor, Executor):
            of_dask = "(of a dask client: get_executor())"
            raise TypeError(f"executor expects a concurrent.futures.Executor, got {executor!r} {of_dask}")
        if not on_host(inputs.xp):
            raise TypeError("executor= is for arrays of NumPy; a GPU does not need it")

    def engine() -> Engine:
        """Return an engine; without an executor, check that memory also has room for a block."""
        found = begin()
        if executor is None:
            n, m = inputs.shape
            one = inputs.at(slice(0, min(size, n)), slice(max(0, m - size), m))  # has x1 and x2, if there is an x2
            replace(wanted, out=(None, None)).check(one, found.working_memory(one))
        return found

    if store is not None:
        if any(o is not None for o in wanted.out):
            raise ValueError("store and out are two places for one result: give one of them")
        there = KernelStore(store, of, inputs, wanted.asked, size)
        results, error = fill(there, engine, evaluate, executor, wanted.progress)
        wanted.warn(error)
        return results
    results, error = wanted.arrays(inputs, 16 * inputs.dtype.itemsize * size**2), 0.0  # for eight blocks at a time
    places = list(blocks(inputs.shape, size, inputs.symmetric))
    advance = wanted.progress or forewarned("the kernel of {} x {} examples".format(*inputs.shape))
    whole = engine() if places else None
    with closing(in_flight(places, lambda place: begin_block(whole, place, evaluate, executor), executor)) as calls:
        for done, (place, future) in enumerate(calls, 1):
            found, one = future.result()
            error = max(error, one)
            for result, values in zip(results, found, strict=True):
                if result is not None and values is not None:
                    for rows, columns, turned in images_of(place, inputs.symmetric):
                        result[rows, columns] = turned(to_host(values))
            advance(done, len(places))
    wanted.warn(error)
    return results


def on_one_core(evaluate: Evaluate, block: Engine) -> tuple[list[Array | None], float]:
    """Run evaluate(block) on a single thread, because the other cores have their own workers."""
    with single_threaded_blas():
        return alone(evaluate, block)


def begin_block(whole: Any, place: Place, evaluate: Evaluate, executor: Executor | None) -> Future[Any]:
    """Start computing the block at `place` in a worker; without an executor, compute it in this process."""
    if executor is None:
        return InTurn().submit(evaluate, whole.at(place))
    return executor.submit(on_one_core, evaluate, whole.at(place))


def fill(
    store: KernelStore, engine: Callable[[], Engine], evaluate: Evaluate, executor: Executor | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Any], float]:  # fmt: skip
    """Evaluate the blocks that the store lacks; return the results, and the error bound of this call's quadratures."""
    total, error = len(store.places), 0.0
    advance = progress or forewarned(f"the kernel in {store.folder}", len(store.done))
    advance(len(store.done), total)
    missing = sorted(store.places.keys() - store.done.keys())
    whole = engine() if missing else None

    def begin(job: tuple[int, Claim]) -> Future[Any]:
        return begin_block(whole, store.places[job[0]], evaluate, executor)

    claims = shared(missing, lambda number: store.claims / f"{number}.lock", store.finished)
    with closing(claims) as units, closing(in_flight(units, begin, executor)) as calls:
        for (number, claim), future in calls:
            with claim:
                found, one = future.result()
                store.keep(number, found)
            error = max(error, one)
            advance(len(store.done), total)
    advance(len(store.done), total)  # includes blocks that other processes computed
    remove_claims(store.claims.glob("*.lock"))
    return store.results(), error
