"""Measure how the CPU time and the memory of each capability grow with the size n of its input.

    python benchmarks/growth.py [NAMES]          a table for growth.md, about ten minutes; quotes refusals

There are three sizes, each twice the previous one. Each call runs in a separate process after a call with a small size.
The exponent is the slope of log CPU s against log n between the last two sizes. MB is the peak memory during the call
minus the memory before it. The wall is the n at which a + b n^p, fitted to the three values of MB, equals 24 GB.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from math import log
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

ROOM = 24e3  # MB


def rows(n: int, d: int = 64, dtype: Any = np.float32) -> Any:
    """Return normal inputs x : (n, d)."""
    return np.random.default_rng(0).standard_normal((n, d)).astype(dtype)


def dense(outputs: int = 1) -> an.Kernel:
    """Return the kernel of a network with three hidden ReLU layers."""
    return an.kernel(mn.zoo.mlp(3, 64, outputs))


def images(*end: Any) -> an.Kernel:
    """Return the kernel of a network with three ReLU convolutions followed by the layers `end`."""
    return an.kernel(mn.Sequential(*[mn.Conv2d(8, 3), mn.ReLU()] * 3, *end, mn.Dense(1)))


def estimator(n: int, **how: Any) -> Any:
    """Return an NTKRegressor fitted to n examples with 16 features."""
    from analytic.large.estimators import NTKRegressor

    x = rows(n, 16)
    return NTKRegressor(**how).fit(x, np.tanh(x[:, :8]).sum(1))


def predicted(n: int) -> Callable[[], Any]:
    """Return a function that predicts at n test inputs with a posterior given 2,000 examples."""
    x = rows(2000, 16)
    posterior = an.posterior(dense(), x, x[:, :1], ridge=0.1, kind="ntk")
    posterior.predict(x[:2])
    test = rows(n, 16)
    return lambda: posterior.predict(test)


def classified(classes: int) -> Callable[[], Any]:
    """Return a function that computes the probabilities of `classes` classes for 50 inputs."""
    from analytic.large.estimators import shares

    f = rows(50, classes, np.float64)
    return lambda: shares(f)


def pooled(*end: Any) -> Callable[[int], Callable[[], Any]]:
    """Return a function of n that returns the timed function, which computes the kernel of n images of 16 x 16 pixels.

    The kernel is compiled before that function is timed.
    """

    def call(n: int) -> Callable[[], Any]:
        kernel, x = images(*end), rows(n, 16 * 16).reshape(n, 16, 16, 1)
        kernel.both(rows(16, 16 * 16).reshape(16, 16, 16, 1))
        return lambda: kernel.both(x)

    return call


def on_rows(call: Callable[[Any], Any]) -> Callable[[int], Callable[[], Any]]:
    """Return a function of n that returns the timed function, which calls `call` with n random inputs."""

    def make(n: int) -> Callable[[], Any]:
        return partial(call, rows(n))

    return make


def ntk_posterior(x: Any) -> Any:
    """Return the NTK posterior's mean at the first two of its training inputs x."""
    return an.posterior(dense(), x, x[:, :1], ridge=0.1, kind="ntk").predict(x[:2])


def on_landmarks(x: Any) -> Any:
    """Return the solution of kernel regression on x with 1,000 landmarks."""
    return an.solve(dense(), x, x[:, :1], ridge=0.1, by="landmarks", landmarks=1000, tol=1e-4)


SMALL, MIDDLE, LARGE = (1000, 2000, 4000), (2000, 4000, 8000), (4000, 8000, 16000)

CALLS: dict[str, tuple[tuple[int, ...], Callable[[int], Callable[[], Any]]]] = {
    "both kernels, 3 ReLU layers": (LARGE, on_rows(lambda x: dense().both(x))),
    "kernel.derivatives": (MIDDLE, on_rows(lambda x: dense().derivatives(x))),
    "posterior, mean": (LARGE, on_rows(ntk_posterior)),
    "ensemble at a time": (MIDDLE, on_rows(lambda x: an.ensemble(dense(), x, x[:, :1]).predict(x[:2], t=10.0))),
    "solve, cholesky": (LARGE, on_rows(lambda x: an.solve(dense(), x, x[:, :1], ridge=0.1))),
    "solve, 1,000 landmarks": ((10_000, 20_000, 40_000), on_rows(on_landmarks)),
    "NTKRegressor.fit": (MIDDLE, lambda n: lambda: estimator(n)),
    "leave-one-out": (MIDDLE, lambda n: estimator(n).leave_one_out),
    "predict, rows": ((25_000, 50_000, 100_000), predicted),
    "predict_proba, classes": ((250, 500, 1000), classified),
    "images, AvgPool(3, stride=1)": ((64, 128, 256), pooled(mn.AvgPool(3, stride=1), mn.Flatten())),
    "images, GlobalAvgPool": ((32, 64, 128), pooled(mn.GlobalAvgPool())),
}

