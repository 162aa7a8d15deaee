"""Test large-kernel regression on small kernels, against SciPy, after kills and damage, and for indefinite kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import analytic as an
import minintk as mn
from analytic.large import factor, gram, solve
from analytic.large.factor import Blocks, Factor
from analytic.large.gram import Gram
from minintk.files.locks import Claim

Array = Any
KERNEL = an.kernel(mn.Sequential(mn.Dense(64, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
N, RIDGE = 130, 0.01


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use blocks of 32 rows and threads that take 8 rows each, and do not wait for disks."""
    monkeypatch.setattr(gram, "BLOCK", 32)
    monkeypatch.setattr(factor, "PIECE", 8)
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def data(n: int = N, dtype: str = "float64", d: int = 8) -> tuple[Array, Array, Array]:
    """Return x : (n, d), y : (n, 3) and x_test : (17, d)."""
    rng = np.random.default_rng(0)
    x, x_test = rng.standard_normal((n, d)), rng.standard_normal((17, d))
    return x.astype(dtype), np.column_stack([x[:, :2] ** 2, rng.standard_normal(n)]).astype(dtype), x_test.astype(dtype)


def by_scipy(x: Array, y: Array, ridge: float, K: Array) -> Array:
    return scipy.linalg.solve(K.astype(np.float64) + ridge * np.eye(len(x)), y.astype(np.float64), assume_a="pos")


# ------------------------------------------------------------------------------------------- the right answer


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_coefficients_are_those_of_scipy(tmp_path: Path, dtype: str, stored: bool) -> None:
    """Coefficients differ from SciPy's by at most tol |y| / (smallest eigenvalue of K + ridge), for the stored K.

    Without a store, K is computed by another call, and in float32 may differ by rounding.
    """
    x, y, x_test = data(dtype=dtype)
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, tol=1e-10, store=tmp_path if stored else None)
    K = np.load(tmp_path / "ntk.npy") if stored else KERNEL.ntk(x)
    a = by_scipy(x, y, RIDGE, K)
    lowest = float(np.linalg.eigvalsh(K.astype(np.float64))[0]) + RIDGE
    rounding = 0.0 if stored or dtype == "float64" else 1e-6 * np.abs(K).max() * len(x) ** 0.5 * np.abs(a).max()
    assert fit.residual <= 1e-10
    assert np.linalg.norm(fit.coefficients - a) <= (1e-10 * np.linalg.norm(y) + rounding) / lowest + 1e-12
    assert fit.coefficients.dtype == np.float64
    f = fit.predict(x_test)
    assert f.dtype == dtype
    np.testing.assert_allclose(f, KERNEL.ntk(x_test, x) @ fit.coefficients, atol=1e-5 if dtype == "float32" else 1e-12)
    assert fit.predict(x_test[:0]).shape == (0, 3)


@pytest.mark.parametrize("n", [20, N])
def test_a_kernel_that_returns_its_own_array_keeps_it(n: int) -> None:
    """The factor overwrites its first panel. If this panel were the kernel's own array, answers would be wrong."""
    x, y, x_test = data(n)
    kept: dict[Any, Array] = {}

    def nngp(a: Array, b: Array | None = None) -> Array:
        return kept.setdefault((a.tobytes(), b is not None and b.tobytes()), KERNEL.nngp(a, b))

    own: Any = SimpleNamespace(nngp=nngp)
    fit, want = an.solve(own, x, y, ridge=RIDGE, kind="nngp"), an.posterior(KERNEL, x, y, ridge=RIDGE, kind="nngp")
    np.testing.assert_allclose(fit.predict(x_test), want.predict(x_test), rtol=0, atol=1e-8)
    if n == 20:
        np.testing.assert_array_equal(kept[x.tobytes(), False], KERNEL.nngp(x))


