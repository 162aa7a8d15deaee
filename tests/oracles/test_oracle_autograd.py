"""Compare networks and their derivatives with HIPS autograd, applied to the networks' formulas.

The oracle uses nothing from minintk except the names and shapes of tensors. It receives theta as a dictionary of
tensors. Derivatives by autograd must agree with minintk's hand-written ones to TOLERANCE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad, jacobian
from autograd.scipy.special import erf

import minintk as mn

Array = Any
Tensors = dict[str, Array]
TOLERANCE = 1e-12
"""Tolerance relative to the largest entry, about 5000 eps, because dot products have up to 60 terms."""


@dataclass(frozen=True)
class Oracle:
    """A spec, and the same network as a function f(tensors, x) written from its formula."""

    spec: mn.Sequential
    shape: tuple[int, ...]
    parametrization: mn.spec.parametrization.Parametrization
    f: Callable[[Tensors, Array], Array]


def ntk_dense(w: Tensors, name: str, x: Array, sigma_w: float, sigma_b: float = 0.0) -> Array:
    """Return sigma_w / sqrt(fan_in) x W + sigma_b b."""
    z = sigma_w / sqrt(x.shape[-1]) * anp.dot(x, w[name + ".W"])
    return z + sigma_b * w[name + ".b"] if sigma_b else z


def plain_dense(w: Tensors, name: str, x: Array) -> Array:
    """Return x W + b."""
    return anp.dot(x, w[name + ".W"]) + w[name + ".b"]


def erf_network(w: Tensors, x: Array) -> Array:
    return ntk_dense(w, "2", erf(ntk_dense(w, "0", x, 1.5, 0.1)), 1.2, 0.05)


def deep_relu(w: Tensors, x: Array) -> Array:
    for name in ("0", "2", "4"):
        x = anp.maximum(ntk_dense(w, name, x, sqrt(2), 0.1), 0)
    return ntk_dense(w, "6", x, 1.0)


def residual_tanh(w: Tensors, x: Array) -> Array:
    h = anp.tanh(plain_dense(w, "0", x))
    branch = plain_dense(w, "2.branch.2", anp.tanh(plain_dense(w, "2.branch.0", h)))
    shortcut = anp.dot(h, w["2.shortcut.W"])
    return plain_dense(w, "3", branch + shortcut)


def identity_shortcuts(w: Tensors, x: Array) -> Array:
    h = ntk_dense(w, "0", x, 1.0)
    h = h + ntk_dense(w, "1.branch.1", anp.maximum(h, 0), sqrt(2), 0.1)
    h = h + anp.sin(ntk_dense(w, "2.branch.0", h, 1.0))
    return ntk_dense(w, "4", anp.abs(h), 1.0, 1.0)


def flat_softplus(w: Tensors, x: Array) -> Array:
    h = x.reshape(len(x), -1)
    h = 1.404383 / 5 * anp.log(1 + anp.exp(5 * ntk_dense(w, "1", h, 1.0, 1.0)))
    z = ntk_dense(w, "3.0", h, 1.3)
    h = z * (1 + erf(z / sqrt(2))) / 2
    return ntk_dense(w, "4", h, 1.0, 0.5)


def torch_sigmoid(w: Tensors, x: Array) -> Array:
    h = 1 / (1 + anp.exp(-plain_dense(w, "0", x)))
    z = plain_dense(w, "2", h)
    h = anp.where(z > 0, z, 0.2 * z)
    return anp.sin(plain_dense(w, "4", h))


def padded(x: Array, top: int, bottom: int, left: int, right: int) -> Array:
    """Return images x : (N, H, W, C), padded with zeros."""
    return anp.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), mode="constant")


def convolved(x: Array, W: Array, stride: int = 1) -> Array:
    """Return sum_ij x[:, s p + i, s q + j] W[i, j] for padded images and stride s."""
    height, width = (n - k + 1 for n, k in zip(x.shape[1:3], W.shape[:2]))
    return sum(
        anp.dot(x[:, i : i + height : stride, j : j + width : stride], W[i, j])
        for i in range(W.shape[0])
        for j in range(W.shape[1])
    )


def maxima(x: Array) -> Array:
    """Return the maximum of each 2 x 2 block."""
    rows = anp.maximum(x[:, 0::2], x[:, 1::2])
    return anp.maximum(rows[:, :, 0::2], rows[:, :, 1::2])


def small_lenet(w: Tensors, x: Array) -> Array:
    x = anp.maximum(convolved(padded(x, 1, 1, 1, 1), w["0.W"]) + w["0.b"], 0)
    x = anp.maximum(convolved(maxima(x), w["3.W"]) + w["3.b"], 0)
    x = maxima(x).reshape(len(x), -1)
    return plain_dense(w, "9", anp.maximum(plain_dense(w, "7", x), 0))


def residual_cnn(w: Tensors, x: Array) -> Array:
    around = anp.concatenate([x[:, -1:], x, x[:, :1]], axis=1)
    around = anp.concatenate([around[:, :, -1:], around, around[:, :, :1]], axis=2)
    x = 1.5 / sqrt(18) * convolved(around, w["0.W"]) + 0.1 * w["0.b"]
    branch = 1.0 / sqrt(3 * 9) * convolved(padded(anp.tanh(x), 0, 1, 0, 1), w["1.branch.1.W"], stride=2)
    x = branch + 0.7 / sqrt(3) * convolved(x, w["1.shortcut.W"], stride=2)
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    x = centred / anp.sqrt(anp.mean(centred**2, axis=-1, keepdims=True) + 0.01)
    x = (x[:, :-1] + x[:, 1:]) / 2
    return ntk_dense(w, "5", anp.mean(anp.sin(x), axis=(1, 2)), 1.2, 0.3)


ORACLES = {
    "small LeNet": Oracle(
        mn.Sequential(
            mn.Conv2d(3, 3, b_std=1.0),
            mn.ReLU(),
            mn.MaxPool(2),
            mn.Conv2d(4, 3, padding="valid", b_std=1.0),
            mn.ReLU(),
            mn.MaxPool(2),
            mn.Flatten(),
            mn.Dense(5, b_std=1.0),
            mn.ReLU(),
            mn.Dense(3, b_std=1.0),
        ),
        (12, 8, 1),
        mn.PyTorch(),
        small_lenet,
    ),
    "residual CNN": Oracle(
        mn.Sequential(
            mn.Conv2d(3, 3, padding="circular", w_std=1.5, b_std=0.1),
            mn.Residual(
                mn.Sequential(mn.Tanh(), mn.Conv2d(4, 3, stride=2)), shortcut=mn.Conv2d(4, 1, stride=2, w_std=0.7)
            ),
            mn.LayerNorm(eps=0.01),
            mn.AvgPool((2, 1), stride=1),
            mn.Sequential(mn.Sin(), mn.GlobalAvgPool()),
            mn.Dense(2, w_std=1.2, b_std=0.3),
        ),
        (4, 6, 2),
        mn.NTK(),
        residual_cnn,
    ),
    "erf": Oracle(
        mn.Sequential(mn.Dense(5, w_std=1.5, b_std=0.1), mn.Erf(), mn.Dense(2, w_std=1.2, b_std=0.05)),
        (4,),
        mn.NTK(),
        erf_network,
    ),
    "deep ReLU": Oracle(
        mn.Sequential(
            mn.Dense(7, w_std=2**0.5, b_std=0.1),
            mn.ReLU(),
            mn.Dense(6, w_std=2**0.5, b_std=0.1),
            mn.ReLU(),
            mn.Dense(8, w_std=2**0.5, b_std=0.1),
            mn.ReLU(),
            mn.Dense(3),
        ),
        (5,),
        mn.NTK(),
        deep_relu,
    ),
    "residual, projected": Oracle(
        mn.Sequential(
            mn.Dense(5, b_std=0.3),
            mn.Tanh(),
            mn.Residual(
                mn.Sequential(mn.Dense(4, b_std=0.2), mn.Tanh(), mn.Dense(6, w_std=0.7, b_std=0.1)),
                shortcut=mn.Dense(6),
            ),
            mn.Dense(2, b_std=0.1),
        ),
        (3,),
        mn.Standard(),
        residual_tanh,
    ),
    "residual, identity": Oracle(
        mn.Sequential(
            mn.Dense(6),
            mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(6, w_std=2**0.5, b_std=0.1))),
            mn.Residual(mn.Sequential(mn.Dense(6), mn.Sin())),
            mn.Abs(),
            mn.Dense(2, b_std=1.0),
        ),
        (4,),
        mn.NTK(),
        identity_shortcuts,
    ),
    "images, zero-initialised bias": Oracle(
        mn.Sequential(
            mn.Flatten(),
            mn.Dense(6, b_std=1.0, b_init="zeros"),
            mn.Softplus(beta=5.0, scale=1.404383),
            mn.Sequential(mn.Dense(5, w_std=1.3), mn.GELU()),
            mn.Dense(3, b_std=0.5, b_init="zeros"),
        ),
        (3, 2, 2),
        mn.NTK(),
        flat_softplus,
    ),
    "PyTorch": Oracle(
        mn.Sequential(
            mn.Dense(6, b_std=1.0),
            mn.Sigmoid(),
            mn.Dense(5, b_std=1.0),
            mn.LeakyReLU(0.2),
            mn.Dense(2, b_std=1.0),
            mn.Sin(),
        ),
        (4,),
        mn.PyTorch(),
        torch_sigmoid,
    ),
}


@pytest.fixture(params=ORACLES.items(), ids=lambda item: item[0])
def case(request: pytest.FixtureRequest) -> tuple[Oracle, mn.Network, Array, Array, Array]:
    """Return (oracle, network, theta, x1, x2) at a random point with biases away from zero."""
    oracle: Oracle = request.param[1]
    rng = np.random.default_rng(7)
    net = mn.Network(oracle.spec, oracle.shape, oracle.parametrization)
    theta = net.init(rng) + 0.2 * rng.standard_normal(net.size)
    return oracle, net, theta, rng.standard_normal((4, *oracle.shape)), rng.standard_normal((3, *oracle.shape))


def on_vectors(oracle: Oracle, net: mn.Network) -> Callable[[Array, Array], Array]:
    """Return f(theta, x), which splits theta into tensors in the layout's order and calls the oracle."""

    def f(theta: Array, x: Array) -> Array:
        tensors, start = {}, 0
        for t in net.layout.tensors:
            stop = start + int(np.prod(t.shape))
            tensors[t.name] = theta[start:stop].reshape(t.shape)
            start = stop
        return oracle.f(tensors, x)

    return f


