"""Test that comparison networks have BatchNorms like those of the examined network, and weights of the same size."""

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.examination.alike import refrozen, restarted
from minintk.examination.examine import _replicas
from minintk.examination.runs import Problem

X = 3 + np.random.default_rng(1).standard_normal((60, 6), dtype=np.float32)
Y = np.random.default_rng(2).standard_normal((60, 3), dtype=np.float32)


def rms(a: Any) -> float:
    return float(np.sqrt(np.mean(np.square(a))))


def normed(n: int = 32) -> mn.Sequential:
    """Return a spec with two BatchNorms, one of them in a branch, and no biases before them."""
    branch = mn.Sequential(mn.Dense(n), mn.BatchNorm(), mn.ReLU(), mn.Dense(n))
    return mn.Sequential(mn.Dense(n), mn.BatchNorm(), mn.Tanh(), mn.Residual(branch), mn.Dense(3))


def examined(scale: float = 1.0, offset: float = 0.0) -> Problem:
    """Return a problem whose BatchNorms output `scale` times a standardised feature, plus `offset`."""
    net = mn.Network(normed(), (6,), mn.PyTorch())
    theta = net.init(np.random.default_rng(0), dtype=np.float32)
    net = net.calibrate(theta, X)
    frozen = dict[str, Any]()
    for name in ("1", "3.branch.1"):
        w = net.layout.unpack(theta) | frozen
        net.layers(w, X)
        r = scale * w[f"{name}.r"]
        frozen |= {f"{name}.r": r, f"{name}.mean": w[f"{name}.mean"] - offset / r}
    return Problem(net._with(frozen), theta, X, Y, mn.mse)


def test_the_network_itself_comes_back() -> None:
    one = examined(1.7, 0.4)
    again = refrozen(one.net, one.theta, one)
    for name, a in one.net.statistics.items():
        assert np.allclose(again.statistics[name], a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [32, 80])
def test_other_weights_and_widths_are_normalised_alike(n: int) -> None:
    one, net = examined(1.7, 0.4), mn.Network(normed(n), (6,), mn.PyTorch())
    theta = net.init(np.random.default_rng(5), dtype=np.float32)
    after = refrozen(net, theta, one).layer_outputs(theta, X)[1]
    assert np.allclose(after.mean(axis=0), 0.4, rtol=1e-4)
    assert np.allclose(after.std(axis=0), 1.7, rtol=1e-3)  # BatchNorm's eps lowers the deviation a little
    stale = one.net.layer_outputs(theta, X)[1] if n == 32 else 10 * after  # the planted error: the statistics stay
    assert not np.allclose(stale.std(axis=0), 1.7, rtol=0.2)


def test_replicates_are_normalised_on_the_data_and_not_with_the_statistics_of_the_first() -> None:
    one = examined()
    for each in _replicas(one, 4, True, np.random.default_rng(3))[1:]:
        after, stale = (net.layer_outputs(each.theta, X)[1] for net in (each.net, one.net))  # stale: the planted error
        assert np.abs(after.mean(axis=0)).max() < 1e-4
        assert np.allclose(after.std(axis=0), 1, rtol=1e-3)
        assert np.abs(stale.mean(axis=0)).max() > 1
    for half in _replicas(one, 4, False, np.random.default_rng(3)):
        assert half.net is one.net


def test_statistics_that_are_not_of_data_stay() -> None:
    """The BatchNorm statistics of an untrained module, mean 0 and variance 1, do not change."""
    spec = mn.Sequential(mn.Dense(8), mn.LayerNorm(), mn.BatchNorm(), mn.Tanh(), mn.Dense(3))
    net = mn.Network(spec, (6,))
    theta = net.init(np.random.default_rng(0), dtype=np.float32)
    one = Problem(net._with({"2.mean": np.zeros(8, np.float32), "2.r": np.ones(8, np.float32)}), theta, X, Y, mn.mse)
    other = net.init(np.random.default_rng(1), dtype=np.float32)
    assert np.array_equal(refrozen(net, other, one)(other, X), one.net(other, X))
    assert not np.allclose(net.calibrate(other, X)(other, X), one.net(other, X), rtol=0.1)


def outputs(net: mn.Network) -> float:
    return rms([net(net.init(np.random.default_rng(i), dtype=np.float32), X) for i in range(40)])


@pytest.mark.parametrize("how", [mn.PyTorch(), mn.Standard(), mn.SpectralMuP(), mn.MeanField()])
def test_the_same_start_in_another_parametrization(how: Any) -> None:
    """`restarted` keeps the sizes of weights and outputs. Plain NTK gives larger outputs unless `how` is Standard."""
    branch = mn.Sequential(mn.Dense(20, b_std=1.0), mn.Tanh())
    spec = mn.Sequential(mn.Dense(20, b_std=1.0), mn.Tanh(), mn.Residual(branch, shortcut=mn.Dense(20)), mn.Dense(3))
    net = mn.Network(spec, (6,), how)
    other = restarted(net, net.init(np.random.default_rng(0), dtype=np.float32), mn.NTK(), True)
    for a, b in zip(net.layout.tensors, other.layout.tensors, strict=True):
        assert b.row.std == 1
        assert b.row.multiplier == pytest.approx(a.row.multiplier * a.row.std)
    assert outputs(other) == pytest.approx(outputs(net), rel=0.15)
    swapped = outputs(mn.Network(spec, (6,)))
    assert (swapped > 1.5 * outputs(net)) == (how != mn.Standard())


def test_a_theta_that_was_not_drawn_is_measured() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(50, b_std=1.0), mn.ReLU(), mn.Dense(3)), (6,), mn.PyTorch())
    theta = net.init(np.random.default_rng(0), dtype=np.float32)
    w = net.layout.unpack(theta)
    w["0.W"][...] *= 3
    w["0.b"][...] = 0
    other = restarted(net, theta, mn.NTK(), False)
    again = other.layout.unpack(other.init(np.random.default_rng(1), dtype=np.float32))
    assert rms(again["0.W"] * other.layout.tensors[0].row.multiplier) == pytest.approx(rms(w["0.W"]), rel=0.15)
    assert not np.any(again["0.b"])
    with pytest.raises(ValueError, match="w_std"):
        restarted(net, 0 * theta, mn.NTK(), False)
