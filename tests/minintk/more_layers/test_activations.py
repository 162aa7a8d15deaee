"""Compare activations with formulas, and test phi' at kinks, infinite-width kernels and invalid parameters."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, pi, sqrt, tanh
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk import more_layers as more
from minintk.layers.activation import pointwise

Array = np.ndarray[Any, Any]

FORMULAS: dict[str, tuple[mn.spec.Activation, Callable[[float], float]]] = {
    "Hardtanh": (more.Hardtanh(-0.5, 0.8), lambda x: min(max(x, -0.5), 0.8)),
    "ReLU6": (more.ReLU6(), lambda x: min(max(x, 0.0), 6.0)),
    "Hardsigmoid": (more.Hardsigmoid(), lambda x: min(max(x + 3, 0.0), 6.0) / 6),
    "Hardswish": (more.Hardswish(), lambda x: x * min(max(x + 3, 0.0), 6.0) / 6),
    "ELU": (more.ELU(0.7), lambda x: x if x > 0 else 0.7 * (exp(x) - 1)),
    "TanhGELU": (more.TanhGELU(), lambda x: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_formula_and_its_slope(name: str) -> None:
    """phi agrees with the formula and, away from the kinks, phi' agrees with fourth-order finite differences."""
    layer, formula = FORMULAS[name]
    point, x = pointwise(layer), np.linspace(-7.03, 7.04, 401)
    phi = np.vectorize(formula)
    np.testing.assert_allclose(point.phi(np, x), phi(x), rtol=1e-15, atol=1e-15)
    h = 1e-3
    slope = (8 * (phi(x + h) - phi(x - h)) - (phi(x + 2 * h) - phi(x - 2 * h))) / (12 * h)
    smooth = np.all([np.abs(x - kink) > 2 * h for kink in point.kinks], axis=0) if point.kinks else np.full(401, True)
    np.testing.assert_allclose(point.derivative(np, x)[smooth], slope[smooth], rtol=0, atol=1e-10)


AT_KINKS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "Hardtanh": ((-0.5, 0.8), (0.0, 0.0)),
    "ReLU6": ((0.0, 6.0), (0.0, 0.0)),
    "Hardsigmoid": ((-3.0, 3.0), (0.0, 0.0)),
    "Hardswish": ((-3.0, 3.0), (-0.5, 1.5)),
    "ELU": ((0.0,), (0.7,)),
}


@pytest.mark.parametrize("name", AT_KINKS)
def test_slopes_at_kinks_are_those_of_the_docstrings(name: str) -> None:
    (kinks, slopes), point = AT_KINKS[name], pointwise(FORMULAS[name][0])
    assert point.kinks == kinks
    np.testing.assert_array_equal(point.derivative(np, np.array(kinks)), slopes)


@pytest.mark.parametrize("name", FORMULAS)
def test_nothing_overflows(name: str) -> None:
    point, x = pointwise(FORMULAS[name][0]), np.array([-1e4, 1e4])
    with np.errstate(all="raise", under="ignore"):
        assert np.all(np.isfinite([point.phi(np, x), point.derivative(np, x)]))


def averages(layer: mn.spec.Activation, q: float, q2: float, k: float) -> tuple[float, float]:
    """Return E phi(u) phi(v) and E phi'(u) phi'(v), computed on a grid of 1201 x 1201 points."""
    z = np.linspace(-8, 8, 1201)
    weight = np.exp(-(z[:, None] ** 2) / 2 - z**2 / 2)
    u, v = np.sqrt(q) * z[:, None], k / np.sqrt(q) * z[:, None] + np.sqrt(max(q2 - k * k / q, 0)) * z
    point = pointwise(layer)
    both = (weight * f(np, u) * f(np, v) for f in (point.phi, point.derivative))
    K, dot = (float(a.sum() / weight.sum()) for a in both)
    return K, dot


@pytest.mark.filterwarnings("ignore:.*is by quadrature and exact to")  # expected at kinks
@pytest.mark.parametrize("name", FORMULAS)
def test_kernels_at_infinite_width_are_averages_over_gaussians(name: str) -> None:
    layer, _ = FORMULAS[name]
    x = np.array([[1.1, 0.3], [-0.4, 0.9]])
    k = an.kernel(mn.Sequential(mn.Dense(4, w_std=1.3), layer, mn.Dense(1))).both(x)
    q = 1.3**2 * x @ x.T / 2
    for i, j in ((0, 0), (0, 1), (1, 1)):
        K, dot = averages(layer, q[i, i], q[j, j], q[i, j])
        assert k.nngp[i, j] == pytest.approx(K, abs=1e-4)
        assert k.ntk[i, j] == pytest.approx(K + q[i, j] * dot, abs=3e-3)


def test_numbers_that_make_no_activation_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expects low < high, got 0\.5 and 0\.5"):
        more.Hardtanh(0.5, 0.5)
    with pytest.raises(ValueError, match=r"ELU\(alpha=\.\.\.\) expects a finite number"):
        more.ELU(float("nan"))
