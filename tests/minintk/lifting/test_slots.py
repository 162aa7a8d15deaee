"""Test that arrays are assigned to their layers, and that errors name arrays that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn

Host = np.ndarray[Any, Any]


SPEC = mn.Sequential(mn.Dense(4, b_std=1.0), mn.BatchNorm(), mn.ReLU(), mn.Dense(2))


ONE = np.ones(4)


STATE = {"0": {"w": np.ones((4, 3)), "b": ONE}, "1": {"mean": ONE, "var": ONE}, "3": {"w": np.ones((2, 4))}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (STATE | {"3": {"w": np.ones((2, 5))}}, r"3\.w expects shape \(4, 2\).*got \(5, 2\)"),
    "missing": ({"0": STATE["0"], "3": STATE["3"]}, r"layer 1, .*expects \['mean', 'var'\], got {}"),
    "no bias": (STATE | {"0": {"w": np.ones((4, 3))}}, r"expects \['bias', 'weight'\], got {'0': \['weight'\]}"),
    "left over": (STATE | {"4": {"w": np.ones((2, 2))}}, r"left over.*\['4'\]"),
    "strange": (STATE | {"4": {"embedding": ONE}}, r"got 4\.embedding"),
    "sorted": ({"l_10": STATE["0"], "l_2": STATE["3"]}, "l_2 comes late"),
    "scale 0": (STATE | {"1": {"mean": ONE, "var": ONE, "weight": 0 * ONE, "bias": ONE}}, "scale 0 and an offset"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arrays_that_do_not_fit_are_named(name: str) -> None:
    state, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        mn.lift(state, (3,), spec=SPEC)


def test_lift_walks_the_branches() -> None:
    rng = np.random.default_rng(0)
    W, V, U = rng.standard_normal((2, 3)), rng.standard_normal((4, 3)), rng.standard_normal((1, 6))
    spec = mn.Sequential(mn.Concat(mn.Dense(2), mn.Sequential(mn.Dense(4), mn.ReLU())), mn.Dense(1))
    state, x = {"a.weight": W, "b.weight": V, "c.weight": U}, rng.standard_normal((5, 3))
    net, theta = mn.lift(state, (3,), spec=spec)
    y = np.concatenate([x @ W.T, np.maximum(x @ V.T, 0)], axis=1) @ U.T
    np.testing.assert_allclose(net(theta, x), y, rtol=1e-12)
    assert np.array_equal(mn.unlift(net, theta, state)["b.weight"], V)
