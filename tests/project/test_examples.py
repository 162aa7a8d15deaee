"""Test that every example runs at reduced size, that its results support its claims, and that it draws a figure."""

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from tests.project.lines import kinds
from tests.project.reruns import scripts

Array = np.ndarray[Any, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

PAPERS = {
    name
    for path in Path(__file__).parent.glob("test_examples_*.py")
    for name in getattr(importlib.import_module(f"tests.project.{path.stem}"), "PAPERS", ())
}
"""The scripts that rerun papers. Other files test these scripts."""

REDUCED: dict[str, dict[str, Any]] = {
    "authors_by_attention": {"sizes": (80,), "test": 80, "width": 16, "steps": 30},
    "backprop_by_hand": {"steps": 80},
    "coordinate_check": {"widths": (64, 128, 256), "seeds": 16},
    "catapult": {"widths": (64, 192), "seeds": 3},
    "cnn_kernel_regression": {"sizes": (20, 120), "test": 60, "depth": 2},
    "edge_of_stability": {"steps": 1200, "n": 60, "width": 32},
    "eigenlearning": {"sizes": (16, 64, 128)},
    "examine_digits": {"width": 64, "n": 40, "widths": False},
    "learning_curves": {"widths": (16, 64, 128), "work": 1024},
    "four_times_the_data": {"sizes": (50,), "draws": 16, "width": 64},
    "trainable_depth": {"activations": (mn.Tanh(),), "scales": (1.5, 3.0), "width": 48, "networks": 2, "steps": 100},
    "learning_rate_transfer": {"widths": {"mlp": (64, 128, 256)}, "seeds": 2},
    "spectral_norms": {"widths": (64, 128, 256, 512), "networks": 10},
    "feature_learning_limit": {"widths": (32, 64, 128), "seeds": 32},
    "nonlinear_feature_learning": {"neurons": 10_000, "samples": 4000},
    "particle_flow": {"widths": (8, 16), "neurons": 80_000},
    "finite_width_statistics": {"shapes": ((1, 4), (1, 16), (2, 16), (4, 16), (4, 32)), "members": 4000},
    "kernel_hierarchy": {"widths": (32, 128), "seeds": 6},
    "learning_in_depth": {"depths": (2, 8), "seeds": 6},
    "kernel_over_time": {"width": 32, "networks": 2, "n": 12},
    "laziness": {"widths": (32, 64, 128), "seeds": 4, "deep": (1,)},
    "lift_from_torch": {"steps": 150},
    "mean_of_networks": {"cases": ("1 hidden, tanh",), "widths": (24, 48), "pairs": 300},
    "local_pooling": {"train": 100, "layers": 2, "windows": (1, 3, 8)},
    "mnist_60000": {"train": 600},
    "rates_in_the_kernel": {"widths": (32, 64, 128), "seeds": 2},
    "sine_cookbook": {"width": 48, "networks": 20, "steps": 40},
    "train_lenet5": {"epochs": 4},
    "weight_space_linearisation": {"width": 256, "epochs": 1},
}

LONG = {
    "catapult", "cnn_kernel_regression", "coordinate_check", "edge_of_stability", "eigenlearning", "examine_digits",
    "feature_learning_limit", "kernel_hierarchy", "laziness", "learning_curves", "learning_in_depth",
    "learning_rate_transfer",
    "local_pooling", "mean_of_networks", "nonlinear_feature_learning", "trainable_depth",
}  # fmt: skip
"""Examples marked slow. Laws in the default tests cover the claims of these examples."""

HELPERS = {
    "replicate",
    "common",
    "gallery",
    "geiger",
    "intervals",
    "ledger",
    "resuming",
    "claim_rows",
    "verdicts",
    "lee",
    "lee_training",
    "papers_page",
    "running",
    "table",
    "windows",
}
"""Modules of examples/ that are not examples: scripts import them, or they run scripts or write pages of results."""


def load(name: str) -> Any:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_backprop(found: dict[str, float]) -> None:
    assert found["gradient error"] < 1e-7  # central differences have errors of at least eps^(2/3)
    assert found["test accuracy"] > 0.9


def check_authors(found: dict[str, float]) -> None:
    """Check that each accuracy exceeds chance by more than 3 standard errors.

    The distance of the networks' mean from the NTK's prediction must be .5 to 1.8 times the scatter of the mean.
    """
    for name in ("NNGP", "NTK", "networks"):
        assert found[f"{name}, 80"] - 3 / 1.96 * found[f"{name}, 80 ±"] > 0.5
    assert 0.5 < found["distance, 80"] / found["scatter, 80"] < 1.8


def convolved(k: Array) -> Array:
    """Return 2/9 sum_s k[p + s, p' + s] over the 3 x 3 shifts s, with zeros outside the image.

    k : (N, 8, 8, 8, 8), or (N, 8, 8) for p = p'.
    """
    wide = np.pad(k, [(0, 0)] + [(1, 1)] * (k.ndim - 1))
    both = (k.ndim - 1) // 2
    shifts = [(slice(None), *(slice(i, i + 8), slice(j, j + 8)) * both) for i, j in np.ndindex(3, 3)]
    return 2 / 9 * np.sum([wide[shift] for shift in shifts], axis=0)


def kernels_by_hand(x: Array, images: Array, depth: int) -> dict[str, Array]:
    """Return kernels of `depth` 3 x 3 ReLU convolutions, Flatten or pooling, and Dense, via all pairs of pixels."""
    found: dict[str, list[Array]] = {f"{end} {kind}": [] for end in ("flatten", "pool") for kind in ("NNGP", "NTK")}
    for a in x:
        k, t = np.einsum("ij,nkl->nijkl", a, images), np.zeros((len(images), 8, 8, 8, 8))
        q, r = a[None] ** 2, images**2
        for _ in range(depth):
            k, q, r = convolved(k), convolved(q), convolved(r)
            t = k + convolved(t)
            size = np.sqrt(q[:, :, :, None, None] * r[:, None, None, :, :])
            angle = np.arccos(np.clip(np.divide(k, size, out=np.zeros_like(k), where=size > 0), -1, 1))
            k = size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
            t, q, r = t * (np.pi - angle) / (2 * np.pi), q / 2, r / 2
        for end, sums in (("flatten", "nijij->n"), ("pool", "nijkl->n")):
            nngp, ntk = (np.einsum(sums, b) / (64 if end == "flatten" else 64**2) for b in (k, k + t))
            found[f"{end} NNGP"].append(nngp)
            found[f"{end} NTK"].append(ntk)
    return {name: np.array(rows) for name, rows in found.items()}


def check_regression(found: dict[str, float]) -> None:
    """Recompute the errors for 20 images with `kernels_by_hand`. With 120 images, every accuracy exceeds .9.

    The recomputed errors differ pairwise by over .15 %. The example's float32 errors agree with them to .01 %.
    """
    train, test = load("cnn_kernel_regression").data("digits", None, 120, 60, 0)
    x, x_test = (part.x[..., 0].astype(np.float64) for part in (train[:20], test))
    y, y_test = (np.eye(10)[labels] - 0.1 for labels in (train.labels[:20], test.labels))
    own, across, errors = kernels_by_hand(x, x, 2), kernels_by_hand(x_test, x, 2), []
    for name in own:
        end, kind = name.split()
        f = across[name] @ np.linalg.solve(own[name], y)
        errors.append(float(np.mean((f - y_test) ** 2)))
        assert found[f"{end} 20 {kind}"] == np.mean(f.argmax(axis=1) == test.labels)
        assert abs(found[f"{end} 20 {kind} error"] / errors[-1] - 1) < 1e-4
        assert found[f"{end} 120 {kind}"] > 0.9
    assert min(abs(a / b - 1) for a, b in itertools.combinations(errors, 2)) > 1.5e-3


def check_coordinates(found: dict[str, Any]) -> None:
    layers = ("0", "2", "4", "6")
    for name in ("spectral muP", "mean field"):
        assert all(abs(found[name][layer]) < 0.12 for layer in layers)  # 16 seeds and a factor 4: half-intervals of .06
        assert found[name]["verdict"] != "fail"
    for layer, slope in zip(layers, (-0.5, -0.5, -0.5, 0.0)):
        assert abs(found["NTK"][layer] - slope) < 0.15
    assert found["NTK"]["verdict"] == found["standard"]["verdict"] == "fail"
    assert found["muP, layer 2 planted"]["blame"] == {"2.W": "start"}


def check_transfer(found: dict[str, float]) -> None:
    for optimizer in ("SGD", "Adam"):
        assert found[f"mlp, {optimizer}, muP: spread"] < 2
        assert found[f"mlp, {optimizer}, muP: at edge"] == 0
        assert found[f"mlp, {optimizer}, standard: shift"] < -0.4
        assert abs(found[f"mlp, {optimizer}, muP: shift"]) < 0.3 + found[f"mlp, {optimizer}, muP: shift ±"]


def check_norms(found: dict[str, float]) -> None:
    theory = {"|W1|": 0.5, "|W2|": 0, "|W3|": -0.5, "|dW1|": 0.5, "|dW2|": 0, "|dW3|": -0.5, "|h1|": 0.5, "|h2|": 0.5}
    theory |= {"|dh1|": 0.5, "|dh2|": 0.5, "|dh3|": 0}
    assert all(abs(found[name] - power) < 0.07 + found[f"{name} ±"] for name, power in theory.items())
    assert all(found[f"{name} ±"] < 0.1 for name in theory)
    assert abs(found["|h3|"] + 0.5) < 2 * found["|h3| ±"] < 1  # the log of a Gaussian has a large variance
    assert found["largest distance from the edge, D >= 512"] < 0.05


def check_eigenlearning(found: dict[str, float]) -> None:
    assert found["learnability: largest distance"] < 0.02
    for name, close in (("cube, 4 levels, noise", 0.02), ("digits, parity", 0.06)):
        assert found[f"{name}: largest relative distance"] < close + 3 * found[f"{name}: largest standard error"] < 0.3
    assert abs(found["sphere, d = 3: exponent of ntk"] + 3) < 0.1
    assert abs(found["sphere, d = 3: exponent of nngp"] + 5) < 0.1


def check_curves(found: dict[str, float]) -> None:
    assert found["widths >= 64: largest distance"] < 0.01 + 3 * found["widths >= 64: largest standard error"] < 0.15
    assert found["digits: largest distance"] < 0.1
    assert abs(found["budget: exponent"] - found["budget: theory"]) < 0.02


def check_four_times(found: dict[str, float]) -> None:
    assert found["cells within 10 %"] == 4
    assert found["control: cells within 10 %"] == 0
    assert found["networks: largest"] < 0.3


def check_trainable(found: dict[str, float]) -> None:
    depth = [found[f"Tanh, xi = {xi}: depth / xi"] for xi in (1.5, 3.0)]
    assert 4 < min(depth) < max(depth) < 9.5
    assert found["Tanh, xi = 3.0: layers"] > 1.2 * found["Tanh, xi = 1.5: layers"]
    assert found["Tanh, 12 x first xi: gain of the edge"] > 0.3


def check_catapult(found: dict[str, float]) -> None:
    for rate, rises, converges in ((1.0, 0, 1), (1.8, 0, 1), (2.5, 1, 1), (3.0, 1, 1), (3.5, 1, 1), (4.5, 1, 0)):
        name = f"lr x lambda_0 = {rate}"
        assert (found[f"{name}: least peak / first loss"] > 2) == rises
        assert found[f"{name}: share that converged"] == converges
        assert np.isnan(end := found[f"{name}: largest lr x sharpness at the end"]) or end < 2
    for name in ("muP, start", "muP, after 30 steps", "NTK, start", "NTK, after 30 steps"):
        assert abs(found[f"exponent, {name}"]) < 0.1 + found[f"exponent, {name} ±"] < 0.4
    assert found["exponent, standard, start"] > 0.5  # tends to 1 for widths much larger than the input dimension (64)


def check_edge(found: dict[str, float]) -> None:
    """Check that lr x sharpness is 1.9 to 2.2 in the last half of two runs. In a third, it is 1.2 to 2.2."""
    for fraction, least in ((1.5, 1.9), (2, 1.9), (3, 1.2)):
        name = f"lr = 2 / ({fraction} s)"
        assert found[f"{name}: at the start"] < 1.4
        assert least < found[f"{name}: least"] < found[f"{name}: largest"] < 2.2
        assert found[f"{name}: loss at the end"] < found[f"{name}: loss at half time"] / 1.5
    assert found["lr = 2 / (20 s): largest"] < 0.5


def check_hierarchy(found: dict[str, float]) -> None:
    """Check the errors' exponents in the width: -1 (frozen, + O3), -2 (+ O4), -.75 (ReLU), to .2 plus the interval."""
    for phi, powers in {"tanh": (-1, -1, -2), "erf": (-1, -1, -2), "ReLU": (-0.75, -0.75, -0.75)}.items():
        for order, power in zip(("frozen kernel", "+ O3", "+ O3 + O4"), powers, strict=True):
            for what in ("kernel", "outputs"):
                name = f"{phi}, {order}: {what}, 32 to 128"
                assert abs(found[name] - power) < 0.2 + found[f"{name} ±"] < 1


def check_limit(found: dict[str, float]) -> None:
    for hidden in (1, 2):
        error = found[f"{hidden} hidden, limit: error"]
        assert abs(found[f"{hidden} hidden, limit: exponent"] + 0.5) < 0.1 + 2 * error
        assert error < 0.1
        assert found[f"{hidden} hidden, NTK: exponent"] > -0.25


def check_nonlinear(found: dict[str, float]) -> None:
    for name in ("erf", "tanh", "ReLU", "tanh, Adam"):
        assert abs(found[f"{name}, means: exponent"] + 1) < 3 * found[f"{name}, means: error"] < 6
        assert abs(found[f"{name}, one network: exponent"] + 0.5) < 0.2


def check_particles(found: dict[str, float]) -> None:
    c, d = (found[f"width {n}: n |mean - limit|"] for n in (8, 16))
    error = found["width 16: its error"]
    assert abs(c - d) < 5 * error < 0.25 * c
    assert 0.9 < found["width 8: sqrt(n) |one - limit|"] / found["width 16: sqrt(n) |one - limit|"] < 1.2
    assert found["limit: 2^12 particles less 2^14"] < 0.01 * c


def check_finite_width(found: dict[str, float]) -> None:
    assert found["largest |z|"] < 5
    for n in (4, 16):
        assert abs(found[f"width {n}: n Var / Theta^2"] - 3) < 5 * found[f"width {n}: its error"] < 1.5


def check_laziness(found: dict[str, float]) -> None:
    """Check exponents of kappa (NTK -.42, mean field .08) and kernel movement (-1, 0) to .15 + two standard errors."""
    for what, (ntk, free) in {"kappa": (-0.42, 0.08), "kernel movement": (-1.0, 0.0)}.items():
        for scaling, theory in (("NTK", ntk), ("mean field", free)):
            name = f"{what}, 2 layers, {scaling}"
            assert abs(found[f"{name}: exponent"] - theory) < 0.15 + 2 * found[f"{name}: error"]


def check_rates(found: dict[str, float]) -> None:
    """Check that J S J' predicts a step up to O(lr^2). In muP and mean field, J J' is wrong by a power of n.

    Kappa scales as in `laziness`.
    """
    for name, factor in (("NTK", 1.0), ("muP", 4.0), ("mean field", 1 / 4), ("muP as ABC, c = 0", 1.0)):
        n32, n128 = (found[f"{name}, n = {n}: |J J' (f - y) / N| / |df / lr|"] for n in (32, 128))
        assert 0.6 * factor < n128 / n32 < 1.7 * factor
        for n in (32, 128):
            assert found[f"{name}, n = {n}: |df / lr + J S J' (f - y) / N| / |df / lr|"] < 1e-6
            own = found[f"{name}, n = {n}: analytic NTK, mean"]
            assert own == pytest.approx(found[f"{name}, n = 32: analytic NTK, mean"], rel=1e-12)
    assert found["kappa of equivalent parametrizations, largest relative difference"] < 1e-10
    for name, theory in (("NTK", -0.5), ("muP", 0.0), ("mean field", 0.0)):
        assert abs(found[f"{name}: kappa, exponent"] - theory) < 0.15 + 2 * found[f"{name}: kappa, error"]


def check_path(found: dict[str, float]) -> None:
    """Check that at s = 100 the kernel moves by less than a tenth of its size.

    At s = .1, the kernel moves by more than ten times its size and aligns with the labels.
    """
    assert found["lazy: movement"] < 0.1 < 10 < found["feature: movement"]
    assert found["feature: overlap"] < 0.9 < 0.98 < found["lazy: overlap"]
    lazy, feature = (found[f"{n}: alignment, largest"] / found[f"{n}: alignment, first"] for n in ("lazy", "feature"))
    assert lazy < 1.1 < 1.3 < feature


def check_means(found: dict[str, Any]) -> None:
    """Check that n (mean - limit), extrapolated from two widths to 1/n = 0, is c. At n = 48, it must be negative."""
    for t in (1, 2, 4):
        start, measured = f"1 hidden, tanh, t = {t}: 1/n -> 0", found[f"1 hidden, tanh, t = {t}: n = 48"]
        assert abs(found[start][2]) < 4.5
        assert measured[0] < -4.5 * measured[1]


def check_lift(found: dict[str, float]) -> None:
    for dtype, gradient in (("float32", 1e-6), ("float64", 1e-8)):  # a central difference if torch is missing
        assert found[f"{dtype}: outputs"] < 30 * np.finfo(dtype).eps
        assert found[f"{dtype}: gradient"] < gradient
    assert found["accuracy on 400 other digits, its kernel"] > 0.85


def check_pooling(found: dict[str, Any]) -> None:
    """Check that the accuracy of each read-out is far above chance (10 %)."""
    for name in ("B = 1", "B = 3", "B = 8"):
        assert min(found[name], found[f"{name}, flips"]) > 0.75
        assert found[f"{name}: ms"] > 0


def test_mirrored_images_need_no_larger_system() -> None:
    """The outputs equal those of a regression on images and their mirror images, a system of twice the size."""
    example: Any = importlib.import_module("examples.local_pooling")
    one, two = example.data(None, 16, 8)
    x, x_test, y = (a.astype(np.float64) for a in (one.x, two.x, np.eye(10)[one.labels]))
    mirrored = np.concatenate([x, x[:, :, ::-1]])
    kernel = an.kernel(mn.Sequential(mn.Conv2d(8, 3), mn.ReLU(), mn.AvgPool(3, stride=1), mn.Flatten(), mn.Dense(1)))
    K = kernel.ntk(x) + kernel.ntk(x, x[:, :, ::-1])
    k = kernel.ntk(x_test, x) + kernel.ntk(x_test, x[:, :, ::-1])
    ridge = 1e-3
    small = k @ np.linalg.solve(K + ridge * np.eye(16), y)
    large = kernel.ntk(x_test, mirrored) @ np.linalg.solve(
        kernel.ntk(mirrored) + ridge * np.eye(32), np.concatenate([y, y])
    )
    np.testing.assert_allclose(small, large, atol=1e-8)
    plain = kernel.ntk(x_test, x) @ np.linalg.solve(kernel.ntk(x) + ridge * np.eye(16), y)
    assert np.abs(plain - large).max() > 1e-2


def test_the_ridge_is_that_of_the_errors_left_out() -> None:
    """The formula selects the same ridge as explicit leave-one-out validation."""
    example: Any = importlib.import_module("examples.local_pooling")
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((12, 30)), rng.standard_normal((12, 2))
    K, errors = A @ A.T, []
    for ridge in example.RIDGES * np.trace(K) / 12:
        G, total = K + ridge * np.eye(12), 0.0
        for i in range(12):
            rest = np.delete(np.arange(12), i)
            total += ((y[i] - K[i, rest] @ np.linalg.solve(G[np.ix_(rest, rest)], y[rest])) ** 2).sum()
        errors.append((total, np.linalg.solve(G, y)))
    want = min(errors, key=lambda pair: pair[0])[1]
    np.testing.assert_allclose(example.outputs(K, np.eye(12), y), want, rtol=1e-6, atol=1e-9)


def check_large(found: dict[str, float]) -> None:
    assert found["accuracy"] > 0.97  # 600 digits in training
    assert found["residual"] < 1e-8
    assert found["steps"] <= 4  # float32 factors


def check_lenet5(found: dict[str, float]) -> None:
    assert found["parameters"] == 61_706
    assert found["test accuracy"] > 0.85  # four times as many epochs give more than 0.99


def check_depth(found: dict[str, float]) -> None:
    for rule in ("SGD", "Adam"):
        assert abs(found[f"{rule}, muP"]) < 0.1 + found[f"{rule}, muP ±"] < 0.3
        assert found[f"{rule}, 1/sqrt(L) at the start alone"] > 0.4
        assert found[f"{rule}, muP of the width alone"] > 0.9


def check_cookbook(found: dict[str, float]) -> None:
    for kind in ("nngp", "ntk"):
        for what in ("mean", "standard deviation"):
            assert found[f"{kind}: largest difference of the {what}"] < 2e-9  # THEIRS has nine digits
    assert found["networks: mean off, over theory's spread"] < 1
    assert 0.5 < found["networks: spread over theory's"] < 1.5


def check_linearised(found: dict[str, float]) -> None:
    assert found["network, step 0"] == found["linearised, step 0"]
    assert 0.9 < found["last tenth, linearised over network"] < 1.1


def check_examined(found: dict[str, Any]) -> None:
    assert found["NTK"]["regime"] in ("lazy", "undecided")  # width 64 is near the border
    assert found["NTK"]["gap"] < 0.06
    assert found["mean field"]["regime"] == "rich"
    assert found["last layer x 30"]["findings"] == ["badly scaled"]


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "authors_by_attention": check_authors,
    "backprop_by_hand": check_backprop,
    "catapult": check_catapult,
    "cnn_kernel_regression": check_regression,
    "coordinate_check": check_coordinates,
    "examine_digits": check_examined,
    "learning_curves": check_curves,
    "four_times_the_data": check_four_times,
    "trainable_depth": check_trainable,
    "learning_rate_transfer": check_transfer,
    "spectral_norms": check_norms,
    "edge_of_stability": check_edge,
    "eigenlearning": check_eigenlearning,
    "feature_learning_limit": check_limit,
    "nonlinear_feature_learning": check_nonlinear,
    "particle_flow": check_particles,
    "finite_width_statistics": check_finite_width,
    "kernel_hierarchy": check_hierarchy,
    "learning_in_depth": check_depth,
    "kernel_over_time": check_path,
    "laziness": check_laziness,
    "lift_from_torch": check_lift,
    "mean_of_networks": check_means,
    "local_pooling": check_pooling,
    "mnist_60000": check_large,
    "rates_in_the_kernel": check_rates,
    "sine_cookbook": check_cookbook,
    "train_lenet5": check_lenet5,
    "weight_space_linearisation": check_linearised,
}