def test_matrices_are_for_posterior() -> None:
    x, y, _ = data(20)
    for by in ("cholesky", "landmarks"):
        with pytest.raises(TypeError, match="for kernel matrices use posterior"):
            an.solve((KERNEL.nngp(x), KERNEL.ntk(x)), np.arange(20), y, ridge=RIDGE, by=by)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["ridge", "last row", "sign"])
def test_an_error_in_the_product_changes_the_answer(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike an error in the preconditioner, an error in the product changes more than the number of steps."""
    x, y, _ = data(60)
    a = by_scipy(x, y, RIDGE, KERNEL.ntk(x))
    product = Gram.product

    def planted(self: Gram, v: Array) -> Array:
        found = product(self, v)
        if wrong == "ridge":
            return found + RIDGE * v
        return found + (0.1 * v if wrong == "sign" else np.where(np.arange(60)[:, None] == 59, 0.1 * v, 0.0))

    assert np.abs(an.solve(KERNEL, x, y, ridge=RIDGE).coefficients - a).max() < 1e-6
    monkeypatch.setattr(Gram, "product", planted)
    assert np.abs(an.solve(KERNEL, x, y, ridge=RIDGE).coefficients - a).max() > 1e-4


def test_the_factor_in_float32_alone_is_not_enough(tmp_path: Path) -> None:
    """After one step, the residual exceeds 1e-10 for a float32 factor, but not for float64. More steps reach 1e-10."""
    for dtype, enough in (("float64", True), ("float32", False)):
        x, y, _ = data(dtype=dtype)
        first = an.solve(KERNEL, x, y, ridge=RIDGE, tol=0.1, store=tmp_path / dtype)
        assert first.steps == 1
        assert (first.residual < 1e-10) == enough
        assert an.solve(KERNEL, x, y, ridge=RIDGE, tol=1e-10, store=tmp_path / f"{dtype}, on").residual < 1e-10


def test_a_wrong_factor_costs_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = data(60)
    right, reduce = an.solve(KERNEL, x, y, ridge=RIDGE), Factor._reduce

    def planted(self: Factor, panel: Array, at: slice, r: int, j: int) -> None:
        reduce(self, panel, at, r, j)
        panel[at, self.rows[j]] *= 1.01 if j < r else 1.0

    monkeypatch.setattr(Factor, "_reduce", planted)
    wrong = an.solve(KERNEL, x, y, ridge=RIDGE)
    assert right.steps <= 2 < wrong.steps
    np.testing.assert_allclose(wrong.coefficients, right.coefficients, atol=1e-6)


def test_targets_of_any_size_and_of_zero() -> None:
    x, y, _ = data(60)
    scaled = y * np.array([1e-200, 0.0, 1e200])
    a = an.solve(KERNEL, x, scaled, ridge=RIDGE).coefficients
    assert not a[:, 1].any()
    like = an.solve(KERNEL, x, y, ridge=RIDGE).coefficients
    np.testing.assert_allclose(a[:, [0, 2]] / [1e-200, 1e200], like[:, [0, 2]], atol=1e-6)


def without_factor(patch: pytest.MonkeyPatch) -> None:
    """Remove the preconditioner, so that the solver needs many steps."""
    patch.setattr(Factor, "__init__", lambda self, *_: None)
    patch.setattr(Factor, "solve", lambda self, r: r)


def test_the_factor_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor saves steps and does not change the answer."""
    x, y, _ = data()
    right = an.solve(KERNEL, x, y, ridge=RIDGE)
    without_factor(monkeypatch)
    plain = an.solve(KERNEL, x, y, ridge=RIDGE)
    assert right.steps <= 2 < plain.steps / 10
    np.testing.assert_allclose(plain.coefficients, right.coefficients, atol=1e-6)


def test_only_one_half_of_a_stored_kernel_is_read() -> None:
    x, y, _ = data(70)
    K = KERNEL.ntk(x)
    half = np.where(np.tri(70, dtype=bool), K, np.nan)
    for rows in (slice(0, 32), slice(32, 64), slice(64, 70)):
        half[rows, rows] = K[rows, rows]
    stored = Gram(KERNEL.ntk, x, RIDGE, half)  # type: ignore[arg-type]
    L = Factor(stored, None, progress=False)
    np.testing.assert_allclose(L.solve(y), by_scipy(x, y, RIDGE, K), atol=1e-8)
    np.testing.assert_allclose(stored.product(y), K @ y + RIDGE * y, atol=1e-12)


# ------------------------------------------------------------------------------------------- killed, damaged, shared


class Killed(Exception):
    """An exception that tests raise instead of killing the process."""


def files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each file, except lock files, which name a process."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def killed_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool) -> None:
    """Raise Killed at call number `call` of owner.name, before or after the call's work. Later calls run normally."""
    real, calls = getattr(owner, name), [0]

    def dies(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            raise Killed
        found = real(*args, **options)
        if calls[0] == call:
            raise Killed
        return found

    monkeypatch.setattr(owner, name, dies)


@pytest.mark.parametrize(
    ("by", "owner", "name", "call", "after"),
    [
        ("cholesky", Blocks, "append", 1, False),
        ("cholesky", Blocks, "append", 9, True),
        ("cholesky", os, "replace", 8, False),  # the block's file is written but not yet renamed
        ("cholesky", solve, "_step", 2, False),
        ("without factor", solve, "_step", 5, True),
        ("without factor", solve, "_write", 1, False),
        ("without factor", solve, "_write", 4, True),
    ],
)
def test_a_killed_solve_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: Any, owner: Any, name: str, call: int, after: bool
) -> None:
    """After a kill and a restart, all files equal those of an uninterrupted solve. No stored block is recomputed."""
    x, y, _ = data(dtype="float32")
    if by != "cholesky":
        without_factor(monkeypatch)
    whole = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path / "whole")
    with monkeypatch.context() as patch:
        killed_at(patch, owner, name, call, after)
        with pytest.raises(Killed):
            an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path / "killed")
    begun = len([*(tmp_path / "killed").glob("cholesky-*/*-*.npy")])
    computed: list[int] = []
    append = Blocks.append

    def counted(self: Blocks, block: Array) -> None:
        computed.append(len(self))
        append(self, block)

    monkeypatch.setattr(Blocks, "append", counted)
    again = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path / "killed")
    assert computed == (list(range(begun, 15)) if by == "cholesky" else [])
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert np.array_equal(again.coefficients, whole.coefficients)
    assert (again.residual, again.steps) == (whole.residual, whole.steps)


