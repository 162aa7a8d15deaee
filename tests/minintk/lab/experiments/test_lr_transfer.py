"""Test learning-rate transfer: the parabola, the bootstrap, and networks whose best rate is or is not constant."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.lab.experiments import named
from minintk.lab.experiments.lr_transfer import Transfer, _optima

DIGITS = mn.datasets.digits(dtype=np.float32).subset(48, np.random.default_rng(0))
X, Y = DIGITS.one_hot()
WIDTHS = (64, 128, 256, 512)


def transfer(**told: Any) -> Transfer:
    settings: dict[str, Any] = {
        "rates": 2.0 ** np.arange(-2, 3.1, 0.5), "optimizer": mn.SGD, "loss": mn.mse, "steps": 20, "widths": WIDTHS
    } | told  # fmt: skip
    return mn.learning_rate_transfer(settings.pop("spec", named.spec_of_width("mlp", 10, 2)), X, Y, **settings)


def test_planted_optima_are_found() -> None:
    """For noisy losses exp(.2 (log2 lr - b log2(n/64) - .3)^2), best rates, the shift and intervals are correct."""
    rng, rates = np.random.default_rng(0), 2.0 ** np.arange(-10, 4)
    for b in (0.0, -1.0):
        centre = 0.3 + b * np.log2(np.array(WIDTHS) / 64)
        logs = 0.2 * (np.log2(rates)[None, :, None] - centre[:, None, None]) ** 2
        losses = np.exp(logs + 0.02 * rng.standard_normal((len(WIDTHS), len(rates), 8)))
        optima, shift = _optima(WIDTHS, tuple(rates), losses, rng)
        assert shift.interval[0] <= b <= shift.interval[1]
        assert shift.value == pytest.approx(b, abs=0.05)
        for optimum, c in zip(optima, centre):
            assert optimum.value == pytest.approx(2**c, rel=0.06)
            assert optimum.interval[0] / 1.05 < 2**c < optimum.interval[1] * 1.05
        found = Transfer("", WIDTHS, tuple(rates), losses, optima, shift)
        assert found.passed == (b == 0)
        assert found.at_edge == ()
        assert found.spread == pytest.approx(2 ** (-3 * b), rel=0.15)


def test_intervals_of_few_seeds_cover_the_best_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4 seeds, 95 % intervals cover the planted rate in about 95 % of cases; unwidened ones, in about 80 %."""
    monkeypatch.setattr("minintk.lab.experiments.lr_transfer.RESAMPLES", 200)
    rng, rates, covered = np.random.default_rng(0), 2.0 ** np.arange(-4, 5), []
    for _ in range(120):
        logs = 0.2 * (np.log2(rates)[:, None] - 0.3) ** 2 + 0.1 * rng.standard_normal((4, 9, 4))
        optima, _ = _optima(WIDTHS, tuple(rates), np.exp(logs + 0.1 * rng.standard_normal((4, 1, 4))), rng)
        covered += [found.interval[0] <= 2**0.3 <= found.interval[1] for found in optima]
    assert 0.9 < np.mean(covered) < 0.985


def test_a_best_rate_at_the_edge_is_no_pass() -> None:
    rates = (1.0, 2.0, 4.0)
    losses = np.stack([np.full((3, 4), 1.0) * np.array([[3.0], [2.0], [1.0]])] * 2)
    found = Transfer("", (64, 128), rates, losses, *_optima((64, 128), rates, losses, np.random.default_rng(0)))
    assert found.at_edge == (64, 128)
    assert found.spread == 1
    assert not found.passed
    assert "fail: the best rate is at the edge of the rates at width 64, 128" in found.report()
    assert "constant" not in found.report()


@pytest.mark.parametrize(
    ("optimizer", "rates", "widths"),
    [
        (mn.SGD, 2.0 ** np.arange(-2, 3.1, 0.5), WIDTHS[:3]),
        pytest.param(mn.SGD, 2.0 ** np.arange(-2, 3.1, 0.5), WIDTHS, marks=pytest.mark.slow),
        pytest.param(mn.Adam, 2.0 ** np.arange(-5, 2.1, 0.5), WIDTHS, marks=pytest.mark.slow),
    ],
    ids=["SGD", "SGD, to 512", "Adam"],
)
def test_the_best_rate_stays_in_mup_and_moves_in_standard(optimizer: Any, rates: Any, widths: Any) -> None:
    found = transfer(optimizer=optimizer, rates=rates, widths=widths)
    assert found.passed, found.report()
    assert abs(found.shift.value) < 0.2
    small = rates / 16 if optimizer is mn.SGD else rates / 128
    wider = np.concatenate([small[0] * 2.0 ** np.arange(-2, 0, 0.5), small])
    other = transfer(optimizer=optimizer, rates=wider, widths=widths, parametrization=mn.Standard())
    assert other.shift.interval[1] < -0.4, other.report()  # the best rate falls with width, in the limit as n^-1
    assert not other.passed


