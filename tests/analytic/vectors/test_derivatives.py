"""Test derivatives with respect to log w_std and log b_std against autograd through the papers' recursion."""

import sys
import tracemalloc
from contextlib import suppress
from itertools import product
from typing import Any

import autograd.numpy as np_
import numpy as np
import pytest
from autograd import jacobian

import analytic as an
import minintk as mn
from analytic.vectors import derivatives as d
from tests.kit.thinned import thinned

SPECS: dict[str, mn.Sequential] = {
    "relu": mn.Sequential(
        mn.Dense(64, w_std=1.3, b_std=0.4), mn.ReLU(), mn.Dense(64, w_std=1.2, b_std=0.3), mn.ReLU(),
        mn.Dense(1, b_std=0.2),
    ),
    "erf": mn.Sequential(mn.Dense(64, w_std=1.3, b_std=0.4), mn.Erf(), mn.Dense(64), mn.Erf(), mn.Dense(1, b_std=0.2)),
    "residual": mn.Sequential(
        mn.Dense(64, w_std=1.3, b_std=0.4),
        mn.Residual(mn.Sequential(mn.LeakyReLU(0.2), mn.Dense(64, b_std=0.1))),
        mn.LayerNorm(), mn.Abs(), mn.Dense(1),
    ),
    "biases from zero": mn.Sequential(
        mn.Dense(64, w_std=1.3, b_std=0.4, b_init="zeros"), mn.ReLU(), mn.Dense(64, b_std=1.0), mn.ReLU(), mn.Dense(1)
    ),
}  # fmt: skip


def rows() -> np.ndarray:
    """Return rows of different norms, including two equal rows, two opposite rows, and zeros."""
    x = np.random.default_rng(0).standard_normal((6, 5)) * np.array([[1.0], [1], [1], [0], [0.1], [30.0]])
    x[1], x[2] = x[0], -x[0]
    return x


def worst(found: Any, wanted: Any) -> float:
    pairs = [(a, b) for both, want in zip(found, wanted) for a, b in zip(both, want)]
    return max(float(abs(a - b).max() / max(abs(b).max(), 1e-300)) for a, b in pairs)


def recursion(spec: mn.Sequential, x1: Any, x2: Any) -> Any:
    """Return a function that maps (log factor of w_std, log factor of b_std) to K and Theta, (2, N, M).

    The function uses the papers' recursion in cosines.
    """

    def kernels(logs: Any) -> Any:
        w, b = np_.exp(logs[0]), np_.exp(logs[1])
        q, q2, K = (x1**2).mean(1)[:, None], (x2**2).mean(1)[None], x1 @ x2.T / x1.shape[1]
        Theta: Any = 0 * K
        for layer in spec:
            if isinstance(layer, mn.Dense):
                w2, trained = (w * layer.w_std) ** 2, (b * layer.b_std) ** 2
                drawn = trained if layer.b_init == "normal" else 0.0
                Theta = w2 * (Theta + K) + trained
                q, q2, K = w2 * q + drawn, w2 * q2 + drawn, w2 * K + drawn
            elif isinstance(layer, mn.ReLU):
                n = np_.sqrt(q * q2)
                c = K / n
                slope = (np.pi - np_.arccos(c)) / (2 * np.pi)
                K, Theta = n * np_.sqrt(1 - c**2) / (2 * np.pi) + K * slope, Theta * slope
                q, q2 = q / 2, q2 / 2
            else:
                assert isinstance(layer, mn.Erf)
                g = (1 + 2 * q) * (1 + 2 * q2)
                Theta = Theta * 4 / np.pi / np_.sqrt(g - 4 * K**2)
                K = 2 / np.pi * np_.arcsin(2 * K / np_.sqrt(g))
                q, q2 = (2 / np.pi * np_.arcsin(2 * v / (1 + 2 * v)) for v in (q, q2))
        return np_.array([K, Theta])

    return kernels


def by_autograd(spec: mn.Sequential, x1: np.ndarray, x2: np.ndarray) -> Any:
    """Return derivatives with respect to (log w_std, log b_std) of (K, Theta), as an array (2, 2, N, M)."""
    return np.moveaxis(jacobian(recursion(spec, x1, x2))(np.zeros(2)), -1, 0)


APART = np.random.default_rng(1).standard_normal((4, 5)), np.random.default_rng(2).standard_normal((3, 5))
NAMES = ("relu", "erf", "biases from zero")


@pytest.mark.parametrize("name", NAMES)
def test_they_are_those_of_the_recursion(name: str) -> None:
    assert worst(an.kernel(SPECS[name]).derivatives(*APART), by_autograd(SPECS[name], *APART)) < 1e-9


