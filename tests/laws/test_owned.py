"""Test that public objects own their arrays, by overwriting the caller's arrays before the objects are used.

Each object is made from copies of arrays. Then every copy is overwritten, and the object is used. The results must
not depend on the overwriting. The last test lists callables that, by design, read the caller's data later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.training.eigen import spectrum

Use = Callable[[], Any]
Case = Callable[[dict[str, Any]], Use]

SPEC = mn.Sequential(mn.Dense(6, w_std=1.5, b_std=0.1), mn.Tanh(), mn.Dense(2))
NET, KERNEL = mn.Network(SPEC, (3,)), an.kernel(mn.Sequential(mn.Dense(6, b_std=0.1), mn.ReLU(), mn.Dense(1)))
LINEAR = mn.Sequential(mn.Dense(8), mn.Dense(1))


def arrays() -> dict[str, Any]:
    """Return a dictionary with new copies of the test arrays."""
    rng = np.random.default_rng(0)
    found = {
        "x": rng.standard_normal((7, 3)), "y": rng.standard_normal((7, 2)), "theta": NET.init(rng),
        "v": rng.standard_normal(NET.size), "f0": rng.standard_normal((7, 2)), "u": rng.standard_normal((7, 2)),
        "labels": rng.integers(0, 3, 7), "pixels": rng.integers(0, 255, (7, 4), np.uint8), "power": rng.random(7),
    }  # fmt: skip
    return found | {
        "k": KERNEL.ntk(found["x"]),
        "one": found["y"][:, :1].copy(),
        "t": np.array([0.5, 2.0]),
        "lr": np.array(0.1),
    }


XT = np.random.default_rng(1).standard_normal((4, 3))
THETA = NET.init(np.random.default_rng(2))
HOW: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.1, momentum=0.5)}


def linearized(a: dict[str, Any], **options: Any) -> Use:
    f, J = NET.linearize(a["theta"], a["x"], **options)
    kept = f.copy()
    f[...] = np.nan  # the outputs belong to the caller, and J must not use them
    u = np.arange(14.0).reshape(7, 2)
    v = np.arange(21.0).reshape(7, 3) if options else np.arange(float(NET.size))
    return lambda: (kept, J.jvp(v), J.vjp(u), J.dense(), *([] if options else [J.gram(), J.trace_gram()]))


def stepped(model: Any) -> Any:
    """Train a model for six steps, and return theta and the outputs."""
    x, y = np.eye(3), np.ones((3, 2))
    *_, end = mn.train(model, THETA, x, y, steps=6, **HOW)
    return end.theta, model(THETA, XT)


def training(a: dict[str, Any]) -> mn.State:
    """Return the state after the first step of training from theta."""
    snaps = list(mn.train(NET, a["theta"], np.eye(3), np.ones((3, 2)), steps=3, **HOW))
    return snaps[1].state


def resumed(a: dict[str, Any]) -> Use:
    state = training(a)
    snaps = mn.train(NET, THETA, np.eye(3), np.ones((3, 2)), steps=5, resume=state, **HOW)
    return lambda: [s.theta for s in snaps]


def begun(a: dict[str, Any]) -> Use:
    run = mn.train(NET, a["theta"], np.eye(3), np.ones((3, 2)), steps=3, **HOW)
    return lambda: [s.theta for s in run]


def flowing(a: dict[str, Any]) -> Use:
    moments = mn.flow(NET, a["theta"], np.eye(3), np.ones((3, 2)), loss=mn.mse, times=a["t"])
    return lambda: [m.f for m in moments]


def kernel_flowing(a: dict[str, Any]) -> Use:
    moments = mn.kernel_flow(a["k"].copy(), a["f0"], np.ones((7, 2)), loss=mn.mse, times=a["t"])
    return lambda: [m.f for m in moments]


def descending(a: dict[str, Any]) -> Use:
    snaps = mn.kernel_descent(a["k"].copy(), a["f0"], np.ones((7, 2)), loss=mn.mse, optimizer=mn.SGD(0.1), steps=3)
    return lambda: [s.f for s in snaps]


def dynamics(make: Any) -> Case:
    def case(a: dict[str, Any]) -> Use:
        found = make(a["k"], a["y"], lr=0.1)
        return lambda: (found.predict(3.0), found.predict(3.0, KERNEL.ntk(XT, arrays()["x"])), found.coefficients(2.0))

    return case


def gaussian(make: Any, **options: Any) -> Case:
    def case(a: dict[str, Any]) -> Use:
        found = make(KERNEL, a["x"], a["y"], ridge=0.1)
        return lambda: found.predict(XT, cov=True, **options)

    return case


def data(a: dict[str, Any]) -> Use:
    found = mn.datasets.Dataset(a["x"], a["labels"])
    made = found.pca(2), found[:3].standardise() if hasattr(found, "standardise") else found.pca(1), found.on_sphere()
    return lambda: [array for one in made for array in one.one_hot()[:1]]


def modes(a: dict[str, Any]) -> Use:
    found, power = an.data_modes(a["k"], a["one"])
    return lambda: an.eigenlearning(found, 3).test_error(power)


def eigen(a: dict[str, Any]) -> Use:
    s = spectrum(a["k"], 0.1)
    return lambda: (s.lam, s.Q, s.mu)


def two_layers(a: dict[str, Any]) -> Use:
    limit = an.two_layer_limit(LINEAR, a["x"], a["one"])
    return lambda: [limit.predict(t) for t in (0.5, 2.0)]


def sampled(a: dict[str, Any]) -> Use:
    rng = np.random.default_rng(0)
    limit = an.feature_learning_limit(LINEAR, a["x"], a["one"], gamma0=1.0, lr=0.1, steps=2, samples=160, rng=rng)
    return lambda: (limit.f, limit.error.ntk)


CASES: dict[str, Case] = {
    "Network": lambda a: lambda: NET(THETA, XT),
    "linearize": linearized,
    "linearize in x": lambda a: linearized(a, wrt="x"),
    "Linearized": lambda a: (lambda m: lambda: stepped(m))(mn.Linearized(NET, a["theta"])),
    "Centred": lambda a: (lambda m: lambda: stepped(m))(mn.Centred(NET, a["theta"], 3.0)),
    "Taylor": lambda a: (lambda m: lambda: stepped(m))(mn.Taylor(NET, a["theta"], 2)),
    "IterativelyLinearized": lambda a: (lambda m: lambda: stepped(m))(mn.IterativelyLinearized(NET, a["theta"], 2)),
    "Moved": lambda a: (lambda m: lambda: stepped(m))(
        mn.IterativelyLinearized(NET, a["theta"], mn.Moved(1e-3, a["x"]))
    ),
    "train, from theta": begun,
    "train, resumed": resumed,
    "optimisers": lambda a: (lambda o: lambda: [v for one in o for v in vars(one).values() if isinstance(v, float)])(
        (mn.SGD(a["lr"], a["lr"], a["lr"]), mn.Nesterov(a["lr"], a["lr"]), mn.Adam(a["lr"], a["lr"]))
    ),
    "flow, from theta": flowing,
    "kernel_flow, from f0": kernel_flowing,
    "kernel_descent, from f0": descending,
    "posterior": gaussian(an.posterior),
    "posterior, ntk": gaussian(lambda *a, **o: an.posterior(*a, kind="ntk", **o)),
    "ensemble": gaussian(an.ensemble, t=2.0),
    "ensemble, nngp": gaussian(an.ensemble, t=2.0, kind="nngp"),
    "gradient_flow": dynamics(an.gradient_flow),
    "gradient_descent": lambda a: (lambda d: lambda: (d.predict(3), d.coefficients(2)))(
        an.gradient_descent(a["k"], a["y"], lr=0.1)
    ),
    "Spectrum": eigen,
    "data_modes": modes,
    "two_layer_limit": two_layers,
    "deep_linear_limit": lambda a: (lambda m: lambda: (m.predict(), m.features(1, 2), m.ntk(2)))(
        an.deep_linear_limit(LINEAR, a["x"], a["one"], lr=0.1, steps=3)
    ),
    "feature_learning_limit": sampled,
    "width_correction": lambda a: (lambda m: lambda: (*m.predict(2.0), *m.kernel(2.0)))(
        an.width_correction(mn.Sequential(mn.Dense(8), mn.Erf(), mn.Dense(1)), a["x"], a["one"], XT, samples=16)
    ),
    "Solution": lambda a: (lambda s: lambda: (s.theta, s.a, s(XT)))(
        mn.solve_gram(NET, a["theta"], a["x"], a["y"], ridge=0.1)
    ),
    "fit": lambda a: (lambda run: lambda: (run.theta, run.model(run.theta, XT)))(
        mn.fit(NET, a["theta"], a["x"], a["y"], steps=4, **HOW)
    ),
    "History": lambda a: (lambda h: lambda: [float(h.last["loss"])])(
        mn.fit(NET, a["theta"], a["x"], a["y"], steps=4, **HOW).history
    ),
    "data sets made of one": data,
}


def leaves(a: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(a, (tuple, list)):
        for part in a:
            yield from leaves(part)
    else:
        yield np.asarray(a)


def stale(case: Case) -> bool:
    """Return True if overwriting the arrays from which `case` makes an object changes the object's results."""
    expected, a = list(leaves(case(arrays())())), arrays()
    use = case(a)
    for array in a.values():
        array[...] = array[::-1].copy() if array.ndim > 1 else 1 + array // 2
    found = list(leaves(use()))
    assert len(found) == len(expected) > 0
    assert all(np.isfinite(one).all() for one in expected)
    return not all(np.array_equal(one, two) for one, two in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_stale(name: str) -> None:
    if name in ("two_layer_limit", "deep_linear_limit", "feature_learning_limit", "width_correction"):
        pytest.importorskip("analytic.limits", reason="the satellite of limits was taken away")
    if name == "data_modes":
        pytest.importorskip("analytic.curves", reason="the satellite of learning curves was taken away")
    if name == "Solution":
        pytest.importorskip("minintk.large", reason="the satellite of large problems was taken away")
    assert not stale(CASES[name])


class Borrower:
    """A negative control that keeps the caller's array and reads it later."""

    def __init__(self, x: Any) -> None:
        self.x = x


@pytest.mark.parametrize("key", ["x", "y", "theta", "k", "f0", "labels", "pixels", "t", "one"])
def test_a_borrower_is_found(key: str) -> None:
    def case(a: dict[str, Any]) -> Use:
        offender = Borrower(a[key])
        return lambda: offender.x * 1.0

    assert stale(case)
    assert not stale(lambda a: (lambda own: lambda: own.x * 1.0)(Borrower(a[key].copy())))


@pytest.mark.parametrize("function", [mn.train, mn.flow, mn.kernel_flow, mn.kernel_descent, mn.datasets.Dataset])
def test_what_reads_its_data_while_it_runs_says_so(function: Any) -> None:
    """Some callables do not copy their data, which can be in a file or very large. Their docstrings must say so."""
    assert re.search("read during (the run|use) and not copied", " ".join(function.__doc__.split()))
