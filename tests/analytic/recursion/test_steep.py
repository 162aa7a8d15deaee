"""Test nearly parallel and nearly opposite pairs of steep activations against integrals over u and over u' given u."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import log1p, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import analytic as an
import minintk as mn
from analytic.recursion import steep
from analytic.recursion.interpolation import interpolated
from analytic.recursion.steep import Steep, coefficients, graded, slopes
from minintk.layers.activation import Pointwise, pointwise

Array = np.ndarray[Any, Any]
NEAR = np.array([1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.27])
ANGLES = np.concatenate((NEAR, [1.0, 2.0], np.pi - NEAR))
PHIS = [mn.Sigmoid(), mn.Softplus(), mn.Swish(), mn.Tanh()]


def circle() -> Array:
    """Return rows of equal norm: a first row, and one row at each of ANGLES from it."""
    angles = np.append(0, ANGLES)
    return sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def network(phi: Any, w_std: float) -> an.Kernel:
    return an.kernel(mn.Sequential(mn.Dense(1, w_std=w_std), phi, mn.Dense(1)))


def mean(f: Any, s: float, angle: float) -> float:
    """Return E f(u) f(u') by a rule whose inner axis is graded towards u' = 0, with more nodes than the library's."""
    z, weights = graded(np.zeros(1), min(2.0, 1 / s), 20)
    across = s * np.sin(angle)
    w, inner = graded(-s * np.cos(angle) * z[0] / across, min(2.0, 1 / across), 20)
    given = np.sum(inner * f(s * np.cos(angle) * z[0][:, None] + across * w), axis=1)
    return float(weights[0] @ (f(s * z[0]) * given))


def off(phi: Any, w_std: float, dtype: str = "float64") -> float:
    """Return the largest error of the NNGP and the NTK at ANGLES, relative to k(x, x)."""
    k, theta = (a[0].astype(float) for a in network(phi, w_std).both(circle().astype(dtype)))
    f, q = pointwise(phi), w_std**2
    values, slopes = (
        np.array([mean(g, w_std, angle) for angle in ANGLES])
        for g in (lambda x: f.phi(np, x), lambda x: f.derivative(np, x))
    )
    want = values + q * np.cos(ANGLES) * slopes
    return float(max(np.max(np.abs(k[1:] - values)) / k[0], np.max(np.abs(theta[1:] - want)) / theta[0]))


@pytest.mark.parametrize("w_std", [10.0, 30.0])
@pytest.mark.parametrize("phi", PHIS, ids=repr)
def test_kernels_at_every_angle(phi: Any, w_std: float) -> None:
    """Check that errors are below `Kernel.error` and below 1e-11, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert off(phi, w_std) < min(network(phi, w_std).error(circle()), 1e-11)


@pytest.mark.parametrize("w_std", [0.5, 1.0, 2.0])
def test_a_narrow_step_at_small_variances(w_std: float) -> None:
    """At small variances q, the scale of p, 0.1 / q, exceeds `top`, the largest p of the interpolation."""
    phi = mn.Softplus(beta=5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert off(phi, w_std) <= network(phi, w_std).error(circle()) + 1e-12


def test_kernels_in_float32() -> None:
    assert off(mn.Tanh(), 30.0, "float32") < 1e-5


@pytest.mark.parametrize("s", [10.0, 100.0])
def test_p_after_is_the_integral_of_the_slope(s: float) -> None:
    """Compare p' with adaptive quadrature of the slope. Errors are relative to p', which can be tiny."""
    phi = pointwise(mn.Tanh())
    v = mean_square(s)
    found = Steep.of(phi, s, v, 0.5)
    assert found is not None
    for p in (1e-14, 1e-8, 1e-4, found.top):
        part = coefficients(phi, s, found.p0, found.top)
        R = interpolated(part, np.array([log1p(p / found.p0)]), 0.0, log1p(found.top / found.p0))[0, 0]
        whole, _ = quad(lambda x, p=p: slopes(phi, s, p * x)[0], 0, 1, epsabs=0, epsrel=1e-11)
        assert abs(R / whole - 1) < 1e-10


def mean_square(s: float) -> float:
    z, weights = graded(np.zeros(1), min(2.0, 1 / s), 20)
    return float(weights[0] @ np.tanh(s * z[0]) ** 2)


def test_several_norms_say_that_their_series_is_cut() -> None:
    x = circle() * np.linspace(0.9, 1.1, 17)[:, None]
    with pytest.warns(UserWarning, match="by quadrature and exact to"):
        network(mn.Tanh(), 30.0).both(x)


def test_what_has_no_ends() -> None:
    """`Steep.of` returns None for a short series, a wrong E phi^2, kinks, and a phi that grows too fast."""
    assert Steep.of(pointwise(mn.Tanh()), 10.0, 0.9, 0.5) is None
    assert Steep.of(pointwise(mn.Tanh()), 1.0, mean_square(1.0), 1e-14) is None
    assert Steep.of(replace(pointwise(mn.Tanh()), kinks=(0.5,)), 30.0, mean_square(30.0), 0.5) is None
    fast = Pointwise(lambda xp, x: xp.exp(x / 10), lambda xp, x: xp.exp(x / 10) / 10)
    assert Steep.of(fast, 30.0, float(np.exp(2 * 9.0)), 0.5) is None


@pytest.mark.parametrize(("narrow", "most"), [(1.0, 1e-11), (4.0, 1e-6), (20.0, 1.0)])
def test_a_narrow_step_says_that_its_panels_are_wide(narrow: float, most: float) -> None:
    """The nodes suit a phi that changes over a width of 1. For a steeper phi, the stated error is larger."""
    f = pointwise(mn.Tanh())
    phi = Pointwise(lambda xp, x: f.phi(xp, narrow * x), lambda xp, x: narrow * f.derivative(xp, narrow * x))
    z, weights = graded(np.zeros(1), 0.01, 20)
    found = Steep.of(phi, 30.0, float(weights[0] @ phi.phi(np, 30.0 * z[0]) ** 2), 0.5)
    if found is None:  # E phi^2 is already wrong
        assert narrow == 20.0
        return
    p = found.p0 * np.array([1e-3, 1.0, 30.0])
    true = np.array([narrow**2 * slopes(f, 30.0 * narrow, one)[0] for one in p])
    every = coefficients(phi, 30.0, found.p0, found.top)
    part = interpolated(every, np.log1p(p / found.p0), 0.0, log1p(found.top / found.p0))
    off = np.max(np.abs(part[:, 1] / true - 1))
    assert off < 3 * found.error < 3 * most
    assert narrow == 1.0 or found.error > 1e-11


def swapped(*columns: int) -> dict[str, Any]:
    """Return a planted error: wrong columns for the coefficients of R and S at both ends."""
    return {"coefficients": lambda phi, s, p0, top: coefficients(phi, s, p0, top)[:, columns]}


PLANTED: dict[str, dict[str, Any]] = {
    "the slope is that of the integral": swapped(0, 0, 2, 2),
    "the other end's numbers": swapped(2, 3, 0, 1),
    "opposite rows as those of an odd phi": {"opposite": 1.0},
    "the unit of p is off": {"coefficients": lambda phi, s, p0, top: coefficients(phi, s, 2 * p0, top)},
    "the gain is left out": {"gain": 1.0},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: each planted error makes kernels wrong by more than 1e-6."""
    right, planted = Steep.of, dict(PLANTED[name])
    if "coefficients" in planted:
        monkeypatch.setattr(steep, "coefficients", planted.pop("coefficients"))

    def of(*arguments: Any) -> Steep | None:
        found = right(*arguments)
        return None if found is None else found._replace(**planted)

    monkeypatch.setattr(Steep, "of", staticmethod(of))
    assert off(mn.Softplus(), 30.0) > 1e-6
