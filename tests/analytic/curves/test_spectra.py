"""Test eigenvalues on the sphere and the cube against closed forms and matrices, and learnabilities in random draws."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import sqrt
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import eval_gegenbauer

import analytic as an
import minintk as mn
from analytic.curves.spectra import Eigenlearning, harmonics

Array = np.ndarray[Any, Any]
SPEC = mn.Sequential(*[mn.Dense(8, w_std=2**0.5, b_std=0.1), mn.ReLU()] * 3, mn.Dense(1))
CUBE = np.array(list(product((-1.0, 1.0), repeat=10)))
PLAIN = mn.Sequential(mn.Dense(8, w_std=2**0.5), mn.ReLU(), mn.Dense(1))

# ------------------------------------------------------------------------------------------- the sphere


def poisson(d: int, r: float, on: int | None = None) -> float:
    """Return the largest relative error of eigenvalues l <= 12 of (1 - r^2) / (1 - 2 r t + r^2)^(d/2) against r^l."""
    modes = an.sphere_modes(lambda t: (1 - r * r) / (1 - 2 * r * t + r * r) ** (d / 2), on or d, 12)
    return float(np.abs(modes.eigenvalue / r ** np.arange(13) - 1).max())


@pytest.mark.parametrize("d", [2, 3, 10, 100])
def test_the_poisson_kernel_has_powers_for_eigenvalues(d: int) -> None:
    assert poisson(d, 0.4) < 1e-9


def test_the_sphere_of_another_dimension_is_refused() -> None:
    """Negative control: the Poisson kernel of d = 3 fails the check on the sphere in d = 4."""
    assert poisson(3, 0.4, on=4) > 0.1


@pytest.mark.parametrize("d", [3, 784, 3000])
def test_exponential_kernel_in_high_dimensions(d: int) -> None:
    """Eigenvalues of exp(t) for l < 5 are Gamma(d/2) 2^(d/2-1) I_{l+d/2-1}(1), with relative errors below 1e-5.

    For l >= 5, eigenvalues are accurate to 5 %. Those below rounding error are returned as 0 and included in `rest`.
    """
    modes, a = an.sphere_modes(np.exp, d, 8), mpmath.mpf(d) / 2 - 1
    exact = np.array([float(mpmath.gamma(a + 1) * 2**a * mpmath.besseli(a + level, 1)) for level in range(9)])
    np.testing.assert_allclose(modes.eigenvalue[:5], exact[:5], rtol=1e-5)
    assert np.all((modes.eigenvalue == 0) | (np.abs(modes.eigenvalue / exact - 1) < 0.05))
    assert 0 <= modes.rest < 1e-3 * np.e


@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_eigenvalues_put_the_kernel_together_again(kind: Any) -> None:
    """At d = 5, compare k(t) with sum_l lambda_l h_l P_l(t) (P_l from SciPy), and k(1) with this sum plus `rest`."""
    d, t = 5, np.linspace(-0.9, 0.9, 31)
    modes = an.sphere_modes(an.kernel(SPEC), d, 80, kind=kind)
    a = d / 2 - 1
    P = [eval_gegenbauer(level, a, t) / eval_gegenbauer(level, a, 1.0) for level in range(81)]
    x = np.zeros((31, d))
    x[:, 0], x[:, 1] = sqrt(d) * t, sqrt(d) * np.sqrt(1 - t * t)
    k = getattr(an.kernel(SPEC), kind)
    want = k(x, np.eye(d)[:1] * sqrt(d))[:, 0]
    np.testing.assert_allclose((modes.eigenvalue * modes.multiplicity) @ P, want, atol=2e-4 * want.max())
    diagonal = float(k(x[:1])[0, 0])
    assert modes.multiplicity @ modes.eigenvalue + modes.rest == pytest.approx(diagonal)
    assert 0 <= modes.rest < 0.01 * diagonal


def test_the_circle_is_a_fourier_series() -> None:
    """At d = 2, the modes of each degree above 0 are cos and sin.

    Eigenvalues of a ReLU network equal the kernel's Fourier coefficients, computed by FFT, up to aliasing.
    """
    angle = 2 * np.pi * np.arange(2**14) / 2**14
    x = sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    fourier = np.fft.rfft(an.kernel(SPEC).nngp(x, x[:1])[:, 0]).real / len(angle)
    modes = an.sphere_modes(an.kernel(SPEC), 2, 20, kind="nngp")
    assert modes.multiplicity.tolist() == [1] + [2] * 20
    np.testing.assert_allclose(modes.eigenvalue, fourier[:21], atol=1e-9)


@pytest.mark.parametrize("d", [3, 5])
def test_eigenvalues_of_relu_decay_as_powers_of_the_degree(d: int) -> None:
    """NTK eigenvalues fall as l^-d and NNGP eigenvalues as l^-(d+2), and eigenvalues of odd degrees above 1 are zero.

    Source: Bietti and Mairal 2019. Both slopes agree to within 0.15, so exchanged exponents would fail.
    """
    degree = np.arange(61)
    slope = {}
    for kind, power in (("ntk", d), ("nngp", d + 2)):
        found = an.sphere_modes(an.kernel(PLAIN), d, 60, kind=kind).eigenvalue  # type: ignore[arg-type]
        assert not np.any(found[3::2])
        seen = (degree >= 20) & (found > 0)
        slope[kind] = np.polyfit(np.log(degree[seen] + (d - 2) / 2), np.log(found[seen]), 1)[0]
        assert abs(slope[kind] + power) < 0.15, (kind, slope)
    assert slope["ntk"] - slope["nngp"] > 1.8


def test_harmonics_are_counted() -> None:
    """The numbers of harmonics up to degree l add up to binom(d+l-1, l) + binom(d+l-2, l-1)."""
    assert [harmonics(4, level) for level in range(5)] == [1, 4, 9, 16, 25]
    assert sum(harmonics(7, level) for level in range(4)) == 84 + 28


# --------------------------------------------------------------------------------------------- the cube


@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_modes_of_the_cube_are_those_of_its_whole_matrix(kind: Any) -> None:
    """Eigenvalues equal those of the matrix, and the product of the first `level` coordinates is an eigenfunction."""
    K = getattr(an.kernel(SPEC), kind)(CUBE) / 1024
    modes = an.cube_modes(an.kernel(SPEC), 10, kind=kind)
    np.testing.assert_allclose(
        np.sort(np.repeat(modes.eigenvalue, modes.multiplicity.astype(int))), np.linalg.eigvalsh(K), atol=1e-13
    )
    for level in range(11):
        phi = CUBE[:, :level].prod(axis=1)
        np.testing.assert_allclose(K @ phi, modes.eigenvalue[level] * phi, atol=1e-13)


# -------------------------------------------------------------------------------------- learnability


def draws(n: int, ridge: float, count: int = 25) -> tuple[Array, Array]:
    """Return learnabilities, (draws, 4), of products of 1 to 4 coordinates, and their sums over all modes, (draws,)."""
    K, rng = an.kernel(SPEC).ntk(CUBE), np.random.default_rng(0)
    modes = np.stack([CUBE[:, level : 2 * level].prod(axis=1) for level in range(1, 5)], axis=1)
    learned, total = [], []
    for _ in range(count):
        at = rng.choice(1024, n, replace=False)
        hat = K[:, at] @ np.linalg.inv(K[np.ix_(at, at)] + ridge * np.eye(n))
        learned.append((hat @ modes[at] * modes).mean(0))
        total.append(np.trace(hat[at]))
    return np.array(learned), np.array(total)


def errors_on_sphere(n: int, ridge: float, noise: float, count: int = 100) -> tuple[Array, Array]:
    """Return test and training errors, (draws,), for the target x_1 + sqrt((d+2)/d) x_1 x_2 on the sphere in d = 6.

    Each of the two terms has power 1.
    """
    d, rng, k = 6, np.random.default_rng(0), an.kernel(SPEC)
    found = []
    for _ in range(count):
        x = mn.datasets.sphere(n + 500, d, rng)
        x *= sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
        y = x[:, 0] + sqrt((d + 2) / d) * x[:, 0] * x[:, 1] + sqrt(noise) * rng.standard_normal(len(x))
        K = k.ntk(x, x[:n])
        f = K @ np.linalg.solve(K[:n] + ridge * np.eye(n), y[:n])
        found.append([((f - y)[n:] ** 2).mean(), ((f - y)[:n] ** 2).mean()])
    test, train = np.array(found).T
    return test, train


def theory(n: int, ridge: float = 0.0) -> Eigenlearning:
    return an.eigenlearning(an.cube_modes(an.kernel(SPEC), 10), n, ridge=ridge)


def learnability_law(claim: Eigenlearning, n: int, ridge: float = 0.0) -> None:
    """Claimed learnabilities are within 0.02 of the mean over 25 draws, whose standard error is below 0.01."""
    learned, _ = draws(n, ridge)
    assert learned.std(axis=0, ddof=1).max() / 5 < 0.01
    np.testing.assert_allclose(learned.mean(axis=0), claim.learnability[1:5], atol=0.02)


@pytest.mark.parametrize(("n", "ridge"), [(16, 0.0), (64, 0.0), (128, 0.5), (256, 0.0)])
def test_learnability_on_the_cube(n: int, ridge: float) -> None:
    learnability_law(theory(n, ridge), n, ridge)


def test_a_wrong_threshold_is_refused() -> None:
    """Negative controls: the check fails if the theory assumes twice the examples, or omits multiplicities."""
    with pytest.raises(AssertionError):
        learnability_law(theory(128), 64)
    modes = an.cube_modes(an.kernel(SPEC), 10)
    once = an.eigenlearning(an.Modes(modes.eigenvalue, np.ones(11, int)), 8)
    with pytest.raises(AssertionError):
        learnability_law(once, 8)


def test_learnabilities_add_up_to_the_number_of_examples() -> None:
    """Learnabilities sum to n without a ridge, in theory and in every draw (the trace of the hat matrix).

    With a ridge, the sum is smaller.
    """
    for n in (1, 3, 100, 1000):
        one = theory(n)
        assert one.modes.multiplicity @ one.learnability == pytest.approx(n, rel=1e-10)
    _, traces = draws(40, 0.0, count=2)
    np.testing.assert_allclose(traces, 40, rtol=1e-9)
    with_ridge = theory(40, 1.0)
    total = with_ridge.modes.multiplicity @ with_ridge.learnability
    assert total + 1.0 / with_ridge.kappa == pytest.approx(40)
    assert total < 39


@pytest.mark.parametrize(("n", "ridge", "noise"), [(50, 0.0, 0.0), (50, 0.5, 0.3), (200, 0.0, 0.3)])
def test_errors_of_regression(n: int, ridge: float, noise: float) -> None:
    """Compare mean test and training errors over 100 draws with theory, up to 4 standard errors plus 2 %.

    Without the overfitting factor E0, the predicted test error is off by more than 4 standard errors.
    """
    test, train = errors_on_sphere(n, ridge, noise)
    found = an.eigenlearning(an.sphere_modes(an.kernel(SPEC), 6, 40), n, ridge=ridge)
    power = np.isin(np.arange(41), (1, 2)).astype(float)
    for measured, want in ((test, found.test_error(power, noise)), (train, found.train_error(power, noise))):
        assert abs(measured.mean() - want) < 0.4 * measured.std(ddof=1) + 0.02 * want + 1e-12
    assert abs(test.mean() - found.test_error(power, noise) / found.overfitting) > 0.4 * test.std(ddof=1)


def test_noise_alone_on_equal_modes() -> None:
    """Check that E0 is 5 for 8 examples and 10 equal modes. For 16 modes, the mean error is 1 + 8 / 7, not E0."""
    assert an.eigenlearning(an.Modes(np.ones(1), np.array([10])), 8).overfitting == pytest.approx(5)
    Z, noise = np.random.default_rng(0).standard_normal((4000, 8, 16)), np.random.default_rng(1)
    w = np.linalg.pinv(Z) @ noise.standard_normal((4000, 8, 1))
    errors = 1 + np.sum(w**2, axis=(1, 2))
    room = 4 * errors.std(ddof=1) / 4000**0.5
    E0 = an.eigenlearning(an.Modes(np.ones(1), np.array([16])), 8).overfitting
    assert abs(errors.mean() - (1 + 8 / 7)) < room < abs(errors.mean() - E0)


def test_modes_of_a_data_set() -> None:
    """On the whole cube, `data_modes` returns the eigenvalues of `cube_modes` and the target's power by level.

    On digits, the modes predict the test errors of regression.
    """
    K, y = an.kernel(SPEC).ntk(CUBE), CUBE[:, :2].prod(1, keepdims=True) + CUBE[:, :1] / 2
    modes, power = an.data_modes(K, y)
    levels = an.cube_modes(an.kernel(SPEC), 10)
    for level, want in ((1, 0.25), (2, 1.0), (3, 0.0)):
        here = np.abs(modes.eigenvalue / levels.eigenvalue[level] - 1) < 1e-9
        assert np.sum(here) == levels.multiplicity[level]
        assert np.sum(power[here]) == pytest.approx(want, abs=1e-12)

    x, parity = mn.datasets.digits().on_sphere().subset(900, np.random.default_rng(1)).parity()
    K, rng, n = an.kernel(SPEC).ntk(x), np.random.default_rng(0), 100
    modes, power = an.data_modes(K, parity)
    measured = []
    for _ in range(25):
        at = rng.choice(len(x), n, replace=False)
        f = K[:, at] @ np.linalg.solve(K[np.ix_(at, at)], parity[at])
        measured.append(((f - parity) ** 2).mean())
    want = an.eigenlearning(modes, n).test_error(power)
    assert abs(np.mean(measured) / want - 1) < 0.06 + 3 * np.std(measured, ddof=1) / 5 / want < 0.2
    shuffled = an.eigenlearning(modes, n).test_error(rng.permutation(power))  # negative control
    assert shuffled > 2 * want


def test_levels_left_out_act_as_ridge() -> None:
    """A spectrum that is cut at degree 30 stores the sum of the omitted eigenvalues in `rest`.

    Learnabilities from this spectrum equal those from a spectrum cut at degree 100, up to 0.1 %.
    """
    cut, whole = (an.eigenlearning(an.sphere_modes(an.kernel(SPEC), 4, degree), 200) for degree in (30, 100))
    np.testing.assert_allclose(cut.learnability[:20], whole.learnability[:20], rtol=1e-3)
    dropped = an.eigenlearning(an.Modes(cut.modes.eigenvalue, cut.modes.multiplicity), 200)
    assert np.abs(dropped.learnability[:20] / whole.learnability[:20] - 1).max() > 3e-3  # negative control


def test_the_limit_of_few_examples_and_errors() -> None:
    with pytest.raises(ValueError, match="nothing is left to predict"):
        theory(1024)
    with pytest.raises(ValueError, match=r"n expects .* got 0"):
        theory(0)
    with pytest.raises(ValueError, match="no kernel has such a spectrum"):
        an.eigenlearning(an.Modes(np.array([1.0, -0.1]), np.array([1, 9])), 3)
    with pytest.raises(ValueError, match="power >= 0 for each of 11 levels"):
        theory(4).test_error(np.ones(3))
    with pytest.raises(ValueError, match="d expects a whole number >= 2"):
        an.sphere_modes(an.kernel(SPEC), 1, 3)
    with pytest.raises(ValueError, match=r"targets \(M, C\)"):
        an.data_modes(np.eye(3), np.ones((2, 1)))
    with pytest.raises(TypeError, match="a function k"):
        an.cube_modes(3, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite values"):
        an.cube_modes(lambda t: np.full_like(t, np.inf), 4)


@pytest.mark.parametrize("d", [3, 100, 784, 3072])
def test_high_degrees_in_high_dimensions(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenvalues of e^(t - 1) are Bessel functions times Gamma(d/2) 2^(d/2 - 1) / e, or 0 if lost to rounding.

    Negative control: 8 sqrt(d) nodes alias with high degrees, so the error exceeds the resolution.
    """
    half = mpmath.mpf(d) / 2
    exact = np.array(
        [mpmath.gamma(half) * 2 ** (half - 1) * mpmath.besseli(level + half - 1, 1) / mpmath.e for level in range(31)],
        dtype=np.float64,
    )

    def worst(modes: an.Modes) -> float:
        """Return the largest error, relative to eps E|k P_l| <= eps / h_l^(1/2), of the eigenvalues l <= 30."""
        return float(np.max(np.abs(modes.eigenvalue - exact) * modes.multiplicity**0.5)) / np.finfo(float).eps

    assert worst(an.sphere_modes(lambda t: np.exp(t - 1), d, 30)) < 1200
    if d > 100:
        right = np.polynomial.legendre.leggauss
        monkeypatch.setattr(np.polynomial.legendre, "leggauss", lambda _: right(8 * int(sqrt(d))))
        assert worst(an.sphere_modes(lambda t: np.exp(t - 1), d, 30)) > 1e6


