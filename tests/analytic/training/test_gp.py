"""Test the trained ensemble and the posterior by Monte Carlo over functions, conditioning, and reference values."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from analytic.training.dynamics import gradient_flow
from analytic.training.gp import Ensemble, Kind, ensemble
from analytic.training.posterior import posterior
from minintk.arrays import Array as A
from tests.kit.golden import ENSEMBLE, POSTERIOR, XF1, XF2, Y


class DenseErfDense:
    """Kernels of Dense-erf-Dense, with a count of the requested blocks. See Lee et al. 2019, supplement."""

    def __init__(self, w: float = 1.5, b: float = 0.05) -> None:
        self.w, self.b = w, b
        self.asked: Counter[tuple[str, int, int | None]] = Counter()

    def _both(self, x1: A, x2: A | None) -> tuple[A, A]:
        dtype, w2, b2 = x1.dtype, self.w**2, self.b**2
        y1, y2 = (x.astype(np.float64) for x in (x1, x1 if x2 is None else x2))
        k, q1, q2 = (w2 * v / x1.shape[1] + b2 for v in (y1 @ y2.T, (y1**2).sum(1), (y2**2).sum(1)))
        product = np.outer(1 + 2 * q1, 1 + 2 * q2)
        nngp = w2 * 2 / math.pi * np.arcsin(2 * k / np.sqrt(product)) + b2
        ntk = nngp + w2 * k * 4 / math.pi / np.sqrt(product - 4 * k**2)
        return nngp.astype(dtype), ntk.astype(dtype)

    def _count(self, name: str, x1: A, x2: A | None) -> None:
        self.asked[name, len(x1), None if x2 is None else len(x2)] += 1

    def nngp(self, x1: A, x2: A | None = None) -> A:
        self._count("nngp", x1, x2)
        return self._both(x1, x2)[0]

    def ntk(self, x1: A, x2: A | None = None) -> A:
        self._count("ntk", x1, x2)
        return self._both(x1, x2)[1]

    def both(self, x1: A, x2: A | None = None) -> tuple[A, A]:
        self._count("nngp", x1, x2)
        self._count("ntk", x1, x2)
        return self._both(x1, x2)


KERNEL = DenseErfDense()
KINDS: tuple[Kind, ...] = ("ntk", "nngp")


def data(N: int = 6, M: int = 4, C: int = 2, d: int = 5, seed: int = 0) -> tuple[A, A, A]:
    draw = np.random.default_rng(seed).standard_normal
    return draw((N, d)), draw((N, C)), draw((M, d))


# ------------------------------------------------------------------------------------- reference values


@pytest.mark.parametrize(("kind", "t", "total", "cov"), [(*case, *numbers) for case, numbers in ENSEMBLE.items()])
def test_the_ensemble_matches_the_reference(kind: Kind, t: float, total: float, cov: dict[Any, float]) -> None:
    """The reference values are for the loss 1/(2 N C) sum (f - y)^2.

    The ridge is 1e-3 of each kernel's mean diagonal.
    """
    k_train = KERNEL.ntk(XF1) if kind == "ntk" else KERNEL.nngp(XF1)
    trained = ensemble(KERNEL, XF1, Y, lr=0.5 / Y.shape[1], ridge=1e-3 * float(np.trace(k_train)) / 3)
    mean, covariance = trained.predict(XF2, t, kind=kind, cov=True)
    assert abs(mean.sum() - total) < 1e-8
    for entry, value in cov.items():
        assert abs(covariance[entry] - value) < 1e-8


@pytest.mark.parametrize(("kind", "total", "cov"), [(kind, *numbers) for kind, numbers in POSTERIOR.items()])
def test_the_posterior_matches_the_reference(kind: Kind, total: float, cov: float) -> None:
    mean, covariance = posterior(KERNEL, XF1, Y, ridge=1e-2, kind=kind).predict(XF2, cov=True)
    assert abs(mean.sum() - total) < 1e-8
    assert abs(covariance[0, 0] - cov) < 1e-8


# ----------------------------------------------------------------- law: theory = Monte Carlo over functions

SAMPLES = 20_000


def trained_functions(x: A, y: A, x_test: A, t: float, kind: Kind, lr: float, ridge: float, seed: int) -> A:
    """Return outputs (SAMPLES, M) at time t of functions drawn from GP(0, K) and trained on the first column of y.

    Each function is one output of a network whose outputs train independently. For "nngp", each function has
    its own noise of variance `ridge` in its targets.
    """
    rng = np.random.default_rng(seed)
    both, N = np.concatenate([x, x_test]), len(x)
    f0 = np.linalg.cholesky(KERNEL.nngp(both)) @ rng.standard_normal((len(both), SAMPLES))
    targets = np.repeat(y[:, :1], SAMPLES, axis=1)
    if kind == "nngp":
        targets += math.sqrt(ridge) * rng.standard_normal(targets.shape)
    theta = KERNEL.ntk if kind == "ntk" else KERNEL.nngp
    flow = gradient_flow(theta(x), targets, lr=lr, ridge=ridge)
    return np.asarray(flow.predict(t, theta(x_test, x), f0=f0[:N], f0_test=f0[N:]).T)


def largest_z(draws: A, mean: A, cov: A) -> float:
    """Return the largest |z| of sample means (M,) and covariances (M, M) against those of a Gaussian."""
    S, centred, var = len(draws), draws - mean, np.diag(cov)
    z_mean = centred.mean(0) / np.sqrt(var / S)
    z_cov = (centred.T @ centred / S - cov) / np.sqrt((np.outer(var, var) + cov**2) / S)
    return float(max(np.abs(z_mean).max(), np.abs(z_cov).max()))


BOUND = 5.0  # 14 numbers per case, a dozen cases: a right formula fails once in 10,000 seeds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("t", [0.0, 3.0, 1e3])
def test_mean_and_covariance_are_those_of_trained_functions(kind: Kind, ridge: float, t: float) -> None:
    x, y, x_test = data()
    mean, cov = ensemble(KERNEL, x, y, lr=0.8, ridge=ridge).predict(x_test, t, kind=kind, cov=True)
    draws = trained_functions(x, y, x_test, t, kind, 0.8, ridge, seed=1)
    assert largest_z(draws, mean[:, 0], cov) < BOUND


def test_monte_carlo_refuses_planted_mistakes() -> None:
    x, y, x_test = data()
    t, lr = 3.0, 0.8
    trained = ensemble(KERNEL, x, y, lr=lr)
    draws = {kind: trained_functions(x, y, x_test, t, kind, lr, 0.0, seed=1) for kind in KINDS}
    mean, cov = trained.predict(x_test, t, cov=True)
    mean_nngp, cov_nngp = trained.predict(x_test, t, kind="nngp", cov=True)
    assert largest_z(draws["ntk"], mean[:, 0], cov) < BOUND
    # the top layer's covariance without the factor 2 in the exponent is the covariance at half the time
    _, no_factor_2 = trained.predict(x_test, t / 2, kind="nngp", cov=True)
    assert largest_z(draws["nngp"], mean_nngp[:, 0], no_factor_2) > 3 * BOUND
    # time divided by N C instead of N
    mean_late, cov_late = trained.predict(x_test, t / 2, cov=True)
    assert largest_z(draws["ntk"], mean_late[:, 0], cov_late) > 3 * BOUND
    # the posterior's formula with Theta in place of K, and the cross term once instead of twice
    K, Theta = KERNEL.both(x)
    K_test, Theta_test = KERNEL.both(x_test, x)
    lam, Q = np.linalg.eigh(Theta)
    A_t = Theta_test @ Q @ np.diag(-np.expm1(-lr * t / len(x) * lam) / lam) @ Q.T
    prior, cross = KERNEL.nngp(x_test), A_t @ K_test.T
    assert np.abs(prior + A_t @ K @ A_t.T - cross - cross.T - cov).max() < 1e-13
    assert largest_z(draws["ntk"], mean[:, 0], KERNEL.ntk(x_test) - A_t @ Theta_test.T) > 3 * BOUND
    assert largest_z(draws["ntk"], mean[:, 0], prior + A_t @ K @ A_t.T - (cross + cross.T) / 2) > 3 * BOUND
    assert largest_z(draws["ntk"], mean[:, 0], cov_nngp) > 3 * BOUND


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_posteriors_moments(kind: Kind) -> None:
    x, y, x_test = data()
    gp = posterior(KERNEL, x, y, ridge=0.05, kind=kind)
    mean, cov = gp.predict(x_test, cov=True)
    draws = gp.sample(x_test, SAMPLES, np.random.default_rng(2))
    assert draws.shape == (SAMPLES, 4, 2)
    for c in range(2):
        assert largest_z(draws[:, :, c], mean[:, c], cov) < BOUND
        assert largest_z(draws[:, :, c], mean[:, c], 1.1 * cov) > BOUND  # ten per cent more variance is detected
    # outputs are independent
    a, b = (draws[:, :, c] - mean[:, c] for c in range(2))
    z = (a * b).mean(0) / (np.diag(cov) / math.sqrt(SAMPLES))
    assert np.abs(z).max() < BOUND


def test_samples_come_from_the_generator_alone() -> None:
    x, y, x_test = data()
    gp = posterior(KERNEL, x, y)
    one, two = (gp.sample(x_test, 3, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one, two)
    on_training = gp.sample(x, 3, np.random.default_rng(5))  # the function is known there: variance 0
    assert np.abs(on_training - y).max() < 1e-6


# ---------------------------------------------------------------------------------------------- identities


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    N=st.integers(1, 7),
    M=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    ridge=st.sampled_from([0.0, 0.1]),
)
def test_covariances_are_symmetric_and_positive_semi_definite_at_all_times(
    seed: int, N: int, M: int, kind: Kind, ridge: float
) -> None:
    x, y, x_test = data(N, M, seed=seed)
    x_test = np.concatenate([x_test, x[:1]])
    times = [0.0, 0.1, 10.0, 1e4, math.inf]
    mean, cov = ensemble(KERNEL, x, y, ridge=ridge).predict(x_test, times, kind=kind, cov=True)
    assert mean.shape == (5, M + 1, 2)
    assert cov.shape == (5, M + 1, M + 1)
    assert np.array_equal(cov, cov.swapaxes(1, 2))
    assert np.linalg.eigvalsh(cov).min() > -1e-12
    assert np.abs(mean[0]).max() == 0
    assert np.abs(cov[0] - KERNEL.nngp(x_test)).max() < 1e-15
    if kind == "nngp":  # training of the last layer can only reduce the variance
        assert np.all(np.diff(np.diagonal(cov, axis1=1, axis2=2), axis=0) < 1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_nngp_posterior_is_gaussian_conditioning(ridge: float) -> None:
    """With the joint Gaussian's precision matrix P, f(x) | y has covariance (P_xx)^-1 and mean -(P_xx)^-1 P_xX y."""
    x, y, x_test = data()
    N = len(x)
    joint = KERNEL.nngp(np.concatenate([x, x_test]))
    joint[:N, :N] += ridge * np.eye(N)
    P = np.linalg.inv(joint)
    mean, cov = posterior(KERNEL, x, y, ridge=ridge).predict(x_test, cov=True)
    assert np.abs(cov - np.linalg.inv(P[N:, N:])).max() < 1e-12
    assert np.abs(mean + np.linalg.solve(P[N:, N:], P[N:, :N] @ y)).max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_posterior_is_the_end_of_training(kind: Kind, ridge: float) -> None:
    """The posterior, from a Cholesky factor, equals the end of training, from an eigendecomposition."""
    x, y, x_test = data()
    trained = ensemble(KERNEL, x, y, lr=0.1, ridge=ridge)
    ends = (trained.predict(x_test, kind=kind, cov=True), trained.predict(x_test, 1e12, kind=kind, cov=True))
    for end in ends:
        for a, b in zip(posterior(KERNEL, x, y, ridge=ridge, kind=kind).predict(x_test, cov=True), end):
            assert np.abs(a - b).max() < 1e-12
    assert np.array_equal(trained.predict(x_test, kind=kind), ends[0][0])


