"""Compare solves by dask's factor with solves on one machine, including with padding and after a kill. Test errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.large import gram
from analytic.large.dask_factor import DaskFactor, block_of, dask_client
from analytic.large.gram import Gram
from minintk.arrays import Array

distributed = pytest.importorskip("distributed", reason="needs the extra dask")

KERNEL = an.kernel(mn.Sequential(mn.Dense(64, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
RIDGE = 0.01


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def data(n: int, dtype: str = "float64") -> tuple[Array, Array]:
    """Return x : (n, 8) and y : (n, 3)."""
    x = np.random.default_rng(0).standard_normal((n, 8))
    return x.astype(dtype), (x[:, :3] ** 2).astype(dtype)


@pytest.mark.parametrize(("n", "dtype"), [(128, "float64"), (130, "float64"), (33, "float32"), (7, "float64")])
def test_the_answer_is_that_of_one_machine(
    client: Any, n: int, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and padded blocks give one machine's coefficients to 1e-8. Residuals are below 1e-8, even in float32."""
    monkeypatch.setattr(gram, "BLOCK", 32)
    x, y = data(n, dtype)
    one = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path / "one")
    two = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path / "two", executor=client.get_executor())
    assert max(one.residual, two.residual) < 1e-8
    np.testing.assert_allclose(two.coefficients, one.coefficients, rtol=0, atol=1e-8 * np.abs(one.coefficients).max())


def test_a_finished_solve_factorises_nothing(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(40)
    how: Any = {"ridge": RIDGE, "store": tmp_path, "executor": client.get_executor()}
    first = an.solve(KERNEL, x, y, **how)
    monkeypatch.setattr(DaskFactor, "solve", None)
    assert np.array_equal(an.solve(KERNEL, x, y, **how).coefficients, first.coefficients)


def stored(folder: Path, K: Array) -> Any:
    """Store K in a file and return it as a memmap."""
    np.save(folder / "K.npy", K)
    return np.load(folder / "K.npy", mmap_mode="r")


def factor(client: Any, folder: Path, K: Array, size: int) -> DaskFactor:
    """Return the factor of K plus the ridge."""
    return DaskFactor(Gram(lambda *_: K, np.zeros((len(K), 1)), RIDGE, stored(folder, K)), client, size, False)


def test_blocks_multiply_to_the_kernel(client: Any, tmp_path: Path) -> None:
    A = np.random.default_rng(1).standard_normal((21, 21))
    found = factor(client, tmp_path, A @ A.T, 8)
    L = np.asarray(found.L.compute())[:21, :21]
    np.testing.assert_allclose(L @ L.T, A @ A.T + RIDGE * np.eye(21), rtol=1e-12, atol=1e-12)
    b = np.random.default_rng(2).standard_normal((21, 2)) * [1.0, 1e9]
    want = np.linalg.solve(A @ A.T + RIDGE * np.eye(21), b)
    np.testing.assert_allclose(found.solve(b), want, rtol=1e-6)


def test_a_block_is_padded_and_has_the_ridge_once(tmp_path: Path) -> None:
    K = np.arange(9.0).reshape(3, 3)
    stored(tmp_path, K)
    at = str(tmp_path / "K.npy"), 3, "float64", 2, 0.5
    places = [[{None: {"chunk-location": (i, j)}} for j in (0, 1)] for i in (0, 1)]
    whole = np.block([[block_of(*at, place) for place in row] for row in places])
    want = np.eye(4)
    want[:3, :3] = K + 0.5 * np.eye(3)
    assert np.array_equal(whole, want)


def test_an_indefinite_kernel_is_refused(client: Any, tmp_path: Path) -> None:
    K = np.eye(20)
    K[15, 15] = -1.0
    with pytest.raises(ValueError, match=r"not positive definite in float64: .* of a block; pass a larger ridge"):
        factor(client, tmp_path, K, 8).solve(np.ones((20, 1)))


def test_too_little_memory_is_said_before_the_work(client: Any, tmp_path: Path) -> None:
    found = stored(tmp_path, np.eye(4))
    large = Gram(lambda *_: found, np.broadcast_to(np.zeros(1), (10**6, 1)), RIDGE, found)
    with pytest.raises(MemoryError, match=r"1000000 examples needs 1\.76e\+04 GB, and the 1 workers have"):
        DaskFactor(large, client, 2**16, False)


def test_executors_of_others_have_no_client(client: Any) -> None:
    assert dask_client(None) is None
    assert dask_client(client.get_executor()) is client


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a worker with SIGKILL while the factor is computed. Coefficients agree with those of one machine to 1e-8."""
    monkeypatch.setattr(gram, "BLOCK", 128)
    x, y = data(2000)
    one = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path)
    for path in tmp_path.glob("cholesky-*/*"):
        path.unlink()  # delete the first solve's factor and state, but not the kernel
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = [worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()]

        def kill() -> None:
            while not any("cholesky" in key for key in client.run_on_scheduler(lambda dask_scheduler: [
                str(key) for key, task in dask_scheduler.tasks.items() if task.state == "memory"
            ])):  # fmt: skip
                sleep(0.01)
            os.kill(pids[0], signal.SIGKILL)

        killer = Thread(target=kill)
        killer.start()
        two = an.solve(KERNEL, x, y, ridge=RIDGE, store=tmp_path, executor=client.get_executor())
        killer.join()
        assert pids[0] not in [worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()]
    np.testing.assert_allclose(two.coefficients, one.coefficients, rtol=0, atol=1e-8 * np.abs(one.coefficients).max())
