"""Recognise how an array is wrong: scaled by a factor, transposed, flipped, shifted, or incomplete.

Most functions compare a result with the correct result, which has the same shape.  A derivative dy/da has the shape
(*y.shape, *a.shape); its first `lead` axes are y's.  A plain result has lead = 0.  NaN entries of `right` are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Said = tuple[str, str]
"""The name of an error's cause, and a sentence about the error."""

MIXED = "examples mixed", "one example's gradient depends on another: a sum along axis 0, where each has its own?"


def close(got: Values, right: Values, tolerance: float) -> bool:
    """Return True if |got - right| <= tolerance wherever `right` is not NaN.  NaN in `got` is close only to NaN."""
    with np.errstate(invalid="ignore"):  # differences of infinite numbers are NaN
        return bool(np.all((np.abs(got - right) <= tolerance) | np.isnan(right)))


def margin(right: Values) -> float:
    """Return the tolerance for a derivative that is computed by finite differences."""
    return 1e-6 * float(np.nanmax(np.abs(right), initial=1e-300))


def explain(got: Values, right: Values, tolerance: float, sizes: Mapping[str, float], lead: int = 0) -> Said | None:
    """Return (cause, sentence) if one known mistake explains how `got` differs from `right`, otherwise None.

    sizes : {"N": 3.0, ...}, the numbers that can be the wrong factor or its inverse.

    >>> right = np.array([[1.0, 2.0], [3.0, 5.0]])
    >>> explain(right / 4, right, 1e-9, {"N": 4})
    ('mean for sum', 'right but for a factor 0.25 = 1/N: a mean where a sum belongs')
    """
    known = ~np.isnan(right)
    if not np.all(np.isfinite(got[known])):
        at = tuple(map(int, np.argwhere(~np.isfinite(got) & known)[0]))
        return "nan", f"{got[at]} {place(at, lead)}"
    if not np.any(np.abs(right[known]) > tolerance):
        return "not zero", f"zeros belong here, the largest entry is {np.abs(got[known]).max(initial=0.0):.3g}"
    if close(got, np.zeros_like(right), tolerance):
        return "zeros", "not written: zeros"
    if times := factor(got, right, tolerance, sizes):
        return times[0], f"right but for {times[1]}"
    for cause, words, other in moved(right, lead):
        if close(right, other, tolerance) or np.mean(np.isnan(other)) >= 0.7:
            continue
        if said := like(cause, words, got, other, tolerance, sizes):
            return said
    return partial(got, right, tolerance, lead)


def like(
    cause: str, words: str, got: Values, other: Values, tolerance: float, sizes: Mapping[str, float]
) -> Said | None:
    """Return (cause, words) if `got` is `other` or a multiple of it.  For a multiple, the words name the factor."""
    times = factor(got, other, tolerance, sizes)
    return None if times is None else (cause, f"{words}, and {times[1]}" if times[1] else words)


def factor(got: Values, right: Values, tolerance: float, sizes: Mapping[str, float]) -> Said | None:
    """Find c such that got = c right.  Return (cause, words), or ("", "") if c = 1, or None if no fit is meaningful."""
    known = ~np.isnan(right)
    a, b = got[known], right[known]
    if min(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0)) <= tolerance:
        return None  # there is too little information
    c = float(np.sum(a * b) / np.sum(b * b))
    if c == 0 or not close(got, c * right, tolerance * max(1.0, abs(c))):
        return None
    if close(got, right, tolerance):
        return "", ""
    if abs(c - 1) < 1e-5:
        return None  # it is a rounded result, not a factor
    c, minus = abs(c), ", and the sign" if c < 0 else ""
    if minus and abs(c - 1) < 1e-6:
        return "sign", "the sign"
    for name, size in sizes.items():
        inverse = f"1/{f'({name})' if ' ' in name else name}"
        for ratio, words, cause, why, multiplier in (
            (c * size, inverse, "mean for sum", "a mean where a sum belongs", f"is {name} forgotten?"),
            (c / size, name, "sum for mean", "a sum where a mean belongs", f"is {name} there twice?"),
        ):
            if abs(ratio - 1) < 1e-6:  # integers count examples or pixels; other numbers are multipliers
                cause, why = (cause, why) if float(size).is_integer() else ("factor", multiplier)
                return cause, f"a factor {c:.4g} = {words}: {why}{minus}"
    if b.size == 1 and min(abs(k - round(k)) for k in (c, 1 / c)) > 1e-6:
        return None  # a single number is a multiple of any other
    return "factor", f"a factor {c:.4g}{minus}"


