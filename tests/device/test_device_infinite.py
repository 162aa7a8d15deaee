"""Compare infinite-width results on every array library with NumPy's results."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from analytic.kernels import kernel
from analytic.large.solve import solve
from analytic.limits.nonlinear import feature_learning_limit
from analytic.limits.width_correction import width_correction
from analytic.training.dynamics import critical_learning_rate, gradient_descent, gradient_flow, max_learning_rate
from analytic.training.gp import Kind, ensemble
from analytic.training.posterior import posterior
from minintk.arrays import Array, array_namespace, library, to_host, to_library
from tests.device.test_device import ACTIVATIONS, M, N, To, agree, data, dtype, xp
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.thinned import thinned

__all__ = ["dtype", "xp"]  # fixtures


class Linear:
    """The kernels K = x x' / d and Theta = K + K^3 in plain arithmetic, to test the dynamics separately."""

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        return x1 @ (x1 if x2 is None else x2).T / x1.shape[1]

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        k = self.nngp(x1, x2)
        return k + k**3

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        return self.nngp(x1, x2), self.ntk(x1, x2)


def regression() -> Any:
    """Return x : (N, 9), x_test : (M, 9) and y : (N, 2) on the host."""
    rng = np.random.default_rng(4)
    return rng.standard_normal((N, 9)), rng.standard_normal((M, 9)), rng.standard_normal((N, 2))


@pytest.mark.parametrize(
    "dynamics",
    [gradient_flow, gradient_descent, partial(gradient_descent, momentum=0.6)],
    ids=["flow", "steps", "ball"],
)
def test_dynamics(xp: Any, dtype: str, dynamics: Callable[..., Any]) -> None:
    x, x_test, y = regression()

    def compute(to: To) -> Any:
        k, a, b, targets = Linear(), to(x), to(x_test), to(y)
        train, test = k.ntk(a), k.ntk(b, a)
        one = dynamics(train, targets, lr=0.3, ridge=0.01)
        alone = one.predict(3), one.predict([0, 5, np.inf], test, f0=targets / 2, f0_test=test[:, :2])
        each = array_namespace(a).eye(2, dtype=train.dtype)[None, :, None, :]
        full = dynamics(train[:, None, :, None] * each, targets, lr=0.3)
        rates = max_learning_rate(train, momentum=0.9), critical_learning_rate(train)
        return alone, one.coefficients(4), one.predict(to(np.array([0.0, 2.0]))), full.predict(2), rates

    agree(xp, dtype, compute, digits_lost=4.0)


@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_gaussian_processes(xp: Any, dtype: str, kind: Kind) -> None:
    x, x_test, y = regression()

    def compute(to: To) -> Any:
        a, b, targets = to(x), to(x_test), to(y)
        trained = ensemble(Linear(), a, targets, lr=0.2)
        times = trained.predict(b, t=[1.0, 5.0], kind=kind, cov=True), trained.predict(b, t=to(np.ones(2)), kind=kind)
        gp = posterior(Linear(), a, targets, ridge=0.1, kind=kind)
        evidence = gp.log_marginal_likelihood() if kind == "nngp" else 0.0
        ball = ensemble(Linear(), a, targets, lr=0.2, by="descent", momentum=0.6)
        steps = ball.predict(b, t=[1, 5], kind=kind, cov=True), ball.predict(b, t=[1, 5], kind=kind, std=True)
        xp, points = array_namespace(a), array_namespace(a).concat([a, b])
        given = ensemble(Linear().both(points), xp.arange(len(a)), targets, lr=0.2)
        matrices = given.predict(xp.arange(len(a), len(points)), t=5.0, kind=kind, std=True)
        spreads = trained.predict(b, kind=kind, cov=True), gp.predict(b, cov=True), gp.predict(b, std=True)
        return times, steps, matrices, spreads, evidence

    agree(xp, dtype, compute, digits_lost=4.0)


