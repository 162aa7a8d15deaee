"""Define laws for learning-rate scales S.

The tangent kernel of training is J S J' for finite and infinite networks, and weight decay is independent of S.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.diagnostics import kappa, kernel_movement
from minintk.spec.parametrization import Parametrization, Role, Row
from minintk.testing import assert_close
from minintk.training.optimizers import Optimizer
from tests.kit.montecarlo import assert_mean, inputs, kernels

Array = np.ndarray[Any, Any]

MUP = mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0, 0, 0))
WITH_RATES = (
    mn.SpectralMuP(),
    mn.MeanField(),
    mn.exponents(mn.SpectralMuP()),
    mn.ABC((0, 0, 0), (0, 0.5, 0.5), (0, 1, 1)),
)
WIDTHS = (64, 1024)
X, Y = inputs(6, 5), inputs(6, 2, seed=1)


@dataclass(frozen=True)
class Absorbed(Parametrization):
    """An equivalent parametrization without learning-rate scales.

    The multipliers are multiplied by sqrt(S) and the weights by 1/sqrt(S), so the same networks train in the same way.
    """

    of: Parametrization

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        row = self.of.row(role, fan_in, fan_out, sigma)
        root = sqrt(row.rate("sgd"))
        return replace(row, multiplier=row.multiplier * root, std=row.std / root, lr=1.0, adam=None)


def network(parametrization: Parametrization, n: int, outputs: int = 2) -> mn.Network:
    """Return a network with two hidden tanh layers of width n and with biases."""
    hidden = [layer for _ in range(2) for layer in (mn.Dense(n, w_std=1.3, b_std=0.2), mn.Tanh())]
    return mn.Network(mn.Sequential(*hidden, mn.Dense(outputs, b_std=0.1)), X.shape[1:], parametrization)


def departure(parametrization: Parametrization, n: int, kernel: Callable[..., Any]) -> float:
    """Return |df / lr + J S J' (f - y) / N| / |df / lr| for one step of SGD on the linearised network."""
    net = network(parametrization, n)
    theta, lr = net.init(np.random.default_rng(n)), 1e-3
    run = mn.train(mn.Linearized(net, theta), theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr), steps=1)
    before, after = (snap.f for snap in run)
    df, says = (after - before) / lr, -np.tensordot(kernel(net, theta, X), before - Y, 2) / len(X)
    return float(np.linalg.norm(df - says) / np.linalg.norm(df))


def one_step() -> None:
    """a step of descent is df = -lr J S J' (f - y) / N, at n = 64 and 1024"""
    for parametrization in WITH_RATES:
        for n in WIDTHS:
            off = np.array(departure(parametrization, n, mn.ntk_full))
            assert_close(f"|df / lr + J S J' (f - y) / N| / |df / lr|, n = {n}", off, np.zeros(()), 1e-9)


def same_kappa() -> None:
    """kappa and kernel movement of equivalent parametrizations are equal"""
    for one, other in ((mn.SpectralMuP(), Absorbed(mn.SpectralMuP())), (mn.exponents(mn.SpectralMuP()), MUP)):
        found = []
        for parametrization in (one, other):
            net = network(parametrization, 64)
            theta = net.init(np.random.default_rng(0))
            *_, end = mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=3)
            lazy = kappa(net, theta, X, Y, starts=1, steps=10)
            movement = float(kernel_movement(net, theta, end.theta, X))
            found.append(np.array([lazy.kappa, lazy.slope, movement]))
        for name, a, b in zip(("kappa", "|D f|", "kernel movement"), *found, strict=True):
            assert_close(f"{name} of {type(one).__name__} / its equivalent's", np.array(a / b), np.ones(()), 1e-10)


def limit_of_rates() -> None:
    """E J S J' of one hidden layer = the analytic kernel at any width"""
    for parametrization in WITH_RATES[:3]:
        found = []
        for n in (64, 1024):
            spec = mn.Sequential(mn.Dense(n, w_std=1.4, b_std=0.6), mn.ReLU(), mn.Dense(1, b_std=0.3))
            found.append(an.kernel(spec, parametrization).ntk(X[:3]))
            if n == 64:
                _, samples = kernels(spec, X[:3], 1000, parametrization=parametrization)
                assert_mean(f"mean NTK, {type(parametrization).__name__}", samples, found[0][np.triu_indices(3)])
        assert_close("NTK of n = 1024 / that of n = 64", found[1] / found[0], np.ones((3, 3)), 1e-11)


def stable_rate() -> None:
    """descent on the linearised network diverges and warns above 2 N / lambda_max of J S J'"""
    net = network(mn.SpectralMuP(), 64)
    theta = net.init(np.random.default_rng(0))
    bound, grown = an.max_learning_rate(mn.ntk_full(net, theta, X)), []
    for factor in (0.97, 1.05):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(factor * bound), "steps": 200, "every": 200}
            first, last = mn.train(mn.Linearized(net, theta), theta, X, Y, **how)
        grown.append([bool(last.loss > first.loss), bool(said)])
    assert grown == [[False, False], [True, True]], f"(grown, warned) at .97 and 1.05 of the bound: {grown}"


def shrinks() -> None:
    """weight decay multiplies every tensor by 1 - lr wd per step at every width"""
    for n in WIDTHS:
        net = network(mn.SpectralMuP(), n)
        theta = net.init(np.random.default_rng(0))
        optimizers: list[Any] = [mn.SGD(0.1, weight_decay=0.2), mn.Adam(0.1, weight_decay=0.2)]
        for optimizer in optimizers:
            after, scales = theta.copy(), net.layout.learning_rate_scales(None, optimizer.rule)
            optimizer.at(0).step(after, np.zeros_like(theta), optimizer.init(theta), scales)
            for name, w in net.layout.unpack(after).items():
                shrink = np.linalg.norm(w) / np.linalg.norm(net.layout.unpack(theta)[name])
                law = f"|w| of {name} after a step of {type(optimizer).__name__}, n = {n}"
                assert_close(law, np.array(shrink), np.array(0.98), 1e-12)


def decays_alike() -> None:
    """equivalent parametrizations give the same network at every step, also with weight decay"""
    mup, adam = mn.SpectralMuP(), mn.exponents(mn.SpectralMuP(), "adam")
    cases: list[tuple[Any, Any, Any]] = [
        (mn.SGD(0.1, momentum=0.5, weight_decay=0.2), mup, Absorbed(mup)),
        (mn.Adam(0.01, eps=1e-60, weight_decay=0.2), adam, adam.shifted(0, 0.5, 0.5)),
    ]
    for optimizer, *pair in cases:
        ends = []
        for parametrization in pair:
            net = network(parametrization, 64)
            run = mn.train(net, net.init(np.random.default_rng(0)), X, Y, loss=mn.mse, optimizer=optimizer, steps=5)
            ends.append(list(run)[-1].f)
        assert_close(f"f after 5 steps of {type(optimizer).__name__}", ends[1], ends[0], 1e-9)


def decay_with_the_rate(patch: pytest.MonkeyPatch) -> None:
    """Plant the error g <- s (g + lr weight_decay theta), in which the scales s also multiply the weight decay."""
    right = Optimizer.scale_and_decay

    def wrong(self: Any, g: Any, theta: Any, scales: Any, at: slice, lr: float = 1.0) -> None:
        right(self, g, theta, None, at, lr)
        if scales is not None:
            g *= scales[at]

    patch.setattr(Optimizer, "scale_and_decay", wrong)
