"""Compare activations with hand-computed values at one point. The tests in tests/minintk/spec cover all arguments."""

from __future__ import annotations

from math import e, sqrt

import numpy as np

import minintk as mn
from minintk.layers.activation import pointwise


def test_values_and_slopes_at_two() -> None:
    """For activations with parameters, phi(2) and phi'(2) equal hand-computed values."""
    by_hand: dict[mn.spec.Activation, tuple[float, float]] = {
        mn.ABRelu(-0.4, 0.8): (1.6, 0.8),
        mn.RectifiedMonomial(3): (8, 12),
        mn.Polynomial((1, 2, 3)): (1 + 4 + 12, 2 + 12),
        mn.Hermite(3): ((8 - 6) / sqrt(6), (12 - 3) / sqrt(6)),
        mn.Exp(0.7, 0.5): (0.7 * e, 0.35 * e),
        mn.Gaussian(1.2, -0.5): (1.2 / e**2, -2.4 / e**2),
        mn.Sin(1.5, np.pi / 8, np.pi / 4): (1.5, 0),
        mn.Swish(0.5): (2 / (1 + 1 / e), 1 / (1 + 1 / e) + e / (1 + e) ** 2),
        mn.Softplus(0.5, 3.0): (6 * np.log(1 + e), 3 / (1 + 1 / e)),
    }
    for layer, (value, slope) in by_hand.items():
        point, x = pointwise(layer), np.array([2.0])
        found = point.phi(np, x)[0], point.derivative(np, x)[0]
        np.testing.assert_allclose(found, (value, slope), rtol=1e-14, atol=1e-15, err_msg=repr(layer))
