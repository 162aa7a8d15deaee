"""Test that a kernel's bytes do not depend on the blocks, threads, processes and cores used to compute it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.large import streaming
from minintk.threads import blas_libraries
from tests.kit.same_bits import DENSE, IMAGES, blocks_of_one_tile, data, same_bits, so_many_cores

DTYPES = "float32", "float64"


@pytest.fixture(scope="module", autouse=True)
def _blas_with_two_threads() -> Iterator[None]:
    """Set BLAS to two threads in this thread, as a user can. The library's limits must also apply in other threads."""
    before = [(library, library.num_threads) for library in blas_libraries()]
    for library, _ in before:
        library.set_num_threads(2)
    yield
    for library, count in before:
        library.set_num_threads(count)


@pytest.fixture(scope="module")
def executors() -> Iterator[dict[str, Executor]]:
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        yield {"threads": threads, "processes": processes}


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_in_blocks_of_their_own_size(dtype: str, executors: dict[str, Executor]) -> None:
    """Over 3,000 rows need several blocks. With a different split, the bytes of 25 to 45 % of the entries changed."""
    x = data(dtype, 3100, 5)
    same_bits(an.kernel(DENSE["relu"]), (x,) if dtype == "float32" else (x, x[:300].copy()), executors)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["relu", "erf"])
def test_rows_tile_by_tile(name: str, dtype: str, executors: dict[str, Executor]) -> None:
    x = data(dtype, 800, 5)
    with blocks_of_one_tile():
        for given in ((x,), (x, x[:270].copy()), (x[:30], x), (x, x[:3].copy())):
            same_bits(an.kernel(DENSE[name]), given, executors)


@pytest.mark.parametrize(("dtype", "alike"), [("float32", True), ("float64", False)])
def test_rows_by_quadrature(dtype: str, alike: bool, executors: dict[str, Executor]) -> None:
    """Rows of equal norm share one series of the dual activation. Rows of unequal norms have separate series."""
    x = data(dtype, 210, 5)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if alike else x
    with blocks_of_one_tile():
        same_bits(an.kernel(DENSE["tanh"]), (x,), executors)


def way(name: str, numba: bool, dtype: str) -> Any:
    """Return a test case with images. Only one precision per engine is tested by default; the other is marked slow."""
    later = () if (dtype == "float32") == numba else pytest.mark.slow
    return pytest.param(name, numba, dtype, id=f"{name}-{'numba' if numba else 'numpy'}-{dtype}", marks=later)


WAYS = [
    way(name, numba, dtype)
    for name in IMAGES
    for numba in (True, False)
    for dtype in DTYPES
    if not (numba and name == "by quadrature")
]


@pytest.mark.parametrize(("name", "numba", "dtype"), WAYS)
def test_images(
    name: str, numba: bool, dtype: str, executors: dict[str, Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    if numba:
        pytest.importorskip("numba", reason="needs the extra fast")
    if find_spec("analytic.fast") is not None:
        monkeypatch.setattr("analytic.fast.planes.BYTES_WORTH_NUMBA", 0 if numba else 2**60)
    x = data(dtype, *((4, 3, 4, 2) if name == "by quadrature" else (13, 3, 4, 2)))
    with blocks_of_one_tile():
        for given in ((x,), (x, x[:3].copy())):
            same_bits(an.kernel(IMAGES[name]), given, executors)


def test_an_activation_that_is_sent_to_no_process(executors: dict[str, Executor]) -> None:
    """If a step contains local functions, which cannot be pickled, workers lower the spec themselves."""
    spec = mn.Sequential(mn.Dense(8), mn.Polynomial((0.3, 1.0, 0.2)), mn.Dense(1))
    with blocks_of_one_tile():
        same_bits(an.kernel(spec), (data("float64", 1300, 5),), executors)


def test_diagonals_and_derivatives_on_any_number_of_cores() -> None:
    x, images = data("float64", 900, 5), data("float64", 9, 4, 6, 2)
    found = []
    for count in (1, 2, 16):
        with so_many_cores(count):
            found.append(
                b"".join(
                    np.asarray(a).tobytes()
                    for a in (
                        *an.kernel(DENSE["erf"]).diag(x),
                        *an.kernel(IMAGES["pooled"]).diag(images),
                        *an.kernel(DENSE["erf"]).derivatives(x).w_std,
                        *an.kernel(IMAGES["pooled"]).derivatives(images).b_std,
                        *an.kernel(IMAGES["equal pixels"]).both(images),
                    )
                )
            )
    assert len(set(found)) == 1


def test_beside_other_threads_at_work() -> None:
    """A kernel is bitwise the same if three other threads evaluate kernels at the same time."""
    kernel, x, images, stop = an.kernel(DENSE["relu"]), data("float64", 900, 5), data("float64", 20, 4, 6, 2), Event()
    pooled = an.kernel(IMAGES["pooled"])
    wanted = kernel.ntk(x), pooled.ntk(images)

    def work() -> None:
        while not stop.is_set():
            kernel.ntk(x[:600])
            pooled.ntk(images[:5])

    others = [Thread(target=work) for _ in range(3)]
    for other in others:
        other.start()
    try:
        for _ in range(8):
            for a, b in zip(wanted, (kernel.ntk(x), pooled.ntk(images)), strict=True):
                assert np.array_equal(a, b)
    finally:
        stop.set()
        for other in others:
            other.join()


def test_whether_numba_is_loaded_makes_no_difference(executors: dict[str, Executor]) -> None:
    """A kernel of medium size has the same bytes whether or not Numba is loaded."""
    x = data("float64", 12, 8, 8, 1)
    kernel = an.kernel(IMAGES["pooled"])
    apart = kernel.both(x, executor=executors["processes"])
    pytest.importorskip("analytic.fast.planes", reason="the satellite speed was taken away")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analytic.fast.planes.BYTES_WORTH_NUMBA", 0)
        kernel.both(x)
    assert all(np.array_equal(a, b) for a, b in zip(apart, kernel.both(x), strict=True))


IMAGES_TOO = pytest.param((26, 2, 3, 2), id="images", marks=pytest.mark.slow)  # planted errors test images by default


@pytest.mark.parametrize("shape", [pytest.param((1300, 5), id="rows"), IMAGES_TOO])
def test_blocks_that_begin_inside_a_tile_are_refused(
    shape: tuple[int, ...], executors: dict[str, Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = DENSE["erf"] if len(shape) == 2 else IMAGES["by quadrature"]
    monkeypatch.setattr(streaming, "block_size", lambda n, *_: n[0] // 3 + 2)
    with pytest.raises(AssertionError, match=r"threads: \S+ % of the nngp have other bytes"):
        same_bits(an.kernel(spec), (data("float64", *shape),), executors)
