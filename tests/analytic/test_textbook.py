"""Test the textbook's formulas against the engine, 70-digit values and small steps. Wrong formulas must be detected."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from analytic import textbook
from minintk.spec.shapes import out_shape
from tests.kit.oracles_kernels import exact_kernels, image_errors, image_kernels, largest_errors

Array = Any

EPS = float(np.finfo(np.float64).eps)
ROUNDINGS = 12
"""Number of operations, each with error EPS, between the K and Theta of successive layers.

Sums are counted separately.
"""

TINY = 1e-30

R2 = 2**0.5

# ------------------------------------------------------------------------------------- derived tolerances


def angle_error(delta: float, K: Array) -> Array:
    """Return a bound on the error of arccos c if c = K / sqrt(q q') is replaced by c' with |c - c'| = delta.

    The error is 0 on the diagonal, where c is 1. In the worst case, at c = 1, |arccos c - arccos c'| <=
    (pi/2) sqrt(2 |c - c'|). Away from c = 1, the error is about |c - c'| / sin a, a = arccos c. A factor of 5 covers
    the range where the two bounds are similar.
    """
    norm = np.sqrt(np.outer(K.diagonal(), K.diagonal()))
    c = np.clip(K / np.where(norm > 0, norm, 1), -1, 1)
    sine = np.sqrt((1 - c) * (1 + c))
    error = np.minimum(5 * delta / np.maximum(sine, EPS), np.pi / 2 * np.sqrt(2 * delta))
    np.fill_diagonal(error, 0)
    return error


def bounds(spec: mn.Sequential, x: Array) -> tuple[Array, Array]:
    """Return bounds on the errors of K and Theta, (N, N), relative to sqrt(k(x, x) k(x', x')), to first order in EPS.

    delta : error of the correlation. A dual adds a rounding error, which for erf is multiplied by less than 1 + 2q, in
        arcsin and in (1 + 2q)(1 + 2q') - 4 K^2. A dual multiplies earlier errors by at most q E phi'^2 / E phi^2 <
        sqrt(1 + 2q), or by 1 for ReLU.
    tau : error of Theta. ReLU adds the angle's error divided by pi, and erf adds delta (1 + 2q).
    """
    layers = textbook.chain(spec)
    delta, tau = EPS * (x.shape[1] + ROUNDINGS), np.zeros((len(x), len(x)))
    for i, layer in enumerate(layers):
        own = ROUNDINGS * EPS
        if isinstance(layer, mn.ReLU | mn.Erf):
            K = an.kernel(mn.Sequential(*layers[:i])).nngp(x)
            spread = 1 + 2 * float(K.max()) if isinstance(layer, mn.Erf) else 1.0
            tau = tau + own + (delta * spread if spread > 1 else angle_error(delta, K) / np.pi)
            delta, own = delta * spread**0.5, own * spread
        delta += own
        tau = np.maximum(tau + own, delta)
    return np.full_like(tau, delta), tau


def check(spec: mn.Sequential, x: Array, within: Any, scales: mn.Sequential | None = None) -> None:
    """Check that K and Theta equal the engine's within bounds relative to sqrt(k(x, x) k(x', x')).

    k is the kernel of `scales`, by default of `spec`. The engine rounds too, so the bounds are doubled. For black,
    pooled images, the engine's Theta is at most TINY instead of 0, or about 1e-17 beside other images.
    """
    both, diagonals = an.kernel(spec).both(x), an.kernel(scales or spec).diag(x)
    for name, mine, engine, d, bound in zip(("K", "Theta"), textbook.nngp_and_ntk(spec, x), both, diagonals, within):
        scale = np.sqrt(np.outer(d, d))
        error = np.abs(mine - engine)
        assert mine.shape == engine.shape
        assert (error <= 2 * bound * scale + 10 * EPS * d.max() + TINY).all(), f"{name} is off by {error.max():.1e}"


# ------------------------------------------------------------------------------------------ fully connected


@st.composite
def weights(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "w_std": draw(st.sampled_from([0.7, 1.0, R2])),
        "b_std": draw(st.sampled_from([0.0, 0.3])),
        "b_init": draw(st.sampled_from(["normal", "zeros"])),
    }


@st.composite
def chains(draw: st.DrawFn) -> mn.Sequential:
    """Draw one to four Dense layers with an activation between some of them, in nested Sequentials."""
    layers: list[mn.spec.Layer] = []
    for _ in range(draw(st.integers(0, 3))):
        phi = draw(st.sampled_from([mn.ReLU(), mn.Erf(), mn.Identity()]))
        block = mn.Sequential(mn.Dense(5, **draw(weights())), mn.Sequential(phi))
        layers += draw(st.sampled_from([[block], [*block], [mn.Sequential(block)]]))
    return mn.Sequential(*layers, mn.Dense(2, **draw(weights())))


@st.composite
def rows(draw: st.DrawFn) -> Array:
    """Draw rows, often with a second row that is equal, opposite, collinear or nearly parallel to the first, or 0."""
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    x = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).uniform(-1.3, 1.3, size=(n, d))
    if n > 2 and draw(st.booleans()):
        x[1] = x[0] * draw(st.sampled_from([1.0, -1.0, 0.1, 0.0, 1 + 1e-9]))
    return x


@given(chains(), rows())
def test_fully_connected(spec: mn.Sequential, x: Array) -> None:
    check(spec, x, bounds(spec, x))


@given(chains(), rows())
def test_two_sets_are_a_block_of_one(spec: mn.Sequential, x: Array) -> None:
    cut = len(x) // 2
    for block, whole in zip(textbook.nngp_and_ntk(spec, x[:cut], x[cut:]), textbook.nngp_and_ntk(spec, x)):
        np.testing.assert_array_equal(block, whole[:cut, cut:])


def test_float32_stays_float32() -> None:
    spec = mn.Sequential(mn.Dense(3, w_std=np.float64(1.2), b_std=0.1), mn.ReLU(), mn.Dense(3), mn.Erf(), mn.Dense(1))
    x = np.cos(np.arange(12.0, dtype=np.float32)).reshape(3, 4)
    for mine, engine in zip(textbook.nngp_and_ntk(spec, x), an.kernel(spec).both(x)):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, engine, atol=1e-5)


# -------------------------------------------------------------------------------------------- convolutional


def window(draw: st.DrawFn, shape: tuple[int, ...], make: Callable[..., mn.spec.Layer]) -> mn.spec.Layer | None:
    """Draw a convolution or pooling with a random window, stride and padding, or return None if it does not fit."""
    size = st.integers(1, 4)
    layer = make(
        draw(st.tuples(size, size)),
        stride=draw(st.sampled_from([1, 1, 2, (2, 1)])),
        padding=draw(st.sampled_from(["same", "valid", "circular", 1, ((1, 0), (0, 2))])),
    )
    try:
        out_shape(layer, shape)
    except ValueError:
        return None
    return layer


@st.composite
def image_chains(draw: st.DrawFn, shape: tuple[int, ...] = (3, 4, 3)) -> mn.Sequential:
    """Draw convolutions with activations, and some poolings after ReLU. The output is flattened, pooled or an image."""
    layers: list[mn.spec.Layer] = []
    for _ in range(draw(st.integers(1, 2))):
        scales = draw(weights())
        conv = window(draw, shape, partial(mn.Conv2d, 3, **scales)) or mn.Conv2d(3, 1, **scales)
        phi = draw(st.sampled_from([mn.ReLU(), mn.ReLU(), mn.Erf(), mn.Identity()]))
        pool = window(draw, out_shape(conv, shape), mn.AvgPool) if isinstance(phi, mn.ReLU) else None
        block = mn.Sequential(conv, phi, *([pool] if pool else []))
        layers.append(block)
        shape = out_shape(block, shape)
    end = draw(st.sampled_from([(), (mn.Flatten(), mn.Dense(2, b_std=0.2)), (mn.GlobalAvgPool(), mn.Dense(2))]))
    return mn.Sequential(*layers, *end)


ERF_SPREAD = 10.0
"""1 + 2q: pixels are below 1 and w_std^2 is at most 2, so q stays below 4.5 through two convolutions."""


def image_bounds(spec: mn.Sequential) -> tuple[float, float]:
    """Return error bounds as in `bounds`, with the largest angle error and with windows of up to 16 pixels.

    The largest angle error is pi/2 sqrt(2 delta). After ReLU, no covariance is negative, so the variance of a mean over
    k pixels is at least 1/k of their mean variance. Pooling therefore multiplies relative errors by at most k.
    """
    delta, tau = EPS * (3 + ROUNDINGS), 0.0
    for layer in textbook.chain(spec):
        pixels = 16 if isinstance(layer, mn.AvgPool) else 1
        own = EPS * (ROUNDINGS + (16 if isinstance(layer, mn.Conv2d) else pixels**2))
        if isinstance(layer, mn.ReLU):
            tau += np.sqrt(2 * delta) / 2
        if isinstance(layer, mn.Erf):
            tau, delta, own = tau + delta * ERF_SPREAD, delta * ERF_SPREAD**0.5, own * ERF_SPREAD
        delta = delta * pixels + own
        tau = max(tau * pixels + own, delta)
    return delta, tau


def flattened(spec: mn.Sequential) -> mn.Sequential:
    """Replace GlobalAvgPool by Flatten, so that the kernels' diagonals do not include covariances that cancel."""
    return mn.Sequential(*[mn.Flatten() if layer == mn.GlobalAvgPool() else layer for layer in textbook.chain(spec)])


def pictures(seed: int = 0, n: int = 3) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, size=(n, 3, 4, 3))


@settings(max_examples=50)
@given(image_chains(), st.integers(0, 2**32 - 1), st.sampled_from(["any", "equal", "opposite", "black", "border"]))
def test_convolutional(spec: mn.Sequential, seed: int, kind: str) -> None:
    x = pictures(seed)
    if kind == "border":
        x[:, 0] = 0
    elif kind != "any":
        x[1] = {"equal": 1.0, "opposite": -1.0, "black": 0.0}[kind] * x[0]
    check(spec, x, image_bounds(spec), flattened(spec))


CNN = mn.Sequential(
    mn.Sequential(mn.Conv2d(4, 3, w_std=R2, b_std=0.2), mn.ReLU(), mn.AvgPool((1, 2))),
    mn.Conv2d(4, (2, 3), w_std=1.3, b_std=0.1, b_init="zeros", padding="circular"),
    mn.Erf(),
    mn.Conv2d(4, 2, stride=(2, 1), padding=((0, 1), (1, 0))),
    mn.ReLU(),
)
ENDS = {"flatten": mn.Flatten(), "pool": mn.GlobalAvgPool()}


@pytest.mark.parametrize("end", ENDS)
def test_images_in_general_position_are_right_to_rounding(end: str) -> None:
    """Kernels agree with those in extended precision.

    Kernels of a pixel with itself agree too, because c = K / sqrt(K K) is then 1 without error.
    """
    spec, x = mn.Sequential(CNN, ENDS[end], mn.Dense(1)), pictures(n=5)
    assert max(image_errors(textbook.nngp_and_ntk(spec, x), image_kernels(spec, x))) < 3e-15


def test_images_that_are_flattened_first_are_vectors() -> None:
    spec, x = mn.Sequential(mn.Flatten(), mn.Dense(3), mn.ReLU(), mn.Dense(1)), pictures()
    for images, vectors in zip(textbook.nngp_and_ntk(spec, x), textbook.nngp_and_ntk(spec, x.reshape(3, 36))):
        np.testing.assert_allclose(images, vectors, rtol=1e-14)


# --------------------------------------------------------------------------------------- wrong formulas


def plant(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]) -> None:
    """Replace the textbook's formula `name` by `wrong`, which receives the correct formula and its arguments."""
    monkeypatch.setattr(textbook, name, partial(wrong, getattr(textbook, name)))


def pixels_of(layer: Any) -> int:
    return int(np.prod(layer.kernel_size)) if isinstance(layer, mn.Conv2d) else 1


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "no bias": ("dense", lambda right, layer, K, T: right(replace(layer, b_std=0.0), K, T)),
    "no bias in Theta": ("dense", lambda right, layer, K, T: (right(layer, K, T)[0], layer.w_std**2 * (K + T))),
    "every bias drawn": ("dense", lambda right, layer, K, T: right(replace(layer, b_init="normal"), K, T)),
    "w for w^2": ("dense", lambda right, layer, K, T: right(replace(layer, w_std=layer.w_std**0.5), K, T)),
    "last layer alone": ("dense", lambda right, layer, K, T: right(layer, K, 0 * T)),
    "no relu'": ("relu_dual", lambda right, *args: (right(*args)[0], 1.0)),
    "relu times sqrt 2": ("relu_dual", lambda right, *args: (2 * right(*args)[0], right(*args)[1])),
    "no erf'": ("erf_dual", lambda right, *args: (right(*args)[0], 1.0)),
    "erf of x / sqrt 2": ("erf_dual", lambda right, *args: tuple(right(*(a / 2 for a in args)))),
    "fan_in without K K": ("pixel_mean", lambda right, layer, K: right(layer, K) * pixels_of(layer)),
    "windows shifted apart": (
        "pixel_mean",
        lambda right, layer, K: right(
            mn.AvgPool(layer.kernel_size, stride=layer.stride, padding=layer.padding)
            if isinstance(layer, mn.Conv2d)
            else layer,
            K,
        ),
    ),
    "flattened as if pooled": (
        "pixel_mean",
        lambda right, layer, K: right(mn.GlobalAvgPool() if isinstance(layer, mn.Flatten) else layer, K),
    ),
    "pooled as if flattened": (
        "pixel_mean",
        lambda right, layer, K: right(mn.Flatten() if isinstance(layer, mn.GlobalAvgPool) else layer, K),
    ),
}


