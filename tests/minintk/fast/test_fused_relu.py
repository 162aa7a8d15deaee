"""Test that convolutions that rectify and normalise images while reading them equal the separate layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.fast import fused_relu
from minintk.fast.accelerate import shut
from minintk.fast.fused_relu import RectifiedConv, RectifiedJacobian
from minintk.layers.combine import BoundChain
from minintk.testing import assert_close, roundings
from minintk.thresholds import THRESHOLDS
from tests.kit.counting import counted
from tests.kit.small_is_large import small_is_large

RNG = np.random.default_rng
NORM = mn.BatchNorm(eps=0.01)
END = mn.Flatten(), mn.Dense(2)
NETWORKS: dict[str, tuple[mn.Sequential, tuple[int, ...], list[bool]]] = {
    "ReLU alone": (
        mn.Sequential(mn.Conv2d(16, 1), mn.ReLU(), mn.Conv2d(32, (3, 2), stride=2, padding="circular", b_std=1), *END),
        (9, 8, 2), [False],
    ),
    "normalised": (
        mn.Sequential(NORM, mn.ReLU(), mn.Conv2d(16, (2, 3), padding="valid"), NORM, mn.ReLU(), mn.Conv2d(16, 1), *END),
        (6, 18, 3), [True, True],
    ),
    "residual": (
        mn.Sequential(
            mn.Conv2d(16, 1), mn.Residual(mn.Sequential(NORM, mn.ReLU(), mn.Conv2d(16, 3))), NORM, mn.ReLU(),
            mn.GlobalAvgPool(), mn.Dense(2),
        ),
        (5, 6, 2), [True],
    ),
    "sequences": (
        mn.Sequential(mn.Conv1d(16, 3), NORM, mn.ReLU(), mn.Conv1d(16, 3, stride=2), *END), (11, 3), [True]
    ),
}  # fmt: skip
"""{name: (layers, shape of an example, for each rectifying convolution True if it has a BatchNorm)}."""


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    pytest.importorskip("numba")
    with small_is_large():
        yield


def joined(layer: Any) -> list[bool]:
    """Return, for each rectifying convolution in a tree of layers, True if it includes a BatchNorm, else False."""
    if isinstance(layer, RectifiedConv):
        return [layer.norm is not None]
    inner = getattr(layer, "layers", getattr(getattr(layer, "sweeps", None), "layers", ()))
    return [one for each in inner for one in joined(each)]


def maps(net: mn.Network, theta: Any, x: Any) -> list[Any]:
    """Return f, J v, J' u, J' U for several cotangents U, and (df/dx)' u."""
    f, J = net.linearize(theta, x)
    u = RNG(1).standard_normal((3, *f.shape))
    back = net.linearize(theta, x, wrt="x")[1].vjp(u[0])
    return [f, J.jvp(np.cos(np.arange(theta.size)).reshape(theta.shape)), J.vjp(u[0]), J.vjp(u), back]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("ensemble", [None, 2])
def test_the_layers_in_one_are_the_layers(name: str, ensemble: int | None) -> None:
    """Outputs and derivatives equal those of separate layers, for a network and an ensemble."""
    spec, shape, rectify = NETWORKS[name]
    with shut():
        plain = mn.Network(spec, shape)
    net, x = mn.Network(spec, shape), 1 + RNG(2).standard_normal((5, *shape))
    assert joined(net.sweeps) == rectify
    theta = net.init(RNG(0), ensemble=ensemble)
    tolerance = 50 * roundings(plain, theta if ensemble is None else theta[0], x)
    with counted(fused_relu, "RectifiedJacobian", lambda *_: 1) as calls:
        net.linearize(theta, x)  # J is not usable: `counted` replaces the class of J by a function
    assert bool(calls) is (ensemble is None)
    for i, (a, b) in enumerate(zip(maps(net, theta, x), maps(plain, theta, x), strict=True)):
        assert_close(f"map {i}", a, b, tolerance * float(np.abs(b).max()))


