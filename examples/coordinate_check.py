"""Run the coordinate check, which finds the parametrizations in which all layers learn equally at every width.

    python3 make.py python examples/coordinate_check.py [--out FILE.png]

Networks with three hidden tanh layers learn digits for three steps of gradient descent.  In spectral muP and in the
mean-field parametrization, features change by an amount of order one at every width.  As the width grows, the change of
features vanishes in the NTK parametrization, and the change of outputs diverges in the standard parametrization.  The
check also finds a planted error: the initial weights of the second layer are multiplied by (n / 64)^(1/4).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn

WIDTHS = (64, 128, 256, 512, 1024)
PARAMETRIZATIONS = {
    "spectral muP": mn.SpectralMuP(),
    "mean field": mn.MeanField(),
    "NTK": mn.NTK(),
    "standard": mn.Standard(),
}


def spec(n: int, plant: float = 0.0) -> mn.Sequential:
    """Build a network with three hidden layers. The second layer's w_std is (n / 64)^`plant`."""
    stds = (1.0, (n / 64) ** plant, 1.0)
    hidden = [layer for w_std in stds for layer in (mn.Dense(n, w_std=w_std), mn.Tanh())]
    return mn.Sequential(*hidden, mn.Dense(10, w_std=10**-0.5))


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, seeds: int = 16) -> dict[str, Any]:
    """Run the checks, and return {name: {layer: exponent of |dh|, "verdict": verdict, "blame": {tensor: cause}}}.

    |dh| is the root mean square change of a layer's output. Plot |dh| against the width if `out` is given.
    """
    x, y = mn.datasets.digits(dtype=np.float32).subset(64, np.random.default_rng(0)).one_hot()
    checks = {}
    for name, parametrization in PARAMETRIZATIONS.items():
        lr = 0.01 if name == "standard" else 0.1  # training diverges at larger rates
        settings: dict[str, Any] = {"loss": mn.mse, "widths": widths, "seeds": seeds, "optimizer": mn.SGD(lr=lr)}
        checks[name] = mn.coordinate_check(spec, x, y, parametrization=parametrization, **settings)
    settings["optimizer"] = mn.SGD(lr=0.1)
    checks["muP, layer 2 planted"] = mn.coordinate_check(lambda n: spec(n, plant=0.25), x, y, **settings)
    found: dict[str, Any] = {}
    for name, check in checks.items():
        rows = {row.name: row.fit for row in check.rows if row.quantity == "dh"}
        slopes = {layer: fit.exponent for layer, fit in rows.items() if fit is not None}
        found[name] = slopes | {"verdict": check.verdict, "blame": check.blame}
    if out:
        import matplotlib.pyplot as plt

        from analytic.verify.figures import MARKERS

        plt.style.use("analytic.verify.look")
        figure, panels = plt.subplots(1, len(checks), figsize=(3.3 * len(checks), 3.8), layout="constrained")
        for panel, (name, check) in zip(panels, checks.items(), strict=True):
            layers = [row for row in check.rows if row.quantity == "dh" and row.fit is not None]
            for row, marker in zip(layers, MARKERS):
                means = [float(np.exp(np.log(v).mean())) for v in row.values]
                panel.loglog(widths, means, f"{marker}-", ms=4, label=f"layer {row.name}: {row}")
            low, high = panel.get_ylim()
            panel.set_ylim(min(low, high / 30) / 2, 8 * high)  # so that noise looks small and the legend fits
            panel.set(xlabel="width n", title=f"{name}: {check.verdict}")
            panel.legend(fontsize=7, loc="upper left")
        panels[0].set_ylabel("root mean square of dh after 3 steps")
        figure.savefig(out, dpi=120)
        plt.close(figure)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="coordinate_check.png", help="the figure (%(default)s)")
    for name, about in main(parser.parse_args().out).items():
        slopes = ", ".join(f"{layer}: {b:+.2f}" for layer, b in about.items() if isinstance(b, float))
        print(f"{name:20} |dh| ~ n^b, b = {slopes}   {about['verdict']} {about['blame'] or ''}")
