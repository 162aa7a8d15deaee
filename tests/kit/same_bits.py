"""Check that a kernel has the same bytes whether it is computed in blocks, by workers or threads, or in one call."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.large import streaming
from minintk import threads
from minintk.arrays import Array

D = mn.Dense(8, w_std=1.4, b_std=0.3)
POOL = mn.GlobalAvgPool(), mn.Dense(1)
DENSE = {
    "relu": mn.Sequential(D, mn.ReLU(), mn.Dense(1)),
    "erf": mn.Sequential(D, mn.Erf(), mn.Residual(mn.Sequential(D, mn.Erf(), D)), mn.Dense(1)),
    "tanh": mn.Sequential(D, mn.Tanh(), mn.Dense(1)),
}
IMAGES = {
    "pooled": mn.Sequential(mn.Conv2d(8, b_std=0.1), mn.ReLU(), mn.Conv2d(8), mn.Erf(), *POOL),
    "by quadrature": mn.Sequential(mn.Conv2d(8, b_std=0.1), mn.Tanh(), mn.Conv2d(8), *POOL),
    "halved": mn.Sequential(mn.Conv2d(8), mn.ReLU(), mn.AvgPool(2), mn.Conv2d(8), mn.ReLU(), mn.Flatten(), mn.Dense(1)),
    "equal pixels": mn.Sequential(mn.Conv2d(8), mn.ReLU(), mn.Flatten(), mn.Dense(1)),
    "masks": mn.Sequential(mn.Conv2d(8), mn.ReLU(), mn.Dropout(0.3), mn.Conv2d(8), *POOL),
}


def data(dtype: Any, *shape: int) -> Array:
    """Return rows or images, some of which are equal, opposite or nearly equal."""
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x[1], x[2], x[3] = x[-2], -x[-3], x[-4] * (1 + 1e-5)
    return x


@contextmanager
def blocks_of_one_tile() -> Iterator[None]:
    """Make blocks as small as possible while the context is active."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "SHORTEST", 0.0)
        patch.setattr("analytic.images.engine.SHORTEST_TILE", 0.0)
        yield


@contextmanager
def so_many_cores(count: int) -> Iterator[None]:
    """Make the library assume that the machine has `count` cores."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("minintk.threads", "analytic.images.engine", "analytic.vectors.engine"):
            patch.setattr(f"{module}.cores", lambda: count)
        yield


def ways(kernel: an.Kernel, x: tuple[Array, ...], executors: dict[str, Executor]) -> Iterator[tuple[str, Any]]:
    """Yield (method, (NNGP, NTK)) for each method of computing the two kernels."""
    for count in (1, 2, 16):
        with so_many_cores(count):
            yield f"{count} cores", kernel.both(*x)
    yield "alone", threads.alone(kernel.both, *x)
    yield "in the pool", threads.parallel(lambda _: kernel.both(*x), range(2))[1]
    for name, executor in executors.items():
        yield name, kernel.both(*x, executor=executor)
    with TemporaryDirectory() as folder:
        yield "store", [np.array(a) for a in kernel.both(*x, store=folder)]


def same_bits(kernel: an.Kernel, x: tuple[Array, ...], executors: dict[str, Executor]) -> None:
    """Raise AssertionError unless all methods of `ways` give the bytes of the plain call."""
    plain = kernel.both(*x)
    for how, found in ways(kernel, x, executors):
        for name, a, b in zip(("nngp", "ntk"), plain, found, strict=True):
            one, two = (np.asarray(k).view(f"i{x[0].dtype.itemsize}") for k in (a, b))
            other = float(np.mean(one != two))
            assert other == 0, f"{how}: {100 * other:.2g} % of the {name} have other bytes"


def bits_of_rows() -> None:
    """a kernel of rows in blocks, in threads or on any number of cores = the plain call, byte by byte"""
    with ThreadPoolExecutor(2) as pool, blocks_of_one_tile():
        same_bits(an.kernel(DENSE["erf"]), (data("float64", 1300, 5),), {"threads": pool})


def bits_of_images() -> None:
    """a kernel of images in blocks, in threads or on any number of cores = the plain call, byte by byte"""
    with ThreadPoolExecutor(2) as pool, blocks_of_one_tile():
        same_bits(an.kernel(IMAGES["by quadrature"]), (data("float64", 13, 2, 2, 2),), {"threads": pool})
