"""Propagate planes of pixel pairs through the leading layers in CUDA (on the host: `analytic.fast.numba_kernels`).

A block of threads computes the pixel pairs of one image pair at one offset, and keeps them in shared memory through
these layers.  Of each pixel, the block reads only precomputed values.  It writes two sums or the entries of a field.
The formulas are those of `analytic.recursion.scalar_forms`.  In the C code, `T` is float or double.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analytic.fast.symbols import Code, Symbol
from analytic.recursion.scalar_forms import FORMS

KINDS = "WINDOW", "FORM", "COPY", "ADD"
"""Kinds of steps, numbered as in `analytic.fast.offsets`."""


class Text(Code):
    """Write C statements in the precision `T`."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.statements: list[str] = []
        self.count = 0

    def name(self, a: Any) -> str:
        """Return a symbol's name, or a constant cast to T, because a plain constant would promote float32 to double."""
        return a.name if isinstance(a, Symbol) else f"(T){float(a)!r}"

    def write(self, operation: str, *arguments: Any) -> Symbol:
        names = [self.name(a) for a in arguments]
        texts = {"where": "{0} ? {1} : {2}", "fmuladd": "{0} * {1} + {2}", "sqrt": "sqrt({0})", "expm1": "expm1({0})"}
        return self.declare(texts.get(operation, f"{{0}} {operation} {{1}}").format(*names), operation)

    def declare(self, text: str, operation: str = "") -> Symbol:
        """Declare a symbol for the value of an expression."""
        symbol = Symbol(self, f"v{self.count}")
        self.count += 1
        self.statements.append(f"const {'int' if operation == '>' else 'T'} {symbol.name} = {text};")
        return symbol

    def expm1(self, x: Any) -> Any:
        return self.write("expm1", x)


def entries(dtype: Any, form: tuple[str, int, int], *, tangent: bool) -> str:
    """Write C code that applies a form to all entries m of a plane; `at` is the index of an entry's pixel values."""
    name, numbers, factors = form
    code = Text(dtype)
    k = tuple(code.declare(f"v[{i}]") for i in range(factors))
    before, code.statements = code.statements, []  # constants are read once, not for each entry
    one, two = (tuple(code.declare(f"values[{x} + at + {i} * plane]") for i in range(numbers)) for x in ("x", "x2"))
    theta = code.declare("theta[m]") if tangent else None
    after, slope = FORMS[name].through(code, code.declare("d[m]"), theta, one, two, k)
    code.statements += [f"d[m] = {after.name};"] + ([f"theta[m] = {slope.name};"] if tangent else [])
    each = ["const unsigned at = m + LINE(m) * (stride - width);", *code.statements]
    return "\n".join([*before, "EACH(m, start, start + n) {", *each, "}"])


# ------------------------------------------------------------------------------------------------- planes of pairs

