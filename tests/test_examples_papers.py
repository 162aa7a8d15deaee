"""The scripts that rerun a paper: each runs, reduced, its numbers carry its claim, and wrong numbers are refused."""

import importlib
import json
import sys
from collections.abc import Callable
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays_under_test import namespace

from minintk.arrays import to_library

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
Found = dict[str, Any]


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a script is run: its own folder first."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setitem(sys.modules, "common", importlib.import_module("common"))


def check_iterative(found: Found) -> None:
    behind = {float(K): value for K, value in found["behind gradient descent"].items()}
    assert behind[inf][0] - behind[inf][1] > 0.01  # below, by more than its interval and a point
    for K in behind:
        if inf > K:
            assert behind[K][0] - behind[K][1] < 0.02
    assert found["drops"]["400"][0][0] > 0.1
    assert isfinite(found["adaptive against fixed"][0])


def check_lenet(found: Found) -> None:
    narrow, wide = found["gap"][0]
    assert narrow[0] - wide[0] > 0.02
    assert wide[0] > -0.05
    assert found["stable rate"][0][0] > found["stable rate"][0][1]


def check_spectrum(found: Found) -> None:
    for kind in ("rank of J", "rank of kernel"):
        narrow, wide = found[kind][0]
        assert 1 < narrow[0] < wide[0] < 0.8 * 300


def check_exact(found: Found) -> None:
    cells = found["shifts up to 0"]
    for cell in cells.values():
        assert cell["solver, train"][0] == 1
    assert cells["x2"]["solver, test"][0] > cells["x1"]["solver, test"][0]
    dip = found["threshold, shifts up to 0"]  # at N near the rank of J: fewer digits are better there
    narrow, wide, rank = (list(dip[name].values()) for name in ("x1", "x2", "rank"))
    few, *middle, _ = narrow
    assert min(m[0] + m[1] for m in middle) < few[0] - few[1]
    assert wide[2][0] > wide[0][0]
    assert 433 < rank[0][0] < 867
    assert 1 < cells["x1"]["P / N"][0] < 1.05


def check_alexnet(found: Found) -> None:
    for name in ("LinAlexNet", "LinAlexNet, 10 x rate"):
        assert found["AlexNet"][0][0] > found[name][0][0]


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "iterative_linearisation": (
        {"periods": (1, 20, 400, inf), "width": 32, "n_train": 300, "steps": 1600, "every": 100, "lr": 0.1, "seeds": 2},
        check_iterative,
        {"behind gradient descent": {"1": (0.0, 0.0), "20": (0.0, 0.0), "inf": (0.0, 0.01)}},
    ),
    "lenet_and_its_linearisation": (
        {"widths": (1, 4), "shifts": (0,), "n_train": 800, "epochs": 10, "seeds": 2},
        check_lenet,
        {"gap": {0: [(0.1, 0.01), (0.1, 0.01)]}},
    ),
    "spectrum_of_lenet": (
        {"widths": (1, 4), "n": 30, "seeds": 3},
        check_spectrum,
        {"rank of J": {0: [(200.0, 1.0), (100.0, 1.0)]}},
    ),
    "exact_linearised_lenet": (
        {"widths": (1, 2), "shifts": (0,), "seeds": 3, "epochs": 0, "dips": 5},
        check_exact,
        {"shifts up to 0": {"x1": {"solver, train": (0.9, 0.0)}}},
    ),
    "reduced_alexnet": (
        {"widths": (1,), "n_train": 800, "epochs": 8, "seeds": 1},
        check_alexnet,
        {"AlexNet": [(0.1, 0.0)]},
    ),
}
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
    "iterative_linearisation": {"width": 4, "n_train": 120, "steps": 4, "every": 2, "periods": (1, 2, inf), "seeds": 2},
    "lenet_and_its_linearisation": {"widths": (1,), "shifts": (0,), "n_train": 40, "epochs": 1, "seeds": 2},
    "spectrum_of_lenet": {"widths": (1,), "n": 5, "seeds": 1},
    "exact_linearised_lenet": {"widths": (1,), "shifts": (0,), "n_train": 40, "seeds": 1, "epochs": 1, "dips": 2},
    "reduced_alexnet": {"widths": (1,), "n_train": 40, "epochs": 1, "seeds": 1},
}


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
