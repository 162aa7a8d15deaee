"""Test each finding on a network with only the corresponding fault, and test that a sound network has no findings."""

import warnings
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.examination.judge import Statement
from minintk.examination.runs import Problem, Run
from minintk.examination.signals import signals
from minintk.examination.wrong import along, at_start

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((20, 8)), RNG.standard_normal((20, 3))


def mlp(depth: Any = 2, w_std: Any = 2**0.5, last: Any = 1.0, act: Any = None, b_std: Any = 0.1) -> Any:
    layer = mn.Dense(64, w_std=w_std, b_std=b_std), act or mn.ReLU()
    return mn.Sequential(*layer * depth, mn.Dense(3, w_std=last))


def found(spec: Any, x: Any = X, y: Any = Y, change: Any = None, how: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the test looks for vanishing signals
        net = mn.Network(spec, (8,), how)
    problems = []
    for seed in range(3):
        theta = net.init(np.random.default_rng(seed))
        if change:
            change(net.layout.unpack(theta))
        problems.append(Problem(net, theta, x, y, mn.mse))
    return list(at_start(problems, [signals(net, p.theta, p.x)[0] for p in problems]))


@pytest.mark.parametrize("how", [mn.NTK(), mn.Standard(), mn.SpectralMuP(), mn.MeanField(), mn.PyTorch()])
def test_a_sound_network_has_none(how: Any) -> None:
    assert found(mlp(w_std=1.0 if how == mn.PyTorch() else 2**0.5), how=how) == []


def test_dead_features_and_outputs_that_do_not_tell_examples_apart() -> None:
    (one,) = found(mlp(), change=lambda w: np.copyto(w["0.b"], -300.0))[:1]
    assert (one.kind, "layer 2" in one.text, "20 examples" in one.text) == ("dead", True, True)
    (one,) = (f for f in found(mlp(4, 0.1, act=mn.Tanh(), b_std=1.0)) if f.kind == "dead")
    assert "outputs of different examples" in one.text


@pytest.mark.parametrize(("differ", "percent"), [(0.01, ""), (0.0005, "0.05 (0.05 to 0.05) %")])
def test_outputs_may_differ_by_a_tenth_of_a_percent_of_their_size(differ: float, percent: str) -> None:
    """If half of the outputs are 1 + e and half 1 - e, then |f - mean f| / |f| equals e up to e^3."""

    def change(w: Any) -> None:
        w["0.W"][...], w["0.b"][...] = 0.0, 1.0
        w["0.W"][0] = differ

    x = X.copy()
    x[:, 0] = np.tile([1.0, -1.0], 10)
    spec = mn.Sequential(mn.Dense(3, b_std=1.0))
    texts = [f.text for f in found(spec, x, change=change, how=mn.Standard()) if "different examples" in f.text]
    assert texts == ([f"outputs of different examples differ by {percent} of their size"] if percent else [])


@pytest.mark.parametrize(
    ("spec", "x", "y", "text"),
    [
        (mlp(), 100 * X, 100 * Y, "mean square of the inputs"),
        (mlp(), X, 100 * Y, "mean square of the targets"),
        (mlp(), X * np.array([1, 1, 1, 1, 1, 1, 1, 1e-3]) * np.array([1e3, 1, 1, 1, 1, 1, 1, 1]), Y, "column of x"),
        (mlp(5, 8.0, 0.001), X, Y, "signals explode"),
        (mlp(5, 0.2, b_std=0.0), X, Y, "signals vanish"),
        (mlp(last=20.0), X, Y, "outputs start"),
    ],
)
def test_wrong_scales(spec: Any, x: Any, y: Any, text: Any) -> None:
    findings = found(spec, x, y)
    assert any(f.kind == "badly scaled" and text in f.text for f in findings), findings


@pytest.mark.parametrize(("depth", "kind"), [(1, None), (4, "badly scaled"), (25, "dead")])
def test_signals_that_vanish_in_depth(depth: int, kind: str | None) -> None:
    """If each layer scales signals by 0.3, they are .008 times the inputs after four layers and 1e-13 times after 25.

    With 25 layers, no training step changes the loss visibly.
    """
    kinds = [one.kind for one in found(mlp(depth, 0.3, act=mn.Tanh(), b_std=0.0)) if "signals vanish" in one.text]
    assert kinds == ([] if kind is None else [kind])


def test_a_small_branch_beside_a_shortcut_is_none() -> None:
    branch = mn.Sequential(mn.Dense(64, w_std=0.01), mn.ReLU(), mn.Dense(64))
    assert found(mn.Sequential(mn.Dense(64), mn.Residual(branch), mn.ReLU(), mn.Dense(3))) == []
    small = mn.Sequential(mn.Dense(64), *branch, mn.ReLU(), mn.Dense(3))
    assert [one.kind for one in found(small)] == ["badly scaled"]


def statements(rate: Any = 1.0, **shares: Any) -> Any:
    more = {f"share {name}": Statement("", s, (s, s), "") for name, s in shares.items()}
    return {"rate": Statement("", rate, (0.9 * rate, 1.1 * rate), "")} | more


def runs(loss: Any = (1.0, 0.5, 0.2), diverged: Any = False, rates: Any = (1.0, 0.4), learned: Any = 0.9) -> Any:
    a = np.array(loss)
    return [Run(np.arange(len(a)), a, a, 0 * a, learned, diverged, rates=np.array(rates))] * 3


def test_instability() -> None:
    net = mn.Network(mlp(), (8,))

    def kinds(rate: float = 0.3, **how: Any) -> Any:
        return [f.kind for f in along(net, runs(**how), statements(), [rate] * 3, given=False)]

    assert kinds() == []
    assert kinds(diverged=True) == ["unstable"]
    assert kinds(loss=(1.0, 2.5, 0.1)) == ["unstable"]
    assert kinds(learned=0.05) == ["short"]
    assert kinds(0.5) == ["unstable"]  # above 0.4, the lowest bound during the run
    assert kinds(0.5, rates=(1.0, 0.6)) == []


def test_a_rate_that_only_the_network_examined_passes_is_a_finding() -> None:
    net, (calm, *_), (wild, *_) = mn.Network(mlp(), (8,)), runs(rates=(1.0, 0.6)), runs(rates=(1.0, 0.4))
    (one,) = along(net, [wild, calm, calm], statements(), [0.5] * 3, given=False)
    assert "1 of 3 runs passed 2 / lambda_max; the least bound met in yours is 0.4" in one.text
    assert one.advice == "Warm the rate up from 0.05, or draw smaller weights."
    assert list(along(net, [calm, wild, calm], statements(), [0.5] * 3, given=False)) == []
    assert list(along(net, [wild, calm, calm], statements(), [0.3, 0.5, 0.5], given=False)) == []  # a rate per run


def test_layers_that_hardly_learn() -> None:
    net = mn.Network(mlp(), (8,))
    shares = {"0": 0.5, "2": 0.499, "4": 0.001}
    (one,) = along(net, runs(), statements(**shares), [0.3] * 3, given=False)
    assert (one.kind, "layer 4" in one.text) == ("badly scaled", True)
    assert not list(along(net, runs(), statements(**{"0": 0.9, "2": 0.05, "4": 0.05}), [0.3] * 3, given=False))
