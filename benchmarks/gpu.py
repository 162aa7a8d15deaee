"""Run the device tests on CuPy, and measure times and errors on the GPU, in parts that take a few minutes each.

    python benchmarks/gpu.py                    on a machine with a GPU; writes benchmarks/gpu.md and gpu.json
    python benchmarks/gpu.py --only solves      one part; --list: all of them, and the time of each
    python benchmarks/gpu.py --quick            small sizes, no files
    python benchmarks/gpu.py --device cpu       the same on NumPy, to check this script

The script installs nothing. Each result is compared with NumPy's float64 result before its computation is timed. Timing
starts on an idle device and ends when the last entry has been copied to the host. The files contain the latest run of
each part on this device. They are rewritten after each row, so an interrupted run loses at most one row. The exit
status is 1 if a test fails or a result is wrong, and 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

try:
    import gpu_rows as rows
    import numpy as np
    from report import machine, seconds, table

    import analytic as an
    import minintk as mn
    from analytic.fast import planes as plan
    from minintk.arrays import block_memory, device_namespace, to_host, to_library
except ImportError as error:
    raise SystemExit(f"{error}: run this in minintk's own environment, with the extra gpu") from error


@dataclass
class Seen:
    """The measurement of one row. Times are seconds per unit.  first : the time of the first run, with compilation."""

    name: str
    right: bool
    error: float | None = None
    time: float | None = None
    fastest: float | None = None
    slowest: float | None = None
    first: float | None = None
    tflops: float = 0.0


# ------------------------------------------------------------------------------------------- measuring


def arrived(result: Any) -> Any:
    """Wait until the result is computed, and return it.

    The GPU executes operations in order. When an entry of the last array has been copied to the host, all work is done.
    """
    last = result[-1] if isinstance(result, tuple) else result
    to_host(last.reshape(-1)[-1:])
    return result


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Call `work`; return the seconds until its result is computed, and the result."""
    start = time.perf_counter()
    result = arrived(work())
    return time.perf_counter() - start, result


def measure(one: rows.Work, dtype: str, device: str, budget: float, known: dict[Any, Any]) -> Seen:
    """Compare a row with NumPy in float64, then time at least 5 runs (3 if slow), at most 200, for `budget` seconds.

    known : the references computed so far, because several rows can have the same reference.
    """
    xp = device_namespace(device)
    run, answer = one.make(lambda a: to_library(a.astype(dtype), xp))
    first, result = timed(run)
    got = to_host(answer(result))
    del result
    key = one.reference or one.make, dtype
    if key not in known:  # the reference uses inputs rounded to the device's dtype
        plain, of = key[0](lambda a: a.astype(dtype).astype(np.float64))
        known[key] = of(plain())
    want = known[key]
    error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
    right = got.dtype == dtype and error <= min(one.roundings * float(np.finfo(dtype).eps), 1e-3)
    times: list[float] = []
    while len(times) < (3 if first > 5 else 5) or (sum(times) < budget and len(times) < 200):
        times.append(timed(run)[0])
    t, fastest, slowest, first = (value / one.per for value in (median(times), min(times), max(times), first))
    return Seen(f"{one.name}, {dtype}", right, error, t, fastest, slowest, first, one.operations / t / 1e12)


# ----------------------------------------------------------------------------------------------- parts


def tests(device: str, quick: bool) -> Iterator[Seen]:
    """Run each test file in tests/device on CuPy, or on NumPy if the device is the CPU, and yield its result."""
    if missing := [name for name in ("pytest", "hypothesis") if find_spec(name) is None]:
        yield Seen(f"device tests not run: {', '.join(missing)} not installed", False)
        return
    env = os.environ | {"MININTK_TEST_ARRAYS": "cupy" if device == "gpu" else "numpy"}
    parallel = ["-n", str(min(8, os.cpu_count() or 1))] if find_spec("xdist") else []
    for path in sorted((HERE.parent / "tests" / "device").glob("test_*.py")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *parallel, str(path)]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=HERE.parent, env=env, capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        if done.returncode not in (0, 5):  # 5: no tests were collected; all are for another library
            print("\n".join(lines[-60:]), flush=True)
        said = re.findall(r"\d+ (?:passed|failed|skipped).*(?= in )", done.stdout)
        name = f"{path.name}: {said[-1] if said else lines[-1]}"
        yield Seen(name, done.returncode in (0, 5), time=time.perf_counter() - start)


