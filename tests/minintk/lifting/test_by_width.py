"""Test coordinate checks of torch modules, with their own weights and rates or with those of a parametrization."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.lifting import by_width
from tests.kit import torch_standin

STANDIN = torch_standin.nn
X, Y = mn.datasets.digits(dtype=np.float32).subset(32, np.random.default_rng(0)).one_hot()
CHECK: dict[str, Any] = {
    "optimizer": mn.SGD(lr=0.1),
    "loss": mn.mse,
    "widths": (64, 128, 256, 512),
    "seeds": 8,
    "budget": 64,
}


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift without the check, because a stand-in module cannot be run. `test_torch_itself` checks torch's modules."""
    monkeypatch.setattr(by_width, "lift", lambda module, shape, check=True: mn.lift(module, shape, check=False))


def module(n: int, rng: np.random.Generator, mup: bool) -> Any:
    """Return an MLP whose weights have the initial sizes of muP or of torch's defaults."""
    sizes = (64, n, n, 10)
    model = STANDIN.Sequential(
        STANDIN.Linear(64, n), STANDIN.Tanh(), STANDIN.Linear(n, n), STANDIN.Tanh(), STANDIN.Linear(n, 10)
    )
    layers = [layer for layer in model.modules() if hasattr(layer, "weight")]
    for layer, (fan_in, fan_out) in zip(layers, pairwise(sizes), strict=True):
        std = (1 / n if fan_out == 10 else fan_in**-0.5) if mup else (3 * fan_in) ** -0.5
        layer.weight = std * rng.standard_normal((fan_out, fan_in))
        layer.bias = np.zeros(fan_out) if mup else std * rng.standard_normal(fan_out)
    return model


RNG = np.random.default_rng(3)


def rates(n: int) -> dict[str, float]:
    """Return muP's rates for gradient descent: n / 64 for first weights and hidden biases, 64 / n for last weights."""
    return {"0.weight": n / 64, "0.bias": n / 64, "2.bias": n / 64, "4.weight": 64 / n}


def test_a_module_with_its_rates_passes() -> None:
    assert mn.coordinate_check(lambda n: (module(n, RNG, True), rates(n)), X, Y, **CHECK).passed


def test_a_module_without_them_fails_and_its_tensors_are_named() -> None:
    """With equal rates, the check blames rates of first and last weights (muP) or initial last weights (torch)."""
    blame = mn.coordinate_check(lambda n: module(n, RNG, True), X, Y, **CHECK).blame
    assert blame["0.W"] == blame["4.W"] == "rate"
    assert "2.W" not in blame
    assert mn.coordinate_check(lambda n: module(n, RNG, False), X, Y, **CHECK).blame["4.W"] == "start"


def test_a_parametrization_replaces_weights_and_rates() -> None:
    net = by_width.of_width(lambda n: module(n, RNG, False), 64, (64,))
    other = mn.Sequential(*net.spec.layers)
    asked, same = (
        mn.coordinate_check(make, X, Y, parametrization=mn.NTK(), **CHECK | {"widths": (64, 128)})
        for make in (lambda n: module(n, RNG, False), lambda n: _widened(other, n))
    )
    for one, two in zip(asked.rows, same.rows, strict=True):
        np.testing.assert_array_equal(one.values[0], two.values[0])
    assert asked.blame != {}


def _widened(spec: mn.Sequential, n: int) -> mn.Sequential:
    return mn.Sequential(mn.Dense(n, b_std=1.0), mn.Tanh(), mn.Dense(n, b_std=1.0), mn.Tanh(), spec.layers[-1])


def test_transfer_takes_them_too() -> None:
    found = mn.learning_rate_transfer(
        lambda n: (module(n, RNG, True), rates(n)), X, Y, rates=[0.1, 0.3, 1, 3, 10], optimizer=mn.SGD, loss=mn.mse,
        steps=5, widths=(64, 128), seeds=2,
    )  # fmt: skip
    assert found.losses.shape == (2, 5, 2)


def test_every_member_is_another_module_and_rates_reach_theirs() -> None:
    net = by_width.of_width(lambda n: (module(n, RNG, True), {"4.weight": 0.25}), 64, (64,))
    theta = net.init(np.random.default_rng(0), ensemble=2, dtype=np.float32)
    assert theta.dtype == np.float32
    assert np.all(net.layout.unpack(theta[0])["0.W"] != net.layout.unpack(theta[1])["0.W"])
    for optimizer in ("sgd", "adam"):
        scales = net.layout.unpack(net.layout.learning_rate_scales(rule=optimizer))
        assert np.all(scales["4.W"] == 0.25)
        assert np.all(scales["2.W"] == 1)


def test_wrong_names_and_batches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rates expects names among \['0\.weight', .*, got \['9\.weight'\]"):
        by_width.of_width(lambda n: (module(n, RNG, True), {"9.weight": 1.0}), 64, (64,))
    with pytest.raises(mn.UnsupportedLayer, match="without normalisation by batches"):
        by_width.of_width(lambda n: STANDIN.Sequential(STANDIN.Linear(3, n), STANDIN.BatchNorm1d(n)), 4, (3,))


def test_torch_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a custom `forward` is checked when lifted."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(by_width, "lift", partial(mn.lift))
    nn = torch.nn

    class Own(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(64, n), nn.Linear(n, n), nn.Linear(n, 10)
            for layer in (self.a, self.b, self.c):
                nn.init.normal_(layer.weight, std=1 / n if layer is self.c else layer.in_features**-0.5)
                nn.init.zeros_(layer.bias)

        def forward(self, x: Any) -> Any:
            return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))

    def right(n: int) -> Any:
        return Own(n).eval(), {"a.weight": n / 64, "a.bias": n / 64, "b.bias": n / 64, "c.weight": 64 / n}

    torch.manual_seed(0)
    assert mn.coordinate_check(right, X, Y, **CHECK).passed
    assert mn.coordinate_check(lambda n: Own(n).eval(), X, Y, **CHECK).blame["4.W"] == "rate"