def test_large_kernels(xp: Any, dtype: str, tmp_path: Path) -> None:
    x, x_test, y = regression()
    dense = kernel(mn.Sequential(mn.Dense(8, w_std=1.4), mn.ReLU(), mn.Dense(1)))

    def compute(to: To) -> Any:
        a, b, targets = to(x), to(x_test), to(y)
        how: dict[str, Any] = {"ridge": 0.1, "by": "landmarks", "landmarks": 5, "tol": 1e-13}
        plain = solve(Linear(), a, targets, **how)
        store = tmp_path / f"{library(array_namespace(a))}-{dtype}"
        first, again = (solve(dense, a, targets, store=store, **how) for _ in range(2))
        assert bool(array_namespace(a).all(first.coefficients == again.coefficients))
        return plain.predict(b), first.predict(b)

    agree(xp, dtype, compute, digits_lost=4.0)


def test_cholesky_of_large_kernels_is_for_the_host() -> None:
    x, _, y = (to_library(a, namespace("standin")) for a in regression())
    with pytest.raises(TypeError, match="on a GPU use posterior"):
        solve(Linear(), x, y, ridge=0.1)


def test_samples(xp: Any) -> None:
    """The mean of the samples agrees with the posterior mean within five standard errors.

    Samples differ between libraries, because the signs of eigenvectors depend on the solver.
    """
    x, x_test, y = (to_library(a, xp) for a in regression())
    gp = posterior(Linear(), x, y, ridge=0.1)
    draws = gp.sample(x_test, 4000, np.random.default_rng(0))
    assert array_namespace(draws) is xp
    mean, cov = (to_host(a) for a in gp.predict(x_test, cov=True))
    z = (to_host(draws).mean(axis=0) - mean) / np.sqrt(np.diag(cov)[:, None] / 4000)
    assert np.abs(z).max() < 5


def test_a_singular_kernel_is_noticed(xp: Any) -> None:
    """A duplicated example does not change predictions. Computing the undefined likelihood raises ValueError.

    A GPU's solver does not report that the kernel is singular.
    """
    x, x_test, y = regression()
    x[1], y[1] = x[0], y[0]
    a, b, targets = (to_library(array, xp) for array in (x, x_test, y))
    gp = posterior(Linear(), a, targets, kind="ntk")
    expected = posterior(Linear(), a[1:], targets[1:], kind="ntk").predict(b)
    np.testing.assert_allclose(to_host(gp.predict(b)), to_host(expected), atol=1e-9)
    with pytest.raises(ValueError, match="smallest eigenvalue"):
        posterior(Linear(), a, targets).log_marginal_likelihood()


BRANCH = mn.Sequential(mn.Dense(8, b_std=0.3, b_init="zeros"), mn.Erf(), mn.Dense(8))
DEEP = mn.Sequential(mn.Flatten(), mn.Dense(8, w_std=1.3, b_std=0.2), mn.ReLU(), mn.Dense(8), mn.Residual(BRANCH))
BRANCHES = mn.Product(
    mn.Dense(8), mn.Concat(mn.Scale(0.5), mn.Dense(4)), mn.Sequential(mn.Erf(), mn.Dropout(), mn.Dense(8))
)
BRANCHED = mn.Sequential(mn.Flatten(), mn.Dense(4, b_std=0.1), BRANCHES, mn.Dense(1))
DUALS = [
    a for a in ACTIVATIONS if not isinstance(a, (mn.Sigmoid, mn.Softplus, mn.Swish, mn.ABRelu))
]  # these are covered by Tanh and ReLU
SHALLOW = [mn.Sequential(mn.Flatten(), mn.Dense(8, b_std=0.1), activation, mn.Dense(1)) for activation in DUALS]


@pytest.mark.parametrize("spec", [DEEP, BRANCHED, *thinned(SHALLOW)], ids=lambda spec: type(spec.layers[-2]).__name__)
def test_infinite_width_kernels(xp: Any, dtype: str, spec: mn.spec.Sequential) -> None:
    """The kernels equal NumPy's for rows that are equal, opposite, nearly equal or zero."""
    _, _, x, x2, _ = data()
    x[1], x[2], x[3], x[4] = x[0], -2 * x[0], (1 + 1e-3) * x[0], 0
    x[3, 0, 0, 0] += 1e-4
    infinite = kernel(spec)

    def compute(to: To) -> Any:
        a, b = to(x), to(x2)
        alone = (infinite.nngp(a, b), infinite.ntk(a, b), tuple(infinite.diag(a))) if spec is DEEP else ()
        return tuple(infinite.both(a)), tuple(infinite.both(a, b)), alone

    agree(xp, dtype, compute, digits_lost=2.5)


