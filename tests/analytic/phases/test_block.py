"""Test the detection of the block that a network repeats."""

from __future__ import annotations

import pytest

import analytic as an
import minintk as mn
from analytic.phases.block import repeated

D, T = mn.Dense(8), mn.Tanh()


def test_what_repeats() -> None:
    block, residual = mn.Sequential(T, D), mn.Residual(mn.Sequential(T, D))
    for spec in (
        mn.Sequential(D, T), mn.Sequential(D, T, D), mn.Sequential(mn.Dense(9, b_std=1.0), D, T, D, T, D, T, D),
        mn.Sequential(mn.Sequential(D, T), mn.Sequential(D, T)),
    ):  # fmt: skip
        assert repeated(spec) == block
    assert repeated(mn.Sequential(D, residual, residual, residual, D)) == mn.Sequential(residual)
    both = mn.Sequential(mn.Residual(mn.Sequential(mn.LayerNorm(), D)), residual)
    assert repeated(mn.Sequential(D, *both.layers * 3, D)) == both


def test_equal_pixels_are_vectors() -> None:
    """On equal pixels, a circular convolution and softmax attention act as Dense layers."""
    image = mn.Sequential(mn.Conv2d(8, w_std=1.5, b_std=0.3, padding="circular"), T)
    found, want = an.phase(image), an.phase(mn.Sequential(mn.Dense(8, w_std=1.5, b_std=0.3), T))
    assert (found.q, found.c, found.xi) == (want.q, want.c, want.xi)
    found = an.phase(mn.Sequential(mn.GlobalSelfAttention(8, w_std=1.5, b_std=0.3), T))
    assert (found.q, found.chi_1) == pytest.approx((want.q, want.chi_1), rel=1e-12)
