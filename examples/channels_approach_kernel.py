"""The tangent kernel of a random CNN tends to the infinite one as its channels grow, with an error of channels^(-1/2).

    python3 make.py python examples/channels_approach_kernel.py [--out FILE.png]

Two 3 x 3 convolutions with ReLU on 8 x 8 digits, followed by Flatten or GlobalAvgPool and a dense layer: the relative
error |Theta_n - Theta| / |Theta| of the kernel of one network at initialisation, against the closed form for infinitely
many channels (Novak et al. 2019; Arora et al. 2019).  Both sides use the same spec.  An exponent is fitted for each
network; their mean is given with a 95 % interval.  The law of large numbers predicts -1/2.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Array = np.ndarray[Any, Any]
CHANNELS = (16, 32, 64, 128, 256)
ENDS = {"Flatten": (mn.Flatten(),), "GlobalAvgPool": (mn.GlobalAvgPool(),)}


def spec(end: str, channels: int) -> mn.Sequential:
    """Two convolutions, then `end` and a dense layer."""
    s = 2**0.5
    body = [layer for _ in range(2) for layer in (mn.Conv2d(channels, 3, w_std=s, b_std=0.1), mn.ReLU())]
    return mn.Sequential(*body, *ENDS[end], mn.Dense(1, w_std=s))


def errors(end: str, channels: tuple[int, ...] = CHANNELS, networks: int = 40, seed: int = 0) -> Array:
    """Relative Frobenius error of each network's kernel on 8 digits, (channels, networks)."""
    rng = np.random.default_rng(seed)
    x = mn.datasets.digits().standardise().images().subset(8, rng).x
    theory = an.kernel(spec(end, 1)).ntk(x)
    found = np.empty((len(channels), networks))
    for i, n in enumerate(channels):
        net = mn.Network(spec(end, n), x.shape[1:])
        for j in range(networks):
            found[i, j] = np.linalg.norm(mn.ntk(net, net.init(rng), x) - theory) / np.linalg.norm(theory)
    return found


def exponent(channels: tuple[int, ...], found: Array) -> tuple[float, float]:
    """The slope of log error in log channels: its mean over networks, and half the width of its 95 % interval."""
    from scipy.stats import t

    slopes = np.polyfit(np.log(channels), np.log(found), 1)[0]
    half = t.ppf(0.975, len(slopes) - 1) * slopes.std(ddof=1) / len(slopes) ** 0.5
    return float(slopes.mean()), float(half)


def main(
    out: str | None = None, channels: tuple[int, ...] = CHANNELS, networks: int = 40, seed: int = 0
) -> dict[str, float]:
    """Exponents and half their 95 % intervals, and the largest remaining errors; draws the figure into `out`."""
    measured = {end: errors(end, channels, networks, seed) for end in ENDS}
    fits = {end: exponent(channels, found) for end, found in measured.items()}
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("minintk.verify.look")
        figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
        for (end, found), style in zip(measured.items(), ("C0o", "C1s")):
            slope, half = fits[end]
            label = f"{end}: exponent {slope:.2f} ± {half:.2f}"
            axes.errorbar(channels, found.mean(1), found.std(1, ddof=1), fmt=style, label=label)
            guide = np.array(channels, float) ** -0.5
            middle = np.exp(np.mean(np.log(found.mean(1) / guide)))
            axes.loglog(channels, middle * guide, style[:2] + "--")
        axes.plot([], [], "k--", label="theory: $n^{-1/2}$")
        axes.set(xlabel="channels n", ylabel="relative error of the tangent kernel", xscale="log", yscale="log")
        axes.set_xticks(channels, [str(n) for n in channels], minor=False)
        axes.xaxis.minorticks_off()
        axes.set_title(f"{networks} networks at each n, ± one standard deviation")
        axes.legend()
        figure.savefig(out, dpi=120)
    results = {"theory": -0.5}
    for end, (slope, half) in fits.items():
        results |= {f"{end}: exponent": slope, f"{end}: 95 % interval ±": half}
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="channels_approach_kernel.png", help="the figure")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:34} {value:.4g}")