def test_a_calibrated_network_goes_layer_by_layer() -> None:
    spec, shape, _ = NETWORKS["normalised"]
    net, x = mn.Network(spec, shape), RNG(2).standard_normal((5, *shape))
    theta = net.init(RNG(0))
    frozen = net.calibrate(theta, x)
    np.testing.assert_allclose(frozen(theta, x), net(theta, x), rtol=1e-12)
    assert mn.ntk(frozen, theta, x).shape == (5, 5)


def test_a_small_batch_is_normalised_on_the_way_where_numba_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Numba is loaded, a small batch is normalised while being read.

    BatchNorm alone would not load Numba for so small a batch.
    """
    spec = mn.Sequential(mn.Conv2d(16), mn.BatchNorm(), mn.ReLU(), mn.Conv2d(16), mn.GlobalAvgPool(), mn.Dense(1))
    net, x = mn.Network(spec, (8, 8, 3)), RNG(0).standard_normal((5, 8, 8, 16))
    sweeps: Any = net.sweeps
    (layer,) = (one for one in sweeps.layers if isinstance(one, RectifiedConv))
    w = net.layout.unpack(net.init(RNG(1)))
    with monkeypatch.context() as patch:
        patch.setattr(THRESHOLDS, "normalised", 10**9)
        y, J = layer(dict(w), x)
    assert type(J) is RectifiedJacobian
    np.testing.assert_allclose(y, BoundChain(layer.layers)(dict(w), x)[0], rtol=0, atol=1e-12 * np.abs(y).max())


def test_float32_is_as_exact_as_the_layers_one_by_one() -> None:
    """With means far from 0, relative errors of f and J' u are below 3e-7 or below twice those of separate layers."""
    spec = mn.Sequential(mn.Conv2d(16, 1, b_std=100.0), NORM, mn.ReLU(), mn.Conv2d(16, 3), *END)
    x, found = RNG(0).standard_normal((8, 12, 12, 3)), []
    theta = mn.Network(spec, x.shape[1:]).init(RNG(1))
    with shut():
        plain = mn.Network(spec, x.shape[1:])
    for net in (mn.Network(spec, x.shape[1:]), plain):
        each = []
        for dtype in (np.float32, np.float64):
            f, J = net.linearize(theta.astype(np.float32).astype(dtype), x.astype(np.float32).astype(dtype))
            each.append([f, J.vjp(np.ones_like(f))])
            assert f.dtype == dtype
        found.append([float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2))) for a, b in zip(*each, strict=True)])
    for error, usual in zip(*found, strict=True):
        assert error < max(2 * usual, 3e-7)


def test_infinite_numbers_that_relu_stops_send_nothing_back() -> None:
    """If a pixel before ReLU overflows to -infinity, outputs and gradients are finite, as with separate layers."""
    spec = mn.Sequential(mn.Conv2d(16, 1), mn.ReLU(), mn.Conv2d(16, 3), *END)
    x, found = np.abs(RNG(0).standard_normal((2, 5, 6, 1))).astype(np.float32), []
    with shut():
        plain = mn.Network(spec, x.shape[1:])
    theta = plain.init(RNG(0), dtype=np.float32)
    first = plain.layout.unpack(theta)["0.W"]
    first[...] = -np.abs(first)
    first[..., 0] = -1e30
    x[1, 2, 3] = 1e30
    with np.errstate(over="ignore"):
        for net in (plain, mn.Network(spec, x.shape[1:])):
            f, J = net.linearize(theta, x)
            found.append((f, J.vjp(np.ones_like(f))))
    assert np.isfinite(found[0][1]).all()
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_a_cotangent_is_not_written_to() -> None:
    """The pass that computes dx may overwrite the gradient with respect to the rectified images z, but not u."""
    spec, shape, _ = NETWORKS["residual"]
    net, x, right = mn.Network(spec, shape), RNG(2).standard_normal((5, *shape)), RectifiedJacobian.vjp

    def watched(self: Any, u: Any, dw: Any) -> Any:
        before = u.copy()
        back = right(self, u, dw)
        assert (u == before).all()
        return back

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RectifiedJacobian, "vjp", watched)
        f, J = net.linearize(net.init(RNG(0)), x)
        J.vjp(np.ones_like(f))
