"""Test learning curves against random models, SGD, eigenlearning and contour integrals. Planted errors are detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
import pytest

import analytic as an
from analytic.curves import contours, equivalent, sgd
from analytic.curves.equivalent import Equivalent

Host = np.ndarray[Any, Any]
K = np.arange(1, 301.0)
LAM, V2 = K**-1.5, K**-1.6
MODES = an.Modes(LAM, np.ones(300))
T = np.array([0.3, 3.0, 30.0, 300.0])


def simulated(n: int, N: int, noise: float, draws: int = 60) -> tuple[Host, Host]:
    """Return mean losses of gradient flow at times T and of ridge 0.5 over random problems, and standard errors."""
    rng, found = np.random.default_rng(0), []
    for _ in range(draws):
        H = np.sqrt(LAM)[:, None] * rng.standard_normal((300, n)) / np.sqrt(n)
        Z = rng.standard_normal((N, 300))
        X, y = Z @ H, Z @ np.sqrt(V2) + np.sqrt(noise) * rng.standard_normal(N)
        mu, Q = np.linalg.eigh(X.T @ X / N)
        mu = np.maximum(mu, 1e-12)[:, None]
        c = np.hstack([-np.expm1(-mu * T) / mu, 1 / (mu + 0.5 / N)])
        r = np.sqrt(V2)[:, None] - H @ Q @ (c * (Q.T @ (X.T @ y / N))[:, None])
        found.append((r**2).sum(0) + noise)
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(draws)


def law_of_models() -> None:
    for n, N, noise in ((60, 150, 0.3), (150, 60, 0.3)):
        mean, error = simulated(n, N, noise)
        curve = an.learning_curve(MODES, V2, width=n, examples=N, noise=noise)
        theory = np.append(curve.flow(T), curve.ridge(0.5))
        assert np.all(np.abs(mean - theory) < 3 * error + 0.01 * theory), mean / theory - 1


def by_eigenvalues(H: Host, steps: int) -> list[float]:
    """Return mean losses of SGD (rate 0.3, batch size 2, noise 0.1) for features H, by recursion in the eigenbasis."""
    v2, (z, Q) = V2[: len(H)], np.linalg.eigh(H.T @ H)
    R = (Q.T @ (H.T @ np.sqrt(v2))) ** 2 / z
    still, row = v2.sum() - R.sum() + 0.1, list[float]()
    for _ in range(steps + 1):
        row.append(R.sum() + still)
        R = R * (1 - 0.6 * z + 0.09 * 1.5 * z**2) + 0.09 / 2 * z**2 * row[-1]
    return row


def law_of_steps() -> None:
    """Mean losses of 20,000 SGD runs are within 4 standard errors of `by_eigenvalues`, and end above the minimum."""
    rng, v = np.random.default_rng(0), np.sqrt(V2[:20])
    H, e, losses = rng.standard_normal((20, 8)) / 3, np.tile(-v, (20_000, 1)), []
    for _ in range(5):
        losses.append(np.sum(e**2, axis=1) + 0.1)
        Z, noise = rng.standard_normal((20_000, 2, 20)), 0.1**0.5 * rng.standard_normal((20_000, 2))
        e = e - 0.3 * np.einsum("rb,rbi->ri", np.einsum("rbi,ri->rb", Z, e) - noise, Z) / 2 @ (H @ H.T)
    mean, error = np.mean(losses, axis=1), np.std(losses, axis=1) / 20_000**0.5
    assert np.all(np.abs(mean - by_eigenvalues(H, 4)) < 4 * error + 1e-12)
    flow = np.sum((v - H @ np.linalg.lstsq(H, v)[0]) ** 2) + 0.1
    assert by_eigenvalues(H, 4)[4] > flow + 10 * error[4]


def law_of_sgd() -> None:
    """The formula `sgd` agrees with the recursion in the eigenbasis, averaged over 40 draws of random features W."""
    W = np.random.default_rng(0).standard_normal((40, 300, 80)) / np.sqrt(80)
    found, steps = [by_eigenvalues(np.sqrt(LAM)[:, None] * one, 100) for one in W], [1, 10, 100]
    mean, error = np.mean(found, axis=0)[steps], np.std(found, axis=0)[steps] / np.sqrt(40)
    theory = an.learning_curve(MODES, V2, width=80, noise=0.1).sgd(steps, 0.3, batch=2)
    assert np.all(np.abs(mean - theory) < 3 * error + 0.003 * theory), mean / theory - 1


def law_of_regression() -> None:
    curve = an.learning_curve(MODES, V2, examples=40, noise=0.2)
    want = an.eigenlearning(MODES, 40, ridge=0.3).test_error(V2, 0.2)
    assert curve.ridge(0.3) == pytest.approx(want, rel=1e-9)


def law_of_one_resolvent() -> None:
    """For infinite data, the curve equals the contour integral of e^{2 s t} sum v^2 kappa / (s (lambda + kappa))."""
    curve = an.learning_curve(MODES, V2, width=50)
    s, w = contours.laplace(20.0)
    tip = contours.NODES * (0.5017 / 0.6407 - 0.6122) / 20.0
    kappa = curve.equivalent.follow(np.append(tip, s))[1:, None]
    once = 2 * np.real(w @ ((kappa / (LAM + kappa)) @ V2 / s))
    assert float(curve.flow(10.0)) == pytest.approx(once, rel=1e-8)


@cache
def features(n: int, draws: int = 2000) -> tuple[Host, Host]:
    """Return times proportional to n^alpha, where n is the width, and the losses at these times.

    Losses are averaged over random features by sampling, and over the signs of v exactly.
    """
    rng, t, found = np.random.default_rng(0), np.geomspace(0.03, 30, 8) * n**1.5, []
    for _ in range(draws):
        H = np.sqrt(LAM / n)[:, None] * rng.standard_normal((300, n))
        z, Q = np.linalg.eigh(H.T @ H)
        found.append(V2.sum() + 0.1 + (V2 @ (H @ Q) ** 2 / z) @ np.expm1(-2 * z[:, None] * t))
    return t, np.mean(found, axis=0)


def law_of_width() -> None:
    """The root mean square over times of the curve's relative error against simulated models falls as 1 / width.

    The exponent between widths 16 and 64 has a standard error of 0.05. If the variance of the features is omitted, the
    exponent is -0.1.
    """
    apart = []
    for n in (16, 64):
        t, mean = features(n)
        apart.append(np.sqrt(np.mean((mean / an.learning_curve(MODES, V2, width=n, noise=0.1).flow(t) - 1) ** 2)))
    assert abs(np.log(apart[1] / apart[0]) / np.log(4) + 1) < 0.2, apart


LAWS: dict[str, Callable[[], None]] = {
    "models": law_of_models,
    "width": law_of_width,
    "sgd": law_of_sgd,
    "steps of sgd": law_of_steps,
    "regression": law_of_regression,
    "one resolvent": law_of_one_resolvent,
}


@pytest.mark.parametrize("law", sorted(LAWS))
def test_laws(law: str) -> None:
    LAWS[law]()


PLANTS: dict[str, tuple[Any, str, str, str, str]] = {
    "features add no variance": (Equivalent, "error", "added = kk", "added = 0 * kk", "models"),
    "no variance, by width": (Equivalent, "error", "added = kk", "added = 0 * kk", "width"),
    "variance twice, by width": (Equivalent, "error", "added = kk", "added = 2 * kk", "width"),
    "variance twice": (Equivalent, "error", "added = kk", "added = 2 * kk", "one resolvent"),
    "no overfitting": (Equivalent, "error", "1 - p * (1 / self.N)", "1", "regression"),
    "no feedback of features": (Equivalent, "error", "(p + added * m)", "p", "models"),
    "noise left out": (Equivalent, "error", "q0 + self.sigma2 + added", "q0 + added", "models"),
    "width not in kappa": (Equivalent, "s", ", 1 - df / self.n", ", 1 + 0 * df", "models"),
    "data not in kappa": (Equivalent, "s", "= 1 - df / self.N", "= 1 + 0 * df", "models"),
    "power weighs q1 once more": (Equivalent, "error", "self.lam * self.v2", "self.v2", "one resolvent"),
    "batch not in the noise": (sgd, "loss", "lr**2 / batch * (kernel", "lr**2 * (kernel", "sgd"),
    "no noise of SGD": (sgd, "loss", "lr**2 / batch * (kernel", "0 * (kernel", "sgd"),
    "kernel of first order": (sgd, "nodes", "-z * e.freedom", "-e.freedom", "sgd"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_planted_errors_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect
    import textwrap

    owner, what, right, wrong, law = PLANTS[name]
    source = textwrap.dedent(inspect.getsource(getattr(owner, what)))
    assert right in source
    module = equivalent if owner is Equivalent else sgd
    space = dict(vars(module))
    exec(source.replace(right, wrong), space)
    monkeypatch.setattr(owner, what, space[what])
    with pytest.raises((AssertionError, ArithmeticError, ValueError)):
        LAWS[law]()


def test_refusals() -> None:
    curve = an.learning_curve(MODES, V2)
    with pytest.raises(ValueError, match="ridge expects finite examples"):
        curve.ridge(1.0)
    with pytest.raises(ValueError, match="sgd is one-pass"):
        an.learning_curve(MODES, V2, examples=5).sgd(3, 0.1)
    with pytest.raises(ValueError, match="lr expects less than"):
        curve.sgd(3, 2.0)
    with pytest.raises(ValueError, match="power expects"):
        an.learning_curve(MODES, V2[1:])
    with pytest.raises(ValueError, match="alpha expects a number > 1"):
        an.power_law(1.0, 2.0)


@pytest.mark.parametrize("scale", [2e-100, 1e-30, 5e99])
def test_losses_do_not_depend_on_the_units_of_the_kernel(scale: float) -> None:
    modes, power = an.power_law(1.5, 1.8, count=300)
    small = replace(modes, eigenvalue=modes.eigenvalue * scale, rest=modes.rest * scale)
    for width in (inf, 50):
        want, got = (an.learning_curve(m, power, width=width, examples=100, noise=0.01) for m in (modes, small))
        assert got.ridge(0.1 * scale) == pytest.approx(want.ridge(0.1), rel=1e-10)
        assert got.flow([0, 1 / scale, 100 / scale]) == pytest.approx(want.flow([0, 1, 100]), rel=1e-8)


@pytest.mark.parametrize("scale", [0.0, 1e-101, 1e101])
def test_eigenvalues_whose_squares_overflow_are_refused(scale: float) -> None:
    modes, power = an.power_law(1.5, 1.8, count=300)
    with pytest.raises(ValueError, match="modes expect a largest eigenvalue from 1e-100 to 1e100"):
        an.learning_curve(replace(modes, eigenvalue=modes.eigenvalue * scale), power)


@pytest.mark.parametrize(("alpha", "count"), [(5.0, 10_000), (10.0, 1000)])
def test_without_a_ridge_all_modes_are_learned(alpha: float, count: int) -> None:
    """With twice as many examples as modes, the loss is noise N / (N - K), however small the eigenvalues are."""
    curve = an.learning_curve(*an.power_law(alpha, 2.0, count), examples=2 * count, noise=1.0)
    assert curve.ridge() == pytest.approx(2.0, rel=1e-9)


def test_the_peak_of_double_descent_is_infinite() -> None:
    """Without ridge, as many features as examples and more modes give inf, to which losses with small ridges grow."""
    modes, power = an.power_law(1.5, 1.8, 10_000)
    for n in (1, 3, 60, 100):
        curve = an.learning_curve(modes, power, width=n, examples=n)
        assert curve.ridge() == inf
        assert 1e4 < 50 * curve.ridge(1e-20) < curve.ridge(1e-26) < inf
    ten = an.Modes(np.ones(1), np.full(1, 10.0))
    assert an.learning_curve(ten, np.ones(1), width=10, examples=20, noise=0.1).ridge() == pytest.approx(0.2, rel=1e-6)
    assert an.learning_curve(ten, np.ones(1), width=10, examples=10).ridge() == pytest.approx(1 / 3, rel=1e-5)
