"""Compare losses predicted for more or fewer examples with learning curves, cross-validation and tests on digits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.curves import transport
from tests.kit.replant import replant

LAM, V = np.arange(1, 301.0) ** -1.5, np.arange(1, 301.0) ** -0.8


def law_of_models() -> None:
    """Predictions from samples of 150 examples agree, on average, with the learning curve at 100 to 2400 examples."""
    rng, cells, found = np.random.default_rng(0), ((600, 3.0), (600, 20.0), (150, 1.0), (100, 1.0), (2400, 30.0)), []
    for _ in range(30):
        z = rng.standard_normal((150, 300))
        y = (z @ V + 0.5 * rng.standard_normal(150))[:, None]
        found.append([transport.predict_loss((z * LAM) @ z.T, y, examples=N, ridge=ridge) for N, ridge in cells])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / 30**0.5
    modes = an.Modes(LAM, np.ones(300))
    theory = [an.learning_curve(modes, V**2, examples=N, noise=0.25).ridge(ridge) for N, ridge in cells]
    assert np.all(np.abs(mean - theory) < 3 * error + 0.005 * mean), mean / theory - 1


def law_of_cross_validation() -> None:
    """For the sample's own size n, the predicted loss is n |y - H y|^2 / tr(1 - H)^2, where H = K (K + ridge)^-1."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 60)), rng.standard_normal((40, 2))
    K = x @ x.T / 60
    left = 0.3 * np.linalg.inv(K + 0.3 * np.eye(40))
    want = 40 * np.sum((left @ y) ** 2) / np.trace(left) ** 2
    assert transport.predict_loss(K, y, examples=40, ridge=0.3) == pytest.approx(want, rel=1e-9)


def law_of_digits() -> None:
    """Compare losses predicted from 50 digits with those of regression of parity on 200 digits, for four ridges."""
    x, y = mn.datasets.digits().on_sphere().parity()
    K = an.kernel(mn.Sequential(*[mn.Dense(512, w_std=2**0.5, b_std=0.1), mn.ReLU()] * 3, mn.Dense(1))).ntk(x)
    rng, pairs = np.random.default_rng(0), []
    for _ in range(30):
        small, large, rest = np.split(rng.permutation(len(x)), [50, 250])
        kappa = 1 / np.sum(1 / np.linalg.eigvalsh(K[np.ix_(small, small)]))
        ridges = 600 * kappa * np.array([1, 2, 4, 8])
        said = [transport.predict_loss(K[np.ix_(small, small)], y[small], examples=200, ridge=r) for r in ridges]
        learned = [np.linalg.solve(K[np.ix_(large, large)] + r * np.eye(200), y[large]) for r in ridges]
        pairs.append((said, [float(((K[np.ix_(rest, large)] @ a - y[rest]) ** 2).mean()) for a in learned]))
    said, seen = np.mean(pairs, axis=0)
    assert np.all(np.abs(said / seen - 1) < 0.1), said / seen - 1


LAWS: dict[str, Callable[[], None]] = {
    "models": law_of_models,
    "cross-validation": law_of_cross_validation,
    "digits": law_of_digits,
}


@pytest.mark.parametrize("law", sorted(LAWS))
def test_laws(law: str) -> None:
    LAWS[law]()


PLANTS = {
    "ridge not transported": ("delta + (N - n) /", "delta + 0 * (N - n) /", "models"),
    "all examples add ridge": ("delta + (N - n) /", "delta + N /", "cross-validation"),
    "overfitting as at n": ("/ (1 - p / N)", "/ (1 - p / n)", "models"),
    "no overfitting": ("/ (1 - p / N)", "", "models"),
    "df_1 for df_2": ("p = n - w.sum() ** 2 / (w @ w)", "p = n - np.exp(delta) * w.sum()", "models"),
    "residuals of first order": ("b2 @ w**2 / (w @ w)", "b2 @ w / w.sum()", "cross-validation"),
    "targets of the sample, not of the learner": ("b2 @ w**2 / (w @ w)", "b2.mean()", "digits"),
}


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_planted_errors_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, law = PLANTS[name]
    replant(monkeypatch, transport, "predict_loss", right, wrong)
    with pytest.raises((AssertionError, ValueError)):
        LAWS[law]()


def test_refusals() -> None:
    K, y = np.diag([1.0, 2.0, 3.0]), np.ones((3, 1))
    with pytest.raises(ValueError, match=r"ridge expects at least .* for 12 examples, below which 3 .* got 0.1: take"):
        an.predict_loss(K, y, examples=12, ridge=0.1)
    with pytest.raises(ValueError, match="examples expects a whole number"):
        an.predict_loss(K, y, examples=0, ridge=0.1)
    with pytest.raises(ValueError, match="ridge expects"):
        an.predict_loss(K, y, examples=3, ridge=-1.0)
    assert an.predict_loss(K, y, examples=2, ridge=0.0) > 0
    F = np.random.default_rng(0).standard_normal((50, 3))
    with pytest.raises(ValueError, match=r"ridge expects at least .* for 20 examples"):  # the kernel has rank 3
        an.predict_loss(F @ F.T, F[:, :1], examples=20, ridge=0.0)
