"""Test scripts for linearised networks in two papers. At reduced size, results pass checks, and wrong results fail."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from tests.project.reruns import Found, check_script, importable, on_standin, scripts


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    importable(monkeypatch, "common", "windows", "interpolation_threshold")
    monkeypatch.setattr(sys.modules["windows"], "LONGEST", 64)


def check_iterative(found: Found) -> None:
    """Check that networks relinearised every K steps learn at higher rates for K = 1 and infinity than for other K.

    Some runs stay inside the bounds along their paths, and all of these learn.
    """
    first, *finite, last = found["largest"]
    assert min(first, last) > max(finite) > 0
    good, all_inside = found["inside"]
    assert good == all_inside > 0
    curvature = np.array(found["curvature"])
    assert (curvature.max(1) > 20 * curvature[:, 0]).all()


def check_lenet(found: Found) -> None:
    narrow, wide = found["gap"]["LinLeNet, 0"]
    assert narrow[0] - wide[0] > 0.02
    assert wide[0] > -0.05
    assert found["stable rate"][0][0] > found["stable rate"][1][0]


def check_spectrum(found: Found) -> None:
    for kind in ("rank of J", "rank of kernel"):
        narrow, wide = found[kind][0]
        assert 1 < narrow[0] < wide[0] < 0.8 * 300


def check_trajectories(found: Found) -> None:
    """Output moments must approach the linearisation's with width, and paths must be closer than independent ones."""
    narrow, wide = found["statistics"]
    assert narrow[0] > wide[0] + 0.02
    assert all(0.5 < paths[0] < 2**0.5 for paths in found["paths"])


def check_exact(found: Found) -> None:
    """Check that the exact solution of the narrow network overfits.

    The ridge solution is at least as accurate as SGD, up to .01. The stopped flow is as accurate as SGD, up to .02.
    """
    assert np.min(found["train"]) == 1
    (narrow, wide), (sgd, _), (ridge, _) = (found[name][0] for name in ("solver", "linearised", "ridge"))
    assert wide[0] > narrow[0]
    assert ridge[0] > sgd[0] - 0.01
    assert ridge[0] > narrow[0]
    assert abs(found["stopped"][0][0][0] - sgd[0]) < 0.02
    assert 1 < found["P / N"][0] < 1.05


def check_threshold(found: Found) -> None:
    """Check that, as digits are added, accuracy at x1 dips over .03 below the first and at x2 ends above the first."""
    by = found["shifts up to 0"]
    few, *middle, _ = by["x1"]
    assert min(m[0] for m in middle) < few[0] - 0.03
    assert by["x2"][-1][0] > by["x2"][0][0]
    assert 433 < by["rank"][0] < 867


def check_alexnet(found: Found) -> None:
    for name in ("LinAlexNet", "LinAlexNet, 10 x rate"):
        assert found["AlexNet"][0][0] > found[name][0][0]


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "iterative_linearisation": (
        {"periods": (1, 2, 50, inf), "n_train": 30, "rates": 4, "lowest": (0.015, 15.0)},
        check_iterative,
        {"largest": [0.1, 0.1, 0.1, 0.1]},
    ),
    "lenet_and_its_linearisation": (
        {"widths": (1, 4), "shifts": (0,), "n_train": 600, "epochs": 8, "n_test": 800},
        check_lenet,
        {"gap": {"LinLeNet, 0": [(0.1, 0.01), (0.1, 0.01)]}},
    ),
    "spectrum_of_lenet": (
        {"widths": (1, 4), "n": 30},
        check_spectrum,
        {"rank of J": {0: [(200.0, 1.0), (100.0, 1.0)]}},
    ),
    "trajectories_of_lenet": (
        {"widths": (1, 3), "n_train": 1500, "n_test": 297, "seeds": 3},
        check_trajectories,
        {"statistics": [(0.5, 0.1), (0.5, 0.1)]},
    ),
    "exact_linearised_lenet": (
        {"widths": (1, 2), "shifts": (0,), "seeds": 2, "epochs": 10},
        check_exact,
        {"ridge": [[(0.5, 0.1), (0.9, 0.1)]]},
    ),
    "interpolation_threshold": (
        {"shifts": (0,), "seeds": 3},
        check_threshold,
        {"shifts up to 0": {"x1": [(0.9, 0.0)] * 5, "x2": [(0.9, 0.0)] * 5, "rank": (600.0, 1.0)}},
    ),
    "reduced_alexnet": (
        {"widths": (1,), "n_train": 800, "epochs": 8, "seeds": 1},
        check_alexnet,
        {"AlexNet": [(0.1, 0.0)]},
    ),
}
"""{script: (arguments of a reduced run, check of the results, wrong results)}."""

