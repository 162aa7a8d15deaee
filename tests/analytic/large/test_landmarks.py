"""Test regression on landmarks against the dense formulas and the exact solution. Planted errors must be detected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import analytic as an
import minintk as mn
from analytic.large import landmarks, solve
from analytic.large.landmarks import Nystrom, chosen

Array = Any
KERNEL = an.kernel(mn.Sequential(mn.Dense(64, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
N, RIDGE = 90, 0.1


@pytest.fixture(autouse=True, params=["held", "squared"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use pieces of a few rows, which are kept in memory or only accumulated. Do not wait for disks."""
    monkeypatch.setattr(landmarks, "PIECE", 8 * 20 * 13)
    monkeypatch.setattr(landmarks, "ROWS", 13)
    monkeypatch.setattr(landmarks, "HELD", 2**32 if request.param == "held" else 0)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    return str(request.param)


def data(dtype: str = "float64") -> tuple[Array, Array, Array, Array]:
    """Return x : (N, 6), y : (N, 2), x_test : (7, 6) and weight : (N,)."""
    rng = np.random.default_rng(0)
    x, x_test, weight = rng.standard_normal((N, 6)), rng.standard_normal((7, 6)), rng.uniform(0, 2, N)
    weight[:3] = 0.0
    y = np.column_stack([x[:, 0] ** 2, rng.standard_normal(N)])
    return x.astype(dtype), y.astype(dtype), x_test.astype(dtype), weight.astype(dtype)


def dense(x: Array, y: Array, at: Array, ridge: float, w: Array) -> Array:
    """Return the `a` that minimises |W^1/2 (K_nm a - y)|^2 + ridge a' K_mm a, by `lstsq` on one matrix."""
    L = scipy.linalg.cholesky(KERNEL.ntk(x[at]), lower=True)
    A = np.concatenate([np.sqrt(w)[:, None] * KERNEL.ntk(x, x[at]), np.sqrt(ridge) * L.T])
    b = np.concatenate([np.sqrt(w)[:, None] * y, np.zeros((len(at), y.shape[1]))])
    return np.linalg.lstsq(A, b, rcond=None)[0]


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("m", [1, 20])
def test_coefficients_are_those_of_least_squares(tmp_path: Path, m: int, weighted: bool, stored: bool) -> None:
    x, y, x_test, w = data()
    weight, store = w if weighted else None, tmp_path if stored else None
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, by="landmarks", landmarks=m, weight=weight, tol=1e-11, store=store)
    at = fit.landmarks
    assert at is not None
    assert len(at) == m
    a = dense(x, y, at, RIDGE, w if weighted else np.ones(N))
    np.testing.assert_allclose(fit.coefficients, a, atol=1e-7)
    np.testing.assert_allclose(fit.predict(x_test), KERNEL.ntk(x_test, x[at]) @ a, atol=1e-7)
    assert fit.predict(x_test[:0]).shape == (0, 2)
    ones = w if weighted else np.ones(N)
    left = ones[:, None] * (y - KERNEL.ntk(x, x[at]) @ a)
    left[at] -= RIDGE * a
    sizes = np.linalg.norm(ones[:, None] * y, axis=0)
    np.testing.assert_allclose(fit.residual, (np.linalg.norm(left, axis=0) / sizes).max(), rtol=1e-6)


@pytest.mark.parametrize("ridge", [0.0, RIDGE])
def test_all_examples_as_landmarks_are_the_exact_solution(ridge: float) -> None:
    x, y, x_test, _ = data()
    fit = an.solve(KERNEL, x, y, ridge=ridge, by="landmarks", landmarks=10 * N)
    exact = an.solve(KERNEL, x, y, ridge=ridge)
    np.testing.assert_allclose(fit.coefficients, exact.coefficients, atol=1e-7)
    np.testing.assert_allclose(fit.predict(x_test), exact.predict(x_test), atol=1e-8)
    assert fit.residual < 1e-8  # residual of the full system
    assert fit.steps <= 3  # the preconditioner is exact
    few = an.solve(KERNEL, x, y, ridge=ridge, by="landmarks", landmarks=20)
    assert np.abs(few.predict(x_test) - exact.predict(x_test)).max() > 0.01


