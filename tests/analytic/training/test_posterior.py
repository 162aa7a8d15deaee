"""Test the ensemble trained in steps, with and without momentum, and standard deviations without covariances."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.training import posterior
from analytic.training.gp import Kind
from minintk.arrays import Array as A

KERNEL = an.kernel(mn.Sequential(mn.Dense(9, w_std=1.4, b_std=0.3), mn.Erf(), mn.Dense(1)))
KINDS: tuple[Kind, ...] = ("ntk", "nngp")
STEPS = {"flow": {}, "descent": {"by": "descent"}, "heavy ball": {"by": "descent", "momentum": 0.8}}
N, M, LR = 5, 4, 0.9


def data(seed: int = 0) -> tuple[A, A, A]:
    draw = np.random.default_rng(seed).standard_normal
    return draw((N, 3)), draw((N, 2)), draw((M, 3))


def moments(x: A, y: A, x_test: A, t: float, kind: Kind, ridge: float, momentum: float) -> tuple[A, A]:
    """Return (mean, covariance) of functions trained from f_0 ~ GP(0, K) to time t, by a loop that is affine in f_0.

    For "nngp", each function has its own noise of variance `ridge` in its targets.
    """
    both = np.concatenate([x, x_test])
    K = KERNEL.nngp(both)
    theta = (KERNEL.ntk if kind == "ntk" else KERNEL.nngp)(both, x)

    def trained(f: A, targets: A) -> A:
        """Return outputs at x_test after training from f (N + M, k) on targets (N, k)."""
        a, v = np.zeros_like(targets), np.zeros_like(targets)
        for _ in range(int(t)):
            g = (f[:N] + theta[:N] @ a - targets + ridge * a) / N
            v = momentum * v + g
            a = a - LR * v
        return np.asarray(f + theta @ a)[N:]

    B = trained(np.eye(N + M), np.zeros((N, N + M)))
    noise = trained(np.zeros((N + M, N)), np.eye(N))
    cov = B @ K @ B.T + (ridge * noise @ noise.T if kind == "nngp" else 0)
    return trained(np.zeros((N + M, 2)), y), np.asarray(cov)


def departure(how: dict[str, Any], momentum: float, t: int, kind: Kind, ridge: float) -> float:
    """Return the largest |closed form - loop| over the entries of the mean and the covariance."""
    x, y, x_test = data()
    mean, cov = an.ensemble(KERNEL, x, y, lr=LR, ridge=ridge, **how).predict(x_test, t=t, kind=kind, cov=True)
    want = moments(x, y, x_test, t, kind, ridge, momentum)
    return max(float(np.abs(a - b).max()) for a, b in zip((mean, cov), want, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_mean_and_covariance_are_those_of_the_loop(kind: Kind, ridge: float, momentum: float) -> None:
    for t in (0, 1, 2, 9, 60):
        assert departure({"by": "descent", "momentum": momentum}, momentum, t, kind, ridge) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_law_refuses_other_dynamics(kind: Kind) -> None:
    """The law fails if flow replaces steps, or if only the loop or only the closed form uses momentum."""
    assert departure({}, 0.0, 2, kind, 0.2) > 1e-3
    assert departure({"by": "descent"}, 0.8, 2, kind, 0.2) > 1e-3
    assert departure({"by": "descent", "momentum": 0.8}, 0.0, 2, kind, 0.2) > 1e-3


def test_steps_and_flow_end_alike_and_meet_as_the_rate_falls() -> None:
    x, y, x_test = data()
    flow = an.ensemble(KERNEL, x, y)
    for t in (2.0, math.inf):
        mean, cov = flow.predict(x_test, t=t, cov=True)
        errors = []
        for lr in (2**-5, 2**-6, 2**-7):
            steps = an.ensemble(KERNEL, x, y, lr=lr, by="descent").predict(x_test, t=t / lr, cov=True)
            errors.append(max(float(np.abs(steps[0] - mean).max()), float(np.abs(steps[1] - cov).max())))
        if t == math.inf:
            assert max(errors) < 1e-12
        else:
            assert [a / b for a, b in pairwise(errors)] == pytest.approx([2, 2], rel=0.05)


# -------------------------------------------------------------------------------------- standard deviations


class WithoutDiag:
    """KERNEL with only the methods nngp, ntk and both."""

    nngp, ntk, both = staticmethod(KERNEL.nngp), staticmethod(KERNEL.ntk), staticmethod(KERNEL.both)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", [KERNEL, WithoutDiag()], ids=["diag", "no diag"])
@pytest.mark.parametrize("how", STEPS)
def test_std_is_the_root_of_the_covariances_diagonal(kernel: Any, kind: Kind, how: str) -> None:
    x, y, x_test = data()
    x_test = np.concatenate([x_test, np.random.default_rng(1).standard_normal((2 * N, 3))])
    one = an.ensemble(kernel, x, y, lr=LR, ridge=0.1, **STEPS[how])  # type: ignore[arg-type]
    for t in (3, np.array([0.0, 2.0, np.inf])):
        mean, cov = one.predict(x_test, t=t, kind=kind, cov=True)
        again, std = one.predict(x_test, t=t, kind=kind, std=True)
        assert np.array_equal(again, mean)
        np.testing.assert_allclose(std, np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1)), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_std_of_the_posterior(kind: Kind, ridge: float) -> None:
    x, y, x_test = data()
    gp = an.posterior(KERNEL, x, y, ridge=ridge, kind=kind)
    mean, cov = gp.predict(x_test, cov=True)
    again, std = gp.predict(x_test, std=True)
    np.testing.assert_allclose(again, mean, rtol=1e-13)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-9)
    assert np.all(gp.predict(np.concatenate([x, x_test]), std=True)[1] >= 0)  # training points: 0 if ridge = 0
    duplicated = an.posterior(KERNEL, np.concatenate([x, x]), np.concatenate([y, y]), kind=kind)  # no factor: the limit
    if ridge == 0:
        np.testing.assert_allclose(duplicated.predict(x_test, std=True)[1], std, rtol=1e-6)


def test_variances_lost_in_float32_are_zero() -> None:
    """At points close to training points, a covariance in float32 has no negative variances.  `x_test` may be empty."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 5)).astype(np.float32)
    near = (x + 1e-4 * rng.standard_normal(x.shape)).astype(np.float32)
    for one in (
        an.posterior(KERNEL, x, x[:, :1], ridge=1e-5, kind="ntk"),
        an.ensemble(KERNEL, x, x[:, :1], ridge=1e-5),
    ):
        assert np.all(np.diag(one.predict(near, cov=True)[1]) >= 0)
        assert one.predict(x[:0], cov=True)[1].shape == (0, 0)


