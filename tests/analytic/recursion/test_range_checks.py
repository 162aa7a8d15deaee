"""Test rows of extreme scales, next to ordinary rows, against mpmath, and test errors that name rows out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from analytic.recursion import quadrature, range_checks
from tests.kit import oracles_kernels
from tests.kit.oracles_kernels import exact_kernels, largest_errors

Array = Any

U, V = np.random.default_rng(0).standard_normal((2, 4))
ACTIVATIONS = [mn.ReLU(), mn.Abs(), mn.Erf(), mn.GELU(), mn.Sin(), mn.Gaussian(1.2, -0.4)]


def network(phi: mn.spec.Layer, b_std: float = 0.0) -> mn.Sequential:
    return mn.Sequential(mn.Dense(8, w_std=1.5, b_std=b_std), phi, mn.Dense(1, w_std=1.5, b_std=b_std))


def rows(scale: float, dtype: Any = np.float64) -> Array:
    """Return two ordinary rows, a zero row, and scaled rows.

    The scaled rows point along the first row, opposite to it, almost along it, and along the second row.
    """
    near = U + 1e-6 * V
    return np.array([U, V, 0 * U, scale * U, -scale * U, scale * near, scale * V]).astype(dtype)


def errors(spec: mn.Sequential, x: Array, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the larger error of NNGP and NTK against 340-digit values, relative to sqrt(k(x, x) k(x', x'))."""
    monkeypatch.setattr(oracles_kernels, "DIGITS", 340)
    return max(largest_errors(an.kernel(spec).both(x), exact_kernels(spec, x)))


def bound(phi: mn.spec.Layer, scale: float) -> float:
    """Return the tolerance: 1e-14, plus up to 4e-16 |u| for Erf and Sin, whose Theta varies over angles of 1 / |u|."""
    steep = isinstance(phi, (mn.Erf, mn.Sin)) and 1e5 < scale < 1e40
    return 1e-14 + (4e-16 * min(scale, 1e14) if steep else 0.0)


@pytest.mark.parametrize("phi", ACTIVATIONS, ids=repr)
@settings(max_examples=1)
@given(st.integers(-152, 152), st.sampled_from([0.0, 0.3]))
@example(-152, 0.0)
@example(152, 0.0)
@example(6, 0.3)
def test_every_scale(phi: mn.spec.Layer, power: int, b_std: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert errors(network(phi, b_std), rows(10.0**power), patch) < bound(phi, 10.0**power)


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.Erf()], ids=repr)
@pytest.mark.parametrize("scale", [1e-44, 1e-40, 1e38])
def test_float32_to_its_ends(phi: mn.spec.Layer, scale: float) -> None:
    """Near both ends of the float32 range, kernels agree with float64, or an error names a row that is too large."""
    spec, x = network(phi, 0.3 if scale < 1 else 0.0), rows(scale, np.float32)
    kernel = an.kernel(spec)
    if scale > 1 and isinstance(phi, mn.ReLU):
        with pytest.raises(ValueError, match=r"x1\[\d\]: K may be as large as .*, and float32 ends at 3\.4e\+38"):
            kernel.both(x)
        with pytest.raises(ValueError, match=r"x\d?\[\d\]: K may be as large as"):
            kernel.diag(x)
        x = x[:4] * np.array([[1.0], [1.0], [1.0], [1e-20]], np.float32)
    for got, exact in zip(kernel.both(x), kernel.both(x.astype(np.float64))):
        size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
        assert np.max(np.abs(got - exact) / (size + 1e-38)) < 3e-7


@pytest.mark.parametrize("phi", [mn.Erf(), mn.GELU()], ids=repr)
def test_variances_that_float32_cannot_hold_are_taken_in_float64(
    phi: mn.spec.Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variances between two layers can exceed the range of float32 although the results do not.

    If the variances were computed in float32, the kernels would be wrong or NaN.
    """
    spec = mn.Sequential(mn.Dense(8), phi, mn.Dense(8, w_std=1e-10), phi, mn.Dense(1))
    x = (1e25 * np.random.default_rng(0).standard_normal((6, 4))).astype(np.float32)

    def off() -> float:
        pairs = zip(an.kernel(spec).both(x), an.kernel(spec).both(x.astype(np.float64)), strict=True)
        return float(max(np.abs(got / exact - 1).max() for got, exact in pairs))

    assert off() < 3e-7
    monkeypatch.setattr(range_checks, "FLOAT32_VARIANCES", (0.0, np.inf))
    with np.errstate(all="ignore"):
        assert not off() < 3e-7


def test_one_row_at_each_of_many_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of ReLU depends on the small angles that GELU creates between collinear rows of different norms.

    Negative control: a single interpolation over all norms loses these angles.
    """
    x = np.logspace(-30, 30, 13)[:, None] * U
    spec = mn.Sequential(mn.Dense(8), mn.GELU(), mn.Dense(8), mn.ReLU(), mn.Dense(1))
    assert errors(spec, x, monkeypatch) < 2e-14
    monkeypatch.setattr(quadrature, "LONGEST_STRETCH", 1e9)
    monkeypatch.setattr(quadrature, "LARGEST_DEGREE", 64)
    assert errors(spec, x, monkeypatch) > 1e-10


def test_rows_out_of_range_have_names() -> None:
    free, biased = an.kernel(network(mn.Erf())), an.kernel(network(mn.Erf(), 0.3))
    for scale, kernels in ((1e155, (free, biased)), (1e-160, (free,)), (1e-300, (free,))):
        x = rows(scale)
        for kernel in kernels:
            with pytest.raises(
                ValueError, match=r"x1\[3\] is out of range: its variance is .* for variances from 1e-306"
            ):
                kernel.both(x)
            with pytest.raises(ValueError, match=r"x2\[3\] is out of range"):
                kernel.ntk(x[:2], x)
            with pytest.raises(ValueError, match=r"\[3\] is out of range"):
                kernel.diag(x)
    np.testing.assert_array_equal(biased.ntk(rows(1e-300)), biased.ntk(rows(0.0)))  # equivalent to a row of zeros
    grown = mn.Sequential(*[mn.Dense(4, w_std=1e60), mn.ReLU()] * 3, mn.Dense(1))
    with pytest.raises(ValueError, match=r"x1\[0\] is out of range: its variance is .* after step 5 of 7"):
        an.kernel(grown).nngp(rows(1.0))
