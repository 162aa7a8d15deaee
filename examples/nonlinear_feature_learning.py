"""Compare nonlinear networks that learn features with their infinite-width limit, at growing width.

    python3 make.py python examples/nonlinear_feature_learning.py [--out FILE.png]

Networks with two hidden layers in the parametrization `mn.MeanField()` learn four digits, one of them odd, by gradient
descent and by Adam.  `an.feature_learning_limit` computes the limit by Monte Carlo over neurons.  The distance between
the margin (the mean of y f) and its limit falls as n^(-1/2) for one network, and as 1/n for the mean over networks.
The tangent kernels of the networks approximate the tangent kernel of the limit throughout training.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

CASES: dict[str, tuple[Any, Any]] = {"erf": (mn.Erf(), mn.SGD(lr=0.2)), "tanh": (mn.Tanh(), mn.SGD(lr=0.2))}
CASES |= {"ReLU": (mn.ReLU(), mn.SGD(lr=0.1)), "tanh, Adam": (mn.Tanh(), mn.Adam(0.05, eps=1e-30))}
WIDTHS, STEPS = (16, 32, 64), 20
Host = np.ndarray[Any, Any]


def spec(phi: Any, n: int) -> mn.Sequential:
    """Build a network with two hidden layers of width n, activation phi, and one output."""
    return mn.Sequential(mn.Dense(n, w_std=1.5), phi, mn.Dense(n, w_std=1.5), phi, mn.Dense(1))


def networks(phi: Any, by: Any, n: int, x: Host, y: Host, neurons: int) -> tuple[Host, Host]:
    """Train about neurons / n networks, and return the margins, (STEPS + 1, networks).

    Also return the means of the diagonals of some of their tangent kernels.
    """
    net, rng, margins = mn.Network(spec(phi, n), x.shape[1:], mn.MeanField()), np.random.default_rng(n), list[Any]()
    for _ in range(neurons // 10_000):
        theta0 = net.init(rng, ensemble=10_000 // n)
        run = list(mn.train(net, theta0, x, y, loss=mn.mse, optimizer=by, steps=STEPS))
        margins.append([(y * net(s.theta, x)).mean(axis=(1, 2)) for s in run])
    kernels = [np.diagonal(mn.ntk(net, s.theta[:100], x), axis1=1, axis2=2).mean(axis=1) for s in run]
    return np.concatenate(margins, axis=1), np.array(kernels)


def exponent(widths: Host, distance: Host, error: Host) -> tuple[float, float]:
    """Fit distance = A n^b by weighted least squares of logarithms.

    Return b and its standard error.
    """
    rows = np.stack([np.ones(len(widths)), np.log(widths)], axis=1) * (distance / error)[:, None]
    fit = np.linalg.lstsq(rows, np.log(distance) * distance / error)[0]
    return float(fit[1]), float(np.linalg.inv(rows.T @ rows)[1, 1] ** 0.5)


def main(out: str | None = None, neurons: int = 150_000, samples: int = 80_000) -> dict[str, float]:
    """Return the exponents, with standard errors, of the distance from the limit for one network and for the mean."""
    x, y = mn.datasets.digits().pca(5).on_sphere().subset(4, np.random.default_rng(3)).parity()
    n, found, drawn = np.array(WIDTHS), dict[str, float](), {}
    for name, (phi, by) in CASES.items():
        how: Any = {"samples": min(samples, 20_000) if "Adam" in name else samples, "rng": np.random.default_rng(0)}
        limit = an.feature_learning_limit(spec(phi, 1), x, y, gamma0=1.0, lr=by, steps=STEPS, **how)
        margin, spread = (y * limit.f).mean(axis=(1, 2)), limit.error.f.mean(axis=(1, 2))
        runs = [networks(phi, by, width, x, y, neurons) for width in WIDTHS]
        one = np.array([m[-1].std() for m, _ in runs])
        off = np.array([abs(m[-1].mean() - margin[-1]) for m, _ in runs])
        error = np.hypot(one / np.sqrt(neurons / n), spread[-1])
        for what, row in {"means": (off, error), "one network": (one, one / np.sqrt(2 * neurons / n))}.items():
            found[f"{name}, {what}: exponent"], found[f"{name}, {what}: error"] = exponent(n, *row)
        found |= {f"{name}: n |mean - limit|, n = {k}": k * a for k, a in zip(WIDTHS, off, strict=True)}
        drawn[name] = margin, np.trace(limit.ntk, axis1=1, axis2=2) / len(x), runs, off, error, one
    if out:
        draw(out, n, drawn)
    return found


def draw(out: str, n: Host, drawn: dict[str, Any]) -> None:
    """Plot the margins, the kernels, and the distances from the limit."""
    import matplotlib.pyplot as plt

    plt.style.use("analytic.verify.look")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    steps, colours = np.arange(0, STEPS + 1, 2), ("C0", "C1", "C2", "C3")
    for colour, (name, (margin, kernel, runs, off, error, one)) in zip(colours, drawn.items(), strict=True):
        left.plot(margin, colour, label=f"{name}, limit")
        middle.plot(kernel / kernel[0], colour)
        (small, _), (large, k) = runs[0], runs[-1]
        for axes, values, mark in (left, small, "s"), (left, large, "o"), (middle, k / kernel[0], "o"):
            mean, wide = values.mean(axis=1)[::2], 2 * values.std(axis=1)[::2] / values.shape[1] ** 0.5
            axes.errorbar(steps, mean, wide, fmt=colour + mark, markersize=4, capsize=2)
        right.errorbar(n, off, 2 * error, fmt=colour + "o", capsize=3, label=f"{name}, mean of networks")
        right.loglog(n, off[0] * n[0] / n, f"{colour}--", n, one, f"{colour}x")
    left.set(xlabel="steps", ylabel="mean of y f", title=f"limit; width {n[0]} (squares) and {n[-1]} (circles)")
    middle.set(xlabel="steps", ylabel="tr $\\Theta_t$ / tr $\\Theta_0$", title=f"tangent kernel; width {n[-1]}")
    right.set(xlabel="width n", ylabel="distance of margins", title="dashed: 1/n; crosses: one network")
    right.set_xticks(n, [str(k) for k in n])
    right.minorticks_off()
    for axes in (left, right):
        axes.legend(fontsize=8)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="nonlinear_feature_learning.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:34} {value:.4g}")