def dimensions(shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, float]) -> dict[str, float]:
    """Collect possible wrong factors or their inverses: N, C, scalar arguments, lengths, numbers of pixels and entries.

    The numbers 0, 1 and 2 are left out: no factor is 0 or 1, and many mistakes produce a factor of 2.
    """
    found: dict[str, float] = {}
    for name, value in numbers.items():
        found |= {name: float(value), f"{name}^2": float(value) ** 2}
    for name, shape in shapes.items():
        if name == "y" and len(shape) > 1:
            N, *inner, C = shape
            found |= {"N": N, "C": C, "N C": N * C, "H W": prod(inner), "N H W": N * prod(inner)}
        elif shape:
            found[f"len({name})"] = shape[0]
            if name != "y":
                found[f"sqrt({name}.shape[-1])"] = shape[-1] ** 0.5
            if len(shape) == 4:  # the window of a convolution, or the pixels of images
                found |= {f"{name}.shape[{i}] {name}.shape[{i + 1}]": shape[i] * shape[i + 1] for i in (0, 1)}
    unique: dict[float, str] = {}
    for name, size in found.items():
        both = name == "C" and size == found["N"]  # the name is then ambiguous
        unique.setdefault(float(abs(size)), name)
        unique |= {float(size): "N or C"} if both else {}
    return {name: size for size, name in unique.items() if size not in (0.0, 1.0, 2.0)}


def moved(right: Values, lead: int) -> Iterator[tuple[str, str, Values]]:
    """Yield (cause, words, `right` with its entries moved by a common mistake)."""
    axes, shape = range(lead, right.ndim), right.shape
    for i, j in combinations(axes, 2):
        if shape[i] == shape[j]:
            pair = f" (axes {i - lead} and {j - lead} swapped)" if len(axes) > 2 else ""
            yield "transpose", f"transposed{pair}", right.swapaxes(i, j)
    if 1 < lead < right.ndim and shape[0] == shape[lead]:
        yield "map transposed", "the map between rows is transposed: P u where P' u belongs", right.swapaxes(0, lead)
    if lead and shape[lead - 1] == shape[-1]:
        yield "map transposed", "the map is transposed: u W and u W' are exchanged", right.swapaxes(lead - 1, -1)
    if lead > 2 and shape[1 : lead - 1] == shape[lead + 1 : -1]:  # input and output have the same number of pixels
        turned = right
        for i in range(1, lead - 1):
            turned = turned.swapaxes(i, lead + i)
        yield "flip", "the kernel is flipped in space", turned
    long = [axis for axis in axes if shape[axis] > 1]
    for some in (some for count in range(1, min(len(long), 4) + 1) for some in combinations(long, count)):
        yield "flip", f"flipped along axis {' and '.join(str(i - lead) for i in some)}", np.flip(right, some)
    if len(axes) < 3:
        return
    first = axes[:2] if len(axes) == 4 else axes[:-1]  # pixels: the middle axes of images, or the first axes of kernels
    steps = sorted(set(product(range(-2, 3), repeat=2)) - {(0, 0)}, key=lambda s: (abs(s[0]) + abs(s[1]), s))
    for i, (s, t) in product(first, steps):
        if abs(s) < shape[i] and abs(t) < shape[i + 1]:
            words = f"shifted by {(s, t)} along axes {i - lead} and {i + 1 - lead}"
            yield "shift", words, slid(right, {i: s, i + 1: t})
    if 3 <= lead <= len(axes) + 1:  # as if the gradient of output pixel p moved from 2 p to p
        other = np.empty_like(right)
        for p in np.ndindex(shape[1 : lead - 1]):
            rows = (slice(None), *p)
            other[rows] = slid(right[rows], {axis: -i for axis, i in enumerate(p, 3)})
        yield "stride", "every window in its place for stride 1: the stride is forgotten", other


def slid(a: Values, steps: Mapping[int, int]) -> Values:
    """Shift the entries by {axis: steps}.  Entries shifted in from outside become NaN."""
    a = np.array(a)
    for axis, step in steps.items():
        a = np.roll(a, step, axis)
        if step:
            np.moveaxis(a, axis, 0)[slice(step) if step > 0 else slice(step, None)] = np.nan
    return a


