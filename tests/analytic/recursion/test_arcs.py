"""Test the polynomials P and R, which give angles, against 50-digit values."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from analytic.recursion.arcs import arc_series


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_polynomials_are_exact_to_rounding(dtype: type) -> None:
    """The series equal P and R, where a / 2 = sqrt(p) P, a cos a - sin a = 2 p sqrt(p) R and p = sin(a/2)^2."""
    eps = float(np.finfo(dtype).eps)
    for p in np.linspace(0.002, 0.5, 250):
        with mp.workdps(50):
            root = mp.sqrt(mp.mpf(float(p)))
            a = 2 * mp.asin(root)
            want = float(a / 2 / root), float((a * mp.cos(a) - mp.sin(a)) / (2 * root**3))
        for series, value in zip(arc_series(np.dtype(dtype)), want, strict=True):
            found = np.polyval(np.array(series), dtype(4 * p - 1))
            assert abs(float(found) - value) < 4 * eps * abs(value)
