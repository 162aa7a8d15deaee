"""Compare mean kernels of finite convolutional networks at initialisation with infinite-width kernels, by z-scores.

With a single activation on every path, the inputs of all activations are Gaussian, and the mean kernels equal the
infinite-width kernels for any number of channels. The kernels of deeper networks have a bias of order 1 / channels. A
combination of two widths removes its leading term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.spec.parametrization import Parametrization
from tests.kit import oracles_kernels
from tests.kit.montecarlo import assert_mean, kernels, limit, z_scores

Array = np.ndarray[Any, Any]

MEMBERS = 2000
X = np.random.default_rng(0).standard_normal((3, 4, 5, 2))
HEAD = mn.Dense(6, w_std=1.3, b_std=0.2)


def conv(channels: int = 5, kernel: Any = 3, **how: Any) -> mn.Conv2d:
    return mn.Conv2d(channels, kernel, w_std=1.4, b_std=0.3, **how)


def conv1d(channels: int = 5, **how: Any) -> mn.Conv1d:
    return mn.Conv1d(channels, 3, w_std=1.4, b_std=0.3, **how)


def infinite(spec: mn.spec.Layer, x: Array, parametrization: Parametrization | None = None) -> tuple[Array, Array]:
    """Return the upper triangles of the infinite-width NNGP and NTK."""
    upper = np.triu_indices(len(x))
    nngp, ntk = an.kernel(spec, parametrization or mn.NTK()).both(x)
    return nngp[upper], ntk[upper]


# ---------------------------------------------- one activation on every path: equal at any number of channels

IMAGES: dict[str, mn.Sequential] = {
    "same, flatten": mn.Sequential(conv(), mn.ReLU(), mn.Flatten(), HEAD),
    "same twice, pooled globally": mn.Sequential(conv(), mn.ReLU(), conv(4), mn.GlobalAvgPool(), HEAD),
    "valid, strided": mn.Sequential(conv(padding="valid"), mn.Erf(), conv(4, 2, stride=(1, 2)), mn.Flatten(), HEAD),
    "circular": mn.Sequential(conv(padding="circular"), mn.GELU(), conv(4, padding="circular"), mn.Flatten(), HEAD),
    "average pooling, flatten": mn.Sequential(conv(), mn.LeakyReLU(0.3), mn.AvgPool(2), mn.Flatten(), HEAD),
    "average pooling over the edge": mn.Sequential(
        conv(), mn.ReLU(), mn.AvgPool(3, stride=2, padding="same"), conv(4), mn.GlobalAvgPool(), HEAD
    ),
    "edges normalised": mn.Sequential(
        conv(),
        mn.ReLU(),
        mn.AvgPool(3, stride=2, padding=1, normalize_edges=True),
        conv(4),
        mn.GlobalAvgPool(),
        HEAD,
    ),
    "pooled before the activation": mn.Sequential(
        conv(4), mn.AvgPool(2, stride=1, padding="same"), mn.Abs(), mn.GlobalAvgPool(), HEAD
    ),
    "residual": mn.Sequential(
        conv(4), mn.Residual(mn.Sequential(mn.ReLU(), conv(4, b_init="zeros"))), mn.GlobalAvgPool(), HEAD
    ),
    "residual, projected": mn.Sequential(
        conv(4),
        mn.Residual(mn.Sequential(mn.Tanh(), conv(3, stride=2)), shortcut=mn.Conv2d(3, 1, stride=2)),
        mn.Flatten(),
        HEAD,
    ),
}


@pytest.mark.parametrize("spec", IMAGES.values(), ids=IMAGES)
def test_convolutional_networks_have_the_infinite_kernels_on_average(spec: mn.Sequential) -> None:
    """Even with only a few channels, E hatK = K and E hatTh = Th."""
    for name, samples, expected in zip(("NNGP", "NTK"), kernels(spec, X, MEMBERS), infinite(spec, X), strict=True):
        assert_mean(f"{name} of {spec}", samples, expected)


@pytest.mark.parametrize("parametrization", [mn.Standard(), mn.PyTorch()], ids=repr)
@pytest.mark.parametrize("name", ["same twice, pooled globally", "residual, projected"])
def test_in_other_parametrizations(name: str, parametrization: Parametrization) -> None:
    """Check mean kernels in other parametrizations, in which convolutions have other multipliers and learning rates."""
    spec = IMAGES[name]
    samples = kernels(spec, X, MEMBERS, parametrization=parametrization)
    for kind, mine, expected in zip(("NNGP", "NTK"), samples, infinite(spec, X, parametrization), strict=True):
        assert_mean(f"{kind} of {spec}", mine, expected)


SEQUENCES: dict[str, mn.Sequential] = {
    "flatten": mn.Sequential(conv1d(), mn.ReLU(), conv1d(4, stride=2), mn.Flatten(), HEAD),
    "pooled": mn.Sequential(conv1d(padding="circular"), mn.Erf(), mn.AvgPool(2), mn.GlobalAvgPool(), HEAD),
}


@pytest.mark.parametrize("spec", SEQUENCES.values(), ids=SEQUENCES)
def test_on_sequences(spec: mn.Sequential) -> None:
    """Check that E hatK = K and E hatTh = Th for Conv1d on sequences."""
    x = X[:, 0]
    for name, samples, expected in zip(("NNGP", "NTK"), kernels(spec, x, MEMBERS), infinite(spec, x), strict=True):
        assert_mean(f"{name} of {spec}", samples, expected)


def test_black_borders() -> None:
    """Check mean kernels of images with black borders, where pre-activations of black windows have variance 0."""
    x = X.copy()
    x[:, :, :3] = 0
    x[1] = 0
    spec = mn.Sequential(mn.Conv2d(5, 3, w_std=1.4), mn.ReLU(), mn.Conv2d(4, 3), mn.GlobalAvgPool(), mn.Dense(6))
    for name, samples, expected in zip(("NNGP", "NTK"), kernels(spec, x, MEMBERS), infinite(spec, x), strict=True):
        assert_mean(f"{name} of black images", samples, expected)


# ------------------------------------------------------------ the same test fails for kernels that are wrong


def renormalised_convolution(patch: pytest.MonkeyPatch) -> None:
    """Plant an error: convolutions divide by the number of pixels under the window, not by the window's size."""
    right = oracles_kernels.window_matrices

    def wrong(layer: Any, grid: Any) -> Any:
        matrices, after = right(layer, grid)
        if isinstance(layer, mn.Conv2d):
            root = (len(matrices) / np.maximum(1, sum(m.sum(axis=1) for m in matrices))) ** 0.5
            matrices = [root[:, None] * m for m in matrices]
        return matrices, after

    patch.setattr(oracles_kernels, "window_matrices", wrong)


