"""Test equal, opposite, nearly parallel, collinear and zero rows against mpmath. Naive formulas fail for such rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.recursion.unit_rows import product_rest
from minintk.layers.activation import pointwise
from tests.kit.oracles_kernels import degenerate_rows, exact_kernels, largest_errors
from tests.kit.thinned import thinned

BOUND = {np.float64: 1e-13, np.float32: 3e-7}
"""We require 1e-11 and 2e-6, and measured 2e-14 and 6e-8 with thirty layers. The margin is for other processors."""

WEIGHTS = {mn.ReLU: 2**0.5, mn.Erf: 1.5, mn.Abs: 1.0, mn.Sin: 1.2, mn.GELU: 1.5, mn.LeakyReLU: 1.4}


def chain(activation: type[mn.spec.Activation], depth: int, b_std: float) -> mn.Sequential:
    w_std = WEIGHTS[activation]
    hidden = [layer for _ in range(depth) for layer in (mn.Dense(64, w_std=w_std, b_std=b_std), activation())]
    return mn.Sequential(*hidden, mn.Dense(1, w_std=w_std, b_std=b_std))


@cache
def rows(dtype: Any) -> Any:
    return degenerate_rows(np.random.default_rng(1), dtype=dtype)


def check(kernel: Callable[[Any], Any], spec: mn.Sequential, dtype: Any, times: float = 1) -> None:
    """Check that errors of NNGP and NTK of all pairs of rows are below `times` times the bound for the dtype."""
    errors = largest_errors(kernel(rows(dtype)), exact_kernels(spec, rows(dtype)))
    assert max(errors) < times * BOUND[dtype], f"NNGP, NTK off by {errors[0]:.1e}, {errors[1]:.1e}"


@pytest.mark.parametrize(
    ("activation", "depth", "dtype"), thinned(product((mn.ReLU, mn.Erf), (1, 3), (np.float64, np.float32)))
)
def test_shallow(activation: type[mn.spec.Activation], depth: int, dtype: Any) -> None:
    for b_std in (0.0, 0.1):
        spec = chain(activation, depth, b_std)
        check(an.kernel(spec).both, spec, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("b_std", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("depth", [10, 30])
@pytest.mark.parametrize("activation", [mn.ReLU, mn.Erf])
def test_deep(activation: type[mn.spec.Activation], depth: int, b_std: float, dtype: Any) -> None:
    spec = chain(activation, depth, b_std)
    check(an.kernel(spec).both, spec, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("b_std", [0.0, 0.1])
@pytest.mark.parametrize("depth", [1, 3, 10])
@pytest.mark.parametrize("activation", [mn.Abs, mn.LeakyReLU, mn.Sin, mn.GELU])
def test_other_activations(activation: type[mn.spec.Activation], depth: int, b_std: float) -> None:
    spec = chain(activation, depth, b_std)
    check(an.kernel(spec).both, spec, np.float64, times=max(1, depth / 3))  # each layer adds a rounding


@pytest.mark.parametrize(("dtype", "distance"), [(np.float64, 1e4), (np.float64, 1e8), (np.float32, 1e4)])
def test_rows_in_a_narrow_cone(dtype: Any, distance: float) -> None:
    """In a cluster of rows far from the origin, all angles are small, and rounding must not enlarge the angles."""
    x = (distance * np.array([0.6, 0.8, 0.0]) + np.random.default_rng(0).normal(size=(5, 3))).astype(dtype)
    for b_std in (0.0, 0.1):
        spec = chain(mn.Erf, 1, b_std)
        errors = largest_errors(an.kernel(spec).both(x), exact_kernels(spec, x))
        assert max(errors) < BOUND[dtype]


def test_deep_and_near() -> None:
    """Compare thirty layers with mpmath for equal, opposite and zero rows, and angles of 1e-3, 1e-8 and 1e-15."""
    x = rows(np.float64)[[0, 1, 2, 5, 8, 9, 15]]
    for activation in (mn.ReLU, mn.Erf):
        spec = chain(activation, 30, 0.0)
        errors = largest_errors(an.kernel(spec).both(x), exact_kernels(spec, x))
        assert max(errors) < BOUND[np.float64]


STEEP = {
    "erf": (mn.Erf(),),
    "erf behind ReLU": (mn.ReLU(), mn.Erf()),
    "erf behind four ReLUs": (*(mn.ReLU() for _ in range(4)), mn.Erf()),
    "erf behind Abs": (mn.Abs(), mn.Erf()),
    "ReLU behind erf": (mn.Erf(), mn.ReLU()),
}


def steep_error(name: str, scale: float, b_std: float) -> float:
    layers = [layer for phi in STEEP[name] for layer in (mn.Dense(64, w_std=1.3, b_std=b_std), phi)]
    spec, x = mn.Sequential(*layers, mn.Dense(1)), scale * rows(np.float64)
    return max(largest_errors(an.kernel(spec).both(x), exact_kernels(spec, x)))


@pytest.mark.parametrize(("name", "scale", "b_std"), thinned(product(STEEP, (1e6, 1e8, 1e12), (0.0, 0.3)), every=7))
def test_erf_is_so_steep_that_angles_of_any_size_count(name: str, scale: float, b_std: float) -> None:
    """Theta's slope in the angle is |u|, so all digits of p matter in the first layer and in kinked ones before erf."""
    assert steep_error(name, scale, b_std) < 2e-14


