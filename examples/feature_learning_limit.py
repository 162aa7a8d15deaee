"""Compute the limit of infinitely wide linear networks that learn features, by an ODE and by mean-field theory.

    python3 make.py python examples/feature_learning_limit.py [--out FILE.png]

If outputs at width n are divided by gamma0 sqrt(n) and the rate is multiplied by gamma0^2 n, features move in the limit
n -> infinity (`analytic.limits.linear_problem`).  An ODE gives the limit for two layers, and mean-field theory gives
the limit for deeper networks.  On five digits, the distance of networks from this limit falls as n^(-1/2).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from minintk.diagnostics import power_law

WIDTHS, STEPS = (64, 128, 256, 512, 1024), 40
TIMES = np.linspace(0, 4, STEPS + 1)
Host = np.ndarray[Any, Any]


def spec(hidden: int, n: int) -> mn.Sequential:
    """Build a linear network with `hidden` hidden layers of width n."""
    return mn.Sequential(*[mn.Dense(n) for _ in range(hidden)], mn.Dense(1))


def limit(hidden: int, x: Host, y: Host, gamma0: float) -> tuple[mn.Array, Host]:
    """Return f and the mean of the tangent kernel's diagonal in the limit, at all TIMES.

    Two-layer networks follow gradient flow, and deeper networks follow gradient descent.
    """
    if hidden == 1:
        flow = an.two_layer_limit(spec(1, 1), x, y, gamma0=gamma0)
        return flow.predict(TIMES), np.array([np.trace(flow.ntk(t)) / len(x) for t in TIMES])
    descent = an.deep_linear_limit(spec(hidden, 1), x, y, gamma0=gamma0, lr=TIMES[1], steps=STEPS)
    return descent.predict(), np.array([np.trace(descent.ntk(k)) / len(x) for k in range(STEPS + 1)])


def networks(hidden: int, n: int, x: Host, y: Host, gamma0: float, seeds: int) -> tuple[Host, Host]:
    """Train networks of width n; return f and the means of the tangent kernels' diagonals, (STEPS + 1, seeds, ...)."""
    theta0 = (net := mn.Network(spec(hidden, n), x.shape[1:])).init(np.random.default_rng(n), ensemble=seeds)
    model, t = mn.Centred(net, theta0, 1 / (gamma0 * n**0.5)), TIMES[1:] * gamma0**2 * n
    if hidden == 1:
        moments: Any = mn.flow(model, theta0, x, y, loss=mn.mse, times=t, by=mn.Solver(rtol=1e-6, atol=1e-7))
    else:
        moments = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=t[0]), steps=STEPS)
    f, k = zip(*[(model(m.theta, x), np.diagonal(mn.ntk(net, m.theta, x), axis1=1, axis2=2).mean(1)) for m in moments])
    return np.array(f), np.array(k)


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, seeds: int = 24) -> dict[str, float]:
    """Return the exponents of the distances from the limit and from the NTK's outputs, with standard errors.

    seeds : the number of networks of the largest width. Smaller widths use more networks.
    """
    found, laws = {}, {}
    x, y = mn.datasets.digits().pca(5).on_sphere().subset(5, np.random.default_rng(0)).parity()
    for hidden in (1, 2):
        distance: dict[str, list[Host]] = {"limit": [], "NTK": []}
        for n in widths:
            f, _ = networks(hidden, n, x, y, 1.0, min(256, seeds * widths[-1] // n))
            for gamma0, kept in zip((1.0, 0.0), distance.values(), strict=True):
                kept.append(np.sqrt(((f - limit(hidden, x, y, gamma0)[0][:, None]) ** 2).mean(axis=(0, 2, 3))))
        for name, kept in distance.items():
            to, law = f"{hidden} hidden, {name}", power_law(widths, kept)
            laws[to], found[f"{to}: exponent"], found[f"{to}: error"] = (law, kept), law.exponent, law.error
    if out:
        draw(out, x, y, widths, laws)
    return found


def draw(out: str, x: Host, y: Host, widths: tuple[int, ...], laws: Any) -> None:
    """Plot losses, kernels, and the networks' distances from the limit and from the NTK's outputs."""
    import matplotlib.pyplot as plt

    from analytic.verify.figures import MARKERS

    plt.style.use("analytic.verify.look")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for colour, gamma0 in enumerate((0.1, 1.0, 2.0)):
        f, k = limit(2, x, y, gamma0)
        g, ks = networks(2, widths[-1], x, y, gamma0, 1)
        losses = ((f - y) ** 2).mean(axis=(1, 2)), ((g[:, 0] - y) ** 2).mean(axis=(1, 2))
        for axes, theory, one in ((left, *losses), (middle, k / k[0], ks[:, 0] / ks[0, 0])):
            axes.plot(TIMES, theory, f"C{colour}--")
            axes.plot(TIMES[::2], one[::2], f"C{colour}{MARKERS[colour]}", label=rf"$\gamma_0$ = {gamma0:g}")
    left.set(xlabel="t", ylabel="mean squared error", yscale="log", title=f"3 layers: limit, and width {widths[-1]}")
    middle.set(xlabel="t", title=r"tangent kernel, tr $\Theta_t$ / tr $\Theta_0$")
    middle.legend()
    for colour, (name, (law, kept)) in enumerate(laws.items()):
        label = f"{name}: {law.exponent:.2f} ± {law.error:.2f}"
        right.loglog(widths, [np.exp(np.log(v).mean()) for v in kept], f"C{colour}{MARKERS[colour]}", label=label)
        right.loglog(widths, law(widths), f"C{colour}--", linewidth=1)
    right.set(xlabel="width n", ylabel="distance, all times", title=r"$\gamma_0$ = 1: distance falls as $n^b$")
    right.legend(fontsize=8)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="feature_learning_limit.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:32} {value:.4g}")
