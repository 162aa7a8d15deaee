"""The GPU in one call: the device tests on CuPy, then times and errors of every kind of work, a table out.

    python benchmarks/gpu.py                    on a machine with a GPU; writes benchmarks/gpu.md and gpu.json
    python benchmarks/gpu.py --quick            small sizes, nothing written
    python benchmarks/gpu.py --device cpu       the same on NumPy, to check this script

Installs nothing.  Each result is compared with NumPy's in float64 before it is timed; a time is from an idle device
until its last number has arrived.  Exit status 1 where a test fails or a result is wrong, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

try:
    import numpy as np
    from report import machine, seconds, table

    import analytic as an
    import minintk as mn
    from analytic.images import gpu_kernels as fused
    from analytic.training.dynamics import gradient_flow
    from minintk.arrays import device_namespace, elementwise, to_host, to_library
    from minintk.models.network import Network
except ImportError as error:
    raise SystemExit(f"{error}: run this in minintk's own environment, with the extra gpu") from error

Array = Any
To = Callable[[np.ndarray[Any, Any]], Array]
"""Moves a host array to the device, in the dtype measured."""

Make = Callable[[To], tuple[Callable[[], Any], Callable[[Any], Array]]]
"""Inputs on the device; gives (run, answer): the work, and the array of its result that is compared."""


@dataclass(frozen=True)
class Work:
    """One piece of work.  per : units of it in one run.  operations : floating-point operations of one unit, the matrix
    products only.  roundings : error allowed, in units of the dtype's eps times the largest entry of the answer."""

    name: str
    make: Make
    operations: float
    roundings: float
    per: int = 1


@dataclass
class Seen:
    """What came out: seconds for one unit, their range, the first run's with all compilation, and the error."""

    name: str
    dtype: str
    time: float
    fastest: float
    slowest: float
    first: float
    tflops: float
    error: float
    right: bool


# ---------------------------------------------------------------------------------------------- the work


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers from N(0, 1), always the same."""
    return np.random.default_rng(0).standard_normal(shape)


def product(n: int, d: int, to: To) -> Any:
    """x @ y', what no kernel can do without."""
    x, y = to(normal(n, d)), to(normal(2 * n, d)[n:])
    return lambda: x @ y.T, lambda z: z[0]


def analytic_kernel(phi: mn.spec.Activation, n: int, d: int, to: To) -> Any:
    """NNGP and NTK of three hidden layers with bias."""
    hidden = [layer for _ in range(3) for layer in (mn.Dense(512, w_std=2**0.5, b_std=0.1), phi)]
    kernel, x = an.kernel(mn.Sequential(*hidden, mn.Dense(1, w_std=2**0.5, b_std=0.1))), to(normal(n, d))
    return lambda: kernel.both(x), lambda both: both[1][0]


def perceptron(sizes: tuple[int, ...]) -> Network:
    """ReLU, with bias, standard parametrization."""
    hidden = [layer for n in sizes[1:-1] for layer in (mn.Dense(n, w_std=2**0.5, b_std=0.1), mn.ReLU())]
    return mn.Network(mn.Sequential(*hidden, mn.Dense(sizes[-1])), sizes[:1], mn.Standard())


def training(sizes: tuple[int, ...], n: int, ensemble: int | None, steps: int, to: To) -> Any:
    """Full-batch SGD with momentum through the public interface."""
    net = perceptron(sizes)
    theta, x = to(net.init(np.random.default_rng(0), ensemble=ensemble)), to(normal(n, sizes[0]))
    y = to(np.eye(sizes[-1])[np.random.default_rng(1).integers(0, sizes[-1], n)])
    optimizer = mn.SGD(lr=0.01, momentum=0.9)

    def run() -> Array:
        *_, last = mn.train(
            net, theta, x, y, loss=mn.softmax_cross_entropy, optimizer=optimizer, steps=steps, every=steps
        )
        return last.f

    return run, lambda f: f


