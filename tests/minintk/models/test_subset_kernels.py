"""Test kernels J S J' with a scale for each tensor: subsets of the parameters, and learning rates by tensor."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from minintk.layers.dense import BoundDense, DenseJacobian
from minintk.thresholds import THRESHOLDS

Array = Any

DENSE = mn.Sequential(
    mn.Dense(6, w_std=1.4, b_std=0.3), mn.Tanh(),
    mn.Residual(mn.Sequential(mn.Dense(6, b_std=0.2), mn.ReLU()), shortcut=mn.Dense(6)), mn.Dense(2, b_std=0.5),
)  # fmt: skip
CONV = mn.Sequential(
    mn.Conv2d(3, 3, b_std=0.2), mn.ReLU(), mn.Conv2d(8, 3, b_std=0.2), mn.ReLU(), mn.MaxPool(2), mn.Flatten(),
    mn.Dense(2),
)  # fmt: skip
SHAPES = {"dense": (DENSE, (5,)), "convolutions": (CONV, (6, 6, 2))}


def brute_force(net: mn.Network, theta: Array, x1: Array, x2: Array, scales: dict[str, float]) -> Array:
    """Return J S J' : (N, C, M, C), computed from the dense J."""
    S = np.concatenate([np.full(t.size, scales.get(t.name, 1.0)) for t in net.layout.tensors])
    J1, J2 = (net.linearize(theta, x)[1].dense() for x in (x1, x2))
    return np.einsum("ncp,p,mep->ncme", J1, S, J2)


def departure(net: mn.Network, scales: dict[str, float], seed: int = 0) -> float:
    """Return the largest error of `ntk_full` and `ntk`, for x with x and with z, relative to the unscaled kernel."""
    rng = np.random.default_rng(seed)
    theta = net.init(rng)
    x, z = rng.standard_normal((4, *net.input_shape)), rng.standard_normal((3, *net.input_shape))
    size, worst = float(np.abs(mn.ntk_full(net, theta, x)).max()), 0.0
    for other in (None, z):
        want = brute_force(net, theta, x, x if other is None else other, scales)
        full = mn.ntk_full(net, theta, x, other, scales=scales) - want
        trace = mn.ntk(net, theta, x, other, scales=scales) - np.einsum("ncmc->nm", want) / net.outputs
        worst = max(worst, float(np.abs(full).max()) / size, float(np.abs(trace).max()) / size)
    return worst


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("fast", [False, True])
def test_any_scales_are_those_of_the_dense_jacobian(name: str, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any scales, the kernels equal J S J' of the dense Jacobian.

    The test includes wrapped models and ensembles, with and without fast layers.
    """
    monkeypatch.setattr(THRESHOLDS, "plain", 0 if fast else inf)
    net = mn.Network(*SHAPES[name])
    names = [t.name for t in net.layout.tensors]

    @settings(max_examples=12)
    @given(values=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=len(names), max_size=len(names)))
    def law(values: list[float]) -> None:
        assert departure(net, dict(zip(names, values, strict=True))) < 1e-13

    law()
    assert departure(net, {names[0]: 0.0}) < 1e-13  # other tensors have scale 1
    rng = np.random.default_rng(1)
    theta, x, scales = net.init(rng, ensemble=2), rng.standard_normal((3, *net.input_shape)), {names[-1]: 0.25}
    k = mn.ntk(net, theta, x, scales=scales)
    for e in range(2):
        np.testing.assert_allclose(k[e], mn.ntk(net, theta[e], x, scales=scales), rtol=1e-12)
        lazy = mn.Centred(mn.Linearized(net, theta[e]), theta[e], 3.0)
        np.testing.assert_allclose(mn.ntk(lazy, theta[e], x, scales=scales), 9 * k[e], rtol=1e-12)


def test_blocks_have_the_same_scales() -> None:
    net, rng = mn.Network(*SHAPES["dense"]), np.random.default_rng(0)
    theta, x, scales = net.init(rng), rng.standard_normal((20, 5)), {"0.W": 0.0, "3.b": 2.0}
    whole = mn.ntk_full(net, theta, x, scales=scales)
    np.testing.assert_allclose(mn.ntk_full(net, theta, x, scales=scales, memory=60_000), whole, rtol=1e-12)


def test_subsets_add_up_to_the_kernel() -> None:
    net, rng = mn.Network(*SHAPES["dense"]), np.random.default_rng(0)
    theta, x = net.init(rng), rng.standard_normal((4, 5))
    names = [t.name for t in net.layout.tensors]
    parts = [mn.ntk(net, theta, x, scales=dict.fromkeys(names, 0.0) | {name: 1.0}) for name in names]
    np.testing.assert_allclose(sum(parts), mn.ntk(net, theta, x), rtol=1e-12)
    assert not mn.ntk(net, theta, x, scales=dict.fromkeys(names, 0.0)).any()


# ------------------------------------------------------------------------------------------- the top layer


def test_the_top_layer_is_the_nngp_of_the_last_hidden_layer() -> None:
    """The top layer's kernel is sigma_w^2 h h' / n + sigma_b^2 for its n inputs h, close to the NNGP at large n."""
    spec = mn.Sequential(mn.Dense(4000, w_std=1.4), mn.ReLU(), mn.Dense(3, w_std=1.3, b_std=0.4))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3))
    net = mn.Network(spec, (3,))
    theta = net.init(rng)
    top = mn.ntk(net, theta, x, scales={"0.W": 0})
    h = net.layer_outputs(theta, x)[1]
    np.testing.assert_allclose(top, 1.3**2 * h @ h.T / 4000 + 0.4**2, rtol=1e-12)
    np.testing.assert_allclose(top, an.kernel(spec).nngp(x), rtol=6 / 4000**0.5)  # a standard error is 1.2 / sqrt(n)
    assert not np.allclose(mn.ntk(net, theta, x), top, rtol=0.3)  # the kernel of all layers differs


def test_it_is_the_kernel_of_training_at_these_rates() -> None:
    """The linearised network with `lr_scales` trains like gradient descent on J S J'."""
    net, rng = mn.Network(*SHAPES["dense"]), np.random.default_rng(0)
    theta, x, y = net.init(rng), rng.standard_normal((6, 5)), rng.standard_normal((6, 2))
    scales = dict.fromkeys((t.name for t in net.layout.tensors), 0.0) | {"3.W": 1.0, "3.b": 0.5}
    kernel = mn.ntk_full(net, theta, x, scales=scales)
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.05, 0.9), "steps": 40, "lr_scales": scales}
    *_, end = mn.train(mn.Linearized(net, theta), theta, x, y, **how)
    theory = an.gradient_descent(kernel, y, lr=0.05, momentum=0.9)
    f0 = net(theta, x)
    np.testing.assert_allclose(end.f, theory.predict(40, f0=f0), atol=1e-12)
    wrong = an.gradient_descent(mn.ntk_full(net, theta, x), y, lr=0.05, momentum=0.9)
    assert np.abs(wrong.predict(40, f0=f0) - end.f).max() > 1e-3


