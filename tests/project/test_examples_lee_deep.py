"""Test scripts for deep networks of Lee et al. 2019. At reduced size, results pass checks, and wrong results fail."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from tests.project.reruns import Found, check_script, importable, on_standin, same_claims, scripts


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    importable(monkeypatch, "common", "lee", "lee_training")


def check_wide_resnet(found: Found) -> None:
    """Check that networks approach their linearisations with width, exceed chance, and never diverge at eta = 1."""
    narrow, wide = (np.mean(v) for v in found["distance"])
    assert wide < 0.7 * narrow
    assert found["diverged"][0] == [0, 0]
    assert found["learned"] > 0.2
    assert abs(found["loss"][0]) < 50


def check_cross_entropy(found: Found) -> None:
    early = found["steps"].index(10)
    ratio = np.mean(found["ratio"], axis=1)  # (widths, steps)
    assert ratio[-1, early] < 0.15
    assert (ratio[:, -1] > 1.5 * ratio[:, early]).all()
    assert (np.diff(ratio[:, [early, -1]], axis=0) < 0).all()
    assert all(fit[0] < -0.4 for fit in found["exponents"].values())
    assert all(mean > 0.2 for mean, *_ in found["growth"])


def check_function_space(found: Found) -> None:
    assert max(found["exact"]) < 1e-11
    assert np.min(found["control"]) > 0.5
    for name, power in (("heavy ball", 0.5), ("cross-entropy", 1.0)):
        narrow, wide = np.mean(found[name]["distance"], axis=1)
        assert wide < 0.8 * narrow
        assert np.mean(found[name]["nearer"]) > 0.1
        assert abs(found[name]["order"][0] - power) < 0.15


def check_cnn(found: Found) -> None:
    narrow, wide = np.mean(found["distance"], axis=1)
    assert wide < 0.7 * narrow
    assert np.mean(found["control"][-1]) > 2 * wide
    assert found["learned"][0] < 0.9


def check_kernels(found: Found) -> None:
    for end in ("Flatten", "GlobalAvgPool"):
        for kind in ("NTK", "NNGP"):
            of = found[f"{end} {kind}"]
            assert abs(of["exponent"][0] + 0.5) < of["exponent"][1] + 0.1
            assert of["exponent"][0] < -0.3
            assert of["control"][0] > 3 * of["least"][0]


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "lee_wide_resnet": (
        {"channels": (8, 64), "early": 16, "steps": 120, "seeds": 3, "long": 16, "n_test": 60},
        check_wide_resnet,
        {"diverged": [[0, 1], [0, 1]]},
    ),
    "lee_cross_entropy": (
        {"widths": (32, 256), "steps": 200, "seeds": 3, "n_train": 1000, "n_test": 100},
        check_cross_entropy,
        {"exponents": {"early": (0.0, -0.1, 0.1)}},
    ),
    "lee_function_space": (
        {"widths": (64, 512), "steps": 100, "seeds": 3, "n": 20},
        check_function_space,
        {"exact": [1e-15, 1e-6]},
    ),
    "lee_cnn": (
        {"channels": (8, 64), "steps": 60, "seeds": 4, "n": 20},
        check_cnn,
        {"control": [[0.0, 0.0], [0.0, 0.0]]},
    ),
    "lee_convolutional_kernels": (
        {"channels": (16, 32, 64), "draws": 16, "repeats": 12, "n": 6},
        check_kernels,
        {"Flatten NTK": {"exponent": (-0.25, 0.05, "seeds")}},
    ),
}
"""{script: (arguments of a reduced run, check of the results, wrong results)}."""

TINY: dict[str, dict[str, Any]] = {
    "lee_wide_resnet": {
        "channels": (4, 8), "early": 2, "steps": 3, "seeds": 2, "long": 4, "n_train": 40, "n_test": 6,
    },
    "lee_cross_entropy": {"widths": (8, 16), "steps": 12, "seeds": 2, "n_train": 100, "n_test": 5},
    "lee_function_space": {"widths": (8, 16), "steps": 10, "seeds": 2, "n": 10},
    "lee_cnn": {"channels": (4, 8), "steps": 4, "seeds": 2, "n": 6},
    "lee_convolutional_kernels": {"channels": (4, 8), "draws": 4, "repeats": 2, "n": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", scripts(PAPERS, {*TINY}))  # by default, only the TINY runs are tested
def test_script(name: str, tmp_path: Path) -> None:
    check_script(name, PAPERS[name], tmp_path)


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_script_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with the strict stand-in for a GPU makes the same claims and converts no array implicitly.

    The check that warns of unstable rates is disabled, because it takes longer than the few steps of a run.
    """
    monkeypatch.setattr("minintk.training.train.warn_if_unstable", lambda *_, **__: None)
    module, shared, common = (importlib.import_module(each) for each in (name, "lee_training", "common"))
    on_host = module.main(common.Setting(name), **TINY[name])
    if hasattr(module, "theory"):
        module.theory.cache_clear()
    moved = on_standin(monkeypatch, shared, module)
    on_device = module.main(common.Setting(name), **TINY[name])
    assert moved
    assert same_claims(on_device, on_host)
    for key in ("distance", "error", "ratio", "heavy ball", "Flatten NTK"):
        if key in on_host:
            near(on_device[key], on_host[key])


def near(a: Any, b: Any) -> None:
    """Check that results agree up to float32 rounding errors, which a few steps amplify."""
    if isinstance(a, dict):
        for key in a.keys() & {"distance", "error"}:
            near(a[key], b[key])
    else:
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-4)


def test_every_size_is_taken() -> None:
    """`main` accepts the arguments that each scale sets."""
    for name in PAPERS:
        module = importlib.import_module(name)
        assert set(module.SIZES) == {"small", "evening", "paper"}
        for size in module.SIZES.values():
            assert set(size) <= set(module.main.__annotations__)


def test_a_run_that_diverges_is_a_record() -> None:
    """Far above the paper's rate, the linearisation diverges. The sweep records this run, and the script continues."""
    common, script = (importlib.import_module(name) for name in ("common", "lee_wide_resnet"))
    grid = {"eta": (1.0, 1e5), "model": ("linearised",), "seed": (0,)}
    runs = common.Setting().sweep(script.stays, grid, data="digits", channels=4, steps=80, n_train=100)
    assert runs.diverged.ravel().tolist() == [False, True]


def test_training_side_by_side() -> None:
    """A linear network equals its linearisation. A nonlinear network departs from its linearisation during training."""
    shared = importlib.import_module("lee_training")
    train, test = shared.ten_classes("digits", 60, 8, flat=True)
    how: dict[str, Any] = {"loss": mn.softmax_cross_entropy, "lr": 0.1, "momentum": 0.9, "batch": 16, "seed": 3}
    linear = mn.Network(mn.Dense(10), (64,))
    assert max(shared.side_by_side(linear, train, test, [1, 5, 20], **how)["distance"]) < 1e-4
    found = shared.side_by_side(shared.two_layers(8, (64,)), train, test, [1, 5, 20], **how)
    assert 10 * found["distance"][0] < found["distance"][-1]
    assert found["loss"][0] == pytest.approx(found["lin loss"][0], rel=1e-5)  # the first batch, at the same start