def empirical(sizes: tuple[int, ...], n: int, to: To) -> Any:
    """The tangent kernel of a network, averaged over outputs."""
    net = perceptron(sizes)
    theta, x = to(net.init(np.random.default_rng(0))), to(normal(n, sizes[0]))
    return lambda: mn.ntk(net, theta, x), lambda k: k


def factorisation(n: int, to: To) -> Any:
    """The outputs at t = 10, by the eigenvalues of a kernel: in float64 whatever the dtype."""
    z = normal(n, 2 * n)
    k, y = to(z @ z.T / (2 * n)), to(normal(n, 1))
    return lambda: gradient_flow(k, y, lr=float(n)).predict(10.0), lambda f: f


def weights(sizes: tuple[int, ...]) -> int:
    """How many there are, without biases."""
    return sum(a * b for a, b in pairwise(sizes))


def work(quick: bool) -> list[Work]:
    """Everything that is measured, small where `quick`."""
    n = 256 if quick else 8192
    mlp, batch = ((64, 128, 128, 10), 32) if quick else ((784, 2048, 2048, 10), 256)
    many, steps = (64, 100, 100, 100, 100, 100, 2), 5 if quick else 50
    ntk, examples = ((64, 128, 128, 10), 32) if quick else ((784, 512, 512, 10), 512)
    eigen = 128 if quick else 4096
    return [
        Work(f"x @ y', {n} x 784", partial(product, n, 784), 2 * n**2 * 784, 1e3),
        Work(f"NNGP + NTK, ReLU, N = {n}", partial(analytic_kernel, mn.ReLU(), n, 784), n**2 * 784, 1e3),
        Work(f"NNGP + NTK, erf, N = {n}", partial(analytic_kernel, mn.Erf(), n, 784), n**2 * 784, 1e3),
        Work(f"SGD step, {'-'.join(map(str, mlp))}, batch {batch}", partial(training, mlp, batch, None, steps),
             6 * batch * weights(mlp), 1e4, steps),
        Work("SGD step of 20 networks, 5 x 100, N = 200", partial(training, many, 200, 20, steps),
             20 * 6 * 200 * weights(many), 1e4, steps),
        Work(f"empirical NTK, {'-'.join(map(str, ntk))}, N = {examples}", partial(empirical, ntk, examples),
             2 * examples**2 * (sum(ntk[:-1]) + 10 * sum(ntk[1:])), 1e3),
        Work(f"gradient flow, N = {eigen}, one time", partial(factorisation, eigen), 0.0, 1e5),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------- kernels of images


def convolutional(phi: mn.spec.Activation, depth: int) -> mn.Sequential:
    """3 x 3 convolutions, then global pooling: all pairs of pixels."""
    hidden = [layer for _ in range(depth) for layer in (mn.Conv2d(64, 3, w_std=2**0.5, b_std=0.1), phi)]
    return mn.Sequential(*hidden, mn.GlobalAvgPool(), mn.Dense(1))


def fused_is_plain(device: str) -> list[tuple[str, float, bool]]:
    """(what, largest difference, right): each fused step against the passes it stands for, on the device.

    Relative to sqrt(k k').  Equal, opposite and black images among the others; none where nothing is compiled.
    """
    xp, found = device_namespace(device), list[tuple[str, float, bool]]()
    if elementwise(xp, "probe", "T a", "T b", "b = a;") is None:
        return found
    x = normal(6, 12, 9, 3)
    x[3], x[4], x[5] = x[0], 0, -x[1]
    for phi in (mn.ReLU(), mn.LeakyReLU(0.3), mn.Abs(), mn.Erf()):
        for dtype in ("float32", "float64"):
            there, kernel = to_library(x.astype(dtype), xp), an.kernel(convolutional(phi, 3))
            one = [to_host(k).astype(float) for k in kernel.both(there)]
            with patch.object(fused, "elementwise", new=lambda *_: None):
                two = [to_host(k).astype(float) for k in kernel.both(there)]
            size = [np.sqrt(np.outer(k.diagonal(), k.diagonal())) for k in two]
            error = max(float(np.max(np.abs(a - b) / s)) for a, b, s in zip(one, two, size, strict=True))
            # the angle of opposite windows is known to the root of the precision
            found.append((f"{phi}, {dtype}", error, error <= float(np.finfo(dtype).eps) ** 0.5))
    return found


def image_kernel(device: str, dtype: str, quick: bool, longest: float = 240.0) -> tuple[str, float, bool]:
    """NNGP and NTK of CIFAR-sized images, eleven layers, global pooling: what was timed, error, whether it is right.

    Rows of the matrix first; all of it where that takes no longer than `longest` seconds.  An entry is a pair of
    pixels in one layer.
    """
    xp, (N, size, depth, rows) = device_namespace(device), (20, 8, 3, 2) if quick else (1000, 32, 11, 4)
    kernel, host = an.kernel(convolutional(mn.ReLU(), depth)), normal(N, size, size, 3).astype(dtype)
    x = to_library(host, xp)
    got = [to_host(k) for k in kernel.both(x[:2])]
    want = kernel.both(host[:2].astype(np.float64))
    error = max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in zip(got, want, strict=True))
    entries = size**4 * depth

    def seconds_of(work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        arrived(work())
        return time.perf_counter() - start

    t = seconds_of(lambda: kernel.both(x[:rows], x))
    pairs, what = rows * N, f"{rows} rows of N = {N}"
    whole = t / pairs * N * (N + 1) / 2
    if whole <= longest:
        t, pairs, what = seconds_of(lambda: kernel.both(x)), N * (N + 1) // 2, f"N = {N}"
    line = (
        f"NNGP + NTK of {what} images of {size} x {size}, ReLU, {depth} layers, global pooling, {dtype}: {seconds(t)}, "
        f"{pairs * entries / t:.3g} entries a second, all of N = {N} {'in' if whole <= longest else 'would take'} "
        f"{seconds(t if whole <= longest else whole)}"
    )
    return line, error, error <= 1e3 * float(np.finfo(dtype).eps)


# ------------------------------------------------------------------------------------------- measuring


def arrived(result: Any) -> Any:
    """Wait for the result: a number copied from its last array comes after all the work before it."""
    last = result[-1] if isinstance(result, tuple) else result
    to_host(last.reshape(-1)[-1:])
    return result


def measure(one: Work, dtype: str, device: str, budget: float) -> Seen:
    """Compare with NumPy in float64, then time for `budget` seconds, five runs at least."""
    xp = device_namespace(device)
    run, answer = one.make(lambda a: to_library(a.astype(dtype), xp))
    # the inputs that the device has, rounded to its dtype
    plain, _ = one.make(lambda a: a.astype(dtype).astype(np.float64))
    start = time.perf_counter()
    result = arrived(run())
    first = (time.perf_counter() - start) / one.per
    got, want = to_host(answer(result)), answer(plain())
    del result
    error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
    arrived(run())
    times: list[float] = []
    while len(times) < 5 or (sum(times) < budget and len(times) < 200):
        start = time.perf_counter()
        arrived(run())
        times.append(time.perf_counter() - start)
    t = median(times) / one.per
    right = got.dtype == dtype and error <= one.roundings * float(np.finfo(dtype).eps)
    fastest, slowest = min(times) / one.per, max(times) / one.per
    return Seen(one.name, dtype, t, fastest, slowest, first, one.operations / t / 1e12, error, right)


def tests(device: str) -> tuple[int, str]:
    """(exit status, last line) of the device tests on CuPy, or on NumPy where the device is the CPU."""
    if missing := [name for name in ("pytest", "hypothesis") if find_spec(name) is None]:
        return 1, f"not run: {', '.join(missing)} not installed"
    names = ("test_device.py", "test_standin.py", "test_spatial_device.py")
    files = [str(HERE.parent / "tests" / name) for name in names]
    library = "cupy" if device == "gpu" else "numpy"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *files],
        cwd=HERE.parent, env=os.environ | {"MININTK_TEST_ARRAYS": library}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        print("\n".join(lines[-60:]), flush=True)
    return done.returncode, lines[-1].strip("= ") if lines else "no output"