PLANES = """
#define EACH(m, first, last) _Pragma("unroll 1") for (int m = (int)threadIdx.x + (first); m < (last); m += blockDim.x)
#define LINE(m) (unsigned)((((m) + 1ull) * part) >> 32)  /* m / width */

__device__ T add_up(const T *a, int step, int count) {
    if (count == 3) return a[0] + a[step] + a[2 * step];
    T found = a[0];
    _Pragma("unroll 1") for (int s = 1; s < count; s++) found += a[s * step];
    return found;
}

extern "C" __global__ void planes(
    const int *shape, const int *table, const T *factors, const int *pairs, const T *values, int dy, const int *offsets,
    const double *across, const double *along, double *total, T *field
) {
    extern __shared__ double memory[];
    const int steps = shape[0], H = shape[1], W = shape[2], arrays = shape[3], channels = shape[4], slots = shape[5];
    const int top = shape[6], bottom = shape[7], left = shape[8], right = shape[9], fewer = shape[10];
    const int dx = offsets[blockIdx.y], lines = H - abs(dy);
    const int width = W - abs(dx) + left + right, stride = W + left + right, plane = (top + H + bottom) * stride;
    const int size = (lines + top + bottom) * width, start = top * width;
    const unsigned part = 0xffffffffu / width;
    const int image = arrays * (top + H + bottom), *pair = pairs + 2 * blockIdx.x;
    const unsigned one = (pair[0] * image + (dy < 0 ? -dy : 0)) * stride + (dx < 0 ? -dx : 0);
    const unsigned two = (pair[1] * image + (dy > 0 ? dy : 0)) * stride + (dx > 0 ? dx : 0);
    double *sums = memory;
    T *work = (T *)(memory + 2 * blockDim.x), *V = work + slots * (1 + TANGENT) * size;

    EACH(m, 0, size) {  /* the inputs' D */
        const unsigned at = m + LINE(m) * (stride - width);
        T found = 0;
        _Pragma("unroll 1") for (int c = 0; c < channels; c++) {
            const T g = values[one + at + c * plane] - values[two + at + c * plane];
            found += g * g;
        }
        work[m] = found;
        if (TANGENT) work[size + m] = 0;
    }
    __syncthreads();

    for (int k = 0; k < steps; k++) {
        const int *row = table + 8 * k, kind = row[0], n = (lines - row[3]) * width, end = start + n + bottom * width;
        const T *v = factors + 8 * k;
        const unsigned x = one + row[2] * plane, x2 = two + row[2] * plane;
        T *d = work + row[1] * (1 + TANGENT) * size, *theta = d + size;
        if (kind == WINDOW) {
            const int both = TANGENT && row[2] > 0;  /* Theta is still 0 elsewhere */
            EACH(m, start, start + n) {
                V[m] = add_up(d + m - row[4] * width, width, row[5]);
                if (both) V[size + m] = add_up(theta + m - row[4] * width, width, row[5]);
            }
            __syncthreads();
            EACH(m, start, start + n) {
                d[m] = add_up(V + m - row[6], 1, row[7]);
                if (both) theta[m] = add_up(V + size + m - row[6], 1, row[7]);
            }
        } else if (kind == COPY || kind == ADD) {
            const T *other = work + row[4] * (1 + TANGENT) * size;
            EACH(m, 0, end) {
                d[m] = kind == COPY ? other[m] : d[m] + other[m] * v[0];
                if (TANGENT) theta[m] = kind == COPY ? other[size + m] : theta[m] + other[size + m] * v[0];
            }
        } else {
            switch (row[4]) { FORMS }
            EACH(i, 0, start + bottom * width) {  /* the lines of margins: D is half of the other pixel's variance */
                const unsigned m = i < start ? i : i + n, at = m + LINE(m) * (stride - width) + (row[5] - 1) * plane;
                d[m] = values[x + at] + values[x2 + at];
                if (TANGENT) theta[m] = 0;
            }
        }
        __syncthreads();
    }

    const int store = shape[11], others = shape[12], w = W - fewer, pixels = w * (H - table[8 * steps - 5]);
    const int last = width - left - right - fewer;  /* places of a line that are in the last grid */
    double found = 0, found_theta = 0;
    EACH(m, start, start + (lines - table[8 * steps - 5]) * width) {
        const int line = (int)LINE(m) - top, place = m - (line + top) * width - left;
        if (place >= 0 && place < last && store) {  /* in its place of a field, beside the other x' of this x */
            const int y = line + (dy < 0 ? -dy : 0), x = place + (dx < 0 ? -dx : 0), pixel = y * w + x;
            const long long row = (long long)(blockIdx.x / others) * pixels + pixel;
            const long long at = (row * others + blockIdx.x % others) * pixels + pixel + dy * w + dx;
            field[at] = work[m];
            if (TANGENT) field[at + (long long)pixels * gridDim.x * pixels] = work[size + m];
        } else if (place >= 0 && place < last) {
            const int x = place + (dx < 0 ? -dx : 0);
            const double counts = across[line] * along[x * w + x + dx];
            found += counts * work[m];
            if (TANGENT) found_theta += counts * work[size + m];
        }
    }
    sums[threadIdx.x] = found, sums[blockDim.x + threadIdx.x] = found_theta;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            sums[blockDim.x + threadIdx.x] += sums[blockDim.x + threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        double *out = total + 2 * ((long long)blockIdx.x * gridDim.y + blockIdx.y);
        out[0] = sums[0], out[1] = sums[blockDim.x];
    }
}
"""
"""CUDA kernel `planes`: a block of threads propagates one image pair at offset (dy, dx) through all steps.

shape, table, factors, values : see `analytic.fast.offsets`.   pairs : the images' indices.   offsets : dx of each
block.   across : weights of lines.   along : weights of pairs of places, (w, w).   total : sums of D and Theta.
field : is filled if `shape` requests it.   Between two barriers, no thread reads what another one writes.
"""


def source(dtype: Any, forms: tuple[tuple[str, int, int], ...], *, tangent: bool) -> str:
    """Write the CUDA kernel `planes` for one precision and the given activations.   tangent : compute Theta too."""
    T = {"float32": "float", "float64": "double"}[str(np.dtype(dtype))]
    kinds = "".join(f"#define {name} {k}\n" for k, name in enumerate(KINDS))
    cases = [f"case {k}: {{ {entries(dtype, form, tangent=tangent)} }} break;" for k, form in enumerate(forms)]
    return f"typedef {T} T;\n#define TANGENT {int(tangent)}\n{kinds}{PLANES.replace('FORMS', ' '.join(cases))}"


def block_bytes(size: int, slots: int, threads: int, item: int) -> int:
    """Return how many bytes of shared memory a block needs: slots and window sums of `size` entries, and totals."""
    return 16 * threads + item * (2 * (slots + 1) * size + size % 2 + 64)


def threads_for(size: int) -> int:
    """Return a block's number of threads, halved for small planes so that fewer threads idle in the last pass."""
    return 128 if size > 512 else 64
