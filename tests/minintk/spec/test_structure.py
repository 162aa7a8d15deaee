"""Test finite networks with layers that combine other layers, scale features or mask features."""

from __future__ import annotations

import numpy as np

import minintk as mn


def test_dropout_at_rate_zero_masks_nothing() -> None:
    """Rates are in [0, 1). At rate 0, every mask is 1."""
    rng, x = np.random.default_rng(0), np.arange(1.0, 7.0).reshape(2, 3)
    masked = mn.Network(mn.Sequential(mn.Dropout(0.0)), (3,)).with_dropout(rng)
    assert np.array_equal(masked(np.zeros(0), x), x)
