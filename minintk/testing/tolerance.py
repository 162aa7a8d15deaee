"""How far two results may be apart: by what the roundings on the way add up to, and no more.

Tolerances are derived, not chosen.  With eps the spacing of floating-point numbers at 1, and m = 4 (sum of all layer
sizes + N + 8) the number of roundings on a path through the network and back, a result is off by at most m eps times
the size of what was added up to get it: |u| |J| |v| for <u, J v>, |J_n| |J_m| for an entry of J J', |f| + |J| |theta|
for f.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minintk.arrays import Array
from minintk.models.network import Model


def roundings(model: Model, theta: Array, x: Array) -> float:
    """m eps, the relative error that the roundings along a path through the network and back add up to (see above).

    >>> import minintk as mn
    >>> net, x = mn.Network(mn.Dense(2), (3,)), np.ones((4, 3))             # layer sizes 3 and 2
    >>> round(roundings(net, net.init(np.random.default_rng(0)), x) / 2**-52)
    68
    """
    return float(4 * (model.footprint[0] + x.shape[0] + 8) * np.finfo(str(theta.dtype)).eps)


def assert_close(law: str, got: Any, want: Any, tolerance: Any) -> None:
    """AssertionError unless |got - want| <= tolerance everywhere, with the worst place; NaN is never close.

    >>> assert_close("1 + 1 = 2", np.array([1.0, 3.0]), np.array([1.0, 2.0]), 1e-15)
    Traceback (most recent call last):
        ...
    AssertionError: 1 + 1 = 2: 3 against 2 at (1,), off by 1, rounding explains 1e-15
    """
    assert_shape(law, np.asarray(got), np.shape(want))
    off = np.atleast_1d(np.abs(got - want))
    excess = np.atleast_1d(off - tolerance - np.finfo(np.result_type(got, np.float32)).tiny)  # products may underflow
    if off.size and not bool((excess <= 0).all()):
        at = np.unravel_index(int(np.argmax(np.where(np.isnan(excess), np.inf, excess))), off.shape)
        a, b, t = (float(np.broadcast_to(k, off.shape)[at]) for k in (got, want, tolerance))
        where = f" at {tuple(int(i) for i in at)}" if off.size > 1 else ""
        raise AssertionError(
            f"{law}: {a:.10g} against {b:.10g}{where}, off by {abs(a - b):.2g}, rounding explains {t:.1g}"
        )


def assert_shape(law: str, a: Any, want: tuple[int, ...]) -> None:
    """AssertionError unless a has the shape."""
    if a.shape != want:
        raise AssertionError(f"{law}: expected shape {want}, got {a.shape}")
