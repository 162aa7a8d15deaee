"""Reproduce the cookbook of neural-tangents: fit five noisy points of a sine with two posteriors and trained networks.

    python3 make.py python examples/sine_cookbook.py [--out FILE.png]

The script uses the data, the network and the regularisation of the cookbook's notebook.  `THEIRS` contains the means
and standard deviations that neural-tangents 0.6.5 computes in float64, at every seventh of 50 points in [-pi, pi].  The
notebook's `diag_reg` is relative: ridge = diag_reg tr(K) / N for N examples.  The trained networks are compared with
the predicted mean and variance of an ensemble after the same number of steps.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Array = np.ndarray[Any, Any]
X = np.array([3.0774223804473877, 2.5889432430267334, -2.1970717906951904, -0.19020164012908936, 1.2208225727081299])
Y = np.array([0.1800888627767563, 0.6537376642227173, -0.7590705156326294, -0.2407708317041397, 1.1107275485992432])
THEIRS: dict[Any, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "nngp": (
        (-0.080134322, -0.728119081, -1.062388213, -0.371066377, 0.341895679, 1.162005835, 0.845882973, 0.186017505),
        (0.030898872, 0.010625750, 0.036678843, 0.088588052, 0.140384236, 0.012189565, 0.014758268, 0.010937739),
    ),
    "ntk": (
        (0.064066951, -0.727060494, -0.991497227, -0.457768269, 0.536732268, 1.159444402, 0.927329422, 0.122007749),
        (0.022255128, 0.001674126, 0.045322288, 0.097752324, 0.175535557, 0.008634384, 0.005548638, 0.000517259),
    ),
}  # fmt: skip
"""The reference means and standard deviations, (8,) each."""


def spec(width: int) -> mn.Sequential:
    """Build the notebook's network."""
    how: dict[str, Any] = {"w_std": 1.5, "b_std": 0.05}
    return mn.Sequential(mn.Dense(width, **how), mn.Erf(), mn.Dense(width, **how), mn.Erf(), mn.Dense(1, **how))


def main(out: str | None = None, width: int = 128, networks: int = 60, steps: int = 300) -> dict[str, float]:
    """Return the largest differences from neural-tangents, and how far the trained networks deviate from theory."""
    x, y, x_test = X[:, None], Y[:, None], np.linspace(-np.pi, np.pi, 50)[:, None]
    kernel, found, bands = an.kernel(spec(width)), dict[str, float](), dict[str, tuple[Array, Array]]()
    for kind, theirs in THEIRS.items():
        ridge = 1e-4 * float(getattr(kernel.diag(x), kind).mean())
        mean, std = an.ensemble(kernel, x, y, ridge=ridge).predict(x_test, np.inf, kind=kind, std=True)
        bands[kind] = mean[:, 0], std
        for name, ours, there in zip(("mean", "standard deviation"), bands[kind], theirs, strict=True):
            found[f"{kind}: largest difference of the {name}"] = float(np.abs(ours[::7] - there).max())

    lr = 0.25 * an.max_learning_rate(kernel.ntk(x))
    net = mn.Network(spec(width), (1,))
    theta = net.init(np.random.default_rng(0), ensemble=networks)
    *_, end = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr), steps=steps)
    f = net(end.theta, x_test)[..., 0]
    flow = an.ensemble(kernel, x, y, lr=lr, by="descent")
    mean, std = flow.predict(x_test, steps, std=True)
    spread = np.sqrt((std**2).mean())
    found["networks: mean off, over theory's spread"] = float(np.sqrt(((f.mean(0) - mean[:, 0]) ** 2).mean()) / spread)
    found["  of which by chance"] = networks**-0.5
    found["networks: spread over theory's"] = float(np.sqrt(f.var(axis=0, ddof=1).mean()) / spread)
    found["  of which by chance, +-"] = (2 * networks) ** -0.5
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
        t = x_test[:, 0]
        names = {"nngp": "Bayesian posterior (NNGP)", "ntk": "trained to the end (NTK)"}
        for i, (kind, (m, s)) in enumerate(bands.items()):
            axes[0].plot(t, m, f"C{i}", label=names[kind])
            axes[0].fill_between(t, m - 2 * s, m + 2 * s, color=f"C{i}", alpha=0.2)
            means, stds = np.array(THEIRS[kind])
            axes[0].errorbar(t[::7], means, 2 * stds, fmt=f"C{i}.", capsize=3, label=f"neural-tangents, {kind}")
        axes[1].plot(t, mean[:, 0], "C1", label=f"theory after {steps} steps")
        axes[1].fill_between(t, mean[:, 0] - 2 * std, mean[:, 0] + 2 * std, color="C1", alpha=0.2)
        bars = 2 * f.std(axis=0, ddof=1)
        axes[1].errorbar(t, f.mean(axis=0), bars, fmt="k.", ms=3, lw=0.7, label=f"{networks} networks, width {width}")
        for one in axes:
            one.plot(X, Y, "ko", mfc="w", label="5 examples")
            one.plot(t, np.sin(t), "k--", lw=0.8, label="sin x")
            one.set(xlabel="x", ylabel="f(x), mean and 2 standard deviations")
            one.legend(fontsize=7)
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="sine_cookbook.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:52} {value:.3g}")
