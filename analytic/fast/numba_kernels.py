"""Propagate planes of pixel pairs through the leading layers with Numba (`pip install minintk[fast]`).

`follow` gets the steps, and the pixels' values for every step, from `analytic.fast.offsets`.  It is compiled once for
each precision.  It has no code for particular networks or activations, and calls activations by address
(`analytic.fast.compiled.steps_of_form`).  A plane is contiguous in memory, one line of pixel pairs after the other.
Each line has `width` positions, a multiple of 16, so loops over positions vectorise without a remainder.
"""

from __future__ import annotations

from typing import Any

from analytic.fast.compiled import call, compiled, jit

WINDOW, FORM, COPY, ADD = range(4)
"""Kinds of steps, as in `analytic.fast.offsets`."""


@jit
def margin(D: Any, T: Any, half: Any, half2: Any) -> None:
    """Set D of pairs with one pixel outside the image to half the variance of the pixel inside, and Theta to 0."""
    for n in range(D.size):
        D[n], T[n] = half[n] + half2[n], 0


@jit
def add_up(source: Any, out: Any, first: Any, step: Any, count: Any) -> None:
    """Compute out[k] = sum_s source[first + s step + k] for s = 0 ... count - 1."""
    n, done = out.size, min(count, 3)
    a, b, c = source[first:], source[first + step :], source[first + 2 * step :]
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
        a = source[first + s * step :]
        for k in range(n):
            out[k] += a[k]


@jit
def plane(steps: Any, numbers: Any, forms: Any, lefts: Any, rights: Any, y: Any, y2: Any, lines: Any, work: Any,
          start: Any, width: Any, shape: Any, tangent: Any) -> None:  # fmt: skip
    """Apply all steps to a plane that initially has `lines` lines and starts at line y of x and line y2 of x'."""
    channels, top, bottom = shape
    V, low = work[-1], start - top * width
    n = (lines + top + bottom) * width
    D, T = work[0, low:], work[1, low:]
    for c in range(channels):
        one, two = lefts[c, y * width :], rights[c, y2 * width :]
        for i in range(n):
            g = one[i] - two[i]
            D[i] = g * g if c == 0 else D[i] + g * g
    for i in range(n if tangent else 0):
        T[i] = 0
    for s in range(steps.shape[0]):
        kind, slot, e, fewer, a, b = steps[s, 0], 2 * steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 4], steps[s, 5]
        n = (lines - fewer) * width
        high = start + n + bottom * width
        if kind == WINDOW:
            for i in range(2 if tangent and e > 0 else 1):
                if b * steps[s, 7] > 1:
                    add_up(work[slot + i], V[start : start + n], start - a * width, width, b)
                    add_up(V, work[slot + i, start : start + n], start - steps[s, 6], 1, steps[s, 7])
        elif kind == FORM:
            D, T = work[slot, low:high], work[slot + 1, low:high]
            one, two = lefts[e, y * width :], rights[e, y2 * width :]
            at = start - low
            call(forms[a], (D[at:].ctypes.data, T[at:].ctypes.data, one[at:].ctypes.data, two[at:].ctypes.data,
                            lefts.shape[1], n, numbers[s].ctypes.data))  # fmt: skip
            one, two = lefts[e + b - 1, y * width :], rights[e + b - 1, y2 * width :]
            margin(D[:at], T[:at], one, two)
            margin(D[at + n :], T[at + n :], one[at + n :], two[at + n :])
        else:
            for i in range(2 if tangent else 1):
                mine, other = work[slot + i, low:high], work[2 * a + i, low:high]
                for m in range(mine.size):
                    mine[m] = other[m] if kind == COPY else mine[m] + other[m] * numbers[s, 0]


@jit
def lift(values: Any, first: Any, others: Any, parts: Any, column: Any, out: Any) -> None:
    """Copy the pixels' values into the layout of planes, (arrays, lines width), with 0 after the last part of a line.

    others : 1 for images `first`, `first` + 1, ..., 0 for only `first`.   parts[:, column] : the parts' first pixels.
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
def store(work: Any, start: Any, width: Any, parts: Any, lines: Any, first: Any, into: Any, field: Any, tangent: Any
          ) -> None:  # fmt: skip
    """Add a plane to the field at the indices `into`, except at -1.   lines : (y, y2, number of lines, w, row of x)."""
    y, y2, count, w, row = lines
    for line in range(count):
        for part in range(parts.shape[0]):
            image, x2, x = first + parts[part, 0], parts[part, 3], parts[part, 4]
            found, at, at2 = start + line * width + parts[part, 1], (y + line) * w + x, (y2 + line) * w + x2
            for n in range(w - x - x2 if image < field.shape[2] else 0):
                pixel, pixel2 = into[at + n], into[at2 + n]
                if pixel >= 0 and pixel2 >= 0:
                    field[0, row + pixel, image, pixel2] += work[0, found + n]
                    if tangent:
                        field[1, row + pixel, image, pixel2] += work[1, found + n]


@compiled
def follow(steps: Any, numbers: Any, forms: Any, values: Any, pairs: Any, parts: Any, offsets: Any, across: Any,
           shape: Any, start: Any, lefts: Any, rights: Any, work: Any, total: Any, into: Any, field: Any, tangent: Any
           ) -> None:  # fmt: skip
    """For each group b of images x', add the sums of D and Theta over lines to total[:, b], or the planes to `field`.

    forms : addresses of the activations.   pairs : (one, two, some, each, row).  Image x has index `one`; group b has
        `some` images x' from `two` + b `some` on, and x from `one` + b `some` on if `each`.   row : x's start in field.
    offsets, across : the planes' offsets across their lines, and the weight of each line.
    shape : (H, channels, top, bottom, left, W of the last grid).
    parts : the parts of a line, (x' counted from `two` + b `some`, first position, size, first pixel of x', of x).
    field : (2, pixels of x, images x', pixels of x'), to which the planes are added unless it is empty; see `store`.
    """
    (one, two, some, each, row), (H, channels, top, bottom, left, last), width = pairs, shape, total.shape[2]
    turned = parts.copy()
    turned[:, 3], turned[:, 4] = parts[:, 4], parts[:, 3]
    for b in range(total.shape[1]):
        if b == 0 or each > 0:
            lift(values, one + each * b * some, each, parts, 4, lefts)
        lift(values, two + b * some, 1, parts, 3, rights)
        twice = each > 0 or (some == 1 and two + b == one)  # for an image with itself, offsets o and -o have equal sums
        for k in range(offsets.size):
            offset = offsets[k]
            if twice and offset < 0:
                continue
            y, y2, lines = max(0, -offset), max(0, offset), H - abs(offset)
            plane(steps, numbers, forms, lefts, rights, y, y2, lines, work, start, width, (channels, top, bottom),
                  tangent)  # fmt: skip
            after = lines - steps[-1, 3]
            if field.size > 0:
                store(work, start + left, width, parts, (y, y2, after, last, row), b * some, into, field, tangent)
                if twice and offset > 0:
                    store(work, start + left, width, turned, (y2, y, after, last, row), b * some, into, field, tangent)
                continue
            for what in range(2 if tangent else 1):
                sums = total[what, b]
                for line in range(after):
                    found = work[what, start + line * width :]
                    counts = 2 * across[k, line] if twice and offset > 0 else across[k, line]
                    for n in range(width):
                        sums[n] += found[n] * counts
