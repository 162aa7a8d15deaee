"""Test parallel layers in finite networks: values, names, the residual block as a sum, and errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minintk as mn
from minintk import diagnostics
from minintk.layers.combine import ChainJacobian
from minintk.layers.contract import Contraction
from minintk.models.jacobian import NetworkJacobian
from minintk.spec.shapes import out_shape


def dense(n: int = 3) -> mn.Dense:
    return mn.Dense(n, w_std=1.3, b_std=0.4)


def conv(n: int = 2) -> mn.Conv2d:
    return mn.Conv2d(n, 3, b_std=0.2)


def test_values_and_names() -> None:
    spec = mn.Sequential(mn.Concat(dense(2), mn.Product(mn.Identity(), mn.Scale(2.0))), mn.Sum(dense(4), mn.Dense(4)))
    net = mn.Network(spec, (3,))
    assert [t.name for t in net.layout.tensors] == ["0.0.W", "0.0.b", "1.0.W", "1.0.b", "1.1.W"]
    theta, x = net.init(np.random.default_rng(0)), np.arange(6.0).reshape(2, 3)
    w = net.layout.unpack(theta)
    h = np.concatenate([1.3 * x @ w["0.0.W"] / 3**0.5 + 0.4 * w["0.0.b"], 2 * x**2], axis=1)
    y = h @ (1.3 * w["1.0.W"] + w["1.1.W"]) / 5**0.5 + 0.4 * w["1.0.b"]
    np.testing.assert_allclose(net(theta, x), y, rtol=1e-13)
    seen = diagnostics.trace(net, theta, x)
    assert list(seen) == ["0.0", "0", "1.0", "1.1", "1"]
    assert np.array_equal(seen["1"].h, net(theta, x))


def test_a_sum_of_two_is_the_residual_block() -> None:
    branch = mn.Sequential(mn.Tanh(), dense())
    nets = [
        mn.Network(mn.Sequential(dense(), one), (2,)) for one in (mn.Residual(branch), mn.Sum(branch, mn.Identity()))
    ]
    theta, x = nets[0].init(np.random.default_rng(0)), np.eye(2)
    one, two = ((net(theta, x), mn.Taylor(net, theta, 2)(theta + 0.1, x)) for net in nets)
    assert all(map(np.array_equal, one, two))


def test_branches_alone_have_the_gram_of_their_network() -> None:
    """The gram of a layer with branches is J J' even if it is called directly, as user-defined layers may do."""
    net = mn.Network(mn.Sequential(mn.Residual(mn.Sequential(mn.Tanh(), dense()), shortcut=dense())), (2,))
    _, J = net.linearize(net.init(np.random.default_rng(0)), np.array([[1.0, -0.5], [0.3, 0.8]]))
    assert isinstance(J, NetworkJacobian)
    assert isinstance(J.root, ChainJacobian)
    (branches,) = J.root.links
    u = np.eye(3)[:, None, :]
    gram = branches.gram(u, branches, u, Contraction(True))
    np.testing.assert_allclose(gram, np.einsum("ncp,mdp->ncmd", J.dense(), J.dense()), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (
            mn.Sum(dense(2), dense(4)),
            r"Sum expects branches that give one shape, but for inputs of shape (3,) they give",
        ),
        (mn.Product(mn.Identity(), dense(2)), "Product expects branches that give one shape"),
    ],
)
def test_shapes_that_do_not_fit(layer: mn.spec.Layer, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        mn.Network(layer, (3,))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="Concat expects branches that give pixels of one number"):
        out_shape(mn.Concat(conv(), mn.AvgPool(2)), (4, 4, 2))
    with pytest.raises(TypeError, match="Sum expects at least one branch"):
        mn.Sum()
    with pytest.raises(TypeError, match=r"Product expects layers, got \[.*write Product\(\*layers\)"):
        mn.Product([mn.ReLU()])  # type: ignore[arg-type]
    for factor in (0, np.nan):
        with pytest.raises(ValueError, match="Scale"):
            mn.Scale(factor)