SCRIPT = """
import sys, numpy as np, minintk as mn, analytic as an
from analytic.large import gram
gram.BLOCK = 64
x = np.random.default_rng(0).standard_normal((1200, 8)).astype(np.float32)
k = an.kernel(mn.Sequential(mn.Dense(64, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
an.solve(k, x, x[:, :2], ridge=0.01, tol=1e-10, store=sys.argv[1])
"""


@pytest.mark.slow
def test_a_process_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Send SIGKILL after half a second, and a little later after each restart, until the process finishes first."""

    def start(folder: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / folder)])

    assert start("whole").wait() == 0
    kills, seconds = 0, 0.5
    while True:
        process = start("killed")
        try:
            assert process.wait(timeout=seconds) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills, seconds = kills + 1, 1.1 * seconds
    assert kills > 3
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_a_disk_too_small_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solve requires 84 kB of free space, minus the size of existing files."""
    x, y, _ = data()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=70_000))
    with monkeypatch.context() as patch:
        patch.setattr(Factor, "_row", None)
        with pytest.raises(OSError, match=r"needs 8\.4e-05 GB .* 7e-05 GB are free"):
            an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    assert an.solve(KERNEL, x, y[:, :1], ridge=RIDGE, store=tmp_path).residual < 1e-8


