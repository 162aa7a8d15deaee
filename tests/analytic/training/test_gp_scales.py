"""Test the posterior and the trained ensemble against 60-digit reference values, at several scales of the inputs."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest

import analytic as an
import minintk as mn
from tests.kit.oracles_kernels import exact_kernels

Array = Any
SPEC = mn.Sequential(mn.Dense(8, w_std=1.5), mn.ReLU(), mn.Dense(1))


def matrix(half: list[list[Any]]) -> Any:
    """Return a symmetric matrix from the rows of the upper triangle."""
    full = mp.matrix(len(half))
    for i, row in enumerate(half):
        for j, value in enumerate(row, start=i):
            full[i, j] = full[j, i] = value
    return full


def conditioned(x: Array, x_test: Array, y: Array, ridge: float, kind: str) -> tuple[Any, Any]:
    """Return the mean and covariance of equations (13) and (16) of Lee et al. 2019."""
    n = len(x)
    K, T = (matrix(half) for half in exact_kernels(SPEC, np.concatenate([x, x_test])))
    k = T if kind == "ntk" else K
    A = k[n:, :n] * (k[:n, :n] + mp.mpf(ridge) * mp.eye(n)) ** -1
    once = A * K[:n, n:]
    cov = K[n:, n:] - once if kind == "nngp" else K[n:, n:] + A * K[:n, :n] * A.T - once - once.T
    return A * mp.matrix(y.tolist()), cov


def error(got: Array, want: Any) -> float:
    """Return the largest error relative to the largest entry, or inf if an entry is not finite."""
    size = max(abs(value) for value in want)
    found = [abs(mp.mpf(float(got[i, j])) - want[i, j]) for i in range(got.shape[0]) for j in range(got.shape[1])]
    return float(max(found) / size) if np.isfinite(got).all() else np.inf


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1.0, 1e30, 1e150])
def test_equal_opposite_and_zero_test_rows_at_every_scale(scale: float, kind: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 4)), rng.standard_normal((5, 2))
    x_test = scale * np.concatenate([rng.standard_normal((2, 4)), x[:1], -x[1:2], 0 * x[:1]])
    x, ridge = scale * x, 0.1 * scale * scale
    with mp.workdps(60):
        mean, cov = conditioned(x, x_test, y, ridge, kind)
        one = an.posterior(an.kernel(SPEC), x, y, ridge=ridge, kind=kind).predict(x_test, cov=True)
        two = an.ensemble(an.kernel(SPEC), x, y, ridge=ridge).predict(x_test, kind=kind, cov=True)
        for m, c in (one, two):
            assert error(m, mean) < 1e-13
            assert error(c, cov) < 1e-13
        assert error(1.001 * one[0], mean) > 1e-4


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_training_rows_out_of_range_have_names(scale: float) -> None:
    x = np.eye(3) * np.array([1.0, scale, 1.0])
    with pytest.raises(ValueError, match=r"x1\[1\] is out of range"):
        an.posterior(an.kernel(SPEC), x, np.ones((3, 1))).predict(np.eye(3))


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize(("scale", "power"), [(1e-150, 664), (1e150, -664), (1.0, 900), (1.0, -900)])
def test_means_are_linear_in_targets_of_any_size(scale: float, power: int, kind: Any) -> None:
    """The mean is correct even if (K + ridge I)^-1 y is out of range, where a naive mean is NaN or 0."""
    rng = np.random.default_rng(0)
    x, y, x_test = scale * rng.standard_normal((5, 4)), rng.standard_normal((5, 2)), scale * rng.standard_normal((3, 4))

    def means(y: Array) -> list[Array]:
        late = an.ensemble(an.kernel(SPEC), x, y, lr=scale**-2)
        gp = an.posterior(an.kernel(SPEC), x, y, kind=kind)
        return [gp.predict(x_test), late.predict(x_test, kind=kind), late.predict(x_test, 2.0, kind=kind)]

    for small, large in zip(means(y), means(y * 2.0**power), strict=True):
        assert np.abs(small).max() > 0.01
        assert np.array_equal(large, small * 2.0**power)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_a_rate_times_a_time_beyond_the_range_is_the_limit(kind: Any) -> None:
    rng = np.random.default_rng(0)
    x, y, x_test = rng.standard_normal((5, 4)), rng.standard_normal((5, 2)), rng.standard_normal((3, 4))
    trained = an.ensemble(an.kernel(SPEC), x, y, lr=1e300)
    late, limit = (trained.predict(x_test, t, kind=kind, cov=True) for t in (1e300, np.inf))
    assert all(np.array_equal(a, b) for a, b in zip(late, limit, strict=True))
