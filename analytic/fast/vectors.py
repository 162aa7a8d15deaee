"""Compute kernels of vectors with Numba (`pip install minintk[fast]`): a line of a tile stays in cache for all layers.

NumPy moves a tile through the cache once per operation.  Here, a line of a few hundred pairs passes through all layers
while it is in the first-level cache.  Every step is a formula of `analytic.fast.row_formulas`, which is compiled once
for all programs and called by its address.  The formulas read the rows' values from one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.fast import row_formulas
from analytic.fast.compiled import TEXTS, call, compiled, steps_of_form
from analytic.fast.llvm import VECTOR
from analytic.fast.row_formulas import Part, Text, parts
from analytic.recursion.state import Block, Program
from minintk.arrays import Array

TEXTS |= row_formulas.TEXTS


@compiled
def follow(steps: Any, constants: Any, table: Any, p: Any, tau: Any, i: Any, j: Any, begin: Any, work: Any) -> None:
    """Apply the steps to the pairs of rows i, i + 1, ... with rows j, j + 1, ...

    steps : (address, first line in the table for the left rows, first line for the right rows).   tau : empty if not
    requested.   begin : 1 if tau starts at 0.   work : buffers for a line of p and of tau, padded to whole vectors.
    """
    m, tangent = p.shape[1], tau.shape[0] > 0
    x, y = work[0], work[1]
    for line in range(p.shape[0]):
        for n in range(m):
            x[n] = p[line, n]
        for n in range(m if tangent else 0):
            y[n] = 0 if begin > 0 else tau[line, n]
        for s in range(steps.shape[0]):
            one, two = table[steps[s, 1], i + line :], table[steps[s, 2], j:]
            call(steps[s, 0], (x.ctypes.data, y.ctypes.data, one.ctypes.data, two.ctypes.data, table.shape[1], m,
                               constants[s].ctypes.data))  # fmt: skip
        for n in range(m):
            p[line, n] = x[n]
        for n in range(m if tangent else 0):
            tau[line, n] = y[n]


@dataclass(frozen=True)
class Lines:
    """Compiled steps.   steps, constants, table, begin : as in `follow`."""

    steps: Array
    constants: Array
    table: Array
    begin: bool

    @staticmethod
    def of(found: list[Text], count: int, dtype: Any, tangent: bool, begin: bool) -> Lines:
        """Compile the formulas, and store their values for all `count` rows in the table."""
        rows: list[Array] = []

        def place(numbers: tuple[Array, ...]) -> int:
            rows.extend(numbers)
            return len(rows) - len(numbers)

        steps, constants = np.zeros((len(found), 3), np.int64), np.zeros((len(found), 8), dtype)
        for k, text in enumerate(found):
            left = place(text.left)
            right = left if text.right is text.left else place(text.right)
            at = steps_of_form(f"a row's {text.name}", dtype, tangent, len(text.left), len(text.constants), row=True)
            steps[k], constants[k, : len(text.constants)] = (at, left, right), text.constants
        table = np.zeros((max(1, len(rows)), count + VECTOR), dtype)
        for line, numbers in zip(table, rows, strict=False):
            line[:count] = numbers
        return Lines(steps, constants, table, begin)

    def __call__(self, block: Block) -> None:
        p, tau = block.p, block.tau
        work = np.full((2, p.shape[1] + VECTOR), 0.5, p.dtype)
        none = np.empty((0, p.shape[1]), p.dtype)
        args = self.steps, self.constants, self.table, p, none if tau is None else tau
        follow(*args, block.i.start, block.j.start, int(self.begin), work)


def passes(program: Program, coefficients: tuple[Any, ...], count: int, dtype: Any, tangent: bool) -> list[Part]:
    """Return the program as a list of parts, which are compiled or run in NumPy.   count : the total number of rows."""
    return parts(program, coefficients, lambda found, begin: Lines.of(found, count, np.dtype(dtype), tangent, begin))