def check_both_ends() -> None:
    for end in ENDS.values():
        spec = mn.Sequential(CNN, end, mn.Dense(1))
        check(spec, pictures(), image_bounds(spec), flattened(spec))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_formula_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_both_ends()
    plant(monkeypatch, *WRONG[name])
    with pytest.raises(AssertionError, match="is off by"):
        check_both_ends()


# ------------------------------------------------------------------------------------- digits of the NTK


def hard_rows(seed: int) -> Array:
    """Return four rows x, their copies, -x and 3 x, and rows at angles of 1e-7, 1e-8 and 1e-9 to x."""
    x, side = np.random.default_rng(seed).normal(size=(2, 4, 6))
    side -= x * ((side * x).sum(1) / (x * x).sum(1))[:, None]
    side *= (np.linalg.norm(x, axis=1) / np.linalg.norm(side, axis=1))[:, None]
    return np.concatenate([x, x, -x, 3 * x, x + 1e-7 * side, x + 1e-8 * side, x + 1e-9 * side])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_theta_of_nearly_parallel_rows_keeps_half_of_its_digits(depth: int) -> None:
    """Check the accuracies in the textbook's docstring against 70-digit values, relative to sqrt(k(x, x) k(x', x'))."""
    hidden = depth * [mn.Dense(8, w_std=R2, b_std=0.1), mn.ReLU()]
    spec = mn.Sequential(*hidden, mn.Dense(1, w_std=R2, b_std=0.1))
    worst = {"textbook": (0.0, 0.0), "engine": (0.0, 0.0)}
    for seed in range(3):
        x = hard_rows(seed)
        truth = exact_kernels(spec, x)
        for name, both in (("textbook", textbook.nngp_and_ntk(spec, x)), ("engine", an.kernel(spec).both(x))):
            errors = largest_errors(both, truth)
            worst[name] = (max(worst[name][0], errors[0]), max(worst[name][1], errors[1]))
    for name, errors in worst.items():
        print(f"{depth} ReLU layers, {name}: K off by {errors[0]:.1e}, Theta by {errors[1]:.1e}")
    assert max(*worst["engine"], worst["textbook"][0]) < 3e-15 * depth
    assert 1e-9 < worst["textbook"][1] < 1e-8 * depth