# ---------------------------------------------------------------------------------------------- mistakes


def test_a_gram_that_forgets_scales_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def gram(self: DenseJacobian, u: Array, other: DenseJacobian, v: Array, kernel: Any) -> Array:
        p = self.layer.parameters
        return kernel(u, v, p.m**2 * self.x @ other.x.swapaxes(-1, -2) + (0 if p.b is None else p.c**2))

    monkeypatch.setattr(DenseJacobian, "gram", gram)
    assert isinstance(mn.Network(mn.Dense(2), (3,)).layers.layers[0], BoundDense)
    net, rng = mn.Network(*SHAPES["dense"]), np.random.default_rng(0)
    theta, x = net.init(rng), rng.standard_normal((4, 5))
    mn.ntk(net, theta, x)
    with pytest.raises(TypeError, match=r"the gram of 3\.b's layer forgets scales: multiply its part by kernel\.scale"):
        mn.ntk(net, theta, x, scales={"3.b": 0.0})


@pytest.mark.parametrize("kernel", [mn.ntk, mn.ntk_full])
def test_bad_scales_are_refused(kernel: Any) -> None:
    net = mn.Network(*SHAPES["dense"])
    theta, x = net.init(np.random.default_rng(0)), np.ones((2, 5))
    with pytest.raises(ValueError, match=r"scales names unknown tensors \['9\.W'\]; this layout has \['0\.W'"):
        kernel(net, theta, x, scales={"9.W": 0})
    with pytest.raises(ValueError, match=r"scales\['0\.W'\] expects a finite number >= 0, got -1"):
        kernel(net, theta, x, scales={"0.W": -1})
    with pytest.raises(TypeError, match=r"scales expects \{tensor name: scale\}, got 0"):
        kernel(net, theta, x, scales=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_stay(dtype: Any) -> None:
    net = mn.Network(*SHAPES["convolutions"])
    theta, x = net.init(np.random.default_rng(0), dtype=dtype), np.ones((2, 6, 6, 2), dtype)
    assert mn.ntk(net, theta, x, scales={"0.W": 0.5}).dtype == dtype
