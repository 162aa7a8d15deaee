"""Compare a result with the correct one, and describe any error with a sentence and the name of the mistake.

Kind, shape, dtype and NaN are checked before the values.  Wrong values are compared with those of known mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minintk.grade.suspects import Said, Values, close, dimensions, explain, misshapen, place


@dataclass(frozen=True)
class Finding:
    """One error: its location ("dW", "forward"), the name of its cause ("unnamed" if none fits), and a sentence."""

    where: str
    cause: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class Diagnosis:
    """All errors that a check found.  bool(diagnosis) is True if there are errors.

    >>> said = Diagnosis((Finding("db", "sign", "right but for the sign"),))
    >>> said.passed, str(said), said.causes
    (False, 'db: right but for the sign', {'db': 'sign'})
    """

    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """True if the check found no error."""
        return not self.findings

    @property
    def causes(self) -> dict[str, str]:
        """Return {location: the first cause found there}."""
        return {finding.where: finding.cause for finding in reversed(self.findings)}

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "passed"


def compare(
    where: str,
    got: Any,
    want: Any,
    *,
    rtol: float | None = None,
    suspects: Mapping[str, Any] | None = None,
    dtype: bool = True,
) -> Diagnosis:
    """Compare `got` with the correct result `want`: arrays, numbers, strings, None, or tuples and dicts of them.

    rtol : the tolerance for numbers, relative to the largest magnitude in `want`.  Defaults to 1e-9 in float64 and
    1e-4 in float32, well above rounding errors.  suspects : {description of a mistake: the wrong result}.
    dtype : True if floating-point arrays and numbers in `got` must have the dtype of those in `want`.

    >>> print(compare("kernel", np.array([1.0, 5.0]), np.array([1.0, 2.0]), suspects={"no bias": np.array([1.0, 5.0])}))
    kernel: it looks like this: no bias
    """
    wrong, wanted = suspects or {}, _parts(want)
    if wanted is not None:
        found = _parts(got)
        if found is None or found.keys() != wanted.keys():
            return Diagnosis((Finding(where, "wrong kind", f"expected {_kind(want)}, got {_kind(got):.200}"),))
        given, right = ([getattr(some[k], "shape", None) for k in wanted] for some in (found, wanted))
        if None not in given and given != right and Counter(given) == Counter(right):
            text = f"expected shapes {', '.join(map(str, right))}, got {', '.join(map(str, given))}: another order"
            return Diagnosis((Finding(where, "swapped", text),))
        findings: tuple[Finding, ...] = ()
        for k, part in wanted.items():
            others = {name: some[k] for name, some in wrong.items()}
            findings += compare(f"{where}[{k!r}]", found[k], part, rtol=rtol, dtype=dtype, suspects=others).findings
        if 1 < len(findings) == len(wanted) and len(told := {(one.cause, one.text) for one in findings}) == 1:
            findings = (Finding(where, *told.pop()),)  # all parts have the same error
        return Diagnosis(findings)
    if want is None or isinstance(want, str | bool):
        same = got is want if want is None else np.ndim(got) == 0 and bool(got == want)
        said = None if same else ("wrong value", f"expected {want!r}, got {_kind(got):.200}")
    else:
        said = _numbers(got, np.asarray(want), rtol, wrong, dtype)
    return Diagnosis((Finding(where, *said),) if said else ())


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return {index or key: value} for tuples, lists and dicts, and None for other values."""
    if isinstance(value, Mapping):
        return dict(value)
    return dict(enumerate(value)) if isinstance(value, tuple | list) else None


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"{len(value)} results"
    return f"the keys {sorted(value)}" if isinstance(value, Mapping) else repr(getattr(value, "item", lambda: value)())


def _numbers(got: Any, want: Values, rtol: float | None, suspects: Mapping[str, Any], dtype: bool) -> Said | None:
    exact = want.astype(np.float64)
    if said := misshapen(got, exact):
        return said
    a = np.asarray(got)
    if dtype and want.dtype.kind == a.dtype.kind == "f" and a.dtype != want.dtype:
        return "wrong dtype", f"expected {want.dtype} for {want.dtype} inputs, got {a.dtype}"
    rtol = rtol or (1e-4 if want.dtype == np.float32 else 1e-9)
    finite = np.isfinite(exact)
    tolerance = rtol * float(np.max(np.abs(exact[finite]), initial=np.finfo(np.float64).tiny))
    if np.array_equal(a[~finite], exact[~finite], equal_nan=True) and close(a[finite], exact[finite], tolerance):
        return None
    for name, wrong in suspects.items():
        if np.shape(wrong) == a.shape and close(a[finite], np.asarray(wrong)[finite], tolerance):
            return name, f"it looks like this: {name}"
    return explain(a, exact, tolerance, dimensions({"y": a.shape}, {})) or ("unnamed", differs(a, exact))


def differs(got: Values, want: Values, lead: int = 0) -> str:
    """Describe in words the entry with the largest error.  lead : the number of output axes of a derivative."""
    off = np.abs(got - want)
    at = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, -1.0))), off.shape)
    rough = float(off[at]) / (float(np.abs(want).max()) or 1.0)
    digits = max(6, min(17, int(-np.log10(rough)) + 3)) if 0 < rough < np.inf else 6
    said = f"expected {want[at]:.{digits}g}, got {got[at]:.{digits}g}"
    if rough < 1e-5:
        said = f"agrees to {int(-np.log10(rough or 1e-17))} digits: float32 somewhere? {said}"
    return f"{said} {place(tuple(map(int, at)), lead)}, the worst of {int(off.size)}" if off.ndim else said
