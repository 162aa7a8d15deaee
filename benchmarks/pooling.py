"""Measure the CPU time of image kernels per pair of images, for the read-outs AvgPool, Flatten and GlobalAvgPool.

    python benchmarks/pooling.py            a table for pooling.md; PYTHONPATH=OTHER for another checkout

The network has five 3 x 3 convolutions with 8 channels and ReLU. The NTK and the NNGP kernel of all pairs of N random
images are computed in float32. Compilation is not timed. Each time is the smallest of three measurements.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

ENDS: dict[str, tuple[Any, ...]] = {
    "Flatten": (mn.Flatten(),),
    "AvgPool(3, stride=1)": (mn.AvgPool(3, stride=1), mn.Flatten()),
    "AvgPool(5, stride=1)": (mn.AvgPool(5, stride=1), mn.Flatten()),
    "AvgPool(5, stride=2)": (mn.AvgPool(5, stride=2), mn.Flatten()),
    "AvgPool(2)": (mn.AvgPool(2), mn.Flatten()),
    "AvgPool(4)": (mn.AvgPool(4), mn.Flatten()),
    "GlobalAvgPool": (mn.GlobalAvgPool(),),
}


def measure(end: tuple[Any, ...], side: int) -> float:
    """Return the CPU time in ms per pair of images of `side` x `side` pixels, for a network that ends in `end`."""
    kernel = an.kernel(mn.Sequential(*[mn.Conv2d(8, 3), mn.ReLU()] * 5, *end, mn.Dense(1)))
    x = np.random.default_rng(0).standard_normal((64, side, side, 3)).astype(np.float32)
    kernel.both(x[:4])
    start = time.process_time()
    kernel.both(x[:8])
    n = 64 if time.process_time() - start < 0.3 else 16  # so that the call takes a few seconds at most
    found = []
    for _ in range(3):
        start = time.process_time()
        kernel.both(x[:n])
        found.append(time.process_time() - start)
    return 1e3 * min(found) / (n * (n + 1) / 2)


def main() -> None:
    """Print the table."""
    print("| read-out | 16 x 16 | 32 x 32 |\n| --- | --- | --- |")
    for name, end in ENDS.items():
        print(f"| {name} | {measure(end, 16):.3g} | {measure(end, 32):.3g} |", flush=True)


if __name__ == "__main__":
    main()
