"""Move arrays to the device and back, wait for results, and measure the rates of the machine, for minintk's sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from timeit import repeat
from typing import Any

from harness import Arrays


def moved(a: Arrays, device: str) -> tuple[Any, dict[str, Any]]:
    """Return (xp, the arrays converted to xp), where xp is the array namespace of "cpu" or "gpu"."""
    from minintk.arrays import device_namespace, to_library

    xp = device_namespace(device)
    return xp, {name: to_library(value, xp) for name, value in a.items()}


def finished(arrays: Iterable[Any]) -> None:
    """Wait until the arrays are computed, by copying an entry of each to the host. GPU calls return before that."""
    from minintk.arrays import to_host

    for array in arrays:
        to_host(array.reshape(-1)[-1:])


def on_host(arrays: dict[str, Any]) -> Arrays:
    """Return the arrays as NumPy arrays."""
    from minintk.arrays import to_host

    return {name: to_host(array) for name, array in arrays.items()}


def rates(threads: int) -> dict[str, float]:
    """Return {name: operations per second} with this many threads, each the largest of seven measurements.

    The operations are multiplications and additions in products of 2048 x 2048 matrices, square roots of arrays in
    cache, and bytes read or written by copies of 128 MB.
    """
    import numpy as np

    found: dict[str, float] = {}

    def best(amount: float, work: Callable[[Any], Any], shares: list[Any]) -> float:
        with ThreadPoolExecutor(threads) as pool:
            return amount / min(repeat(lambda: list(pool.map(work, shares)), number=1, repeat=7))

    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        a, b = np.ones((2, 2048, 2048), dtype)
        found[f"products, {dtype}"] = best(2.0 * 2048**3, partial(np.matmul, a), [b])  # BLAS uses its own threads
        small = [np.ones(4096, dtype) for _ in range(threads)]
        found[f"roots, {dtype}"] = best(
            4096.0 * 500 * threads, lambda a: [np.sqrt(a, out=a) for _ in range(500)], small
        )
    halves = np.ones((2, threads, 2**27 // threads), np.uint8).swapaxes(0, 1)
    found["copies"] = best(2.0 * halves[0, 0].nbytes * threads, lambda pair: np.copyto(*pair), list(halves))
    return found
