"""Compare the times of the same calls in two checkouts, to measure how much a change costs.

    git worktree add ../before COMMIT
    python3 make.py python benchmarks/compare.py ../before . [--rows PATTERN] [--rounds 3]

Each round measures both checkouts, one after the other, each in a new process. The table shows each checkout's median
time and the median over rounds of the ratio after / before. The script uses only public names of minintk and analytic.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from networks import Net, lenet, mlp, resnet, spec

Call = Callable[[], object]


def made(layers: Net) -> Any:
    """Return minintk's spec of the network. It has biases unless the network contains residual blocks."""
    return spec(layers, biases=all(kind != "residual" for kind, *_ in layers))


def data(shape: tuple[int, ...], n: int, outputs: int) -> tuple[Any, Any]:
    """Return (x, y) in float32. Inputs are N(0, 1). Targets are one-hot, or N(0, 1) for one output."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, *shape)), rng.standard_normal((n, outputs))
    if outputs > 1:
        y = np.eye(outputs)[rng.integers(outputs, size=n)]
    return x.astype(np.float32), y.astype(np.float32)


def step(
    layers: Net, shape: tuple[int, ...], n: int, outputs: int, ensemble: int | None = None, linear: bool = False
) -> Call:
    """Return a function that takes STEPS training steps and returns a snapshot."""
    import minintk as mn

    net = mn.Network(made(layers), shape, mn.Standard())
    theta, (x, y) = net.init(np.random.default_rng(0), ensemble=ensemble, dtype=np.float32), data(shape, n, outputs)
    model = mn.Linearized(net, theta) if linear else net
    optimizer: Any = mn.SGD(1e-4, momentum=0.9)
    run = mn.train(model, theta, x, y, loss=mn.mse, optimizer=optimizer, steps=10**9, every=STEPS)
    next(run)
    return lambda: next(run)


STEPS = 5
"""The number of steps between two snapshots."""


def ntk(layers: Net, shape: tuple[int, ...], n: int, m: int | None = None, full: bool = False) -> Call:
    """Return a function that computes the empirical tangent kernel of n inputs with themselves, or with the first m."""
    import minintk as mn

    net, (x, _) = mn.Network(made(layers), shape), data(shape, n, 1)
    theta, kernel = net.init(np.random.default_rng(0), dtype=np.float32), mn.ntk_full if full else mn.ntk
    return lambda: kernel(net, theta, x, None if m is None else x[:m])


def infinite(hidden: list[Any], shape: tuple[int, ...], n: int, dtype: Any, m: int | None = None) -> Call:
    """Return a function that computes the infinite-width kernels of n inputs with themselves, or with the first m."""
    import analytic as an
    import minintk as mn

    kernel, x = an.kernel(mn.Sequential(*hidden, mn.Dense(1))), data(shape, n, 1)[0].astype(dtype)
    return lambda: kernel.both(x, None if m is None else x[:m])


def rows() -> dict[str, tuple[Callable[[], Call], int]]:
    """Return {name of the row: (function that returns the timed function, units of work per timed call)}."""
    import minintk as mn

    def deep(phi: Any, layer: Any, depth: int) -> list[Any]:
        return [part for _ in range(depth) for part in (layer(64, w_std=2**0.5, b_std=0.1), phi)]

    image, digit, relu = (32, 32, 3), (28, 28, 1), deep(mn.ReLU(), mn.Dense, 3)
    convolutions = deep(mn.ReLU(), mn.Conv2d, 4)
    return {
        "step 30-64-64-10, batch 20": (lambda: step(mlp(64, 64, 10), (30,), 20, 10), STEPS),
        "step 784-128-128-128-10, batch 32": (lambda: step(mlp(128, 128, 128, 10), (784,), 32, 10), STEPS),
        "step 784-2048-2048-10, batch 256": (lambda: step(mlp(2048, 2048, 10), (784,), 256, 10), STEPS),
        "step of 20 networks, width 100, N = 200": (lambda: step(mlp(*[100] * 5, 1), (64,), 200, 1, 20), STEPS),
        "step of 20 networks, width 50, N = 20": (lambda: step(mlp(*[50] * 5, 1), (64,), 20, 1, 20), STEPS),
        "step LeNet-5, batch 32": (lambda: step(lenet(1), digit, 32, 10), STEPS),
        "step LeNet-5, batch 256": (lambda: step(lenet(1), digit, 256, 10), STEPS),
        "step LeNet-5 of width 8, batch 32": (lambda: step(lenet(8), digit, 32, 10), STEPS),
        "step LeNet-5 of width 8, batch 256": (lambda: step(lenet(8), digit, 256, 10), STEPS),
        "step ResNet-16 with BatchNorm, batch 8": (lambda: step(resnet(True), image, 8, 10), STEPS),
        "step ResNet-16 with BatchNorm, batch 16": (lambda: step(resnet(True), image, 16, 10), STEPS),
        "step ResNet-16 with BatchNorm, batch 32": (lambda: step(resnet(True), image, 32, 10), STEPS),
        "step ResNet-16, batch 32": (lambda: step(resnet(False), image, 32, 10), STEPS),
        "step ResNet-16 of 64 channels, batch 16": (lambda: step(resnet(False, 64), image, 16, 10), STEPS),
        "linearised step LeNet-5, batch 32": (lambda: step(lenet(1), digit, 32, 10, linear=True), STEPS),
        "ntk 784-512-512-10, N = 64": (lambda: ntk(mlp(512, 512, 10), (784,), 64), 1),
        "ntk 784-512-512-10, N = 512": (lambda: ntk(mlp(512, 512, 10), (784,), 512), 1),
        "ntk_full 784-512-512-10, N = 64": (lambda: ntk(mlp(512, 512, 10), (784,), 64, full=True), 1),
        "ntk 30-64-64-10, N = 20": (lambda: ntk(mlp(64, 64, 10), (30,), 20), 1),
        "ntk LeNet-5, N = 32": (lambda: ntk(lenet(1), digit, 32), 1),
        "ntk LeNet-5, N = 128": (lambda: ntk(lenet(1), digit, 128), 1),
        "ntk LeNet-5, 128 x 16": (lambda: ntk(lenet(1), digit, 128, 16), 1),
        "ntk ResNet-16, N = 16": (lambda: ntk(resnet(False), image, 16), 1),
        "kernel, 3 ReLU layers, N = 4000, float32": (lambda: infinite(relu, (784,), 4000, np.float32), 1),
        "kernel, 3 ReLU layers, N = 4000, float64": (lambda: infinite(relu, (784,), 4000, np.float64), 1),
        "kernel, 3 erf layers, N = 4000, float32": (
            lambda: infinite(deep(mn.Erf(), mn.Dense, 3), (784,), 4000, np.float32), 1,
        ),
        "kernel, 3 ReLU layers, N = 100, float64": (lambda: infinite(relu, (784,), 100, np.float64), 1),
        "kernel, 3 ReLU layers, 4000 x 16, float32": (lambda: infinite(relu, (784,), 4000, np.float32, 16), 1),
        "kernel, CNN, GlobalAvgPool, 16 of 16 x 16": (
            lambda: infinite([*convolutions, mn.GlobalAvgPool()], (16, 16, 3), 16, np.float32), 1,
        ),
        "kernel, CNN, Flatten, 128 of 32 x 32": (
            lambda: infinite([*convolutions, mn.Flatten()], image, 128, np.float32), 1,
        ),
    }  # fmt: skip


def times(pattern: str, seconds: float) -> dict[str, float]:
    """Return {row: median milliseconds per unit} for the imported minintk. Time each row for at least `seconds`."""
    found = {}
    for name, (make, units) in rows().items():
        if re.search(pattern, name):
            call = make()
            call()
            taken: list[float] = []
            while sum(taken) < seconds or len(taken) < 3:
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
            found[name] = 1e3 * median(taken) / units
    return found


def main() -> None:
    """Compare the two checkouts and print the table.

    Without checkouts, as in child processes, measure the imported minintk and print its times as JSON.
    """
    parser = argparse.ArgumentParser(description="two checkouts side by side")
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT", help="before, after")
    parser.add_argument("--rows", default="", metavar="PATTERN")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each row, in each round")
    options = parser.parse_args()
    if not options.checkouts:
        print(json.dumps(times(options.rows, options.seconds)))
        return
    seen: dict[str, list[list[float]]] = {}
    for _ in range(options.rounds):
        both = []
        for checkout in options.checkouts:
            child = [sys.executable, __file__, "--rows", options.rows, "--seconds", str(options.seconds)]
            env = os.environ | {"PYTHONPATH": str(checkout.resolve())}
            said = subprocess.run(child, env=env, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
            both.append(json.loads(said.stdout))
        for name in both[0]:
            seen.setdefault(name, []).append([one[name] for one in both])
    print("| row | before, ms | after, ms | after / before |\n| --- | --- | --- | --- |")
    for name, pairs in seen.items():
        before, after = (median(column) for column in zip(*pairs, strict=True))
        print(f"| {name} | {before:.3g} | {after:.3g} | {median(b / a for a, b in pairs):.2f} |")


if __name__ == "__main__":
    main()