def test_the_omitted_trace_of_the_cube_is_kept() -> None:
    """Levels that are lost to rounding remain in `rest`, so the cube's kappa is that of the sphere to 1 %."""
    kernel = an.kernel(mn.Sequential(mn.Dense(8, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
    cube, sphere = an.cube_modes(kernel, 100), an.sphere_modes(kernel, 100, 40)
    assert float(cube.multiplicity @ cube.eigenvalue) + cube.rest == pytest.approx(2.0, rel=1e-12)
    assert an.eigenlearning(cube, 1000).kappa == pytest.approx(an.eigenlearning(sphere, 1000).kappa, rel=0.01)
    assert an.eigenlearning(replace(cube, rest=0.0), 1000).kappa < 0.95 * an.eigenlearning(sphere, 1000).kappa


@pytest.mark.parametrize("d", [5, 10])
def test_every_level_of_the_cube_is_that_of_its_matrix(d: int) -> None:
    """Compare the eigenvalues of all levels, including the last, with sums over all 2^d corners."""
    corners = 1.0 - 2 * ((np.arange(2**d)[:, None] >> np.arange(d)) & 1)
    row = np.exp(corners @ corners[0] / d)  # k(x, corner 0)
    products = [np.prod(corners[:, :level], axis=1) for level in range(d + 1)]
    exact = [float(row @ p) * p[0] / 2**d for p in products]
    np.testing.assert_allclose(an.cube_modes(np.exp, d).eigenvalue, exact, atol=1e-15)


def test_a_large_cube_is_nearly_a_sphere() -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(8, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
    cube, sphere = an.cube_modes(kernel, 1029), an.sphere_modes(kernel, 1029, 3)
    assert np.all(np.isfinite(cube.eigenvalue))
    np.testing.assert_allclose(cube.eigenvalue[:4], sphere.eigenvalue, rtol=5e-3)
    with pytest.raises(ValueError, match="d expects a whole number from 2 to 1029"):
        an.cube_modes(kernel, 1030)


def test_a_kernel_of_another_kind_is_refused() -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(1)))
    with pytest.raises(ValueError, match="kind expects 'ntk' or 'nngp', got 'cntk'"):
        an.cube_modes(kernel, 4, kind="cntk")  # type: ignore[arg-type]


def test_levels_without_a_multiplicity_are_refused() -> None:
    with pytest.raises(ValueError, match="modes expect an eigenvalue and multiplicity per level"):
        an.eigenlearning(an.Modes(np.ones(3), np.ones(2)), 1)
