"""Check the spectral conditions of muP in a linear network after one step: Pleiss, lecture 11, section 2.

    python3 make.py python examples/spectral_norms.py [--out FILE.png]

The network f(x) = W3 W2 W1 x, with W1 : D x P, W2 : D x D and W3 : 1 x D, learns one example.  With `mn.SpectralMuP`
the standard deviations sigma are 1/sqrt(P), 1/sqrt(D), 1/D, and the learning rates are D/P, 1, 1/D.  The norms of
weights, features and their first updates scale with D as in the lecture's table.  One entry of the table is a bound
that is not attained at initialisation: |h3| falls as D^-1/2, because W3 and h2 are independent.  The first update of f
is of order one.  The spectral norm of a Gaussian matrix is close to the edge of the Marchenko-Pastur law.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import gaussian_norms, power_law, spectral_norms, trace

P, WIDTHS = 16, (64, 128, 256, 512, 1024, 2048)
THEORY = {
    "|W1|": 0.5, "|W2|": 0.0, "|W3|": -0.5, "|dW1|": 0.5, "|dW2|": 0.0, "|dW3|": -0.5,
    "|h1|": 0.5, "|h2|": 0.5, "|h3|": -0.5, "|dh1|": 0.5, "|dh2|": 0.5, "|dh3|": 0.0,
}  # fmt: skip


def norms(D: int, networks: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, float]]:
    """Return {name: values (networks,)} for the norms in the table, and {tensor: mean |W| / edge}."""
    rng = np.random.default_rng([seed, D])
    net = mn.Network(mn.Sequential(mn.Dense(D), mn.Dense(D), mn.Dense(1)), (P,), mn.SpectralMuP())
    theta = net.init(rng, ensemble=networks, dtype=np.float32)
    x, y = np.random.default_rng(seed).standard_normal((1, P)).astype(np.float32), np.ones((1, 1), np.float32)
    *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=1)
    start, moved = spectral_norms(net, theta), spectral_norms(net, last.theta - theta)
    before, after = trace(net, theta, x), trace(net, last.theta, x)
    found = {}
    for i in range(3):
        found[f"|W{i + 1}|"], found[f"|dW{i + 1}|"] = start[f"{i}.W"], moved[f"{i}.W"]
        h = before[str(i)].h
        found[f"|h{i + 1}|"] = np.linalg.norm(h[:, 0], axis=-1)
        found[f"|dh{i + 1}|"] = np.linalg.norm((after[str(i)].h - h)[:, 0], axis=-1)
    return found, {name: float(start[name].mean()) / edge for name, edge in gaussian_norms(net).items()}


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, networks: int = 20) -> dict[str, float]:
    """Return {norm: exponent in D}, 95 % half-widths, and the largest relative deviation from the edge at D >= 512."""
    measured = [norms(D, networks) for D in widths]
    fits, results = {}, dict[str, float]()
    # |W1| grows as sqrt(D) + sqrt(P), which is close to sqrt(D) only for D >> P
    correction = np.sqrt(widths) / (np.sqrt(widths) + np.sqrt(P))
    for name in THEORY:
        values = [found[name] for found, _ in measured]
        if name == "|W1|":
            values = [v * c for v, c in zip(values, correction, strict=True)]
        fits[name] = power_law(widths, values)
        low, high = fits[name].interval
        results |= {name: fits[name].exponent, f"{name} ±": (high - low) / 2}
    off = [
        abs(ratio - 1) for D, (_, ratios) in zip(widths, measured, strict=True) for ratio in ratios.values() if D > 511
    ]
    results["largest distance from the edge, D >= 512"] = max(off)
    if out:
        import matplotlib.pyplot as plt

        from analytic.verify.figures import MARKERS

        plt.style.use("analytic.verify.look")
        figure, panels = plt.subplots(1, 4, figsize=(15, 3.9), layout="constrained")
        for panel, kind in zip(panels, ("|W", "|dW", "|h", "|dh"), strict=True):
            for i in range(3):
                name = f"{kind}{i + 1}|"
                means = np.array([np.exp(np.log(found[name]).mean()) for found, _ in measured])
                panel.loglog(widths, means, f"C{i}{MARKERS[i]}", label=f"{name}: D^{fits[name].exponent:+.2f}")
                guide = np.array(widths, float) ** THEORY[name]
                panel.loglog(widths, guide * np.exp(np.mean(np.log(means / guide))), f"C{i}--", lw=1)
            panel.set(xlabel="width D", title=f"{kind}| (dashed: theory)")
            panel.legend(fontsize=8)
        figure.savefig(out, dpi=120)
        plt.close(figure)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="spectral_norms.png", help="the figure (%(default)s)")
    numbers = main(parser.parse_args().out)
    for name, power in THEORY.items():
        print(f"{name:6} theory D^{power:+.1f}   measured {numbers[name]:+.3f} ± {numbers[name + ' ±']:.3f}")
    print(f"|W| is within {100 * numbers['largest distance from the edge, D >= 512']:.1f} % of the edge for D >= 512")
