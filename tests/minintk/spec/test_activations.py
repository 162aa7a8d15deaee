"""Compare activations with mpmath and derivatives with high-precision finite differences, also at extreme arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.arrays import array_namespace
from minintk.layers.activation import Pointwise, pointwise
from tests.kit.strategies import ACTIVATIONS, MORE

xp = array_namespace(np.empty(0))

TRUTH: dict[mn.spec.Activation, Callable[[Any], Any]] = {
    mn.ReLU(): lambda x: x if x > 0 else mp.mpf(0),
    mn.LeakyReLU(0.3): lambda x: x if x > 0 else mp.mpf(0.3) * x,
    mn.Abs(): abs,
    mn.Erf(): mp.erf,
    mn.GELU(): lambda x: x * mp.ncdf(x),
    mn.Sin(): mp.sin,
    mn.Tanh(): mp.tanh,
    mn.Sigmoid(): lambda x: 1 / (1 + mp.exp(-x)),
    mn.Softplus(): lambda x: mp.log(1 + mp.exp(x)),
    mn.Softplus(beta=5.0, scale=1.404383): lambda x: mp.mpf(1.404383) / 5 * mp.log(1 + mp.exp(5 * x)),
    mn.Identity(): lambda x: x,
    mn.ABRelu(-0.4, 0.8): lambda x: mp.mpf(0.8) * x if x > 0 else mp.mpf(-0.4) * x,
    mn.RectifiedMonomial(2): lambda x: x**2 if x > 0 else mp.mpf(0),
    mn.Cos(1.3, 0.8, 0.2): lambda x: mp.mpf(1.3) * mp.sin(mp.mpf(0.8) * x + mp.mpf(0.2 + mp.pi / 2)),
    mn.Rbf(0.6): lambda x: mp.mpf(2**0.5) * mp.sin(mp.mpf(1.2**0.5) * x + mp.mpf(float(mp.pi) / 4)),
    mn.Exp(0.7, 0.5): lambda x: mp.mpf(0.7) * mp.exp(mp.mpf(0.5) * x),
    mn.Gaussian(1.2, -0.4): lambda x: mp.mpf(1.2) * mp.exp(mp.mpf(-0.4) * x**2),
    mn.Polynomial((0.3, -0.8, 0.2, 0.1)): lambda x: mp.fsum(
        mp.mpf(c) * x**n for n, c in enumerate((0.3, -0.8, 0.2, 0.1))
    ),
    mn.Hermite(4): lambda x: (x**4 - 6 * x**2 + 3) / mp.sqrt(24),
    mn.Swish(1.5): lambda x: x / (1 + mp.exp(-mp.mpf(1.5) * x)),
}
EPS = float(np.finfo(float).eps)


def test_every_activation_has_a_truth() -> None:
    assert set(TRUTH) == {*ACTIVATIONS, *MORE}
    named = {kind for kind in vars(mn.spec.activations).values() if isinstance(kind, type)}
    named = {kind for kind in named if issubclass(kind, mn.Activation) and is_dataclass(kind)}
    assert {type(phi) for phi in TRUTH} | {mn.Sign} == named | {mn.Identity}


@pytest.mark.parametrize("layer", [*ACTIVATIONS, *MORE], ids=repr)
@given(x=st.floats(-8, 8, allow_subnormal=False))
def test_phi_and_its_derivative(layer: mn.spec.Activation, x: float) -> None:
    """phi and phi' are correct to 20 roundings.

    A rounding is eps |value| plus the change of the value if x changes by eps |x|.
    """
    point = pointwise(layer)
    array = np.array([x])
    if min((abs(x - kink) for kink in point.kinks), default=1.0) < 1e-12:
        return  # derivatives are one-sided there; see below
    with mp.workdps(120):
        phi = TRUTH[layer]
        value = phi(mp.mpf(x))
        h = mp.mpf(10) ** -25
        slope, curve = mp.diff(phi, x, h=h), mp.diff(phi, x, 2, h=h)
        floor = np.finfo(float).tiny
        assert abs(point.phi(xp, array)[0] - value) <= 20 * EPS * (abs(value) + abs(x * slope)) + floor
        # phi' written in y inherits the rounding of y: eps |y| times |dphi'/dy| = |phi'' / phi'|, at most 2 here
        through_y = 2 * EPS if point.keeps == "y" else 0.0
        got = point.derivative(xp, array)[0]
        steps = 1e-45  # finite differences of step h err by about h^2, visible if phi' = 0
        assert abs(got - slope) <= 20 * EPS * (abs(slope) + abs(x * curve)) + 20 * through_y + steps


def derivative_is_right(layer: mn.spec.Activation, point: Pointwise, dtype: Any) -> bool:
    """True if phi and phi' agree with 450-digit values to 20 roundings, for |x| from 1e-30 to 1e5."""
    eps, tiny = float(np.finfo(dtype).eps), 2 * float(np.finfo(dtype).tiny)
    size = np.array([1e-30, 1e-8, 1e-3, 0.7, 5.0, 12.0, 50.0, 104.0, 1e5])
    for x in np.concatenate([size, -size]).astype(dtype):
        if isinstance(layer, mn.Exp) and x > 104:
            continue
        got = [float(a[0]) for a in (point.phi(xp, x[None]), point.derivative(xp, x[None]))]
        with mp.workdps(450):
            X, h = mp.mpf(float(x)), mp.mpf(10) ** -60
            below, value, above = (TRUTH[layer](X + shift) for shift in (-h, mp.mpf(0), h))
            slope, curve = (above - below) / (2 * h), (above - 2 * value + below) / h**2
            room = [20 * eps * (abs(a) + abs(X * b)) + tiny for a, b in ((value, slope), (slope, curve))]
            room[1] += 40 * eps * (point.keeps == "y")
            if any(not abs(a - b) <= c for a, b, c in zip(got, (value, slope), room, strict=True)):
                return False
    return True


