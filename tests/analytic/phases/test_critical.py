"""Test the edge of chaos, and the phases on either side of it."""

from __future__ import annotations

from math import pi
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.kernels import DEFAULT_PARAMETRIZATION
from analytic.phases.critical import LARGEST, SMALLEST, Edge
from analytic.phases.maps import Maps
from analytic.recursion import steep
from analytic.recursion.rules import lower
from minintk.spec.shapes import Site

RELU = lower(mn.ReLU(), Site((1,), first=False), DEFAULT_PARAMETRIZATION)


@pytest.mark.parametrize("activation", [mn.Tanh(), mn.Erf(), mn.Sin(), mn.Gaussian()], ids=repr)
def test_phases_on_either_side(activation: mn.spec.Activation) -> None:
    at = an.critical(activation, b_std=0.3)
    found = [an.phase(mn.Sequential(mn.Dense(8, w_std=w * at.w_std, b_std=0.3), activation)) for w in (0.9, 1.0, 1.1)]
    assert [one.name for one in found] == ["ordered", "critical", "chaotic"]
    assert found[1].q == pytest.approx(at.q, rel=1e-11)
    assert found[0].c == 1 > found[2].c


def test_a_point_by_its_variance() -> None:
    at = an.critical(mn.Tanh(), q=0.5)
    assert an.critical(mn.Tanh(), b_std=at.b_std).q == pytest.approx(0.5, rel=1e-11)
    assert an.critical(mn.Erf()).w_std ** 2 == pytest.approx(pi / 4)  # 1 / erf'(0)^2


@pytest.mark.parametrize("q", [SMALLEST * 1.01, 1.0, LARGEST * 0.9, LARGEST * 0.99])
def test_the_whole_range_is_searched(q: float) -> None:
    assert list(Edge(Maps(RELU)).roots(lambda other: other - q)) == pytest.approx([q], rel=1e-12)


def gelu(u: Any) -> tuple[Any, Any, Any]:
    """Return GELU and its first and second derivatives at u."""
    return u * mp.ncdf(u), mp.ncdf(u) + u * mp.npdf(u), (2 - u * u) * mp.npdf(u)


def swish(u: Any) -> tuple[Any, Any, Any]:
    """Return Swish and its first and second derivatives at u."""
    p = 1 / (1 + mp.exp(-u))
    return u * p, p + u * p * (1 - p), p * (1 - p) * (2 + u * (1 - 2 * p))


@pytest.mark.parametrize(
    ("activation", "phi", "near", "per_unit"),
    [
        pytest.param(mn.GELU(), gelu, 3.56, 8, id="GELU"),
        pytest.param(mn.Swish(), swish, 14.3, 32, id="Swish"),
    ],
)
def test_points_where_variances_keep_in_40_digits(
    activation: mn.spec.Activation, phi: Any, near: float, per_unit: int
) -> None:
    """Compare the critical points at which E phi phi'' = 0, so that dQ/dq = chi_1, with 40-digit values.

    At these points, w^2 = 1 / E phi'^2 and b^2 = q - E phi^2 / E phi'^2. The error of the trapezoid rule falls
    exponentially with the number of nodes per unit of z, because phi has no pole near the real axis.
    """
    with mp.workdps(40):
        nodes = [
            (z, mp.npdf(z) / per_unit) for z in (mp.mpf(n) / per_unit for n in range(-15 * per_unit, 15 * per_unit))
        ]

        def mean(f: Any, q: Any) -> Any:
            return mp.fsum(w * f(*phi(mp.sqrt(q) * z)) for z, w in nodes)

        q = mp.findroot(lambda q: mean(lambda f, d, dd: f * dd, q), (near, near + 0.01), tol=1e-30)
        V, D = mean(lambda f, d, dd: f * f, q), mean(lambda f, d, dd: d * d, q)
        want = [float(value) for value in (1 / D, q - V / D, q)]
    w_std, b_std, q_here = an.critical(activation)
    assert [w_std**2, b_std**2, q_here] == pytest.approx(want, rel=1e-12)


def test_variances_alone_compute_no_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a critical point visits variances up to 1e6, without preparing coefficients for pairs."""
    monkeypatch.setattr(steep, "coefficients", None)
    assert an.critical(mn.Tanh()) == pytest.approx((1.0, 0.0, 0.0))
    near = 2**0.5 * np.array([[1.0, 0.0], [np.cos(1e-3), np.sin(1e-3)]])
    with pytest.raises(TypeError, match="not callable"):  # control: pairs do need them
        an.kernel(mn.Sequential(mn.Dense(1, w_std=30.0), mn.Tanh(), mn.Dense(1))).nngp(near)


@pytest.mark.parametrize("activation", [mn.GELU(), mn.Swish()], ids=repr)
def test_without_bias_the_variances_of_gelu_networks_grow(activation: Any) -> None:
    """At chi_1 = 1 for q -> 0, b_std = 0 and GELU or Swish, q = 0 repels, so there is no stable point."""
    with pytest.raises(ValueError, match="no stable variance on the edge of chaos with b_std = 0"):
        an.critical(activation, b_std=0.0)
    spec = mn.Sequential(mn.Dense(9, w_std=2.0), activation)
    assert an.phase(spec, start=1e-3).name == "unbounded"
    for stable in (mn.Tanh(), mn.Erf(), mn.ReLU()):
        assert an.critical(stable, b_std=0.0).b_std == 0
