"""Compare grouped and dilated convolutions with loops over pixels and with Conv2d, and test laws and invalid input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from minintk import more_layers as more
from minintk.spec.shapes import out_shape
from minintk.testing import check_layer
from tests.kit.grouped import CASES, grouped_convolution

Array = mn.Array


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_loop_over_pixels(case: tuple[more.GroupedConv2d, tuple[int, int, int]]) -> None:
    layer, shape = case
    x = np.random.default_rng(0).standard_normal((2, *shape))
    net = mn.Network(mn.Sequential(layer, mn.Flatten()), shape)
    theta = net.init(np.random.default_rng(1)) + 0.5
    w = net.layout.unpack(theta)
    want = grouped_convolution(layer, x, w["0.W"], w.get("0.b"))
    np.testing.assert_allclose(net(theta, x), want.reshape(2, -1), rtol=0, atol=1e-13 * np.abs(want).max())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_laws(case: tuple[more.GroupedConv2d, tuple[int, int, int]]) -> None:
    check_layer(*case)


def test_the_laws_in_another_parametrization() -> None:
    check_layer(more.GroupedConv2d(4, 3, groups=2, b_std=0.3), (4, 3, 2), mn.Standard())


@settings(max_examples=30)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 2, (2, 1)]),
    st.sampled_from(["same", "valid", 1, "circular"]),
)
def test_one_group_without_holes_is_a_convolution(c: int, n: int, stride: Any, padding: Any) -> None:
    """With one group and no dilation, outputs, gradients and tangent kernels are those of Conv2d."""
    x = np.random.default_rng(0).standard_normal((3, 5, 4, c))
    how: Any = {"stride": stride, "padding": padding, "w_std": 1.4, "b_std": 0.3}
    found = []
    for layer in (more.GroupedConv2d(n, (3, 2), **how), mn.Conv2d(n, (3, 2), **how)):
        net = mn.Network(mn.Sequential(mn.Conv2d(c, 1), layer, mn.Tanh(), mn.Flatten(), mn.Dense(2)), x.shape[1:])
        theta = net.init(np.random.default_rng(1))
        f, J = net.linearize(theta, x)
        found.append((theta, f, J.vjp(f), mn.ntk(net, theta, x)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max())


def test_taylor_series_are_those_of_a_convolution() -> None:
    x, found = np.random.default_rng(0).standard_normal((3, 4, 4, 2)), []
    for layer in (more.GroupedConv2d(2, 3, b_std=0.2), mn.Conv2d(2, 3, b_std=0.2)):
        net = mn.Network(mn.Sequential(layer, mn.Tanh(), layer, mn.Flatten(), mn.Dense(1)), x.shape[1:])
        theta = net.init(np.random.default_rng(1))
        found.append(mn.Taylor(net, theta, 3)(theta + 0.1, x))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_float32_stays_float32() -> None:
    net = mn.Network(mn.Sequential(more.GroupedConv2d(4, groups=2, b_std=0.1), mn.Flatten(), mn.Dense(1)), (4, 4, 4))
    theta = net.init(np.random.default_rng(0), dtype=np.float32)
    f, J = net.linearize(theta, np.ones((2, 4, 4, 4), np.float32))
    assert f.dtype == J.vjp(f).dtype == J.gram().dtype == np.float32


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "channels": ({"channels": 4, "groups": 3}, "expects channels that it divides, got 4"),
    "groups": ({"channels": 4, "groups": 0}, r"groups=\.\.\.\) expects a whole number >= 1, got 0"),
    "dilation": ({"channels": 4, "dilation": (1, 0)}, r"dilation=\.\.\.\) expects a whole number >= 1"),
    "window": ({"channels": 4, "kernel_size": (1, 2, 3)}, "kernel_size"),
    "w_std": ({"channels": 4, "w_std": 0.0}, "w_std"),
}


@pytest.mark.parametrize("name", BAD)
def test_arguments_that_make_no_sense_are_refused(name: str) -> None:
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        more.GroupedConv2d(**options)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="expects channels that its groups divide"):
        out_shape(more.GroupedConv2d(4, groups=2), (4, 4, 3))
    with pytest.raises(ValueError, match="a window of 5 pixels does not fit"):
        out_shape(more.GroupedConv2d(4, dilation=2, padding="valid"), (4, 4, 4))
    with pytest.raises(mn.UnsupportedLayer, match="GroupedConv2d has no infinite-width kernel"):
        an.kernel(mn.Sequential(more.GroupedConv2d(4, groups=2), mn.GlobalAvgPool(), mn.Dense(1)))


def test_images_with_channels_first_are_refused() -> None:
    with pytest.raises(ValueError, match="look channels-first"):
        mn.Network(mn.Sequential(more.GroupedConv2d(3, 3, groups=1), mn.Flatten(), mn.Dense(1)), (3, 32, 32))
