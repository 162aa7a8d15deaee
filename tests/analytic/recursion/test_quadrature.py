"""Test the parts of quadratures against integrals on finer panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.recursion import quadrature, range_checks
from analytic.recursion.quadrature import axis, mean_square, mismatch, panels
from analytic.recursion.state import Block, Flat, distances_between
from tests.kit.counting import counted

Array = np.ndarray[Any, Any]


def distances(s: Array) -> Array:
    """Return E (tanh(s_i z) / sqrt v_i - tanh(s_j z) / sqrt v_j)^2 for all i, j, where v_i = E tanh(s_i z)^2."""
    z, w = axis(np, s, (), panels(np.tanh, s), 40)
    y = np.tanh(s[:, None] * z)
    y /= np.sqrt((y**2 * w).sum(axis=1))[:, None]
    return ((y[:, None] - y) ** 2 * w).sum(axis=-1)


def test_the_error_of_rounding_is_about_two_roundings() -> None:
    x = np.array([0.5, 1.0, 3.0])
    found = np.abs(quadrature.rounding(np.exp, x)) / (np.exp(x) * x * 2.0**-51)
    assert np.all(np.abs(found - 1) < 0.5)


def square_of_tanh(xp: Any, q: Any) -> Any:
    return mean_square(np.tanh, np.sqrt(q))


@pytest.mark.parametrize("grid", [0.0, 0.25])
@pytest.mark.parametrize("s", [[0.5, 0.6, 3.0], [1.0, 1.001, 1.002, 1.01], [1e-3, 1.0, 2.0, 400.0]])
def test_the_curve_of_norms_keeps_the_distances(s: list[float], grid: float) -> None:
    """Distances on the curve of norms are correct for any order and spacing of the norms."""
    scales = np.array(s)
    found = mismatch(lambda xp, x: np.tanh(x), square_of_tanh, scales, grid)
    assert found is not None
    got = ((found.y[:, None] - found.y) ** 2).sum(axis=-1)
    np.testing.assert_allclose(got, distances(scales), rtol=0, atol=1e-13)
    turned = mismatch(lambda xp, x: np.tanh(x), square_of_tanh, scales[::-1].copy(), grid)
    assert turned is not None
    np.testing.assert_allclose(((turned.y[:, None] - turned.y) ** 2).sum(axis=-1), got[::-1, ::-1], rtol=0, atol=1e-13)


def test_vectors_far_from_the_origin_are_centred_before_their_distances_are_taken() -> None:
    """Products of vectors have rounding errors of eps times the largest square.

    After centring, the largest square is about the largest squared distance.
    """
    y = 100 + np.random.default_rng(0).normal(size=(20, 3))
    found = distances_between(np, y)
    want = ((y[:, None] - y) ** 2).sum(axis=-1) / 4
    assert Flat((found,)).largest_square < want.max()
    np.testing.assert_allclose(found.left @ found.right.T, want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("phi", [mn.Tanh(), mn.Softplus()])
def test_float32_takes_a_shorter_series_and_loses_nothing(phi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 uses fewer terms, and float32 kernels equal float64 kernels up to rounding.

    The check fails on series that end too early.
    """
    kernel = an.kernel(mn.Sequential(mn.Dense(8, w_std=1.5, b_std=0.1), phi, mn.Dense(8), phi, mn.Dense(1)))
    x = np.random.default_rng(0).standard_normal((40, 20))
    terms, plain = [0], quadrature.term

    def term(*arguments: Any) -> Any:
        terms[0] += 1
        return plain(*arguments)

    monkeypatch.setattr(quadrature, "term", term)

    def error(dtype: str) -> tuple[float, int]:
        before = terms[0]
        both = kernel.both(x.astype(dtype))
        scale = [np.sqrt(np.outer(np.diag(k), np.diag(k))) for k in exact]
        found = max(float((np.abs(a - b) / c).max()) for a, b, c in zip(both, exact, scale, strict=True))
        return found, terms[0] - before

    exact = kernel.both(x)
    (_, long), (found, short) = error("float64"), error("float32")
    assert short < 0.75 * long
    assert found < 2e-6
    monkeypatch.setitem(quadrature.NEGLIGIBLE_LOSS, 4, 1e-2)
    assert error("float32")[0] > 1e-5
    assert error("float64")[0] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_one_norm_up_to_roundings_share_a_series(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results equal those of a call with one more row of another norm, where each row needs a separate series.

    Rows of different norms do not share a series.
    """
    kernel = an.kernel(mn.Sequential(mn.Dense(8, w_std=1.5, b_std=0.1), mn.Tanh(), mn.Dense(8), mn.Tanh(), mn.Dense(1)))
    x = np.random.default_rng(0).standard_normal((40, 20))

    def error(x: Array) -> tuple[float, int]:
        """Return the largest difference in units of eps, and the number of products of two rows' coefficients."""
        with counted(Block, "outer") as products:
            both = kernel.both(x)
        apart = kernel.both(np.concatenate((x, 2 * x[:1])))
        pairs = zip(both, apart, strict=True)
        return max(float(np.abs(a - b[:-1, :-1]).max()) for a, b in pairs) / float(np.finfo(dtype).eps), len(products)

    sphere = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(dtype)
    assert np.ptp(np.linalg.norm(sphere.astype(np.float64), axis=1)) > 0
    roundings, products = error(sphere)
    assert roundings < 16
    assert products == 0
    assert error(x.astype(dtype))[1] > 0
    monkeypatch.setattr(range_checks, "SPREAD", 0.01 / float(np.finfo(dtype).eps))
    assert error(sphere * np.linspace(1, 1.001, 40, dtype=dtype)[:, None])[0] > 100
