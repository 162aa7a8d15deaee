"""Kernels that survive killed processes and are shared by many: results on disk, block by block.

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
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from analytic.vectors.results import Examples, Place, blocks
from minintk.arrays import Array, to_host
from minintk.files.claims import Claim, remove_claims
from minintk.files.reading import Unreadable, map_npy, npy_header, read_lines
from minintk.files.writing import digest, made_folder, remove_parts, space_on_disk, write_atomically, write_bytes

KERNEL_NAMES = ("nngp", "ntk")

Host = np.ndarray[Any, Any]
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

    def claim_of(self, number: int) -> Path:
        """Where the claim on a block is."""
        return self.claims / f"{number}.lock"

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
            start = npy_header(file).start
            for rows, columns, turned in images_of(place, self.inputs.symmetric):
                for row, values in enumerate(np.ascontiguousarray(turned(block)), rows.start):
                    file.seek(start + (row * self.inputs.shape[1] + columns.start) * block.itemsize)
                    file.write(values.data)
            file.flush()
            os.fsync(file.fileno())


def checksums(arrays: Iterable[Host]) -> str:
    """A space and the CRC-32 of the bytes, eight hexadecimal digits, for each array."""
    return "".join(f" {zlib.crc32(np.ascontiguousarray(a).data):08x}" for a in arrays)