def renormalised_pooling(patch: pytest.MonkeyPatch) -> None:
    """Plant an error: pooling divides by the number of pixels under the window, not by the window's size."""
    right = oracles_kernels.window_matrices

    def wrong(layer: Any, grid: Any) -> Any:
        matrices, after = right(layer, grid)
        if isinstance(layer, mn.AvgPool):
            share = len(matrices) / np.maximum(1, sum(m.sum(axis=1) for m in matrices))
            matrices = [share[:, None] * m for m in matrices]
        return matrices, after

    patch.setattr(oracles_kernels, "window_matrices", wrong)


def diagonal_pooling(patch: pytest.MonkeyPatch) -> None:
    """Plant an error: global pooling averages only over pairs of identical pixels, as flattening does."""
    right = oracles_kernels.through

    def wrong(layers: Any, *state: Any) -> Any:
        return right([mn.Flatten() if isinstance(one, mn.GlobalAvgPool) else one for one in layers], *state)

    patch.setattr(oracles_kernels, "through", wrong)


def nothing(patch: pytest.MonkeyPatch) -> None:
    """Leave the brute-force computation unchanged."""


POOLED = mn.Sequential(conv(), mn.LeakyReLU(0.3), mn.AvgPool(3, stride=2, padding="same"), mn.GlobalAvgPool(), HEAD)


