"""Predict the mean output of 10,000 trained networks of width n by kernel regression plus a correction c / n.

    python3 make.py python examples/mean_of_networks.py [--widths 128 256] [--out FILE.png]

Networks learn the parity of five digits by gradient flow, and predict the parity of a sixth digit.  The tangent kernel
at finite width is random and changes during training.  The networks' mean output therefore differs from its
infinite-width limit by c / n to leading order.  `analytic.width_correction` computes c.

The networks come in pairs with opposite output weights, so that the initial outputs cancel.  To reduce the noise, we
average the trained networks' differences from their linearisations, and estimate the mean output of the linearisations
from 40 untrained networks for each pair.  The remaining error after the correction c / n is O(1/n^2).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

CASES = {"1 hidden, tanh": (1, mn.Tanh()), "2 hidden, erf": (2, mn.Erf()), "3 hidden, tanh": (3, mn.Tanh())}
WIDTHS, TIMES = (32, 64, 128), (1.0, 2.0, 4.0)
Host = np.ndarray[Any, Any]


def spec(case: str, n: int) -> mn.Sequential:
    """Build the network of this case, with hidden layers of width n and one output."""
    hidden, phi = CASES[case]
    return mn.Sequential(*(mn.Dense(n, w_std=1.5, b_std=0.1), phi) * hidden, mn.Dense(1))


def linearised(k: Any, y: Host) -> Host:
    """Return f_t (E, T) for the first input, of linearised networks with tangent kernels k (E, 1 + N, N)."""
    lam, Q = np.linalg.eigh(k[:, 1:])
    learned = -np.expm1(-lam[..., None] * TIMES / len(y)) / lam[..., None]
    return np.einsum("en,enk,ekt,emk,m->et", k[:, 0], Q, learned, Q, y[:, 0], optimize=True)


def mean_of_networks(case: str, n: int, x: Host, y: Host, pairs: int) -> tuple[Host, Host]:
    """Return the mean output (T,) for x[0] of networks trained on the other inputs, and its standard error (T,)."""
    net, rng = mn.Network(spec(case, n), x.shape[1:]), np.random.default_rng(n)
    moved, plain, batch = [], [], max(1, 1600 // n)
    for _ in range(0, pairs, batch):
        theta = net.init(rng, ensemble=batch)
        both = np.concatenate([theta, theta])
        net.layout.unpack(both[len(theta) :])[f"{len(net.spec.layers) - 1}.W"][...] *= -1
        flow = mn.flow(net, both, x[1:], y[1:], loss=mn.mse, times=TIMES, by=mn.Solver(rtol=1e-6, atol=1e-7))
        f = np.array([net(moment.theta, x[:1])[:, 0, 0] for moment in flow if moment.theta is not None])[1:]
        moved.append(f.reshape(len(TIMES), 2, -1).mean(axis=1).T - linearised(mn.ntk(net, theta, x, x[1:]), y[1:]))
        more = (net.init(rng, ensemble=len(theta)) for _ in range(40))
        plain += [linearised(mn.ntk(net, untrained, x, x[1:]), y[1:]) for untrained in more]
    parts = np.concatenate(moved), np.concatenate(plain)
    return sum(a.mean(0) for a in parts), np.sqrt(sum(a.var(0, ddof=1) / len(a) for a in parts))


def main(
    out: str | None = None, cases: tuple[str, ...] = tuple(CASES), widths: tuple[int, ...] = WIDTHS, pairs: int = 5000
) -> dict[str, tuple[float, float, float]]:
    """Return (value, standard error, z-score against c) for c and for n (mean - limit) at each width, case and time.

    The values of n (mean - limit) are also extrapolated to 1/n = 0.
    """
    x, y = mn.datasets.digits().pca(5).on_sphere().subset(6, np.random.default_rng(0)).parity()
    found, inverse = {}, 1 / np.array(widths)
    for case in cases:
        theory = an.width_correction(spec(case, 1), x[1:], y[1:], x[:1], rng=np.random.default_rng(0)).predict(TIMES)
        mean, error = np.array([mean_of_networks(case, n, x, y, pairs) for n in widths]).swapaxes(0, 1)
        for i, t in enumerate(TIMES):
            limit, c, unsure = (float(a[i, 0, 0]) for a in theory)
            values, own = (mean[:, i] - limit) / inverse, error[:, i] / inverse
            line, cov = np.polyfit(inverse, values, 1, w=1 / own, cov="unscaled")
            rows = zip([*(f"n = {n}" for n in widths), "1/n -> 0"], [*values, line[1]], [*own, cov[1, 1] ** 0.5])
            found[f"{case}, t = {t:g}: c"] = c, unsure, 0.0
            found |= {f"{case}, t = {t:g}: {name}": (v, e, (v - c) / np.hypot(e, unsure)) for name, v, e in rows}
    if out:
        draw(out, found, cases, widths)
    return found


def draw(out: str, found: dict[str, Any], cases: tuple[str, ...], widths: tuple[int, ...]) -> None:
    """Plot n (mean - limit) against 1/n, with a panel for each case."""
    import matplotlib.pyplot as plt

    plt.style.use("analytic.verify.look")
    figure, panels = plt.subplots(1, len(cases), figsize=(4.2 * len(cases), 3.8), layout="constrained", squeeze=False)
    for axes, case in zip(panels[0], cases, strict=True):
        for i, t in enumerate(TIMES):
            values, errors, _ = np.array([found[f"{case}, t = {t:g}: n = {n}"] for n in widths]).T
            axes.errorbar(1 / np.array(widths), values, errors, fmt=f"C{i}o", capsize=3, label=f"networks, t = {t:g}")
            c = found[f"{case}, t = {t:g}: c"][0]
            axes.axhline(c, color=f"C{i}", linestyle="--", label="c, computed" * (i == 0))
        axes.set(xlabel="1 / width n", ylabel="n (mean output - limit)", title=case, xlim=(0, 1.1 / widths[0]))
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(TIMES) + 1)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="mean_of_networks.png", help="the figure (%(default)s)")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="two or more")
    for name, (value, error, z) in main(**vars(parser.parse_args())).items():
        print(f"{name:36} {value:8.3f} +- {error:.3f}   z = {z:5.2f}")
