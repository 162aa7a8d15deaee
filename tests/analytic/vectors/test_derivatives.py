"""Derivatives of both kernels in log w_std and log b_std, against differences of the engine's own kernels."""

import sys
import tracemalloc
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.vectors import derivatives as d

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
    """Rows of different size, two equal ones, two opposite ones, and zeros."""
    x = np.random.default_rng(0).standard_normal((6, 5)) * np.array([[1.0], [1], [1], [0], [0.1], [30.0]])
    x[1], x[2] = x[0], -x[0]
    return x


def worst(found: Any, wanted: Any) -> float:
    pairs = [(a, b) for both, want in zip(found, wanted) for a, b in zip(both, want)]
    return max(float(abs(a - b).max() / max(abs(b).max(), 1e-300)) for a, b in pairs)


def by_differences(kernel: Any, x1: np.ndarray, x2: np.ndarray) -> list[Any]:
    return [d.differences(partial(kernel._scaled, name), x1, x2) for name in d.PARAMETERS]


@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.Standard(), mn.PyTorch()], ids=repr)
@pytest.mark.parametrize("name", SPECS)
def test_forward_mode_is_the_limit_of_differences(name: str, parametrization: Any) -> None:
    """Within 1e-7 for equal rows, whose angle is known to the square root of the precision; 1e-10 for others."""
    kernel, x = an.kernel(SPECS[name], parametrization), rows()
    assert worst(kernel.derivatives(x), by_differences(kernel, x, x)) < 1e-7
    apart = x[[0, 4, 5]], np.random.default_rng(1).standard_normal((4, 5))
    assert worst(kernel.derivatives(*apart), by_differences(kernel, *apart)) < 1e-10


@pytest.mark.parametrize("left_out", ["_relative", "drest"])
def test_a_term_left_out_is_noticed(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = an.kernel(SPECS["biases from zero" if left_out == "drest" else "relu"]), rows()
    wanted = by_differences(kernel, x, x)
    if left_out == "_relative":
        monkeypatch.setattr(d, "_relative", lambda xp, q: 0 * q.da)
    else:
        affine = d._affine
        monkeypatch.setattr(d, "_affine", lambda step, doubled, *rest: affine(step, [step, *doubled[1:]], *rest))
    assert worst(kernel.derivatives(x), wanted) > 1e-3


@pytest.mark.parametrize(
    "spec",
    [
        mn.Sequential(mn.Dense(8, b_std=0.5), mn.Tanh(), mn.Dense(1)),
        mn.Sequential(mn.Conv2d(8, 3, b_std=0.5), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)),
    ],
    ids=["quadrature", "images"],
)
def test_other_kernels_by_differences(spec: mn.Sequential) -> None:
    """A power law in each layer's scales checks them: K is homogeneous of degree 2 in the last layer's w_std."""
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


def test_many_rows_take_a_few_numbers_beside_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows at a time are as good as all, in 7 numbers a pair for the 4 of the result; it was 27."""
    x, kernel = np.random.default_rng(0).standard_normal((300, 5)), an.kernel(SPECS["residual"])
    whole = kernel.derivatives(x)
    monkeypatch.setattr(d, "PAIRS_AT_ONCE", 5000)
    tracemalloc.start()
    found = kernel.derivatives(x)
    peak = tracemalloc.get_traced_memory()[1] / 8 / 300**2
    tracemalloc.stop()
    assert peak < 7
    apart = [np.where(np.eye(300) > 0, 0, a - b) for one, two in zip(found, whole) for a, b in zip(one, two)]
    assert max(float(abs(one).max()) for one in apart) < 1e-11  # the angle of a row with itself is rounding


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_too_many_rows_are_refused_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytic.training.eigen.available_memory", lambda xp: 3e9)
    for work in ("derivatives", "differences"):
        monkeypatch.setattr(sys.modules["analytic.kernels"], work, None)
    spec = SPECS.get(name, mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)))
    with pytest.raises(MemoryError, match=r"derivatives of kernels of 10000 x 10000 examples need.*fewer rows"):
        an.kernel(spec).derivatives(np.ones((10000, 5)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-140, 1e5, 1e9, 1e20, 1e35, 1e100, 1e150, 1e152])
@pytest.mark.parametrize("name", SPECS)
def test_rows_of_any_size_are_right_or_refused(name: str, scale: float, dtype: str) -> None:
    """Right to 1e-7 of the largest, and 64 roundings of differences, whose kernels are exact at any scale."""
    kernel, x = an.kernel(SPECS[name]), rows()[:5] * scale
    if dtype == "float32" and abs(x).max() > 1e38:
        return
    if (dtype == "float32" and scale > 1e15 and name != "erf") or scale > 1e151:
        with suppress(ValueError):
            assert all(np.isfinite(a).all() for both in kernel.derivatives(x.astype(dtype)) for a in both)
        return
    found = kernel.derivatives(x.astype(dtype))
    wide, tolerance = x.astype(dtype).astype(np.float64), 1e-7 if dtype == "float64" else 1e-6
    for both, wanted in zip(found, by_differences(kernel, wide, wide)):
        for a, b, k in zip(both, wanted, kernel.both(wide)):
            assert abs(a - b).max() < tolerance * abs(b).max() + 2**-44 / d.STEP * k.max()


def test_erf_by_cosines_is_not_taken_where_they_are_too_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no bound; Theta of rows of size 1e7 is then off by more than 1e-3."""
    kernel, x = an.kernel(SPECS["erf"]), 1e7 * rows()[:5]
    monkeypatch.setattr(d, "SMALLEST_SINE", -1.0)
    assert worst(kernel.derivatives(x), by_differences(kernel, x, x)) > 1e-3
