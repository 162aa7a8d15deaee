"""Test momentum and Adam in the feature-learning limit. A group is a network whose square matrices are drawn lazily."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.limits import nonlinear
from analytic.limits.nonlinear import DeferredGaussian, Group
from analytic.limits.steps import Steps
from tests.kit.oracles_features import group_and_network
from tests.kit.replant import replant

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 2))
OPTIMIZERS: dict[str, Any] = {
    "momentum": mn.SGD(lr=0.1, momentum=0.8),
    "Adam": mn.Adam(lr=0.05, b1=0.9, b2=0.99),
    "signs": mn.Adam(lr=0.02, b1=0.0, b2=0.0),
}


def spec(*activations: Any, n: int = 1, C: int = 2, b_std: float = 0.3) -> mn.Sequential:
    hidden = [(mn.Dense(n, w_std=1.5 - 0.2 * i, b_std=b_std), phi) for i, phi in enumerate(activations)]
    return mn.Sequential(*[layer for pair in hidden for layer in pair], mn.Dense(C, w_std=0.8, b_std=b_std))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("phi", [mn.Erf(), mn.Tanh(), mn.ReLU()], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_a_group_is_one_network(name: str, phi: Any, hidden: int) -> None:
    """A network that starts at the revealed weights has the group's outputs and tangent kernel to 1e-12."""
    which = spec(*[phi] * hidden, n=40)
    group, network = group_and_network(which, X, Y, n=40, steps=6, gamma0=1.7, lr=OPTIMIZERS[name])
    for a, b in zip(group, network, strict=True):
        assert np.abs(a - b).max() < 1e-12 * np.abs(b).max()
    assert np.abs(group[1][-1] - group[1][0]).max() > 0.05 * group[1][0].max()  # features move


def law_of(name: str) -> None:
    group, network = group_and_network(
        spec(mn.Erf(), mn.Erf(), n=16), X, Y, n=16, steps=4, gamma0=1.7, lr=OPTIMIZERS[name]
    )
    for a, b in zip(group, network, strict=True):
        assert np.abs(a - b).max() < 1e-12 * np.abs(b).max()


PLANTS: dict[str, tuple[Any, str, str, str, str]] = {
    "velocity of square weights forgotten": (Steps, "factors", "if momentum and", "if False and", "momentum"),
    "momentum of square weights squared": (Steps, "factors", "[momentum * before", "[momentum**2 * before", "momentum"),
    "velocity of both factors": (Steps, "factors", "[past, v]", "[momentum * past, v]", "momentum"),
    "velocity of neurons forgotten": (Steps, "entries", "by.momentum * before[0] + g", "g", "momentum"),
    "dampened velocity": (Steps, "entries", "before[0] + g, None", "before[0] + 0.2 * g, None", "momentum"),
    "m not corrected": (Steps, "entries", " / (1 - by.b1**self.k)", "", "Adam"),
    "r not corrected": (Steps, "entries", "sqrt(1 - by.b2**self.k)", "1", "Adam"),
    "r of b1": (Steps, "entries", "by.b2 * before[1]", "by.b1 * before[1]", "Adam"),
    "r of directions, not squares": (Steps, "entries", "* g * g", "* abs(g)", "Adam"),
    "Adam's rate without the fan-in": (Steps, "entries", "rate / sqrt(fan_in)", "rate", "signs"),
    "steps not counted": (Group, "step", "steps.k + 1", "1", "Adam"),
    "shift without gamma0": (Group, "step", "b / problem.gamma0", "b", "Adam"),
    "biases by their own std once more": (Group, "step", "dense.b_std * steps.entries", "steps.entries", "momentum"),
    "D not seen from above": (DeferredGaussian, "transposed_times", "self.moved is None", "True", "signs"),
    "D transposed": (DeferredGaussian, "times", "self.moved @ v", "self.moved.T @ v", "signs"),
    "D of the last step only": (Group, "step", "else W.moved + moved", "else moved", "Adam"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["Adam", "momentum", "signs"])
def test_laws(name: str) -> None:
    law_of(name)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_planted_errors_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *where, law = PLANTS[name]
    replant(monkeypatch, *where)
    with pytest.raises(AssertionError):
        law_of(law)


def test_the_mean_of_wide_networks() -> None:
    """The mean output of Adam-trained networks of width 128 agrees with the limit. At twice the rate, it does not."""
    which, how = spec(mn.Tanh(), mn.Tanh(), n=128, C=1, b_std=0.0), {"gamma0": 0.7, "steps": 8}
    limit = an.feature_learning_limit(
        which, X, Y[:, :1], lr=mn.Adam(lr=0.06, b2=0.9), samples=16 * 400, rng=np.random.default_rng(1), **how  # type: ignore[arg-type]
    )  # fmt: skip
    net, found = mn.Network(which, (4,), mn.MeanField()), []
    for scale in (1.0, 2.0):
        theta0 = net.init(np.random.default_rng(2), ensemble=64)
        model = mn.Centred(net, theta0, 1 / 0.7)
        *_, end = mn.train(
            model, theta0, X, Y[:, :1], loss=mn.mse,
            optimizer=mn.Adam(lr=0.06 * 0.7 * scale, b2=0.9, eps=1e-150), steps=8,
        )  # fmt: skip
        found.append(np.asarray(model(end.theta, X)))
    for f, right in zip(found, (True, False), strict=True):
        error = np.hypot(f.std(axis=0, ddof=1) / 8, limit.error.f[-1])
        off = np.abs(f.mean(axis=0) - limit.f[-1]).max() / (4 * error.max() + 1 / 128)
        assert (off < 1) == right, off


def test_adam_takes_the_inputs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descent does not depend on the basis of the inputs' span, but Adam does. Adam therefore receives x / sqrt(d)."""
    seen = []
    monkeypatch.setattr(nonlinear, "_over_groups", lambda problem, *_: seen.append(problem.Z))
    for lr in (0.1, mn.Adam(lr=0.1)):
        an.feature_learning_limit(
            spec(mn.Erf()), X, Y, gamma0=1.0, lr=lr, steps=1, samples=128, rng=np.random.default_rng(0)
        )
    np.testing.assert_allclose(seen[1], X / 2, rtol=1e-15)
    np.testing.assert_allclose(seen[0] @ seen[0].T, X @ X.T / 4, rtol=1e-12)
    assert np.abs(seen[0][:, :3] - X[:, :3] / 2).max() > 0.1


def test_refusals() -> None:
    def limit(lr: Any, samples: int = 128) -> None:
        an.feature_learning_limit(
            spec(mn.Erf(), mn.Erf()), X, Y, gamma0=1.0, lr=lr, steps=1, samples=samples, rng=np.random.default_rng(0)
        )

    with pytest.raises(TypeError, match=r"lr expects a number, mn.SGD\(...\) or mn.Adam"):
        limit(mn.Nesterov(lr=0.1))
    for lr in (mn.SGD(lr=0.1, weight_decay=0.1), mn.Adam(lr=mn.Cosine(0.1, steps=10))):
        with pytest.raises(ValueError, match="constant rate and no weight decay"):
            limit(lr)
    with pytest.raises(MemoryError, match="needs about"):
        limit(mn.Adam(lr=0.1), samples=16 * 10**6)