def measured(work: Callable[[bool], list[rows.Work]], device: str, quick: bool) -> Iterator[Seen]:
    """Measure each row that `work` returns, in float32 and in float64."""
    known: dict[Any, Any] = {}
    for one in work(quick):
        for dtype in ("float32", "float64"):
            yield measure(one, dtype, device, 0.2 if quick else 2.0, known)


def images(device: str, quick: bool) -> Iterator[Seen]:
    """Compare compiled with uncompiled kernels of images, then measure kernels of images."""
    for what, error, right in compiled_is_plain(device):
        yield Seen(f"compiled = plain, {what}", right, error)
    yield from measured(rows.images, device, quick)
    for dtype in ("float32", "float64"):
        yield image_kernel(device, dtype, quick)


def compiled_is_plain(device: str) -> list[tuple[str, float, bool]]:
    """Compare compiled with uncompiled kernels of images; return (name, largest difference, True if small enough).

    Differences are relative to sqrt(k(x, x) k(x', x')). Of the images, two are equal, two are opposite and one is
    black. The list is empty if this device has no compiled kernels.
    """
    xp, found = device_namespace(device), list[tuple[str, float, bool]]()
    if block_memory(xp) == 0:
        return found
    x = rows.normal(6, 12, 9, 3)
    x[3], x[4], x[5] = x[0], 0, -x[1]
    for phi in (mn.ReLU(), mn.LeakyReLU(0.3), mn.Abs(), mn.Erf()):
        for dtype in ("float32", "float64"):
            there, kernel = to_library(x.astype(dtype), xp), an.kernel(rows.convolutional(phi, 3))
            planes = [to_host(k) for k in kernel.both(there)]
            with patch.object(plan, "block_memory", new=lambda *_: 0):
                plain = [to_host(k).astype(float) for k in kernel.both(there)]
            size = [np.sqrt(np.outer(k.diagonal(), k.diagonal())) for k in plain]
            error = max(float(np.max(np.abs(a - b) / s)) for a, b, s in zip(planes, plain, size, strict=True))
            # The angle of opposite windows is accurate only to sqrt(eps).
            found.append((f"planes, {phi}, {dtype}", error, error <= float(np.finfo(dtype).eps) ** 0.5))
    return found


def image_kernel(device: str, dtype: str, quick: bool, longest: float = 200.0) -> Seen:
    """Measure the NNGP and the NTK of a network with eleven layers and global pooling for CIFAR-sized images.

    The reported time is that of the whole matrix. The function first measures a few of the matrix's rows, and
    extrapolates the time of the matrix from them. If the extrapolated time is at most `longest` seconds, the function
    measures the whole matrix instead. An entry is a pair of pixels in one layer.
    """
    xp, (N, size, depth, few) = device_namespace(device), (20, 8, 3, 2) if quick else (1000, 32, 11, 4)
    kernel, host = an.kernel(rows.convolutional(mn.ReLU(), depth)), rows.normal(N, size, size, 3).astype(dtype)
    x = to_library(host, xp)
    first, found = timed(lambda: kernel.both(x[:2]))
    want = kernel.both(host[:2].astype(np.float64))
    error = max(float(np.max(np.abs(to_host(a) - b)) / np.max(np.abs(b))) for a, b in zip(found, want, strict=True))
    t, _ = timed(lambda: kernel.both(x[:few], x))
    pairs, measured_by = N * (N + 1) // 2, f"from {few} rows"
    whole = t / (few * N) * pairs
    if whole <= longest:
        (whole, _), measured_by = timed(lambda: kernel.both(x)), "measured"
    rate = f"{pairs * size**4 * depth / whole:.3g} entries a second"
    name = f"NNGP + NTK, {N} images of {size} x {size}, {depth} layers, {dtype} ({measured_by}; {rate})"
    return Seen(name, error <= 1e3 * float(np.finfo(dtype).eps), error, whole, first=first)


