"""Plant errors in the nonlinear feature-learning limit (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from analytic.limits.nonlinear import DeferredGaussian, Group
from minintk.testing import assert_close
from tests.kit.laws import Array, Patch
from tests.kit.montecarlo import inputs
from tests.kit.oracles_features import group_and_network, within
from tests.planted.planting import planted


def samples_are_a_network() -> None:
    """Samples of the feature-learning limit follow a network trained from the weights that they reveal."""
    spec = mn.Sequential(mn.Dense(16), mn.ReLU(), mn.Dense(16, b_std=0.3), mn.ReLU(), mn.Dense(2, w_std=0.7))
    group, network = group_and_network(spec, inputs(3, 4), inputs(3, 2, seed=1), n=16, steps=5, gamma0=2.0, lr=0.5)
    assert_close("f", group[0], network[0], 1e-6)
    assert_close("ntk", group[1], network[1], 1e-6)


def identity_is_linear() -> None:
    """The feature-learning limit of linear networks is the deep linear limit."""
    x, y, how = inputs(3, 4), inputs(3, 1, seed=1), {"gamma0": 1.5, "lr": 0.3, "steps": 8}
    linear = mn.Sequential(mn.Dense(1), mn.Dense(1), mn.Dense(1))
    found = an.feature_learning_limit(linear, x, y, samples=16_000, rng=np.random.default_rng(0), **how)  # type: ignore[arg-type]
    truth = an.deep_linear_limit(linear, x, y, **how)  # type: ignore[arg-type]
    within("f", found.f[1:], found.error.f[1:], truth.predict()[1:])
    within("ntk", found.ntk[8], found.error.ntk[8], truth.ntk(8))


@planted("feature-learning limit: no response of chi to what came back (A = 0)", samples_are_a_network)
def _(patch: Patch) -> None:
    def times(self: DeferredGaussian, v: Array) -> Array:
        self.Q, self.WQ = self._known(v, self.Q, self.WQ, self.P[:, :0], self.WtP[:, :0])
        return self.WQ @ (self.Q.T @ v)

    patch.setattr(DeferredGaussian, "times", times)


def answered(known: Callable[[DeferredGaussian], int]) -> Callable[[Patch], None]:
    """Plant an error: a product W' u is consistent with only the first known(W) of the products W v."""

    def transposed_times(self: DeferredGaussian, u: Array) -> Array:
        m = known(self)
        self.P, self.WtP = self._known(u, self.P, self.WtP, self.Q[:, :m], self.WQ[:, :m])
        return self.WtP @ (self.P.T @ u)

    return lambda patch: patch.setattr(DeferredGaussian, "transposed_times", transposed_times)


planted("feature-learning limit: no response of xi to what went up (B = 0)", samples_are_a_network)(
    answered(lambda W: 0)
)


@planted("feature-learning limit: B without its term at s = k", samples_are_a_network)
def _(patch: Patch) -> None:
    times, before = DeferredGaussian.times, dict[int, int]()

    def counted(self: DeferredGaussian, v: Array) -> Array:
        before[id(self)] = self.Q.shape[1]
        return times(self, v)

    patch.setattr(DeferredGaussian, "times", counted)
    answered(lambda W: before[id(W)])(patch)


@planted("feature-learning limit: gamma0 squared in the steps", samples_are_a_network)
def _(patch: Patch) -> None:
    step = Group.step

    def wrong(self: Group, phi: Any, g: Any, e: Array) -> None:
        right = self.problem
        self.problem = replace(right, gamma0=right.gamma0**2)
        step(self, phi, g, e)
        self.problem = right

    patch.setattr(Group, "step", wrong)


@planted("feature-learning limit: the drive of the step before", samples_are_a_network)
def _(patch: Patch) -> None:
    step, last = Group.step, dict[int, Array]()

    def late(self: Group, phi: Any, g: Any, e: Array) -> None:
        step(self, phi, g, last.get(id(self), e))
        last[id(self)] = e

    patch.setattr(Group, "step", late)


@planted("feature-learning limit: linear layers with B = 0", identity_is_linear)
def _(patch: Patch) -> None:
    answered(lambda W: 0)(patch)


@planted("feature-learning limit: weights of variance 1/2", identity_is_linear)
def _(patch: Patch) -> None:
    make = DeferredGaussian.__init__
    patch.setattr(
        DeferredGaussian, "__init__", lambda self, n, draw: make(self, n, lambda *shape: draw(*shape) / 2**0.5)
    )
