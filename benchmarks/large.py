"""Compare `an.solve` with scikit-learn on N = 20,000 examples: `benchmarks/large.py --data DIR [--n N]`.

The NTK of MNIST's first N images is computed once and stored on disk. The sides run one after the other, each in a
separate process that reads the kernel from disk. scikit-learn loads the whole kernel into memory for
KernelRidge(kernel="precomputed"). The script reports the wall time and the CPU time of reading the kernel and fitting.
The memory is the peak of RssAnon during this time, minus its value before. It excludes pages backed by files, which the
system can drop. The residual is the largest |y - (K + ridge I) a| / |y| over targets, computed in float64. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

SIDES = ("an.solve, cholesky", "scikit-learn, KernelRidge")
KERNEL = an.kernel(mn.Sequential(*[mn.Dense(512, w_std=2**0.5), mn.ReLU()] * 2, mn.Dense(10)))


def problem(data: str | None, n: int) -> tuple[Any, Any, float]:
    """Return x, y and the ridge, which is a thousandth of the mean of the kernel's diagonal.

    Without a folder `data` that contains MNIST, the examples are random.
    """
    if data:
        x, y = mn.datasets.mnist(data, "train", dtype=np.float32).flat()[:n].one_hot(zero_mean=True)
    else:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((n, 20), dtype=np.float32)
        y = np.sin(x @ rng.standard_normal((20, 10), dtype=np.float32))
    x = x - x.mean(axis=0)
    return x, y, 1e-3 * float(KERNEL.diag(x).ntk.mean())


def anonymous() -> float:
    """Return RssAnon, this process's resident memory in MB, excluding pages backed by files."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def side(name: str, data: str | None, n: int, store: str) -> dict[str, float]:
    """Run the side with this name; return the times, the memory, the residual and the number of steps."""
    x, y, ridge = problem(data, n)
    from sklearn.kernel_ridge import KernelRidge  # imported on every side, so that all sides start with equal memory

    before, most, ended = anonymous(), [0.0], Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], anonymous())

    watcher = Thread(target=watch)
    watcher.start()
    start, busy = time.perf_counter(), time.process_time()
    if name.startswith("an."):
        fit = an.solve(KERNEL, x, y, ridge=ridge, by=name.split()[-1], tol=1e-6, store=store)  # type: ignore[arg-type]
        a, steps = fit.coefficients, fit.steps
    else:
        K = np.load(Path(store, "ntk.npy"))
        a, steps = KernelRidge(alpha=ridge, kernel="precomputed").fit(K, y).dual_coef_, 0
        del K
    found = {"wall": time.perf_counter() - start, "cores": time.process_time() - busy, "steps": steps}
    ended.set()
    watcher.join()
    K = np.load(Path(store, "ntk.npy"), mmap_mode="r")
    a = np.asarray(a, dtype=np.float64)
    product = np.concatenate([K[i : i + 500].astype(np.float64) @ a for i in range(0, n, 500)])
    left = np.linalg.norm(y - product - ridge * a, axis=0) / np.linalg.norm(y, axis=0)
    return found | {"memory": most[0] - before, "residual": float(left.max())}


def main(data: str | None, n: int, store: str, only: str) -> None:
    """Compute the kernel, run the sides whose names contain `only`, and print a table."""
    start = time.perf_counter()
    KERNEL.ntk(problem(data, n)[0], store=store)
    print(f"N = {n}; the kernel: {time.perf_counter() - start:.1f} s\n")
    print("| side | s | core s | MB | residual | steps |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in (name for name in SIDES if only in name):
        call = [sys.executable, __file__, "--n", str(n), "--store", store, "--side", name]
        done = subprocess.run(call + (["--data", data] if data else []), stdout=subprocess.PIPE, check=True)
        f = json.loads(done.stdout.splitlines()[-1])
        cells = (f"{f['wall']:.1f}", f"{f['cores']:.1f}", f"{f['memory']:.0f}", f"{f['residual']:.0e}", f"{f['steps']}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of MNIST; random examples without it")
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--store", help="a folder for the kernel, kept; a temporary one without it")
    parser.add_argument("--only", default="", help="the sides whose names hold this")
    parser.add_argument("--side", help="run this side alone, in this process, and print JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = given.store or folder
        if given.side:
            print(json.dumps(side(given.side, given.data, given.n, where)))
        else:
            main(given.data, given.n, where, given.only)
