"""Compare losses, optimisers, flows and adaptive relinearisation on every array library with NumPy's results."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import to_library
from tests.device.test_device import DTYPES, E, N, To, agree, data
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.standin import counting
from tests.kit.thinned import thinned
from tests.minintk.models.test_taylor import IMAGES


@pytest.fixture(params=LIBRARIES)
def xp(request: pytest.FixtureRequest) -> Any:
    return namespace(request.param)


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


SIGNS = np.random.default_rng(5).choice((-1.0, 1.0), (N, 1))


@pytest.mark.parametrize("loss", [mn.sum_of_squares, mn.Hinge(2.0), mn.Logistic(2.0)], ids=repr)
def test_losses(xp: Any, dtype: str, loss: mn.training.losses.Loss) -> None:
    f = np.random.default_rng(0).standard_normal((E, N, 1))

    def compute(to: To) -> Any:
        loss.check(to(SIGNS), (N, 1))
        return loss(to(f), to(SIGNS)), loss.cotangent(to(f), to(SIGNS)), loss(to(f[0]), to(SIGNS))

    agree(xp, dtype, compute)
    if loss != mn.sum_of_squares:
        with pytest.raises(ValueError, match=r"expects labels y = -1 or 1, got -?0\.5"):
            loss.check(to_library(SIGNS / 2, xp), (N, 1))


@pytest.mark.parametrize("optimizer", [mn.Nesterov(0.02, weight_decay=0.1), mn.Adam(0.02, weight_decay=0.1), mn.Muon])
@pytest.mark.parametrize("ensemble", [None, E])
def test_optimisers(xp: Any, dtype: str, optimizer: Any, ensemble: int | None) -> None:
    net, theta, x, _, y = data(ensemble=ensemble)
    optimizer = mn.Muon(0.02, net.layout) if optimizer is mn.Muon else optimizer

    def compute(to: To) -> Any:
        snaps = mn.train(net, to(theta), to(x), to(y), loss=mn.mse, optimizer=optimizer, steps=6, every=3)
        return [(snap.theta, snap.loss, snap.state.memory) for snap in snaps]

    agree(xp, dtype, compute, digits_lost=4.0)


@pytest.mark.parametrize(
    ("how", "ensemble"), thinned(product(({}, {"tau": 0.5}, {"mu": 5.0}, {"temperature": 0.2}), (None, E))), ids=repr
)
def test_flows_of_models(xp: Any, dtype: str, how: dict[str, Any], ensemble: int | None) -> None:
    net, theta, x, _, y = data(ensemble=ensemble)

    def compute(to: To) -> Any:
        rng = np.random.default_rng(0)
        by = mn.Steps(1e-2, 0.3)
        moments = mn.flow(net, to(theta), to(x), to(y), loss=mn.mse, times=(0.2, 0.5), by=by, rng=rng, **how)
        return [(m.theta, m.f, m.loss) for m in moments]

    agree(xp, dtype, compute, digits_lost=4.0)


@pytest.mark.parametrize("order", [3, 4])
def test_hierarchies(xp: Any, dtype: str, order: int) -> None:
    net, theta, x, _, y = data(ensemble=E)

    def compute(to: To) -> Any:
        by = mn.Solver(rtol=1e-5, atol=1e-6)
        moments = mn.hierarchy(net, to(theta), to(x), to(y), loss=mn.mse, times=0.05, order=order, by=by)
        return [(m.f, m.kernel, m.loss) for m in moments]

    agree(xp, dtype, compute, digits_lost=4.0)


def test_lifted_networks(xp: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {"a.weight": (4, 3, 3, 3), "b.weight": (4,), "b.bias": (4,), "b.running_mean": (4,), "c.weight": (2, 24)}
    state = {name: rng.standard_normal(shape) for name, shape in shapes.items()} | {"b.running_var": np.ones(4)}
    spec = mn.Sequential(mn.Conv2d(4, 3), mn.BatchNorm(), mn.ReLU(), mn.Flatten(), mn.Dense(2))

    def compute(to: To) -> Any:
        net, theta = mn.lift({name: to(a) for name, a in state.items()}, (2, 3, 3), spec=spec)
        home = mn.unlift(net, theta, state)
        return theta, net(theta, to(np.cos(np.arange(54.0)).reshape(3, 2, 3, 3))), *map(to, home.values())

    agree(xp, dtype, compute)


def test_sharpness(xp: Any, dtype: str) -> None:
    net, theta, x, _, y = data(ensemble=None)
    agree(xp, dtype, lambda to: mn.diagnostics.sharpness(net, to(theta), to(x), to(y), loss=mn.mse), digits_lost=4.0)


def test_flows_by_a_solver(xp: Any, dtype: str) -> None:
    net, theta, x, _, y = data(ensemble=E)

    def compute(to: To) -> Any:
        by = mn.Solver(rtol=1e-5, atol=1e-6)
        moments = mn.flow(net, to(theta), to(x), to(y), loss=mn.mse, times=(0.2, 0.5), by=by, tau=0.3)
        return [(m.theta, m.f, m.loss) for m in moments]

    agree(xp, dtype, compute, digits_lost=4.0)


@pytest.mark.parametrize(
    ("how", "full"),
    thinned(product(({}, {"tau": 0.5}, {"temperature": 0.2}, {"by": mn.Solver(1e-5, 1e-6)}), (False, True))),
    ids=repr,
)
def test_flows_of_kernels(xp: Any, dtype: str, how: dict[str, Any], full: bool) -> None:
    net, theta, x, x2, y = data(ensemble=E)
    points = np.concatenate([x, x2])

    def compute(to: To) -> Any:
        rng = np.random.default_rng(0)
        kernel = (mn.ntk_full if full else mn.ntk)(net, to(theta), to(points), to(x))
        moments = mn.kernel_flow(
            kernel, net(to(theta), to(points)), to(y), loss=mn.mse, times=(0.2, 0.5), rng=rng, **how
        )
        return [(m.f, m.loss) for m in moments]

    agree(xp, dtype, compute, digits_lost=4.5)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_descent_on_kernels(xp: Any, dtype: str, batch_size: int | None, full: bool) -> None:
    net, theta, x, x2, y = data(ensemble=E)
    points = np.concatenate([x, x2])

    def compute(to: To) -> Any:
        kernel = (mn.ntk_full if full else mn.ntk)(net, to(theta), to(points), to(x))
        how: dict[str, Any] = {"batch_size": batch_size, "rng": np.random.default_rng(0)}
        run = mn.kernel_descent(
            kernel, net(to(theta), to(points)), to(y), loss=mn.mse, optimizer=mn.SGD(0.02, 0.9), steps=6, every=3, **how
        )
        return [(snap.f, snap.theta, snap.loss) for snap in run]

    agree(xp, dtype, compute, digits_lost=4.0)


@pytest.mark.parametrize("ensemble", [None, E])
def test_adaptive_relinearisation(xp: Any, dtype: str, ensemble: int | None) -> None:
    net, theta, x, _, y = data(ensemble=ensemble)

    def compute(to: To) -> Any:
        model = mn.IterativelyLinearized(net, to(theta), mn.Moved(0.1, to(x)))
        *_, half = mn.train(model, to(theta), to(x), to(y), loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=5)
        *_, end = mn.train(
            model, to(theta), to(x), to(y), loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=10, resume=half.state
        )
        found: Any = end.model
        assert 1 < int(found.linearizations.max()) < 11
        return end.theta, found.theta0

    agree(xp, dtype, compute, digits_lost=4.0)


@pytest.mark.skipif("standin" not in LIBRARIES, reason="counts are the stand-in's")
def test_adaptive_relinearisation_does_not_wait() -> None:
    """Forty training steps need as many synchronisations and uploads as twenty."""
    xp = namespace("standin")
    net, theta, x, _, y = data()
    t, a, b = (to_library(array, xp) for array in (theta, x, y))
    seen = []
    for steps in (20, 40):
        with counting() as counts:
            model = mn.IterativelyLinearized(net, t, mn.Moved(0.1, a))
            for _ in mn.train(model, t, a, b, loss=mn.mse, optimizer=mn.Adam(lr=0.01), steps=steps, every=10**6):
                pass
        seen.append(counts)
    assert seen[1].synchronisations == seen[0].synchronisations
    assert seen[1].uploads == seen[0].uploads


def test_expansions_of_images(xp: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    net = mn.Network(IMAGES["everything"], (6, 6, 2))
    theta, x = net.init(rng, ensemble=2), rng.standard_normal((3, 6, 6, 2))
    v = rng.standard_normal(theta.shape)

    def compute(to: To) -> Any:
        f, J = mn.Taylor(net, to(theta), 3).linearize(to(theta) * 1.01, to(x))
        return f, J.jvp(to(v)), J.vjp(f), J.gram()

    agree(xp, dtype, compute, digits_lost=3.0)
