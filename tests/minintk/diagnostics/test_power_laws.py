"""Test ranks, alignment, times and kappa: definitions, invariances, planted errors and theoretical exponents."""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import array_namespace, to_host, to_library
from minintk.diagnostics import (
    alignment,
    effective_rank,
    kappa,
    power_law,
    t1,
    t2,
    target_alignment,
)
from minintk.diagnostics import curvature as curvature_module
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = np.ndarray[Any, Any]
SPEC = mn.Sequential(mn.Flatten(), mn.Dense(7, b_std=0.2), mn.Tanh(), mn.Residual(mn.Dense(7)), mn.Dense(2))
NET = mn.Network(SPEC, (2, 2, 1))


def points(ensemble: int | None = None, N: int = 12) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return NET.init(rng, ensemble=ensemble), rng.standard_normal((N, 2, 2, 1))


def rotation(n: int, seed: int = 0) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0])


# ----------------------------------------------------------------------------------------------------- spectra


def test_spectrum_of_a_full_kernel_is_that_of_its_matrix() -> None:
    theta, x = points(ensemble=3)
    k = mn.ntk_full(NET, theta, x)
    for e in range(3):
        J = NET.linearize(theta[e], x)[1].dense().reshape(24, -1)
        truth = np.linalg.svd(J, compute_uv=False) ** 2
        p = truth / truth.sum()
        assert effective_rank(k)[e] == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=1e-8)


def test_effective_rank() -> None:
    """The effective rank lies between 1 and the rank, and equals n for n equal nonzero eigenvalues.

    It doubles for a direct sum of two equal matrices, and does not depend on the scale or the eigenvectors.
    """
    Q = rotation(6)
    for n in range(1, 7):
        k = Q[:, :n] @ Q[:, :n].T
        assert float(effective_rank(3 * k)) == pytest.approx(n, rel=1e-9)
    a = np.diag([5.0, 2.0, 1.0])
    assert 1 < float(effective_rank(a)) < 3
    two = np.kron(np.eye(2), a)
    assert float(effective_rank(two)) == pytest.approx(2 * float(effective_rank(a)))
    assert float(effective_rank(a @ a)) < float(effective_rank(a))  # a @ a has the squares of a's eigenvalues
    with pytest.raises(ValueError, match="not zero"):
        effective_rank(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="k holds 1 values"):
        effective_rank(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="k expects shape"):
        effective_rank(np.ones(3))


def test_effective_rank_grows_with_width() -> None:
    """The effective rank of LeNet-5's kernel is below N C / 2 and grows with width (Samarin et al. 2022, figure 6).

    The test uses eight digits and three draws of the weights per width.
    """
    x = mn.datasets.digits().images().x[:8]
    x = np.pad(np.kron(x, np.ones((1, 3, 3, 1))), ((0, 0), (2, 2), (2, 2), (0, 0))) / 16
    ranks = []
    for width in (1, 2):
        net = mn.Network(mn.zoo.lenet5(width), (28, 28, 1), mn.PyTorch())
        draws = [net.init(np.random.default_rng(seed)) for seed in range(3)]
        ranks.append([float(effective_rank(mn.ntk_full(net, theta, x))) for theta in draws])
    assert max(ranks[0]) < min(ranks[1]) < 80 / 2


# -------------------------------------------------------------------------------------------------- similarity


def test_alignment() -> None:
    rng = np.random.default_rng(2)
    a, b = (m @ m.T for m in rng.standard_normal((2, 9, 5)))
    H = np.eye(9) - 1 / 9
    truth = np.trace(a @ b) / sqrt(np.trace(a @ a) * np.trace(b @ b))
    assert float(alignment(a, b)) == pytest.approx(truth)
    assert float(alignment(a, 4 * a)) == pytest.approx(1)
    assert float(alignment(H @ a @ H, H @ b @ H)) == pytest.approx(float(alignment(a, b, centred=True)))
    assert float(alignment(a + 7, a, centred=True)) == pytest.approx(1)
    assert float(alignment(a + 7, a)) < 0.99  # without centring, the added 7 matters
    assert alignment(np.stack([a, b]), b).shape == (2,)
    with pytest.raises(ValueError, match="not zero after centring"):
        alignment(np.ones((3, 3)), np.eye(3), centred=True)
    with pytest.raises(ValueError, match=r"not zero$"):  # and no warning of an overflow before
        alignment(np.eye(3), np.zeros((3, 3), np.float32))
    with pytest.raises(ValueError, match="both of one N"):
        alignment(np.eye(3), np.eye(2))


