"""Scale residual networks in depth: |dh| stays of order one only if muP's scales include the number L of branches.

    python3 make.py python examples/learning_in_depth.py [--out FILE.png]

Residual networks of width 128, with two layers in each branch, are trained on 32 digits for three steps.  |dh|, the
root mean square change of the last residual sum, is fitted by a power law L^b.  `mn.SpectralMuP` multiplies the initial
weights of each branch's last layer by 1/sqrt(L) and their rate by 1/L. With Adam, it also multiplies the other rates in
a branch by 1/sqrt(L).  With these scales, b = 0.  Without these scales, or with only the initial scale, the changes of
L branches have the same sign and add up, so |dh| grows (Yang, Yu, Zhu, Hayou 2023; Bordelon et al. 2023).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

import minintk as mn
from minintk.lab.experiments.named import spec_of_width
from minintk.spec.parametrization import Role, Row

WIDTH, DEPTHS = 128, (4, 8, 16, 32)
X, Y = mn.datasets.digits(dtype=np.float32).subset(32, np.random.default_rng(0)).one_hot()


class WidthAlone(mn.SpectralMuP):
    """A variant of `mn.SpectralMuP` whose scales ignore the number of branches."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return super().row(replace(role, branches=1), fan_in, fan_out, sigma)


class StartAlone(WidthAlone):
    """A variant whose only scale for depth is 1/sqrt(L) for the initial weights of each branch's last layer."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        end, _ = role.depth
        found = super().row(role, fan_in, fan_out, sigma)
        return replace(found, std=found.std * end)


TABLES = {"muP": mn.SpectralMuP(), "1/sqrt(L) at the start alone": StartAlone(), "muP of the width alone": WidthAlone()}
OPTIMIZERS: dict[str, Any] = {"SGD": mn.SGD(lr=0.05), "Adam": mn.Adam(lr=0.005)}


def resnet(L: int) -> mn.Layer:
    """Build a network with L residual branches."""
    return spec_of_width("resnet", 10, L)(WIDTH)


def last_sum(optimizer: Any, table: mn.Parametrization, depths: tuple[int, ...], seeds: int) -> Any:
    """Return |dh| of the last residual sum at each depth, and the fitted power of the depth."""
    told: dict[str, Any] = {"parametrization": table, "widths": depths, "seeds": seeds, "loss": mn.mse}
    check = mn.coordinate_check(resnet, X, Y, optimizer=optimizer, **told)
    *_, found, _, _ = (row for row in check.rows if row.quantity == "dh")  # then: last activation, last layer
    return found


def main(out: str | None = None, depths: tuple[int, ...] = DEPTHS, seeds: int = 32) -> dict[str, float]:
    """Return {"optimiser, table": exponent}, with the half-widths of 95 % intervals under keys that end in "±"."""
    results, rows = dict[str, float](), {}
    for (rule, optimizer), (name, table) in product(OPTIMIZERS.items(), TABLES.items()):
        found = rows[rule, name] = last_sum(optimizer, table, depths, seeds)
        results[f"{rule}, {name}"] = found.fit.exponent
        results[f"{rule}, {name} ±"] = float(np.ptp(found.fit.interval)) / 2
    if out:
        draw(out, depths, rows)
    return results


def draw(out: str, depths: tuple[int, ...], rows: dict[Any, Any]) -> None:
    """Plot |dh| of the last residual sum against depth, with a panel for each optimiser."""
    import matplotlib.pyplot as plt

    plt.style.use("analytic.verify.look")
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axes, rule in zip(panels, OPTIMIZERS, strict=True):
        for i, name in enumerate(TABLES):
            row = rows[rule, name]
            mean = np.array([v.mean() for v in row.values])
            spread = np.array([v.std() / len(v) ** 0.5 for v in row.values])
            axes.errorbar(depths, mean, 1.96 * spread, fmt=f"C{i}{'os^'[i]}", capsize=2, label=f"{name}: L^({row})")
            axes.plot(depths, row.fit(depths), f"C{i}", linewidth=1)
        level = np.mean(rows[rule, "muP"].values[0])
        axes.axhline(level, color="#222222", linestyle="--", linewidth=1, label="theory for muP: constant")
        axes.set(xscale="log", yscale="log", xlabel="residual branches L", title=rule)
        axes.set_xticks(depths, list(map(str, depths)), minor=False)
        axes.legend(fontsize=7, loc="upper left")
    panels[0].set_ylabel("rms of dh, last sum, after 3 steps")
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="learning_in_depth.png", help="the figure (%(default)s)")
    for name, value in (found := main(parser.parse_args().out)).items():
        if not name.endswith("±"):
            print(f"{name:36} L^{value:+.2f} ± {found[name + ' ±']:.2f}")
