"""Show that networks are trainable up to a depth of about six depth scales xi, and deeper at the edge of chaos.

    python3 make.py python examples/trainable_depth.py [--seed 1] [--out FILE.png]

We train networks in the ordered phase, in which the outputs for different inputs converge as e^(-depth / xi)
(`analytic.phase`), on 150 digits for 150 steps.  We fix b_std^2 = .05, so that w_std determines xi.  The trainable
depth, at which the training accuracy falls to 1/2, is interpolated.  The intervals over networks use Student's t.

Width, rate, number of steps and depths were chosen with other seeds.  Seed 1 was run once, after the following
predictions were written down (Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017).  (1) The mean of depth / xi over
all settings is 6 +- 1.5.  (2) For each activation, doubling xi multiplies the number of trainable layers by at least
1.2.  (3) At a depth of 12 times the smaller xi, the training accuracy is at least .2 higher at the edge of chaos.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Host = np.ndarray[Any, Any]
ACTIVATIONS, SCALES, MULTIPLES, B = (mn.Tanh(), mn.Erf(), mn.Sin()), (3.0, 6.0), (3, 5, 7, 9, 12), 0.05**0.5


def weights(phi: mn.spec.Activation, xi: float) -> float:
    """Return the w_std below the edge of chaos at which the depth scale is xi."""
    from scipy.optimize import brentq

    def excess(w: float) -> float:
        return an.phase(mn.Sequential(mn.Dense(8, w_std=w, b_std=B), phi)).xi - xi

    return float(brentq(excess, 0.2, 0.999 * an.critical(phi, b_std=B).w_std, xtol=1e-4))


def accuracies(phi: Any, w: float, depths: Host, width: int, networks: int, steps: int, seed: int) -> Host:
    """Train networks of each depth, and return the array (depths, networks) of training accuracies."""
    x, y = mn.datasets.digits(dtype=np.float32).on_sphere().subset(150, np.random.default_rng(seed)).one_hot()
    found = []
    for depth in depths:
        layers = (mn.Dense(width, w_std=w, b_std=B), phi) * int(depth)
        net = mn.Network(mn.Sequential(*layers, mn.Dense(10)), x.shape[1:], mn.Standard())
        theta = net.init(np.random.default_rng([seed, int(depth)]), ensemble=networks, dtype=np.float32)
        loss, by = mn.softmax_cross_entropy, mn.SGD(lr=0.1)
        *_, end = mn.train(net, theta, x, y, loss=loss, optimizer=by, steps=steps)
        found.append(np.mean(np.argmax(net(end.theta, x), axis=-1) == np.argmax(y, axis=-1), axis=-1))
    return np.array(found)


def half(accuracy: Host, depths: Host) -> float:
    """Return the depth at which the accuracy first falls below 1/2, interpolated linearly between depths."""
    if (at := int(np.argmax(accuracy < 0.5))) == 0:  # below 1/2 at the first depth or at none
        return float(depths[0] if accuracy[0] < 0.5 else depths[-1])
    return float(np.interp(0.5, accuracy[[at, at - 1]], depths[[at, at - 1]]))


def main(
    out: str | None = None, activations: tuple[Any, ...] = ACTIVATIONS, scales: tuple[float, ...] = SCALES,
    width: int = 64, networks: int = 5, steps: int = 150, seed: int = 0,
) -> dict[str, float]:  # fmt: skip
    """Return trainable depths in layers and in units of xi, their 95 % half-widths, and gains at the edge of chaos."""
    from scipy.stats import t as student

    found, curves = dict[str, float](), {}
    for name, phi in ((type(phi).__name__, phi) for phi in activations):
        for xi in scales:
            depths = np.round(np.array(MULTIPLES) * xi)
            accuracy = curves[name, xi] = accuracies(phi, weights(phi, xi), depths, width, networks, steps, seed)
            depth = np.array([half(one, depths) for one in accuracy.T])
            error, key = student.isf(0.025, networks - 1) * depth.std(ddof=1) / networks**0.5, f"{name}, xi = {xi}: "
            found |= {key + "depth / xi": depth.mean() / xi, key + "+-": error / xi, key + "layers": depth.mean()}
        edge, deep, below = an.critical(phi, b_std=B).w_std, np.array([12 * scales[0]]), curves[name, scales[0]][-1]
        gain = accuracies(phi, edge, deep, width, networks, steps, seed).mean() - below.mean()
        found[f"{name}, 12 x first xi: gain of the edge"] = float(gain)
    found["mean of depth / xi"] = float(np.mean([found[key] for key in found if "depth / xi" in key]))
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
        for i, ((name, xi), accuracy) in enumerate(curves.items()):
            depths, style = np.round(np.array(MULTIPLES) * xi), f"C{i // 2}{'o-' if xi == scales[0] else 's--'}"
            for panel, unit in zip(axes, (1, xi), strict=True):
                panel.plot(depths / unit, accuracy.mean(1), style, label=f"{name}, xi = {xi:g}")
        axes[1].axvline(6, color="k", linewidth=1)
        axes[0].set(xlabel="depth, layers", ylabel="training accuracy", title="150 digits, 150 steps of descent")
        axes[1].set(xlabel="depth / xi", title="the line: 6 xi")
        axes[0].legend()
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="trainable_depth.png", help="the figure (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    for name, value in main(**vars(parser.parse_args())).items():
        print(f"{name:44} {value:.4g}")