def test_an_angle_to_a_rounding_of_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails for rows rounded after division by their norms, and for ReLU's h - w computed by subtraction."""
    with monkeypatch.context() as patch:
        patch.setattr("analytic.recursion.unit_rows.product_rest", lambda a, b, product: 0 * product)
        assert steep_error("erf", 1e8, 0.0) > 1e-10

    def subtracted(xp: Any, s: Any) -> Any:
        h, w = np.arcsin(np.sqrt(s)), np.sqrt(s * (1 - s))
        return s - 2 / np.pi * (w - h * (1 - 2 * s))

    monkeypatch.setattr("analytic.recursion.duals.folded", subtracted)
    assert steep_error("erf behind ReLU", 1e8, 0.0) > 1e-10


def test_mixed_activations_of_tiny_rows() -> None:
    """Erf separates two tiny collinear rows by an angle of 1e-12. After ReLU, Theta is linear in this angle."""
    spec = mn.Sequential(mn.Dense(8), mn.Erf(), mn.Dense(8, w_std=2.0), mn.ReLU(), mn.Dense(1))
    x = np.array([[1.0, 2.0], [1e-6, 2e-6], [2e-6, 4e-6], [0.03, 0.06], [-1e-6, -2e-6]])
    assert max(largest_errors(an.kernel(spec).both(x), exact_kernels(spec, x))) < BOUND[np.float64]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("activation", [mn.Erf, mn.Sin, mn.GELU])
def test_one_image_at_many_brightnesses(activation: type[mn.spec.Activation], dtype: Any) -> None:
    """The activation creates angles between collinear rows of many norms, some equal. ReLU depends on these angles."""
    rng = np.random.default_rng(1)
    x = np.linspace(0.1, 3, 16)[:, None] * rng.standard_normal(5)
    alike = np.concatenate([x, x[::4], x[::2] * (1 + 1e-7 * rng.standard_normal((8, 5)))]).astype(dtype)
    opposite = np.concatenate([x[::5], -x[::5] * (1 + 1e-8 * rng.standard_normal((4, 5)))]).astype(dtype)
    spec = mn.Sequential(mn.Dense(64), activation(), mn.Dense(64), mn.ReLU(), mn.Dense(1))
    for given in (alike, opposite):
        errors = largest_errors(an.kernel(spec).both(given), exact_kernels(spec, given))
        assert max(errors) < {np.float64: 2e-14, np.float32: 3e-7}[dtype]


