"""Test activations that are constant beyond their kinks against recorded values, limits, networks and images."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.recursion import clipped as module
from analytic.recursion.closed_forms import closed_form
from analytic.recursion.state import Listing, RowState, Scratch
from minintk.arrays import to_host
from minintk.layers.activation import pointwise
from minintk.more_layers import activations as more
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.golden_clipped import CLIPPED
from tests.kit.montecarlo import assert_mean, inputs, kernels
from tests.kit.replant import replant

Array = Any

ONE, OFF, SKEW = more.Hardtanh(), more.Hardtanh(0.5, 2.0), more.Hardtanh(-0.5, 2.0)


def of_pair(phi: mn.Activation, q: float, q2: float, p: float, r: float | None = None) -> tuple[float, float, float]:
    """Return p', r' and E phi'(u) phi'(u') of one pair at angle a, with p = sin(a/2)^2 and r = cos(a/2)^2."""
    step, i = closed_form(phi), np.zeros(1, dtype=np.int64)
    rows = RowState(np.array([q, q2]), np.zeros(2))
    after, row = step.rows(rows)
    p_r_tau = np.array([p]), np.array([1 - p if r is None else r]), np.ones(1)
    pairs = Listing(Scratch(np, np.dtype(np.float64), 1), i, i + 1, *p_r_tau)
    step.pairs(pairs, row)
    assert pairs.r is not None
    assert pairs.tau is not None
    slope = pairs.tau[0] * np.prod(after.scale / rows.scale)
    return float(pairs.p[0]), float(pairs.r[0]), float(slope)


def law_of_digits() -> None:
    """In each case of CLIPPED, the error of a value v (p', r' or the slope) is below 2e-14 v + 2e-16 sqrt(v)."""
    for phi, q, q2, p, want, slope in CLIPPED:
        found = of_pair(phi, q, q2, p)
        for got, truth in zip(found, (want, 1 - want, slope), strict=True):
            assert abs(got - truth) < 2e-14 * truth + 2e-16 * sqrt(truth), (phi, q, q2, p, found, want, slope)


def test_digits() -> None:
    law_of_digits()


PLANTS = {
    "W without its arctangent": ("owen", "total + xp.where(", "total + 0 * xp.where("),
    "W of another Gaussian": ("owen", "xp.expm1(-y / 2) / y", "xp.expm1(-y) / y"),
    "W: h^2 left out": ("owen", "y = xp.maximum(h * h + ", "y = xp.maximum("),
    "density without 1 / sin^2": ("lag", "(1 + u) ** 2 / 2 * near", "near / 2"),
    "kink of the shorter row at 0": ("lag", "((1 + u) * far / x)", "((1 + u) * near / x)"),
    "weight 1 - cos b": ("lag", "(w * x * x) / (1 + u) ** 2", "(w * x * x) / (1 + u)"),
    "alpha for beta": ("clipped", "(v + v2) / 2 * T", "(v - v2) / 2 * T"),
    "the second W's sign": ("clipped", "(v2, v, high + low)", "(v2, v, low - high)"),
    "kinks with one sign": ("clipped", "v2, both = sign * v2,", "v2, both = v2,"),
    "jumps without 1 / 2 pi": ("clipped", "jump2 / (2 * pi)", "jump2 / 6.28"),
    "slope at opposite pairs": ("clipped", "part + angle, sign * slope", "part + angle, slope"),
    "2p of the slope": ("clipped", "(P * slope", "(p * slope"),
    "T^3 of the lag": ("clipped", "2 * T * square * late", "2 * square * late"),
    "no part of norms": ("clipped", "return part + angle", "return 0 * part + angle"),
    "norms of one variance": ("clipped", "point.phi(xp, sign * s2 * z) * root2", "point.phi(xp, sign * s2 * z) * root"),
    "a quarter of the norms": ("clipped", "total / (4 * sqrt(2 * pi))", "total / (2 * sqrt(2 * pi))"),
    "cosine of the angle": ("clipped", "(1 - square) / (2 * T)", "(1 + square) / (2 * T)"),
}


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_planted_errors_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, right, wrong = PLANTS[name]
    replant(monkeypatch, module, what, right, wrong)
    monkeypatch.setattr("analytic.recursion.closed_forms.clipped", module.clipped)
    with np.errstate(all="ignore"), pytest.raises(AssertionError):
        law_of_digits()


@pytest.mark.parametrize("q", [1e-300, 1e-20, 1e20, 1e300])
@pytest.mark.parametrize("p", [1e-30, 1e-9, 0.3, 0.5, 1.0])
def test_small_variances_are_linear_and_large_ones_steps(q: float, p: float) -> None:
    """For small variances, Hardtanh acts as x and ReLU6 as (|x| + x) / 2.

    For large variances, Hardtanh acts as sign x and ReLU6 as a step of height 6.
    """
    a = 2 * np.arcsin(sqrt(p))
    linear, step = of_pair(ONE, q, q, p), of_pair(more.ReLU6(), q, q, p)
    relu = closed_form(mn.ReLU())
    if q < 1:
        assert linear == pytest.approx((p, 1 - p, 1.0), rel=1e-14, abs=0)
        i = np.zeros(1, dtype=np.int64)
        pairs = Listing(Scratch(np, np.dtype(np.float64), 1), i, i + 1, np.array([p]), np.array([1 - p]), None)
        relu.pairs(pairs, relu.rows(RowState(np.array([q, q]), np.zeros(2)))[1])
        assert step[0] == pytest.approx(pairs.p[0], rel=1e-12)
    elif p * q > 1e12:
        near = max(1e-10, 2 / sqrt(p * q))  # the share of u between the kinks, relative to the angle
        assert linear[0] == pytest.approx(a / pi, rel=near)
        assert step[0] == pytest.approx(a / pi / 2, rel=3 * near)


def test_equal_opposite_and_zero_rows() -> None:
    for q in (1e-200, 0.3, 40.0, 1e200):
        assert of_pair(ONE, q, q, 0.0)[:2] == pytest.approx((0.0, 1.0), rel=1e-14, abs=0)
        assert of_pair(ONE, q, q, 1.0, 0.0)[:2] == pytest.approx((1.0, 0.0), rel=1e-14, abs=0)
        assert of_pair(more.Hardsigmoid(), q, q, 0.0)[:2] == (0.0, 1.0)
    assert of_pair(ONE, 1e-300, 1e300, 0.5)[0] == pytest.approx(0.5, rel=1e-13)  # x paired with sign x
    assert of_pair(ONE, 1e-300, 1e300, 0.0)[0] == pytest.approx((1 - sqrt(2 / pi)) / 2, rel=1e-13)
    assert of_pair(more.ReLU6(), 0.0, 0.0, 0.3)[2] == 0.0  # phi'(0) = 0
    assert of_pair(ONE, 0.0, 0.0, 0.3)[2] == pytest.approx(1.0, rel=1e-14)
    assert of_pair(more.Hardsigmoid(), 0.0, 4.0, 0.5)[0] > 0


def spec(phi: mn.Activation, width: int = 40) -> mn.Sequential:
    return mn.Sequential(*[mn.Dense(width, w_std=2.0, b_std=0.4), phi] * 2, mn.Dense(1))


@pytest.mark.parametrize("phi", [more.Hardtanh(-0.5, 1.0), more.Hardsigmoid()], ids=str)
def test_networks_have_the_kernels_on_average(phi: mn.Activation) -> None:
    """With one hidden layer, the mean kernel does not depend on the width. Kernels 30 % larger fail the check."""
    one, x = mn.Sequential(mn.Dense(30, w_std=2.0, b_std=0.4), phi, mn.Dense(1)), inputs()
    upper = np.triu_indices(len(x))
    samples = kernels(one, x, 2000)
    for name, seen, k in zip(("NNGP", "NTK"), samples, an.kernel(one).both(x), strict=True):
        assert_mean(name, seen, k[upper])
        with pytest.raises(AssertionError, match=name):
            assert_mean(name, seen, 1.3 * k[upper])


def test_blocks_listings_images_and_float32_agree() -> None:
    x = np.random.default_rng(0).standard_normal((70, 6))
    x[1], x[2], x[3] = x[0], -x[0], x[0] * (1 + 1e-9)
    k = an.kernel(spec(SKEW))
    K, Theta = k.both(x)
    assert k.error(x) < 1e-13
    np.testing.assert_allclose(k.diag(x), [K.diagonal(), Theta.diagonal()], rtol=1e-13)
    few = k.both(x[:4])
    for all_rows, first in zip((K, Theta), few, strict=True):
        np.testing.assert_allclose(all_rows[:4, :4], first, rtol=1e-13)
    for one, half in zip((K, Theta), k.both(x.astype(np.float32)), strict=True):
        np.testing.assert_allclose(half, one, atol=2e-6 * one.max())
    conv = mn.Conv2d(4, 1, w_std=2.0, b_std=0.4)
    pixels = an.kernel(mn.Sequential(conv, SKEW, conv, SKEW, mn.Flatten(), mn.Dense(1)))
    for one, image in zip((K, Theta), pixels.both(x[:9, None, None]), strict=True):
        np.testing.assert_allclose(image, one[:9, :9], rtol=1e-9)


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_libraries(library: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 3))
    k, xp = an.kernel(spec(OFF)), namespace(library)
    for got, want in zip(k.both(xp.asarray(x)), k.both(x), strict=True):
        np.testing.assert_allclose(to_host(got), want, rtol=1e-13)


def test_hardswish_and_activations_without_the_mark_go_by_quadrature() -> None:
    assert not pointwise(more.Hardswish()).clipped
    assert type(closed_form(more.Hardswish())).__name__ == "Quadrature"
    assert type(closed_form(ONE)).__name__ == "ClosedForm"