# ---------------------------------------------------------------------------------------- gradient flow


def problem(seed: int = 0) -> tuple[Array, Array, Array, Array, Array]:
    """Return Theta of eight training rows, Theta of three test rows with these eight, targets, and outputs at t = 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(11, 4))
    k = an.kernel(mn.Sequential(mn.Dense(9, w_std=R2, b_std=0.1), mn.ReLU(), mn.Dense(1)))
    y, f0, f0_test = rng.normal(size=(8, 2)), rng.normal(size=(8, 2)), rng.normal(size=(3, 2))
    return k.ntk(x[:8]), k.ntk(x[8:], x[:8]), y, f0, f0_test


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 7.0, 1e4, np.inf]))
def test_gradient_flow_is_the_engines(seed: int, t: float) -> None:
    """Outputs agree with the engine's to within a multiple of EPS times the condition number.

    Single eigenvectors may be less accurate: their errors are of order EPS divided by the relative gaps.
    """
    Theta, Theta_test, y, f0, f0_test = problem(seed)
    flow = an.gradient_flow(Theta, y)
    within = 100 * EPS * np.linalg.cond(Theta) * np.abs(y - f0).max() * len(y)
    test = textbook.gradient_flow(Theta, y, t, Theta_test, f0, f0_test)
    train = textbook.gradient_flow(Theta, y, t, Theta, f0, f0)
    assert np.abs(test - flow.predict(t, Theta_test, f0, f0_test)).max() < within
    assert np.abs(train - flow.predict(t, f0=f0)).max() < within


def law_small_steps(flow: Callable[..., Array], h: float = 1e-3, steps: int = 2000) -> None:
    """Steps f <- f - (h/N) Theta (f - y) stay within `steps` h^2 / 2 max |d^2 f / dt^2| of the flow.

    d^2 f / dt^2 = Theta(x, X) / N Theta / N (f - y), and |f - y| never grows because the steps are stable.
    """
    Theta, Theta_test, y, f0, f0_test = problem()
    f, f_test = f0, f0_test
    for _ in range(steps):
        f, f_test = f - h / len(y) * Theta @ (f - y), f_test - h / len(y) * Theta_test @ (f - y)
    within = steps * h**2 / 2 * np.linalg.norm(Theta_test, 2) * np.linalg.norm(Theta, 2) / len(y) ** 2
    error = np.linalg.norm(flow(Theta, y, steps * h, Theta_test, f0, f0_test) - f_test)
    assert error < within * np.linalg.norm(f0 - y), f"off by {error:.1e}"


def test_gradient_flow_is_many_small_steps() -> None:
    law_small_steps(textbook.gradient_flow)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda Theta, y, t, *rest: textbook.gradient_flow(Theta, y, t * len(y), *rest),
        lambda Theta, y, t, Theta_test, f0, f0_test: textbook.gradient_flow(Theta, y, t, Theta_test, 0.0, f0_test),
        lambda Theta, y, t, Theta_test, f0, f0_test: textbook.gradient_flow(Theta, y, t, Theta_test, f0, 0.0),
        lambda Theta, y, t, *rest: textbook.gradient_flow(Theta, y, np.inf, *rest),
    ],
    ids=["loss without 1/N", "f0 = 0", "f0_test = 0", "the limit"],
)
def test_another_flow_is_refused(wrong: Callable[..., Array]) -> None:
    with pytest.raises(AssertionError, match="off by"):
        law_small_steps(wrong)


# ------------------------------------------------------------------------------------------- what it refuses

D = mn.Dense(3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (mn.Sequential(D, mn.Tanh(), D), r"Tanh\(\) after Dense\(.*not in the textbook"),
        (mn.Sequential(D, mn.LayerNorm(), D), "LayerNorm"),
        (mn.Sequential(D, mn.Residual(D), D), "Residual"),
        (mn.Sequential(mn.AvgPool(2, padding=1, normalize_edges=True), mn.Flatten(), D), "normalize_edges=True"),
        (mn.Sequential(mn.ReLU(), D), r"ReLU\(\) after Identity"),
        (mn.Sequential(D, mn.Sequential(mn.Erf(), mn.ReLU()), D), r"ReLU\(\) after Erf\(\)"),
    ],
)
def test_other_layers_are_refused(spec: mn.Sequential, message: str) -> None:
    with pytest.raises(mn.UnsupportedLayer, match=message):
        textbook.nngp_and_ntk(spec, np.ones((2, 3, 3, 1) if isinstance(spec.layers[0], mn.AvgPool) else (2, 3)))


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="expects float32 or float64, got int64"):
        textbook.nngp_and_ntk(D, np.ones((2, 3), int))
    with pytest.raises(ValueError, match="NaN or infinite"):
        textbook.nngp_and_ntk(D, np.array([[np.nan]]))
    for shape in ((2, 3, 4), (2, 0)):
        with pytest.raises(ValueError, match=r"expects vectors \(N, d\) or images \(N, H, W, C\), got shape"):
            textbook.nngp_and_ntk(mn.Flatten(), np.ones(shape))
    with pytest.raises(ValueError, match=r"put mn.Flatten\(\) before it"):
        textbook.nngp_and_ntk(D, np.ones((2, 3, 4, 1)))
    with pytest.raises(ValueError, match=r"x2 expects shape \(N, 3\), got \(2, 4\)"):
        textbook.nngp_and_ntk(D, np.ones((2, 3)), np.ones((2, 4)))
    one = np.ones((2, 1))
    for Theta, t in ((np.ones((2, 2)), 1.0), (np.eye(2), -1.0), (np.eye(2), np.nan), (np.eye(2) + np.eye(2, k=1), 1.0)):
        with pytest.raises(ValueError, match="t >= 0 and Theta positive definite"):
            textbook.gradient_flow(Theta, one, t, Theta)
    with pytest.raises(ValueError, match="y expects shape"):
        textbook.gradient_flow(np.eye(2), np.ones(2), 1.0, np.eye(2))
    with pytest.raises(ValueError, match="Theta_test holds 1 values that are NaN"):
        textbook.gradient_flow(np.eye(2), one, 1.0, np.array([[np.nan, 0.0]]))
    for f0, f0_test in ((np.ones(2), 0.0), (0.0, np.ones(2)), (np.nan, 0.0), (0.0, np.full((2, 1), np.inf))):
        with pytest.raises(ValueError, match="expect a finite number or finite values"):
            textbook.gradient_flow(np.eye(2), one, 1.0, np.eye(2), f0, f0_test)


def test_the_textbook_imports_nothing_that_is_there_for_speed() -> None:
    assert textbook.__file__
    tree = ast.parse(Path(textbook.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"numpy"}
    assert modules <= {"itertools", "minintk", "minintk.arrays", "minintk.spec.shapes", "minintk.spec.windows"}
