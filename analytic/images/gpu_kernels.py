"""Planes of pairs of pixels through all layers in CUDA: `source`, what `analytic.images.numba_kernels` is on a CPU.

A block of threads takes the pairs of pixels at one offset of one pair of images through all layers, in the block's own
memory.  Nothing is read from the GPU's memory on the way but the numbers of the pixels, and nothing is written but two
sums, or a field.  The formulas are those of `analytic.images.activations`, entry by entry; `T` is the precision.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any, NamedTuple

import numpy as np

from analytic.vectors.arcs import arc_series

KINDS = "WINDOW", "KINKED", "ARCSINE", "LINEAR", "COPY", "ADD"
"""Kinds of steps, as `analytic.images.offsets` numbers them."""

OPPOSITE_ROUNDINGS = 8.0
"""If X = U (1 + cos a) is less than so many roundings of A = U (1 - cos a), pixels are opposite, a = pi, X = 0."""


def by_precision(text: Callable[[Any], str]) -> str:
    """C for the value of a text in the precision at hand."""
    return f"(sizeof(T) == 4 ? {text(np.dtype('float32'))} : {text(np.dtype('float64'))})"


def number(value: float) -> str:
    """A constant of the precision at hand: one without (T) would make all of a float32 step double."""
    return f"(T){float(value)!r}"


def horner(which: int, z: str) -> str:
    """C for P (0) or R (1) of `analytic.vectors.arcs` at z."""

    def text(dtype: Any) -> str:
        first, *others = arc_series(dtype)[which]
        found = number(first)
        for c in others:
            found = f"({found} * {z} + {number(c)})"
        return found

    return by_precision(text)


OPPOSITE = by_precision(lambda dtype: number(1 - OPPOSITE_ROUNDINGS * np.finfo(dtype).eps))
TINY = by_precision(lambda dtype: number(np.finfo(dtype).tiny))


class StepSource(NamedTuple):
    """The C source of one step, entry by entry: D' and Theta' from D, Theta and numbers of the pixels."""

    body: str
    d: str
    tangent: str
    theta: str


KINKED = StepSource(
    body=f"""
    T g = half - half2, gap = g * g, U2 = 4 * (half * half2), A = fabs(D - gap);
    A = A < U2 * {OPPOSITE} ? A : U2;  /* 0 for a pixel outside */
    T X = U2 - A, two_k = X - A;
    int wide = A > X;
    T p = (wide ? X : A) / (U2 > {TINY} ? U2 : {TINY}), s = sqrt(p), z = 4 * p - 1;
    """,
    d=f"((gap + A + (wide ? two_k * b2 : 0)) * c + U2 * p * (s * {horner(1, 'z')})) * scale",
    tangent=f"""
    T h = s * {horner(0, "z")};  /* half the angle, or its complement */
    T factor = (c - 2 * (wide ? {number(pi / 2)} - h : h)) * scale;
    """,
    theta="U2 > 0 ? (Theta + two_k * ratio + rest2) * factor : 0",
)
"""alpha x + beta |x|, as `kinked` of `analytic.images.numba_kernels`, with half = sqrt(q / 2 unit), c = pi / (2 b2)."""


def arc(s: str) -> str:
    """C for asin(s), s <= sqrt(1/2)."""
    return f"({s} * {horner(0, f'(4 * {s} * {s} - 1)')})"


PIXEL = "root", "kappa", "sx", "cx", "sy", "cy", "half"
"""What erf needs of a pixel: sqrt q, kappa = (1 + 2q)^-1/2, sine and cosine of x / 2 and of y / 2 = pi / 4 - x / 2, and
q' / 2 = x / pi, where sin x = 2q / (1 + 2q)."""

ARCSINE = StepSource(
    body=f"""
    T g = root - root2, U = root * root2, kk = kappa * kappa2;
    T A = D * unit - g * g / 2;
    A = A > 0 ? A : 0;
    A = A < 2 * U ? A : 2 * U;
    T square = kappa * kappa + kappa2 * kappa2 - kk * kk;  /* 1 - u u' */
    T cos1 = sqrt(square), over = 2 * kk * A;
    T cosz = sqrt(square + 2 * over * (kk * (2 * U - A))), under = cos1 + cosz;
    T hypotenuse = sqrt(over * over + under * under);
    T s = (over > under ? under : over) / (hypotenuse > {TINY} ? hypotenuse : {TINY});
    T half_turn = {arc("s")}, turn = 2 * (over > under ? {number(pi / 2)} - half_turn : half_turn);  /* z_1 - z */
    T e = sx * cx2 - cx * sx2;
    T sines = (sx * cx2 + cx * sx2) * cos1 + (sy * cy2 + cy * sy2) * (2 * U * kk);
    T s2 = e * e / (sines > {TINY} ? sines : {TINY}), mismatch = {arc("s2")};  /* m - z_1 */
    """,
    d=f"kk > 0 ? (turn + mismatch) * {number(2 / pi)} : half + half2",
    tangent=f"T pending = 2 * (U - A) * ratio + rest2 * unit, slope = {number(4 / pi)} * kk / cosz;",
    theta="kk > 0 ? (Theta * unit + pending) * slope : 0",
)
"""erf: with u = 2q / (1 + 2q) = sin x, y = pi/2 - x, and z, z_1 as in `duals.Erf`; kk = sqrt((1 - u) (1 - u')):

    D' = (2/pi) [(z_1 - z) + (m - z_1)],   m = (x + x') / 2       Theta' = (4/pi) kk / cos z  Theta
    tan((z_1 - z)/2) = 2 A kk / (cos z_1 + cos z)                  the smaller leg over the hypotenuse is s
    sin(m - z_1) sin(m + z_1) = sin((x - x')/2)^2                  as sin(z_1)^2 = sin x sin x'
"""