def partial(got: Values, right: Values, tolerance: float, lead: int) -> Said | None:
    """Return (cause, sentence) if entries are wrongly zero, nonzero or spread over others, and the rest is correct."""
    known = ~np.isnan(right)
    nought, small = (np.abs(got) <= tolerance) & known, (np.abs(right) <= tolerance) & known
    same = (np.abs(got - right) <= tolerance) | ~known
    lost, gained = nought & ~small, small & ~nought
    if np.all(same | lost) and lost.any():
        return _lost(lost, ~small & same & known, lead)
    if np.all(same | gained) and gained.any():
        at = np.argwhere(gained)
        if 0 < lead < right.ndim and right.shape[0] == right.shape[lead] and np.all(at[:, 0] != at[:, lead]):
            return MIXED
        count, first = len(at), place(tuple(map(int, at[0])), lead)
        return "mask", f"a gradient passes where there is none, {count} times, first {first}: a mask is missing"
    rows = prod(right.shape[:lead])
    a, b = got.reshape(rows, -1), np.nan_to_num(right).reshape(rows, -1)
    if lead and close(a.sum(1), b.sum(1), tolerance * a.shape[1]):
        many, one = (np.sum(np.abs(k) > tolerance, axis=1) for k in (a, b))
        if np.all(one <= 1) and np.any(many > 1):
            return "spread", "shared among several entries, where one alone (the largest, say) has to get all of it"
    return None


def terms(got: Values, right: Values, x: Values, tolerance: float) -> Said | None:
    """Return (cause, sentence) if a term of a softmax, norm, shortcut or cross-entropy is missing or wrong.

    x : the argument of the derivative; its axes are the last axes of `got` and `right`.
    """
    off, lead = got - right, right.ndim - x.ndim
    if np.any(np.isnan(off)):
        return None

    def along(a: Values, axis: int) -> Values:
        """Project `off` onto `a`, separately for each line of entries along the axis."""
        square = np.sum(a * a, axis=axis - lead, keepdims=True)
        return np.sum(off * a, axis=axis, keepdims=True) / np.where(square > 0, square, 1.0) * a

    for axis in range(lead, right.ndim) if right.shape[:lead] == x.shape else ():
        if right.shape[axis] > 2 and close(off, along(x, axis), tolerance):
            return "norm", f"off by a multiple of the input along axis {axis - lead}: that of a length or a square"
        mean = off.mean(axis=axis, keepdims=True)
        slope = along(x - x.mean(axis=axis - lead, keepdims=True), axis)
        if right.shape[axis] > 2 and close(off, mean + slope, tolerance):
            some = [np.abs(k).max() > tolerance for k in (mean, slope)]
            what = " and ".join(word for word, there in zip(("mean", "variance"), some, strict=True) if there)
            return "norm", f"the derivative of the {what} along axis {axis - lead} is missing or wrong"
    if right.shape[:lead] == x.shape:
        a, b, d = (k.reshape(x.size, x.size) for k in (got, right, off))
        eye = np.eye(x.size)
        if close(d, d[0, 0] * eye, tolerance):
            too = "is missing" if d[0, 0] < 0 else "is too much"
            return "shortcut", f"{abs(d[0, 0]):.4g} times the identity {too}: the input's own term, a shortcut, say"
        if close(a, a * eye, tolerance) and not close(b, b * eye, tolerance):
            text = "each output depends on several entries, by a sum or a mean over them, say: only its own counts here"
            return "coupling", text
    if lead == 0 and x.ndim == 2:
        large = np.abs(off) > tolerance
        each = off[large]
        if np.all(large.sum(axis=1) == 1) and np.ptp(each) <= 2 * tolerance:
            return "one-hot", f"one entry of each row is off by {each[0]:.4g}: is the label's 1 missing, p - t?"
        if np.all(large.sum(axis=1) <= 2) and np.all(np.abs(off.sum(axis=1)) <= 2 * tolerance):
            return "labels", f"two entries of a row are off by {np.abs(each).max():.4g}: the 1 stands at another label"
    if lead > 0 and x.ndim and right.shape[0] == len(x):
        across = ~np.eye(len(x), dtype=bool).reshape(len(x), *[1] * (lead - 1), len(x), *[1] * (x.ndim - 1))
        if close(right * across, 0 * right, tolerance) and not close(got * across, 0 * right, tolerance):
            return MIXED
    return None


