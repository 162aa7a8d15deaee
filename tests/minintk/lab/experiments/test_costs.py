"""Test the estimate of a sweep's remaining time when later runs take longer."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk import progress
from minintk.lab.experiments import sweeps
from minintk.lab.experiments.costs import Costs

WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)


def shares(axes: dict[str, tuple[Any, ...]], seconds: list[float], members: int = 1) -> list[tuple[float, float]]:
    """Return (stated time left, true time left) after each call except the last."""
    calls = [dict(zip(axes, values)) for values in product(*axes.values())]
    costs, spent, found = Costs(calls, [members] * len(calls)), 0.0, []
    for i, each in enumerate(seconds[:-1]):
        share, spent = costs.ended(i, each), spent + each
        found.append((spent / share - spent, sum(seconds) - spent))
    return found


@pytest.mark.parametrize("first", ["seed", "width"])
def test_the_time_left_of_a_cost_that_is_the_square(first: str) -> None:
    """If costs grow as width^2, the stated time left is correct to within a factor of 2 from the third run on.

    If the width varies slowest, estimates based on the number of runs are over 50 times too low after 3 to 6 runs.
    """
    axes: dict[str, tuple[Any, ...]] = {"width": WIDTHS, "seed": (0, 1, 2)}
    axes = dict(sorted(axes.items(), key=lambda item: item[0] != first))
    points = [dict(zip(axes, values)) for values in product(*axes.values())]
    rng = np.random.default_rng(0)
    seconds = [1e-6 * point["width"] ** 2 * float(np.exp(0.1 * rng.standard_normal())) for point in points]
    assert all(0.5 < said / left < 2 for said, left in shares(axes, seconds)[2:])
    if first == "width":
        spent = np.cumsum(seconds)
        by_count = [(spent[i] * (len(seconds) - i - 1) / (i + 1), spent[-1] - spent[i]) for i in range(2, 6)]
        assert min(left / said for said, left in by_count) > 50


@pytest.mark.parametrize("power", [0.0, 1.0, 3.0])
def test_another_power_is_learned(power: float) -> None:
    seconds = [float(w) ** power for w in WIDTHS for _ in range(3)]
    found = shares({"width": WIDTHS, "seed": (0, 1, 2)}, seconds)
    assert all(0.5 < said / left < 2 for said, left in found[8:])  # after three widths


def test_kinds_of_calls_take_their_own_time() -> None:
    """Linearisations (five times the cost) and calls with s = 0 (a tenth of the cost) are estimated separately."""
    axes = {"width": WIDTHS[:4], "kind": ("network", "linearised"), "s": (0.1, 10.0, 0.0)}
    each = [w**2 * five * tenth for w in WIDTHS[:4] for five in (1, 5) for tenth in (1, 1, 0.1)]
    assert all(0.5 < said / left < 2 for said, left in shares(axes, each)[6:])


def test_what_others_have_made_counts() -> None:
    costs = Costs([{"width": w} for w in (1, 2, 4)], [1, 1, 1])
    assert costs.ended(2) == pytest.approx(16 / 21)
    assert costs.ended(1, 40.0) == pytest.approx(20 / 21)
    assert costs.ended(0, 10.0) == 1


def test_a_sweep_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep prints the estimates. Each call advances the clock by the square of the width."""
    now = 0.0

    def work(width: int, seed: int) -> dict[str, float]:
        nonlocal now
        now += width**2
        return {"found": 1.0}

    for module in (sweeps, progress):
        monkeypatch.setattr(module, "perf_counter", lambda: now)
    mn.sweep(work, {"width": (10, 20, 40), "seed": (0, 1)}, store=tmp_path, progress=True)
    said = [line.partition("s, ")[2].split()[0] for line in capsys.readouterr().err.splitlines()]
    assert [float(each) for each in said] == pytest.approx([4100, 4000, 3600, 3200, 1600, 0], rel=1e-3)
