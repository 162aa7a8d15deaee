"""Products and sums in place: NumPy's, and MKL's call by call.

Where MKL is not installed its place is taken by the OpenBLAS that NumPy brings along: another library, the same calls.
"""

from __future__ import annotations

import ctypes
import site
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.fast import blas, mkl, threads
from minintk.fast import threaded_matmul as products
from minintk.fast.threads import single_threaded_blas
from minintk.training import train as training
from minintk.training.optimizers import SGD, Nesterov, Optimizer

Array = np.ndarray[Any, Any]


def openblas() -> mkl.Library | None:
    """The one in NumPy's wheel, with its names and 64-bit sizes."""
    folder = Path(np.__file__).parent
    found = [f for place in (folder.with_name("numpy.libs"), folder / ".dylibs") for f in place.glob("*openblas64*")]
    return mkl.cblas(ctypes.CDLL(str(found[0])), "scipy_cblas_{}64_", ctypes.c_int64) if found else None


LIBRARIES = {name: library for name, library in (("MKL", mkl.mkl()), ("OpenBLAS", openblas())) if library is not None}
NOTHING_TO_CALL = "neither MKL nor a NumPy from a wheel with OpenBLAS, whose functions stand in for MKL's"
WHEEL = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"] == "scipy-openblas"


@pytest.mark.skipif(not WHEEL, reason="this NumPy brings no OpenBLAS along")
def test_there_is_a_library_to_test_with() -> None:
    """So that the tests below are not skipped unnoticed where NumPy comes from a wheel, as in CI."""
    assert LIBRARIES


