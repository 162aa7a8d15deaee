"""Test scripts for Geiger et al. 2020. At reduced size, results pass the checks, and wrong results fail."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import to_library
from tests.kit.arrays_under_test import namespace
from tests.project.reruns import Found, check_script, importable, scripts


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    importable(monkeypatch, "common", "geiger")


def check_exponents(found: Found) -> None:
    """Compare kernel and weight exponents in s, at fixed output, with theory (three seeds, s <= 1e-5)."""
    for L in (2, 5):
        assert abs(found["exponents"][f"kernel, L = {L}"][0] + 2 / (1 + 1 / L)) < 0.1
        assert abs(found["exponents"][f"weights, L = {L}"][0] + 1 / (L + 1)) < 0.06
    assert all(abs(gain[0] + 1 / 6) < 0.1 for gain in found["gains"])
    assert found["spread"] < 0.5  # the layers grow alike


def check_kernel_phase(found: Found) -> None:
    for name in ("kernel", "weights"):
        assert abs(found["lazy"][f"{name}, softplus"][0] + 1) < 0.15
    assert found["decades"]["kernel, softplus"][0][0] < -1.1  # steeper than in the lazy regime
    assert found["apart"]["weights, softplus"] < 0.6


def check_times(found: Found) -> None:
    for L in (2, 5):
        for slope, *_ in found["t1 by decade"][f"L = {L}"]:
            assert 0.85 < slope < 1.06
        assert found[f"lazy, L = {L}"] < 0.1  # the curves coincide
    for t1, t2 in zip(found["t1"], found["t2"]):
        assert all(a[0] <= b[0] for a, b in zip(t1[1], t2))


def check_linear(found: Found) -> None:
    assert all(abs(b[0] - 1) < 0.05 for b in found["in t"])
    assert all(abs(b[0] - 0.5) < max(0.25, b[1]) for b in found["in h"].values())
    assert all(abs(b[0] + 0.5) < max(0.25, b[1]) for b in found["layers"])


def check_frozen(found: Found) -> None:
    """Check that the final kernel is about as accurate as the network, and the initial kernel less accurate."""
    last, first = (found["behind"][f"sparse, feature, {kind}"][0] for kind in ("last", "first"))
    assert abs(last[0]) < last[1] + 0.02
    assert first[0] - last[0] > 0.05
    before, after = found["alignment"]["sparse"]
    assert after[0] > 2 * before[0]


def check_phase(found: Found) -> None:
    assert all(gap[0] > 0.05 for gap in found["lazy - feature"]["sparse"])
    assert all(1 < s < 30 for s in found["alpha*"]["sparse"][1])
    assert -1.8 < found["Var f"]["sparse"]["frozen kernel"][0] < -0.4


def check_cnn(found: Found) -> None:
    """Check that the networks learn, and that smaller steps use smaller batches."""
    assert all(error[0][0] < 0.45 for error in found["error"].values())
    assert found["batch"][0][0] < found["batch"][1][0]


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "kernel_movement_exponents": (
        {"scales": (1e-4, 1e-5, 1e-6), "ends": (0.1, 0.03), "width": 24, "seeds": 3, "n_train": 30},
        check_exponents,
        {"exponents": {"kernel, L = 5": (-2.0, 0.1)}},
    ),
    "kernel_movement_phase": (
        {"widths": (12, 24), "scales": (0.01, 0.1, 100.0, 1000.0), "depth": 2, "seeds": 2, "n_train": 12},
        check_kernel_phase,
        {"lazy": {"kernel, softplus": (-0.5, 0.1)}},
    ),
    "time_to_learn": (
        {"widths": (12, 24), "scales": (1e-3, 1e-2, 100.0, 1000.0), "seeds": 2, "n_train": 12},
        check_times,
        {"t1 by decade": {"L = 5": [(0.5, 0.01)]}},
    ),
    "linear_until_t1": (
        {"widths": (16, 64), "scales": (1e-3, 1e-2), "seeds": 3, "n_train": 12},
        check_linear,
        {"in t": [(0.5, 0.01)]},
    ),
    "frozen_final_kernel": (
        {"widths": (24,), "depth": 2, "seeds": 3, "n_train": 150, "n_test": 400},
        check_frozen,
        {"behind": {"sparse, feature, last": [(0.2, 0.02)]}},
    ),
    "lazy_and_feature_phase": (
        {"widths": (12, 24), "wide": (), "scales": (0.1, 5.0), "depth": 2, "seeds": 3, "n_train": 120,
         "n_test": 300},
        check_phase,
        {"lazy - feature": {"sparse": [(-0.01, 0.01)]}},
    ),
    "feature_learning_in_a_cnn": (
        {"channels": (8,), "seeds": 2, "n_train": 20, "n_test": 200},
        check_cnn,
        {"batch": [[20.0], [10.0]]},
    ),
}  # fmt: skip
"""{script: (arguments of a reduced run, check of the results, wrong results)}."""


LONG = {*PAPERS} - {"linear_until_t1"}
"""Scripts marked slow."""

TINY: dict[str, dict[str, Any]] = {
    "lazy_and_feature_phase": {
        "widths": (6, 8), "wide": (), "scales": (0.5, 5.0), "depth": 1, "seeds": 2, "n_train": 16, "n_test": 20,
    },
    "frozen_final_kernel": {"widths": (8,), "depth": 1, "seeds": 2, "n_train": 16, "n_test": 20},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TINY))
def test_script_comes_to_its_end(name: str, tmp_path: Path) -> None:
    """Even a run that is too small to test the claims returns the table and writes the files."""
    found = importlib.import_module(name).main(importlib.import_module("common").Setting(name, tmp_path), **TINY[name])
    assert found["table"]
    assert {path.suffix for path in tmp_path.iterdir()} >= {".png", ".json"}


@pytest.mark.parametrize("name", scripts(PAPERS, LONG))
def test_script(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "frozen_final_kernel":
        monkeypatch.setattr(importlib.import_module(name), "REGIMES", {"feature": 0.1})
    check_script(name, PAPERS[name], tmp_path)


def test_every_size_is_taken() -> None:
    """`main` takes exactly the arguments that each scale sets."""
    for name in PAPERS:
        module = importlib.import_module(name)
        assert set(module.SIZES) == {"small", "evening", "paper"}
        for size in module.SIZES.values():
            assert set(size) == set(module.main.__annotations__) - {"s", "return"}


@pytest.mark.slow
def test_runs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with the strict stand-in for GPU arrays gives similar results and converts no array implicitly."""
    shared = importlib.import_module("geiger")
    calls: dict[str, tuple[str, tuple[Any, ...]]] = {
        "kernel_movement_exponents": ("moved", ("digits", 14, 8, 1.0, 2, 0.1, (0, 1))),
        "time_to_learn": ("learned", ("digits", 14, True, 1, 16, 10.0, (0, 1))),
        "linear_until_t1": ("growth", ("digits", 14, 8, 0.1, (0, 1))),
        "frozen_final_kernel": ("compared", (8, 40, 1, "sparse", 1.0, 12, (0, 1))),
        "lazy_and_feature_phase": ("outputs", (8, 20, 1, "sparse", 12, 0.0, (0, 1))),
        "feature_learning_in_a_cnn": ("tested_on", ("digits", 4, 10, 6, 1.0, (0, 1))),
    }

    def placed(*arrays: Any) -> tuple[Any, ...]:
        return tuple(to_library(a, namespace("standin")) for a in arrays)

    for name, (work, arguments) in calls.items():
        module = importlib.import_module(name)
        on_host = getattr(module, work)(*arguments)
        with monkeypatch.context() as there:
            for where in (module, shared):
                there.setattr(where, "placed", placed)
            on_device = getattr(module, work)(*arguments)
        for here, other in zip(on_host, on_device, strict=True):
            assert here.keys() == other.keys()
            for key in here:
                np.testing.assert_allclose(other[key], here[key], rtol=0.02, atol=1e-3, err_msg=f"{name}: {key}")


def test_a_network_too_narrow_is_a_diverged_run() -> None:
    """A single neuron cannot learn the sign of x_1 x_2 for Gaussian x, so `trained` raises FloatingPointError."""
    geiger = importlib.import_module("geiger")
    (x, y), _ = geiger.task("sparse", 60, 1)
    net = geiger.network(1, 1)
    with pytest.raises(FloatingPointError, match=r"is too narrow for 60 examples: some are not learned at t = 1e7"):
        geiger.trained(net, geiger.start(net, (0,)), 100.0, x, y, times=50.0)


def test_the_stopping_rule_ends_at_the_size() -> None:
    """With until=1, training stops when the root mean square of outputs reaches 1. Otherwise, it continues."""
    geiger = importlib.import_module("geiger")
    (x, y), _ = geiger.task("digits", 20, 1)
    net = geiger.network(12, 2)
    theta0 = geiger.start(net, (0, 1, 2))
    for until, low, high in ((1.0, 1.0, 1.05), (None, 1.1, np.inf)):
        model, theta = geiger.trained(net, theta0, 0.1, x, y, until=until)
        size = np.sqrt((model(theta, x) ** 2).mean((-2, -1)))
        assert np.all((low <= size) & (size < high))
    assert isinstance(model, mn.Centred)