def _lost(lost: Values, kept: Values, lead: int) -> Said:
    """Describe the pattern of the missing entries.  kept : the entries that are present."""
    y, a = lost.shape[:lead], lost.shape[lead:]
    if lead and y[0] > 1 and len(members := {int(n) for n in np.argwhere(kept)[:, 0]}) == 1:
        n = members.pop()
        name = {0: "the first", y[0] - 1: "the last"}.get(n, f"number {n}")
        return "one example", f"only {name} example counts: = where += belongs, or an index too many"
    if lead and y == a and not np.any(kept.reshape(prod(y), -1) & ~np.eye(prod(y), dtype=bool)):
        return "diagonal", "only the diagonal is there: the terms between different entries are missing"
    if len(a) > 2:
        edge = np.ones(a, dtype=bool)
        edge[(slice(None), *([slice(1, -1)] * (len(a) - 2)))] = False
        if not np.any(lost & ~edge) and not np.any(kept & edge):
            return "border", "the pixels at the border are missing: cropped too far, or windows there left out"
    if lead > 1:
        rows = prod(y[:-1])
        left, every = (np.asarray(m.reshape(rows, y[-1], -1).any(axis=1)) for m in (kept, lost | kept))
        for name, pick in (("last", rows - 1 - np.argmax(every[::-1], axis=0)), ("first", np.argmax(every, axis=0))):
            alone = every & (np.arange(rows)[:, None] == pick)
            if not np.any(left & ~alone) and np.any(left.any(axis=0) & (every.sum(axis=0) > 1)):
                return "overwritten", f"only the {name} contribution is left where several overlap: = where += belongs"
    first = place(tuple(map(int, np.argwhere(lost)[0])), lead)
    return "part missing", f"{int(lost.sum())} of {int((lost | kept).sum())} entries are missing, the first {first}"


def place(at: tuple[int, ...], lead: int) -> str:
    """Describe the position of an entry in words: "at (1, 2) for the output at (3, 0)"."""
    return f"at {at[lead:]}" + (f" for the output at {at[:lead]}" if lead else "")


def misshapen(got: Any, right: Values, name: str = "it") -> Said | None:
    """Return (cause, sentence) if `got` is not an array of numbers with the correct shape."""
    if got is None:
        return "nothing", "not written: None is returned"
    try:
        g = np.asarray(got)
    except ValueError:  # lists of different lengths
        g = np.asarray(None)
    if g.dtype.kind not in "biuf":
        return "wrong kind", f"expected numbers, got {repr(got)[:60] if g.ndim == 0 else g.dtype}"
    if g.shape == right.shape:
        return None
    text, tolerance = f"expected shape {right.shape}, got {g.shape}", margin(right)
    if g.shape == right.shape[::-1] and close(g.T, right, tolerance):
        return "transpose", f"{text}: it is transposed"
    extra = g.ndim - right.ndim
    same = tuple(k for k in range(g.ndim) if not extra and right.shape[k] == 1 != g.shape[k])
    for axes in (same, range(extra), range(right.ndim, g.ndim)):
        if axes and g.size > right.size:
            total = g.sum(axis=tuple(axes), keepdims=not extra)
            if total.shape == right.shape and close(total, right, tolerance):
                over = " and ".join(map(str, axes))
                return "broadcast", f"{text}: the sum over axis {over} is missing, along which {name} is broadcast"
    if g.size == right.size and close(g.reshape(right.shape), right, tolerance):
        text += ": the numbers are right, the axes of length 1 are not"
    return "wrong shape", text


def scaled(g: Values, right: Values, tolerance: float, shape: tuple[int, ...]) -> Said | None:
    """Return (cause, sentence) if the gradient of each output lacks a factor, e.g. a derivative that multiplies u."""
    a, b = np.where(np.isnan(right), 0.0, [g, right]).reshape(2, prod(shape), -1)
    weight = np.sum(a * a, axis=1)
    ratio = np.sum(a * b, axis=1) / np.where(weight > 0, weight, 1.0)
    if not close(ratio[:, None] * a, b, 10 * tolerance) or np.ptp(ratio) < 1e-6:
        return None
    kept, each = ratio[weight > 0], ratio.reshape(shape)
    if np.all(np.isclose(kept, 0) | np.isclose(kept, 1)):
        return "mask", "right but for the outputs where the derivative is 0: the activation's mask is missing"
    size = f"{kept.min():.3g} to {kept.max():.3g}"
    phi = ": is phi' forgotten?" if kept.min() > -0.3 and kept.max() < 1.3 else ""  # the usual range of slopes
    if len(shape) > 1 and np.allclose(each, each[(slice(None), *([slice(0, 1)] * (len(shape) - 1)))]):
        return "row factor", f"right but for a factor for each example, {size}, that is missing"
    return "activation derivative", f"right but for a factor for each output, {size}, that is missing{phi}"