REFUSED: dict[str, Callable[[], Any]] = {
    "an.posterior of 200,000 examples": lambda: an.posterior(dense(), rows(200_000, 2), rows(200_000, 1), ridge=1.0)
    .predict(rows(1, 2)),
    "an.ensemble of 60,000 examples at t = 1": lambda: an.ensemble(dense(), rows(60_000, 2), rows(60_000, 1))
    .predict(rows(1, 2), t=1.0),
    "kernel.ntk of 200,000 rows": lambda: dense().ntk(rows(200_000, 2)),
    "kernel.derivatives of 60,000 rows": lambda: dense().derivatives(rows(60_000, 2)),
    "an.solve of 300,000 without store=": lambda: an.solve(dense(), rows(300_000, 2), rows(300_000, 1), ridge=1.0),
    "landmarks=60000": lambda: an.solve(
        dense(), rows(100_000, 2), rows(100_000, 1), ridge=1.0, by="landmarks", landmarks=60_000
    ),
    "NTKRegressor of 200,000 rows": lambda: estimator(200_000),
    "mn.ntk_full, N C = 200,000": lambda: mn.ntk_full(*network(200, 1000)),
    "net.init(ensemble=10**7)": lambda: network(1, 1)[0].init(np.random.default_rng(0), ensemble=10**7),
}  # fmt: skip


def network(n: int, outputs: int) -> tuple[Any, Any, Any]:
    """Return a network, its parameters theta and n inputs."""
    net = mn.Network(mn.zoo.mlp(1, 64, outputs), (8,))
    return net, net.init(np.random.default_rng(0)), rows(n, 8, np.float64)


def memory(name: str) -> float:
    """Return the field VmHWM (peak memory) or VmRSS (current memory) of this process in MB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1e3 for line in file if line.startswith(name))


def measure(name: str, size: int) -> tuple[float, float]:
    """Return the CPU time in s and the memory in MB of a capability at this size, measured in a separate process."""
    found = subprocess.run([sys.executable, __file__, "--one", name, str(size)], stdout=subprocess.PIPE, check=True)
    seconds, size_mb = map(float, found.stdout.split())
    return seconds, size_mb


def one(name: str, size: int) -> None:
    """Print the CPU time and the memory of a capability at this size, for `measure` to read."""
    CALLS[name][1](64)()
    call = CALLS[name][1](size)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets VmHWM
    before, start = memory("VmRSS"), time.process_time()
    call()
    print(time.process_time() - start, memory("VmHWM") - before)


def slope(sizes: tuple[int, ...], values: list[float]) -> float:
    """Return the slope of log(value) against log(size) between the last two sizes."""
    return log(values[-1] / values[-2]) / log(sizes[-1] / sizes[-2])


def wall(sizes: tuple[int, ...], mb: list[float]) -> str:
    """Return, as text, the n at which a + b n^p, fitted to `mb`, equals ROOM, or "none seen" if memory hardly grows."""
    one, two = mb[1] - mb[0], mb[2] - mb[1]
    if min(one, two) < 5:
        return "none seen"
    growth = two / one  # 2^p
    steps = log((ROOM - mb[2]) / two * (growth - 1) / growth + 1) / log(growth)
    return f"{sizes[2] * 2**steps:,.0f}"


def main() -> None:
    """Print the table, and the errors that calls raise if they need too much memory."""
    print("| capability | sizes | CPU s | exponent | MB | wall on 24 GB |\n| --- | --- | --- | --- | --- | --- |")
    for name, (sizes, _) in CALLS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        seconds, mb = map(list, zip(*(measure(name, size) for size in sizes), strict=True))
        shown = [
            ", ".join(f"{v:,}" for v in sizes),
            *(", ".join(f"{v:.3g}" for v in column) for column in (seconds, mb)),
        ]
        print(
            f"| {name} | {shown[0]} | {shown[1]} | {slope(sizes, seconds):.2f} | {shown[2]} | {wall(sizes, mb)} |",
            flush=True,
        )
    print()
    for name, call in REFUSED.items():
        if not sys.argv[1:]:
            try:
                call()
                print(f"- {name}: NOT REFUSED")
            except (MemoryError, ValueError) as error:
                print(f"- {name}: `{type(error).__name__}: {error}`", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
