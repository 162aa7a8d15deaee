"""Compute kernels of vectors in CUDA, with one thread for each pair of rows.

With CuPy, every operation moves the tile through device memory.  Here a tile's p and tau (`state.Pairs`) are read and
written once per part of `analytic.fast.row_formulas.parts`.  A part can hold all layers.  In C, T is float or double.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.fast.gpu_kernels import Text as Statements
from analytic.fast.row_formulas import TEXTS, Part, Text, parts
from analytic.recursion.state import Block, Program
from minintk.arrays import Array, raw_kernel, to_library

THREADS = 128
"""Number of threads in a block.  Each thread computes one column."""

LINES = 2**16 - 1
"""CUDA's largest number of blocks along the second axis."""

PAIRS = """
extern "C" __global__ void pairs(
    const int *steps, const T *factors, const T *table, int count, int begin, int stride, int i, int j, int n, int m,
    T *p, T *tau
) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= m) return;
    for (int line = blockIdx.y; line < n; line += gridDim.y) {
        const long long at = (long long)line * m + column;
        T d = p[at], theta = TANGENT && !begin ? tau[at] : 0;
        for (int s = 0; s < count; s++) {
            const int *step = steps + 3 * s;
            const T *v = factors + 8 * s;
            const T *one = table + (long long)step[1] * stride + i + line;
            const T *two = table + (long long)step[2] * stride + j + column;
            switch (step[0]) { FORMS }
        }
        p[at] = d;
        if (TANGENT) tau[at] = theta;
    }
}
"""
"""CUDA kernel `pairs`: propagate the pairs of n rows i, i + 1, ... and m rows j, j + 1, ... through `count` steps.

steps : (formula, first line in the table for the left rows, first line for the right rows).   factors : constants of
each step.   table : the rows' numbers, in lines of `stride`.   p, tau : (n, m).   begin : 1 if Theta starts at 0.
"""


def case(dtype: Any, form: tuple[str, int, int], *, tangent: bool) -> str:
    """Write C code that applies one formula to one pair."""
    name, numbers, constants = form
    code = Statements(dtype)
    one, two = (tuple(code.declare(f"{x}[{k} * stride]") for k in range(numbers)) for x in ("one", "two"))
    k = tuple(code.declare(f"v[{k}]") for k in range(constants))
    after, slope = TEXTS[name](code, code.declare("d"), code.declare("theta") if tangent else None, one, two, k)
    return "\n".join([*code.statements, f"d = {code.name(after)};", f"theta = {code.name(slope)};" if tangent else ""])


def source(dtype: Any, forms: tuple[tuple[str, int, int], ...], *, tangent: bool) -> str:
    """Write the CUDA kernel `pairs` for one precision and the given formulas.   tangent : compute the NTK too."""
    T = {"float32": "float", "float64": "double"}[str(np.dtype(dtype))]
    cases = [f"case {k}: {{ {case(dtype, form, tangent=tangent)} }} break;" for k, form in enumerate(forms)]
    return f"typedef {T} T;\n#define TANGENT {int(tangent)}\n{PAIRS.replace('FORMS', ' '.join(cases))}"


@dataclass(frozen=True)
class Launch:
    """Compiled steps on the device, stored as the arguments of the CUDA kernel `pairs`."""

    kernel: Any
    arrays: tuple[Array, ...]
    numbers: tuple[Any, ...]

    @staticmethod
    def of(xp: Any, found: list[Text], count: int, dtype: Any, tangent: bool, begin: bool) -> Launch:
        """Compile the formulas, and copy their values for all `count` rows to the device."""
        keys = [(f"a row's {text.name}", len(text.left), len(text.constants)) for text in found]
        forms = tuple(sorted(set(keys)))
        rows: list[Array] = []
        steps, factors = np.zeros((len(found) + 1, 3), np.int32), np.zeros((len(found) + 1, 8), dtype)
        for k, (text, key) in enumerate(zip(found, keys, strict=True)):
            steps[k] = forms.index(key), len(rows), len(rows) + len(text.left) * (text.right is not text.left)
            factors[k, : len(text.constants)] = text.constants
            rows += text.left if text.right is text.left else (*text.left, *text.right)
        table = xp.empty((len(rows) + 1, count), dtype=dtype)
        for k, values in enumerate(rows):
            table[k] = values
        kernel = raw_kernel(xp, "pairs", source(dtype, forms, tangent=tangent))
        numbers = tuple(map(np.int32, (len(found), begin, count)))
        return Launch(kernel, (to_library(steps, xp), to_library(factors, xp), table), numbers)

    def __call__(self, block: Block) -> None:
        (n, m), tau = block.p.shape, block.p if block.tau is None else block.tau
        place = map(np.int32, (block.i.start, block.j.start, n, m))
        blocks = -(-m // THREADS), min(n, LINES)
        self.kernel(blocks, THREADS, (*self.arrays, *self.numbers, *place, block.p, tau), 0)


def passes(
    xp: Any, program: Program, coefficients: tuple[Any, ...], count: int, dtype: Any, tangent: bool
) -> list[Part]:
    """Return the program as a list of parts, which are compiled or run in CuPy.   count : the total number of rows."""
    return parts(program, coefficients, lambda found, begin: Launch.of(xp, found, count, dtype, tangent, begin))
