"""Test scripts for fully connected networks of Lee et al. 2019.

At reduced size, the results pass the check of each claim, and wrong results fail the checks.
"""

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
    importable(monkeypatch, "common", "lee")


def check_movement(found: Found) -> None:
    """Check how movements of tanh networks scale with width. With few seeds, exponents may miss theory by .15."""
    of = {name.partition(", ")[2]: fit for name, fit in found["exponents"].items()}
    for kind, power in (("input weights", -0.5), ("output weights", -0.5), ("middle weights", -1.0)):
        assert abs(of[kind][0] - power) < 0.15
    for kind in ("NTK", "NNGP", "all weights", "outputs, train", "outputs, test"):
        assert of[kind][0] - of[kind][1] < -0.5 + 0.15
    assert of["NTK"][0] < -0.5
    assert found["bound"]["3 x tanh"] > 1  # the paper's rate is stable on the mean over ten outputs


def check_ensemble(found: Found) -> None:
    """Compare networks with the theories for all layers and for the top layer alone, to 1.5 half-widths plus .15.

    The .15 allows for terms of order 1/64. Networks trained in all layers must contradict the top layer's theory.
    """
    for name in ("all", "top"):
        for mean, half, *_ in found[name].values():
            assert abs(mean - 1) < 1.5 * half + 0.15
    wrong = found["all, by the top layer's theory"]["mean"]
    assert wrong[0] - wrong[1] > 1.05
    assert found["one network"][0] < 0.5 * found["without its start"][0]


def check_linearisation(found: Found) -> None:
    assert found["empirical"][-1][0] < found["empirical"][0][0]
    assert found["ratio"][-1][0] - found["ratio"][-1][1] > 0  # the empirical kernel predicts better
    assert found["weights"][-1][0] < 0.6
    for where in ("train", "test"):
        assert found[f"loss, {where}"][-1][0] < 0.1
    assert 0.1 < found["bound"] < 1  # not of order 1/N, as for a sum over the examples


def check_width_and_data(found: Found) -> None:
    loss, time = "at a tenth of the loss", "at one time"
    assert all(fit[0] < -0.4 for fit in found[f"{loss}, in n"])
    assert found[f"{loss}, in N"][-1][0] > found[f"{time}, in N"][-1][0] + 0.15
    assert np.subtract(*found[f"{loss}, weights in N"][:2]) > 0.1
    assert abs(found[f"{time}, weights in N"][0]) < 0.15


def check_parametrizations(found: Found) -> None:
    for way, (mean, half, *_) in found["over theory"].items():
        assert abs(mean - 1) < 1.5 * half + 0.1, way
    assert 0 < found["matched from NTK"] < 0.01
    assert found["eigenvalues"][0] > 2 * found["eigenvalues"][1] > 10
    assert found["theory"]["top"][-1] > found["theory"]["NTK"][-1]


def check_monte_carlo(found: Found) -> None:
    for kind in ("NTK", "NNGP"):
        for name in ("n", "M"):
            assert all(abs(b + 0.5) < half + 0.1 for b, half, *_ in found[f"{kind}, in {name}"])
            assert all(abs(b + 0.5) < 0.2 for b, *_ in found[f"{kind}, in {name}"])


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "lee_movement": (
        {"widths": (32, 64, 128, 256), "seeds": 4, "steps": 32, "n_train": 32, "cases": ("3 x tanh",)},
        check_movement,
        {"exponents": {"3 x tanh, input weights": (-1.0, 0.1, "seeds", 9)}},
    ),
    "lee_ensemble": (
        {"width": 64, "members": 60, "n_train": 16, "steps": 64},
        check_ensemble,
        {"all": {"mean": (1.0, 0.03, "seeds"), "variance": (1.6, 0.1, "seeds")}},
    ),
    "lee_linearisation": (
        {"widths": (64, 256), "seeds": 3, "n_train": 32, "steps": 32, "eta": 0.1},
        check_linearisation,
        {"ratio": [(0.0, 0.1, "seeds"), (0.0, 0.1, "seeds")]},
    ),
    "lee_width_and_data": (
        {"widths": (64, 256), "numbers": (16, 128), "seeds": 4},
        check_width_and_data,
        {"at a tenth of the loss, weights in N": (0.0, 0.1, "seeds", 9)},
    ),
    "lee_parametrizations": (
        {"width": 128, "seeds": 8, "n_train": 24, "steps": 128},
        check_parametrizations,
        {"over theory": {"standard": (1.5, 0.1, "seeds")}},
    ),
    "lee_monte_carlo": (
        {"widths": (32, 128), "draws": (1, 4, 16), "repeats": 24},
        check_monte_carlo,
        {"NTK, in M": [(0.0, 0.1, "seeds", 9), (0.0, 0.1, "seeds", 9)]},
    ),
}
"""{script: (arguments of a reduced run, check of the results, wrong results)}."""


