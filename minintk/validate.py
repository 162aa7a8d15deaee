"""Check arguments that are numbers, whole numbers, times, dtypes or generators."""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import Any

import numpy as np

from minintk.arrays import to_host


def real(value: Any) -> float:
    """Return a real number as a Python float, or NaN for other values, such as True, "2", 1j or an array.

    >>> real(np.float32(0.5)), real(True), real([1.0])
    (0.5, nan, nan)
    """
    try:
        wrong = isinstance(value, (bool, np.bool_, str, bytes)) or np.ndim(value) > 0 or np.iscomplexobj(value)
        return nan if wrong else float(value)
    except (TypeError, ValueError, OverflowError):
        return nan


def number(name: str, value: Any, *, zero: bool = False, negative: bool = False) -> float:
    """Return the value as a Python float, because a NumPy scalar would promote float32 arrays to float64.

    Raises ValueError unless the value is a finite number > 0, or >= 0 with `zero`, or of any sign with `negative`.

    >>> number("alpha", 3)
    3.0
    """
    found = real(value)
    if not isfinite(found) or (not negative and (found < 0 or (found == 0 and not zero))):
        kind = "" if negative else " >= 0" if zero else " > 0"
        raise ValueError(f"{name} expects a finite number{kind}, got {value!r}")
    return found


def numbers(values: Any) -> tuple[float, ...]:
    """Convert a number, a sequence or an array of numbers to a tuple of floats.  Return () for other objects.

    >>> numbers([1, np.inf]), numbers("1"), numbers(None)
    ((1.0, inf), (), ())
    """
    host = np.asarray(to_host(values))
    return tuple(map(float, host.ravel())) if host.dtype.kind in "iuf" else ()


def whole(name: str, value: Any, low: int = 1, high: float = inf) -> int:
    """Return a Python int.  Raise ValueError unless the value is an integer in [low, high] (not True, 2.0 or "2").

    >>> whole("steps", np.int64(3))
    3
    """
    wrong = isinstance(value, (bool, np.bool_)) or getattr(value, "ndim", 0) > 0 or not hasattr(value, "__index__")
    if wrong or not low <= value.__index__() <= high:
        within = f">= {low}" if high == inf else f"from {low} to {high}"
        raise ValueError(f"{name} expects a whole number {within}, got {value!r}")
    return int(value.__index__())


def times(t: Any, *, finite: bool = False) -> np.ndarray[Any, Any]:
    """Return t : () or (T,) in float64 on the host.  Raise ValueError unless all t >= 0 (and finite with `finite`).

    >>> times([0, np.inf])
    array([ 0., inf])
    """
    found = np.asarray(to_host(t))
    known = found.dtype.kind in "iuf" and found.ndim < 2
    if not known or not np.all(found >= 0) or (finite and not np.all(np.isfinite(found))):
        kind = "finite numbers >= 0" if finite else "numbers >= 0 (inf for the limit)"
        raise ValueError(f"t expects {kind}, one or a one-dimensional array of them, got {t!r}")
    return found.astype(np.float64)


def precision(dtype: Any) -> np.dtype[Any]:
    """Return the dtype.  Raise TypeError unless the dtype is float32 or float64.

    >>> precision("float32")
    dtype('float32')
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if found not in (np.float32, np.float64):
        raise TypeError(f"dtype expects float32 or float64, got {dtype!r}")
    return found


def generator(rng: Any) -> np.random.Generator:
    """Return `rng` itself, or numpy.random.default_rng(0) for None.  Raise TypeError for other values, such as seeds.

    >>> isinstance(generator(None), np.random.Generator)
    True
    """
    if rng is None:
        return np.random.default_rng(0)
    check_generator("rng", rng)
    return rng


def check_generator(name: str, rng: Any) -> None:
    """Raise TypeError unless `rng` is a generator.  None is rejected too: no default is created silently."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"{name} expects a numpy.random.Generator, numpy.random.default_rng(0), got {rng!r}")
