"""Test that resident memory grows in a warm call by at most a bound, such as `memory=` or the need in `check_memory`.

Each case runs in a separate process. A first call, mostly a small one, loads and compiles code, and does not count.
Then the test reads the peak that the system records during a call. Kernels get the smallest `memory` that they accept.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SETUP = """
    import ctypes, re, sys
    import numpy as np, minintk as mn, analytic as an
    from minintk.doors import through

    def status(name):
        lines = open("/proc/self/status").read().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

    def peak(call):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        open("/proc/self/clear_refs", "w").write("5")   # the peak starts again from here
        before = status("VmRSS:")
        call()
        return status("VmHWM:") - before

    def least(call):
        '''(growth, bound) at the smallest bound that is accepted, by what the refusals ask for.'''
        bound = 1
        for _ in range(9):
            try:
                return peak(lambda: call(bound)), bound
            except MemoryError as error:
                gb, gib = (re.findall(r"([\\d.e+-]+) " + unit, str(error)) for unit in ("GB", "GiB"))
                bound = int(1.01 * (sum(map(float, gb[:2])) * 1e9 if gb else float(gib[0]) * 2**30))

    rng = np.random.default_rng(0)
    if through("kernels"):
        through("kernels").planes.BYTES_WORTH_NUMBA = 0  # Numba where it is installed, in the small call too
    dense = mn.Sequential(mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(8), mn.ReLU(), mn.Dense(1))
    conv = mn.Sequential(mn.Conv2d(8), mn.ReLU(), mn.Conv2d(8), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))
"""

KERNEL = """
    k, x = an.kernel({spec}), rng.standard_normal({shape}).astype("{dtype}")
    k.both(x[:64])                                       # warm, and compiled
    growth, bound = least(lambda memory: k.both(x, memory=memory))
"""

NTK = """
    net, x = mn.Network(conv, (8, 8, 1)), rng.standard_normal((64, 8, 8, 1))
    theta = net.init(rng)
    mn.ntk(net, theta, x[:8])
    growth, bound = peak(lambda: mn.ntk(net, theta, x, memory=2**23)), 2**23
"""

SOLVE = """
    k, x, y = an.kernel(dense), rng.standard_normal((500, 20)), rng.standard_normal((500, 1))
    from analytic.training import gp  # its ensemble asks for the posterior too
    asked, check = [0], gp.check_memory
    gp.check_memory = lambda xp, what, need, remedy: (asked.append(need), check(xp, what, need, remedy))
    solve = lambda: an.posterior(k, x, y, kind="ntk").predict(x[:200], cov=True)
    solve()                                              # warm: fewer rows compile fewer loops
    growth, bound = peak(solve), max(asked)
"""

IN_PLACE = """
    x, y = rng.standard_normal(({N}, 20)).astype("{dtype}"), rng.standard_normal(({N}, 1)).astype("{dtype}")
    k, x_test = an.kernel(dense), x[:50] + 1
    an.posterior(k, x[:50], y[:50], ridge=0.1).predict(x_test, std=True)
    growth = peak(lambda: an.posterior(k, x, y, ridge=0.1).predict(x_test, std=True))
    bound = {share} * 8 * {N} ** 2
"""

FLOW = """
    k, y = rng.standard_normal((1500, 2000)), rng.standard_normal((1500, 1))
    k = k @ k.T
    an.gradient_flow(k[:50, :50], y[:50], ridge=0.1).predict(1.0)
    growth, bound = peak(lambda: an.gradient_flow(k, y, ridge=0.1).predict(1.0)), 44 * 1500**2
"""

MANY = """
    x, image, kept = rng.standard_normal((60, 20)), rng.standard_normal((5, 6, 6, 1)), []

    def one(i):
        phi = (mn.ReLU(), mn.Erf(), mn.GELU())[i % 3]
        layers = mn.Dense(8, w_std=1 + i / 1000), phi, mn.Dense(8, b_std=0.1), phi, mn.Dense(1)
        k = an.kernel(mn.Sequential(*layers))
        k.both(x[: 20 + i % 40])
        an.kernel(mn.Sequential(mn.Conv2d(8, w_std=1 + i / 1000), phi, mn.GlobalAvgPool(), mn.Dense(1))).ntk(image)
        return {leak}

    for i in range(160):
        if i in (60, 159):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            kept.append(status("VmRSS:"))
        kept.append(one(i))
    growth, bound = kept[-2] - kept[60], 2**20
"""

PLANTED = """
    k, x = an.kernel(dense), rng.standard_normal((1200, 20))
    k.both(x[:64])                                       # warm, and compiled
    growth, bound = least(lambda memory: (k.both(x, memory=memory), np.ones(memory // 8)))
"""

CASES = {
    "dense float32": KERNEL.format(spec="dense", shape=(1500, 20), dtype="float32"),
    "dense float64": KERNEL.format(spec="dense", shape=(1200, 20), dtype="float64"),
    "conv float32": KERNEL.format(spec="conv", shape=(60, 8, 8, 3), dtype="float32"),
    "mn.ntk": NTK,
    "posterior": SOLVE,
    "posterior in place": IN_PLACE.format(N=2000, dtype="float64", share=1.6),  # one matrix, and tiles of the kernel
    "posterior float32": IN_PLACE.format(N=2000, dtype="float32", share=1.9),  # 1.5 matrices, and tiles
    "gradient flow": FLOW,
}

LONG = "dense float64", "posterior", "posterior float32", "gradient flow"

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")


def ratio(case: str) -> float:
    """Return the growth of memory in a call, relative to the bound."""
    script = textwrap.dedent(SETUP) + textwrap.dedent(case) + 'print(f"{growth / bound:.3f}")\n'
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1200, check=False)
    assert found.returncode == 0, found.stderr
    return float(found.stdout)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in CASES]
)
def test_a_warm_call_stays_within_its_bound(name: str) -> None:
    assert 0.02 < ratio(CASES[name]) <= 1


def test_two_hundred_other_kernels_leave_nothing() -> None:
    """After a warm-up, 198 kernels of different specs increase resident memory by at most 1 MiB, or 5 kB each."""
    assert ratio(MANY.format(leak=None)) <= 1


def test_a_small_leak_is_found() -> None:
    """Negative control: the bound is exceeded if an array of 4,000 numbers is kept for every two kernels."""
    assert ratio(MANY.format(leak="rng.standard_normal(4000)")) > 1


def test_a_call_that_takes_more_is_found() -> None:
    """Negative control: the bound is exceeded if the call allocates an extra array as large as the bound."""
    assert ratio(PLANTED) > 1
