"""Planes of pairs of pixels at one offset through all layers, by Numba (`pip install minintk[fast]`).

`follow` takes what `analytic.images.offsets` says in numbers: the steps, and for every step the numbers of the pixels.
It is compiled once for each precision, and does not know networks.  A plane is one line of memory, line of pixels after
line of pixels, each of `width` pairs, so that every loop below runs over neighbours and becomes vector instructions.
"""

from __future__ import annotations

from functools import cache
from math import pi
from typing import Any

import numpy as np

from analytic.images.compiled import apart, compiled, jit, polynomial, where
from analytic.images.gpu_kernels import OPPOSITE_ROUNDINGS
from analytic.vectors.arcs import arc_series

WINDOW, KINKED, ARCSINE, LINEAR, COPY, ADD = range(6)
"""The steps; their numbers stand in `analytic.images.offsets.Steps`."""


@cache
def constants(dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """(1, pi / 2, 2 / pi, the A / 2U of opposite pixels, a divisor in place of 0), P and R, in that precision."""
    info = np.finfo(dtype)
    numbers = 1, pi / 2, 2 / pi, 1 - OPPOSITE_ROUNDINGS * info.eps, info.tiny
    return tuple(info.dtype.type(v) for v in numbers), *arc_series(dtype)


# ------------------------------------------------------------------------------------------------------- the steps


@apart
def kinked(D: Any, T: Any, half: Any, half2: Any, c: Any, scale: Any, ratio: Any, rest2: Any, k: Any) -> None:
    """alpha x + beta |x|, as `apply` of Homogeneous in `analytic.images.activations`; half is 0 outside the image.

    With p = min(A, X) / 2U = sin(a/2)^2, or that of pi - a:  a K - U sin a = 2U p sqrt(p) R(p) [+ pi K].  D is put
    together anew from A, as snapped to 2U, so that |x| of opposite pixels has D = 0 exactly, b2 2K being -2U.
    """
    (one, half_pi, _, opposite, tiny), P, R = k
    zero, b2 = one - one, half_pi / c
    for n in range(D.size):
        gap, product = half[n] - half2[n], half[n] * half2[n]
        gap *= gap
        U2 = (product + product) + (product + product)
        A = abs(D[n] - gap)
        A = where(U2 * opposite > A, A, U2)  # 0 for a pixel outside
        X = U2 - A
        p = where(A > X, X, A) / where(tiny < U2, U2, tiny)
        s, z = np.sqrt(p), (p + p) + (p + p) - one
        two_k = X - A
        D[n] = ((gap + A + where(A > X, two_k * b2, zero)) * c + U2 * p * (s * polynomial(z, R))) * scale
        if T is not None:
            h = s * polynomial(z, P)
            h = where(A > X, half_pi - h, h)
            T[n] = where(zero < U2, (T[n] + two_k * ratio + rest2) * ((c - (h + h)) * scale), zero)


@jit
def seven(values: Any, e: Any, at: Any, n: Any) -> Any:
    """Rows e ... e + 6 of the values, as arrays that the compiler knows to be contiguous."""
    last = at + n
    return (
        values[e, at:last], values[e + 1, at:last], values[e + 2, at:last], values[e + 3, at:last],
        values[e + 4, at:last], values[e + 5, at:last], values[e + 6, at:last],
    )  # fmt: skip


@apart
def arcsine(D: Any, T: Any, one: Any, two: Any, unit: Any, ratio: Any, rest2: Any, k: Any) -> None:
    """erf, as in `analytic.images.gpu_kernels`; one, two: its PIXEL of x and of x', 0 outside.

    (z_1 - z) / 2 = asin(s) or pi / 2 - asin(s), s the smaller leg over the hypotenuse; sines of sums from half angles.
    """
    (unity, half_pi, two_over_pi, _, tiny), P, _ = k
    zero = unity - unity
    root, kappa, sx, cx, sy, cy, half = one
    root2, kappa2, sx2, cx2, sy2, cy2, half2 = two
    for n in range(D.size):
        gap, U, kk = root[n] - root2[n], root[n] * root2[n], kappa[n] * kappa2[n]
        A = D[n] * unit - gap * gap / (unity + unity)
        A = where(zero < A, A, zero)
        A = where(A > U + U, U + U, A)
        square = kappa[n] * kappa[n] + kappa2[n] * kappa2[n] - kk * kk
        cos1, over = np.sqrt(square), (kk + kk) * A
        cosz = np.sqrt(square + (over + over) * (kk * (U + U - A)))
        under = cos1 + cosz
        hypotenuse = np.sqrt(over * over + under * under)
        s = where(over > under, under, over) / where(hypotenuse > tiny, hypotenuse, tiny)
        z = s * s
        h = s * polynomial((z + z) + (z + z) - unity, P)
        turn = where(over > under, half_pi - h, h)
        e = sx[n] * cx2[n] - cx[n] * sx2[n]
        sines = sx[n] * cx2[n] + cx[n] * sx2[n], sy[n] * cy2[n] + cy[n] * sy2[n]
        over = sines[0] * cos1 + sines[1] * ((U + U) * kk)
        s = e * e / where(over > tiny, over, tiny)
        z = s * s
        mismatch = s * polynomial((z + z) + (z + z) - unity, P)
        D[n] = where(kk > zero, (turn + turn + mismatch) * two_over_pi, half[n] + half2[n])
        slope = (two_over_pi + two_over_pi) * kk / where(cosz > tiny, cosz, tiny)
        T[n] = (T[n] * unit + ((U - A) + (U - A)) * ratio + rest2 * unit) * slope


@apart
def linear(D: Any, T: Any, half: Any, half2: Any, ratio: Any, rest2: Any) -> None:
    """Theta += ratio K + rest, and what is outside the image is 0 again; half = q / 2."""
    zero = ratio - ratio
    for n in range(D.size):
        both = half[n] + half2[n]
        inside = where(half[n] > zero, half2[n], half[n]) > zero
        d = where(inside, D[n], both)
        two_k = (both - d) + (both - d)
        D[n], T[n] = d, where(inside, T[n] + two_k * ratio + rest2, zero)


@apart
def margin(D: Any, T: Any, v: Any, v2: Any, factor: Any, squared: Any) -> None:
    """Pairs of which one pixel is outside: D is q / 2 of the other."""
    for n in range(D.size):
        D[n], T[n] = (v[n] * v[n] + v2[n] * v2[n] if squared else v[n] + v2[n]) * factor, factor - factor


@apart
def add_up(source: Any, out: Any, first: Any, step: Any, count: Any) -> None:
    """out[k] = sum_s source[first + s step + k], s = 0 ... count - 1."""
    n, done = out.size, min(count, 3)
    a = source[first : first + n]
    b, c = source[first + step : first + step + n], source[first + 2 * step : first + 2 * step + n]
    if done == 1:
        for k in range(n):
            out[k] = a[k]
    elif done == 2:
        for k in range(n):
            out[k] = a[k] + b[k]
    else:
        for k in range(n):
            out[k] = a[k] + b[k] + c[k]
    for s in range(done, count):
        a = source[first + s * step : first + s * step + n]
        for k in range(n):
            out[k] += a[k]


@jit
def plane(steps: Any, numbers: Any, k: Any, lefts: Any, rights: Any, y: Any, y2: Any, lines: Any, work: Any,
          start: Any, width: Any, shape: Any, tangent: Any) -> None:  # fmt: skip
    """One plane through all steps; from line y of x and line y2 of x' on, `lines` lines at first."""
    channels, top, bottom = shape
    V, low = work[-1], start - top * width
    n = (lines + top + bottom) * width
    D, T = work[0, low : low + n], work[1, low : low + n]
    for c in range(channels):
        one, two = lefts[c, y * width : y * width + n], rights[c, y2 * width : y2 * width + n]
        for i in range(n):
            g = one[i] - two[i]
            D[i] = g * g if c == 0 else D[i] + g * g
    for i in range(n if tangent else 0):
        T[i] = 0
    for s in range(steps.shape[0]):
        kind, slot, e, fewer, a, b = steps[s, 0], 2 * steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 4], steps[s, 5]
        v, n = numbers[s], (lines - fewer) * width
        high = start + n + bottom * width
        if kind == WINDOW:
            for i in range(2 if tangent and e > 0 else 1):
                if b * steps[s, 7] > 1:
                    add_up(work[slot + i], V[start : start + n], start - a * width, width, b)
                    add_up(V, work[slot + i, start : start + n], start - steps[s, 6], 1, steps[s, 7])
        elif kind in (COPY, ADD):
            for i in range(2 if tangent else 1):
                mine, other = work[slot + i, low:high], work[2 * a + i, low:high]
                for m in range(mine.size):
                    mine[m] = other[m] if kind == COPY else mine[m] + other[m] * v[0]
        else:
            at, at2 = (y + top) * width, (y2 + top) * width
            one, two = lefts[e, at : at + n], rights[e, at2 : at2 + n]
            D, T = work[slot, start : start + n], work[slot + 1, start : start + n]
            if kind == KINKED and tangent:
                kinked(D, T, one, two, v[0], v[1], v[2], v[3], k)
            elif kind == KINKED:
                kinked(D, None, one, two, v[0], v[1], v[2], v[3], k)
            elif kind == ARCSINE:
                arcsine(D, T, seven(lefts, e, at, n), seven(rights, e, at2, n), v[1], v[2], v[3], k)
                e += 6
            else:
                linear(D, T, one, two, v[2], v[3])
            for first, last in ((low - start, 0), (n, n + bottom * width)):
                one, two = lefts[e, at + first : at + last], rights[e, at2 + first : at2 + last]
                D, T = work[slot, start + first : start + last], work[slot + 1, start + first : start + last]
                margin(D, T, one, two, v[4], kind == KINKED)


