"""Test that pickled and deep-copied networks and models give the same bits, in other processes and from files."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.layers.activation import Pointwise, pointwise
from minintk.spec import zoo
from minintk.training.kernel_descent import FromKernel
from tests.kit.laws import pickled

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))
NET = mn.Network(mn.Sequential(mn.Dense(5, b_std=0.3), mn.Tanh(), mn.Dense(2)), (3,))
THETA = NET.init(RNG)
MOVED = THETA + 0.1 * RNG.standard_normal(THETA.shape)
NORM = mn.Network(mn.Sequential(mn.Dense(5), mn.BatchNorm(), mn.ReLU(), mn.Dropout(0.5), mn.Dense(2)), (3,))


def through(a: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(a, protocol))  # noqa: S301 (bytes of our own)


WAYS: dict[str, Callable[[Any], Any]] = {
    **{f"protocol {n}": partial(through, protocol=n) for n in range(2, 6)},
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
MODELS: dict[str, Callable[[], Any]] = {
    "Network": lambda: NET,
    "muP": lambda: mn.Network(NET.spec, (3,), mn.SpectralMuP(base_width=4)),
    "ABC": lambda: mn.Network(NET.spec, (3,), mn.ABC((0, 0.5, 0), (0, 0.5, 0), (0, 0.5, 0))),
    "BatchNorm": lambda: NORM,
    "BatchNorm, trained": lambda: NORM.calibrate(NORM.init(np.random.default_rng(0)), X),
    "Dropout": lambda: NORM.with_dropout(np.random.default_rng(0)),
    "Linearized": lambda: mn.Linearized(NET, THETA),
    "Centred": lambda: mn.Centred(NET, THETA, 3.0),
    "Centred, fixed": lambda: mn.Centred(NET, THETA, 3.0).fixed(X),
    "Taylor": lambda: mn.Taylor(NET, THETA, 2),
    "IterativelyLinearized": lambda: mn.IterativelyLinearized(NET, THETA, 2).advance(MOVED).advance(MOVED),
    "Moved": lambda: mn.IterativelyLinearized(NET, THETA, mn.Moved(0.1, X)).advance(MOVED),
    "nested": lambda: mn.Centred(mn.Linearized(mn.Taylor(NET, THETA, 2), THETA), THETA, 2.0),
}  # fmt: skip


def subclasses(kind: type[Any]) -> set[type[Any]]:
    return {one for sub in kind.__subclasses__() for one in (sub, *subclasses(sub))}


def test_every_model_is_here() -> None:
    here = {type(make()) for make in MODELS.values()}  # first, because the modules of models load on demand
    assert here == {kind for kind in subclasses(mn.Model) if getattr(mn, kind.__name__, None) is kind}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_come_back(name: str, way: str) -> None:
    model = MODELS[name]()
    again, theta = WAYS[way](model), MOVED if model.size == NET.size else NORM.init(np.random.default_rng(1))
    assert repr(again) == repr(model)
    (f, J), (g, K) = model.linearize(theta, X), again.linearize(theta, X)
    assert np.array_equal(f, g)
    assert np.array_equal(J.vjp(f), K.vjp(f))
    if not model.coupled:
        assert np.array_equal(mn.ntk(model, theta, X), mn.ntk(again, theta, X))
    assert all(np.array_equal(a, again.anchors()[key]) for key, a in model.anchors().items())
    after = [each.advance(theta) for each in (model, again)]
    assert np.array_equal(after[0](theta, X), after[1](theta, X))


def test_statistics_and_anchors_of_members() -> None:
    both = np.stack([NORM.init(RNG), NORM.init(RNG)])
    net = NORM.calibrate(both, X).members(slice(1, 2))
    lin = mn.Linearized(net, both[1:])
    assert np.array_equal(through(net)(both[1:], X), net(both[1:], X))
    assert np.array_equal(through(lin)(1.1 * both[1:], X), lin(1.1 * both[1:], X))


def test_a_pickled_run_goes_on_with_the_same_bits() -> None:
    """A run resumed from a pickled snapshot ends with the same theta, with dropout, BatchNorm and momentum."""
    theta, y = NORM.init(np.random.default_rng(1)), np.ones((4, 2))

    def run(resume: Any) -> Any:
        net, rng = NORM.with_dropout(np.random.default_rng(5)), np.random.default_rng(6)
        how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.1, momentum=0.9), "steps": 10, "batch_size": 2}
        return list(mn.train(net, theta, X, y, rng=rng, resume=resume, **how))

    whole = run(None)
    assert np.array_equal(run(through(whole[5]).state)[-1].theta, whole[-1].theta)


def test_pickling_is_a_law() -> None:
    pickled()


def test_a_kernel_as_a_model() -> None:
    model = FromKernel(X @ X.T, np.zeros((4, 2)), 4, full=False)
    again, a = through(model), RNG.standard_normal(8)
    assert np.array_equal(model(a, model.rows), again(a, again.rows))


ZOO: dict[str, tuple[mn.Sequential, tuple[int, ...]]] = {
    "mlp": (zoo.mlp(2, 8, 1), (5,)),
    "lenet5": (zoo.lenet5(), (28, 28, 1)),
    "lenet": (zoo.lenet(4), (28, 28, 1)),
    "geiger_cnn": (zoo.geiger_cnn(4), (28, 28, 1)),
    "wide_resnet": (zoo.wide_resnet(10, channels=4), (32, 32, 3)),
    "myrtle": (zoo.myrtle(5, 4), (32, 32, 3)),
    "alexnet": (zoo.alexnet(outputs=10), (224, 224, 3)),
}


@pytest.mark.parametrize("name", ZOO)
def test_every_network_of_the_zoo(name: str) -> None:
    made = {key for key, a in vars(zoo).items() if callable(a) and getattr(a, "__module__", "") == zoo.__name__}
    assert {key for key in made if key[0] != "_"} == set(ZOO)
    spec, shape = ZOO[name]
    net = mn.Network(spec, shape, mn.PyTorch())
    again = through(net)
    assert (again.spec, again.parametrization, again.footprint) == (net.spec, net.parametrization, net.footprint)
    assert again.layout.slices == net.layout.slices
    if net.size < 1e6:
        theta = net.init(np.random.default_rng(0), dtype=np.float32)
        x = np.cos(np.arange(np.prod((2, *shape)), dtype=np.float32)).reshape(2, *shape)
        assert np.array_equal(net(theta, x), again(theta, x))


def test_a_pickle_holds_no_bound_layers() -> None:
    """A pickled network takes about as few bytes as its spec, although the network has 57 million weights."""
    spec, shape = ZOO["alexnet"]
    assert len(pickle.dumps(mn.Network(spec, shape))) < 4000


def test_a_copy_shares_its_layers() -> None:
    """With dropout, every training step copies the network to change the masks. The copy shares the network's layers.

    Binding the layers again would slow every step.
    """
    net = NORM.with_dropout(np.random.default_rng(0))
    assert net.advance(THETA).layers is net.layers
    assert copy.copy(NET).layers is NET.layers
    assert copy.deepcopy(NET).layers is not NET.layers


def test_networks_work_in_processes_that_are_spawned() -> None:
    models = [mn.Linearized(NET, THETA), NORM.calibrate(NORM.init(RNG), X)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for model in models:
            theta = model.layout.init(np.random.default_rng(2), None, np.dtype(float))
            assert np.array_equal(pool.submit(model, theta, X).result(), model(theta, X))


def test_joblib(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    joblib.dump(mn.Linearized(NET, THETA), tmp_path / "model")
    again = joblib.load(tmp_path / "model", mmap_mode="r")
    assert np.array_equal(again(MOVED, X), mn.Linearized(NET, THETA)(MOVED, X))


@dataclass(frozen=True)
class Cube(mn.Activation):
    """The activation x^3 / s, a user-defined layer whose rule contains functions that cannot be pickled."""

    s: float = 2.0


@pointwise.register
def _(layer: Cube) -> Pointwise:
    return Pointwise(lambda xp, x: x**3 / layer.s, lambda xp, x: 3 * x**2 / layer.s)


class Doubled(mn.Network):
    """A user-defined network with an additional attribute and another constructor."""

    def __init__(self, width: int, factor: float) -> None:
        super().__init__(mn.Sequential(mn.Dense(width), Cube(3.0), mn.Dense(1)), (3,))
        self.factor = factor

    def forward(self, theta: Any, x: Any) -> Any:
        f, J = super().forward(theta, x)
        return self.factor * f, J


def test_layers_and_networks_from_outside() -> None:
    net = Doubled(4, 3.0)
    again, theta = through(net), net.init(RNG)
    assert type(again) is Doubled
    assert np.array_equal(again(theta, X), net(theta, X))