def test_ensemble_mean_is_the_flow_of_the_mean() -> None:
    x, y, x_test = data()
    flow = gradient_flow(KERNEL.ntk(x), y, lr=0.3, ridge=0.1)
    for t in (2.0, [0.0, 5.0], math.inf):
        a = ensemble(KERNEL, x, y, lr=0.3, ridge=0.1).predict(x_test, t)
        assert np.array_equal(a, flow.predict(t, KERNEL.ntk(x_test, x)))


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_marginal_likelihood_is_the_density_of_the_targets(C: int, ridge: float) -> None:
    x, y, _ = data(C=C)
    density = multivariate_normal(np.zeros(6), KERNEL.nngp(x) + ridge * np.eye(6))
    expected = sum(density.logpdf(y[:, c]) for c in range(C))
    assert posterior(KERNEL, x, y, ridge=ridge).log_marginal_likelihood() == pytest.approx(expected, rel=1e-12)


# ------------------------------------------------------------------------------------------ what is computed


def test_every_block_of_the_kernel_is_evaluated_once() -> None:
    x, y, x_test = data(N=6, M=4)
    kernel = DenseErfDense()
    trained = ensemble(kernel, x, y)
    assert not kernel.asked
    trained.predict(x_test, [1.0, 2.0, math.inf])
    assert kernel.asked == {("ntk", 6, None): 1, ("ntk", 4, 6): 1}  # a mean needs no NNGP
    kernel.asked.clear()
    trained.predict(x_test, [1.0, 2.0, math.inf], cov=True)
    trained.predict(x_test[:3], 5.0, cov=True)
    trained.predict(x_test[:3], 5.0, kind="nngp")
    train = {key: n for key, n in kernel.asked.items() if key[2] is None and key[1] == 6}
    assert train == {("nngp", 6, None): 1}
    assert max(kernel.asked[key] for key in kernel.asked if key[1] == 4) == 1

    for kind in KINDS:
        kernel.asked.clear()
        gp = posterior(kernel, x, y, kind=kind)
        gp.predict(x_test, cov=True)
        gp.predict(x_test[:3])
        assert max(kernel.asked.values()) == 1
        assert ("ntk", 6, None) in kernel.asked or kind == "nngp"