Part = Callable[[str, bool], Iterator[Seen]]

PARTS: dict[str, tuple[Part, str]] = {
    "tests": (tests, "all device tests, 340 of them; a minute in eight processes"),
    "vectors": (
        partial(measured, rows.vectors),
        "fully connected kernels, N = 8192; 2 minutes of references on the host",
    ),
    "images": (
        images,
        "kernels of 1000 CIFAR-sized images, 11 layers: by gpu_arithmetic.py 30 s at the least, and 60 in float64",
    ),
    "training": (
        partial(measured, rows.training),
        "MLP, ensemble, convolutions, LeNet-5, ResNet; 3 minutes of references",
    ),
    "tangents": (partial(measured, rows.tangents), "tangent kernels of finite networks, also of LeNet-5; 2 minutes"),
    "solves": (
        partial(measured, rows.solves),
        "posterior at N = 20,000; 4 references of twenty seconds on 16 cores",
    ),
}
"""{part: (function that yields measurements, description)}. Each part should take less than ten minutes on an H200."""


def about(device: str) -> dict[str, str]:
    """Return the device's properties and the versions of all software that affects the times."""
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


def markdown(record: dict[str, Any]) -> str:
    """Return the report with a table for each part."""
    note = (
        "Time: median, from an idle device until the last number has arrived; for one step where steps are the work.  "
        "TFLOP/s: of the matrix products alone.  Error: against NumPy in float64, relative to the largest entry."
    )
    place = ".  ".join(f"{name}: {value}" for name, value in record["about"].items() if value)
    parts = [f"# {record['about']['device']}", place + ".", note]
    head = ("work", "time", "range", "first run", "TFLOP/s", "error")
    for name, part in record["parts"].items():
        lines = []
        for one in (Seen(**row) for row in part["rows"]):
            span = f"{seconds(one.fastest)} .. {seconds(one.slowest)}" if one.fastest else ""
            error = "" if one.error is None else f"{one.error:.0e}"
            verdict = error + ("" if one.right else " WRONG")
            tflops = f"{one.tflops:.3g}" if one.tflops else ""
            lines.append((one.name, seconds(one.time), span, seconds(one.first), tflops, verdict))
        unfinished = "" if part["finished"] else "; stopped before its end"
        parts += [f"## {name}, {part['date']}{unfinished}", table(head, lines)]
    return "\n\n".join(parts) + "\n"


def earlier(stem: Path, where: dict[str, str]) -> dict[str, Any]:
    """Return the parts in STEM.json if they were measured on this device, else an empty dictionary."""
    path = stem.with_suffix(".json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return dict(found["parts"]) if found.get("about", {}).get("device") == where["device"] else {}


def write(stem: Path, record: dict[str, Any]) -> None:
    """Write the report to STEM.md and the record to STEM.json."""
    stem.with_suffix(".md").write_text(markdown(record), encoding="utf-8")
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the parts, print and write the results, and return the exit status."""
    parser = argparse.ArgumentParser(description="minintk on a GPU: tests, times and errors")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: the same on NumPy")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="this part; may be given again")
    parser.add_argument("--list", action="store_true", help="the parts, and what each one takes")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written unless --out is given")
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.md and STEM.json")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:10s} {about}" for name, (_, about) in PARTS.items()))
        return 0
    try:
        device_namespace(options.device)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    stem = options.out or (HERE / "gpu" if options.device == "gpu" and not options.quick else None)
    where, right = about(options.device), True
    record = {"about": where, "parts": {} if stem is None else earlier(stem, where)}
    for name in options.only or PARTS:
        part = record["parts"][name] = {"date": where["date"], "finished": False, "rows": []}
        for one in PARTS[name][0](options.device, options.quick):
            right = right and one.right
            part["rows"].append(asdict(one))
            print(f"{name}: {one.name} {seconds(one.time)}{'' if one.right else ' WRONG'}", flush=True)
            if stem is not None:
                write(stem, record)
        part["finished"] = True
    if stem is not None:
        write(stem, record)
    print("\n" + markdown(record))
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
