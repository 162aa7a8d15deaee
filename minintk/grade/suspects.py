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
        return None
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
        if size != 1 and abs(c * size - 1) < 1e-6:
            return (
                "mean for sum",
                f"right but for a factor {c:.4g} = 1/{_name(name)}: a mean where a sum belongs{minus}",
            )
        if size != 1 and abs(c / size - 1) < 1e-6:
            return "sum for mean", f"right but for a factor {c:.4g} = {name}: a sum where a mean belongs{minus}"
    return "factor", f"right but for a factor {c:.4g}{minus}"


def _name(name: str) -> str:
    return f"({name})" if " " in name else name


def dimensions(shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, float]) -> dict[str, float]:
    """What factors may be made of: N and C, numbers of pixels and of window entries, arguments that are numbers.

    A 2 is left out: it may come from anywhere.

    >>> dimensions({"y": (5, 4)}, {"window": 3})
    {'N': 5.0, 'C': 4.0, 'N C': 20.0, 'window': 3.0, 'window^2': 9.0}
    """
    found: dict[str, float] = {}
    for name, shape in shapes.items():
        if name == "y" and shape:
            found |= {"N": shape[0]} if len(shape) > 1 else {}
            found |= {"C": shape[-1]}
            found |= {"N C": shape[0] * shape[-1]} if len(shape) > 1 else {}
            if len(shape) > 2:
                pixels = int(np.prod(shape[1:-1]))
                found |= {"H W": pixels, "N H W": shape[0] * pixels}
        elif len(shape) == 4:
            found |= {f"{name}.shape[0] {name}.shape[1]": shape[0] * shape[1]}
        found |= {f"len({name})": shape[0]} if len(shape) > 1 and name != "y" else {}
    for name, value in numbers.items():
        found |= {name: float(value), f"{name}^2": float(value) ** 2}
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
    nought = (np.abs(got) <= tolerance) & known
    small = (np.abs(right) <= tolerance) & known
    same = (np.abs(got - right) <= tolerance) | ~known
    lost, gained = nought & ~small, small & ~nought
    if np.all(same | lost) and lost.any():
        return _lost(lost, ~small & same & known, lead)
    if np.all(same | gained) and gained.any():
        at = tuple(map(int, np.argwhere(gained)[0]))
        return (
            "mask",
            f"a gradient passes where there is none, at {int(gained.sum())} places (first {at}): a mask is missing",
        )
    return None


def _lost(lost: Values, kept: Values, lead: int) -> tuple[str, str]:
    count = f"{int(lost.sum())} of {int((lost | kept).sum())} entries are missing"
    if lead and lost.shape[0] > 1:
        members = {int(n) for n in np.argwhere(kept)[:, 0]}
        if len(members) == 1:
            n = members.pop()
            name = {0: "the first", lost.shape[0] - 1: "the last"}.get(n, f"number {n}")
            return "one example", f"only {name} example counts: = where += belongs, or an index too many"
    y, a = lost.shape[:lead], lost.shape[lead:]
    if lead and y == a:
        n = int(np.prod(y))
        if not np.any(kept.reshape(n, n) & ~np.eye(n, dtype=bool)):
            return "diagonal", "only the diagonal is there: the terms between different entries are missing"
    if lead > 1:
        rows = int(np.prod(y[:-1]))
        left, all_ = (np.asarray(m.reshape(rows, y[-1], -1).any(axis=1)) for m in (kept, lost | kept))
        touched = all_.any(axis=0)
        for name, pick in (("last", rows - 1 - np.argmax(all_[::-1], axis=0)), ("first", np.argmax(all_, axis=0))):
            alone = np.arange(rows)[:, None] == pick
            if np.array_equal(left[:, touched], (alone & all_)[:, touched]):
                return "overwritten", f"only the {name} contribution is left where several overlap: = where += belongs"
    at = tuple(map(int, np.argwhere(lost)[0]))
    return "part missing", f"{count}, the first at {at[lead:]}" + (f" for the output at {at[:lead]}" if lead else "")