def test_all_times_share_one_call() -> None:
    x, y, x_test = data()
    trained = ensemble(KERNEL, x, y)
    times = np.array([0.0, 0.7, math.inf])
    for kind in KINDS:
        means, covs = trained.predict(x_test, times, kind=kind, cov=True)
        for i, t in enumerate(times):
            mean, cov = trained.predict(x_test, float(t), kind=kind, cov=True)
            assert (mean.shape, cov.shape) == ((4, 2), (4, 4))
            assert np.abs(means[i] - mean).max() < 1e-14
            assert np.abs(covs[i] - cov).max() < 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_float32_in_is_float32_out(kind: Kind) -> None:
    x, y, x_test = (a.astype(np.float32) for a in data())
    low = ensemble(KERNEL, x, y).predict(x_test, [1.0, math.inf], kind=kind, cov=True)
    wide = (a.astype(np.float64) for a in (x, y))
    high = ensemble(KERNEL, *wide).predict(x_test.astype(np.float64), [1.0, math.inf], kind=kind, cov=True)
    gp = posterior(KERNEL, x, y, kind=kind)
    for a, b in zip((*low, *gp.predict(x_test, cov=True)), (*high, *(h[1] for h in high))):
        assert a.dtype == np.float32
        assert b.dtype == np.float64
        assert np.abs(a - b).max() < 1e-5
    assert gp.sample(x_test, 2, np.random.default_rng(0)).dtype == np.float32