def test_target_alignment_rises_with_training() -> None:
    """The kernel aligns with the labels when features are learned.

    In the linearised network the kernel does not change.
    """
    x, y = mn.datasets.digits()[:60].parity()
    net = mn.Network(mn.Sequential(mn.Dense(60), mn.Softplus(5.0, 1.404383), mn.Dense(1)), (64,))
    theta = net.init(np.random.default_rng(0))
    moved = {}
    for name, model in {"network": net, "linearised": mn.Linearized(net, theta)}.items():
        *_, last = mn.train(model, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.3), steps=300, every=300)
        before, after = (target_alignment(mn.ntk(model, t, x), y, centred=True) for t in (theta, last.theta))
        moved[name] = float(after - before)
    assert moved["network"] > 0.05
    assert moved["linearised"] == 0


def test_cka() -> None:
    """CKA is invariant under rotations, scaling and shifts, but not under all linear maps.

    CKA equals the formula in terms of features (Kornblith et al. 2019).
    """
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((30, 6)) + 2, rng.standard_normal((30, 4)) @ np.diag([4, 1, 1, 1])

    def cka(a: Array, b: Array) -> float:
        return float(alignment(a @ a.T, b @ b.T, centred=True))

    assert cka(a, 3 * a @ rotation(6) + 5) == pytest.approx(1)
    assert cka(a, b @ rotation(4)) == pytest.approx(cka(a, b))
    assert cka(b, b @ np.diag([0.1, 1, 1, 1])) < 0.9
    ac, bc = a - a.mean(0), b - b.mean(0)
    truth = np.linalg.norm(ac.T @ bc) ** 2 / (np.linalg.norm(ac.T @ ac) * np.linalg.norm(bc.T @ bc))
    assert cka(a, b) == pytest.approx(truth)
    assert abs(truth - float(alignment((a + 5) @ (a + 5).T, b @ b.T))) > 0.01  # centring matters


# --------------------------------------------------------------------------------------------------------- times


def test_times() -> None:
    """The loss exp(-r t) halves at log(2) / r, t2 is the zero of a linear loss, and members have separate times."""
    t = np.linspace(0, 10, 4001)
    rates = np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(t1(t, 4 * np.exp(-t[:, None] * rates)), log(2) / rates, rtol=2e-5)  # errors: (rate dt)^2
    assert np.all(np.isinf(t2(t, np.exp(-t[:, None] * rates))))
    hinge = np.maximum(1 - t[:, None] / [2, 5, 40], 0)
    np.testing.assert_allclose(t2(t, hinge), [2, 5, np.inf], atol=2e-3)
    np.testing.assert_allclose(t1(t, hinge), [1, 2.5, np.inf], atol=1e-9)
    assert float(t1(t, 1 - t / 8)) == pytest.approx(4)
    assert float(t1(np.array([0.0, 2.0]), np.array([1.0, 0.0]))) == pytest.approx(1)
    for bad in ((t[::-1].copy(), 1 - t), (t[:3], t[:2]), (t[:1], t[:1])):
        with pytest.raises(ValueError, match="expect"):
            t1(*bad)
    with pytest.raises(ValueError, match="starts above 0"):
        t1(t, 0 * t)
    with pytest.raises(ValueError, match="loss holds"):
        t2(t, t * np.nan)