WRONG: dict[str, dict[str, Any]] = {
    "authors_by_attention": {"distance, 80": 1.0},
    "coordinate_check": {"NTK": {"0": 0.0, "2": 0.0, "4": 0.0, "6": 0.0, "verdict": "pass", "blame": {}}},
    "backprop_by_hand": {"gradient error": 1e-3},
    "cnn_kernel_regression": {"pool 120 NTK": 0.3},
    "catapult": {"exponent, muP, start": 1.0},
    "learning_in_depth": {"Adam, muP": 0.8},
    "edge_of_stability": {"lr = 2 / (2 s): largest": 2.5},
    "eigenlearning": {"sphere, d = 3: exponent of ntk": -5.0},
    "examine_digits": {"mean field": {"regime": "lazy", "findings": [], "gap": 0.01, "kernel": 0.01}},
    "learning_curves": {"budget: exponent": 0.53},
    "four_times_the_data": {"control: cells within 10 %": 4.0},
    "trainable_depth": {"Tanh, xi = 3.0: layers": 11.0},
    "learning_rate_transfer": {"mlp, SGD, muP: spread": 2.5},
    "spectral_norms": {"|dW2|": 0.5},
    "feature_learning_limit": {"2 hidden, NTK: exponent": -0.5},
    "nonlinear_feature_learning": {"ReLU, one network: exponent": -1.0},
    "particle_flow": {"width 16: n |mean - limit|": 0.2},
    "finite_width_statistics": {"width 16: n Var / Theta^2": 2.0},
    "kernel_hierarchy": {"tanh, + O3 + O4: kernel, 32 to 128": -1.0},
    "kernel_over_time": {"lazy: movement": 1.0},
    "laziness": {"kappa, 2 layers, mean field: exponent": -0.5},
    "lift_from_torch": {"float64: outputs": 1e-7},
    "mean_of_networks": {"1 hidden, tanh, t = 2: 1/n -> 0": (-1.2, 0.1, -6.5)},
    "local_pooling": {"B = 3, flips": 0.3},
    "mnist_60000": {"residual": 1e-4},
    "rates_in_the_kernel": {"muP, n = 128: |df / lr + J S J' (f - y) / N| / |df / lr|": 0.5},
    "sine_cookbook": {"ntk: largest difference of the standard deviation": 1e-6},
    "train_lenet5": {"test accuracy": 0.5},
    "weight_space_linearisation": {"last tenth, linearised over network": 1.5},
}
"""{example: changes of the results on which the check must fail}."""


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - HELPERS == set(REDUCED) | PAPERS
    assert set(REDUCED) == set(CHECKS)


def test_examples_are_short() -> None:
    """Limit the number of lines of code of each example. Docstrings and comments do not count."""
    lines = {path.stem: kinds(path.read_text())["code"] for path in EXAMPLES.glob("*.py")}
    assert {name: n for name, n in lines.items() if n > (80 if name in REDUCED else 145)} == {}


@pytest.mark.parametrize("name", scripts(REDUCED, LONG))
def test_example(name: str, tmp_path: Path) -> None:
    module = load(name)
    figure = tmp_path / "figure.png"
    found = module.main(out=str(figure), **REDUCED[name])
    CHECKS[name](found)
    assert figure.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(AssertionError):
        CHECKS[name](found | WRONG[name])
