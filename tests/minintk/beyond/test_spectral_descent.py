"""Test the steps of spectral descent and of Muon: singular values, rank, momentum, and the effect of depth."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import array_namespace, to_host, to_library
from minintk.beyond.spectral_descent import orthogonalised
from minintk.diagnostics import weight_norms as sp
from minintk.spec.parametrization import Parametrization
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = np.ndarray[Any, Any]

CONVOLUTIONS = mn.Sequential(
    mn.Conv2d(4, b_std=0.3), mn.Tanh(), mn.Conv2d(5, (2, 3), stride=(1, 2), padding="circular", w_std=1.3), mn.Tanh(),
    mn.Residual(mn.Sequential(mn.Tanh(), mn.Conv2d(5, 3, padding="same"))), mn.Flatten(), mn.Dense(3, b_std=0.2),
)  # fmt: skip


def singular_values(G: Any) -> Array:
    return np.linalg.svd(np.asarray(G, dtype=np.float64), compute_uv=False)


def low_rank(shape: tuple[int, int], s: Array, dtype: Any = np.float64) -> tuple[Array, Array]:
    """Return (U diag(s) V', U V') for random U and V with orthonormal columns."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((n, len(s))))[0] for n in shape)
    return (U * s @ V.T).astype(dtype), U @ V.T


# ----------------------------------------------------------------------------------------------- matrices


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 7), (40, 3), (60, 60), (3, 30, 50), (256, 128)])
def test_all_singular_values_become_one(shape: tuple[int, ...], dtype: str, library: str) -> None:
    G = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = orthogonalised(to_library(G, namespace(library)))
    assert array_namespace(found) is array_namespace(to_library(G, namespace(library)))
    assert str(found.dtype) == dtype
    np.testing.assert_allclose(singular_values(to_host(found)), 1, atol=5e-4)
    U, _, V = np.linalg.svd(G.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(to_host(found), U @ V, atol=2e-3 if dtype == "float32" else 1e-5)


@pytest.mark.parametrize(("dtype", "least"), [("float32", 2e-5), ("float64", 1e-12)])
def test_directions_without_gradient_stay_at_zero(dtype: str, least: float) -> None:
    """Orthogonalisation maps ten singular values from 1 down to `least`, or three equal ones, to 1.

    The other singular values of the gradient are zero, and remain small despite rounding.
    """
    for s in (np.geomspace(1, least, 10), np.ones(3)):
        G, right = low_rank((90, 50), s, dtype)
        found = orthogonalised(G)
        np.testing.assert_allclose(singular_values(found)[: len(s)], 1, atol=1e-3)
        assert singular_values(found)[len(s)] < 1e-3
        assert np.abs(singular_values(G / np.linalg.norm(G, 2))[:3] - 1).max() > 0.5 or len(s) == 3  # scaling fails
        np.testing.assert_allclose(found, right, atol=0.02 if dtype == "float32" else 1e-3)
    np.testing.assert_array_equal(orthogonalised(np.zeros((2, 4, 6), dtype)), 0)
    both = orthogonalised(np.stack([np.zeros((3, 3)), np.eye(3)]).astype(dtype))
    np.testing.assert_allclose(both, [np.zeros((3, 3)), np.eye(3)], atol=1e-4)


@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e-35), ("float32", 1e35), ("float64", 1e250)])
def test_the_size_of_the_gradient_does_not_matter(dtype: str, scale: float) -> None:
    G = np.random.default_rng(0).standard_normal((20, 12)).astype(dtype)
    np.testing.assert_allclose(orthogonalised(G * np.asarray(scale, dtype)), orthogonalised(G), atol=1e-4)


# ------------------------------------------------------------------------------------------------- steps