def test_t1_is_the_kernels_time() -> None:
    """For a linearised network with one example, L = L_0 exp(-2 k t) and t1 = log 2 / (2 k)."""
    theta, x = points(N=1)
    y = np.array([[1.0, 1.0]])
    net = mn.Network(mn.Sequential(mn.Flatten(), mn.Dense(7), mn.Tanh(), mn.Dense(1)), (2, 2, 1))
    theta = net.init(np.random.default_rng(1))
    y = np.array([[2.0]])
    run = mn.train(mn.Linearized(net, theta), theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=1e-3), steps=2000)
    snaps = [(snap.t, float(snap.loss)) for snap in run]
    found = float(t1(*(np.array(column) for column in zip(*snaps))))
    k = float(mn.ntk(net, theta, x)[0, 0])
    assert found == pytest.approx(log(2) / (2 * k), rel=2 * 1e-3 * k)


# --------------------------------------------------------------------------------------------------------- kappa


def second_derivative(model: mn.Network, theta: Array, x: Array, h: float = 1e-5) -> Array:
    """Return D^2 f : (N C, P, P), by central differences of the Jacobian."""
    P = theta.size
    sides = [[model.linearize(theta + s * h * e, x)[1].dense().reshape(-1, P) for e in np.eye(P)] for s in (1, -1)]
    return np.asarray(np.moveaxis(np.array(sides[0]) - np.array(sides[1]), 0, -1) / (2 * h))


def test_kappa_is_the_norms_written_down() -> None:
    """|D^2 f| in kappa equals the best of 100 power iterations from random starts on the dense tensor."""
    net = mn.Network(mn.Sequential(mn.Dense(5, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,))
    rng = np.random.default_rng(0)
    theta, x, y = net.init(rng), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    D, J = second_derivative(net, theta, x), net.linearize(theta, x)[1].dense().reshape(8, -1)
    best = 0.0
    for _ in range(100):
        v = rng.standard_normal(theta.size)
        w = v = v / np.linalg.norm(v)
        for _ in range(100):
            u = np.einsum("kij,i,j", D, v, w)
            H = np.einsum("k,kij", u / np.linalg.norm(u), D)
            v = H @ w
            v /= np.linalg.norm(v)
            w = H @ v
            best = max(best, float(np.linalg.norm(w)))
            w /= np.linalg.norm(w)
    found = kappa(net, theta, x, y)
    assert found.curvature == pytest.approx(best, rel=1e-7)
    assert found.slope == pytest.approx(np.linalg.norm(J, 2), rel=1e-7)
    assert found.residual == pytest.approx(np.linalg.norm(net(theta, x) - y))
    assert found.kappa == pytest.approx(found.residual * found.curvature / found.slope**2)


def test_kappa_of_a_linear_model_is_zero_and_scales_as_one_over_alpha() -> None:
    theta, x = points()
    assert kappa(mn.Linearized(NET, theta), theta, x).curvature < 1e-8 * kappa(NET, theta, x).curvature
    plain, lazy = kappa(NET, theta, x), kappa(mn.Centred(NET, theta, 50.0), theta, x)
    assert lazy.kappa == pytest.approx(plain.kappa / 50, rel=1e-6)


def test_kappa_falls_as_the_root_of_the_width() -> None:
    """In the NTK parametrization, kappa falls as n^-1/2 with the width n.

    As a control, the exponent is 0 if the outputs have the mean-field factor 1/sqrt(n).
    """
    widths, lazy, mean_field = (32, 64, 128, 256, 512), [], []
    x = np.random.default_rng(9).standard_normal((5, 8))
    for n in widths:
        net = mn.Network(mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(1)), (8,))
        draws = [net.init(np.random.default_rng(seed)) for seed in range(4)]
        lazy.append(np.array([kappa(net, theta, x, starts=1, steps=15).kappa for theta in draws]))
        models = [mn.Centred(net, theta, n**-0.5) for theta in draws]
        mean_field.append(np.array([kappa(m, theta, x, starts=1, steps=15).kappa for m, theta in zip(models, draws)]))
    law, control = power_law(widths, lazy), power_law(widths, mean_field)
    assert abs(law.exponent + 0.5) < 0.05 + 3 * law.error, law
    assert abs(control.exponent) < 0.05 + 3 * control.error, control
    assert law.interval[1] < -0.25 < control.interval[0]  # the intervals are far apart


