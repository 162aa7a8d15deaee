"""Compare inverse Laplace transforms, computed by contour integrals, with exponentials."""

from __future__ import annotations

import numpy as np

from analytic.curves import contours


def test_an_exponential_is_the_integral_of_its_resolvent() -> None:
    """Check that the inverse transform of F(s) = 1 / (s + a) is f(t) = e^{-a t}, for small and large a t."""
    for t in (1e-3, 1.0, 1e4):
        s, w = contours.laplace(t)
        for a in (0.0, 0.1 / t, 1 / t, 20 / t):
            assert abs(2 * np.sum(w / (s + a)).real - np.exp(-a * t)) < 1e-9
