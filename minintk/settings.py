"""Numbers that a user sets: what is no number, or out of range, is refused before anything is computed."""

from __future__ import annotations

from math import isfinite
from typing import Any


def number(name: str, value: Any, *, zero: bool = False) -> float:
    """The value as Python's float: a NumPy scalar would turn float32 arrays into float64.

    ValueError unless it is a finite number > 0, or >= 0 with `zero`.

    >>> number("alpha", 3)
    3.0
    """
    try:
        found = float(value)
        wrong = isinstance(value, (bool, str)) or getattr(value, "ndim", 0) > 0
    except (TypeError, ValueError, OverflowError):
        found, wrong = 0.0, True
    if wrong or not isfinite(found) or found < 0 or (found == 0 and not zero):
        raise ValueError(f"{name} expects a finite number {'>= 0' if zero else '> 0'}, got {value!r}")
    return found
