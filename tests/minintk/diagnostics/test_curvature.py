"""Compare sharpness with autograd's dense Hessian, finite differences of gradients and the kernel. Test errors."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import hessian

import minintk as mn
from minintk.diagnostics import sharpness
from tests.kit.laws import sharpest

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((5, 3)), RNG.standard_normal((5, 2))
SPEC = mn.Sequential(mn.Dense(4, b_std=0.3), mn.Tanh(), mn.Dense(4), mn.Tanh(), mn.Dense(2))
CLASSES = np.eye(2)[[0, 1, 1, 0, 0]]


@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.SpectralMuP()], ids=repr)
@pytest.mark.parametrize("loss", [mn.mse, mn.softmax_cross_entropy], ids=repr)
def test_it_is_the_dense_hessians_largest_eigenvalue(loss: Any, parametrization: Any) -> None:
    """Sharpness equals the largest eigenvalue of the dense Hessian to a relative 1e-8.

    With learning-rate scales S, S^1/2 H S^1/2 takes the place of the Hessian H.
    """
    net = mn.Network(SPEC, (3,), parametrization)
    theta, y = net.init(np.random.default_rng(1)), Y if loss == mn.mse else CLASSES
    rows = {t.name: (net.layout.slices[t.name], t.shape, float(t.row.multiplier)) for t in net.layout.tensors}

    def value(theta: Any) -> Any:
        w = {name: m * anp.reshape(theta[at], shape) for name, (at, shape, m) in rows.items()}
        f = anp.tanh(anp.tanh(X @ w["0.W"] + w["0.b"]) @ w["2.W"]) @ w["4.W"]
        if loss == mn.mse:
            return anp.sum((f - y) ** 2) / 10
        return anp.sum(anp.log(anp.sum(anp.exp(f), axis=1)) - anp.sum(y * f, axis=1)) / 5

    scales = net.layout.learning_rate_scales()
    root = np.ones(net.size) if scales is None else np.sqrt(scales)
    H = hessian(value)(theta) * np.outer(root, root)
    found = sharpness(net, theta, X, y, loss=loss, rtol=1e-12)
    assert found == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-8)
    given = {name: 3.0 if scales is None else 3.0 * scales[at][0] for name, (at, _, _) in rows.items()}
    assert sharpness(net, theta, X, y, loss=loss, scales=given, rtol=1e-12) == pytest.approx(3 * found, rel=1e-8)


def test_it_is_that_of_differences_of_gradients() -> None:
    sharpest()


def test_where_the_residual_is_zero_it_is_the_tangent_kernels() -> None:
    net = mn.Network(SPEC, (3,))
    theta = net.init(RNG)
    kernel = mn.ntk_full(net, theta, X).reshape(10, 10)
    top = float(np.linalg.eigvalsh(kernel)[-1]) / 5
    assert sharpness(net, theta, X, net(theta, X), loss=mn.mse) == pytest.approx(top, rel=1e-6)
    assert sharpness(net, theta, X, Y, loss=mn.mse) != pytest.approx(top, rel=1e-2)


def test_a_loss_without_slope_and_curvature_is_flat() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(3), mn.Tanh(), mn.Dense(1)), (3,))
    assert sharpness(net, np.zeros(net.size), X, np.zeros((5, 1)), loss=mn.mse) == 0


def test_what_is_refused() -> None:
    net = mn.Network(SPEC, (3,))
    theta = net.init(RNG)
    with pytest.raises(ValueError, match="theta expects one network"):
        sharpness(net, theta[None], X, Y, loss=mn.mse)
    with pytest.raises(TypeError, match=r"loss expects one with hessian\(f, y, v\)"):
        sharpness(net, theta, X, Y, loss="mse")
    with pytest.raises(ValueError, match="y expects shape"):
        sharpness(net, theta, X, Y[:, :1], loss=mn.mse)
    single = mn.Network(mn.Sequential(mn.Dense(4), mn.Tanh(), mn.Dense(1)), (3,))
    with pytest.raises(NotImplementedError, match=r"Hinge.* has no second derivative"):
        sharpness(single, single.init(RNG), X, np.sign(Y[:, :1]), loss=mn.hinge)


def test_degenerate_problems() -> None:
    """f = w x has the sharpness mean(x^2). Zero examples, an uninstantiated loss, and an overflow raise errors."""
    line, x = mn.Network(mn.Sequential(mn.Dense(1)), (1,)), np.array([[2.0], [4.0]])
    theta = np.array([3.0])
    np.testing.assert_allclose(sharpness(line, theta, x, 0 * x, loss=mn.mse), 10.0, rtol=1e-12)
    with pytest.raises(ValueError, match="x expects at least one example"):
        sharpness(line, theta, x[:0], x[:0], loss=mn.mse)
    with pytest.raises(TypeError, match="loss expects one with hessian"):
        sharpness(line, theta, x, x, loss=mn.MeanSquared)
    with pytest.raises(FloatingPointError, match="the kernel or the Hessian overflows float64"):
        sharpness(line, theta, 1e200 * x, x, loss=mn.mse)


@pytest.mark.parametrize("scale", [1e-60, 1e-20, 1e-8, 1e60])
def test_small_and_large_inputs_have_accurate_eigenvalues(scale: float) -> None:
    """The sharpness of a linear network is proportional to the square of the inputs, at any scale."""
    line, x = mn.Network(mn.Sequential(mn.Dense(1)), (30,)), np.random.default_rng(1).standard_normal((40, 30))
    exact = np.linalg.eigvalsh(x.T @ x / 40 / 30)[-1]
    found = sharpness(line, np.zeros(30), scale * x, np.zeros((40, 1)), loss=mn.mse)
    assert found / scale**2 == pytest.approx(exact, rel=1e-6)
    assert mn.max_learning_rate(line, np.zeros(30), scale * x, mn.mse) * scale**2 == pytest.approx(2 / exact, rel=1e-6)
