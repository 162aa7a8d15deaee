"""Test that the mistakes of a beginner's first hour raise errors that say how to correct them."""

from __future__ import annotations

import copy
import gc
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn

NET = mn.Network(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(3)), (4,))
THETA = NET.init(np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((6, 4))
CLASSES = np.array([0, 1, 2, 0, 1, 2])
HOW: dict[str, Any] = {"loss": mn.softmax_cross_entropy, "optimizer": mn.SGD(lr=0.1), "steps": 2}


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda: mn.train(NET, THETA, X, CLASSES, **HOW), TypeError, r"class numbers: numpy\.eye\(3\)\[y\]"),
        (lambda: mn.fit(NET, THETA, X, CLASSES[:, None], **HOW), TypeError, r"numpy\.eye\(3\)\[y\[:, 0\]\]"),
        (lambda: mn.train(NET, THETA, X, CLASSES.astype(str), **HOW), TypeError, "class names, .*return_inverse"),
        (lambda: mn.train(NET, THETA, X, np.eye(3, dtype=int)[CLASSES], **HOW), TypeError, r"y\.astype"),
        (lambda: NET(X, THETA), ValueError, "looks like x, and theta comes before x"),
        (lambda: mn.train(NET, X, np.eye(3)[CLASSES], THETA, **HOW), ValueError, "theta comes before x"),
        (lambda: NET(THETA[:-1], X), ValueError, "another network's"),
        (lambda: mn.Dense(4, 8), TypeError, r"Dense takes \(width, .*number of outputs"),  # type: ignore[call-arg]
        (lambda: mn.Dense(4, bias=True), TypeError, "b_std > 0"),  # type: ignore[call-arg]
        (lambda: mn.Conv2d(4, 3, bias=True), TypeError, "b_std > 0"),  # type: ignore[call-arg]
        (lambda: mn.ReLU(4), TypeError, r"ReLU takes \(\)"),
    ],
)
def test_the_message_says_what_to_do(action: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        action()


class Foreign:
    """A stand-in for an array that, like JAX's, follows the array API standard but is neither NumPy's nor CuPy's."""

    dtype, ndim, shape = np.dtype(np.float64), 2, (6, 4)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return ModuleType("jax.numpy")


def test_arrays_of_other_libraries_are_refused_at_the_door() -> None:
    x: Any = Foreign()
    calls: list[Any] = [lambda: NET(THETA, x), lambda: an.kernel(NET.spec).ntk(x), lambda: mn.mse(x, x)]
    for call in calls:
        with pytest.raises(TypeError, match=r"NumPy or CuPy, got .*Foreign.*numpy\.asarray.*from_dlpack"):
            call()


def deep(depth: int, **scales: Any) -> mn.Network:
    """Return a network with `depth` hidden ReLU layers and one output."""
    hidden = [layer for _ in range(depth) for layer in (mn.Dense(16, **scales), mn.ReLU())]
    return mn.Network(mn.Sequential(*hidden, mn.Dense(1)), (4,))


def test_deep_relu_of_unit_weights_warns_that_nothing_arrives() -> None:
    with pytest.warns(RuntimeWarning, match=r"about 1e-06 of the inputs': .*w_std=2\*\*0\.5"):
        net = deep(20)
    theta = net.init(np.random.default_rng(0), ensemble=200)
    assert 1e-7 < float(np.mean(np.asarray(net(theta, X)) ** 2)) < 1e-5


@pytest.mark.filterwarnings("error")
def test_what_arrives_does_not_warn() -> None:
    for net in (deep(8), deep(20, w_std=2**0.5), deep(20, b_std=0.1), mn.Network(mn.zoo.lenet5(), (28, 28, 1))):
        assert net.size


def test_layers_are_still_copied_and_pickled() -> None:
    spec = mn.Sequential(mn.Dense(4, b_std=0.1), mn.Residual(mn.ReLU()), mn.Conv2d(3, (2, 1)))
    assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec  # noqa: S301


def test_a_run_that_is_never_asked_for_anything_warns() -> None:
    with pytest.warns(RuntimeWarning, match=r"mn\.train\(\.\.\.\) computes .* nothing was trained"):
        mn.train(NET, THETA, X, np.eye(3)[CLASSES], **HOW)
    y = np.zeros((6, 1))
    with pytest.warns(RuntimeWarning, match=r"mn\.kernel_flow"):
        mn.kernel_flow(np.eye(6), y, y, loss=mn.mse, times=1.0)


@pytest.mark.filterwarnings("error")
def test_one_that_is_asked_for_something_does_not() -> None:
    run = mn.train(NET, THETA, X, np.eye(3)[CLASSES], **HOW)
    next(run)
    del run
    assert len(list(mn.train(NET, THETA, X, np.eye(3)[CLASSES], **HOW))) == 3
    gc.collect()


def test_what_a_writer_of_layers_needs_is_within_reach() -> None:
    assert "check_layer" in mn.testing.__all__
    for base, of in ((mn.Layer, mn.Dense), (mn.Activation, mn.ReLU), (mn.Loss, mn.MeanSquared)):
        assert issubclass(of, base)
    assert issubclass(mn.SGD, mn.Optimizer)
    assert issubclass(mn.NTK, mn.Parametrization)
