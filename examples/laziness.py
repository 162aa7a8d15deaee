"""Measure kappa, the relative change of the Jacobian on the way to a solution, in the NTK and mean-field scalings.

    python3 make.py python examples/laziness.py [--out FILE.png]

The script computes two measures of laziness at several widths n, for networks with two and three layers.  The
mean-field scaling divides outputs by another sqrt(n) and leaves the lazy regime (Chizat, Oyallon and Bach 2019).

The first measure is kappa = |f - y| |D^2 f| / |D f|^2 at initialisation, computed in Taylor mode
(`minintk.diagnostics.kappa`).  This measure falls as n^(-1/2) in the NTK scaling and is constant in the mean-field
scaling.  |D^2 f| is an operator norm.  With two layers D^2 f has a block for every neuron, so its norm is the largest
of n independent values.  This maximum grows slowly with n, which raises the exponents by about .1 at these widths.

The second measure is the kernel's movement until the loss is a tenth of its initial value.  kappa estimates the size of
its first-order part, whose terms have random signs and average out over many neurons.  The movement therefore falls as
1/n in the NTK scaling and is constant in the mean-field scaling.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import PowerLaw, kappa, kernel_movement, power_law

WIDTHS, MEASURES = (32, 64, 128, 256, 512), ("kappa", "kernel movement")
Host = np.ndarray[Any, Any]


def moved(model: mn.Model, theta0: Host, x: Host, y: Host, alpha: float) -> Host:
    """Return each network's |Theta_T - Theta_0| / |Theta_0| when its loss first falls below a tenth of loss(0)."""
    found = np.full(len(theta0), np.nan)
    before = None
    for moment in mn.flow(model, theta0, x, y, loss=mn.mse, times=np.geomspace(0.1, 300, 60) / alpha**2):
        before = moment.loss if before is None else before
        done = np.isnan(found) & (moment.loss < before / 10)
        if done.any():
            assert moment.theta is not None
            found[done] = kernel_movement(model, theta0, moment.theta, x)[done]
        if not np.isnan(found).any():
            return found
    raise RuntimeError("a network has not reached a tenth of its loss")


def main(
    out: str | None = None, widths: tuple[int, ...] = WIDTHS, seeds: int = 8, deep: tuple[int, ...] = (1, 2)
) -> dict[str, float]:
    """Return the exponents, with standard errors, with which kappa and the kernel's movement scale with the width."""
    rng, laws = np.random.default_rng(0), {}
    x, y = mn.datasets.digits().pca(8).on_sphere().subset(8, rng).parity()
    for hidden in deep:
        for scaling in ("NTK", "mean field"):
            values: dict[str, list[Host]] = {what: [] for what in MEASURES}
            for n in widths:
                layers = [layer for _ in range(hidden) for layer in (mn.Dense(n), mn.Tanh())]
                net = mn.Network(mn.Sequential(*layers, mn.Dense(1)), x.shape[1:])
                theta0 = net.init(rng, ensemble=seeds)
                alpha = 1.0 if scaling == "NTK" else n**-0.5
                models = [mn.Centred(net, theta, alpha) for theta in theta0]
                each = list(zip(models, theta0, strict=True))
                values["kappa"].append(np.array([kappa(m, t, x, y, starts=2).kappa for m, t in each]))
                values["kernel movement"].append(moved(mn.Centred(net, theta0, alpha), theta0, x, y, alpha))
            for what, kept in values.items():
                laws[f"{what}, {hidden + 1} layers, {scaling}"] = power_law(widths, kept), kept
    if out:
        draw(out, widths, laws)
    exponents = {f"{name}: exponent": law.exponent for name, (law, _) in laws.items()}
    return exponents | {f"{name}: error": law.error for name, (law, _) in laws.items()}


def draw(out: str, widths: tuple[int, ...], laws: dict[str, tuple[PowerLaw, list[Host]]]) -> None:
    """Plot kappa and movement against width with the fitted power laws."""
    import matplotlib.pyplot as plt

    from analytic.verify.figures import MARKERS

    plt.style.use("analytic.verify.look")
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for axes, what in zip(panels, MEASURES, strict=True):
        chosen = {name.removeprefix(f"{what}, "): law for name, law in laws.items() if name.startswith(what)}
        for colour, (name, (law, values)) in enumerate(chosen.items()):
            label = f"{name}: {law.exponent:.2f} ± {law.error:.2f}"
            axes.plot(widths, [np.exp(np.log(v).mean()) for v in values], f"C{colour}{MARKERS[colour]}", label=label)
            axes.loglog(widths, law(widths), f"C{colour}--", linewidth=1)
        axes.set(xlabel="width n", ylabel=what, ylim=(axes.get_ylim()[0] / 4, None))
        axes.legend(fontsize=8, loc="lower left")
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="laziness.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:48} {value:.4g}")