# ------------------------------------------------------------------------------------------------- planes of pairs


def entry(step: StepSource, pixel: tuple[str, ...]) -> str:
    """C for the step of entry m of a plane; at: the place of its pixels' numbers, which are 0 outside the image."""
    loads = "".join(
        f"const T {a} = values[x + at + {k} * plane], {a}2 = values[x2 + at + {k} * plane];"
        for k, a in enumerate(pixel)
    )
    return f"""{{
        const unsigned at = m + LINE(m) * (stride - width);
        const T D = d[m];
        {loads} {step.body}
        if (TANGENT) {{ const T Theta = theta[m]; {step.tangent} theta[m] = {step.theta}; }}
        d[m] = {step.d};
    }}"""


PLANES = f"""
#define EACH(m, first, last) _Pragma("unroll 1") for (int m = (int)threadIdx.x + (first); m < (last); m += blockDim.x)
#define LINE(m) (unsigned)((((m) + 1ull) * part) >> 32)  /* m / width */

__device__ T add_up(const T *a, int step, int count) {{
    if (count == 3) return a[0] + a[step] + a[2 * step];
    T found = a[0];
    _Pragma("unroll 1") for (int s = 1; s < count; s++) found += a[s * step];
    return found;
}}

extern "C" __global__ void planes(
    const int *shape, const int *table, const T *factors, const int *pairs, const T *values, int dy, double *total,
    T *field
) {{
    extern __shared__ double memory[];
    const int steps = shape[0], H = shape[1], W = shape[2], arrays = shape[3], channels = shape[4], slots = shape[5];
    const int top = shape[6], bottom = shape[7], left = shape[8], right = shape[9], fewer = shape[10];
    const int dx = (int)blockIdx.y - (int)(gridDim.y / 2), lines = H - abs(dy);
    const int width = W - abs(dx) + left + right, stride = W + left + right, plane = (top + H + bottom) * stride;
    const int size = (lines + top + bottom) * width, start = top * width;
    const unsigned part = 0xffffffffu / width;
    const int image = arrays * (top + H + bottom), *pair = pairs + 2 * blockIdx.x;
    const unsigned one = (pair[0] * image + (dy < 0 ? -dy : 0)) * stride + (dx < 0 ? -dx : 0);
    const unsigned two = (pair[1] * image + (dy > 0 ? dy : 0)) * stride + (dx > 0 ? dx : 0);
    double *sums = memory;
    T *work = (T *)(memory + 2 * blockDim.x), *V = work + slots * (1 + TANGENT) * size;

    EACH(m, 0, size) {{  /* the inputs' D */
        const unsigned at = m + LINE(m) * (stride - width);
        T found = 0;
        _Pragma("unroll 1") for (int c = 0; c < channels; c++) {{
            const T g = values[one + at + c * plane] - values[two + at + c * plane];
            found += g * g;
        }}
        work[m] = found;
        if (TANGENT) work[size + m] = 0;
    }}
    __syncthreads();

    for (int k = 0; k < steps; k++) {{
        const int *row = table + 8 * k, kind = row[0], n = (lines - row[3]) * width, end = start + n + bottom * width;
        const T *v = factors + 5 * k;
        unsigned x = one + row[2] * plane, x2 = two + row[2] * plane;
        const T c = v[0], scale = v[1], unit = v[1], ratio = v[2], rest2 = v[3], outside = v[4];
        T *d = work + row[1] * (1 + TANGENT) * size, *theta = d + size;
        if (kind == WINDOW) {{
            const int both = TANGENT && row[2] > 0;  /* Theta is still 0 elsewhere */
            EACH(m, start, start + n) {{
                V[m] = add_up(d + m - row[4] * width, width, row[5]);
                if (both) V[size + m] = add_up(theta + m - row[4] * width, width, row[5]);
            }}
            __syncthreads();
            EACH(m, start, start + n) {{
                d[m] = add_up(V + m - row[6], 1, row[7]);
                if (both) theta[m] = add_up(V + size + m - row[6], 1, row[7]);
            }}
        }} else if (kind == COPY || kind == ADD) {{
            const T *other = work + row[4] * (1 + TANGENT) * size;
            EACH(m, 0, end) {{
                d[m] = kind == COPY ? other[m] : d[m] + other[m] * c;
                if (TANGENT) theta[m] = kind == COPY ? other[size + m] : theta[m] + other[size + m] * c;
            }}
        }} else {{
            if (kind == KINKED) {{
                const T b2 = {number(pi / 2)} / c;
                EACH(m, start, start + n) {entry(KINKED, ("half",))}
            }} else if (kind == ARCSINE) {{
                EACH(m, start, start + n) {entry(ARCSINE, PIXEL)}
                x += {len(PIXEL) - 1} * plane, x2 += {len(PIXEL) - 1} * plane;
            }} else {{  /* LINEAR: Theta += ratio K + rest, and what is outside the image is 0 again */
                EACH(m, start, start + n) {{
                    const unsigned at = m + LINE(m) * (stride - width);
                    const T half = values[x + at], half2 = values[x2 + at], D = d[m];
                    const int both = half > 0 && half2 > 0;
                    if (TANGENT) theta[m] = both ? theta[m] + 2 * (half + half2 - D) * ratio + rest2 : 0;
                    d[m] = both ? D : half + half2;
                }}
            }}
            EACH(i, 0, start + bottom * width) {{  /* the lines of margins: D is q / 2 of the pixel that is inside */
                const unsigned m = i < start ? i : i + n, at = m + LINE(m) * (stride - width);
                const T a = values[x + at], b = values[x2 + at];
                d[m] = (kind == KINKED ? a * a + b * b : a + b) * outside;
                if (TANGENT) theta[m] = 0;
            }}
        }}
        __syncthreads();
    }}

    const int store = shape[11], w = W - fewer, pixels = w * (H - table[8 * steps - 5]);
    const int last = width - left - right - fewer;  /* places of a line that are in the last grid */
    double found = 0, found_theta = 0;
    EACH(m, start, start + (lines - table[8 * steps - 5]) * width) {{
        const int line = (int)LINE(m) - top, place = m - (line + top) * width - left;
        if (place >= 0 && place < last && store) {{  /* in its place of a field, beside the other x' of this x */
            const int y = line + (dy < 0 ? -dy : 0), x = place + (dx < 0 ? -dx : 0), pixel = y * w + x;
            const long long at = ((long long)pixel * gridDim.x + blockIdx.x) * pixels + pixel + dy * w + dx;
            field[at] = work[m];
            if (TANGENT) field[at + (long long)pixels * gridDim.x * pixels] = work[size + m];
        }} else if (place >= 0 && place < last) {{
            found += work[m];
            if (TANGENT) found_theta += work[size + m];
        }}
    }}
    sums[threadIdx.x] = found, sums[blockDim.x + threadIdx.x] = found_theta;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {{
        __syncthreads();
        if (threadIdx.x < half) {{
            sums[threadIdx.x] += sums[threadIdx.x + half];
            sums[blockDim.x + threadIdx.x] += sums[blockDim.x + threadIdx.x + half];
        }}
    }}
    if (threadIdx.x == 0) {{
        double *out = total + 2 * ((long long)blockIdx.x * gridDim.y + blockIdx.y);
        out[0] = sums[0], out[1] = sums[blockDim.x];
    }}
}}
"""
"""All layers on the plane at the offset (dy, dx) of a pair of images, by a block of threads; its sums of D and Theta.

shape, table, factors, values : see `analytic.images.offsets`.   pairs : numbers of the images.   field : gets the plane
itself, if asked for in `shape`.   A phase between two barriers reads no entry that another thread writes.
"""


def source(dtype: Any, *, tangent: bool) -> str:
    """The kernel `planes` in a precision, for D and Theta or for D alone."""
    T = {"float32": "float", "float64": "double"}[str(np.dtype(dtype))]
    kinds = "".join(f"#define {name} {k}\n" for k, name in enumerate(KINDS))
    return f"typedef {T} T;\n#define TANGENT {int(tangent)}\n{kinds}{PLANES}"


def block_bytes(size: int, slots: int, threads: int, item: int) -> int:
    """Bytes of a block's own memory: planes of `size` entries, for all slots and for sums over windows, and totals."""
    return 16 * threads + item * (2 * (slots + 1) * size + size % 2 + 64)


def threads_for(size: int) -> int:
    """Threads of a block: few enough that not many of them are idle in the last round through a plane."""
    return 128 if size > 512 else 64
