"""Compare the recorded inputs and outputs of layers with formulas, and test the names of layers with weights."""

from __future__ import annotations

import numpy as np
import pytest

import minintk as mn
from minintk.diagnostics.layer_io import leaves, trace

BRANCH = mn.Sequential(mn.Tanh(), mn.Dense(6, b_std=0.2))
NET = mn.Network(mn.Sequential(mn.Dense(6), mn.Residual(BRANCH), mn.ReLU(), mn.Dense(2)), (4,))


@pytest.fixture
def seen() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    theta, x = NET.init(np.random.default_rng(0)), np.random.default_rng(1).standard_normal((3, 4))
    return {name: tuple(passage) for name, passage in trace(NET, theta, x).items()}  # type: ignore[misc]


def test_every_dense_layer_is_its_formula(seen: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    w = NET.layout.unpack(NET.init(np.random.default_rng(0)))
    for name, fan in (("0", 4), ("1.branch.1", 6), ("3", 6)):
        x, h = seen[name]
        b = 0.2 * w[f"{name}.b"] if f"{name}.b" in w else 0.0
        np.testing.assert_allclose(h, x @ w[f"{name}.W"] / fan**0.5 + b, rtol=1e-13)


def test_what_follows_reads_what_came_before(seen: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    np.testing.assert_array_equal(seen["1.branch.1"][0], np.tanh(seen["0"][1]))
    np.testing.assert_allclose(seen["1"][1], seen["0"][1] + seen["1.branch.1"][1], rtol=1e-15)
    np.testing.assert_array_equal(seen["3"][0], np.maximum(seen["1"][1], 0))


def test_leaves_are_the_layers_with_weights() -> None:
    assert [name for name, _ in leaves(NET.layers)] == ["0", "1.branch.1", "3"]


def test_layers_of_attention_have_the_names_of_their_tensors() -> None:
    net = mn.Network(mn.Sequential(mn.GlobalSelfAttention(8, heads=2), mn.GlobalAvgPool(), mn.Dense(2)), (5, 4))
    theta = net.init(np.random.default_rng(0))
    weights = {t.name.removesuffix(".W") for t in net.layout.tensors}
    assert {name for name, _ in leaves(net.layers)} == weights == {"0.in.0", "0.in.1", "0.output", "2"}
    assert weights <= trace(net, theta, np.ones((1, 5, 4))).keys()
    norms = mn.diagnostics.spectral_norms(net, mn.diagnostics.spectrally_normalised(net, theta))
    for name, norm in norms.items():
        assert norm == pytest.approx(mn.diagnostics.natural_norms(net)[name], rel=1e-3)


def test_a_model_around_a_network_is_refused() -> None:
    theta = NET.init(np.random.default_rng(0))
    with pytest.raises(TypeError, match="give the network inside it"):
        trace(mn.Linearized(NET, theta), theta, np.ones((1, 4)))  # type: ignore[arg-type]
