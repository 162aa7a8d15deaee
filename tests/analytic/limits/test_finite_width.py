"""Test moments of finite networks at initialisation with z-scores over networks. Wrong formulas must be detected."""

from __future__ import annotations

from functools import cache
from math import exp

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.limits import finite_width
from analytic.limits.finite_width import FiniteWidth
from tests.kit.montecarlo import assert_mean, kernels

X = np.array([[1.0, -2.0, 0.5]])
X *= (3 / (X**2).sum()) ** 0.5  # |x|^2 = d

NETWORKS = {
    "one layer": (mn.ReLU(), (7,)),
    "two layers": (mn.ReLU(), (5, 9)),
    "three layers": (mn.ReLU(), (6, 3, 8)),
    "LeakyReLU": (mn.LeakyReLU(0.3), (4, 5)),
    "Abs": (mn.Abs(), (4, 3)),
    "linear": (mn.Identity(), (4, 6, 5)),
}


def spec(phi: mn.spec.Layer, widths: tuple[int, ...]) -> mn.Sequential:
    layers = [layer for i, n in enumerate(widths) for layer in (mn.Dense(n, w_std=1.2 + 0.1 * i), phi)]
    return mn.Sequential(*layers, mn.Dense(1, w_std=0.9))


@cache
def drawn(net: mn.Sequential, members: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return f^2 and hatTheta of random networks. Correct and wrong claims use the same draws."""
    squares, thetas = kernels(net, X, members, seed)
    return squares[:, 0], thetas[:, 0]


def moments_law(net: mn.Sequential, claimed: FiniteWidth, members: int = 40_000, seed: int = 0) -> None:
    """Check that the means of hatTheta, (hatTheta - Theta)^2, f^2 and f^4 over networks equal the claimed moments."""
    squares, thetas = drawn(net, members, seed)
    assert_mean("E hatTheta", thetas, np.array(claimed.ntk))
    assert_mean("Var hatTheta", (thetas - claimed.ntk) ** 2, np.array(claimed.variance))
    assert_mean("E f^2", squares, np.array(claimed.nngp))
    assert_mean("E f^4", squares**2, np.array(3 * claimed.kurtosis * claimed.nngp**2))


@pytest.mark.parametrize("name", NETWORKS)
def test_moments_are_exact_at_every_width(name: str) -> None:
    net = spec(*NETWORKS[name])
    found = an.finite_width(net)
    moments_law(net, found)
    assert found.ntk == pytest.approx(an.kernel(net).ntk(X)[0, 0], rel=1e-13)
    assert found.nngp == pytest.approx(an.kernel(net).nngp(X)[0, 0], rel=1e-13)


def test_n_times_the_variance_of_one_layer_is_three() -> None:
    """n Var hatTheta / Theta^2 is 3 for ReLU and 1 for linear layers, whose hatTheta is a mean of 2n squares."""
    for n in (1, 2, 10, 10_000):
        assert n * an.finite_width(spec(mn.ReLU(), (n,))).relative == pytest.approx(3, rel=1e-10)
        assert n * an.finite_width(spec(mn.Identity(), (n,))).relative == pytest.approx(1, rel=1e-10)


def test_a_wrong_variance_is_refused() -> None:
    """Negative controls: the law fails if n Var hatTheta / Theta^2 is 2 or 4 instead of 3."""
    net = spec(mn.ReLU(), (7,))
    right = an.finite_width(net)
    for wrong in (2 / 7, 4 / 7):
        claim = FiniteWidth(right.nngp, right.kurtosis, right.ntk, wrong * right.ntk**2)
        with pytest.raises(AssertionError, match="Var hatTheta: z ="):
            moments_law(net, claim)


@pytest.mark.parametrize("name", ["two layers", "three layers"])
def test_a_wrong_recursion_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law fails if the moment E g^4 = 3 is missing in E (sum d^2 g^2)^2, or if a 3 is inserted in E (sum d^2)^2."""
    net = spec(*NETWORKS[name])
    for attribute, own in (("fourth", 1), ("square", 3)):  # in place of 3 and 1
        with monkeypatch.context() as patch:

            def wrong(h: finite_width._Hidden, own: int = own) -> float:
                return own * h.n * h.m4 + h.n * (h.n - 1) * h.m2**2

            patch.setattr(finite_width._Hidden, attribute, property(wrong))
            claim = an.finite_width(net)
        with pytest.raises(AssertionError, match=r"z ="):
            moments_law(net, claim)


@pytest.mark.parametrize(("phi", "gate"), [(mn.ReLU(), 2.0), (mn.Identity(), 1.0)])
def test_deep_and_wide_networks_tend_to_the_closed_form(phi: mn.spec.Layer, gate: float) -> None:
    """At a fixed ratio beta = depth / width, the distance from the closed form falls as 1 / width.

    The factor e^((3 gate - 1) beta), with gate 2 for ReLU and 1 for linear networks, is not the limit.
    """
    for beta in (0.125, 0.5, 1.0):
        limit, off = an.depth_over_width(beta, gate), []
        for n in (128, 256):
            depth = int(beta * n)
            net = mn.Sequential(*[mn.Dense(n, w_std=2**0.5), phi] * depth, mn.Dense(1))
            off.append((1 + an.finite_width(net).relative) / limit - 1)
        assert off[0] / off[1] == pytest.approx(2, rel=0.06)
        assert abs(off[1]) < 0.05
        assert exp((3 * gate - 1) * beta) / limit > 1.05


def test_small_and_continuous() -> None:
    """The formula is 1 at beta = 0 and has no jump where the closed form replaces the series."""
    assert an.depth_over_width(0.0) == 1
    beta = 1e-4 / 6
    below, above = an.depth_over_width(beta * (1 - 1e-9)), an.depth_over_width(beta * (1 + 1e-9))
    assert below == pytest.approx(above, rel=1e-8)


def test_errors() -> None:
    with pytest.raises(mn.UnsupportedLayer, match="finite_width is exact for"):
        an.finite_width(mn.Sequential(mn.Dense(3, b_std=0.1), mn.ReLU(), mn.Dense(1)))
    with pytest.raises(mn.UnsupportedLayer, match=r"got Sequential\(.*Tanh"):
        an.finite_width(mn.Sequential(mn.Dense(3), mn.Tanh(), mn.Dense(1)))
    with pytest.raises(ValueError, match="no activation at the end"):
        an.finite_width(mn.Sequential(mn.Dense(3), mn.ReLU()))
    with pytest.raises(ValueError, match="beta >= 0"):
        an.depth_over_width(-1.0)
