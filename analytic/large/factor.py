"""Compute the Cholesky factor of a large kernel block by block, in memory or in a folder that outlives the process.

    L_rj = (K_rj - sum_{i<j} L_ri L_ji') L_jj^-T,      L_rr L_rr' = K_rr - sum_{i<r} L_ri L_ri'

Blocks are computed row by row, in the kernel's precision.  Each block of K is read once; memory holds one panel of K at
a time.  Blocks of L are numbered in the order (0, 0), (1, 0), (1, 1), (2, 0), ...  In a folder, each block is a file

    17-1a2b3c4d.npy    named by the block's number and the checksum of its bytes; written atomically

A process that opens the folder resumes at the first block that is missing or whose bytes do not match its name.  The
blocks' bytes do not depend on the number of threads.
"""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from analytic.large.gram import Gram
from analytic.large.streaming import checksums
from analytic.training.posterior import triangular
from minintk.arrays import Array, Host, scipy_module
from minintk.files.reading import Unreadable, map_npy
from minintk.files.writing import remove_parts, space_on_disk, write_atomically
from minintk.progress import progress_of
from minintk.threads import parallel, single_threaded_blas

PIECE = 512
"""Number of rows of a block that a thread computes at a time."""


class Blocks(list[Host]):
    """The finished blocks of L, in memory or in `folder`.  Raises OSError at once if the disk is too full."""

    def __init__(self, shapes: list[tuple[int, int]], dtype: np.dtype[Any], folder: Path | None) -> None:
        super().__init__()
        self.shapes, self.dtype, self.folder = shapes, dtype, folder
        if folder is None:
            return
        while len(self) < len(shapes) and (block := self._read(folder)) is not None:
            super().append(block)
        need = sum(map(prod, shapes[len(self) :])) * dtype.itemsize
        with space_on_disk(folder / "L", need):
            if need > shutil.disk_usage(folder).free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def append(self, block: Host) -> None:
        """Store the next block; raise OSError if the disk is full."""
        if self.folder is not None:
            path = self.folder / f"{len(self)}-{checksums([block]).strip()}.npy"
            remove_parts(path)
            write_atomically(path, lambda file: np.save(file, block, allow_pickle=False), block.nbytes)
            block = self._mapped(path)
        super().append(block)

    def _mapped(self, path: Path) -> Host:
        return map_npy(path, self.shapes[len(self)], self.dtype, "delete it, and it is computed again")

    def _read(self, folder: Path) -> Host | None:
        """Return the next block of an earlier process, or None if it is missing or damaged; warn if it is damaged."""
        for path in sorted(folder.glob(f"{len(self)}-*.npy")):
            with suppress(Unreadable):
                block = self._mapped(path)
                if path.stem == f"{len(self)}-{checksums([block]).strip()}":
                    return block
            warnings.warn(
                f"{path}: the bytes of this block are not those that were written, so the work continues from there, "
                f"at block {len(self)} of {len(self.shapes)}; is the disk sound?",
                stacklevel=6,
            )
            path.unlink()
        return None


class Factor:
    """Cholesky factor L of `gram`, L L' = K + ridge I.  Raises ValueError, naming the pivot, if L does not exist."""

    def __init__(self, gram: Gram, folder: Path | None, progress: bool) -> None:
        self.rows, self.dtype = gram.blocks, gram.dtype
        self.places = [(r, j) for r in range(len(self.rows)) for j in range(r + 1)]
        sizes = [at.stop - at.start for at in self.rows]
        self.blocks = Blocks([(sizes[r], sizes[j]) for r, j in self.places], self.dtype, folder)
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
        """Return L_rj, which has zeros above the diagonal for r = j."""
        return self.blocks[self._number(r, j)]

    def _row(self, r: int, gram: Gram, advance: Callable[[float], None]) -> None:
        """Compute the missing blocks of row r; `panel` holds K initially and L at the end."""
        panel: Host = np.asarray(gram.panel(r))
        start, rows = self.rows[r].start, panel.shape[0]
        own = np.einsum("ii->i", panel[:, start:])  # a view of the diagonal
        largest = float(np.max(own))
        own += self.dtype.type(gram.ridge)
        for j, columns in enumerate(self.rows[: r + 1]):
            if self._number(r, j) >= len(self.blocks):
                pieces = [slice(i, min(i + PIECE, rows)) for i in range(0, rows, PIECE)]
                parallel(lambda at, j=j: self._reduce(panel, at, r, j), pieces)
                with single_threaded_blas():
                    block = panel[:, columns] if j < r else self._diagonal(panel[:, columns], start, gram, largest)
                self.blocks.append(np.ascontiguousarray(block))
                advance(2 * j + 1)
            panel[:, columns] = self.block(r, j)

    def _reduce(self, panel: Host, at: slice, r: int, j: int) -> None:
        """Compute rows `at` of L_rj or, if j = r, of K_rr - sum_i L_ri L_ri', at and below the diagonal."""
        columns = self.rows[j]
        width = columns.stop - columns.start if j < r else at.stop
        target = panel[at, columns.start : columns.start + width]
        for i, before in enumerate(self.rows[:j]):
            other = panel[:, before] if j == r else self.block(j, i)
            target -= panel[at, before] @ other[:width].T
        if j < r:
            target[...] = triangular(self.block(j, j), target.T).T

    def _diagonal(self, block: Host, start: int, gram: Gram, largest: float) -> Host:
        """Return L_rr, or raise ValueError.   largest : the largest K_ii in block row r, for an error message."""
        (potrf,) = scipy_module(np, "linalg").get_lapack_funcs(("potrf",), (block,))
        L, info = potrf(block, lower=True, clean=True)
        if info:
            row = start + int(info) - 1
            rounding = float(np.finfo(self.dtype).eps) * (gram.n + 100) * largest
            raise ValueError(
                f"the kernel + ridge is not positive definite in {self.dtype}: pivot {row} of {gram.n}, what the "
                f"examples before leave of that one's variance, is not above zero; pass a larger ridge (it is "
                f"{gram.ridge:.3g}; {rounding:.1g} covers rounding), float64 examples, or remove those that coincide"
            )
        return np.asarray(L)

    def solve(self, b: Array) -> Host:
        """Return (L L')^-1 b, (n, C), computed in the factor's precision and converted to float64."""
        size = np.maximum(np.max(np.abs(np.asarray(b)), axis=0), np.finfo(np.float64).tiny)
        z = np.asarray(b / size).astype(self.dtype)
        for r, at in enumerate(self.rows):
            for j, before in enumerate(self.rows[:r]):
                z[at] -= self.block(r, j) @ z[before]
            z[at] = triangular(self.block(r, r), z[at])
        for r, at in reversed(list(enumerate(self.rows))):
            z[at] = triangular(self.block(r, r), z[at], trans=1)
            for j, before in enumerate(self.rows[:r]):
                z[before] -= self.block(r, j).T @ z[at]
        return z * size