@pytest.mark.parametrize("make", [an.ensemble, an.posterior])
@pytest.mark.parametrize("kind", KINDS)
def test_std_takes_memory_for_m_times_n(make: Callable[..., Any], kind: Kind) -> None:
    """For M = 8000, a covariance takes 512 MB. `std` needs fewer than 12 arrays of shape (M, N) and some workspace."""
    x, y, _ = data()
    x_test, options = np.random.default_rng(2).standard_normal((8000, 3)), {"kind": kind}
    one = make(KERNEL, x, y, ridge=0.1, **(options if make is an.posterior else {}))
    options |= {"std": True}  # type: ignore[dict-item]
    one.predict(x_test, **(options if make is an.ensemble else {"std": True}))  # a first call loads and compiles code
    tracemalloc.start()
    one.predict(x_test, **(options if make is an.ensemble else {"std": True}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 8 * 8000 * N + 2**25


class Indefinite:
    """A kernel whose K(x, x) is too small for K(x, X)."""

    ntk, both = staticmethod(KERNEL.ntk), staticmethod(KERNEL.both)

    def nngp(self, x1: A, x2: A | None = None) -> A:
        return np.asarray(KERNEL.nngp(x1, x2) * (1.0 if x2 is not None or len(x1) == N else 0.2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_variance_below_zero_is_an_error(kind: Kind) -> None:
    (x, y, _), message = data(), r"the variance at x_test is -.*positive semi-definite"
    with pytest.raises(ValueError, match=message):
        an.posterior(Indefinite(), x, y, ridge=1e-3, kind=kind).predict(x[:2] + 1e-3, std=True)
    with pytest.raises(ValueError, match=message):
        an.ensemble(Indefinite(), x, y).predict(x[:2] + 1e-3, kind=kind, std=True)


def test_bad_input_is_refused() -> None:
    x, y, x_test = data()
    with pytest.raises(ValueError, match=r"by expects 'flow' or 'descent', got 'steps'"):
        an.ensemble(KERNEL, x, y, by="steps")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"momentum expects by='descent', got 0.9 with by='flow'"):
        an.ensemble(KERNEL, x, y, momentum=0.9)
    with pytest.raises(ValueError, match=r"momentum expects a number in \[0, 1\), got 1"):
        an.ensemble(KERNEL, x, y, by="descent", momentum=1)
    with pytest.raises(ValueError, match=r"whole steps, got t = 2\.5"):
        an.ensemble(KERNEL, x, y, by="descent").predict(x_test, t=2.5)
    for one in (an.ensemble(KERNEL, x, y), an.posterior(KERNEL, x, y)):
        with pytest.raises(ValueError, match="cov=True or std=True, not both"):
            one.predict(x_test, cov=True, std=True)
    with pytest.warns(RuntimeWarning, match="gradient descent diverges: lr = 100 must stay below"):
        an.ensemble(KERNEL, x, y, lr=100.0, by="descent").predict(x_test, t=1)


# ------------------------------------------------------------------------------- matrices that exist already


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", STEPS)
def test_matrices_give_what_the_kernel_gives(kind: Kind, how: str) -> None:
    """Predictions from matrices of training and test points in mixed order equal predictions from the kernel."""
    x, y, x_test = data()
    order = np.random.default_rng(3).permutation(N + M)
    points = np.concatenate([x, x_test])[order]
    place = np.argsort(order)
    matrices = KERNEL.both(points)
    options: dict[str, Any] = {"lr": LR, "ridge": 0.1, **STEPS[how]}  # type: ignore[dict-item]
    a = an.ensemble(KERNEL, x, y, **options)
    b = an.ensemble(matrices, place[:N], y, **options)
    for spread in ({}, {"cov": True}, {"std": True}):
        for t in (2, np.array([1.0, np.inf])):
            want = a.predict(x_test, t=t, kind=kind, **spread)
            got = b.predict(place[N:], t=t, kind=kind, **spread)
            for one, other in zip(want, got, strict=True) if spread else [(want, got)]:
                np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    gp, same = (an.posterior(k, at, y, ridge=0.2, kind=kind) for k, at in ((KERNEL, x), (matrices, place[:N])))
    for one, other in zip(gp.predict(x_test, cov=True), same.predict(place[N:], cov=True), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    if kind == "nngp":
        assert same.log_marginal_likelihood() == pytest.approx(gp.log_marginal_likelihood(), rel=1e-12)


def test_bad_matrices_are_refused() -> None:
    (x, y, _), K = data(), KERNEL.nngp(np.random.default_rng(0).standard_normal((N + M, 3)))
    rows = np.arange(N)
    with pytest.raises(ValueError, match=r"nngp expects a symmetric kernel"):
        an.ensemble((np.triu(K), K), rows, y)
    with pytest.raises(ValueError, match=r"expected \(nngp, ntk\), both \(n, n\).*got ntk : \(5, 5\)"):
        an.ensemble((K, K[:N, :N]), rows, y)
    with pytest.raises(ValueError, match=r"x expects numbers of points, \(N,\) from 0 to 8"):
        an.ensemble((K, K), x, y)
    with pytest.raises(ValueError, match=r"one N, got \(4,\) and \(5, 2\)"):
        an.ensemble((K, K), rows[:4], y)
    for bad in (np.array([9]), np.array([-1]), np.array([0.5]), np.array([[1]])):
        with pytest.raises(ValueError, match=r"x_test expects numbers of points"):
            an.ensemble((K, K), rows, y).predict(bad)
    with pytest.raises(TypeError, match=r"or the matrices \(nngp, ntk\), got tuple"):
        an.ensemble((K,), rows, y)  # type: ignore[arg-type]


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_a_long_prediction_goes_by_pieces(ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of seven rows, predictions equal those of a single piece.

    Without a ridge, a kernel with a repeated example has no factor, and the pieces use the limit.
    """
    x, x_test, y = (np.random.default_rng(0).standard_normal(shape) for shape in ((12, 3), (30, 3), (12, 2)))
    x[1], y[1] = x[0], y[0]
    gp = an.posterior(KERNEL, x, y, ridge=ridge, kind="ntk")
    mean, std = gp.predict(x_test, std=True)
    sizes: list[int] = []
    whole = posterior.Posterior.predict

    def counted(self: Any, x: Any, cov: bool = False, std: bool = False) -> Any:
        sizes.append(len(x))
        return whole(self, x, cov, std)

    monkeypatch.setattr(posterior, "PIECE", 8 * 12 * 7)
    monkeypatch.setattr(posterior.Posterior, "predict", counted)
    pieces = gp.predict(x_test, std=True)
    assert sizes == [30, 7, 7, 7, 7, 2]
    np.testing.assert_allclose(pieces[0], mean, atol=1e-12)
    np.testing.assert_allclose(pieces[1], std, atol=1e-7)
    np.testing.assert_allclose(gp.predict(x_test), mean, atol=1e-12)


@pytest.mark.parametrize(("dtype", "host", "device"), [("float32", 12, 20), ("float64", 8, 16)])
def test_the_memory_of_the_factor(dtype: str, host: int, device: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor L, in float64, overwrites a float64 kernel but not a float32 kernel. CuPy's Cholesky copies L."""
    x = np.zeros((10, 3), dtype)
    of = an.posterior(an.kernel(mn.zoo.mlp(1, 8, 1)), x, x[:, :1], ridge=1.0)
    assert of._factor_bytes == host * 100
    monkeypatch.setattr(posterior, "on_host", lambda xp: False)
    assert of._factor_bytes == device * 100