def brute(plant: Callable[[pytest.MonkeyPatch], None], spec: mn.spec.Layer) -> tuple[Array, Array]:
    """Return the upper triangles of the brute-force kernels, computed with the error planted by `plant`."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        nngp, ntk = oracles_kernels.image_kernels(spec, X)
    upper = np.triu_indices(len(X))
    return nngp[upper].astype(float), ntk[upper].astype(float)


WRONG: dict[str, tuple[mn.Sequential, Callable[[], tuple[Array, Array]]]] = {
    "convolution renormalised at the edges": (POOLED, lambda: brute(renormalised_convolution, POOLED)),
    "pooling divided by the pixels inside": (POOLED, lambda: brute(renormalised_pooling, POOLED)),
    "pooling over equal pixels only": (POOLED, lambda: brute(diagonal_pooling, POOLED)),
    "circular for same padding": (
        IMAGES["same, flatten"],
        lambda: infinite(mn.Sequential(conv(padding="circular"), mn.ReLU(), mn.Flatten(), HEAD), X),
    ),
    "windows moved by one pixel": (
        IMAGES["same, flatten"],
        lambda: infinite(mn.Sequential(conv(padding=((0, 2), (0, 2))), mn.ReLU(), mn.Flatten(), HEAD), X),
    ),
    "pooling before the activation": (
        IMAGES["average pooling, flatten"],
        lambda: infinite(mn.Sequential(conv(), mn.AvgPool(2), mn.LeakyReLU(0.3), mn.Flatten(), HEAD), X),
    ),
}


@pytest.mark.parametrize(("spec", "wrong"), WRONG.values(), ids=WRONG)
def test_the_z_test_refuses_wrong_kernels(spec: mn.Sequential, wrong: Callable[[], tuple[Array, Array]]) -> None:
    """With the same samples, the z-test passes for the correct kernels of both methods and fails for wrong kernels."""
    samples, most = kernels(spec, X, MEMBERS), limit(6)
    for right in (infinite(spec, X), brute(nothing, spec)):
        assert max(np.abs(z_scores(s, k)).max() for s, k in zip(samples, right, strict=True)) < most
    assert max(np.abs(z_scores(s, k)).max() for s, k in zip(samples, wrong(), strict=True)) > 2 * most


# -------------------------------------------------------------------- many channels: a bias of order 1 / channels


NORMALISED = (mn.LayerNorm(axes=(-3, -2, -1)), mn.ReLU(), mn.AvgPool(2, stride=1, padding="same", normalize_edges=True))


def deep(n: int, *layers: mn.spec.Layer) -> mn.Sequential:
    return mn.Sequential(conv(n), *layers, conv(n), *layers, mn.GlobalAvgPool(), mn.Dense(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers",
    [(mn.ReLU(),), (mn.Erf(), mn.AvgPool(2, stride=1, padding="same")), (mn.LayerNorm(), mn.ReLU()), NORMALISED],
    ids=["relu", "erf, pooled", "layer norm", "over pixels too"],
)
def test_deep_networks_approach_the_infinite_kernels_as_one_over_channels(layers: tuple[mn.spec.Layer, ...]) -> None:
    """E hatTh_n = Th + c/n + O(1/n^2), so 2 E hatTh_2n - E hatTh_n is Th up to O(1/n^2). The test allows 0.5 %."""
    few = X[:2, :3, :3]
    narrow, wide = kernels(deep(32, *layers), few, 1000), kernels(deep(64, *layers), few, 1000, seed=1)
    edges = infinite(deep(1, *layers, mn.AvgPool(2, stride=1, padding="same")), few)  # another network's kernels

    def excess(expected: tuple[Array, Array]) -> float:
        """Return the largest ratio of |z| to its limit, which is raised to allow for a 0.5 % error of the kernel."""
        worst = 0.0
        for n, m, k in zip(narrow, wide, expected, strict=True):
            samples = 2 * m - n
            z = z_scores(samples, k)
            allowed = limit(z.size) + 0.005 * np.abs(k) / (samples.std(axis=0) / len(samples) ** 0.5)
            worst = max(worst, float((np.abs(z) / allowed).max()))
        return worst

    assert excess(infinite(deep(1, *layers), few)) <= 1
    assert excess(edges) > 2