SPEC = mn.Sequential(
    mn.Conv2d(6, b_std=0.3), mn.Tanh(), mn.Conv2d(5, (2, 3), padding="circular"), mn.Tanh(), mn.Flatten(), mn.Dense(8),
    mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(8), mn.Tanh(), mn.Dense(8))),
    mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(8, b_std=0.2))), mn.Dense(3),
)  # fmt: skip
DEPTH = {"6.branch.1.W": 2**-0.5, "6.branch.3.W": 0.5, "7.branch.1.W": 0.5, "7.branch.1.b": 0.5}


def stepped(table: Parametrization, optimizer: Any, dtype: Any = np.float64, N: int = 40) -> tuple[mn.Network, Array]:
    """Train three members for one step on N images, and return (network, theta_0 - theta_1)."""
    net, rng = mn.Network(SPEC, (4, 4, 2), table), np.random.default_rng(0)
    theta, x = net.init(rng, ensemble=3, dtype=dtype), rng.standard_normal((N, 4, 4, 2)).astype(dtype)
    y = rng.standard_normal((N, 3)).astype(dtype)
    *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=optimizer(0.05, net.layout), steps=1)
    return net, theta - last.theta


def check_steps(net: mn.Network, step: Array, rtol: float = 1e-3) -> None:
    """Check that singular values of c dW are 0 or lr d sqrt(fan_out / fan_in), with multiplier c and d from DEPTH."""
    for t in net.layout.tensors:
        fan_in, fan_out = prod(t.shape[:-1]), t.shape[-1]
        W = t.row.multiplier * net.layout.unpack(step)[t.name].reshape(3, fan_in, fan_out)
        want = 0.05 * DEPTH.get(t.name, 1.0) * sqrt(fan_out / fan_in)
        s, rank = singular_values(W), 3 if t.name == "7.branch.1.W" else None  # three outputs: rank three
        np.testing.assert_allclose(s[:, :rank], want, rtol=rtol, err_msg=t.name)
        assert rank is None or s[:, rank:].max() < rtol * want


@pytest.mark.parametrize("table", [mn.NTK(), mn.SpectralMuP(), mn.Standard()], ids=repr)
def test_muon_moves_every_direction_alike(table: Parametrization) -> None:
    check_steps(*stepped(table, mn.Muon))
    check_steps(*stepped(table, mn.Muon, np.float32), rtol=1e-2)  # theta_0 - theta_1 has lost digits
    with pytest.raises(AssertionError):
        check_steps(*stepped(table, mn.SpectralDescent))  # only the largest singular value is right


def test_a_batch_of_two_moves_two_directions() -> None:
    net, step = stepped(mn.SpectralMuP(), mn.Muon, N=2)
    s = singular_values(net.layout.unpack(step)["8.W"])
    np.testing.assert_allclose(s[:, :2], 0.05 * sqrt(3 / 8), rtol=1e-3)
    assert s[:, 2].max() < 1e-3 * s[:, 0].min()