@pytest.fixture(params=LIBRARIES or ["none"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A library in MKL's place, whatever the size of the arrays; how often each function did the work."""
    if not LIBRARIES:
        pytest.skip(NOTHING_TO_CALL)
    count = {"matmul_into": 0, "axpby": 0}

    def counted(name: str) -> Any:
        plain = getattr(mkl, name)

        def function(*arguments: Any) -> bool:
            done = plain(*arguments)
            count[name] += done
            return bool(done)

        return function

    for name in count:
        monkeypatch.setattr(mkl, name, counted(name))
    monkeypatch.setattr(mkl, "mkl", lambda: LIBRARIES[request.param])
    monkeypatch.setattr(blas, "WORTH", 0)
    monkeypatch.setattr(blas, "LONG", 0)
    return count


def laid_out(a: Array, how: str) -> Array:
    """The same numbers, otherwise in memory."""
    if how == "rows":
        return np.ascontiguousarray(a)
    if how == "columns":
        return np.asfortranarray(a)
    if how == "rows with gaps":
        return np.concatenate([a, a], axis=1)[:, : a.shape[1]]
    if how == "columns with gaps":
        return np.asfortranarray(np.concatenate([a, a], axis=0))[: a.shape[0]]
    if how == "every other number":
        return np.repeat(a, 2, axis=1)[:, ::2]
    return np.ascontiguousarray(a[::-1])[::-1]  # rows backwards


GOOD = ("rows", "columns", "rows with gaps", "columns with gaps")
BAD = ("every other number", "rows backwards")
EPS = {"float32": 1e-6, "float64": 1e-14}


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("how_out", GOOD)
def test_products_of_every_layout(asked: dict[str, int], how_out: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((5, 7, 3), (1, 7, 3), (5, 1, 3), (5, 7, 1), (80, 20, 70), (65, 200, 66)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        for how_a in GOOD:
            for how_b in GOOD:
                out = laid_out(np.full((m, n), np.nan, dtype), how_out)
                rest = None if out.base is None or out.base.size == out.size else out.base
                with blas.fast_products():
                    blas.matmul_into(laid_out(a, how_a), laid_out(b, how_b), out)
                expected = a.astype("f8") @ b.astype("f8")
                assert np.abs(out - expected).max() <= EPS[dtype] * k * np.abs(expected).max(), (m, k, n, how_a, how_b)
                assert rest is None or np.isnan(rest).sum() == rest.size - out.size  # nothing else was written to
    assert asked["matmul_into"] == 6 * len(GOOD) ** 2


@given(
    st.tuples(*3 * [st.integers(1, 9)]), st.sampled_from([*GOOD, *BAD]), st.sampled_from([*GOOD, *BAD]),
    st.sampled_from([*GOOD, *BAD]), st.sampled_from(["float32", "float64"]), st.sampled_from(["float32", "float64"]),
)  # fmt: skip
@pytest.mark.skipif(not LIBRARIES, reason=NOTHING_TO_CALL)
def test_a_library_is_right_or_leaves_it_alone(
    shape: tuple[int, int, int], how_a: str, how_b: str, how_out: str, dtype: str, other: str
) -> None:
    """Layouts and dtypes it was not made for included."""
    (m, k, n), rng = shape, np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(other)
    for library in LIBRARIES.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mkl, "mkl", lambda library=library: library)
            out = laid_out(np.full((m, n), np.nan, dtype), how_out)
            if mkl.matmul_into(laid_out(a, how_a), laid_out(b, how_b), out):
                np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
                assert dtype == other
            else:
                assert np.isnan(out).all()
                bad = any(how in BAD for how in (how_a, how_b, how_out))
                assert dtype != other or bad


def test_arrays_it_is_not_made_for(asked: dict[str, int]) -> None:
    """Broadcast rows, byte order, no common dtype, stacks: NumPy's, with NumPy's result."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((6, 6)), rng.standard_normal((6, 6))
    strange = (
        (np.broadcast_to(a[:1], (6, 6)), b), (a.astype(">f8"), b), (a.astype("f4"), b), (np.stack([a, a]), b),
        (a[:, ::-1], b), (np.broadcast_to(a[:, :1], (6, 6)), b),
    )  # fmt: skip
    with blas.fast_products():
        for x, y in strange:
            out = np.empty_like(x @ y, dtype="f8")
            blas.matmul_into(x, y, out)
            np.testing.assert_allclose(out, x @ y, rtol=1e-6)
    assert asked["matmul_into"] == 0


def test_outside_of_training_products_are_numpys(asked: dict[str, int]) -> None:
    a, out = np.eye(300), np.empty((300, 300))
    with single_threaded_blas():
        blas.matmul_into(a, a, out)
    assert asked["matmul_into"] == 0
    assert np.array_equal(out, a)


def test_matmul_into_a_view_with_gaps() -> None:
    a, b, out = np.ones((2, 3)), np.ones((3, 4)), np.zeros((2, 8))
    blas.matmul_into(a, b, out[:, ::2])
    assert np.array_equal(out, np.tile([3.0, 0.0], (2, 4)))


@pytest.mark.parametrize("dtype", EPS)
def test_sums_in_place(asked: dict[str, int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(1001).astype(dtype) for _ in range(2))
    z, w = y.copy(), y.copy()
    blas.decay_and_add(z, 0.9, x)
    blas.add_scaled(w[1:], -0.25, x[1:])
    np.testing.assert_allclose(z, 0.9 * y.astype("f8") + x, rtol=0, atol=3 * EPS[dtype])
    np.testing.assert_allclose(w[1:], y[1:].astype("f8") - 0.25 * x[1:], rtol=0, atol=3 * EPS[dtype])
    assert w[0] == y[0]
    assert asked["axpby"] == 2
    gaps = np.zeros(20, dtype)
    blas.add_scaled(gaps[::2], 2.0, np.ones(10, dtype))
    blas.decay_and_add(gaps[::2], 0.5, np.ones(10, "f8"))
    assert np.array_equal(gaps, np.tile([2.0, 0.0], 10))
    assert asked["axpby"] == 2


@pytest.mark.parametrize("optimizer", [SGD(0.1), SGD(0.1, 0.9, 1e-3), Nesterov(0.1, 0.9, 1e-3)], ids=repr)
def test_steps_are_the_same_steps(asked: dict[str, int], optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps on rough gradients, by the library and by NumPy."""

    def run() -> Array:
        rng = np.random.default_rng(0)
        theta = rng.standard_normal(300_001)
        memory = optimizer.init(theta)
        for _ in range(3):
            optimizer.step(theta, rng.standard_normal(theta.size), memory, None)
        return theta

    found, calls = run(), asked["axpby"]
    assert calls > 0
    monkeypatch.setattr(mkl, "mkl", lambda: None)
    np.testing.assert_allclose(found, run(), rtol=0, atol=1e-14)
    assert asked["axpby"] == calls


def test_a_trained_network_is_the_same_network(asked: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All products of a step by the library, shared out over two cores; then by NumPy."""
    for module in (threads, products):
        monkeypatch.setattr(module, "cores", lambda: 2)
    threads._pool.cache_clear()
    monkeypatch.setattr(training, "WORTH", 0)
    monkeypatch.setattr(products, "LARGE", 0)
    layers = (mn.Conv2d(3, 3), mn.ReLU(), mn.MaxPool(2), mn.Flatten(), mn.Dense(9, b_std=0.1), mn.ReLU(), mn.Dense(2))
    net = mn.Network(mn.Sequential(*layers), (8, 8, 1))
    rng = np.random.default_rng(0)
    theta, x, y = net.init(rng), rng.standard_normal((20, 8, 8, 1)), rng.standard_normal((20, 2))

    def run() -> Array:
        *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=SGD(0.05, 0.9), steps=5)
        theta_end: Array = last.theta
        return theta_end

    found = run()
    assert asked["matmul_into"] > 20
    assert asked["axpby"] > 4
    np.testing.assert_array_equal(found, run())  # to the last bit
    monkeypatch.setattr(mkl, "mkl", lambda: None)
    np.testing.assert_allclose(found, run(), rtol=0, atol=1e-12)


def fresh_mkl() -> mkl.Library | None:
    """As in a new process: nothing remembered."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("load", "loaded_by_others"):
            patch.setattr(mkl, name, getattr(mkl, name).__wrapped__)
        return mkl.mkl()


def test_no_library_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder, an empty one, and a file that is no library."""
    monkeypatch.setattr(threadpoolctl.ThreadpoolController, "info", lambda self: [])
    for prefix in (tmp_path / "nowhere", tmp_path):
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setattr(site, "getuserbase", lambda prefix=prefix: str(prefix))
        assert fresh_mkl() is None
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libmkl_rt.so.2").write_text("no library")
    assert fresh_mkl() is None


class Recorded:
    """In a library's place: every name is a function, and calls are written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> None:
            self.calls.append((name, *arguments))

        return function


@pytest.mark.parametrize("loaded", [False, True])
def test_a_library_that_is_loaded_already_is_left_alone(
    loaded: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NumPy's own may be MKL, with as many threads as its user wants; one that we load is told what it must know."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libmkl_rt.so.2").touch()
    library, info = Recorded(), [{"internal_api": "mkl"}] if loaded else []
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: library)
    monkeypatch.setattr(threadpoolctl.ThreadpoolController, "info", lambda self: info)
    assert (fresh_mkl() is None) == loaded
    told = [("MKL_Set_Interface_Layer", 0), ("MKL_Set_Threading_Layer", 1), ("MKL_CBWR_Set", 2)]
    assert library.calls == ([] if loaded else told)


def test_a_computation_keeps_its_bits_whatever_other_threads_do(asked: dict[str, int]) -> None:
    """Which library multiplies is the caller's affair, and goes along with what it hands to the pool."""
    a, out = np.eye(30), np.empty((30, 30))
    with blas.fast_products():
        other = threading.Thread(target=blas.matmul_into, args=(a, a, out))
        other.start()
        other.join()
        assert asked["matmul_into"] == 0
        threads.parallel(lambda i: blas.matmul_into(a, a, np.empty((30, 30))), range(4))
        assert asked["matmul_into"] == 4


def test_threads_that_come_first_all_get_the_library() -> None:
    """In a new process, all at once: nobody takes another thread's MKL for one that was there before."""
    code = """
import threading
from minintk.fast import mkl
found, start = [], threading.Barrier(8)
def ask():
    start.wait()
    found.append(mkl.mkl() is None)
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(set(found)))
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["1"]


def test_sizes_beyond_its_whole_numbers(asked: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone: they would wrap around."""
    monkeypatch.setattr(mkl, "MOST", 29)
    a, out = np.eye(30), np.empty((30, 30))
    assert not mkl.matmul_into(a, a, out)
    assert not mkl.matmul_into(a[:5, :5], a[:5, :5], np.empty((5, 5)))  # the step from row to row
    assert mkl.matmul_into(a[:5, :5].copy(), a[:5, :5].copy(), np.empty((5, 5)))
    assert not mkl.axpby(1.0, np.ones(30), 1.0, np.ones(30))
