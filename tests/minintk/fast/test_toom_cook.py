"""Convolutions by tiles are convolutions, in float32 too, and are taken where they save something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import PADDINGS

import minintk as mn
from minintk.fast import toom_cook_transforms as tiles
from minintk.fast.conv import BlockedConv
from minintk.fast.door import convolution, shut
from minintk.fast.split_batch import SplitBatch
from minintk.fast.thresholds import THRESHOLDS
from minintk.fast.toom_cook import ToomCook
from minintk.fast.toom_cook_transforms import Tiles, powers, transforms
from minintk.layers.combine import BoundBranches, BoundChain
from minintk.layers.conv import BoundConv
from minintk.models.jacobian import TraceContraction
from minintk.spec import zoo

Array = mn.Array


def bound(layer: mn.spec.Layer, shape: tuple[int, ...]) -> tuple[mn.Network, BoundConv]:
    """A network with the layer behind one of 1 x 1 pixels, so that dx is asked for, and the layer as it is written."""
    first: mn.spec.Layer = mn.Conv1d(shape[-1], 1) if len(shape) == 2 else mn.Conv2d(shape[-1], 1)
    net = mn.Network(mn.Sequential(first, layer, mn.Flatten()), shape)
    conv = net.layers.layers[1]
    assert isinstance(conv, BoundConv)
    return net, conv


@pytest.mark.parametrize(("m", "r"), [(m, r) for r in range(2, 6) for m in range(1, 8 - r)])
def test_the_transforms_of_one_axis_are_a_convolution(m: int, r: int) -> None:
    """sum_p A[p, a] G[p, j] B[p, i] = [i = a + j]."""
    A, G, B = (a.astype(np.longdouble) for a in transforms((m, 1), (r, 1), "float64"))
    got = np.einsum("pa,pj,pi->aji", A, G, B)
    a, j, i = np.indices(got.shape)
    np.testing.assert_allclose(got, (i == a + j).astype(float), rtol=0, atol=1e-14)


def test_two_axes_are_kronecker_products() -> None:
    A, G, B = transforms((2, 4), (5, 3), "float64")
    assert [a.shape for a in (A, G, B)] == [(36, 8), (36, 15), (36, 36)]
    np.testing.assert_array_equal(A, np.kron(powers(6, 2), powers(6, 4)))


@settings(max_examples=80)
@given(st.data())
def test_a_convolution_by_tiles_is_the_convolution(data: st.DataObject) -> None:
    """f, J v and J' u, any kernel and padding, members, tangents and cotangents in front."""
    shape: tuple[int, ...] = data.draw(st.sampled_from(((8, 6, 3), (5, 8, 2), (4, 4, 1), (6, 9, 2))))
    kernel: Any = tuple(data.draw(st.integers(2, 5)) for _ in shape[:-1])
    layer = mn.Conv2d(4, kernel, padding=data.draw(st.sampled_from((*PADDINGS, ((0, 4), (5, 1))))), b_std=0.3)
    try:
        net, conv = bound(layer, shape)
    except ValueError:  # the window does not fit
        assume(False)
    of = Tiles(conv.windows, conv.parameters.W.shape[-2:])  # type: ignore[arg-type]
    assume(of.fit)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    lead = data.draw(st.sampled_from(((), (2,))))
    w = net.layout.unpack(rng.standard_normal((*lead, net.size)))
    x = rng.standard_normal((*data.draw(st.sampled_from(((), lead))), 3, *shape))
    chunk = data.draw(st.sampled_from((1, THRESHOLDS.tiles_bytes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(THRESHOLDS, "tiles_bytes", chunk)
        y, J = ToomCook(conv, of)(w, x)
        want, plain = conv(w, x)
        close(y, want)
        front = (*data.draw(st.sampled_from(((), (5,)))), *lead)
        dw: dict[str, Array] = {
            name: rng.standard_normal((*front, *w[name].shape[len(lead) :])) for name in (t.name for t in conv.tensors)
        }
        dx = rng.standard_normal((*front, 3, *shape))
        close(J.jvp(dw, dx), plain.jvp(dw, dx))
        close(J.jvp(dw, None), plain.jvp(dw, None))
        u = rng.standard_normal((*front, *want.shape[len(lead) :]))
        got, right = ({name: a + np.nan for name, a in dw.items()} for _ in range(2))
        close(J.vjp(u, got), plain.vjp(u, right))
        for name in dw:
            close(got[name], right[name])
        close(J.vjp(u, None), plain.vjp(u, None))


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-13 * np.abs(want).max())


def off(dtype: str, kernel: int, layer: type[ToomCook] | None, relu: bool = True) -> float:
    """Root mean square error of a wide convolution in float32, relative to that of its values."""
    net, conv = bound(mn.Conv2d(64, kernel, padding="valid"), (8 + kernel - 1, 8 + kernel - 1, 48))
    w = net.layout.unpack(net.init(np.random.default_rng(0)))
    x = np.random.default_rng(1).standard_normal((4, *net.input_shape))
    x = np.maximum(x, 0) if relu else x
    want = conv(w, x)[0]
    of = Tiles(conv.windows, conv.parameters.W.shape[-2:])  # type: ignore[arg-type]
    bound_layer: Any = conv if layer is None else layer(conv, of)
    got = bound_layer({name: a.astype(dtype) for name, a in w.items()}, x.astype(dtype))[0]
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


@pytest.mark.parametrize("kernel", [3, 5])
def test_rounding_errors_are_those_of_the_docstring(kernel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """About 1e-6 in float32, some eps in float64; points that are no worse a formula lose another digit."""
    assert 3e-7 < off("float32", kernel, ToomCook) < 2e-6
    assert off("float32", kernel, None) < 5e-7
    assert off("float64", kernel, ToomCook) < 4e-15
    monkeypatch.setattr(tiles, "POINTS", (0.0, 1.0, 2.0, 3.0, 4.0))
    tiles.transforms.cache_clear()
    assert off("float32", kernel, ToomCook) > 5e-6
    tiles.transforms.cache_clear()


# --------------------------------------------------------------------------------------------- networks


def convolutions(layer: Any) -> Iterator[str]:
    """The kinds of the convolutions inside, in order."""
    if isinstance(layer, BoundChain | BoundBranches):
        for inner in layer.layers:
            yield from convolutions(inner)
    elif isinstance(layer, (BlockedConv, ToomCook)):
        yield "tiles" if isinstance(layer, ToomCook) else "patches"


def taken(spec: mn.spec.Layer, shape: tuple[int, ...] = (28, 28, 1)) -> list[str]:
    front: Any = mn.Network(spec, shape).sweeps
    front = front.layers[0]
    assert isinstance(front, SplitBatch)
    assert set(convolutions(front.kernels)) == {"patches"}
    return list(convolutions(front.sweeps))


def test_tiles_are_taken_where_channels_are_many() -> None:
    assert taken(zoo.lenet5(1)) == ["patches", "patches"]
    assert taken(zoo.lenet5(8)) == ["patches", "tiles"]
    resnet = taken(zoo.wide_resnet(10, 4, norm=None), (32, 32, 3))
    assert resnet[0] == "patches"
    assert resnet.count("tiles") == 4  # not what strides, has kernels of one pixel, or reads three channels


@pytest.mark.parametrize("kernel", [(1, 3), (3, 1), (1, 1), (6, 6), 3])
def test_tiles_save_something_along_both_axes(kernel: Any) -> None:
    _, conv = bound(mn.Conv2d(256, kernel), (12, 12, 256))
    assert isinstance(convolution(conv), ToomCook) == (kernel == 3)
    _, conv = bound(mn.Conv1d(256, 3), (12, 256))
    assert isinstance(convolution(conv), BlockedConv)


def dark(mu: float) -> tuple[mn.Network, Array, Array]:
    """A network without biases yet, and images that are all `mu` but for two columns of pixels."""
    layers = (mn.Conv2d(48, 3, b_std=1.0, b_init="zeros"), mn.Tanh(), mn.Conv2d(48, 3, padding=3, b_std=1.0))
    spec = mn.Sequential(*layers, mn.ReLU(), mn.MaxPool(2), mn.Flatten(), mn.Dense(1))
    net, x = mn.Network(spec, (8, 8, 1)), np.full((4, 8, 8, 1), mu)
    x[:, :, 3:5] = np.random.default_rng(1).standard_normal((4, 8, 2, 1))
    theta = net.init(np.random.default_rng(0))
    net.layout.unpack(theta)["2.b"][...] = 0
    return net, theta, x


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_zeros_stay_zeros(mu: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a window reads zeros or padding alone, relu' is that of 0, not of what rounding left (the last line)."""
    net, theta, x = dark(mu)
    assert taken(net.spec, (8, 8, 1)) == ["patches", "tiles"]
    with shut():
        want = mn.Network(net.spec, net.input_shape).linearize(theta, x)[1].vjp(np.ones((4, 1)))
    got = net.linearize(theta, x)[1].vjp(np.ones((4, 1)))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 * np.abs(want).max())
    monkeypatch.setattr(Tiles, "zeros", lambda *_: None)
    noisy = net.linearize(theta, x)[1].vjp(np.ones((4, 1)))
    assert np.abs(noisy - want).max() > 1e-3 * np.abs(want).max()


WIDE = (
    mn.Sequential(mn.Conv2d(40, 1), mn.Conv2d(48, 5, padding="valid", b_std=1.0), mn.ReLU(), mn.MaxPool(2)),
    mn.Sequential(mn.Conv2d(40, 1), mn.Conv2d(48, 5, padding="valid", b_std=1.0), mn.Tanh(), mn.MaxPool(2)),
    mn.Sequential(mn.Conv2d(48, 3), mn.ReLU(), mn.Conv2d(48, 3, b_std=1.0), mn.ReLU(), mn.MaxPool((2, 4))),
    mn.Sequential(mn.Conv2d(48, 3), mn.Residual(mn.Sequential(mn.ReLU(), mn.Conv2d(48, 3))), mn.AvgPool(2)),
    mn.Sequential(mn.Conv2d(48, 3), mn.Conv2d(48, 3, b_std=1.0), mn.MaxPool(3, padding=1)),
)


@pytest.mark.parametrize("spec", WIDE, ids=range(len(WIDE)))
@pytest.mark.parametrize("ensemble", [None, 2])
def test_a_network_by_tiles_is_the_network(
    spec: mn.Sequential, ensemble: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """f, J v and J' u on shares of the batch, as in training, and as it is written."""
    net = mn.Network(mn.Sequential(*spec.layers, mn.Flatten(), mn.Dense(3)), (8, 8, 2))
    assert "tiles" in taken(net.spec, net.input_shape)
    rng = np.random.default_rng(2)
    theta, x = net.init(rng, ensemble=ensemble), rng.standard_normal((6, 8, 8, 2))
    u, v = rng.standard_normal((4, *theta.shape[:-1], 6, 3)), rng.standard_normal((4, *theta.shape))
    with shut():
        f, J = mn.Network(net.spec, net.input_shape).linearize(theta, x)
    want = [f, J.jvp(v), J.vjp(u), J.gram()]
    for name in ("minintk.fast.threads.cores", "minintk.fast.split_batch.cores"):
        monkeypatch.setattr(name, lambda: 2)
    monkeypatch.setattr("minintk.fast.thresholds.THRESHOLDS.batch", 0)
    f, J = net.linearize(theta, x)
    for got, right in zip([f, J.jvp(v), J.vjp(u), J.gram()], want, strict=True):
        np.testing.assert_allclose(got, right, rtol=0, atol=1e-12 * np.abs(right).max())


def test_without_the_weights_gradient_nothing_of_it_is_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    net, conv = bound(mn.Conv2d(48, 3), (4, 4, 48))
    layer = convolution(conv)
    assert isinstance(layer, ToomCook)
    x = np.ones((2, 4, 4, 48))
    y, J = layer(net.layout.unpack(np.ones(net.size)), x)
    monkeypatch.setattr(Tiles, "read", lambda *_: pytest.fail("B x was formed"))
    assert J.vjp(y, None) is not None


@pytest.mark.parametrize("ensemble", [None, 2])
def test_gram_is_that_of_the_convolution(ensemble: int | None) -> None:
    net, conv = bound(mn.Conv2d(48, 3, b_std=0.3), (4, 4, 48))
    layer, rng = convolution(conv), np.random.default_rng(0)
    assert isinstance(layer, ToomCook)
    lead = () if ensemble is None else (ensemble,)
    w = net.layout.unpack(net.init(rng, ensemble=ensemble))
    x = rng.standard_normal((*lead, 3, 4, 4, 48))
    (y, J), (_, plain) = layer(w, x), conv(w, x)
    u, v = rng.standard_normal((2, 2, *y.shape))
    for other in (u, v):
        close(J.gram(u, J, other, TraceContraction()), plain.gram(u, plain, other, TraceContraction()))
    z = rng.standard_normal((*lead, 2, 4, 4, 48))
    (y2, K), (_, plain2) = layer(w, z), conv(w, z)
    v = rng.standard_normal((2, *y2.shape))
    close(J.gram(u, K, v, TraceContraction()), plain.gram(u, plain2, v, TraceContraction()))


def test_images_without_padding_are_not_copied() -> None:
    _, conv = bound(mn.Conv2d(2, 3, padding="valid"), (5, 5, 2))
    _, padded = bound(mn.Conv2d(2, 3), (5, 5, 2))
    x = np.ones((4, 5, 5, 2))
    assert conv.windows.pad(x) is x
    assert padded.windows.pad(x).shape == (4, 7, 7, 2)
