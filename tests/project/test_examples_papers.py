"""The scripts that rerun a paper: each runs, reduced, its numbers carry its claim, and wrong numbers are refused."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays_under_test import namespace

from minintk.arrays import to_library

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Found = dict[str, Any]


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a script is run: its own folder first."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for shared in ("common", "geiger"):
        monkeypatch.setitem(sys.modules, shared, importlib.import_module(shared))


def check_phase(found: Found) -> None:
    assert abs(found["crossover"][0] + 0.5) < 0.3
    for value, low, high in found["Var f"].values():
        assert high < -0.3
        assert abs(value + 1) < 4 * (high - low) / 3.92  # standard errors
    assert found["gain of averaging"]["lazy"][0][0] > 0
    assert found["alpha*"][0][0] > found["alpha*"][1][0]


def check_movement(found: Found) -> None:
    for name, theory in (("L = 2", 4 / 3), ("L = 5", 5 / 3)):
        (feature, _), (lazy, _) = found["kernel"][name]
        assert abs(feature + theory) < 0.15
        assert abs(lazy + 1) < 0.15
        weights, _ = found["weights"][name]
        assert 0 < -weights[0] + 0.02 - (theory / (2 * int(name[-1]))) < 0.2
    assert found["in width"][0] < -0.2  # the change does not collapse


def check_times(found: Found) -> None:
    for (low, _), (high, _) in found["t1 by decade"].values():
        assert 0.88 < high < low < 1.01  # nearer to 1 the smaller s is
    for slope, _ in found["t1 in h"].values():
        assert abs(slope) < 0.15
    assert abs(found["linear"][0] - 1) < 0.05
    for slope, half in found["speeds"]:
        assert abs(slope + 0.5) < max(0.3, half)


def check_frozen(found: Found) -> None:
    away = found["distance"]
    for i in range(len(found["widths"])):
        assert away["lazy, first"][i] < 0.02
        assert away["feature, first"][i] > 2 * away["feature, last"][i]
        assert abs(found["behind"]["feature, last"][i][0]) < 0.03


def check_cnn(found: Found) -> None:
    assert found["gain of averaging"]["lazy"][0][0] > 0
    assert all(error < 0.45 for error, _ in found["error"].values())  # they learned something
    assert set(found["error"]) == {"feature, 4", "lazy, 4"}


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "lazy_and_feature_phase": (
        {"widths": (16, 64), "ends": (), "wide": (128, 512), "scales": (0.1, 3.0, 30.0, 1000.0),
         "seeds": 5, "many": 6, "n_train": 30},
        check_phase,
        {"Var f": {"lazy": (-0.1, -0.3, 0.1)}},  # a variance that knows no width
    ),
    "kernel_movement_exponents": (
        {"scales": (0.01, 0.1, 100.0, 1000.0), "cases": ("L = 2", "L = 5"), "width": 32, "widths": (16, 64), "seeds": 3,
         "n_train": 20},
        check_movement,
        {"kernel": {"L = 2": [(-2.0, 0.1), (-1.0, 0.1)], "L = 5": [(-1.67, 0.1), (-1.0, 0.1)]}},
    ),
    "time_to_learn": (
        {"widths": (16, 64), "scales": (1e-3, 1e-2, 1e-1), "fine": (32, 128), "seeds": 5, "n_train": 30},
        check_times,
        {"t1 by decade": {16: [(0.9, 0.01), (0.95, 0.01)]}},  # away from 1
    ),
    "frozen_final_kernel": (
        {"widths": (16, 32), "seeds": 3, "n_train": 30},
        check_frozen,
        {"distance": {"lazy, first": [0.5, 0.5], "feature, first": [0.5, 0.5], "feature, last": [0.1, 0.1]}},
    ),
    "feature_learning_in_a_cnn": (
        {"channels": (4,), "seeds": 3, "n_train": 20},
        check_cnn,
        {"error": {"feature, 4": (0.5, 0.01), "lazy, 4": (0.5, 0.01)}},
    ),
}  # fmt: skip
"""Name: the arguments of a small run, what its numbers must satisfy, and numbers that this must refuse."""


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_script(name: str, tmp_path: Path) -> None:
    arguments, check, wrong = PAPERS[name]
    found = importlib.import_module(name).main(out=str(tmp_path), **arguments)
    check(found)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert set(json.loads((tmp_path / f"{name}.json").read_text())) == set(found)
    assert all(len(row) == 3 and all(isinstance(cell, str) for cell in row) for row in found["table"])
    with pytest.raises(AssertionError):
        check(found | wrong)


def test_interval_covers_the_mean() -> None:
    """Student t intervals of 5 normal numbers cover their mean 95 % of the time: 2000 trials, within 4 errors."""
    common = importlib.import_module("common")
    rng = np.random.default_rng(0)
    covered = [abs(m) <= h for m, h in map(common.interval, rng.standard_normal((2000, 5)))]
    assert abs(np.mean(covered) - 0.95) < 4 * (0.95 * 0.05 / 2000) ** 0.5


def test_tested_covers_seeds_and_examples() -> None:
    """Scores with a seed's and an example's own part: the interval covers the true mean about 95 % of the time."""
    common = importlib.import_module("common")
    rng = np.random.default_rng(0)
    covered, blind = [], []
    for _ in range(600):
        score = 0.2 * rng.standard_normal((8, 1)) + rng.standard_normal((1, 50)) + 0.3 * rng.standard_normal((8, 50))
        mean, half = common.tested(score)
        covered.append(abs(mean) <= half)
        blind.append(abs(mean) <= 1.96 * score.mean(1).std(ddof=1) / 8**0.5)  # seeds only
    assert abs(np.mean(covered) - 0.95) < 0.05  # 8 seeds with normal quantiles: a few per cent short at most
    assert np.mean(blind) < 0.8  # an interval that forgets the examples is refused


TINY: dict[str, dict[str, Any]] = {
    "lazy_and_feature_phase": {
        "widths": (12, 24), "ends": (), "wide": (24, 48), "scales": (1.0, 1000.0), "seeds": 3, "many": 3, "n_train": 12,
    },
    "kernel_movement_exponents": {
        "scales": (0.05, 0.1, 1e2, 1e3), "cases": ("L = 2",), "width": 12, "widths": (12, 24), "seeds": 2,
        "n_train": 12,
    },
    "time_to_learn": {"widths": (12, 24), "scales": (0.01, 0.1), "fine": (8, 16), "seeds": 2, "n_train": 12},
    "frozen_final_kernel": {"widths": (32,), "seeds": 2, "n_train": 12},
    "feature_learning_in_a_cnn": {"channels": (4,), "seeds": 2, "n_train": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TINY))
def test_script_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `--scale paper` does on a GPU, on the strict stand-in: the same numbers, nothing left to NumPy."""
    module = importlib.import_module(name)
    on_host = module.main(**TINY[name])
    moved: list[int] = []

    def placed(scale: str, *arrays: Any) -> tuple[Any, ...]:
        moved.append(len(arrays))
        return tuple(to_library(a, namespace("standin")) for a in arrays)

    monkeypatch.setattr(module, "placed", placed)
    on_device = module.main(**TINY[name])
    assert moved
    assert on_device["table"] == on_host["table"]
