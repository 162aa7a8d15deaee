"""Test that results belong to the caller: no result is a view of an argument, and no later call overwrites a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import minintk as mn
from tests.kit.strategies import Case, cases


def results(J: Any, v: Any, u: Any) -> list[Any]:
    found = [J.jvp(v), J.vjp(u)]
    return found if getattr(J, "coupled", False) else [*found, J.gram(), J.trace_gram()]


def check_own(model: Any, theta: Any, x: Any, rng: np.random.Generator, spoil: Callable[..., Any] = results) -> None:
    """Check that a model's outputs, jvp, vjp and kernels belong to the caller.

    spoil : function that replaces `results` in negative controls.
    """
    f0 = model(theta, x)
    f, J = model.linearize(theta, x)
    lead = theta.shape[:-1]
    v, u = rng.standard_normal((2, *lead, model.size)), rng.standard_normal((2, *f.shape))
    given_ = [theta, x, *v, *u]
    found = [f0, f, *spoil(J, v[0], u[0])]
    before = [a.copy() for a in found]
    for n, a in enumerate(found):
        assert not any(np.shares_memory(a, b) for b in given_), n
        assert not any(np.shares_memory(a, b) for b in found[:n]), n
    again = spoil(J, v[1], u[1])  # with other arguments, so that a reused buffer is noticed
    model(theta + 1, x[::-1].copy())
    for n, (a, b) in enumerate(zip(found, before)):
        assert np.array_equal(a, b, equal_nan=True), n
    for a in (*found, *again):
        a[...] = 7.0  # J must not depend on the caller's changes to results
    for a, b in zip(spoil(J, v[0], u[0]), before[2:]):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=20, deadline=None)
@given(cases())
def test_of_any_network(case: Case) -> None:
    check_own(case.net, case.theta, case.x, case.rng)


SPECS = {
    "nothing but the inputs": mn.Sequential(mn.Flatten(), mn.Identity()),
    "one layer": mn.Sequential(mn.Flatten(), mn.Dense(3, b_std=0.1)),
    "an activation last": mn.Sequential(mn.Flatten(), mn.Dense(3), mn.Tanh()),
    "a shortcut last": mn.Sequential(mn.Flatten(), mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(64)))),
    "norm last": mn.Sequential(mn.Flatten(), mn.Dense(8), mn.LayerNorm()),
    "pool last": mn.Sequential(mn.Conv2d(4, 3), mn.MaxPool(2), mn.GlobalAvgPool()),
    "large enough for the fast paths": mn.Sequential(
        mn.Conv2d(16, 3, padding="same"),
        mn.ReLU(),
        mn.Conv2d(16, 3),
        mn.ReLU(),
        mn.AvgPool(2),
        mn.Flatten(),
        mn.Dense(4),
    ),
}


@pytest.mark.parametrize(
    ("name", "ensemble"), [(name, E) for name in SPECS for E in (None, 2) if E is None or "fast" not in name]
)
def test_of_networks_that_end_in_various_ways(name: str, ensemble: int | None) -> None:
    net, rng = mn.Network(SPECS[name], (8, 8, 1)), np.random.default_rng(0)
    theta = net.init(rng, ensemble=ensemble)
    check_own(net, theta, rng.standard_normal((20 if "fast" in name else 5, 8, 8, 1)), rng)
    for model in (mn.Linearized(net, theta), mn.Centred(net, theta, 2.0)):
        check_own(model, theta, rng.standard_normal((5, 8, 8, 1)), rng)


def test_what_is_not_own_is_found() -> None:
    """The check fails for a view of an argument, and for a buffer that the next call reuses."""
    net, rng = mn.Network(mn.Sequential(mn.Dense(3)), (4,)), np.random.default_rng(0)
    theta, x, buffer = net.init(rng), rng.standard_normal((5, 4)), np.empty((5, 3))

    def view(J: Any, v: Any, u: Any) -> list[Any]:
        return [u[:]]

    def reused(J: Any, v: Any, u: Any) -> list[Any]:
        buffer[...] = J.jvp(v)
        return [buffer]

    check_own(net, theta, x, rng)
    for spoil in (view, reused):
        with pytest.raises(AssertionError):
            check_own(net, theta, x, rng, spoil)