@jit
def lift(values: Any, first: Any, others: Any, parts: Any, column: Any, out: Any) -> None:
    """The numbers of the pixels where planes need them, (steps, lines width), and 0 beyond the last part of a line.

    others : 1 if parts are of image `first` and those beside it, 0 if all are of `first`.   column : of their pixels.
    """
    N, steps, lines, _ = values.shape
    width, last = out.shape[1] // lines, parts.shape[0] - 1
    for s in range(steps):
        for line in range(lines):
            to = out[s, line * width : (line + 1) * width]
            for part in range(last + 1):
                at, size, pixel = parts[part, 1], parts[part, 2], parts[part, column]
                one = values[min(first + others * parts[part, 0], N - 1), s, line, pixel : pixel + size]
                for k in range(size):
                    to[at + k] = one[k]
            for k in range(parts[last, 1] + parts[last, 2], width):
                to[k] = 0


@jit
def store(work: Any, start: Any, width: Any, parts: Any, lines: Any, first: Any, field: Any, tangent: Any) -> None:
    """The numbers of a plane in their places of a field.   lines : (y, y2, how many, h)."""
    y, y2, count, h = lines
    w = field.shape[1] // h
    for what in range(2 if tangent else 1):
        for part in range(parts.shape[0]):
            image, x2, x = first + parts[part, 0], parts[part, 3], parts[part, 4]
            for line in range(count if image < field.shape[2] else 0):
                found, at, at2 = start + line * width + parts[part, 1], (y + line) * w + x, (y2 + line) * w + x2
                for n in range(w - x - x2):
                    field[what, at + n, image, at2 + n] = work[what, found + n]


