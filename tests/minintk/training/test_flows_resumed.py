"""Test that a flow resumed from any moment is bitwise identical to an uninterrupted one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.training.checkpoints import load, save
from minintk.training.train import State
from tests.kit.thinned import thinned
from tests.minintk.training.test_flows import ALL, NET, SIGNS, THETA, X, Y, last


def same(whole: list[mn.Moment], resumed: list[mn.Moment]) -> bool:
    """True if all values of all moments are bitwise identical."""

    def numbers(m: mn.Moment) -> Any:
        arrays = (np.asarray(a).tobytes() for a in (m.f, m.loss, m.f if m.theta is None else m.theta))
        return m.t, m.steps, m.dt, m.batch_size, m.ended, *arrays

    return [numbers(m) for m in whole] == [numbers(m) for m in resumed]


COLD: dict[str, Any] = {"temperature": 0.05, "tau": 0.3, "by": mn.Steps(1e-3, 0.1)}


HOWS: list[dict[str, Any]] = [
    {}, {"tau": 0.5}, {"mu": 3.0}, COLD, {"loss": mn.hinge, "mu": 10.0}, {"loss": mn.hinge, **COLD},
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "how"), thinned(product(("network", "ensemble", "re-anchoring", "kernel"), HOWS), every=5), ids=str
)
def test_a_resumed_flow_has_the_same_bits(kind: str, how: dict[str, Any], tmp_path: Path) -> None:
    """A flow resumed from any moment, even from a file, is bitwise the same. A different velocity changes it."""
    theta = NET.init(np.random.default_rng(2), ensemble=3) if kind == "ensemble" else THETA
    model = mn.IterativelyLinearized(NET, THETA, 7) if kind == "re-anchoring" else mn.Centred(NET, theta, 2.0)
    settings: dict[str, Any] = {"loss": mn.mse, "times": (0.01, 0.1, 0.5, 2.0)} | how

    def run(resume: State | None = None) -> list[mn.Moment]:
        rng = np.random.default_rng(3 if resume is None else 4)  # `resume` sets its state
        if kind == "kernel":
            kernel = mn.ntk(NET, THETA, ALL, X)
            return list(mn.kernel_flow(kernel, NET(THETA, ALL), SIGNS, **settings, rng=rng, resume=resume))
        return list(mn.flow(model, theta, X, SIGNS, **settings, rng=rng, resume=resume))

    whole = run()
    for k, moment in enumerate(whole):
        assert moment.state is not None
        save(tmp_path / "flow.npz", moment.state)
        assert same(run(load(tmp_path / "flow.npz")[0]), whole[k:])
    state = whole[1].state
    assert state is not None
    if state.memory is not None:
        assert not same(run(replace(state, memory=0 * state.memory)), whole[1:])


def test_what_a_flow_does_not_resume_from() -> None:
    how: dict[str, Any] = {"loss": mn.mse, "times": (1.0, 2.0)}
    state = last(mn.flow(NET, THETA, X, Y, **how)).state
    assert state is not None
    for other, words in (
        ({"tau": 1.0}, r"expects a state of this run, .* and momentum \(150,\), .* got theta .* and no momentum"),
        ({"times": 1.0}, r"resume is the state at t = 2, beyond times to 1: ask for later ones"),
        ({"temperature": 0.1, "rng": np.random.default_rng(0)}, r"of a flow at the same temperature, zero or not"),
        ({"by": mn.Solver()}, r"by=Solver\(\.\.\.\) keeps no state to resume from: use by=Steps\(\)"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            mn.flow(NET, THETA, X, Y, **how | other, resume=state)
    with pytest.raises(TypeError, match=r"resume expects the state of a snapshot or a moment, snap\.state, got Moment"):
        mn.flow(NET, THETA, X, Y, **how, resume=last(mn.flow(NET, THETA, X, Y, **how)))  # type: ignore[arg-type]
    assert last(mn.flow(NET, THETA, X, Y, **how, by=mn.Solver())).state is None


def test_outputs_that_never_move() -> None:
    """If outputs equal targets from the start, the flow reaches the last time in few steps without an error."""
    moments = list(mn.kernel_flow(np.eye(2), np.ones((2, 1)), np.ones((2, 1)), loss=mn.mse, times=(5.0, 1e9)))
    assert [m.t for m in moments] == [0.0, 5.0, 1e9]
    assert moments[-1].steps < 100
