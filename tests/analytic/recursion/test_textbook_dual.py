"""Test that activations registered by two dual formulas agree with the library's own steps, up to the rounding of k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.layers.activation import Pointwise, pointwise

Array = mn.Array
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Ramp(mn.Activation):
    """ReLU under another name."""


@dataclass(frozen=True)
class Error(mn.Activation):
    """Erf under another name."""


def arccos_1(q: Array, q2: Array, k: Array) -> Array:
    root = np.sqrt(q * q2)
    t = np.arccos(np.clip(k / np.where(root > 0, root, 1), -1, 1))
    return root * (np.sin(t) + (np.pi - t) * np.cos(t)) / (2 * np.pi)


def arccos_0(q: Array, q2: Array, k: Array) -> Array:
    root = np.sqrt(q * q2)
    return (np.pi - np.arccos(np.clip(k / np.where(root > 0, root, 1), -1, 1))) / (2 * np.pi)


def arcsin(q: Array, q2: Array, k: Array) -> Array:
    return 2 / np.pi * np.arcsin(2 * k / np.sqrt((1 + 2 * q) * (1 + 2 * q2)))


def arcsin_dot(q: Array, q2: Array, k: Array) -> Array:
    return 4 / np.pi / np.sqrt((1 + 2 * q) * (1 + 2 * q2) - 4 * k**2)


@pytest.fixture(autouse=True)
def registered() -> None:
    an.register_dual(Ramp, arccos_1, arccos_0)
    an.register_dual(Error, arcsin, arcsin_dot)


def both(phi: mn.Activation, x: Array, images: bool = False, b_std: float = 0.3) -> Any:
    how: dict[str, Any] = {"w_std": 1.3, "b_std": b_std}
    body: list[Any] = [mn.Conv2d(4, 3, **how), phi, mn.Conv2d(4, 3, **how), phi, mn.GlobalAvgPool()] if images else []
    hidden = [] if images else [mn.Dense(4, **how), phi, mn.Dense(4, **how), phi]
    return an.kernel(mn.Sequential(*body, *hidden, mn.Dense(1, **how))).both(x)


@pytest.mark.parametrize(("mine", "ours"), [(Ramp(), mn.ReLU()), (Error(), mn.Erf())], ids=["arccos", "arcsin"])
@pytest.mark.parametrize("shape", [(7, 4), (3, 4, 5, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_to_the_steps_of_the_library(mine: Any, ours: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = RNG.standard_normal(shape).astype(dtype)
    close, truth = both(mine, x, len(shape) > 2), both(ours, x, len(shape) > 2)
    # At a kink, an error of eps in the correlation of nearly parallel rows or pixels moves the angle by sqrt(eps).
    limit = 20 * np.finfo(dtype).eps ** (0.5 if isinstance(mine, Ramp) else 1.0) * (1 if isinstance(mine, Ramp) else 50)
    for a, b in zip(close, truth, strict=True):
        assert np.abs(a - b).max() <= limit * np.abs(b).max()


def test_zero_equal_opposite_and_nearly_equal_rows() -> None:
    a, b = RNG.standard_normal((2, 5))
    x = np.stack([a, a, -a, 3 * a, a + 1e-9 * b, 0 * a, b])
    for b_std in (0.0, 0.3):
        mine, ours = both(Ramp(), x, b_std=b_std), both(mn.ReLU(), x, b_std=b_std)
        np.testing.assert_allclose(mine.nngp, ours.nngp, rtol=0, atol=1e-13 * ours.nngp.max())
        np.testing.assert_allclose(mine.ntk, ours.ntk, rtol=0, atol=1e-7 * ours.ntk.max())
    assert np.abs(mine.ntk - ours.ntk).max() > 1e-12 * ours.ntk.max()  # why the library uses steps in p, r and tau


@dataclass(frozen=True)
class Wavelet(mn.Activation):
    """phi(x) = x exp(-x^2 / 2)."""


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_equal_rows_have_k_equal_to_q(scale: float) -> None:
    """D = (1 + q)(1 + q') - k^2 is 1 + 2 q for equal rows. A relative error eps of k would change D by 2 eps q^2."""

    def D(q: Array, q2: Array, k: Array) -> Array:
        return 1 + q + q2 + (q * q2 - k * k)

    an.register_dual(
        Wavelet,
        lambda q, q2, k: k * D(q, q2, k) ** -1.5,
        lambda q, q2, k: ((1 + q) * (1 + q2) + 2 * k * k) * D(q, q2, k) ** -2.5,
    )
    x = scale * RNG.standard_normal((5, 3))
    kernel, q = an.kernel(mn.Sequential(mn.Dense(8), Wavelet(), mn.Dense(1))), (x**2).mean(axis=1)
    want = q * (1 + 2 * q) ** -1.5 + q * ((1 + q) ** 2 + 2 * q * q) * (1 + 2 * q) ** -2.5
    np.testing.assert_allclose(np.diagonal(kernel.ntk(x)), want, rtol=1e-14)
    np.testing.assert_allclose(kernel.diag(x).ntk, want, rtol=1e-14)


@pytest.mark.parametrize("activation", [mn.ReLU(), mn.Dense, int, "relu"])
def test_only_classes_of_activations_can_be_registered(activation: Any) -> None:
    with pytest.raises(TypeError, match="register_dual expects a class of activations"):
        an.register_dual(activation, arccos_1, arccos_0)


def test_a_wrong_formula_shows() -> None:
    an.register_dual(Ramp, arccos_1, lambda q, q2, k: 2 * arccos_0(q, q2, k))
    x = RNG.standard_normal((7, 4))  # of a shape whose kernel an earlier test has cached
    assert np.abs(both(Ramp(), x).ntk / both(mn.ReLU(), x).ntk - 1).max() > 0.1


@dataclass(frozen=True)
class Wave(mn.Activation):
    """cos(b x) and its closed form, in which `wrong` multiplies E phi' phi'."""

    b: float
    wrong: float = 1.0


def wave(layer: Wave) -> Pointwise:
    b, b2 = layer.b, layer.b**2
    kappa = lambda q, q2, k: np.exp(-b2 * (q + q2) / 2) * np.cosh(b2 * k)  # noqa: E731
    slope = lambda q, q2, k: layer.wrong * b2 * np.exp(-b2 * (q + q2) / 2) * np.sinh(b2 * k)  # noqa: E731
    return Pointwise(lambda xp, x: xp.cos(b * x), lambda xp, x: -b * xp.sin(b * x), dual=(kappa, slope))


pointwise.register(Wave, wave)


@pytest.mark.parametrize("shape", [(7, 4), (3, 4, 5, 2)])
def test_formulas_beside_phi_know_its_numbers(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape)
    for b in (0.5, 1.3):
        mine, ours, wrong = (both(phi, x, len(shape) > 2) for phi in (Wave(b), mn.Cos(1, b, 0), Wave(b, 1.01)))
        for k, want in zip(mine, ours, strict=True):
            np.testing.assert_allclose(k, want, rtol=0, atol=1e-12 * np.abs(want).max())
        assert np.abs(wrong.ntk - ours.ntk).max() > 1e-4 * np.abs(ours.ntk).max()


def test_error() -> None:
    with pytest.raises(TypeError, match="a class of activations"):
        an.register_dual(mn.ReLU(), arccos_1, arccos_0)  # type: ignore[arg-type]