def same(got: Array, want: Array) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * float(np.abs(want).max()))


def test_outputs(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    oracle, net, theta, x, _ = case
    same(net(theta, x), on_vectors(oracle, net)(theta, x))


def test_gradient_of_the_squared_loss(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    oracle, net, theta, x, _ = case
    f = on_vectors(oracle, net)
    y = np.random.default_rng(1).standard_normal((len(x), net.outputs))
    out, J = net.linearize(theta, x)

    def loss(theta: Array) -> Array:
        return anp.sum((f(theta, x) - y) ** 2) / (2 * len(x))

    same(mn.mse(out, y), loss(theta))
    same(J.vjp(mn.mse.cotangent(out, y)), grad(loss)(theta))


def test_gradient_of_the_cross_entropy(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    oracle, net, theta, x, _ = case
    f = on_vectors(oracle, net)
    y = np.random.default_rng(1).dirichlet(np.ones(net.outputs), len(x))
    out, J = net.linearize(theta, x)

    def loss(theta: Array) -> Array:
        p = anp.exp(f(theta, x))
        return -anp.sum(y * anp.log(p / anp.sum(p, axis=1, keepdims=True))) / len(x)

    same(mn.softmax_cross_entropy(out, y), loss(theta))
    same(J.vjp(mn.softmax_cross_entropy.cotangent(out, y)), grad(loss)(theta))


def test_jacobian_forwards_and_written_down(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    oracle, net, theta, x, _ = case
    want = jacobian(on_vectors(oracle, net))(theta, x)
    _, J = net.linearize(theta, x)
    same(J.dense(), want)
    v = np.random.default_rng(2).standard_normal(net.size)
    same(J.jvp(v), want @ v)


def test_full_and_averaged_tangent_kernel(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    oracle, net, theta, x1, x2 = case
    J1, J2 = (jacobian(on_vectors(oracle, net))(theta, x) for x in (x1, x2))
    full = np.einsum("ncp,mep->ncme", J1, J2)
    same(mn.ntk_full(net, theta, x1, x2), full)
    same(mn.ntk(net, theta, x1, x2), np.einsum("ncmc->nm", full) / net.outputs)
    same(mn.ntk_full(net, theta, x1), np.einsum("ncp,mep->ncme", J1, J1))


def test_linearized(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    oracle, net, theta, x, _ = case
    f = on_vectors(oracle, net)
    other = theta + 0.5 * np.random.default_rng(3).standard_normal(net.size)
    want = f(theta, x) + jacobian(f)(theta, x) @ (other - theta)
    same(mn.Linearized(net, theta)(other, x), want)


def test_ten_steps_of_descent(case: tuple[Oracle, mn.Network, Array, Array, Array]) -> None:
    """Compare ten steps of `train` with a loop theta <- theta - lr grad L, with gradients from autograd."""
    oracle, net, theta, x, _ = case
    f = on_vectors(oracle, net)
    y = np.random.default_rng(1).standard_normal((len(x), net.outputs))
    gradient = grad(lambda theta: anp.sum((f(theta, x) - y) ** 2) / (2 * len(x)))
    *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.05), steps=10)
    for _ in range(10):
        theta = theta - 0.05 * gradient(theta)
    same(last.theta, theta)
