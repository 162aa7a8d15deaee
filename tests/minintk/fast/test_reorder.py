"""The layers arranged for speed are the layers as they are written, ties and all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minintk as mn
from minintk.fast import split_batch as shares
from minintk.fast import threads
from minintk.fast.bias import BoundBias
from minintk.fast.split_batch import BoundShared
from minintk.layers.conv import BoundConv
from minintk.layers.layout import Tensor
from minintk.layers.pool import BoundMaxPool, Order
from minintk.models.jacobian import full_contraction, trace_contraction
from minintk.spec.parametrization import Row

Array = np.ndarray[Any, Any]


def front(net: mn.Network) -> BoundShared:
    """The part of the network that works on images."""
    first = net._root.layers[0]
    assert isinstance(first, BoundShared)
    return first


def network(*layers: mn.spec.Layer, shape: tuple[int, ...] = (6, 6, 2)) -> mn.Network:
    return mn.Network(mn.Sequential(*layers, mn.Flatten(), mn.Dense(2)), shape)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Called, it makes every batch one that is shared out over two cores."""

    def on() -> None:
        monkeypatch.setattr(threads, "cores", lambda: 2)
        monkeypatch.setattr(shares, "cores", lambda: 2)
        monkeypatch.setattr(shares, "LEAST", 0)

    threads._pool.cache_clear()
    yield on
    threads._pool.cache_clear()


def maps(net: mn.Network, theta: Array, x: Array) -> list[Array]:
    """f, J v and J' u, of integers."""
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
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_the_arranged_layers_are_the_layers(
    two_cores: Callable[[], None], net: mn.Network, ensemble: int | None, seed: int
) -> None:
    """To the last bit, for all numbers are integers; and ties are everywhere."""
    rng = np.random.default_rng(seed)
    lead = () if ensemble is None else (ensemble,)
    net = mn.Network(net.spec, net.input_shape, mn.Standard())
    theta = rng.integers(-1, 2, (*lead, net.size)).astype(float)
    x = rng.integers(-1, 2, (4, *net.input_shape)).astype(float)
    with threads.alone():
        want = maps(net, theta, x)
    two_cores()
    assert front(net).count(x) > 1
    for a, b in zip(maps(net, theta, x), want, strict=True):
        assert (a == b).all()


def test_what_is_arranged() -> None:
    """ReLU and the bias wait for the pooling; phases where the windows cut the rows into pieces; the others stay."""

    def kinds(net: mn.Network) -> list[str]:
        return [type(layer).__name__.removeprefix("Bound") for layer in front(net).fast.layers]

    def phases(net: mn.Network) -> list[int]:
        return [layer.patches.phases for layer in front(net).fast.layers if isinstance(layer, BoundConv)]

    def plain(layers: Any) -> list[bool]:
        pools = [layer for layer in layers if isinstance(layer, BoundMaxPool)]
        return [layer.order == Order.rows(layer.canvas, layer.before[-1]) for layer in pools]

    moved, stays = ["Conv", "MaxPool", "Activation", "Reshape"], ["Conv", "Activation", "MaxPool", "Reshape"]
    with_bias = ["Conv", "MaxPool", "Bias", "Activation", "Reshape"]
    assert kinds(CASES[0]) == kinds(CASES[2]) == kinds(CASES[4]) == with_bias
    assert kinds(CASES[1]) == [*with_bias[:-1], *moved]
    assert kinds(CASES[3]) == kinds(CASES[6]) == moved
    assert kinds(CASES[5]) == stays
    assert [phases(net) for net in CASES] == [[2], [2, 3], [3], [3], [2], [1], [1], [1], [1]]
    assert all(any(plain(front(net).fast.layers)) == (min(phases(net)) == 1) for net in CASES)
    for net in CASES:  # what everything but training sees is as it was
        assert all(plain(front(net).chain.layers))
        assert {layer.patches.phases for layer in front(net).chain.layers if isinstance(layer, BoundConv)} == {1}


def test_layer_outputs_come_in_the_order_of_the_spec(two_cores: Callable[[], None]) -> None:
    net, x = CASES[0], np.random.default_rng(0).standard_normal((4, 6, 6, 2))
    theta = net.init(np.random.default_rng(1))
    want = net.layer_outputs(theta, x)
    two_cores()
    for a, b in zip(net.layer_outputs(theta, x), want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(3, 2, 4), (5, 4)])
def test_the_bias_as_a_layer_has_the_tangent_kernel_of_its_jacobian(shape: tuple[int, ...]) -> None:
    """gram = J J', with all pairs of outputs and with their trace; jvp and vjp are transposed to each other."""
    rng, n = np.random.default_rng(0), prod(shape)
    layer = BoundBias(Tensor("b", shape[-1:], Row(0.5, 1.0)), shape)
    w, x, u = {"b": rng.standard_normal(4)}, rng.standard_normal((3, *shape)), rng.standard_normal((2, 3, *shape))
    y, J = layer(w, x)
    np.testing.assert_allclose(y, x + 0.5 * w["b"])
    dense = J.jvp({"b": np.eye(4)}, np.zeros((4, *x.shape))).reshape((4, 3, n))
    rows = np.einsum("cnk,bnk->ncb", u.reshape((2, 3, n)), dense)
    full, du, dv = J.gram(u, J, u, full_contraction)
    np.testing.assert_allclose(full, np.einsum("ncb,meb->ncme", rows, rows))
    np.testing.assert_allclose(J.gram(u, J, u.copy(), trace_contraction)[0], np.einsum("ncb,mcb->nm", rows, rows))
    assert du is dv is u
    dw = {"b": np.empty((2, 4))}
    J.vjp(u, dw)
    np.testing.assert_allclose(dw["b"], rows.sum(axis=0))