@pytest.mark.parametrize("activation", WEIGHTS)
def test_zero_initialised_biases(activation: type[mn.spec.Activation]) -> None:
    """In the hidden layers, K of a row of zeros is 0. The biases are trained, so Theta of this row is positive."""
    zeros = mn.Dense(8, b_std=0.5, b_init="zeros")
    for last in (mn.Dense(1), mn.Dense(1, b_std=0.1)):
        spec = mn.Sequential(zeros, activation(), zeros, activation(), last)
        check(an.kernel(spec).both, spec, np.float64)


@pytest.mark.parametrize("activation", [mn.Tanh(), mn.Sin(), mn.GELU(), mn.Erf()], ids=repr)
@pytest.mark.parametrize("more", [False, True], ids=["one layer", "two layers"])
def test_a_row_of_zeros_beside_others(activation: mn.spec.Activation, more: bool) -> None:
    """Check Theta(0, x) = w^2 Theta_0(0, x) phi'(0) E phi'(u), u ~ N(0, q), also for activations by quadrature.

    If phi' of the row of zeros were evaluated at another scale, tanh's Theta would be wrong by a third.
    """
    z, weight = np.polynomial.hermite_e.hermegauss(200)
    point, x = pointwise(activation), np.array([[0.36, -0.6], [0.0, 0.0], [0.81, 1.07]])
    spec: list[mn.spec.Layer] = [mn.Dense(5, b_std=0.3, b_init="zeros")]
    q, theta = (x * x).sum(axis=1) / 2, np.full(3, 0.3**2)
    for _ in range(1 + more):
        spec += [activation, mn.Dense(5, w_std=0.7)]
        u = np.sqrt(q)[:, None] * z
        mean = point.derivative(np, u) @ weight / weight.sum()
        theta = 0.7**2 * theta * point.derivative(np, np.zeros(3)) * mean
        q = 0.7**2 * (point.phi(np, u) ** 2 @ weight / weight.sum())
    got = an.kernel(mn.Sequential(*spec)).ntk(x)[1, [0, 2]]
    np.testing.assert_allclose(got, theta[[0, 2]], rtol=1e-12)


def naive(spec: mn.Sequential, x: Any) -> tuple[Any, Any]:
    """Compute kernels naively, with clipped cosines and sqrt(1 - c^2)."""
    k, t = x @ x.T / x.shape[1], np.zeros((len(x), len(x)))
    for layer in spec:
        if isinstance(layer, mn.Dense):
            k = layer.w_std**2 * k + layer.b_std**2
            t = layer.w_std**2 * t + k
        else:
            norm = np.sqrt(np.outer(k.diagonal(), k.diagonal()))
            c = np.clip(k / np.where(norm > 0, norm, 1), -1, 1)
            a = np.arccos(c)
            k = norm * (np.sqrt(1 - c * c) + (np.pi - a) * c) / (2 * np.pi)
            t = t * (np.pi - a) / (2 * np.pi)
    return k, t


def test_the_check_refuses_the_naive_recursion() -> None:
    spec = chain(mn.ReLU, 3, 0.0)
    with pytest.raises(AssertionError, match="off by"):
        check(lambda x: naive(spec, x), spec, np.float64)


def test_the_check_refuses_nan() -> None:
    spec = chain(mn.ReLU, 1, 0.0)
    with pytest.raises(AssertionError, match="off by inf"):
        check(lambda x: (np.full((22, 22), np.nan), an.kernel(spec).ntk(x)), spec, np.float64)


def test_the_rest_of_a_product_is_exact() -> None:
    """`product_rest` equals the rounding error a b - round(a b), computed with fractions.

    Most of the products are rounded. If a is replaced by adjacent floats, the errors differ.
    """
    a, b = np.random.default_rng(0).standard_normal((2, 1000)) * np.logspace(-40, 40, 1000)
    rest = product_rest(a, b, a * b)
    assert np.count_nonzero(rest) > 900
    for u, v, r in zip(a.tolist(), b.tolist(), rest.tolist(), strict=True):
        assert Fraction(u) * Fraction(v) - Fraction(u * v) == Fraction(r)
    assert not np.array_equal(product_rest(np.nextafter(a, np.inf), b, a * b), rest)