def test_a_network_that_diverges_counts_with_its_start() -> None:
    net = mn.Network(named.spec_of_width("mlp", 10, 2)(64), (64,), mn.SpectralMuP())
    found = transfer(widths=(64, 128), rates=(0.5, 1.0, 1e4), seeds=3)
    theta = net.init(np.random.default_rng(0), dtype=np.float32)
    assert np.all(found.losses[:, 2] > found.losses[:, 0])
    assert np.all(np.isfinite(found.losses))
    assert found.losses[0, 2].mean() == pytest.approx(float(mn.mse(net(theta, X), Y)), rel=0.2)


def test_an_optimiser_may_depend_on_the_network() -> None:
    """An optimiser class that takes a layout gives the same losses as a function rate -> (network -> optimiser)."""
    told: dict[str, Any] = {"widths": (16, 32), "seeds": 2, "steps": 3, "rates": (0.02, 0.1, 0.5)}
    one = transfer(optimizer=mn.SpectralDescent, **told)
    two = transfer(optimizer=lambda lr: lambda net: mn.SpectralDescent(lr, net.layout), **told)
    np.testing.assert_array_equal(one.losses, two.losses)
    assert not np.array_equal(transfer(optimizer=mn.Muon, **told).losses, one.losses)
    with pytest.raises(TypeError, match="optimizer expects one such as"):
        transfer(optimizer=lambda lr: lr, **told)


def test_where_no_rate_trains_that_is_said() -> None:
    found = transfer(rates=(1e4, 2e4, 4e4), widths=(16, 32), seeds=2, steps=5)
    assert found.untrained == (16, 32)
    assert not found.passed
    assert "fail: no rate trained at width 16, 32" in found.report()
    assert "constant" not in found.report()
    depth = transfer(spec=lambda L: named.spec_of_width("resnet", 10, L)(16), widths=(2, 4), seeds=2, steps=1)
    assert "per doubling of the depth" in depth.report()


def test_report_and_figure() -> None:
    found = transfer(widths=(64, 128), seeds=2, optimizer=partial(mn.SGD, momentum=0.5), steps=5)
    assert "per doubling of the width: 2^b with b = " in found.report()
    axes = found.plot().axes[0]
    assert len([line for line in axes.lines if len(line.get_xdata()) > 2]) == 2
    assert found.plot(axes) is axes


def test_errors_say_what_was_expected() -> None:
    with pytest.raises(ValueError, match="rates expects three or more learning rates > 0, increasing"):
        transfer(rates=(1.0, 0.5, 2.0))
    with pytest.raises(ValueError, match="widths expects two different"):
        transfer(widths=(64,))
    with pytest.raises(ValueError, match="seeds expects a whole number >= 2, got 1"):
        transfer(seeds=1)
    with pytest.raises(ValueError, match=r"spec_of_width gives 296 parameters at all of the widths \(64, 128"):
        transfer(spec=lambda n: mn.Sequential(mn.Dense(4), mn.Tanh(), mn.Dense(10, w_std=0.3)))
    huge: dict[str, Any] = {
        "rates": [0.1, 0.2, 0.4],
        "optimizer": mn.SGD,
        "loss": mn.mse,
        "steps": 2,
        "widths": (8, 16),
    }
    with pytest.raises(FloatingPointError, match="the loss before training is inf: scale x and y"):
        mn.learning_rate_transfer(named.spec_of_width("mlp", 10, 1), X, 1e30 * Y, **huge)


def test_a_loss_of_zero_has_a_best_rate() -> None:
    """A loss of exactly zero, whose log is -infinity, still gives a best rate."""
    x, y = np.zeros((1, 3)), np.zeros((1, 1))
    found = mn.learning_rate_transfer(
        lambda n: mn.Sequential(mn.Dense(n), mn.Dense(1)), x, y, rates=[0.1, 0.2, 0.4], optimizer=mn.SGD, loss=mn.mse,
        steps=1, widths=(4, 8), seeds=2,
    )  # fmt: skip
    assert found.losses.max() == 0
    assert all(0.1 <= best.value <= 0.4 for best in found.optima)
    assert found.shift.value == 0


def test_the_regret_is_the_loss_at_another_widths_rate() -> None:
    losses = np.repeat([[[4.0], [1.0], [3.0]], [[2.0], [6.0], [2.5]]], 2, axis=-1)  # best rates: second, first
    rates = (0.1, 0.2, 0.4)
    found = Transfer("", (64, 128), rates, losses, *_optima((64, 128), rates, losses, np.random.default_rng(0)))
    assert found.regret == pytest.approx(4.0)  # at width 64 with the first rate; 3 at width 128 with the second
