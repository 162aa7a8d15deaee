"""Compute the times at which the loss is halved and at which it reaches zero, as in Geiger et al. 2020, section 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from minintk.arrays import Array, check_finite, check_floating, to_host


def t1(t: Array, loss: Array) -> Any:
    """Return the first time at which the loss has halved: () or (E,), on the host; inf if it does not halve.

    t : (T,), increasing.  loss : (T,) or (T, E).  The loss is interpolated linearly between the given times.  For the
    alpha-scaled hinge loss of a centred model, alpha^2 L(t1) = 1/2, as in Geiger et al. 2020 (figure 3).

    >>> float(t1(np.array([0.0, 1.0, 2.0]), np.array([4.0, 3.0, 1.0])))
    1.5
    """
    t, loss = _curve(t, loss)
    if np.any(loss[0] <= 0):
        raise ValueError(f"t1 expects a loss that starts above 0, got {loss[0].min():g}")
    level = loss[0] / 2
    below = loss <= level
    i = np.maximum(np.argmax(below, axis=0), 1)
    before, after = (np.take_along_axis(loss, (i - s)[None], axis=0)[0] for s in (1, 0))
    drop = np.where(before > after, before - after, 1.0)
    at = t[i - 1] + (t[i] - t[i - 1]) * (before - level) / drop
    return np.where(np.any(below, axis=0), at, np.inf)


def t2(t: Array, loss: Array) -> Any:
    """Return the first of the times `t` at which the loss is zero: () or (E,), on the host; inf if there is none.

    t : (T,), increasing.  loss : (T,) or (T, E).  The hinge loss can reach zero in finite time, unlike the squared
    loss and cross-entropy.  The result is an element of t and is not interpolated, as the loss is not linear near zero.

    >>> float(t2(np.array([0.0, 1.0, 2.0]), np.array([4.0, 0.0, 0.0])))
    1.0
    """
    t, loss = _curve(t, loss)
    reached = loss <= 0
    first = np.argmax(reached, axis=0)
    return np.where(np.any(reached, axis=0), t[first], np.inf)


def _curve(t: Array, loss: Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Check t : (T,) and loss : (T, ...), and return them in float64 on the host."""
    for name, a in (("t", t), ("loss", loss)):
        check_floating(name, a)
        check_finite(name, a)
    times, values = (to_host(a).astype(np.float64) for a in (t, loss))
    if times.ndim != 1 or len(times) < 2 or values.ndim not in (1, 2) or len(values) != len(times):
        raise ValueError(f"expected t (T,) and loss (T,) or (T, E), T >= 2, got {times.shape} and {values.shape}")
    if not np.all(np.diff(times) > 0):
        raise ValueError("t expects increasing times")
    return times, values