# ------------------------------------------------------------------------------------------- singular kernels


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_example_is_the_limit_of_its_two_copies(kind: Kind) -> None:
    """Without a ridge, an input with two labels acts like one example with the mean label, up to rounding."""
    for seed in range(20):
        x, y, x_test = data(seed=seed)
        x2, y2 = np.concatenate([x, x[:1]]), np.concatenate([y, [[4.0, -4.0]]])
        mean_label = y.copy()
        mean_label[0] = (y2[0] + y2[6]) / 2
        once = posterior(KERNEL, x, mean_label, kind=kind).predict(x_test, cov=True)
        for twice in (
            ensemble(KERNEL, x2, y2).predict(x_test, kind=kind, cov=True),
            posterior(KERNEL, x2, y2, kind=kind).predict(x_test, cov=True),
        ):
            for a, b in zip(once, twice):
                assert np.abs(a - b).max() < 1e-11
    assert np.abs(posterior(KERNEL, x2, y2, kind=kind).sample(x, 2, np.random.default_rng(0)) - mean_label).max() < 1e-6


def test_a_zero_example_without_biases() -> None:
    kernel = DenseErfDense(b=0.0)
    x, y, x_test = data()
    x0, y0 = np.concatenate([x, np.zeros((1, 5))]), np.concatenate([y, np.ones((1, 2))])
    for kind in KINDS:
        without = posterior(kernel, x, y, kind=kind).predict(x_test, cov=True)
        with_row = posterior(kernel, x0, y0, kind=kind).predict(x_test, cov=True)
        for a, b in zip(without, with_row):
            assert np.abs(a - b).max() < 1e-12


def test_a_singular_kernel_has_no_likelihood_and_says_so() -> None:
    x, y, _ = data()
    twice = posterior(KERNEL, np.concatenate([x, x]), np.concatenate([y, -y]))
    with pytest.raises(ValueError, match=r"not singular: the smallest eigenvalue of the kernel is .* pass ridge="):
        twice.log_marginal_likelihood()


def test_eigenvalues_lost_in_rounding_are_reported() -> None:
    x, y = np.linspace(-0.5, 0.5, 24)[:, None], np.ones((24, 1))
    for kind in KINDS:
        with pytest.raises(ValueError, match=r"smallest eigenvalue of the kernel is .* pass ridge="):
            posterior(KERNEL, x, y, kind=kind).predict(np.array([[0.7]]), cov=True)
        assert np.isfinite(ensemble(KERNEL, x, y).predict(np.array([[0.7]]), 100.0, kind=kind)).all()


