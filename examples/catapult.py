"""Show the catapult: if 2 < lr x lambda_0 < 4, the loss rises, the sharpness falls, and then training converges.

    python3 make.py python examples/catapult.py [--out FILE.png]

lambda_0 is the initial sharpness, the largest eigenvalue of the loss's Hessian.  A linear network with one hidden layer
of width 512 learns the parity of 20 digits.  At rates below 2 / lambda_0 the loss falls.  Between 2 / lambda_0 and 4 /
lambda_0 the loss grows until the weights have shrunk enough to reduce the sharpness below 2 / lr, and then falls.
Above 4 / lambda_0 training diverges (Lewkowycz et al. 2020).  If the sharpness does not depend on the width n, networks
of all widths can be trained at the same rates.  The sharpness of tanh networks with two hidden layers scales as n^b.
In the NTK parametrization, and in muP with its rates in the Hessian, b is 0.  In the standard one, b is at most 1.
"""

from __future__ import annotations

import argparse
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import power_law, sharpness

RATES, WIDTHS = (1.0, 1.8, 2.5, 3.0, 3.5, 4.5), (128, 256, 512, 1024)
X, Y = mn.datasets.digits().on_sphere().subset(20, np.random.default_rng(0)).parity()
PARAMETRIZATIONS = {"muP": mn.SpectralMuP(), "NTK": mn.NTK(), "standard": mn.Standard()}


def launched(rate: float, seed: int, steps: int = 300) -> tuple[Any, float]:
    """Train at lr = rate / lambda_0. Return the losses and the final lr x sharpness, which is NaN after divergence."""
    net = mn.Network(mn.Sequential(mn.Dense(512), mn.Dense(1)), X.shape[1:])
    theta, losses = net.init(np.random.default_rng(seed)), []
    lr = rate / sharpness(net, theta, X, Y, loss=mn.mse)
    with warnings.catch_warnings(), suppress(FloatingPointError):
        warnings.simplefilter("ignore", RuntimeWarning)  # for rate > 2, `train` warns of divergence
        for snap in mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=steps):
            losses.append(float(snap.loss))
    end = lr * sharpness(net, snap.theta, X, Y, loss=mn.mse) if len(losses) > steps else np.nan
    return np.array(losses), end


def by_width(name: str, width: int, seeds: int) -> dict[str, Any]:
    """Return the sharpness of each network at initialisation and after 30 steps.

    In the standard parametrization, only the initial sharpness is measured.
    """
    net = mn.Network(mn.zoo.mlp(2, width, 1, activation=mn.Tanh(), w_std=1.0, b_std=0.0), (64,), PARAMETRIZATIONS[name])
    theta = net.init(np.random.default_rng([width]), ensemble=seeds)
    ends: dict[str, Any] = {"start": theta}
    if name != "standard":
        *_, end = mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.3), steps=30)
        ends["after 30 steps"] = end.theta
    return {
        f"{name}, {when}": np.array([sharpness(net, one, X, Y, loss=mn.mse, rtol=1e-3) for one in at])
        for when, at in ends.items()
    }


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, seeds: int = 8) -> dict[str, float]:
    """Return, for each rate, the least peak / first loss, the share of converged runs and the largest lr x sharpness.

    Also return the exponents b in sharpness ~ width^b. Entries that end in "±" are half-widths of 95 % intervals.
    """
    results = dict[str, float]()
    runs, laws = {rate: [launched(rate, seed) for seed in range(seeds)] for rate in RATES}, {}
    for rate, each in runs.items():
        name = f"lr x lambda_0 = {rate}"
        results[f"{name}: least peak / first loss"] = min(max(loss) / loss[0] for loss, _ in each)
        results[f"{name}: share that converged"] = float(np.mean([loss[-1] < loss[0] / 50 for loss, _ in each]))
        results[f"{name}: largest lr x sharpness at the end"] = max(end for _, end in each)
    for kept in ([by_width(name, width, seeds) for width in widths] for name in PARAMETRIZATIONS):
        for when in kept[0]:
            values = [found[when] for found in kept]
            law, _ = laws[when] = power_law(widths, values), values
            results |= {f"exponent, {when}": law.exponent, f"exponent, {when} ±": np.ptp(law.interval) / 2}
    if out:
        draw(out, widths, runs, laws)
    return results


def draw(out: str, widths: tuple[int, ...], runs: dict[float, Any], laws: dict[str, Any]) -> None:
    """Plot the loss of one network at each rate, and the sharpness against the width."""
    import matplotlib.pyplot as plt

    from analytic.verify.figures import MARKERS

    plt.style.use("analytic.verify.look")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for i, (rate, each) in enumerate(runs.items()):
        left.semilogy(each[0][0][:40], f"C{i}{MARKERS[i % 4]}-", markersize=3, label=f"{rate}")
    left.set(xlabel="step", ylabel="loss", ylim=(1e-3, 1e4))
    left.legend(title="lr x lambda_0", fontsize=8, ncols=2)
    for i, (when, (law, values)) in enumerate(laws.items()):
        y, bars = [v.mean() for v in values], [1.96 * v.std(ddof=1) / len(v) ** 0.5 for v in values]
        right.errorbar(widths, y, bars, fmt=f"C{i}{MARKERS[i % 4]}", capsize=2, label=f"{when}: n^{law.exponent:+.2f}")
        right.loglog(widths, y[-1] * (np.array(widths) / widths[-1]) ** ("standard" in when), f"C{i}--", linewidth=1)
    right.set(xlabel="width n", ylabel="sharpness (dashed: theory)")
    right.legend(fontsize=8)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="catapult.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:48} {value:.4g}")