@compiled
def follow(steps: Any, numbers: Any, k: Any, values: Any, pairs: Any, parts: Any, shape: Any, start: Any,
           lefts: Any, rights: Any, work: Any, total: Any, field: Any, tangent: Any) -> None:  # fmt: skip
    """total[0 and 1, b] = the sums of D and Theta over the planes of image `one` with that of number `two` + b `some`.

    pairs : (one, two, some, reach), planes of `reach` lines' offset and less.
    shape : (H, channels, top, bottom, left).
    parts : of a line, (number of x' from `two` + b `some` on, first place, places, first pixel of x', and of x).
    field : (2, pixels of x, images x', pixels of x'), which gets the planes themselves, unless it is empty.
    """
    (one, two, some, reach), (H, channels, top, bottom, left), width = pairs, shape, total.shape[2]
    lift(values, one, 0, parts, 4, lefts)
    for b in range(total.shape[1]):
        lift(values, two + b * some, 1, parts, 3, rights)
        twice = some == 1 and two + b == one and field.size == 0  # an image with itself: offsets o and -o give the same
        for offset in range(0 if twice else -reach, reach + 1):
            y, y2, lines = max(0, -offset), max(0, offset), H - abs(offset)
            plane(steps, numbers, k, lefts, rights, y, y2, lines, work, start, width, (channels, top, bottom), tangent)
            weight, after = 2.0 if twice and offset > 0 else 1.0, lines - steps[-1, 3]
            if field.size > 0:
                store(work, start + left, width, parts, (y, y2, after, H - steps[-1, 3]), b * some, field, tangent)
                continue
            for what in range(2 if tangent else 1):
                sums = total[what, b]
                for line in range(after):
                    found = work[what, start + line * width : start + (line + 1) * width]
                    for n in range(width):
                        sums[n] += found[n] * weight