class Indefinite(DenseErfDense):
    """A prior whose variances at new inputs are too small for the covariances with the training set."""

    def nngp(self, x1: A, x2: A | None = None) -> A:
        return super().nngp(x1, x2) * (0.5 if x2 is None and len(x1) == 4 else 1.0)


def test_a_covariance_that_is_none_cannot_be_sampled() -> None:
    x, y, _ = data()
    with pytest.raises(ValueError, match="covariance at x_test has the eigenvalue -"):
        posterior(Indefinite(), x, y).sample(x[:4] + 1e-3, 2, np.random.default_rng(0))


# ------------------------------------------------------------------------------------------------- errors

X, TARGETS, X_TEST = data()
BAD_CONSTRUCTION: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((KERNEL.ntk(X), X, TARGETS), {}, TypeError, "expected a kernel such as analytic.kernel"),
    ((DenseErfDense, X, TARGETS), {}, TypeError, "got the class DenseErfDense"),
    ((KERNEL, X, TARGETS[:, 0]), {}, ValueError, r"y expects shape \(N, C\), got \(6,\)"),
    ((KERNEL, X, TARGETS[:5]), {}, ValueError, r"with one N, got \(6, 5\) and \(5, 2\)"),
    ((KERNEL, X[0], TARGETS), {}, ValueError, r"x expects shape \(N, d\), got \(5,\)"),
    ((KERNEL, X * np.nan, TARGETS), {}, ValueError, "x holds 30 values that are NaN"),
    ((KERNEL, X, TARGETS * np.nan), {}, ValueError, "y holds 12 values that are NaN"),
    ((KERNEL, X.astype(int), TARGETS), {}, TypeError, "x expects float32 or float64"),
    ((KERNEL, X, TARGETS.tolist()), {}, TypeError, "one library"),
    ((KERNEL, X, TARGETS), {"ridge": -1.0}, ValueError, "ridge expects"),
]


@pytest.mark.parametrize("make", [ensemble, posterior])
@pytest.mark.parametrize(("arguments", "options", "error", "message"), BAD_CONSTRUCTION)
def test_bad_input_is_refused_before_any_kernel_is_computed(
    make: Any, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(*arguments, **options)


def test_bad_questions_are_refused() -> None:
    trained: Ensemble = ensemble(KERNEL, X, TARGETS)
    gp = posterior(KERNEL, X, TARGETS)
    with pytest.raises(ValueError, match="lr expects a finite number > 0"):
        ensemble(KERNEL, X, TARGETS, lr=-1.0)
    for t in (-1.0, math.nan, [0.0, -1.0]):
        for cov in (False, True):
            with pytest.raises(ValueError, match="t expects numbers >= 0"):
                trained.predict(X_TEST, t, cov=cov)
    for bad_kind in (lambda: trained.predict(X_TEST, kind="gp"), lambda: posterior(KERNEL, X, TARGETS, kind="gp")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="kind expects 'ntk' or 'nngp', got 'gp'"):
            bad_kind()
    for predict in (trained.predict, gp.predict):
        with pytest.raises(ValueError, match=r"x_test expects shape \(N, 5\), got \(5,\): a single example"):
            predict(X_TEST[0])
        with pytest.raises(ValueError, match=r"x_test expects shape \(N, 5\)"):
            predict(X_TEST[:, :3])
        with pytest.raises(ValueError, match="x_test holds 20 values"):
            predict(X_TEST * np.nan)
    with pytest.raises(ValueError, match="not the posterior of a model"):
        posterior(KERNEL, X, TARGETS, kind="ntk").log_marginal_likelihood()
    for size in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="size"):
            gp.sample(X_TEST, size, np.random.default_rng(0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"numpy\.random\.default_rng"):
        gp.sample(X_TEST, 1, 0)  # type: ignore[arg-type]


def test_a_covariance_needs_the_kernel_and_three_matrices_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covariances with Theta need more memory: for K, of shape (N, N), and for three float64 matrices of this shape."""
    needs: list[int] = []
    monkeypatch.setattr("analytic.training.gp.check_memory", lambda xp, what, need, remedy: needs.append(need))
    one = Ensemble(DenseErfDense(), np.ones((100, 2)), np.ones((100, 1)), lr=1.0, ridge=0.0)
    for covariances in (None, 1):
        one.check_memory("ntk", 0, covariances)
    assert needs[1] - needs[0] == (8 + 3 * 8) * 100**2