def test_finished_work_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solve for other targets reuses the factor. Another ridge requires another factor."""
    x, y, _ = data(60)
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    monkeypatch.setattr(Factor, "_row", None)
    other = an.solve(KERNEL, x, y[:, ::-1].copy(), ridge=RIDGE, store=tmp_path)
    np.testing.assert_allclose(other.coefficients[:, ::-1], fit.coefficients, atol=1e-6)
    monkeypatch.setattr(solve, "_step", None)
    assert np.array_equal(an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path).coefficients, fit.coefficients)
    with pytest.raises(TypeError):
        an.solve(KERNEL, x, y, ridge=2 * RIDGE, store=tmp_path)


@pytest.mark.parametrize("how", ["bytes", "name", "cut"])
def test_damage_is_noticed_and_mended(tmp_path: Path, how: str) -> None:
    x, y, _ = data()
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    before = files(tmp_path)
    (block,) = tmp_path.glob("cholesky-*/7-*.npy")
    if how == "bytes":
        content = bytearray(block.read_bytes())
        content[5000] ^= 1
        block.write_bytes(content)
    elif how == "cut":
        block.write_bytes(block.read_bytes()[:-5])
    else:
        block.rename(block.with_name("7-00000000.npy"))
    with pytest.warns(UserWarning, match="is the disk sound"):
        again = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    assert np.array_equal(again.coefficients, fit.coefficients)
    assert files(tmp_path) == before


def test_a_damaged_state_is_computed_again(tmp_path: Path) -> None:
    x, y, _ = data(60)
    fit = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    (path,) = tmp_path.glob("cholesky-*/*.npz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.warns(UserWarning, match="it is computed again"):
        again = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    assert np.array_equal(again.coefficients, fit.coefficients)


def test_a_second_starter_waits_and_has_the_result(tmp_path: Path) -> None:
    """A solve that starts while another holds the lock waits, then returns the stored result without taking a step."""
    x, y, _ = data(40)
    first = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    (folder,) = tmp_path.glob("cholesky-*")
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "_step", None)
        with Claim(folder / "solve.lock"):
            second = pool.submit(an.solve, KERNEL, x, y, ridge=RIDGE, store=tmp_path)
            sleep(0.3)
            assert not second.done()
        assert np.array_equal(second.result(60).coefficients, first.coefficients)


def test_an_executor_computes_the_kernel(tmp_path: Path) -> None:
    """Coefficients with and without an executor are bitwise identical, including for landmarks."""
    x, y, _ = data(60)
    with ThreadPoolExecutor(2) as pool:
        for by, more in (("cholesky", {}), ("landmarks", {"landmarks": 20})):
            how: Any = {"by": by, "ridge": RIDGE, **more}
            one = an.solve(KERNEL, x, y, store=tmp_path / "one", **how)
            two = an.solve(KERNEL, x, y, store=tmp_path / "two", executor=pool, **how)
            assert np.array_equal(one.coefficients, two.coefficients)
        with pytest.raises(ValueError, match="executor= expects store="):
            an.solve(KERNEL, x, y, ridge=RIDGE, executor=pool)


# ------------------------------------------------------------------------------------------- what is refused


class Shifted:
    """The NTK of KERNEL minus `by` times the identity. The kernel is indefinite for large `by`."""

    def __init__(self, by: float) -> None:
        self.by = by

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        """Return Theta - by I for x2 = None, else Theta."""
        k = KERNEL.ntk(x1, x2)
        return k - self.by * np.eye(len(x1)) if x2 is None else k

    nngp = ntk

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        """Return the shifted kernel, both as NNGP and as NTK."""
        return self.ntk(x1, x2), self.ntk(x1, x2)


def test_an_indefinite_kernel_is_refused_with_its_pivot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pivot in the message is the index of the first leading minor that is not positive."""
    x, y, _ = data(100)
    shift = float(np.linalg.eigvalsh(KERNEL.ntk(x[:50]))[0] + np.linalg.eigvalsh(KERNEL.ntk(x[:60]))[0]) / 2
    lowest = [float(np.linalg.eigvalsh(KERNEL.ntk(x[:n]))[0]) for n in range(50, 61)]
    first = 49 + int(np.argmax(np.array(lowest) < shift))
    with pytest.raises(ValueError, match=rf"pivot {first} of 100.*pass a larger ridge"):
        an.solve(Shifted(shift), x, y)
    without_factor(monkeypatch)  # as if the factor did not detect the negative pivot
    with pytest.raises(ValueError, match="not positive definite: it has an eigenvalue of -"):
        an.solve(Shifted(0.1), x, y)