@pytest.mark.parametrize("wrong", ["ridge", "right", "weight", "order", "piece", "factor"])
def test_a_wrong_formula_is_another_answer(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _, w = data()
    product, coefficients, rows, sums = Nystrom.product, Nystrom.coefficients, Nystrom.rows, Nystrom._sums

    def unweighted(self: Nystrom, *args: Any) -> Array:
        self.weight = np.ones(N)
        return sums(self, *args)

    planted: dict[str, dict[str, Any]] = {
        "ridge": {"product": lambda self, v: product(self, v) + self.ridge * v},
        "right": {"_sums": lambda self, wy, *a: sums(self, wy / np.maximum(w, 0.01)[:, None], *a)},
        "weight": {"_sums": unweighted},
        "order": {"coefficients": lambda self, v: self.L @ v},
        "piece": {"rows": lambda self, i: rows(self, i) * (i > 0)},
        "factor": {"coefficients": lambda self, v: coefficients(self, v) * 1.001},
    }
    a = dense(x, y, chosen(20, N), RIDGE, w)
    how: Any = {"ridge": RIDGE, "by": "landmarks", "landmarks": 20, "weight": w}
    assert np.abs(an.solve(KERNEL, x, y, **how).coefficients - a).max() < 1e-6
    for name, method in planted[wrong].items():
        monkeypatch.setattr(Nystrom, name, method)
    try:
        assert np.abs(an.solve(KERNEL, x, y, **how).coefficients - a).max() > 1e-4
    except ValueError as error:
        assert "positive definite" in str(error) or "residual" in str(error)  # noqa: PT017


def test_targets_of_any_size_have_their_residual() -> None:
    x, y, _, _ = data()
    how: Any = {"ridge": RIDGE, "by": "landmarks", "landmarks": 20}
    expected = an.solve(KERNEL, x, y, **how).residual
    for size in (1e-300, 1e300):
        assert an.solve(KERNEL, x, size * y, **how).residual == pytest.approx(expected)


def test_a_stored_solve_does_not_depend_on_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with much and with little free memory, as on different machines, give bitwise identical coefficients."""
    x, y, _, _ = data()
    found = []
    for name, free in (("much", 2**40), ("little", 2**10)):
        monkeypatch.setattr(landmarks, "available_memory", lambda xp, free=free: free)
        how: Any = {"ridge": RIDGE, "by": "landmarks", "landmarks": 20, "store": tmp_path / name}
        found.append(an.solve(KERNEL, x, y, **how).coefficients)
    assert np.array_equal(found[0], found[1])


def test_a_preconditioner_saves_steps_and_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _, w = data()
    how: Any = {"ridge": 0.01, "by": "landmarks", "landmarks": 40, "weight": w}
    right = an.solve(KERNEL, x, y, **how)
    monkeypatch.setattr(Nystrom, "precondition", lambda self, r: r)
    without = an.solve(KERNEL, x, y, **how)
    assert right.steps < without.steps
    np.testing.assert_allclose(right.coefficients, without.coefficients, atol=1e-5)


def test_weights_are_repetitions() -> None:
    x, y, x_test, _ = data()
    times = np.arange(N) % 3
    at = np.flatnonzero(times)[:20]
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, by="landmarks", landmarks=at, weight=times.astype(float), tol=1e-11)
    again = np.repeat(np.arange(N), times)
    first = np.searchsorted(again, at)
    repeated = an.solve(KERNEL, x[again], y[again], ridge=RIDGE, by="landmarks", landmarks=first, tol=1e-11)
    np.testing.assert_allclose(fit.predict(x_test), repeated.predict(x_test), atol=1e-8)


def test_float32_and_coinciding_landmarks_have_an_answer() -> None:
    x, y, x_test, _ = data("float32")
    x[1] = x[0]
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, by="landmarks", landmarks=np.arange(40))
    other = an.solve(
        KERNEL, *(a.astype(float) for a in (x, y)), ridge=RIDGE, by="landmarks", landmarks=np.arange(1, 40)
    )
    assert fit.predict(x_test).dtype == np.float32
    np.testing.assert_allclose(fit.predict(x_test), other.predict(x_test.astype(float)), atol=2e-3)


@pytest.mark.parametrize("writes", [2, 7])
def test_a_killed_solve_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """A solve killed after its second or seventh write continues from the store without repeating a step."""
    x, y, _, _ = data()
    monkeypatch.setattr(landmarks, "KEPT", -1.0)
    how: Any = {"ridge": RIDGE, "by": "landmarks", "landmarks": 20, "store": tmp_path / "killed"}
    write, calls = solve._write, [0]

    def dies(*args: Any) -> None:
        write(*args)
        calls[0] += 1
        if calls[0] == writes:
            raise KeyboardInterrupt

    monkeypatch.setattr(solve, "_write", dies)
    with pytest.raises(KeyboardInterrupt):
        an.solve(KERNEL, x, y, **how)
    steps = calls[0]
    again = an.solve(KERNEL, x, y, **how)
    taken = calls[0] - steps
    plain = an.solve(KERNEL, x, y, **how | {"store": tmp_path / "plain"})
    assert taken + steps == calls[0] - steps - taken  # no step is repeated
    np.testing.assert_array_equal(again.coefficients, plain.coefficients)
    assert [path.name for path in (tmp_path / "killed").glob("landmarks-*/kernel/*.npy")] == ["ntk.npy"]


def test_each_entry_is_computed_once(way: str) -> None:
    """If K_nm does not fit in memory, each entry is computed once more, for the residual."""
    x, y, _, _ = data()
    sizes: list[int] = []

    def counted(x1: Array, x2: Array | None = None) -> Array:
        sizes.append(len(x1))
        return KERNEL.ntk(x1, x2)

    S = Nystrom(counted, x, y, np.arange(20), RIDGE, np.ones(N))
    S.product(S.product(S.right))
    S.residual(S.right, y)
    assert sum(sizes[1:]) == (N if way == "held" else 2 * N)
    assert len(S.pieces) == (7 if way == "held" else 5)


class Negative:
    """The negative of the NTK, which is not a kernel."""

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        return -KERNEL.ntk(x1, x2)

    ntk = nngp


def test_what_is_no_kernel_is_refused() -> None:
    x, y, _, _ = data()
    with pytest.raises(ValueError, match="between the 20 landmarks is expected to be positive semi-definite"):
        an.solve(Negative(), x, y, by="landmarks", landmarks=20)
    with pytest.raises(TypeError, match="which say what they are"):
        an.solve(Negative(), x, y, by="landmarks", landmarks=20, store="never")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"landmarks": 0}, "landmarks expects"), ({"landmarks": [0, 0]}, "landmarks expects"),
        ({"landmarks": [0, N]}, "landmarks expects"), ({"landmarks": [-1]}, "landmarks expects"),
        ({"landmarks": 2.5}, "landmarks expects"), ({"landmarks": []}, "landmarks expects"),
        ({"weight": np.ones(3)}, "weight expects"), ({"weight": -np.ones(N)}, "weight expects"),
        ({"weight": np.zeros(N)}, "weight expects"), ({"weight": np.full(N, np.nan)}, "weight"),
        ({"by": "cholesky", "landmarks": 5}, "expect by='landmarks'"), ({"tol": 2.0}, "tol"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(change: dict[str, Any], error: str) -> None:
    x, y, _, _ = data()
    with pytest.raises(ValueError, match=error):
        an.solve(KERNEL, **({"x": x, "y": y, "by": "landmarks"} | change))


def test_weights_are_an_array() -> None:
    x, y, _, w = data()
    with pytest.raises(TypeError, match="weight: expected arrays of one library"):
        an.solve(KERNEL, x, y, by="landmarks", weight=w.tolist())


def test_memory_is_asked_for_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _, _ = data()
    monkeypatch.setattr("analytic.training.eigen.available_memory", lambda xp: 1000)
    with pytest.raises(MemoryError, match=r"on 20 landmarks, needs .* take fewer landmarks"):
        an.solve(KERNEL, x, y, by="landmarks", landmarks=20)


@pytest.mark.parametrize("ridge", [1e-3, 1e-2])
def test_nearly_singular_landmarks_do_not_make_the_sum_indefinite(ridge: float) -> None:
    """In two dimensions, the kernel of 200 landmarks is singular up to rounding. Predictions are accurate to 1e-3."""
    x = np.random.default_rng(0).standard_normal((300, 2))
    kernel = an.kernel(mn.Sequential(mn.Dense(1, b_std=0.1), mn.Erf(), mn.Dense(1)))
    fit = an.solve(kernel, x, np.sin(2 * x[:, :1]), ridge=ridge, kind="nngp", by="landmarks", landmarks=200)
    whole = an.posterior(kernel, x, np.sin(2 * x[:, :1]), ridge=ridge, kind="nngp")
    np.testing.assert_allclose(fit.predict(x[:50]), whole.predict(x[:50]), atol=1e-3)
