"""Check the range of inputs and variances, and raise a clear error outside it.

Variances q = E u^2 are stored in float64 for any precision of the inputs.  At every layer, they must lie between
SMALLEST_VARIANCE and LARGEST_VARIANCE.  If layers preserve variances' order of magnitude, |x| / sqrt(d) can range from
1e-153 to 1e153.  Rows of zeros are treated separately.  If the first layer has a random bias, rows below this range are
treated as zero.  A result must lie within the range of the inputs' dtype; in float32, K and Theta can be at most 3e38.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, isnan
from typing import Any

import numpy as np

from analytic.recursion.requests import Examples
from analytic.recursion.state import Program, RowState
from minintk.arrays import Array

SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-306, 1e306

FLOAT32_VARIANCES = 1e-30, 1e30
"""For variances in this range, float32 can hold products and quotients of two rows' numbers."""

SPREAD = 8.0
"""Variances that differ by at most this many roundings of the inputs count as equal (normalised rows: up to 6)."""


def rows_in_range(program: Program, inputs: Examples, norms2: Array) -> tuple[RowState, tuple[Any, ...], bool]:
    """Return the rows after all steps, each step's coefficients, and True if pairs can use the inputs' precision.

    norms2 : |x|^2 of the rows of x1 and x2, (N + M,), or only of x1, (N,), if x2 is x1.   Errors: see `check_step`.
    """
    xp, d = inputs.xp, max(1, inputs.x[0].size // max(1, inputs.x[0].shape[0]))
    rows = RowState(norms2 / d, xp.zeros_like(norms2), spread=SPREAD * float(xp.finfo(inputs.dtype).eps))
    if not rows.ends[1] <= LARGEST_VARIANCE or (not program and rows.ends[0] < SMALLEST_VARIANCE):
        check_step(inputs, rows.q, rows.q, rows.theta, "", small=SMALLEST_VARIANCE if not program else 0.0)
    coefficients, fits = [], True
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # `check_step` reports these
        for k, step in enumerate(program, start=1):
            after, row = step.rows(rows)
            low, high = after.ends
            if not SMALLEST_VARIANCE <= low <= high <= LARGEST_VARIANCE or not isfinite(float(after.theta.max())):
                check_step(inputs, rows.q, after.q, after.theta, f" after step {k} of {len(program)}")
            coefficients.append(row)
            rows = after if after.spread else replace(after, spread=rows.spread)  # user-defined steps can drop spread
            low = float(xp.where(rows.q > 0, rows.q, 1.0).min()) if rows.has_zero_rows else low
            fits = fits and FLOAT32_VARIANCES[0] <= low and high <= FLOAT32_VARIANCES[1]
    return rows, tuple(coefficients), fits or inputs.dtype.itemsize == 8


def check_step(
    inputs: Examples, before: Array, q: Array, theta: Array, where: str, small: float = SMALLEST_VARIANCE
) -> None:
    """Raise ValueError, naming the example, if a row's variance leaves the range or its Theta is not finite."""
    xp = inputs.xp
    bad = ~(q <= LARGEST_VARIANCE) | ~xp.isfinite(theta) | ((before > 0) & (q < small))
    if bool(xp.any(bad)):
        n = int(xp.argmax(bad))
        what = "Theta" if small <= float(q[n]) <= LARGEST_VARIANCE else "variance"
        value = float(theta[n] if what == "Theta" else q[n])
        raise ValueError(  # NaN comes from infinity times 0, or from E phi^2 if phi grows too fast
            f"{inputs.called(n)} is out of range: its {what} is {inf if isnan(value) else value:.3g}{where}, and "
            f"kernels are computed for variances from {small or SMALLEST_VARIANCE:g} to {LARGEST_VARIANCE:g}, or for "
            "rows of zeros, at every layer (|x|^2 / d at the first): scale the example, or w_std, or leave it out"
        )


def check_results(inputs: Examples, q: Array, theta: Array) -> None:
    """Raise ValueError, naming the examples, if K or Theta of a pair may exceed the range of the inputs' dtype.

    q, theta : K(x, x) and Theta(x, x), or bounds on them, for all rows.  By Cauchy-Schwarz, K(x, x') <= sqrt(q q').
    """
    xp, N, largest = inputs.xp, inputs.shape[0], float(inputs.xp.finfo(inputs.dtype).max)
    for name, own in (("K", q), ("Theta", theta)):
        if float(own.max()) <= largest * (1 - 1e-6):
            continue
        rows, columns = own[:N], own if inputs.symmetric else own[N:]
        i, j = int(xp.argmax(rows)), int(xp.argmax(columns))
        bound = float(rows[i]) ** 0.5 * float(columns[j]) ** 0.5
        if bound > largest * (1 - 1e-6):
            pair = inputs.called(i) + ("" if inputs.symmetric else f" and {inputs.called(N + j)}")
            raise ValueError(
                f"{pair}: {name} may be as large as {bound:.3g}, and {inputs.dtype} ends at {largest:.3g}: scale the "
                f"inputs down{', or take float64' if largest < 1e300 else ''}"
            )
