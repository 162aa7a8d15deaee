"""A result against the right one: kind, shape, dtype, NaN, then the numbers, with what a wrong one looks like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.suspects import close, dimensions, explain


def compare(
    where: str,
    got: Any,
    want: Any,
    *,
    rtol: float | None = None,
    suspects: Mapping[str, Any] | None = None,
    dtype: bool = True,
) -> Diagnosis:
    """What is wrong with `got`, where `want` is right: arrays, numbers, strings, None, or tuples and dicts of them.

    rtol : how far numbers may be apart, relative to the largest of `want`; 1e-9 in float64 and 1e-4 in float32 by
    default, a million roundings in either.  suspects : {what it looks like: the wrong result}.  dtype : whether float32
    must stay it.

    >>> print(compare("kernel", np.array([2.0, 4.0]), np.array([1.0, 2.0])))
    kernel: right but for a factor 2
    >>> print(compare("kernel", np.array([1.0, 5.0]), np.array([1.0, 2.0]), suspects={"no bias": np.array([1.0, 5.0])}))
    kernel: it looks like this: no bias
    """
    if isinstance(want, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(want):
            return _one(where, "wrong kind", f"expected {len(want)} results, got {_kind(got)}")
        parts = [
            compare(f"{where}[{i}]", g, w, rtol=rtol, suspects=_part(suspects, i), dtype=dtype)
            for i, (g, w) in enumerate(zip(got, want, strict=True))
        ]
        return Diagnosis(tuple(finding for part in parts for finding in part.findings))
    if isinstance(want, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(want):
            return _one(where, "wrong kind", f"expected the keys {sorted(want)}, got {_kind(got)}")
        parts = [
            compare(f"{where}[{k!r}]", got[k], want[k], rtol=rtol, suspects=_part(suspects, k), dtype=dtype)
            for k in want
        ]
        return Diagnosis(tuple(finding for part in parts for finding in part.findings))
    if want is None or isinstance(want, str | bool):
        same = got is want if want is None else bool(np.asarray(got == want).all())
        return Diagnosis() if same else _one(where, "wrong value", f"expected {want!r}, got {_kind(got)}")
    return _numbers(where, got, np.asarray(want), rtol, suspects or {}, dtype)


def _part(suspects: Mapping[str, Any] | None, key: Any) -> dict[str, Any]:
    return {name: wrong[key] for name, wrong in (suspects or {}).items()}


def _one(where: str, cause: str, text: str) -> Diagnosis:
    return Diagnosis((Finding(where, cause, text),))


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"the keys {sorted(value)}" if isinstance(value, Mapping) else repr(value)


def _numbers(
    where: str, got: Any, want: np.ndarray[Any, Any], rtol: float | None, suspects: Mapping[str, Any], dtype: bool
) -> Diagnosis:
    if got is None:
        return _one(where, "nothing", "nothing is returned (None)")
    try:
        a = np.asarray(got)
    except ValueError:
        a = np.asarray(None)
    if a.dtype.kind not in "biufc":
        return _one(where, "wrong kind", f"expected numbers, got {_kind(got)}")
    if a.shape != want.shape:
        turned = " (transposed)" if a.shape == want.shape[::-1] else ""
        return _one(where, "wrong shape", f"expected shape {want.shape}, got {a.shape}{turned}")
    if dtype and want.dtype.kind == "f" and a.dtype.kind == "f" and a.dtype != want.dtype:
        return _one(where, "wrong dtype", f"expected {want.dtype} for {want.dtype} inputs, got {a.dtype}")
    if rtol is None:
        rtol = 1e-4 if want.dtype == np.float32 else 1e-9
    exact = want.astype(np.complex128 if want.dtype.kind == "c" or a.dtype.kind == "c" else np.float64)
    tolerance = rtol * float(np.max(np.abs(exact[np.isfinite(exact)]), initial=np.finfo(np.float64).tiny))
    finite = np.isfinite(exact)
    if np.array_equal(a[~finite], exact[~finite], equal_nan=True) and close(a[finite], exact[finite], tolerance):
        return Diagnosis()
    for name, wrong in suspects.items():
        if np.shape(wrong) == a.shape and close(a[finite], np.asarray(wrong)[finite], tolerance):
            return _one(where, name, f"it looks like this: {name}")
    said = explain(a, exact, tolerance, dimensions({"y": a.shape}, {})) if a.dtype.kind != "c" else None
    return _one(where, *said) if said else _one(where, "unnamed", differs(a, exact))


def differs(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> str:
    """The worst entry, in words."""
    off = np.abs(got - want)
    at = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, -1.0))), off.shape)
    place = f" at {tuple(map(int, at))}" if off.ndim else ""
    return f"expected {want[at]:.6g}, got {got[at]:.6g}{place}, the worst of {int(off.size)}"
