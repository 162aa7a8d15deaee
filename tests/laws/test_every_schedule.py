"""Test the laws of schedules for every subclass of `Schedule`. A new schedule needs no other test of these laws."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from math import fsum
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.training.checkpoints import identity
from minintk.training.schedules import Schedule
from tests.kit.every import every

STEPS = 30
WAYS: dict[str, list[Any]] = {
    "float": [0.3, 0.25],
    "int": [4, 1, 7],
    "float | Schedule": [0.3, mn.Cosine(0.3, steps=9), mn.StepDecay(0.3, every=2, factor=0.9)],
}
BAD: dict[str, list[Any]] = {
    "float": [-0.1, np.nan, np.inf, None],
    "int": [0, -1, 2.5, np.nan, None],
    "float | Schedule": [0.0, -0.1, np.nan, None],
}


def make(kind: Any) -> Iterator[Any]:
    """Yield schedules in which one argument takes a value in WAYS, and the others their default or first values."""
    strange = [f.name for f in fields(kind) if f.init and f.type not in WAYS]
    assert not strange, f"write how to make a {kind.__name__}: {strange} in test_every_schedule.WAYS"
    first = {f.name: WAYS[str(f.type)][0] for f in fields(kind) if f.init and f.default is MISSING}
    yield kind(**first)
    for f in fields(kind):
        for value in WAYS[str(f.type)] if f.init else ():
            if not isinstance(f.default, float | int) or value <= first.get("lr", 1.0):
                yield kind(**first | {f.name: value})


# ------------------------------------------------------------------------------------------------- the laws


def rates(kind: Any) -> None:
    """Check that rates are finite and >= 0, start above 0, and depend only on the step."""
    for lr in make(kind):
        found = [lr(s) for s in range(STEPS)]
        assert all(isinstance(a, float) and 0 <= a < np.inf for a in found), f"{lr!r}: {found}"
        assert found[0] > 0, f"{lr!r} begins at 0"
        assert [lr(s) for s in reversed(range(STEPS))] == found[::-1], f"{lr!r} depends on what was asked before"
        assert [pickle.loads(pickle.dumps(lr))(s) for s in range(STEPS)] == found  # noqa: S301


def times(kind: Any) -> None:
    """Check that t(n) is the sum of the first n rates."""
    for lr in make(kind):
        for n in range(STEPS):
            assert lr.t(n) == pytest.approx(fsum(lr(s) for s in range(n)), rel=1e-12, abs=1e-15), f"t({n}) of {lr!r}"


def is_data(kind: Any) -> None:
    """Check that an unpickled schedule equals the original, and that a checkpoint detects changed settings."""
    for lr in make(kind):
        assert pickle.loads(pickle.dumps(lr)) == lr  # noqa: S301
        other = [different for different in make(kind) if different != lr]
        assert identity(lr) not in map(identity, other), f"the settings of {lr!r} do not show"
        assert all([lr(s) for s in range(STEPS)] != [one(s) for s in range(STEPS)] for one in other), f"{lr!r}"


def resumes(kind: Any) -> None:
    """Check that resumed and uninterrupted runs end with the same bits, and that t is the sum of the rates."""
    net = mn.Network(mn.Sequential(mn.Dense(4), mn.Tanh(), mn.Dense(2)), (3,))
    theta, data = net.init(np.random.default_rng(0)), (np.eye(3), np.eye(3)[:, :2])
    for lr in make(kind):

        def end(steps: int, resume: Any = None, lr: Any = lr) -> Any:
            how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr, momentum=0.5), "every": steps}
            *_, last = mn.train(net, theta, *data, **how, steps=steps, resume=resume)
            return last

        whole = end(8)
        assert np.array_equal(end(8, end(3).state).theta, whole.theta), f"{lr!r} resumes differently"
        assert whole.t == pytest.approx(fsum(lr(s) for s in range(8)), rel=1e-12)


def refuses(kind: Any) -> None:
    """Check that settings out of range raise an error that names the argument."""
    first = {f.name: getattr(next(make(kind)), f.name) for f in fields(kind) if f.init}
    for f in fields(kind):
        for bad in BAD[str(f.type)] if f.init else ():
            try:
                kind(**first | {f.name: bad})
            except (ValueError, TypeError) as error:
                assert f"({f.name}=...) expects" in str(error), f"{f.name}={bad!r}: {error}"  # noqa: PT017
            else:
                raise AssertionError(f"{kind.__name__} takes {f.name}={bad!r}")


LAWS = [rates, times, is_data, resumes, refuses]


@pytest.mark.parametrize("kind", every(Schedule), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[[Any], None], kind: Any) -> None:
    law(kind)


# ---------------------------------------------------------------- negative controls, on which a law must fail


@dataclass(frozen=True)
class Right(mn.StepDecay):
    """A correct schedule: step decay under another name."""


@dataclass(frozen=True)
class Counts(Right):
    """A schedule whose rate decreases with every call."""

    calls: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __call__(self, step: int) -> float:
        self.calls.append(step)
        return self.lr / len(self.calls)


class Negative(Right):
    def __call__(self, step: int) -> float:
        return self.lr - 0.1 * step


class Short(Right):
    """A schedule whose t omits the last rate."""

    def t(self, steps: int) -> float:
        return super().t(max(steps - 1, 0))


@dataclass(frozen=True, repr=False)
class Hidden(Right):
    def __repr__(self) -> str:
        return "Hidden()"


class Careless(Right):
    def __post_init__(self) -> None:
        pass


WRONG = [(rates, Counts), (rates, Negative), (times, Short), (is_data, Hidden), (resumes, Counts), (refuses, Careless)]


@pytest.mark.parametrize(("law", "kind"), WRONG)
def test_a_wrong_one_is_refused(law: Callable[[Any], None], kind: Any) -> None:
    law(Right)
    with pytest.raises(AssertionError):
        law(kind)
    assert kind not in every(Schedule)
