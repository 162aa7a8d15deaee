"""The tangent kernel of a random network tends to a fixed one as the network widens, with an error of width^(-1/2).

    python3 make.py python examples/empirical_kernel_converges.py [--out FILE.png]

For networks with two hidden layers, at initialisation, on 32 digits: the relative error |Theta_n - Theta| / |Theta| of
one network's kernel against the analytic one (law of large numbers: n^(-1/2)), and of the mean over many networks,
which is smaller by the square root of their number until the bias of order 1/n dominates (Lee et al. 2019, section
2.4).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)


def spec(width: int) -> mn.Sequential:
    """ReLU network with two hidden layers."""
    s = 2**0.5
    return mn.Sequential(
        mn.Dense(width, w_std=s, b_std=0.1), mn.ReLU(), mn.Dense(width, w_std=s, b_std=0.1), mn.ReLU(), mn.Dense(1)
    )


def kernel_errors(
    widths: tuple[int, ...] = WIDTHS, networks: int = 12, seed: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Relative Frobenius error of each network's kernel, (widths, networks), and of their mean, (widths,)."""
    rng = np.random.default_rng(seed)
    x = mn.datasets.digits().standardise().on_sphere().subset(32, rng).x
    theory = an.kernel(spec(1)).ntk(x)
    single, mean = [], []
    for width in widths:
        net = mn.Network(spec(width), x.shape[1:])
        kernels = np.stack([mn.ntk(net, net.init(rng), x) for _ in range(networks)])
        single.append(np.linalg.norm(kernels - theory, axis=(1, 2)) / np.linalg.norm(theory))
        mean.append(np.linalg.norm(kernels.mean(0) - theory) / np.linalg.norm(theory))
    return np.array(single), np.array(mean)


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, networks: int = 12) -> dict[str, float]:
    """The exponent of the error in width and its standard error over networks; draws the figure into `out`."""
    single, mean = kernel_errors(widths, networks)
    slopes = [np.polyfit(np.log(widths), np.log(column), 1)[0] for column in single.T]
    exponent, error = float(np.mean(slopes)), float(np.std(slopes, ddof=1) / len(slopes) ** 0.5)
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("minintk.verify.look")
        figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
        centre, spread = single.mean(1), single.std(1, ddof=1)
        axes.errorbar(widths, centre, spread, fmt="o", label=f"one network ({networks} drawn)")
        axes.loglog(widths, mean, "s", label=f"mean over {networks} networks")
        guide = np.array(widths, float) ** -0.5
        axes.loglog(widths, centre[-1] * guide / guide[-1], "k--", label="theory: $n^{-1/2}$")
        axes.loglog(
            widths, centre[-1] * guide / guide[-1] / networks**0.5, "k:", label=f"$n^{{-1/2}}/\\sqrt{{{networks}}}$"
        )
        axes.set(xlabel="width n", ylabel="relative error of the tangent kernel")
        axes.set_title(f"fitted exponent {exponent:.3f} ± {error:.3f}")
        axes.legend()
        figure.savefig(out, dpi=120)
    return {"exponent": exponent, "standard error": error, "theory": -0.5}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="empirical_kernel_converges.png", help="the figure")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:16} {value:.4g}")
