"""Measure how far kernel and weights move in both regimes (Geiger et al. 2020, figures 3 (a), 6 and 9).

    python3 make.py python examples/kernel_movement_phase.py [--out DIR] [--data DIR] [--scale small|evening|paper]

Both movements are measured at the end of training and plotted against s = sqrt(h) alpha, where h is the width.  The
kernel's movement is also plotted against alpha.  The paper claims that the curves of all widths coincide as functions
of s.  In the lazy regime the relative change of the kernel and sqrt(h) |theta - theta_0| / |theta_0| should both fall
as s^-1.  ReLU networks should have an intermediate regime with slope -1/2, in which the network moves from one linear
piece to the next.  The script `kernel_movement_exponents.py` measures the exponents of the feature regime.

One claim of the paper is false as printed.  It says that in the lazy regime the change of the kernel depends only on s.
The first-order part of this change is odd in the outgoing weights.  Averaged over many neurons it is of order
1/(sqrt(h) s) = 1/(h alpha), so at a fixed, large s the change should fall as h^(-1/2) once h is large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, placed, plus
from geiger import FEATURE, LAZY, SOFTPLUS, by_decade, drawn, exponent, guide, network, start, task, trained
from verdicts import EXPONENT, MUCH, near, one_of, sure

import minintk as mn
from minintk.arrays import array_namespace, to_host
from minintk.diagnostics import kernel_movement

ACTIVATIONS = {"softplus": SOFTPLUS, "relu": mn.ReLU()}
DECADES = tuple(10.0 ** np.arange(-2, 5))
SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (16, 32, 64), "scales": DECADES, "depth": 5, "seeds": 4, "n_train": 40},
    "evening": {"widths": (30, 60, 120), "scales": DECADES, "depth": 5, "seeds": 5, "n_train": 200},
    "paper": {"widths": (100, 200, 400, 800), "scales": tuple(10.0 ** np.arange(-4, 5.1, 0.5)), "depth": 5,
              "seeds": 10, "n_train": 5000},
}  # fmt: skip


def moved(
    data: str, n_train: int, depth: int, phi: str, width: int, s: float, seed: tuple[int, ...]
) -> list[dict[str, float]]:  # fmt: skip
    """Train to zero loss; return the relative change of the test kernel, and sqrt(h) times that of the weights."""
    (x, y), (x_test, _) = task(data, n_train, 100, "float64")
    arrays = placed(x, y, x_test[:100])
    net = network(width, depth, ACTIVATIONS[phi])
    theta0 = start(net, seed, np.float64)
    _, theta = trained(net, theta0, s, *arrays[:2])
    norm = array_namespace(theta).linalg.vector_norm
    weights = to_host(norm(theta - theta0, axis=-1) / norm(theta0, axis=-1)) * width**0.5
    kernel = to_host(kernel_movement(net, theta0, theta, arrays[2]))
    return [{"kernel": float(k), "weights": float(w)} for k, w in zip(kernel, weights)]


def main(
    s: Setting, widths: tuple[int, ...], scales: tuple[float, ...], depth: int, seeds: int, n_train: int
) -> Found:  # fmt: skip
    """Return the exponents in s and in h of both movements, and the distances between the curves of all widths."""
    grid = {"phi": tuple(ACTIVATIONS), "width": widths, "s": scales, "seed": range(seeds)}
    runs = s.sweep(moved, grid, together="seed", data=s.data, n_train=n_train, depth=depth)
    at, middle = np.array(scales), len(widths) // 2
    feature, lazy = at <= FEATURE, at >= LAZY
    size = f"{n_train} of {s.data}, L = {depth}"
    found: Found = {"widths": widths, "scales": scales, "lazy": {}, "in h": {}, "apart": {}, "decades": {}}
    rows = []
    for i, phi in enumerate(ACTIVATIONS):
        one, all_ = f"{size}, h = {widths[middle]}", f"{size}, h = {', '.join(map(str, widths))}"
        for name in ("kernel", "weights"):
            own, key = runs[name][i], f"{name}, {phi}"  # (width, s, seed)
            slope = found["lazy"][key] = exponent(at, own[middle], lazy)
            found["decades"][key] = by_decade(at, own[middle])
            # the exponent of h at fixed s: 0 if the curves coincide
            left = found["in h"][key] = [exponent(widths, own[:, k]) for k in range(len(scales))]
            logs = np.log(own[:, feature]).mean(-1)
            apart = found["apart"][key] = float(np.exp(np.ptp(logs, axis=0).max()) - 1)
            what = "kernel's change" if name == "kernel" else "sqrt(h) weights' change"
            agrees = near([slope], -1, EXPONENT)
            why = "the third regime reaches beyond s = 1e4" if phi == "relu" else "open"
            rows.append(Row(f"{what} ~ s^-a, lazy regime, s >= {LAZY:g}, {phi}: a", "1", plus((-slope[0], slope[1])),
                            "seeds", one, seeds, agrees, why))  # fmt: skip
            early, late = (np.flatnonzero(part)[k] for part, k in ((feature, 0), (lazy, -1)))
            agrees = near([left[early], left[late]], 0, EXPONENT) & sure(apart < MUCH, "curves within 50 %")
            rows.append(Row(
                f"{what} ~ h^c at s = {at[early]:g} and {at[late]:g}, {phi}: c", "0, 0 (one curve)",
                f"{plus(left[early])}, {plus(left[late])}; curves within {100 * apart:.0f} % where s <= {FEATURE:g}",
                "seeds", all_, seeds, agrees,
                "open" if name == "weights" else
                "the first-order change of the kernel averages out over neurons: -1/2 derived here",
            ))  # fmt: skip
    between = found["decades"]["kernel, relu"]
    half = near([v for v, low in zip(between, scales) if 10 <= low < 1e4], -0.5, EXPONENT)
    rows.append(Row(
        f"relu: slopes of the kernel's change, decade by decade from s = {scales[0]:g}", "-1/2 in a third regime",
        ", ".join(plus(v) for v in between), "seeds", size, seeds,
        one_of(half), "open",
    ))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(2, 3, figsize=(12, 7.5), layout="constrained")
        for i, phi in enumerate(ACTIVATIONS):
            for k, h in enumerate(widths):
                drawn(panels[i, 0], at / h**0.5, runs["kernel"][i, k], f"h = {h}", f"C{k}")
                drawn(panels[i, 1], at, runs["kernel"][i, k], f"h = {h}", f"C{k}")
                drawn(panels[i, 2], at, runs["weights"][i, k], f"h = {h}", f"C{k}")
            power = -2 / (1 + 1 / depth)
            for axes, name, slope in ((panels[i, 1], "kernel", power), (panels[i, 2], "weights", -1 / (depth + 1))):
                value = runs[name][i, middle].mean(-1)
                guide(axes, at[feature], (at[feature][-1], value[feature][-1]), slope, f"slope {slope:.2f}, -1")
                guide(axes, at[lazy], (at[lazy][0], value[lazy][0]), -1, "")
            if phi == "relu":
                kernel = runs["kernel"][i, middle].mean(-1)
                guide(panels[i, 1], at[lazy], (at[lazy][0], kernel[lazy][0]), -0.5, "slope -1/2")
            for axes, x, y in zip(
                panels[i],
                ("alpha", "s = sqrt(h) alpha", "s = sqrt(h) alpha"),
                (*["|Theta - Theta_0| / |Theta_0|"] * 2, "sqrt(h) |theta - theta_0| / |theta_0|"),
            ):
                axes.set(xlabel=x, ylabel=y, title=phi)
                axes.legend(fontsize=7)

    found["mean change"] = {p: [[interval(v) for v in w] for w in runs["kernel"][i]] for i, p in enumerate(ACTIVATIONS)}
    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "kernel_movement_phase")
