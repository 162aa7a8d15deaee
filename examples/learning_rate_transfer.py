"""Transfer learning rates: in muP, the best learning rate of a narrow network is also the best for a wide network.

    python3 make.py python examples/learning_rate_transfer.py [--out FILE.png]

Multilayer perceptrons and convolutional networks learn digits by gradient descent and by Adam at a range of rates.  In
spectral muP the best rate varies by less than a factor of two from the narrowest to the widest network.  In the
standard parametrization the best rate falls by up to a factor of two whenever the width doubles.  The script reproduces
figure 1 of Yang et al. 2022 with small networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

import minintk as mn
from minintk.lab.experiments import named

WIDTHS = {"mlp": (64, 128, 256, 512), "cnn": (8, 16, 32)}
RATES = {"SGD": (mn.SGD, 2.0 ** np.arange(-3, 4.1, 0.5)), "Adam": (mn.Adam, 2.0 ** np.arange(-6, 1.1, 0.5))}
STANDARD = {("SGD", "mlp"): 1 / 16, ("Adam", "mlp"): 1 / 128, ("SGD", "cnn"): 1 / 4, ("Adam", "cnn"): 1 / 16}
"""Factors that shift the rates into the range in which the standard parametrization learns."""


def main(
    out: str | None = None, widths: Mapping[str, tuple[int, ...]] = WIDTHS, seeds: int = 3, steps: int = 30, N: int = 96
) -> dict[str, float]:
    """Return the shift and the spread of the best rate for each parametrization, optimiser and network.

    The shift is log2 of the factor by which doubling the width changes this rate. The spread is the rate's max / min.
    """
    digits = mn.datasets.digits(dtype=np.float32).images().subset(N, np.random.default_rng(0))
    x, y = digits.one_hot()
    found: dict[str, mn.Transfer] = {}
    for kind in widths:
        for name, (optimizer, rates) in RATES.items():
            for parametrization in (mn.SpectralMuP(), mn.Standard()):
                at = rates[:: 1 if kind == "mlp" else 2]
                at = at * (STANDARD[name, kind] if isinstance(parametrization, mn.Standard) else 1)
                label = f"{kind}, {name}, {'muP' if isinstance(parametrization, mn.SpectralMuP) else 'standard'}"
                found[label] = mn.learning_rate_transfer(
                    named.spec_of_width(kind, 10, 2), x, y, rates=list(at), optimizer=optimizer, loss=mn.mse,
                    parametrization=parametrization, widths=widths[kind], seeds=seeds, steps=steps,
                )  # fmt: skip
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, panels = plt.subplots(2, -(-len(found) // 2), figsize=(16, 7.5), layout="constrained", squeeze=False)
        for panel, (label, transfer) in zip(panels.T.ravel(), found.items()):
            transfer.plot(panel)
            panel.set_title(label)
        figure.savefig(out, dpi=110)
        plt.close(figure)
    results: dict[str, Any] = {}
    for label, transfer in found.items():
        low, high = transfer.shift.interval
        results |= {f"{label}: shift": transfer.shift.value, f"{label}: shift ±": (high - low) / 2}
        results |= {f"{label}: spread": transfer.spread, f"{label}: at edge": float(len(transfer.at_edge))}
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="learning_rate_transfer.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:30} {value:+.3f}")
