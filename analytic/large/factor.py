"""The Cholesky factor of a large kernel, block by block, in memory or in a folder that outlives the process.

    L_rj = (K_rj - sum_{i<j} L_ri L_ji') L_jj^-T,      L_rr L_rr' = K_rr - sum_{i<r} L_ri L_ri'

row by row of blocks, in the kernel's own precision.  Each block of K is read once and each of L is written once, from
the front of a file to its end; what is held in memory is one panel of K.  A folder contains

    factor.npy    the blocks (0, 0), (1, 0), (1, 1), (2, 0), ... of L, each row by row
    factor.txt    a fingerprint, then a line for each finished block: its number, the checksum of its bytes

A line is written after the bytes of its block have been flushed to disk.  Whoever opens the folder compares the blocks
with their lines and continues after the last one that is whole.  The bytes do not depend on the number of threads.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from analytic.large.gram import Gram
from analytic.streaming import checksums
from minintk.arrays import Array, scipy_module
from minintk.fast.threads import parallel, single_threaded_blas
from minintk.files.reading import map_npy, npy_header, read_lines
from minintk.files.writing import space_on_disk, write_atomically, write_bytes
from minintk.progress import progress_of

Host = np.ndarray[Any, Any]

PIECE = 512
"""Rows that a thread takes at a time through all products of a block."""


class Blocks:
    """The finished blocks of L: in memory, or in `folder`, where those of an earlier process are found again."""

    def __init__(self, shapes: list[tuple[int, int]], dtype: np.dtype[Any], folder: Path | None, mark: str) -> None:
        self.shapes, self.dtype, self.folder, self.mark = shapes, dtype, folder, mark
        self.starts = np.cumsum([0] + [m * n for m, n in shapes]).tolist()
        self._found: list[Host] = []
        if folder is not None:
            self.path, self.record = folder / "factor.npy", folder / "factor.txt"
            if not (self.record.exists() and self.path.exists()):
                self._reserve()
                write_bytes(self.record, f"{mark}\n".encode())
            self._map = map_npy(self.path, (self.starts[-1],), dtype, f"delete {str(folder)!r} and start again")
            self._open(self.record)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: int) -> Host:
        return self._found[number]

    def append(self, block: Host) -> None:
        """Keep the next block; OSError on a full disk."""
        number = len(self)
        if self.folder is None:
            self._found.append(block)
            return
        with space_on_disk(self.path), open(self.path, "r+b") as file:
            file.seek(npy_header(file).start + self.starts[number] * self.dtype.itemsize)
            file.write(np.ascontiguousarray(block).data)
            _flush(file)
        with space_on_disk(self.record), open(self.record, "ab") as lines:
            lines.write(f"{number}{checksums([block])}\n".encode())
            _flush(lines)
        self._found.append(self._mapped(number))

    def _mapped(self, number: int) -> Host:
        return self._map[self.starts[number] : self.starts[number + 1]].reshape(self.shapes[number])

    def _reserve(self) -> None:
        """The file in its full size, so that a full disk is noticed before the work."""
        need = self.starts[-1] * self.dtype.itemsize
        descr, shape = np.lib.format.dtype_to_descr(self.dtype), (self.starts[-1],)

        def fill(file: Any) -> None:
            np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
            file.flush()
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), file.tell(), need)
            else:
                file.truncate(file.tell() + need)

        write_atomically(self.path, fill, need)

    def _open(self, record: Path) -> None:
        """The blocks that are whole, and a record of just these; ValueError for the record of another kernel."""
        first, *lines = read_lines(record, "the record of a factor", "delete its folder and start again") or [""]
        if first != self.mark:
            raise ValueError(f"{record} belongs to another kernel, or ridge: delete its folder, or take another store")
        good: list[str] = []
        for number, line in enumerate(lines[: len(self.shapes)]):
            block = self._mapped(number)
            if line != f"{number}{checksums([block])}":
                warnings.warn(
                    f"{record}: line {number + 2} and the bytes of that block differ, so the work continues from "
                    f"there, at block {number} of {len(self.shapes)}; is the disk sound?",
                    stacklevel=6,
                )
                break
            good.append(line)
            self._found.append(block)
        write_bytes(record, "".join(f"{line}\n" for line in (self.mark, *good)).encode())


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


class Factor:
    """L with L L' = K + ridge I, of the blocks of `gram`; ValueError, which names the pivot, where there is none."""

    def __init__(self, gram: Gram, folder: Path | None, mark: str, progress: bool) -> None:
        self.rows, self.dtype = gram.blocks, gram.dtype
        self.places = [(r, j) for r in range(len(self.rows)) for j in range(r + 1)]
        sizes = [at.stop - at.start for at in self.rows]
        self.blocks = Blocks([(sizes[r], sizes[j]) for r, j in self.places], self.dtype, folder, mark)
        costs = [2 * j + 1 for _, j in self.places]
        done = sum(costs[: len(self.blocks)]) / sum(costs)
        name = f"Cholesky, {done:.0%} found" if done else "Cholesky"
        with progress_of(name, sum(costs[len(self.blocks) :]), progress) as advance:
            for r in range(len(self.rows)):
                if len(self.blocks) <= self._number(r, r):
                    self._row(r, gram, advance)

    def _number(self, r: int, j: int) -> int:
        return r * (r + 1) // 2 + j

    def block(self, r: int, j: int) -> Host:
        """L_rj; where r = j, zeros above its diagonal."""
        return self.blocks[self._number(r, j)]

    def _row(self, r: int, gram: Gram, advance: Callable[[float], None]) -> None:
        """The blocks of row r that are missing; `panel`, K at first, becomes L."""
        panel: Host = np.asarray(gram.panel(r))
        start, rows = self.rows[r].start, panel.shape[0]
        panel[np.arange(rows), start + np.arange(rows)] += self.dtype.type(gram.ridge)
        for j, columns in enumerate(self.rows[: r + 1]):
            if self._number(r, j) >= len(self.blocks):
                pieces = [slice(i, min(i + PIECE, rows)) for i in range(0, rows, PIECE)]
                parallel(lambda at, j=j: self._reduce(panel, at, r, j), pieces)
                with single_threaded_blas():
                    block = panel[:, columns] if j < r else self._diagonal(panel[:, columns], start, gram)
                self.blocks.append(np.ascontiguousarray(block))
                advance(2 * j + 1)
            panel[:, columns] = self.block(r, j)

    def _reduce(self, panel: Host, at: slice, r: int, j: int) -> None:
        """L_rj of the rows `at`; for j = r, K_rr less what the blocks before leave of it, below the diagonal."""
        columns = self.rows[j]
        width = columns.stop - columns.start if j < r else at.stop
        target = panel[at, columns.start : columns.start + width]
        for i, before in enumerate(self.rows[:j]):
            other = panel[:, before] if j == r else self.block(j, i)
            target -= panel[at, before] @ other[:width].T
        if j < r:
            target[...] = _triangular(self.block(j, j), target.T).T

    def _diagonal(self, block: Host, start: int, gram: Gram) -> Host:
        (potrf,) = scipy_module(np, "linalg").get_lapack_funcs(("potrf",), (block,))
        L, info = potrf(block, lower=True, clean=True)
        if info:
            row = start + int(info) - 1
            size = float(np.max(np.asarray(gram.diagonal())))
            rounding = float(np.finfo(self.dtype).eps) * (gram.n + 100) * size
            raise ValueError(
                f"the kernel + ridge is not positive definite in {self.dtype}: pivot {row} of {gram.n}, what the "
                f"examples before leave of that one's variance, is not above zero; pass a larger ridge (it is "
                f"{gram.ridge:.3g}; {rounding:.1g} covers rounding), float64 examples, or remove those that coincide"
            )
        return np.asarray(L)

    def solve(self, b: Array) -> Host:
        """(L L')^-1 b in the factor's precision, (n, C); in float64 outside."""
        size = np.maximum(np.max(np.abs(np.asarray(b)), axis=0), np.finfo(np.float64).tiny)
        z = np.asarray(b / size).astype(self.dtype)
        for r, at in enumerate(self.rows):
            for j, before in enumerate(self.rows[:r]):
                z[at] -= self.block(r, j) @ z[before]
            z[at] = _triangular(self.block(r, r), z[at])
        for r, at in reversed(list(enumerate(self.rows))):
            z[at] = _triangular(self.block(r, r), z[at], trans=1)
            for j, before in enumerate(self.rows[:r]):
                z[before] -= self.block(r, j).T @ z[at]
        return z * size


def _triangular(L: Host, b: Host, trans: int = 0) -> Host:
    """L^-1 b, or L'^-1 b with trans=1."""
    solve = scipy_module(np, "linalg").solve_triangular
    return np.asarray(solve(L, b, lower=True, trans=trans, check_finite=False))