class Undefined:
    """A kernel whose entries are all NaN."""

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        return np.nan * KERNEL.ntk(x1, x2)

    nngp = ntk


def test_a_residual_that_is_no_number_ends_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN residual ends the iteration after two products, not after a thousand."""
    x, y, _ = data(40)
    products, right = [], Gram.product

    def counted(self: Any, v: Any) -> Any:
        products.append(1)
        return right(self, v)

    monkeypatch.setattr(Gram, "product", counted)
    with pytest.raises(ValueError, match="residual after 1 steps is nan"):
        an.solve(Undefined(), x, y, ridge=RIDGE)
    assert len(products) == 2


def test_a_kernel_that_is_zero_leaves_the_ridge() -> None:
    _, y, _ = data(40)
    np.testing.assert_allclose(an.solve(KERNEL, np.zeros((40, 2)), y, ridge=0.5).coefficients, 2 * y, rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_singular_kernel_is_no_silent_answer() -> None:
    """If one example has two targets, no solution exists, and the call raises an error or warns about the residual."""
    x, y, _ = data(40)
    x[1] = x[0]
    said = r"not positive definite|not tol=1e-08"
    with pytest.raises((ValueError, RuntimeWarning), match=said):
        an.solve(KERNEL, x, y)
    assert an.solve(KERNEL, x, y, ridge=RIDGE).residual < 1e-8


def test_a_tolerance_out_of_reach_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = data(40)
    with pytest.warns(RuntimeWarning, match=r"not tol=1e-17"):
        fit = an.solve(KERNEL, x, y, ridge=RIDGE, tol=1e-17)
    assert fit.residual < 1e-12
    monkeypatch.setattr(solve, "MOST_STEPS", 3)
    without_factor(monkeypatch)
    with pytest.warns(RuntimeWarning, match="after 3 steps"):
        assert an.solve(KERNEL, x, y, ridge=RIDGE).residual > 1e-8


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ridge": -1.0}, "ridge"), ({"ridge": np.full(40, RIDGE)}, "ridge expects a finite number"),
        ({"by": "lu"}, "by expects"), ({"kind": "x"}, "kind expects"),
        ({"tol": 2.0}, "tol"), ({"tol": 0.0}, "tol"), ({"x": np.ones((3, 2))}, "one N"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(change: dict[str, Any], error: str) -> None:
    x, y, _ = data(40)
    with pytest.raises(ValueError, match=error):
        an.solve(KERNEL, **({"x": x, "y": y} | change))


def test_a_kernel_that_does_not_say_what_it_is_has_no_store(tmp_path: Path) -> None:
    """A kernel with the default repr cannot have a store, because the repr contains an address that can be reused."""
    x, y, _ = data(40)
    with pytest.raises(TypeError, match="which say what they are"):
        an.solve(Shifted(0.0), x, y, ridge=RIDGE, store=tmp_path)


def test_the_factor_counts_unless_there_is_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needed: list[int] = []
    monkeypatch.setattr(solve, "check_memory", lambda xp, what, need, remedy: needed.append(need))
    x, y, _ = data(40)
    for store in (None, tmp_path / "k"):
        an.solve(KERNEL, x, y, ridge=RIDGE, store=store)
    assert needed[0] - needed[1] == x.itemsize * 40 * 40 // 2


def test_memory_is_asked_for_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = data(40)
    monkeypatch.setattr("analytic.training.eigen.available_memory", lambda xp: 1000)
    with pytest.raises(MemoryError, match="pass store="):
        an.solve(replace(KERNEL), x, y, ridge=RIDGE)
