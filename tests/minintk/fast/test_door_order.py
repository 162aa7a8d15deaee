"""Test that layers reordered for speed give the results of the written order, even if the pooling has ties."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minintk as mn
from minintk.fast.accelerate import shut
from minintk.fast.split_batch import SplitBatch, SplitBatchJacobian
from tests.kit.small_is_large import small_is_large

Array = mn.Array


def network(*layers: mn.spec.Layer, shape: tuple[int, ...] = (6, 6, 2)) -> mn.Network:
    return mn.Network(mn.Sequential(*layers, mn.Flatten(), mn.Dense(2)), shape)


def front(net: mn.Network) -> SplitBatch:
    """Return the part of the network that processes images."""
    sweeps: Any = net.sweeps
    assert isinstance(sweeps.layers[0], SplitBatch)
    return sweeps.layers[0]


def maps(net: mn.Network, theta: Array, x: Array) -> list[Array]:
    """Return f, J v and J' u for random integers v and u, and J J'."""
    rng = np.random.default_rng(5)
    f, J = net.linearize(theta, x)
    v, u = rng.integers(-3, 4, (2, *theta.shape)), rng.integers(-3, 4, (2, *f.shape))
    return [f, J.jvp(v.astype(theta.dtype)), J.vjp(u.astype(theta.dtype)), J.gram()]


CASES = (
    network(mn.Conv2d(3, 3, b_std=1.0), mn.ReLU(), mn.MaxPool(2)),
    network(mn.Conv2d(3, 3, b_std=1.0), mn.MaxPool(2), mn.ReLU(), mn.Conv2d(2, 2), mn.ReLU(), mn.MaxPool((1, 3))),
    network(mn.Conv2d(2, (2, 3), stride=(2, 1), b_std=1.0), mn.ReLU(), mn.MaxPool(3)),
    network(mn.Conv2d(2, 3, stride=2, padding="circular"), mn.ReLU(), mn.MaxPool((2, 3))),
    network(mn.Conv1d(2, 3, b_std=1.0), mn.ReLU(), mn.MaxPool(2), shape=(8, 3)),
    network(mn.Conv2d(2, 3), mn.Abs(), mn.MaxPool(2)),
    network(mn.Conv2d(2, 3), mn.ReLU(), mn.MaxPool(2, stride=1)),
    network(mn.Conv2d(2, 3), mn.ReLU(), mn.MaxPool(2, padding="same"), shape=(5, 5, 2)),
    network(mn.Conv2d(2, 3), mn.ReLU(), mn.MaxPool(2, padding=((1, 1), (0, 0)))),
)


@pytest.mark.parametrize("net", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("ensemble", [None, 2])
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_the_reordered_layers_are_the_layers(net: mn.Network, ensemble: int | None, seed: int) -> None:
    """Reordered layers give the same bits as the original ones, because all values are integers. Ties are frequent."""
    rng = np.random.default_rng(seed)
    lead = () if ensemble is None else (ensemble,)
    with shut():
        plain = mn.Network(net.spec, net.input_shape, mn.Standard())
    theta = rng.integers(-1, 2, (*lead, plain.size)).astype(float)
    x = rng.integers(-1, 2, (4, *net.input_shape)).astype(float)
    want = maps(plain, theta, x)
    with small_is_large():
        fast = mn.Network(net.spec, net.input_shape, mn.Standard())
        _, J = front(fast)(fast.layout.unpack(theta), x)
        assert isinstance(J, SplitBatchJacobian)
        assert len(J.parts) > 1
        for a, b in zip(maps(fast, theta, x), want, strict=True):
            assert (a == b).all()


def test_what_is_reordered() -> None:
    """ReLU is applied after the pooling. Other activations do not move, and the chain for kernels keeps its order."""

    def kinds(net: mn.Network, where: str) -> list[str]:
        return [
            re.sub("Bound|Compiled|Blocked", "", type(layer).__name__) for layer in getattr(front(net), where).layers
        ]

    moved = ["Conv", "MaxPool", "Activation", "Reshape"]
    stays = ["Conv", "Activation", "MaxPool", "Reshape"]
    for i, net in enumerate(CASES):
        assert kinds(net, "kernels") == [
            type(layer).__name__.removeprefix("Bound") for layer in net.layers.layers[:-1]
        ], i
    assert kinds(CASES[0], "sweeps") == kinds(CASES[2], "sweeps") == moved
    assert kinds(CASES[5], "sweeps") == stays


def test_layer_outputs_come_in_the_order_of_the_spec() -> None:
    net, x = CASES[0], np.random.default_rng(0).standard_normal((4, 6, 6, 2))
    outputs = net.layer_outputs(net.init(np.random.default_rng(1)), x)
    np.testing.assert_array_equal(outputs[1], np.maximum(outputs[0], 0))
    assert outputs[2].shape == (4, 3, 3, 3)