@pytest.mark.parametrize("wrong", [1e-2, 1e-9])
def test_a_wrong_step_is_noticed(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error exceeds 1e-8 for a step with a large truncation error, and for a step with a large rounding error."""
    monkeypatch.setattr(d, "STEP", wrong)
    assert worst(an.kernel(SPECS["relu"]).derivatives(*APART), by_autograd(SPECS["relu"], *APART)) > 1e-8


@pytest.mark.parametrize("name", SPECS)
def test_rows_that_are_equal_have_those_of_their_variances(name: str) -> None:
    """Compare diagonals and equal rows with finite differences of `diag`, which uses no angle, over a larger step."""
    kernel, x, h = an.kernel(SPECS[name]), rows(), 1e-4
    for k, parameter in enumerate(d.PARAMETERS):
        up, down = (kernel._scaled(parameter, np.exp(e)).diag(x) for e in (h, -h))
        for one, a, b in zip(kernel.derivatives(x)[k], up, down, strict=True):
            wanted = (a - b) / (2 * h)
            np.testing.assert_allclose(np.diag(one), wanted, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(one[0, 1], wanted[0], rtol=1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        mn.Sequential(mn.Dense(8, b_std=0.5), mn.Tanh(), mn.Dense(1)),
        mn.Sequential(mn.Conv2d(8, 3, b_std=0.5), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)),
    ],
    ids=["quadrature", "images"],
)
def test_other_kernels_by_differences(spec: mn.Sequential) -> None:
    """Compare derivatives of a quadrature kernel and of an image kernel with finite differences over a larger step."""
    x = np.random.default_rng(0).standard_normal((3, 5) if isinstance(spec.layers[0], mn.Dense) else (3, 4, 4, 2))
    kernel = an.kernel(spec)
    found = kernel.derivatives(x)
    last = spec.layers[-1]
    assert isinstance(last, mn.Dense)
    h = 1e-4
    for i, name in enumerate(d.PARAMETERS):
        up, down = (kernel._scaled(name, np.exp(e)).both(x) for e in (h, -h))
        for a, b, derivative in zip(up, down, found[i]):
            assert np.allclose((a - b) / (2 * h), derivative, rtol=1e-6, atol=1e-7)


def test_precision_and_shapes() -> None:
    x = rows().astype(np.float32)
    found = an.kernel(SPECS["relu"]).derivatives(x, x[:2])
    assert {a.dtype for both in found for a in both} == {np.dtype(np.float32)}
    assert {a.shape for both in found for a in both} == {(6, 2)}
    with pytest.raises(ValueError, match="x1"):
        an.kernel(SPECS["relu"]).derivatives(np.full((2, 3), np.nan))


@pytest.mark.parametrize("name", ["residual", "dropout"])
def test_many_rows_go_block_by_block(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives in blocks equal those in one piece, also with masks, and need fewer than 9 numbers per pair."""
    spec = SPECS.get(name, mn.Sequential(mn.Dense(8, b_std=0.5), mn.ReLU(), mn.Dropout(0.5), mn.Dense(1)))
    x, kernel = np.random.default_rng(0).standard_normal((400, 5)), an.kernel(spec)
    whole = kernel.derivatives(x)
    monkeypatch.setattr(sys.modules["analytic.kernels"], "ROWS_AT_ONCE", 150)
    tracemalloc.start()
    found = kernel.derivatives(x)
    peak = tracemalloc.get_traced_memory()[1] / 8 / 400**2
    tracemalloc.stop()
    assert peak < 9
    assert worst(found, whole) < 1e-9


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_too_many_rows_are_refused_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytic.training.eigen.available_memory", lambda xp: 3e9)
    monkeypatch.setattr(sys.modules["analytic.kernels"], "differences", None)
    spec = SPECS.get(name, mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)))
    with pytest.raises(MemoryError, match=r"derivatives of kernels of 10000 x 10000 examples need.*fewer rows"):
        an.kernel(spec).derivatives(np.ones((10000, 5)))


def test_a_derivative_beyond_the_precision_is_told_by_its_pair() -> None:
    """The message names the two rows, for one set of rows and for two sets.

    Theta is within the range of float32, but dTheta / dlog w_std is not.
    """
    x = np.full((4, 5), 1e17, np.float32)
    x[2] = 1.2e19
    kernel = an.kernel(SPECS["relu"])
    for others, second in ((None, r"x1\[2\]"), (x[1:], r"x2\[1\]")):
        with pytest.raises(ValueError, match=rf"x1\[2\] and {second} have a derivative of .*, and float32 ends"):
            kernel.derivatives(x, others)


SCALES = 1e-140, 1e5, 1e9, 1e20, 1e35, 1e100, 1e150, 1e152


@pytest.mark.parametrize(("name", "scale", "dtype"), thinned(product(SPECS, SCALES, ("float32", "float64"))))
def test_rows_of_any_size_are_right_or_refused(name: str, scale: float, dtype: str) -> None:
    """Derivatives are accurate to 2e-5 of the largest derivative plus 256 eps max(K) / STEP.

    At extreme scales, they are finite or an error is raised. The finite differences of the test use steps of 100 STEP.
    """
    kernel, x = an.kernel(SPECS[name]), rows()[:5] * scale
    if dtype == "float32" and abs(x).max() > 1e38:
        return
    x = x.astype(dtype)
    if (dtype == "float32" and scale > 1e15 and name != "erf") or scale > 1e149:
        with suppress(ValueError):
            assert all(np.isfinite(a).all() for both in kernel.derivatives(x) for a in both)
        return
    wide, h = x.astype(np.float64), 100 * d.STEP
    for parameter, both in zip(d.PARAMETERS, kernel.derivatives(x), strict=True):
        up, down, here = (kernel._scaled(parameter, np.exp(e)).both(wide) for e in (h, -h, 0.0))
        for one, a, b, k in zip(both, up, down, here, strict=True):
            tolerance = 1e-5 * abs(a - b).max() / h + 2**-44 / d.STEP * k.max()
            assert abs(one - (a - b) / (2 * h)).max() < tolerance
