"""Examine the regime, learning rate, movement and width of three networks that learn digits (`mn.examine`).

    python3 make.py python examples/examine_digits.py [--out FILE.png]

The networks have two hidden tanh layers.  In the NTK parametrization, wide networks are lazy.  In the mean-field
parametrization, features move at every width.  The third network is an NTK network whose initial weights in the last
layer are thirty times too large.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn


def networks(width: int) -> dict[str, mn.Network]:
    """Build the three networks, and return {name: network}."""

    def spec(last: float) -> mn.Sequential:
        hidden = mn.Dense(width, b_std=0.1), mn.Tanh()
        return mn.Sequential(*hidden, *hidden, mn.Dense(10, w_std=last))

    return {
        "NTK": mn.Network(spec(1.0), (64,)),
        "mean field": mn.Network(spec(1.0), (64,), mn.MeanField()),
        "last layer x 30": mn.Network(spec(30.0), (64,)),
    }


def main(out: str | None = None, width: int = 256, n: int = 100, widths: bool = True) -> dict[str, Any]:
    """Print the reports, plot the linearisation gaps, and return {name: {"regime", "findings", "gap", "kernel"}}."""
    x, y = mn.datasets.digits().subset(n, np.random.default_rng(0)).one_hot()
    reports = {
        name: mn.examine(net, net.init(np.random.default_rng(1)), x, y, widths=widths)
        for name, net in networks(width).items()
    }
    for name, report in reports.items():
        print(f"{name}\n{report}\n")
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        for name, report in reports.items():
            if report.run is not None:
                axes.semilogy(report.run.steps[1:], 100 * report.run.gap[1:], label=f"{name}: {report.regime}")
        axes.axhline(5, color="0.5", ls=":")
        axes.axhline(25, color="0.5", ls=":")
        axes.set(xlabel="step", ylabel="gap, %", title="network - its linearisation, over what was learned")
        axes.legend()
        figure.savefig(out, dpi=120)
    return {
        name: {"regime": report.regime, "findings": [finding.kind for finding in report.findings]}
        | {key: report.statements[key].value for key in ("gap", "kernel")}
        for name, report in reports.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="examine_digits.png", help="the figure (%(default)s)")
    main(parser.parse_args().out)
