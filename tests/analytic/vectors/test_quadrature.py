"""Quadratures, piece by piece: against integrals on finer panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analytic.vectors.quadrature import axis, mean_square, mismatch
from analytic.vectors.state import distances_between, largest_square

Array = np.ndarray[Any, Any]


def distances(s: Array) -> Array:
    """E (tanh(s_i z) / sqrt v_i - tanh(s_j z) / sqrt v_j)^2 of all pairs, on one axis for all."""
    z, w = axis(np, s, (), nodes=40)
    y = np.tanh(s[:, None] * z)
    y /= np.sqrt((y**2 * w).sum(axis=1))[:, None]
    return ((y[:, None] - y) ** 2 * w).sum(axis=-1)


@pytest.mark.parametrize("s", [[0.5, 0.6, 3.0], [1.0, 1.001, 1.002, 1.01], [1e-3, 1.0, 2.0, 400.0]])
def test_the_curve_of_norms_keeps_the_distances(s: list[float]) -> None:
    """Whatever the order of the norms, and however uneven they lie between the smallest and the largest."""
    scales = np.array(s)
    found = mismatch(np.tanh, scales, lambda s: mean_square(np.tanh, s))
    assert found is not None
    got = ((found.y[:, None] - found.y) ** 2).sum(axis=-1)
    np.testing.assert_allclose(got, distances(scales), rtol=0, atol=1e-13)
    turned = mismatch(np.tanh, scales[::-1].copy(), lambda s: mean_square(np.tanh, s))
    assert turned is not None
    np.testing.assert_allclose(((turned.y[:, None] - turned.y) ** 2).sum(axis=-1), got[::-1, ::-1], rtol=0, atol=1e-13)


def test_vectors_far_from_the_origin_are_centred_before_their_distances_are_taken() -> None:
    """A product rounds by eps times the largest of their squares, which is then about that of their distances."""
    y = 100 + np.random.default_rng(0).normal(size=(20, 3))
    found = distances_between(np, y)
    want = ((y[:, None] - y) ** 2).sum(axis=-1) / 4
    assert largest_square((found,)) < want.max()
    np.testing.assert_allclose(found.left @ found.right.T, want, rtol=0, atol=1e-14)