def about(device: str) -> dict[str, str]:
    """The device, and every version that a time depends on."""
    found = {"date": date.today().isoformat(), "python": platform.python_version()}
    for name in ("numpy", "scipy", "array-api-compat", "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if device == "cpu":
        return found | {name: str(value) for name, value in machine(os.cpu_count() or 1, device).items()}
    runtime = import_module("cupy").cuda.runtime
    properties = runtime.getDeviceProperties(0)
    return found | {
        "device": properties["name"].decode(),
        "memory": f"{properties['totalGlobalMem'] / 2**30:.0f} GiB",
        "compute capability": f"{properties['major']}.{properties['minor']}",
        "CUDA runtime": str(runtime.runtimeGetVersion()),
        "driver": str(runtime.driverGetVersion()),
    }


def markdown(where: dict[str, str], tested: str, seen: list[Seen], checked: list[tuple[str, float, bool]]) -> str:
    """The report.  checked : lines below the table, each with an error."""
    lines = [
        (
            f"{one.name}, {one.dtype}",
            seconds(one.time),
            f"{seconds(one.fastest)} .. {seconds(one.slowest)}",
            seconds(one.first),
            f"{one.tflops:.3g}" if one.tflops else "",
            f"{one.error:.0e}" + ("" if one.right else " WRONG"),
        )
        for one in seen
    ]
    head = ("work", "time", "range", "first run", "TFLOP/s", "error")
    note = (
        "Time: median, from an idle device until the last number has arrived; for one step where steps are the work.  "
        "TFLOP/s: of the matrix products alone.  Error: against NumPy in float64, relative to the largest entry."
    )
    place = ".  ".join(f"{name}: {value}" for name, value in where.items() if value)
    below = "\n".join(f"- {what}; error {error:.0e}{'' if right else ' WRONG'}" for what, error, right in checked)
    parts = [f"# {where['device']}", place + ".", f"Device tests: {tested}.", note, table(head, lines), below]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Test, measure, print and write; the exit status."""
    parser = argparse.ArgumentParser(description="minintk on a GPU: tests, times and errors")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: the same on NumPy")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written unless --out is given")
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.md and STEM.json")
    options = parser.parse_args()
    try:
        device_namespace(options.device)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2

    status, tested = tests(options.device)
    print(f"device tests: {tested}", flush=True)
    seen: list[Seen] = []
    for one in work(options.quick):
        for dtype in ("float32", "float64"):
            seen.append(measure(one, dtype, options.device, 0.2 if options.quick else 2.0))
            print(f"{one.name}, {dtype}: {seconds(seen[-1].time)}", flush=True)

    checked = [(f"fused = plain, {what}", error, right) for what, error, right in fused_is_plain(options.device)]
    checked += [image_kernel(options.device, dtype, options.quick) for dtype in ("float32", "float64")]
    where = about(options.device)
    text = markdown(where, tested, seen, checked)
    print("\n" + text)
    stem = options.out or (HERE / "gpu" if options.device == "gpu" and not options.quick else None)
    if stem is not None:
        stem.with_suffix(".md").write_text(text, encoding="utf-8")
        record = {"about": where, "tests": tested, "seen": [asdict(one) for one in seen], "checked": checked}
        stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {stem.with_suffix('.md').name} and {stem.with_suffix('.json').name}")
    return 1 if status or not all(one.right for one in seen) or not all(right for *_, right in checked) else 0


if __name__ == "__main__":
    raise SystemExit(main())