TINY: dict[str, dict[str, Any]] = {
    "lee_movement": {"widths": (8, 16), "seeds": 2, "steps": 2, "n_train": 8, "cases": ("3 x tanh",)},
    "lee_ensemble": {"width": 8, "members": 3, "n_train": 6, "steps": 4},
    "lee_linearisation": {"widths": (8, 16), "seeds": 2, "n_train": 8, "steps": 2, "eta": 0.05},
    "lee_width_and_data": {"widths": (16, 32), "numbers": (4, 8), "seeds": 2},
    "lee_parametrizations": {"width": 16, "seeds": 2, "n_train": 8, "steps": 4},
    "lee_monte_carlo": {"widths": (8, 16), "draws": (1, 4), "repeats": 2},
}


LONG = {"lee_linearisation", "lee_parametrizations", "lee_width_and_data"}
"""Scripts marked slow."""


@pytest.mark.parametrize("name", scripts(PAPERS, LONG))
def test_script(name: str, tmp_path: Path) -> None:
    check_script(name, PAPERS[name], tmp_path)


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_script_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with the strict stand-in for a GPU makes the same claims and converts no array implicitly."""
    module, lee, common = (importlib.import_module(each) for each in (name, "lee", "common"))
    on_host = module.main(common.Setting(name), **TINY[name])
    moved = on_standin(monkeypatch, lee, module)
    on_device = module.main(common.Setting(name), **TINY[name])
    assert moved
    assert same_claims(on_device, on_host)
    assert_near(on_device, on_host)


def assert_near(a: Any, b: Any) -> None:
    """Check that results agree up to float32 rounding errors, which a few steps amplify.

    Strings outside the table must be equal.
    """
    if isinstance(a, dict):
        for key in a.keys() - {"table"}:
            assert_near(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        for x, y in zip(a, b, strict=True):
            assert_near(x, y)
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-2, abs=1e-3, nan_ok=True)
    else:
        assert a == b


def test_every_size_has_the_same_arguments() -> None:
    """All scales of a script set the same arguments."""
    for name in PAPERS:
        sizes = importlib.import_module(name).SIZES
        assert set(sizes) == {"small", "evening", "paper"}
        assert len({tuple(size) for size in sizes.values()}) == 1


def test_the_top_layer_alone() -> None:
    """Up to rounding, descent on the kernel of the last features equals training the top layer alone."""
    lee, script = importlib.import_module("lee"), importlib.import_module("lee_ensemble")
    x, y, x_test, _ = lee.problem("digits", "binary", 12, 8)
    net = mn.Network(lee.spec("tanh", 3, 16), x.shape[1:])
    theta, at = lee.start(net, [3], np.float64), [0, 1, 40]
    frozen = {name: float(name == "6.W") for name in net.layout.slices}
    runs = lee.at_steps(net, theta, x, y, 0.5, at, lambda s: s, lr_scales=frozen)
    trained = np.stack([net(snap.theta, x_test)[0, :, 0] for snap in runs])
    closed = script.top_layer(net, theta[0], x, y, x_test, 0.5, at)
    assert np.abs(closed - trained).max() < 1e-10
    all_layers = np.stack([net(s.theta, x_test)[0, :, 0] for s in lee.at_steps(net, theta, x, y, 0.5, at, lambda s: s)])
    assert np.abs(closed - all_layers).max() > 1e-2


def test_the_linearisation_in_closed_form() -> None:
    """Up to rounding, `lee.linearised` equals training the linearised network, for several outputs.

    Training the network itself gives different results.
    """
    lee = importlib.import_module("lee")
    x, y, x_test, _ = lee.problem("digits", "classes", 8, 5)
    net = mn.Network(lee.spec("relu", 2, 12, 10), x.shape[1:])
    theta = lee.start(net, [1], np.float64)[0]
    for model, close in ((mn.Linearized(net, theta), True), (net, False)):
        found = np.stack(lee.at_steps(model, theta, x, y, 0.1, [0, 2, 30], lambda s, m=model: m(s.theta, x_test)))
        assert (np.abs(found - lee.linearised(net, theta, x, y, x_test, 0.1, [0, 2, 30])).max() < 1e-10) == close
