"""Compare convolutions, pooling and normalisation with loops, and test fixed points and errors."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from tests.kit.golden import CONVOLUTIONAL
from tests.kit.oracles_images import convolution, loop_norm, max_pool, pooled
from tests.kit.strategies import conv, pool

Array = mn.Array


def output(layer: mn.spec.Layer, x: Array, theta: Array | None = None) -> tuple[mn.Network, Array, Array]:
    """Return (network of `layer` and Flatten, theta, outputs)."""
    net = mn.Network(mn.Sequential(layer, mn.Flatten()), x.shape[1:])
    theta = net.init(np.random.default_rng(1)) + 0.5 if theta is None else theta
    return net, theta, net(theta, x)


SHAPES = ((1, 1, 1), (3, 4, 1), (4, 3, 2), (2, 5, 3), (5, 5, 2))


@given(st.data(), st.sampled_from(SHAPES))
def test_convolution_is_the_loop_over_pixels(data: st.DataObject, shape: tuple[int, int, int]) -> None:
    layer: Any = data.draw(conv(shape))
    x = np.random.default_rng(0).standard_normal((2, *shape))
    net, theta, f = output(layer, x)
    tensors = net.layout.unpack(theta)
    want = convolution(layer, x, tensors["0.W"], tensors.get("0.b"))
    np.testing.assert_allclose(f, want.reshape(2, -1), rtol=0, atol=1e-13 * np.abs(want).max())


@given(st.data(), st.sampled_from(SHAPES))
def test_pooling_is_the_loop_over_windows(data: st.DataObject, shape: tuple[int, int, int]) -> None:
    layer = data.draw(pool(shape))
    x = np.random.default_rng(0).standard_normal((2, *shape))
    _, _, f = output(layer, x)
    np.testing.assert_allclose(f, pooled(layer, x).reshape(2, -1), rtol=0, atol=1e-14 * np.abs(x).max())


ALONG: dict[str, tuple[Any, Any]] = {
    "same": ("same", "same"),
    "valid": ("valid", "valid"),
    "circular": ("circular", "circular"),
    "2": (2, (0, 2)),
    "(1, 3)": (((1, 3),), ((0, 0), (1, 3))),
}
"""Pairs of the padding of a sequence and the equivalent padding of an image of height 1."""


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ALONG)
def test_a_sequence_is_an_image_of_height_one(stride: int, padding: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 7, 2))
    one, two = ALONG[padding]
    flat: dict[str, Any] = {"stride": stride, "padding": one}
    high: dict[str, Any] = {"stride": (1, stride), "padding": two}
    for sequence, image in (
        (mn.Conv1d(3, 4, b_std=0.3, **flat), mn.Conv2d(3, (1, 4), b_std=0.3, **high)),
        (mn.AvgPool(4, **flat), mn.AvgPool((1, 4), **high)),
        (mn.MaxPool(4, **flat), mn.MaxPool((1, 4), **high)),
    ):
        _, theta, f = output(sequence, x)
        _, _, g = output(image, x[:, None], theta)
        assert np.array_equal(f, g)


def test_the_global_mean() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    net = mn.Network(mn.Sequential(mn.GlobalAvgPool(), mn.Dense(1)), (3, 4, 5))
    f = net(np.ones(5), x)
    want = [[sum(x[n, h, w, c] for h in range(3) for w in range(4) for c in range(5)) / 12 / sqrt(5)] for n in range(2)]
    np.testing.assert_allclose(f, want, rtol=1e-13)


def test_normalisation_is_the_loop_over_groups() -> None:
    x = 3 + np.random.default_rng(0).standard_normal((4, 3, 2, 5))
    pixels = [(n, h, w) for n in range(4) for h in range(3) for w in range(2)]
    _, _, f = output(mn.LayerNorm(eps=0.01), x)
    np.testing.assert_allclose(f, loop_norm(pixels, x, 0.01).reshape(4, -1), rtol=0, atol=1e-13)
    for axes, groups in (
        ((-3, -2, -1), [(n,) for n in range(4)]),
        ((-1, -3), [(n, slice(None), w) for n in range(4) for w in range(2)]),
        (-2, [(n, h, slice(None), c) for n in range(4) for h in range(3) for c in range(5)]),
    ):
        _, _, f = output(mn.LayerNorm(eps=0.01, axes=axes), x)
        np.testing.assert_allclose(f, loop_norm(groups, x, 0.01).reshape(4, -1), rtol=0, atol=1e-13)
    _, _, f = output(mn.BatchNorm(eps=0.01), x)
    channels = [(slice(None),) * 3 + (c,) for c in range(5)]
    np.testing.assert_allclose(f, loop_norm(channels, x, 0.01).reshape(4, -1), rtol=0, atol=1e-13)


# ------------------------------------------------------------------------------------- fixed points


def test_the_reference_network() -> None:
    """Outputs and tangent kernel agree with an independent implementation to 1e-10."""
    x = np.cos(np.arange(120.0)).reshape(2, 4, 5, 3)
    scales: dict[str, Any] = {"w_std": 1.5, "b_std": 0.1}
    spec = mn.Sequential(
        mn.Conv2d(4, 3, stride=(1, 2), **scales),
        mn.ReLU(),
        mn.Conv2d(4, 3, padding="circular", **scales),
        mn.ReLU(),
        mn.GlobalAvgPool(),
        mn.Dense(2, w_std=1.2, b_std=0.05),
    )
    net = mn.Network(spec, (4, 5, 3))
    theta = net.layout.pack({
        "0.W": np.sin(np.arange(108.0)).reshape(3, 3, 3, 4), "0.b": np.cos(np.arange(4.0)),
        "2.W": np.sin(1 + np.arange(144.0)).reshape(3, 3, 4, 4), "2.b": np.cos(1 + np.arange(4.0)),
        "5.W": np.cos(np.arange(8.0)).reshape(4, 2), "5.b": np.sin(np.arange(2.0)),
    })  # fmt: skip
    k = mn.ntk_full(net, theta, x)
    for got, name in ((net(theta, x).sum(), "f"), (k[0, 0, 0, 0], "full[0, 0, 0, 0]"), (k.sum(), "full")):
        assert abs(got - CONVOLUTIONAL[name]) < 1e-10


def test_ties_of_a_maximum_go_to_the_first_in_row_major_order() -> None:
    """If the entries (0, 1) and (1, 0) tie for the maximum, (0, 1) is chosen, because row 0 comes first."""
    image = np.array([[0.0, 7.0], [7.0, 7.0]])
    for x, first in ((image, [0, 1]), (image[::-1], [0, 0]), (np.zeros((2, 2)), [0, 0]), (-image, [0, 0])):
        y, dx = max_pool(x)
        assert float(y[0, 0, 0, 0]) == x.max()
        assert dx.sum() == 1.0
        assert np.argwhere(dx).tolist() == [first]


def test_one_by_one_convolution_is_dense_at_every_pixel() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    _, theta, f = output(mn.Conv2d(6, 1, b_std=0.3), x)
    dense = mn.Network(mn.Dense(6, b_std=0.3), (5,))
    np.testing.assert_allclose(f.reshape(-1, 6), dense(theta, x.reshape(-1, 5)), rtol=1e-13)


def test_fan_in_is_all_that_a_window_reads_also_at_the_edge() -> None:
    """On an image of ones, Var z is w_std^2 inside and 4/9 w_std^2 in a corner, where a 3 x 3 window reads 4 pixels."""
    net = mn.Network(mn.Sequential(mn.Conv2d(1, 3, w_std=1.5), mn.Flatten()), (5, 5, 2))
    theta = net.init(np.random.default_rng(0), ensemble=4000)
    z = net(theta, np.ones((1, 5, 5, 2)))[:, 0].reshape(-1, 5, 5)
    for at, share in (((2, 2), 1.0), ((0, 0), 4 / 9), ((0, 2), 6 / 9)):
        samples = z[:, at[0], at[1]] ** 2
        score = (samples.mean() - 1.5**2 * share) / (samples.std() / sqrt(len(samples)))
        assert abs(score) < 4.5


# --------------------------------------------------------------------------------------- BatchNorm

NET = mn.Network(
    mn.Sequential(mn.Conv2d(3, 3), mn.BatchNorm(), mn.ReLU(), mn.Flatten(), mn.BatchNorm(), mn.Dense(2)), (3, 4, 2)
)


def test_batchnorm_has_no_parameters_and_a_calibrated_network_keeps_its_statistics() -> None:
    rng = np.random.default_rng(0)
    theta, x = NET.init(rng), rng.standard_normal((6, 3, 4, 2))
    assert [t.name for t in NET.layout.tensors] == ["0.W", "5.W"]
    frozen = NET.calibrate(theta, x)
    assert {name: a.shape for name, a in frozen.statistics.items()} == {
        "1.mean": (3,), "1.r": (3,), "4.mean": (36,), "4.r": (36,)
    }  # fmt: skip
    np.testing.assert_allclose(frozen(theta, x), NET(theta, x), rtol=1e-12, atol=1e-13)
    assert not np.allclose(NET(theta, x[:2]), NET(theta, x)[:2])  # one example's output depends on the others
    np.testing.assert_allclose(frozen(theta, x[:2]), frozen(theta, x)[:2], rtol=1e-12)
    assert isinstance(frozen, mn.Network)
    assert NET.statistics == {}
    again = frozen.calibrate(theta, x[:3])
    np.testing.assert_allclose(again(theta, x[:3]), NET(theta, x[:3]), rtol=1e-12, atol=1e-13)


def test_an_uncalibrated_network_has_no_kernel() -> None:
    rng = np.random.default_rng(0)
    theta, x = NET.init(rng), rng.standard_normal((6, 3, 4, 2))
    J = NET.linearize(theta, x)[1]
    lin = mn.Linearized(NET, theta)
    calls: list[Callable[[], Any]] = [
        lambda: mn.ntk(NET, theta, x), lambda: mn.ntk_full(NET, theta, x), lambda: mn.nngp(NET, theta, x),
        lambda: mn.ntk(lin, theta, x), J.gram, J.trace_gram,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(
            ValueError,
            match=r"depends on all the others, or on its place in the batch; freeze them first, net = net\.calibrate",
        ):
            call()
    assert mn.ntk(NET.calibrate(theta, x), theta, x).shape == (6, 6)


def test_statistics_of_an_ensemble_are_its_members_own() -> None:
    rng = np.random.default_rng(0)
    theta, x = NET.init(rng, ensemble=3), rng.standard_normal((5, 3, 4, 2))
    frozen = NET.calibrate(theta, x)
    for e in range(3):
        alone = NET.calibrate(theta[e], x)
        assert np.array_equal(frozen(theta, x[:2])[e], alone(theta[e], x[:2]))
        assert np.array_equal(frozen.members(slice(e, e + 1))(theta[e : e + 1], x[:2])[0], alone(theta[e], x[:2]))
    with pytest.raises(ValueError, match=r"expects shape \(3, \d+\), the ensemble that the statistics are for"):
        frozen(theta[:2], x)
    with pytest.raises(TypeError, match="float64, as the network was calibrated, got float32"):
        frozen(theta.astype(np.float32), x.astype(np.float32))
    with pytest.raises(ValueError, match="at least one example"):
        NET.calibrate(theta, x[:0])


def test_training_with_batchnorm_uses_the_whole_batch() -> None:
    """The gradient equals finite differences of the loss, in which BatchNorm couples the examples."""
    rng = np.random.default_rng(0)
    theta, x, y = NET.init(rng), rng.standard_normal((8, 3, 4, 2)), rng.standard_normal((8, 2))
    f, J = NET.linearize(theta, x)
    g, v, h = J.vjp(mn.mse.cotangent(f, y)), rng.standard_normal(NET.size), 1e-4
    values = [float(mn.mse(NET(theta + k * h * v, x), y)) for k in (1, -1, 2, -2)]
    want = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
    assert abs(g @ v - want) < 1e-8 * abs(want)
    *_, last = mn.train(NET, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.05), steps=1)
    np.testing.assert_allclose(last.theta, theta - 0.05 * g, rtol=0, atol=1e-14)


def test_calibrated_networks_linearise_and_train() -> None:
    rng = np.random.default_rng(0)
    theta, x, y = NET.init(rng), rng.standard_normal((6, 3, 4, 2)), rng.standard_normal((6, 2))
    frozen = NET.calibrate(theta, x)
    lin = mn.Linearized(frozen, theta)
    snaps = list(mn.train(lin, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.05), steps=5))
    assert float(snaps[-1].loss) < float(snaps[0].loss)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("spec", "shape", "words"),
    [
        (mn.Conv2d(2, 5, padding="valid"), (4, 6, 1), r"window of 5 pixels does not fit into an image of 4 pixels"),
        (mn.Conv2d(2, 9, padding=1), (4, 6, 1), r"image of 4 pixels and 2 of padding: take a smaller window"),
        (mn.Conv2d(2), (4, 6), r"expects images \(H, W, C\), channels last, got examples of shape \(4, 6\)"),
        (mn.Conv1d(2), (4, 6, 3), r"expects sequences \(L, C\), channels last, got examples of shape \(4, 6, 3\)"),
        (mn.Conv2d(2), (3, 32, 32), r"look channels-first: move the axis, x\.transpose\(0, 2, 3, 1\)"),
        (mn.MaxPool(3), (2, 6, 1), r"MaxPool: a window of 3 pixels does not fit into an image of 2 pixels"),
        (mn.MaxPool(2, padding=2), (4, 4, 1), r"a window lies in the padding altogether, on no pixel"),
        (mn.AvgPool(2, padding=2, normalize_edges=True), (4, 4, 1), "a window lies in the padding altogether"),
        (mn.LayerNorm(axes=(-3, -1)), (4, 4), r"axes=\(-3, -1\)\) expects examples with axes \(-3, -1\), got"),
        (mn.AvgPool(2), (5,), r"AvgPool\(.*\) expects images \(H, W, C\) or sequences \(L, C\)"),
        (mn.GlobalAvgPool(), (5,), r"GlobalAvgPool expects images \(H, W, C\) or sequences \(L, C\)"),
        (mn.Conv2d(2, padding=((1, 1),)), (4, 4, 1), r"expects padding as one number, one for each of the 2 spatial"),
        (mn.Conv2d(2, (2, 2)), (4, 1), "expects images"),
        (mn.AvgPool((2, 2)), (4, 1), r"on 1 spatial axis expects single numbers, got the pair \(2, 2\)"),
    ],
)
def test_layers_that_do_not_fit(spec: mn.spec.Layer, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mn.Network(mn.Sequential(spec, mn.Flatten()), shape)


def test_dense_on_images_says_what_to_put_before_it() -> None:
    with pytest.raises(ValueError, match=r"put mn\.Flatten\(\) before it"):
        mn.Network(mn.Sequential(mn.Conv2d(2), mn.Dense(3)), (4, 4, 1))


def test_features_that_are_all_equal_without_eps() -> None:
    with pytest.raises(ValueError, match=r"all equal, of variance 0: take eps > 0"):
        output(mn.LayerNorm(eps=0.0), np.ones((2, 3)))


@pytest.mark.parametrize("axes", [0, (), (-1, -1), (1, 2), 1.5, (-1, True)])
def test_axes_are_counted_from_the_end(axes: Any) -> None:
    with pytest.raises(ValueError, match=r"LayerNorm\(axes=\.\.\.\) expects different axes, counted from the end"):
        mn.LayerNorm(axes=axes)
    with pytest.raises(TypeError, match=r"AvgPool\(normalize_edges=\.\.\.\) expects True or False, got"):
        mn.AvgPool(2, normalize_edges=axes)


@pytest.mark.parametrize("eps", [0.0, -1.0, inf])
def test_batchnorm_wants_eps_above_zero(eps: float) -> None:
    with pytest.raises(ValueError, match="eps"):
        mn.BatchNorm(eps=eps)


def test_too_little_memory_for_a_kernel() -> None:
    net = mn.Network(mn.Sequential(mn.Conv2d(8, 3), mn.ReLU(), mn.Flatten(), mn.Dense(10)), (8, 8, 3))
    theta, x = net.init(np.random.default_rng(0)), np.ones((4, 8, 8, 3))
    with pytest.raises(MemoryError, match=r"needs at least .* pass fewer examples or a larger memory="):
        mn.ntk(net, theta, x, memory=10_000)


# ------------------------------------------------------------------------------------ no examples, all layers

SMALL = mn.Network(
    mn.Sequential(
        *(mn.Conv2d(3, 3, b_std=0.1), mn.ReLU(), mn.MaxPool(2), mn.Conv2d(4, 2, stride=2), mn.GlobalAvgPool()),
        *(mn.ReLU(), mn.Dense(2)),
    ),
    (4, 5, 2),
)


@pytest.mark.parametrize("ensemble", [None, 2])
def test_no_examples_have_derivatives_and_kernels_of_no_rows(ensemble: int | None) -> None:
    theta = SMALL.init(np.random.default_rng(0), ensemble=ensemble)
    x, lead = np.random.default_rng(1).standard_normal((3, 4, 5, 2)), theta.shape[:-1]
    none = x[:0]
    f, J = SMALL.linearize(theta, none)
    assert f.shape == J.jvp(theta).shape == (*lead, 0, 2)
    np.testing.assert_array_equal(J.vjp(f), np.zeros(theta.shape))
    assert J.gram().shape == (*lead, 0, 2, 0, 2)
    assert J.dense().shape == (*lead, 0, 2, SMALL.size)
    assert mn.ntk(SMALL, theta, x, none).shape == mn.nngp(SMALL, theta, x, none).shape == (*lead, 3, 0)
    assert mn.ntk_full(SMALL, theta, none, x).shape == (*lead, 0, 2, 3, 2)


@pytest.mark.parametrize("ensemble", [None, 2])
def test_layer_outputs_of_a_convolutional_network(ensemble: int | None) -> None:
    theta = SMALL.init(np.random.default_rng(0), ensemble=ensemble)
    x, lead = np.random.default_rng(1).standard_normal((3, 4, 5, 2)), theta.shape[:-1]
    outputs = SMALL.layer_outputs(theta, x)
    shapes = (4, 5, 3), (4, 5, 3), (2, 2, 3), (1, 1, 4), (4,), (4,), (2,)
    assert [y.shape for y in outputs] == [(*lead, 3, *shape) for shape in shapes]
    np.testing.assert_allclose(outputs[-1], SMALL(theta, x), rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(outputs[1], np.maximum(outputs[0], 0))


def test_channels_first_says_so() -> None:
    x = np.zeros((3, 2, 4, 5))
    with pytest.raises(ValueError, match=r"channels first: move the axis, x.transpose\(0, 2, 3, 1\)"):
        SMALL(np.zeros(SMALL.size), x)
    assert SMALL(np.zeros(SMALL.size), x.transpose(0, 2, 3, 1)).shape == (3, 2)
    sequences = mn.Network(mn.Sequential(mn.Conv1d(2, 3), mn.GlobalAvgPool(), mn.Dense(1)), (7, 3))
    with pytest.raises(ValueError, match=r"channels first: move the axis, x.transpose\(0, 2, 1\)"):
        sequences(np.zeros(sequences.size), np.zeros((2, 3, 7)))
