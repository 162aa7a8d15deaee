"""Training an ensemble, predicted in closed form: Lee et al. 2019, figure 2, reduced.

    python3 make.py python examples/ensemble_dynamics.py [--out FILE.png]

A hundred tanh networks (three hidden layers, sigma_w^2 = 1.5, no bias) learn the parity of 16 digits by full-batch
gradient descent.  On the straight line between two training digits of different parity, the mean and the spread of
their outputs follow equations (14) and (15) at every time, without fitted parameters, up to O(1/width).  The Gaussian
process posterior of the same network, equation (13), differs.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Array = np.ndarray[Any, Any]
LR, TIMES = 0.5, (0, 8, 64, 512)  # time is counted in steps of size LR


def spec(width: int) -> mn.Sequential:
    """The network of the figure, at any width."""
    hidden = [layer for _ in range(3) for layer in (mn.Dense(width, w_std=1.5**0.5), mn.Tanh())]
    return mn.Sequential(*hidden, mn.Dense(1, w_std=1.5**0.5))


def problem(seed: int = 0, n_train: int = 16) -> tuple[Array, Array, Array, Array]:
    """Training digits x, their parities y, mixing weights a, and the line a x_i + (1 - a) x_j between two of them."""
    x, y = mn.datasets.digits().on_sphere().subset(n_train, np.random.default_rng(seed)).parity()
    odd, even = int(np.argmin(y)), int(np.argmax(y))
    a = np.linspace(-0.5, 1.5, 25)
    return x, y, a, a[:, None] * x[even] + (1 - a)[:, None] * x[odd]


def networks(x: Array, y: Array, line: Array, width: int, members: int, seed: int = 0) -> dict[int, Array]:
    """{time: outputs of every trained network on the line, (members, 25)}."""
    net = mn.Network(spec(width), x.shape[1:])
    theta = net.init(np.random.default_rng(seed), ensemble=members, dtype=np.float32)
    x, y, line = (a.astype(np.float32) for a in (x, y, line))
    run = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=LR), steps=max(TIMES), every=8)
    return {snap.step: net(snap.theta, line)[..., 0] for snap in run if snap.step in TIMES}


def main(out: str | None = None, width: int = 128, members: int = 100) -> dict[str, float]:
    """Deviations of means and spreads from theory, over all times and inputs of the line; draws the figure.

    rms z of mean: deviations in standard errors, 1 for perfect agreement (neighbouring inputs are correlated).
    spread / theory: mean ratio of the standard deviations, where the theory's exceeds 0.05.
    """
    x, y, a, line = problem()
    measured = networks(x, y, line, width, members)
    kernel = an.kernel(spec(1))
    theory = an.ensemble(kernel, x, y, lr=LR)
    bayes, bayes_cov = an.posterior(kernel, x, y).predict(line, cov=True)
    z, ratio = [], []
    predictions = {}
    for t in TIMES:
        mean, cov = theory.predict(line, t=float(t), cov=True)
        mean, sd = mean[:, 0], np.sqrt(np.diag(cov))
        predictions[t] = mean, sd
        f = measured[t]
        spread = sd > 0.05
        z.append((f.mean(0) - mean)[spread] / sd[spread] * members**0.5)
        ratio.append(f.std(0, ddof=1)[spread] / sd[spread])
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("minintk.verify.look")
        figure, panels = plt.subplots(1, len(TIMES), figsize=(14, 3.6), sharey=True, layout="constrained")
        for panel, t in zip(panels, TIMES, strict=True):
            (mean, sd), f = predictions[t], measured[t]
            panel.fill_between(a, mean - 2 * sd, mean + 2 * sd, color="C0", alpha=0.25, label="eqs. (14), (15), ± 2 sd")
            panel.plot(a, mean, "C0--")
            panel.errorbar(
                a, f.mean(0), 2 * f.std(0, ddof=1), fmt="C1o", ms=3, lw=0.8, label=f"{members} networks, ± 2 sd"
            )
            b_sd = np.sqrt(np.maximum(np.diag(bayes_cov), 0))  # zero at the training points, up to rounding
            panel.plot(a, bayes[:, 0] + 2 * b_sd, "C2:", a, bayes[:, 0] - 2 * b_sd, "C2:")
            panel.plot([], [], "C2:", label="NNGP posterior (13), ± 2 sd")
            panel.plot([0, 1], [-1, 1], "kD", mfc="none", label="training points")
            panel.set(title=f"t = {t} steps of {LR}", xlabel="mixing weight")
        panels[0].set_ylabel("output f")
        panels[-1].legend(fontsize=8, loc="lower right")
        figure.savefig(out, dpi=120)
    rms = float(np.sqrt(np.mean(np.concatenate(z) ** 2)))
    return {"rms z of mean": rms, "spread / theory": float(np.mean(np.concatenate(ratio)))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="ensemble_dynamics.png", help="the figure")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:18} {value:.4g}")
