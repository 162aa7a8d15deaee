"""Test closed-form dynamics on singular and nearly singular kernels: exact limits, and errors if no limit exists."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from analytic.training.dynamics import (
    gradient_descent,
    gradient_flow,
    max_learning_rate,
)
from minintk.arrays import Array as A
from tests.kit.two_layer_erf import erf_ntk, spread


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_duplicated_rows_train_to_the_exact_limit(dtype: type) -> None:
    """If one input has two labels, gradient flow ends at the mean label, as for one example with this label."""
    k, k_test, y, _ = spread()
    twice = [0, 1, 2, 3, 4, 5, 6, 0]  # the last example is the first one again, with another label
    y2 = np.concatenate([y, [[3.0, -1.0]]])
    mean = y.copy()
    mean[0] = (y2[0] + y2[7]) / 2
    dynamics = gradient_flow(k[np.ix_(twice, twice)].astype(dtype), y2.astype(dtype))
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    assert dynamics.spectrum.zeros == 1
    for t in (1e13, 1e300, np.inf):
        assert np.abs(dynamics.predict(t) - mean[twice]).max() < tolerance
        test = dynamics.predict(t, k_test[:, twice].astype(dtype))
        assert np.abs(test - k_test @ np.linalg.solve(k, mean)).max() < tolerance
        a = dynamics.coefficients(t)
        assert np.isfinite(a).all()
        assert np.abs(a[0] - a[7]).max() < tolerance * np.abs(a).max()  # no part along directions that move no output
        assert test.dtype == dtype


def test_duplicated_rows_of_an_ill_conditioned_kernel_keep_their_limit() -> None:
    """Directions of eigenvalue 0 are known only up to rounding, which must not be mistaken for a missing limit."""
    for seed in range(4):
        draw = np.random.default_rng(seed).standard_normal
        x, x_test, y = draw((50, 2)), draw((5, 2)), draw((50, 1))
        twice = [*range(50), 0, 1, 2]
        k, k_test = erf_ntk(x, x), erf_ntk(x_test, x)
        dynamics = gradient_flow(k[np.ix_(twice, twice)], y[twice])
        assert dynamics.spectrum.zeros == 3
        assert np.array_equal(dynamics.spectrum.lam[:3], [0.0, 0.0, 0.0])
        once = gradient_flow(k, y).predict(np.inf, k_test)
        assert np.abs(dynamics.predict(np.inf, k_test[:, twice]) - once).max() < 1e-7 * np.abs(once).max()


def test_a_zero_row_stays_where_it_was() -> None:
    """Without biases, f is 0 at an all-zero input for all weights, and the example does not affect other outputs."""
    k, k_test, y, x = spread()
    x0 = np.concatenate([x, np.zeros((1, 6))])
    y0 = np.concatenate([y, np.ones((1, 2))])
    k0 = erf_ntk(x0, x0, b=0.0)
    k, k_test = erf_ntk(x, x, b=0.0), erf_ntk(np.sin(x[:3]), x, b=0.0)
    for t in (0.3, 50.0, np.inf):
        with_row = gradient_flow(k0, y0, lr=8 / 7)  # the loss divides by N, 8 here and 7 below
        f = with_row.predict(t, np.concatenate([k_test, np.zeros((3, 1))], axis=1))
        assert np.abs(f - gradient_flow(k, y).predict(t, k_test)).max() < 1e-12
        assert np.array_equal(with_row.predict(t)[-1], [0.0, 0.0])


def test_a_kernel_of_low_rank_ends_at_least_squares() -> None:
    """For a linear model with more examples than features, the limit is the least-squares solution."""
    draw = np.random.default_rng(5).standard_normal
    x, x_test, y = draw((40, 3)), draw((5, 3)), draw((40, 2))
    w = np.linalg.lstsq(x, y)[0]
    for make in (gradient_flow, gradient_descent):
        dynamics = make(x @ x.T, y, lr=0.5)
        assert np.abs(dynamics.predict(np.inf) - x @ w).max() < 1e-12
        assert np.abs(dynamics.predict(np.inf, x_test @ x.T) - x_test @ w).max() < 1e-12
        assert np.abs(x.T @ dynamics.coefficients(np.inf) - w).max() < 1e-12


def test_a_limit_that_does_not_exist_is_refused() -> None:
    """k is singular along (1, -1). Predictions with a part along (1, -1) grow without bound, so large t is refused."""
    k, k_test, y = np.ones((2, 2)), np.array([[1.0, 0.5]]), np.array([[1.0], [0.0]])
    flow = gradient_flow(k, y)
    # da/dt = -(k a - y)/2: the sum of a tends to 1/2 as 1 - e^-t, and the difference is t/2
    for t in (0.1, 3.0, 1000.0):
        assert flow.predict(t, k_test)[0, 0] == pytest.approx(0.75 * 0.5 * (1 - math.exp(-t)) + 0.25 * t / 2, rel=1e-13)
    for beyond in (np.inf, 1e18, [1.0, np.inf]):
        with pytest.raises(ValueError, match=r"smallest eigenvalue of the kernel is .* pass ridge="):
            flow.predict(beyond, k_test)
    assert flow.predict(np.inf) == pytest.approx(np.full((2, 1), 0.5), abs=1e-15)


def smooth(N: int = 24) -> tuple[A, A, A]:
    """Return kernels and targets of inputs on a short line segment. The eigenvalues fall below 1e-16 without a gap."""
    x, x_test = np.linspace(-0.5, 0.5, N)[:, None], np.array([[0.3], [0.7]])
    return erf_ntk(x, x), erf_ntk(x_test, x), np.random.default_rng(2).standard_normal((N, 1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_eigenvalues_lost_in_rounding_are_reported_not_guessed(dtype: type) -> None:
    k, k_test, y = smooth()
    k, k_test, y = k.astype(dtype), k_test.astype(dtype), y.astype(dtype)
    flow = gradient_flow(k, y)
    assert flow.spectrum.zeros > 1
    message = r"smallest eigenvalue of the kernel is .* pass ridge=.* or stop before t = "
    with pytest.raises(ValueError, match=message):
        flow.predict(np.inf, k_test)
    with pytest.raises(ValueError, match=message):
        flow.predict(np.inf)
    with pytest.raises(ValueError, match=message):
        flow.coefficients(np.inf)
    ridge = 1e-6 if dtype is np.float64 else 0.01
    regression = k_test @ np.linalg.solve(k.astype(np.float64) + ridge * np.eye(24), y)
    assert gradient_flow(k, y, ridge=ridge).predict(np.inf, k_test) == pytest.approx(regression, rel=1e-6)


def test_a_smooth_kernel_in_float32_is_right_or_refused() -> None:
    """With many examples on a short segment, a float32 kernel loses eigenvalues, and t = inf raises an error."""
    refused = []
    for N in range(4, 24):
        k, k_test, y = smooth(N)
        try:
            f = gradient_flow(k.astype(np.float32), y.astype(np.float32)).predict(np.inf, k_test.astype(np.float32))
        except ValueError:
            refused.append(N)
        else:
            truth = k_test @ np.linalg.solve(k, y)
            assert np.abs(f - truth).max() < 1e-3 * np.abs(truth).max()
    assert refused == list(range(7, 24))


def test_finite_times_are_exact_however_singular_the_kernel() -> None:
    """Compare outputs with the exponential of the augmented matrix in 60 digits, which needs no inverse."""
    k, k_test, y = smooth()
    n, t = len(k), 1e3
    with mpmath.workdps(60):
        generator = mpmath.zeros(n + 1)  # d/dt (a, 1) = [[-k/n, y/n], [0, 0]] (a, 1)
        for i in range(n):
            generator[i, n] = mpmath.mpf(y[i, 0]) / n
            for j in range(n):
                generator[i, j] = -(mpmath.mpf(k[i, j]) + mpmath.mpf(k[j, i])) / 2 / n
        end = mpmath.expm(generator * t, method="taylor")
        truth = [float(sum(mpmath.mpf(k_test[m, i]) * end[i, n] for i in range(n))) for m in range(2)]
    error = np.abs(gradient_flow(k, y).predict(t, k_test)[:, 0] - truth)
    assert error.max() < 1e-11
    assert gradient_flow(k, y).spectrum.zeros > 1


def test_an_indefinite_kernel_is_refused_unless_the_ridge_covers_it() -> None:
    k, _, y, _ = spread()
    bad = k - 0.5 * np.eye(7) * np.linalg.eigvalsh(k)[1] - 1e-3 * np.ones((7, 7))
    smallest = np.linalg.eigvalsh(bad)[0]
    assert smallest < 0
    with pytest.raises(ValueError, match=rf"semi-definite kernel, got one whose smallest eigenvalue is {smallest:.3g}"):
        gradient_flow(bad, y)
    with pytest.raises(ValueError, match="smallest eigenvalue"):
        max_learning_rate(bad)
    assert np.isfinite(gradient_flow(bad, y, ridge=-3 * smallest).predict(np.inf)).all()
