"""Test the maps of variances and angles through one block against formulas."""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.phases.maps import Maps
from analytic.recursion.requests import Examples
from analytic.recursion.rules import lower
from minintk.spec.shapes import Site
from tests.kit.oracles_kernels import exact_kernels, largest_errors


def test_maps_of_erf() -> None:
    """Check E erf(u)^2 = (2/pi) asin(2q/(1+2q)) and E erf'(u) erf'(u') = (4/pi) / sqrt((1+2q)^2 - 4k^2)."""
    maps, q, c = Maps(lower(mn.Erf(), Site((1,)), mn.NTK())), 0.7, 0.3
    V, D, added = maps.variance(q)
    want = 2 / pi * np.arcsin(2 * q / (1 + 2 * q)), 4 / pi / sqrt(1 + 4 * q), 0.0
    np.testing.assert_allclose((V, D, added), want, rtol=1e-14)
    np.testing.assert_allclose(maps.chi_q(q), q / V * 4 / pi / sqrt(1 + 4 * q) / (1 + 2 * q), rtol=1e-11)
    p, chi, _ = maps.pairs(q, np.array([(1 - c) / 2]))
    np.testing.assert_allclose(1 - 2 * p[0], 2 / pi * np.arcsin(2 * q * c / (1 + 2 * q)) / V, rtol=1e-13)
    np.testing.assert_allclose(chi[0], 4 / pi / sqrt((1 + 2 * q) ** 2 - 4 * (q * c) ** 2), rtol=1e-13)


def chaotic(phi: mn.spec.Activation, depth: int) -> tuple[an.Kernel, np.ndarray[Any, Any]]:
    """Return a deep kernel in the chaotic phase, and four rows: two at a small angle, and two with other norms."""
    layers = (mn.Dense(1, w_std=3.0), phi) * depth
    x = 0.1 * np.random.default_rng(0).standard_normal((4, 5))
    u = np.random.default_rng(1).standard_normal(5)
    u -= x[0] * (u @ x[0]) / (x[0] @ x[0])
    x[1] = x[0] + 1e-6 * u * np.linalg.norm(x[0]) / np.linalg.norm(u)
    return an.kernel(mn.Sequential(*layers, mn.Dense(1, w_std=3.0))), x


def deep_tanh(x: np.ndarray[Any, Any], depth: int) -> tuple[float, float]:
    """Return K and Theta of rows 0 and 1, divided by those of row 0, by Gauss's rule in (u + u')/2 and (u - u')/2."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    ends = np.arange(1.0, 10.0, 0.5)
    ends = np.concatenate([-ends[::-1], [-0.5, -0.25, -0.125, 0.0, 0.125, 0.25, 0.5], ends])
    middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
    z = (middle[:, None] + half[:, None] * nodes).ravel()
    w = (half[:, None] * weights).ravel() * np.exp(-z * z / 2) / sqrt(2 * np.pi)
    a, b = (row / mp.sqrt(sum(mp.mpf(v) ** 2 for v in row)) for row in np.vectorize(mp.mpf)(x[:2]))
    p, q = float(sum((a - b) ** 2) / 4), 9 * float(np.mean(x[0] ** 2))
    theta = np.array([q, q * (1 - 2 * p)])
    for _ in range(depth):
        m, e = sqrt(q * (1 - p)) * z[:, None], sqrt(q * p) * z
        V, D = w @ np.tanh(sqrt(q) * z) ** 2, w @ np.cosh(sqrt(q) * z) ** -4
        both = np.cosh(m + e) * np.cosh(m - e)  # tanh u - tanh u' = sinh(u - u') / (cosh u cosh u')
        p = float(w @ (np.sinh(2 * e) / both) ** 2 @ w) / (4 * V)
        q, theta = 9 * V, 9 * theta * [D, w @ both**-2 @ w]
        theta += [q, q * (1 - 2 * p)]
    return 1 - 2 * p, theta[1] / theta[0]


def test_the_error_is_a_bound_in_the_chaotic_phase() -> None:
    """In the chaotic phase, the error exceeds the sum of the layers' own errors, because rounding errors are amplified.

    `Kernel.error` includes the amplified rounding errors, and is a bound.
    """
    k, x = chaotic(mn.Tanh(), 50)
    with mp.workdps(40):
        want = deep_tanh(x, 50)
    got = [a[0, 1] / sqrt(a[0, 0] * a[1, 1]) for a in k.both(x)]
    off = float(np.max(np.abs(np.subtract(got, want))))
    assert k._rows(Examples(x)).error < off < k.error(x) < 1e-7  # by a factor of 4 to 40, depending on how NumPy rounds


@pytest.mark.parametrize("depth", [3, 30])
def test_the_error_of_chaotic_erf_in_80_digits(depth: int) -> None:
    k, x = chaotic(mn.Erf(), depth)
    with mp.workdps(80):
        y = [[3 * mp.mpf(v) for v in row] for row in x[:2]]
        q, r, K = (sum(a * b for a, b in zip(y[i], y[j], strict=True)) / 5 for i, j in ((0, 0), (1, 1), (0, 1)))
        Q, R, T = q, r, K
        for _ in range(depth):
            now, roots = (q, r, K), (1 + 2 * q, 1 + 2 * r)
            sides = roots[0] ** 2, roots[1] ** 2, roots[0] * roots[1]
            q, r, K = (18 / mp.pi * mp.asin(2 * v / mp.sqrt(s)) for v, s in zip(now, sides, strict=True))
            D = [36 / mp.pi / mp.sqrt(s - 4 * v * v) for v, s in zip(now, sides, strict=True)]
            Q, R, T = Q * D[0] + q, R * D[1] + r, T * D[2] + K
        for got, want, scale in zip(k.both(x), (K, T), (mp.sqrt(q * r), mp.sqrt(Q * R)), strict=True):
            assert abs(got[0, 1] - want) / scale < k.error(x) < (1e-14, 1e-7)[depth > 3]


def test_roundings_of_layers_without_slopes() -> None:
    x = np.zeros((2, 3))
    assert an.kernel(mn.Sequential(mn.Dense(3), mn.Sign(), mn.Dense(1))).error(x) == inf
    assert an.kernel(mn.Sequential(mn.Dense(3), mn.ReLU(), mn.Dense(1))).error(x) < 1e-14
    assert an.kernel(mn.Sequential(mn.Dense(3), mn.ReLU(), mn.Dense(1))).error(x.astype(np.float32)) > 1e-7


@pytest.mark.parametrize(("dtype", "distance"), [(np.float64, 1e4), (np.float64, 1e8), (np.float32, 1e4)])
def test_the_error_is_a_bound_for_rows_in_a_narrow_cone(dtype: Any, distance: float) -> None:
    x = (distance * np.array([0.6, 0.8, 0.0]) + np.random.default_rng(0).normal(size=(5, 3))).astype(dtype)
    for b_std in (0.0, 0.1):
        block = mn.Dense(64, w_std=1.5, b_std=b_std), mn.Erf(), mn.Dense(1, w_std=1.5, b_std=b_std)
        k, exact = an.kernel(mn.Sequential(*block)), exact_kernels(mn.Sequential(*block), x)
        assert max(largest_errors(k.both(x), exact)) < k.error(x)