@pytest.mark.parametrize("phi", [mn.Erf(), mn.GELU(), mn.Tanh()], ids=lambda phi: type(phi).__name__)
def test_rows_of_very_different_norms(xp: Any, dtype: str, phi: mn.spec.Layer) -> None:
    """The kernels equal NumPy's for rows whose norms differ by factors of up to about 3e6."""
    x = regression()[0]
    x *= 10.0 ** np.linspace(-6, 0.5, len(x))[:, None]
    infinite = kernel(mn.Sequential(mn.Dense(8), phi, mn.Dense(1)))
    agree(xp, dtype, lambda to: tuple(infinite.both(to(x))), digits_lost=2.5)


def test_steep_activations_and_the_error(xp: Any, dtype: str) -> None:
    """Kernels and `Kernel.error` equal NumPy's for correlations near 1 and -1, where a truncated series is wrong."""
    x = regression()[0]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[1], x[2], x[3] = x[0], -x[0], x[0] + 1e-2 * x[4]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    infinite = kernel(mn.Sequential(mn.Dense(8, w_std=60.0), mn.Softplus(), mn.Dense(1)))
    agree(xp, dtype, lambda to: tuple(infinite.both(to(x))), digits_lost=3.5)
    eps = float(np.finfo(dtype).eps)
    stated = infinite.error(to_library(x.astype(dtype), xp)), infinite.error(x.astype(dtype))
    assert isinstance(stated[0], float)
    assert abs(stated[0] - stated[1]) < 10 * eps


def test_feature_learning_limit(xp: Any, dtype: str) -> None:
    """Samples are drawn on the host, so every device uses the same samples."""
    x, x_test, y = regression()
    spec = mn.Sequential(mn.Dense(1, b_std=0.1), mn.Erf(), mn.Dense(1), mn.ReLU(), mn.Dense(2, b_std=0.1))

    def compute(to: To) -> Any:
        a, b, targets = to(x), to(x_test), to(y)
        how: Any = {"gamma0": 1.0, "lr": 0.1, "steps": 2, "samples": 800, "rng": np.random.default_rng(0)}
        limit = feature_learning_limit(spec, a, targets, x_test=b, **how)
        return limit.f, limit.features, limit.gradients, limit.ntk, limit.error.f, limit.error.ntk

    agree(xp, dtype, compute, digits_lost=2.5)


def test_width_correction(xp: Any, dtype: str) -> None:
    """The correction is computed on the host in float64, but has the library and dtype of the inputs."""
    x, x_test, y = regression()
    spec = mn.Sequential(mn.Dense(9, b_std=0.1), mn.Erf(), mn.Dense(9), mn.Erf(), mn.Dense(1))

    def compute(to: To) -> Any:
        found = width_correction(spec, to(x), to(y[:, :1]), to(x_test), samples=64)
        return *found.predict([1.0, 5.0]), *found.kernel(3.0)

    agree(xp, dtype, compute, digits_lost=3.0)


@pytest.mark.parametrize("where", [where for where in LIBRARIES if where != "numpy"])
def test_a_device_takes_no_memory_for_each_core_of_its_host(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device processes tiles one after another, so the memory that it needs does not depend on the host's cores.

    In an earlier version, a kernel of 5000 rows in float64 requested 225 GB on a host with 112 cores.
    """
    x = np.random.default_rng(0).standard_normal((50, 8, 8, 3))
    conv = kernel(mn.Sequential(mn.Conv2d(8), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)))
    flat = kernel(mn.Sequential(mn.Flatten(), mn.Dense(8), mn.ReLU(), mn.Dense(1)))

    def asked(library: str, of: Any, cores: int) -> int:
        for engine in ("vectors", "images"):
            monkeypatch.setattr(f"analytic.{engine}.engine.cores", lambda: cores)
        monkeypatch.setattr("analytic.fast.planes.cores", lambda: cores)
        with pytest.raises(MemoryError) as refused:
            of.both(to_library(x, namespace(library)), memory=1)
        return int(1e6 * sum(map(float, re.findall(r"([\d.e+-]+) GB", str(refused.value))[:2])))

    for of in (conv, flat):
        assert asked(where, of, 1) == asked(where, of, 112)
        assert asked("numpy", of, 112) > asked("numpy", of, 1)
