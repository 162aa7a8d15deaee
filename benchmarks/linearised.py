"""The price of linearised training: one step of LeNet-5 at width 10, its linearisation's against its own.

    python3 make.py python benchmarks/linearised.py

A step of the linearisation is one forward sweep at theta_0, one jvp with theta - theta_0 and one vjp with the residual,
whatever the number of classes: by multiplications 5 against 3, with the activations of theta_0 and one tangent of them
in memory.  Both through `minintk.train`, float32, full batches, momentum .9; median of interleaved repeats.
"""

from __future__ import annotations

import tracemalloc
from time import perf_counter

import numpy as np

import minintk as mn

TARGET = 3.0
"""At most this many times the network's own time, and memory."""


def step(model: mn.Model, theta: mn.Array, x: mn.Array, y: mn.Array, steps: int) -> float:
    """Seconds a step."""
    start = perf_counter()
    for _ in mn.train(
        model, theta, x, y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=1e-3, momentum=0.9), steps=steps,
        every=steps,
    ):  # fmt: skip
        pass
    return (perf_counter() - start) / steps


def main(width: int = 10, batches: tuple[int, ...] = (32, 256), repeats: int = 5) -> dict[int, tuple[float, float]]:
    """{batch: (ratio of times, ratio of peak memory)}, printed too."""
    rng = np.random.default_rng(0)
    net = mn.Network(mn.zoo.lenet5(width), (28, 28, 1), mn.PyTorch())
    theta = net.init(rng, dtype=np.float32)
    found = {}
    for n in batches:
        x = rng.standard_normal((n, 28, 28, 1)).astype(np.float32)
        y = np.eye(10, dtype=np.float32)[rng.integers(10, size=n)]
        models: tuple[mn.Model, mn.Model] = (net, mn.Linearized(net, theta))
        times = np.array([[step(model, theta, x, y, max(2, 200 // n)) for model in models] for _ in range(repeats)])
        peaks = []
        for model in models:
            tracemalloc.start()
            step(model, theta, x, y, 2)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        own, linear = np.median(times, axis=0)
        ratios = times[:, 1] / times[:, 0]
        found[n] = float(np.median(ratios)), peaks[1] / peaks[0]
        print(
            f"LeNet-5 width {width}, batch {n}: {1e3 * own:.1f} ms its own step, {1e3 * linear:.1f} ms linearised,"
            f" {found[n][0]:.2f} times ({ratios.min():.2f} to {ratios.max():.2f});"
            f" {peaks[0] / 2**20:.0f} and {peaks[1] / 2**20:.0f} MiB, {found[n][1]:.2f} times; target {TARGET:g}"
        )
    return found


if __name__ == "__main__":
    main()