def test_half_the_second_derivative_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the second derivative, the curvature differs from the dense tensor's by more than 10 %.

    Omitting a factor of 2 is a likely error, because the coefficient of the Taylor series is D^2 f[v, w] / 2.
    """
    net = mn.Network(mn.Sequential(mn.Dense(5), mn.Tanh(), mn.Dense(1)), (3,))
    theta, x = net.init(np.random.default_rng(0)), np.eye(3)[:1]
    right = np.linalg.norm(second_derivative(net, theta, x)[0], 2)  # for one output of one input, a matrix
    assert kappa(net, theta, x, steps=400).curvature == pytest.approx(right, rel=1e-8)
    jvp = curvature_module._Second.jvp
    vjp = curvature_module._Second.vjp
    monkeypatch.setattr(curvature_module._Second, "jvp", lambda self, w: jvp(self, w) / 2)
    monkeypatch.setattr(curvature_module._Second, "vjp", lambda self, u: vjp(self, u) / 2)
    assert abs(kappa(net, theta, x, steps=400).curvature / right - 1) > 0.1


def test_kappa_errors() -> None:
    theta, x = points(ensemble=2)
    with pytest.raises(ValueError, match="one network"):
        kappa(NET, theta, x)
    with pytest.raises(ValueError, match="y expects shape"):
        kappa(NET, theta[0], x, np.ones((3, 2)))
    with pytest.raises(FloatingPointError, match="the kernel or the Hessian overflows float64: take smaller x"):
        kappa(mn.Network(mn.Dense(1), (1,)), np.ones(1), np.full((2, 1), 1e200))


# ------------------------------------------------------------------------------------------------------ libraries


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ensemble", [None, 3])
def test_every_library_and_dtype(library: str, dtype: str, ensemble: int | None) -> None:
    xp = namespace(library)
    theta, x = points(ensemble)
    y = np.eye(3)[np.arange(12) % 3]

    def compute(to: Callable[[Array], Any]) -> list[Any]:
        t, a = to(theta.astype(dtype)), to(x.astype(dtype))
        k = mn.ntk(NET, t, a)
        numbers = [effective_rank(k), NET.layer_outputs(t, a)[3]]
        return [*numbers, target_alignment(k, to(y.astype(dtype))), alignment(k, k, centred=True)]

    mine, truth = compute(lambda a: to_library(a, xp)), compute(lambda a: a)
    for a, b in zip(mine, truth):
        assert array_namespace(a) is array_namespace(to_library(theta, xp))
        assert str(a.dtype) == dtype
        np.testing.assert_allclose(to_host(a), b, rtol=1e-3 if dtype == "float32" else 1e-9)
    if ensemble is None and dtype == "float64":
        t, a = to_library(theta, xp), to_library(x, xp)
        assert kappa(NET, t, a, starts=1).kappa == pytest.approx(kappa(NET, theta, x, starts=1).kappa, rel=1e-6)


@pytest.mark.parametrize("told", [{"starts": 0}, {"steps": 0}, {"steps": 1.5}], ids=str)
def test_kappa_refuses_a_search_of_no_steps(told: Any) -> None:
    net = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))
    with pytest.raises(ValueError, match=rf"{next(iter(told))} expects a whole number >= 1"):
        kappa(net, np.ones(2), np.ones((1, 1)), **told)


def test_kappa_says_that_the_parameters_are_not_finite() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))
    with pytest.raises(ValueError, match="theta holds 1 value"):
        kappa(net, np.array([1.0, np.nan]), np.ones((1, 1)))


@pytest.mark.parametrize(
    ("widths", "values", "says"),
    [
        ([1.0, 2.0], [np.array([1.0, 0.0]), np.ones(2)], "positive finite values"),
        ([1.0, 2.0], [np.ones(2), np.array([1.0, np.inf])], "positive finite values"),
        ([1.0, 2.0], [np.ones((2, 1)), np.ones(2)], "positive finite values"),
        ([1.0, -2.0], [np.ones(2), np.ones(2)], "two or more widths > 0"),
        ([1.0, np.inf], [np.ones(2), np.ones(2)], "two or more widths > 0"),
        ([1.0, 1.0], [np.ones(2), np.ones(2)], "two or more widths > 0"),
    ],
)
def test_power_laws_of_other_values_are_refused(widths: Any, values: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        power_law(widths, values)