TINY: dict[str, dict[str, Any]] = {
    "iterative_linearisation": {"periods": (1, 8, inf), "n_train": 10, "rates": 2, "lowest": (1.0, 4.0)},
    "lenet_and_its_linearisation": {"widths": (1,), "shifts": (0,), "n_train": 40, "n_test": 40, "epochs": 1},
    "spectrum_of_lenet": {"widths": (1,), "n": 5, "seeds": 1},
    "exact_linearised_lenet": {"widths": (1,), "shifts": (0,), "n_train": 40, "seeds": 1, "epochs": 1},
    "interpolation_threshold": {"shifts": (0,), "seeds": 1, "n_train": 40},
    "trajectories_of_lenet": {"widths": (1,), "n_train": 64, "n_test": 20, "epochs": 2, "seeds": 2},
    "reduced_alexnet": {"widths": (1,), "n_train": 40, "n_test": 40, "epochs": 1, "seeds": 1},
}


@pytest.mark.parametrize("name", scripts(PAPERS, {*TINY}))  # by default, only the TINY runs are tested
def test_script(name: str, tmp_path: Path) -> None:
    check_script(name, PAPERS[name], tmp_path)


@pytest.mark.parametrize("name", sorted(TINY))
def test_script_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with the strict stand-in for a GPU gives the same table and converts no array implicitly."""
    module, common = importlib.import_module(name), importlib.import_module("common")
    monkeypatch.setattr(module, "ceil", lambda steps: min(ceil(steps), 600), raising=False)  # 15,000 for K = infinity
    on_host = module.main(common.Setting(name), **TINY[name])
    shared = [importlib.import_module(each) for each in ("windows", "interpolation_threshold")]
    moved = on_standin(monkeypatch, module, *shared)
    on_device = module.main(common.Setting(name), **TINY[name])
    assert moved
    assert on_device["table"] == on_host["table"]


def test_windows_are_iterative_linearisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows give the theta of `mn.train` up to rounding, whether computed from the Gram matrix or step by step."""
    windows = importlib.import_module("windows")
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(7), mn.Tanh(), mn.Dense(3)), (4,))
    theta0, x, y = net.init(rng), rng.standard_normal((6, 4)), np.eye(3)[rng.integers(0, 3, 6)]
    ends = {}
    for K in (1, 3, 8, 10, inf):
        model = mn.IterativelyLinearized(net, theta0, K)
        *_, end = mn.train(model, theta0, x, y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(0.7), steps=240)
        for rows in (0, 2000):
            monkeypatch.setattr(windows, "ROWS", rows)
            *_, last = windows.descend(net, theta0, x, y, 0.7, K, 240)
            assert np.abs(last.theta - end.theta).max() < 1e-10
        ends[K] = end.theta
    assert min(np.abs(ends[K] - ends[1]).max() for K in (3, 8, 10, inf)) > 1e-3


def test_the_curvature_is_that_of_the_linear_models_loss() -> None:
    """The curvature is the largest eigenvalue of J' H J, for the Hessian H of the loss with respect to the outputs."""
    windows = importlib.import_module("windows")
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(7), mn.Tanh(), mn.Dense(3)), (4,))
    theta0, x, y = net.init(rng), rng.standard_normal((6, 4)), np.eye(3)[rng.integers(0, 3, 6)]
    J = net.linearize(theta0, x)[1].dense().reshape(18, -1)
    p = np.exp(f := net(theta0, x)) / np.exp(f).sum(-1, keepdims=True)
    H = np.zeros((18, 18))
    for n in range(6):
        at = slice(3 * n, 3 * n + 3)
        H[at, at] = (np.diag(p[n]) - np.outer(p[n], p[n])) / 6
    assert windows.Window(net, theta0, x, y).curvature() == pytest.approx(np.linalg.eigvalsh(J.T @ H @ J)[-1], rel=1e-3)


def test_every_size_is_one_that_main_takes() -> None:
    for name in PAPERS:
        module = importlib.import_module(name)
        assert set(module.SIZES) == {"small", "evening", "paper"}
        taken = set(module.main.__code__.co_varnames[: module.main.__code__.co_argcount])
        assert all(set(size) <= taken for size in module.SIZES.values())
