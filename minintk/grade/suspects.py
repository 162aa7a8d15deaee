"""What a wrong array looks like: the right one times a factor, transposed, flipped, shifted, or with a part missing.

Everything here compares two arrays of one shape: what came, and what is right.  A derivative dy/da stands as an array
of shape (*y.shape, *a.shape), so that `lead` axes belong to y; a plain result has lead = 0.  NaN in `right` marks an
entry that is not known, on a kink say, and is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
RTOL = 1e-6
"""Of the largest entry of a derivative: how far differences of it may be off; see `minintk.grade.gradient`."""


def close(got: Values, right: Values, tolerance: float) -> bool:
    """|got - right| <= tolerance everywhere that `right` is known; NaN in `got` is never close."""
    return bool(np.all((np.abs(got - right) <= tolerance) | np.isnan(right)))


def explain(
    got: Values, right: Values, tolerance: float, sizes: Mapping[str, float], lead: int = 0
) -> tuple[str, str] | None:
    """(cause, sentence) where `got` is `right` with one known mistake, None where it is not.

    sizes : {"N": 3.0, ...}, what a factor may be made of.

    >>> right = np.array([[1.0, 2.0], [3.0, 5.0]])
    >>> explain(right / 4, right, 1e-9, {"N": 4})
    ('mean for sum', 'right but for a factor 0.25 = 1/N: a mean where a sum belongs')
    >>> explain(-right.T, right, 1e-9, {})
    ('transpose', 'transposed, and the sign')
    """
    known = ~np.isnan(right)
    if not np.all(np.isfinite(got[known])):
        at = tuple(map(int, np.argwhere(~np.isfinite(got) & known)[0]))
        return "nan", f"{got[at]} at {at}"
    if not np.any(np.abs(right[known]) > tolerance):
        return "not zero", f"zeros belong here, the largest entry is {np.abs(got[known]).max(initial=0.0):.3g}"
    if close(got, np.zeros_like(right), tolerance):
        return "zeros", "not written: zeros"
    if said := multiple(got, right, tolerance, sizes):
        return said
    for cause, words, other in moved(right, lead):
        if not close(right, other, tolerance) and np.mean(~np.isnan(other)) > 0.3:
            scale = factor(got, other, tolerance)
            if scale is not None:
                named = multiple(got, other, tolerance, sizes)
                return cause, words if named is None else f"{words}, and {named[1].removeprefix('right but for ')}"
    return partial(got, right, tolerance, lead)


# --------------------------------------------------------------------------------------------------- factors


def factor(got: Values, right: Values, tolerance: float) -> float | None:
    """c where got = c right, None where there is no such number, or the arrays say too little."""
    known = ~np.isnan(right)
    a, b = got[known], right[known]
    if not np.any(np.abs(b) > tolerance) or not np.any(np.abs(a) > tolerance):
        return None
    c = float(np.sum(a * b) / np.sum(b * b))
    return c if c and close(got, c * right, tolerance * max(1.0, abs(c))) else None


def multiple(got: Values, right: Values, tolerance: float, sizes: Mapping[str, float]) -> tuple[str, str] | None:
    """(cause, sentence) where got = c right with c other than 1."""
    c = factor(got, right, tolerance)
    if c is None or close(got, right, tolerance):
        return None
    minus = ", and the sign" if c < 0 else ""
    c = abs(c)
    if abs(c - 1) < 1e-6:
        return "sign", "right but for the sign"
    for name, size in sizes.items():
        count = float(size).is_integer()  # of examples, pixels, window entries; any other number is a multiplier
        if abs(c * size - 1) < 1e-6:
            why = "a mean where a sum belongs" if count else f"is {name} forgotten?"
            return (
                "mean for sum" if count else "factor",
                f"right but for a factor {c:.4g} = 1/{_name(name)}: {why}{minus}",
            )
        if abs(c / size - 1) < 1e-6:
            why = "a sum where a mean belongs" if count else f"is {name} there once too often?"
            return "sum for mean" if count else "factor", f"right but for a factor {c:.4g} = {name}: {why}{minus}"
    return "factor", f"right but for a factor {c:.4g}{minus}"


def _name(name: str) -> str:
    return f"({name})" if " " in name else name


def dimensions(shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, float]) -> dict[str, float]:
    """What factors may be made of: N and C, numbers of pixels and of window entries, arguments that are numbers.

    A 2 is left out: it may come from anywhere.

    >>> dimensions({"y": (5, 4)}, {"window": 3})
    {'window': 3.0, 'window^2': 9.0, 'N': 5.0, 'C': 4.0, 'N C': 20.0}
    """
    found: dict[str, float] = {}
    for name, value in numbers.items():
        found |= {name: float(value), f"{name}^2": float(value) ** 2}
    for name, shape in shapes.items():
        if name == "y" and len(shape) > 1:
            pixels = int(np.prod(shape[1:-1]))
            found |= {"N": shape[0], "C": shape[-1], "N C": shape[0] * shape[-1]}
            found |= {"H W": pixels, "N H W": shape[0] * pixels}
        elif shape:
            found |= {"C" if name == "y" else f"len({name})": shape[0]}
            if len(shape) == 4:  # a kernel's window, an image's pixels
                found |= {f"{name}.shape[{i}] {name}.shape[{i + 1}]": shape[i] * shape[i + 1] for i in (0, 1)}
    unique: dict[float, str] = {}
    for name, size in found.items():
        unique.setdefault(float(abs(size)), name)
    return {name: size for size, name in unique.items() if size not in (0.0, 1.0, 2.0)}


# ------------------------------------------------------------------------------------ moved, turned, flipped


def moved(right: Values, lead: int) -> Iterator[tuple[str, str, Values]]:
    """(cause, words, `right` with its entries moved as a common mistake moves them)."""
    axes = range(lead, right.ndim)
    for i, j in combinations(axes, 2):
        if right.shape[i] == right.shape[j]:
            pair = f" (axes {i - lead} and {j - lead} swapped)" if len(axes) > 2 else ""
            yield "transpose", f"transposed{pair}", right.swapaxes(i, j)
    if lead and right.shape[lead - 1] == right.shape[-1]:
        yield "map transposed", "the map is transposed: u W where u W' belongs", right.swapaxes(lead - 1, -1)
    inner_y, inner_a = range(1, lead - 1), range(lead + 1, right.ndim - 1)
    if inner_y and [right.shape[i] for i in inner_y] == [right.shape[j] for j in inner_a]:
        turned = right
        for i, j in zip(inner_y, inner_a, strict=True):
            turned = turned.swapaxes(i, j)
        yield "flip", "the kernel is flipped in space", turned
        if right.shape[lead - 1] == right.shape[-1]:
            yield "map transposed", "flipped in space and its channels swapped", turned.swapaxes(lead - 1, -1)
    long = [axis for axis in axes if right.shape[axis] > 1]
    for count in range(1, min(len(long), 4) + 1):
        for some in combinations(long, count):
            yield "flip", f"flipped along axis {' and '.join(str(i - lead) for i in some)}", np.flip(right, some)
    if len(axes) >= 3:
        yield from _shifted(right, lead)
    if lead >= 3 and len(axes) >= 3:
        yield "stride", "every window in its place for stride 1: the stride is forgotten", _unstrided(right, lead)


def _unstrided(right: Values, lead: int) -> Values:
    """The gradient of output pixel p moved from 2 p to p; what comes in from outside is unknown."""
    other = np.full_like(right, np.nan)
    for p in np.ndindex(right.shape[1 : lead - 1]):
        to, of = [slice(None)] * (right.ndim - lead), [slice(None)] * (right.ndim - lead)
        for axis, i in enumerate(p, 1):
            to[axis], of[axis] = slice(0, max(0, right.shape[lead + axis] - i)), slice(i, None)
        rows = (slice(None), *p, slice(None))
        other[(*rows, *to)] = right[(*rows, *of)]
    return other


def _shifted(right: Values, lead: int) -> Iterator[tuple[str, str, Values]]:
    """`right` shifted by up to two pixels along two neighbouring axes; what comes in from outside is unknown."""
    first = range(lead, right.ndim - 1)
    steps = [step for step in product(range(-2, 3), repeat=2) if step != (0, 0)]
    for i, step in product(first, sorted(steps, key=lambda s: abs(s[0]) + abs(s[1]))):
        j = i + 1
        if right.ndim - lead == 4 and i == lead + 2:
            continue  # pixels are the middle axes of images and the first ones of kernels
        if any(abs(s) >= right.shape[axis] for axis, s in ((i, step[0]), (j, step[1]))):
            continue
        other = np.full_like(right, np.nan)
        to, of = [slice(None)] * right.ndim, [slice(None)] * right.ndim
        for axis, s in ((i, step[0]), (j, step[1])):
            to[axis] = slice(max(s, 0), right.shape[axis] + min(s, 0))
            of[axis] = slice(max(-s, 0), right.shape[axis] + min(-s, 0))
        other[tuple(to)] = right[tuple(of)]
        yield "shift", f"shifted by {step} along axes {i - lead} and {j - lead}", other


# ----------------------------------------------------------------------------------------- a part is missing


def partial(got: Values, right: Values, tolerance: float, lead: int) -> tuple[str, str] | None:
    """(cause, sentence) where entries are zero that should not be, or the other way round, and all others are right."""
    known = ~np.isnan(right)
    nought, small = (np.abs(got) <= tolerance) & known, (np.abs(right) <= tolerance) & known
    same = (np.abs(got - right) <= tolerance) | ~known
    lost, gained = nought & ~small, small & ~nought
    if np.all(same | lost) and lost.any():
        return _lost(lost, ~small & same & known, lead)
    if np.all(same | gained) and gained.any():
        count, at = int(gained.sum()), tuple(map(int, np.argwhere(gained)[0]))
        return "mask", f"a gradient passes where there is none, at {count} places (first {at}): a mask is missing"
    rows = int(np.prod(right.shape[:lead]))
    a, b = got.reshape(rows, -1), np.nan_to_num(right).reshape(rows, -1)
    if lead and close(a.sum(1), b.sum(1), tolerance * a.shape[1]) and _several(a, b, tolerance):
        return "spread", "shared among several entries, where one alone (the largest, say) has to get all of it"
    return None


def _several(got: Values, right: Values, tolerance: float) -> bool:
    """Whether rows with one entry that is not zero have come with more than one."""
    a, b = (np.sum(np.abs(k) > tolerance, axis=1) for k in (got, right))
    return bool(np.all(b <= 1) and np.any(a > 1))


def _lost(lost: Values, kept: Values, lead: int) -> tuple[str, str]:
    """What is special about the entries that are missing; kept : those that are there."""
    y, a = lost.shape[:lead], lost.shape[lead:]
    if lead and lost.shape[0] > 1 and len(members := {int(n) for n in np.argwhere(kept)[:, 0]}) == 1:
        n = members.pop()
        name = {0: "the first", lost.shape[0] - 1: "the last"}.get(n, f"number {n}")
        return "one example", f"only {name} example counts: = where += belongs, or an index too many"
    if lead and y == a and not np.any(kept.reshape(np.prod(y), -1) & ~np.eye(int(np.prod(y)), dtype=bool)):
        return "diagonal", "only the diagonal is there: the terms between different entries are missing"
    if len(a) > 2:
        edge = np.ones(a, dtype=bool)
        edge[(slice(None), *([slice(1, -1)] * (len(a) - 2)), slice(None))] = False
        if not np.any(lost & ~edge) and not np.any(kept & edge):
            return "border", "the pixels at the border are missing: cropped too far, or windows there left out"
    if lead > 1:
        rows = int(np.prod(y[:-1]))
        left, every = (np.asarray(m.reshape(rows, y[-1], -1).any(axis=1)) for m in (kept, lost | kept))
        for name, pick in (("last", rows - 1 - np.argmax(every[::-1], axis=0)), ("first", np.argmax(every, axis=0))):
            alone = every & (np.arange(rows)[:, None] == pick)
            if not np.any(left & ~alone) and np.any(left.any(axis=0) & (every.sum(axis=0) > 1)):
                return "overwritten", f"only the {name} contribution is left where several overlap: = where += belongs"
    at = tuple(map(int, np.argwhere(lost)[0]))
    where = f", the first at {at[lead:]}" + (f" for the output at {at[:lead]}" if lead else "")
    return "part missing", f"{int(lost.sum())} of {int((lost | kept).sum())} entries are missing{where}"


# ------------------------------------------------------------------------------- summed, or scaled by rows


def summed(g: Values, right: Values, tolerance: float) -> tuple[int, ...] | None:
    """The leading or trailing axes of g whose sum is `right`."""
    if g.size <= right.size:
        return None
    extra = g.ndim - right.ndim
    options = [tuple(range(extra)), tuple(range(right.ndim, g.ndim))] if extra > 0 else []
    if not extra:
        options = [tuple(k for k in range(g.ndim) if right.shape[k] == 1 and g.shape[k] != 1)]
    for axes in options:
        total = g.sum(axis=axes, keepdims=not extra) if axes else None
        if total is not None and total.shape == right.shape and close(total, right, tolerance):
            return axes
    return None


def scaled(g: Values, right: Values, tolerance: float, shape: tuple[int, ...]) -> tuple[str, str] | None:
    """Right but for a factor of its own for each output: a derivative that multiplies u is missing."""
    n = int(np.prod(shape))
    a, b = g.reshape(n, -1), np.nan_to_num(right.reshape(n, -1))
    a = np.where(np.isnan(right.reshape(n, -1)), 0.0, a)
    weight = np.sum(a * a, axis=1)
    ratio = np.where(weight > 0, np.sum(a * b, axis=1) / np.where(weight > 0, weight, 1.0), 0.0)
    if not close(ratio[:, None] * a, b, 10 * tolerance) or np.ptp(ratio) < 1e-6:
        return None
    kept = ratio[(weight > 0)]
    if np.all(np.isclose(kept, 0) | np.isclose(kept, 1)):
        return "mask", "right but for the outputs where the derivative is 0: the activation's mask is missing"
    each = ratio.reshape(shape)
    if len(shape) > 1 and np.allclose(each, each[(slice(None), *([slice(0, 1)] * (len(shape) - 1)))]):
        return (
            "row factor",
            f"right but for a factor for each example, {kept.min():.3g} to {kept.max():.3g}, that is missing",
        )
    return "activation derivative", (
        f"right but for a factor for each output, {kept.min():.3g} to {kept.max():.3g}: is phi' forgotten?"
    )
