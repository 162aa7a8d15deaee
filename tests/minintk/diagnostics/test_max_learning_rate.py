"""Test the largest stable learning rate: 2 / lambda_max of the kernel of all outputs times the loss's Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg

import analytic as an
import minintk as mn
from tests.kit.laws import stable_rates

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
NET = mn.Network(mn.Sequential(mn.Dense(16, b_std=0.3), mn.ReLU(), mn.Dense(4)), (3,))
THETA = NET.init(RNG)


def test_it_is_the_dense_kernels_and_training_diverges_above() -> None:
    stable_rates()


def test_it_is_analytics_of_the_whole_kernel_and_not_of_the_mean_over_outputs() -> None:
    rate = mn.max_learning_rate(NET, THETA, X, mn.mse, momentum=0.5)
    assert rate == pytest.approx(an.max_learning_rate(mn.ntk_full(NET, THETA, X), momentum=0.5), rel=1e-6)
    assert an.max_learning_rate(mn.ntk(NET, THETA, X), momentum=0.5) > 1.1 * rate


def test_every_model_has_one() -> None:
    rate, centred = mn.max_learning_rate(NET, THETA, X, mn.mse), mn.Centred(NET, THETA, 10.0)
    for model, factor in ((mn.Linearized(NET, THETA), 1.0), (mn.Taylor(NET, THETA, 2), 1.0), (centred, 100.0)):
        assert factor * mn.max_learning_rate(model, THETA, X, mn.mse) == pytest.approx(rate, rel=1e-6)


def test_float32_is_right_to_its_digits() -> None:
    """Float32 products have relative errors of 1e-7, so ARPACK converges only to 1e-6. The rate is correct to 1e-5."""
    for loss in (mn.mse, mn.softmax_cross_entropy):
        want = mn.max_learning_rate(NET, THETA, X, loss)
        got = mn.max_learning_rate(NET, THETA.astype(np.float32), X.astype(np.float32), loss)
        assert got == pytest.approx(want, rel=1e-5)


def test_scales_replace_the_parametrizations() -> None:
    """The argument `scales` replaces the scales of the parametrization, here spectral muP."""
    net = mn.Network(NET.spec, NET.input_shape, mn.SpectralMuP())
    scales, S = {"0.W": 0.0, "0.b": 0.0, "2.W": 3.0}, np.zeros(net.size)
    S[net.layout.slices["2.W"]] = 3.0
    J = net.linearize(THETA, X)[1].dense().reshape(-1, net.size)
    want = 2 * len(X) / float(np.linalg.eigvalsh(J @ (S[:, None] * J.T))[-1])
    assert mn.max_learning_rate(net, THETA, X, mn.mse, scales=scales) == pytest.approx(want, rel=1e-6)
    assert mn.max_learning_rate(net, THETA, X, mn.mse) != pytest.approx(want, rel=0.1)


def test_one_number_and_batch_statistics() -> None:
    line, x = mn.Network(mn.Dense(1), (1,)), np.array([[2.0], [4.0]])
    assert mn.max_learning_rate(line, np.array([3.0]), x[:1], mn.mse) == pytest.approx(2 / 4)
    assert mn.max_learning_rate(line, np.array([3.0]), x, mn.mse) == pytest.approx(2 * 2 / 20)
    norm = mn.Network(mn.Sequential(mn.Dense(4), mn.BatchNorm(), mn.Dense(2)), (3,))
    theta = norm.init(RNG)
    J = norm.linearize(theta, X)[1].dense().reshape(12, -1)
    assert mn.max_learning_rate(norm, theta, X, mn.mse) == pytest.approx(12 / np.linalg.norm(J, 2) ** 2, rel=1e-6)


class Pseudohuber(mn.Loss):
    """The loss 1/N sum sqrt(1 + (f - y)^2), whose Hessian depends on the targets."""

    def __call__(self, f: Any, y: Any) -> Any:
        return np.sqrt(1 + (f - y) ** 2).sum() / len(y)

    def cotangent(self, f: Any, y: Any) -> Any:
        return (f - y) / np.sqrt(1 + (f - y) ** 2) / len(y)

    def hessian(self, f: Any, y: Any, v: Any) -> Any:
        return v / (1 + (f - y) ** 2) ** 1.5 / len(y)


def test_a_loss_whose_curvature_depends_on_the_targets_wants_them() -> None:
    y = NET(THETA, X)
    with pytest.raises(ValueError, match=r"expects y=\.\.\., the targets, as the Hessian of .* depends on them"):
        mn.max_learning_rate(NET, THETA, X, Pseudohuber())
    rate = mn.max_learning_rate(NET, THETA, X, mn.mse)
    assert mn.max_learning_rate(NET, THETA, X, Pseudohuber(), y=y) == pytest.approx(rate, rel=1e-6)
    assert mn.max_learning_rate(NET, THETA, X, Pseudohuber(), y=y + 1) == pytest.approx(2**1.5 * rate, rel=1e-6)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = mn.Network(mn.Sequential(mn.Dense(4), mn.ReLU(), mn.Dense(2)), (3,))
    for loss in (mn.mse, mn.softmax_cross_entropy):
        with pytest.raises(ValueError, match="the kernel is 0, any rate is stable"):
            mn.max_learning_rate(flat, np.zeros(flat.size), X, loss)
    with pytest.raises(ValueError, match=r"theta expects one network, \(128,\), got \(2, 128\)"):
        mn.max_learning_rate(NET, np.stack([THETA, THETA]), X, mn.mse)
    with pytest.raises(ValueError, match="x expects at least one example"):
        mn.max_learning_rate(NET, THETA, X[:0], mn.mse)
    for momentum in (1.0, -0.1, "0.9", None, np.nan):
        with pytest.raises(ValueError, match=r"momentum expects a number in \[0, 1\), got"):
            mn.max_learning_rate(NET, THETA, X, mn.mse, momentum=momentum)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"loss expects one with hessian"):
        mn.max_learning_rate(NET, THETA, X, mn.MeanSquared)
    with pytest.raises(NotImplementedError, match=r"Hinge.* has no second derivative"):
        mn.max_learning_rate(NET, THETA, X, mn.hinge)
    with pytest.raises(ValueError, match="theta holds 1 values that are NaN"):
        mn.max_learning_rate(NET, np.where(np.arange(NET.size) == 3, np.nan, THETA), X, mn.mse)
    with pytest.raises(FloatingPointError, match="overflows float64"):
        mn.max_learning_rate(NET, THETA, 1e200 * X, mn.mse)

    def stops(*args: Any, **how: Any) -> Any:
        raise scipy.sparse.linalg.ArpackNoConvergence("No convergence (%s)", np.zeros(0), np.zeros((0, 0)))

    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", stops)
    with pytest.raises(RuntimeError, match=r"to rtol=1e-06, got .*No convergence.*: pass a larger rtol"):
        mn.max_learning_rate(NET, THETA, X, mn.mse)
