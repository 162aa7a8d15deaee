"""Networks and models in other processes: pickles and copies with the same bits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.models.network import Model

RNG = np.random.default_rng
X = RNG(1).standard_normal((4, 6, 6, 2))
IMAGES = mn.Sequential(
    mn.Conv2d(4), mn.BatchNorm(), mn.GELU(), mn.Dropout(0.4), mn.MaxPool(2), mn.Flatten(), mn.Dense(8), mn.Swish(),
    mn.Dense(3),
)  # fmt: skip
NET = mn.Network(IMAGES, X.shape[1:], mn.SpectralMuP())
THETA = NET.init(RNG(0))
FROZEN = NET.calibrate(THETA, X)
MODELS: dict[str, Model] = {
    "network": NET,
    "calibrated": FROZEN,
    "calibrated ensemble": NET.calibrate(np.stack([THETA, 2 * THETA]), X).members(slice(1, 2)),
    "masks": NET.with_dropout(RNG(2)).advance(THETA),
    "linearised": mn.Linearized(FROZEN, THETA),
    "centred": mn.Centred(mn.Linearized(FROZEN, THETA), THETA, 3.0),
    "iterative": mn.IterativelyLinearized(FROZEN, THETA, 2).advance(1.01 * THETA),
    "taylor": mn.Taylor(FROZEN, THETA, 2),
}


def outputs(model: Model) -> tuple[Any, Any, Any]:
    """f, J' f and J v."""
    f, J = model.linearize(1.1 * THETA, X)
    return f, J.vjp(f), J.jvp(THETA)


def by_pickle(model: Model) -> Model:
    return pickle.loads(pickle.dumps(model))  # noqa: S301, our own


@pytest.mark.parametrize("how", [by_pickle, copy.deepcopy, copy.copy])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "calibrated ensemble"])
def test_the_same_bits(name: str, how: Callable[[Model], Model]) -> None:
    model = MODELS[name]
    other = how(model)
    assert other is not model
    assert type(other) is type(model)
    for a, b in zip(outputs(other), outputs(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_model_is_here() -> None:
    kinds = {type(model) for model in MODELS.values()}
    public = {kind for kind in vars(mn).values() if isinstance(kind, type) and issubclass(kind, Model)}
    assert public - {Model} == kinds


def test_statistics_of_an_ensemble() -> None:
    some = MODELS["calibrated ensemble"]
    theta = 2 * THETA[None]
    np.testing.assert_array_equal(by_pickle(some)(theta, X), some(theta, X))


@pytest.mark.parametrize(("spec", "shape"), [(mn.zoo.lenet5(), (28, 28, 1)), (mn.zoo.wide_resnet(10, 1), (32, 32, 3))])
def test_networks_of_the_zoo(spec: mn.Sequential, shape: tuple[int, ...]) -> None:
    net = mn.Network(spec, shape)
    theta, x = net.init(RNG(0)), RNG(1).standard_normal((2, *shape))
    np.testing.assert_array_equal(by_pickle(net)(theta, x), net(theta, x))


@pytest.mark.slow
def test_in_processes_that_are_spawned() -> None:
    """The network goes there and the model comes back."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(mn.Linearized, FROZEN, THETA).result()
    np.testing.assert_array_equal(there(1.1 * THETA, X), MODELS["linearised"](1.1 * THETA, X))


def test_a_third_partys_network_copies_as_it_is() -> None:
    class Noted(mn.Network):
        note = ""

    net = Noted(mn.Dense(2), (3,))
    net.note = "kept"
    assert copy.copy(net).note == "kept"