def test_momentum_adds_gradients_up() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(7), mn.Tanh(), mn.Dense(2)), (5,), mn.SpectralMuP())
    first, second = np.random.default_rng(0).standard_normal((2, net.size))
    for kind, direction in ((mn.Muon, orthogonalised), (mn.SpectralDescent, lambda G: G / np.linalg.norm(G, 2))):
        optimizer, theta = kind(0.1, net.layout, momentum=0.5), np.zeros(net.size)
        memory = optimizer.init(theta)
        for gradient in (first, second):
            before = theta.copy()
            optimizer.step(theta, gradient.copy(), memory, None)
        v, moved = net.layout.unpack(0.5 * first + second), net.layout.unpack(before - theta)
        for t in net.layout.tensors:
            want = 0.1 * sqrt(t.shape[1] / t.shape[0]) * direction(v[t.name])
            np.testing.assert_allclose(moved[t.name], want, atol=1e-4)
    with pytest.raises(ValueError, match=r"Muon\(momentum=\.\.\.\) expects a number in \[0, 1\), got 1"):
        mn.Muon(0.1, net.layout, momentum=1)
    with pytest.raises(ValueError, match=r"expects a number in \[0, 1\), got \[0.5\]"):
        mn.Muon(0.1, net.layout, momentum=[0.5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Muon\(layout=\.\.\.\) expects net\.layout, got None"):
        mn.Muon(0.1, None)  # type: ignore[arg-type]
    assert repr(mn.Muon(0.1, net.layout)) == "Muon(lr=0.1, momentum=0.9)"


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_direction_is_that_of_every_library(library: str) -> None:
    G = np.random.default_rng(0).standard_normal((2, 5, 3))
    found = mn.SpectralDescent(0.1, mn.Network(mn.Dense(1), (1,)).layout).direction(to_library(G, namespace(library)))
    assert array_namespace(found) is array_namespace(to_library(G, namespace(library)))
    np.testing.assert_allclose(to_host(found), G / np.linalg.norm(G, 2, axis=(-2, -1))[:, None, None], rtol=1e-3)


# ------------------------------------------------------------------------------------ norms of steps of rank one


@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.SpectralMuP(), mn.Standard()], ids=repr)
def test_spectral_descent_takes_steps_of_the_natural_norm(parametrization: Parametrization) -> None:
    spec = mn.Sequential(mn.Dense(30, b_std=0.5), mn.Tanh(), mn.Dense(40), mn.Tanh(), mn.Dense(2))
    net = mn.Network(spec, (7,), parametrization)
    rng = np.random.default_rng(0)
    theta, x, y = net.init(rng, ensemble=3), rng.standard_normal((6, 7)), rng.standard_normal((6, 2))
    optimizer = mn.SpectralDescent(0.05, net.layout)
    *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=optimizer, steps=1, lr_scales={"2.W": 2.0})
    moved = sp.spectral_norms(net, last.theta - theta, rtol=1e-6)
    for name, natural in sp.natural_norms(net).items():
        np.testing.assert_allclose(moved[name], 0.05 * natural * (2 if name == "2.W" else 1), rtol=2e-3)


def test_spectral_descent_moves_a_convolution_by_no_more_than_that() -> None:
    net = mn.Network(CONVOLUTIONS, (5, 6, 2), mn.SpectralMuP())
    rng = np.random.default_rng(0)
    theta, x, y = net.init(rng), rng.standard_normal((6, 5, 6, 2)), rng.standard_normal((6, 3))
    *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SpectralDescent(0.05, net.layout), steps=1)
    moved = sp.spectral_norms(net, last.theta - theta)
    for name, natural in sp.natural_norms(net).items():
        assert 0.3 * natural < moved[name] / 0.05 < 1.01 * natural, name


def test_spectral_descent_descends_and_leaves_what_has_no_gradient() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(20, b_std=0.5), mn.ReLU(), mn.Dense(1)), (3,), mn.SpectralMuP())
    rng = np.random.default_rng(0)
    theta, x = net.init(rng), np.abs(rng.standard_normal((6, 3)))
    y = np.tanh(x[:, :1])
    losses = [
        float(s.loss)
        for s in mn.train(
            net, theta, x, y, loss=mn.mse, optimizer=mn.SpectralDescent(mn.Cosine(0.1, 40), net.layout), steps=40
        )
    ]
    assert losses[-1] < 0.05 * losses[0]
    dead = net.layout.pack({**net.layout.unpack(theta), "0.b": np.full(20, -100.0)})
    *_, last = mn.train(net, dead, x, y, loss=mn.mse, optimizer=mn.SpectralDescent(0.1, net.layout), steps=1)
    np.testing.assert_array_equal(last.theta, dead)  # no unit is active, so every gradient is zero
    with pytest.raises(ValueError, match=r"SpectralDescent\(lr=\.\.\.\) expects a finite number > 0, got 0"):
        mn.SpectralDescent(0, net.layout)
    with pytest.raises(TypeError, match=r"SpectralDescent\(layout=\.\.\.\) expects net\.layout, got None"):
        mn.SpectralDescent(0.1, None)  # type: ignore[arg-type]
