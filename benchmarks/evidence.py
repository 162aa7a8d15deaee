"""Time fits of scikit-learn's Gaussian process with `an.NetworkKernel`, and measure the memory that error bars need.

    python3 make.py python benchmarks/evidence.py [--rounds 7]

Each fit tunes w_std and b_std of a network with two hidden erf layers, and the noise level, on the parity of 150
digits. The reported time is the median over fits. The reported memory is the peak resident size during the computation
of 4,000 error bars from 200 training examples, minus the resident size before it (Linux only).
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel

import analytic as an
import minintk as mn


def fitted(x: Any, y: Any) -> tuple[float, float]:
    """Return (seconds, log evidence) for one fit."""
    model = GaussianProcessRegressor(an.NetworkKernel(activation="erf") + WhiteKernel(0.1))
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # warnings that a scale is at its bound
        model.fit(x, y)
    return time.perf_counter() - start, float(model.log_marginal_likelihood_value_)


def grown(call: Any) -> float:
    """Return the peak of the resident size during a call minus its value before the call, in MB."""
    lines = Path("/proc/self/status")

    def status(name: str) -> int:
        return next(int(line.split()[1]) for line in lines.read_text().splitlines() if line.startswith(name))

    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS:")
    call()
    return (status("VmHWM:") - before) / 1024


def main() -> None:
    """Run both measurements and print the results."""
    parser = argparse.ArgumentParser(description="time of a fit by the evidence; memory of error bars")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    data = mn.datasets.digits().subset(150, np.random.default_rng(0))
    x, y = data.parity()
    fitted(x[:20], y[:20, 0])
    found = [fitted(x, y[:, 0]) for _ in range(rounds)]
    print(f"fit: {median(t for t, _ in found):.2f} s, log evidence {found[0][1]:.6f}")

    rng = np.random.default_rng(0)
    kernel = an.kernel(mn.Sequential(mn.Dense(8, w_std=1.5), mn.Erf(), mn.Dense(1)))
    x, y, x_test = rng.standard_normal((200, 64)), rng.standard_normal((200, 1)), rng.standard_normal((4000, 64))
    for kind in ("nngp", "ntk"):
        gp = an.posterior(kernel, x, y, ridge=0.1, kind=kind)
        gp.predict(x_test[:10], cov=True)
        std, cov = (grown(lambda how=how, gp=gp: gp.predict(x_test, **{how: True})) for how in ("std", "cov"))
        print(f"4,000 error bars, {kind}: std {std:.0f} MB, cov {cov:.0f} MB")


if __name__ == "__main__":
    main()