@pytest.mark.parametrize("layer", [*ACTIVATIONS, *MORE], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_and_large_arguments(layer: mn.spec.Activation, dtype: Any) -> None:
    """phi and phi' are correct for small and large |x|. A relative error of 1e-4 in phi' fails, as do missing tails."""
    point = pointwise(layer)
    assert derivative_is_right(layer, point, dtype)
    off = replace(point, dphi=lambda xp, x: 1.0001 * point.dphi(xp, x))
    cut = Pointwise(point.phi, lambda xp, x: point.derivative(xp, x) * (xp.abs(x) < 1))
    assert not derivative_is_right(layer, off, dtype)
    assert not derivative_is_right(layer, cut, dtype)


@pytest.mark.parametrize(
    ("layer", "slope"),
    [(mn.ReLU(), 0.0), (mn.LeakyReLU(0.3), 0.3), (mn.Abs(), 0.0), (mn.ABRelu(-0.4, 0.8), -0.4), (mn.Sign(), 0.0)],
    ids=repr,
)
def test_the_derivative_at_a_kink_is_the_documented_one(layer: mn.spec.Activation, slope: float) -> None:
    point = pointwise(layer)
    assert point.kinks == (0.0,)
    assert point.derivative(xp, np.array([0.0, -0.0])).tolist() == [slope, slope]


@pytest.mark.parametrize("layer", [*ACTIVATIONS, *MORE], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_stay_finite_and_keep_their_dtype(layer: mn.spec.Activation, dtype: Any) -> None:
    """Results are finite and keep their dtype, and intermediate values do not overflow, as in softplus(+-1e4)."""
    x = np.array([-1e4, -1e2, -0.0, 0.0, 1e2, 1e4], dtype)[: 5 if isinstance(layer, mn.Exp) else 6]
    point = pointwise(layer)
    for a in (point.phi(xp, x), point.derivative(xp, x)):
        assert a.dtype == dtype
        assert np.all(np.isfinite(a))


@pytest.mark.parametrize(
    "layer",
    [mn.LeakyReLU(np.float64(0.3)), mn.Softplus(np.float64(5.0), np.float64(1.4)), mn.Polynomial((np.float64(1), 2))],
    ids=repr,
)
def test_numpy_numbers_in_a_spec_do_not_change_the_dtype(layer: mn.spec.Activation) -> None:
    x = np.ones(3, np.float32)
    assert pointwise(layer).phi(xp, x).dtype == np.float32
    assert pointwise(layer).derivative(xp, x).dtype == np.float32


def test_geigers_softplus_has_unit_second_moment() -> None:
    """E phi(z)^2 = 1 for z ~ N(0, 1) to the six digits of the constant (Geiger et al. 2020)."""
    z, weight = np.polynomial.hermite_e.hermegauss(200)
    phi = pointwise(mn.Softplus(beta=5.0, scale=1.404383)).phi(xp, z)
    assert weight @ phi**2 / weight.sum() == pytest.approx(1, abs=2e-6)
