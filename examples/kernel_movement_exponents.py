"""How far kernel and weights move, against s = sqrt(h) alpha  (Geiger et al. 2020, figures 3 (a), 6, 9 and table 1).

    python3 make.py python examples/kernel_movement_exponents.py [--out DIR] [--data DIR]

The theory: at the end of feature learning, s << 1, the L + 1 layers have grown by s^(-1/(L+1)) each, and the kernel, of
degree 2 L in them, by s^(-2/(1+1/L)).  In the lazy regime the change of the kernel falls as 1/alpha.  With ReLU there
is a third regime in between, with slope -1/2, in which the network moves from one linear piece to the next.

One claim does not hold as printed: that the lazy change, too, depends on s alone.  The first-order change of the kernel
is odd in the outgoing weights, so that over many neurons it averages to 1/(sqrt(h) s) = 1/(h alpha): at a fixed, large
s it should fall as h^(-1/2) once h is large.

Exponents are fitted for each seed, over s <= .1 and s >= 100, chosen beforehand; local slopes show the drift.
Laptop: 200 of the 8 x 8 digits, h = 64.  --scale paper: 5,000 of MNIST, h = 300, on a GPU.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, interval, placed
from geiger import (
    FEATURE,
    HIGH,
    LAZY,
    SOFTPLUS,
    digits,
    drawn,
    exponent,
    guide,
    in_widths,
    network,
    on_all_cores,
    plus,
    trained,
)

import minintk as mn
from minintk.arrays import array_namespace, to_host
from minintk.diagnostics import kernel_movement

SCALES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e2, 1e3, 1e4)
CASES: dict[str, tuple[int, mn.spec.Layer]] = {
    "L = 2": (2, SOFTPLUS), "L = 5": (5, SOFTPLUS), "L = 5, ReLU": (5, mn.ReLU()),
}  # fmt: skip
FEWER = 0.6
"""ReLU's share of the seeds: its steps are shorter, and the paper took 3 networks instead of 10."""
PAPER = {"L = 2": ("1.25", "0.35"), "L = 5": ("1.7", "0.23"), "L = 5, ReLU": ("1.7", "-")}


def moved(
    s: float, width: int, depth: int, activation: mn.spec.Layer, seeds: int, arrays: tuple[mn.Array, ...], scale: str
) -> tuple[Any, Any]:
    """|Theta - Theta_0| / |Theta_0| on test digits and |theta - theta_0| / |theta_0| after training, (E,) each."""
    x, y, x_test = arrays
    net = network(width, depth, activation)
    theta0 = placed(scale, net.init(np.random.default_rng(width), ensemble=seeds, dtype=np.float32))[0]
    theta = trained(net, theta0, s / sqrt(width), x, y, high=HIGH[scale]).theta
    norm = array_namespace(theta).linalg.vector_norm
    weights = norm(theta - theta0, axis=-1) / norm(theta0, axis=-1)
    return to_host(kernel_movement(net, theta0, theta, x_test)).astype(float), to_host(weights).astype(float)


def local(scales: tuple[float, ...], values: Any) -> list[tuple[float, float]]:
    """The slopes between neighbouring scales."""
    return [exponent(scales[i : i + 2], values[i : i + 2]) for i in range(len(scales) - 1)]


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", scales: tuple[float, ...] = SCALES,
    cases: tuple[str, ...] = tuple(CASES), width: int = 64, widths: tuple[int, ...] = (16, 32, 64, 128),
    seeds: int = 5, n_train: int = 200,
) -> Found:  # fmt: skip
    """Exponents of kernel and weights in s for each case, and of the lazy kernel change in h; draws them."""
    if scale == "paper":
        width, widths, seeds = 300, (30, 100, 300, 1000), 10
    (x, y), (x_test, _) = digits(data, n_train, 200, scale)
    arrays = placed(scale, x, y, x_test[:200])
    at = np.array(scales)
    feature, lazy = at <= FEATURE, at >= LAZY
    top = float(at[lazy][at[lazy] >= 10 * LAZY].min(initial=scales[-1]))
    count = {name: max(2, round(FEWER * seeds)) if "ReLU" in name else seeds for name in cases}
    calls = [(moved, (s, width, *CASES[name], count[name], arrays, scale)) for name in cases for s in scales]
    runs = on_all_cores(calls + [(moved, (top, h, *CASES["L = 2"], seeds, arrays, scale)) for h in widths])
    kernel, weights = {}, {}
    for i, name in enumerate(cases):
        own = runs[i * len(scales) : (i + 1) * len(scales)]
        kernel[name], weights[name] = np.array([k for k, _ in own]), np.array([w for _, w in own])
    across = [k for k, _ in runs[len(calls) :]]
    found: Found = {
        "scales": scales,
        "kernel": {},
        "weights": {},
        "local": {n: local(scales, v) for n, v in kernel.items()},
    }
    table: list[tuple[str, str, str]] = []
    for name in cases:
        L = CASES[name][0]
        found["kernel"][name] = [exponent(scales, kernel[name], part) for part in (feature, lazy)]
        found["weights"][name] = [exponent(scales, weights[name], part) for part in (feature, lazy)]
        a, b = found["kernel"][name][0], found["weights"][name][0]
        steps = ", ".join(plus((-v, half)) for (v, half), s in zip(found["local"][name], scales) if s < FEATURE)
        table += [
            (f"kernel's change ~ s^-a, feature regime, {name}: a", f"{PAPER[name][0]}, theory {2 / (1 + 1 / L):.2f}",
             f"{plus((-a[0], a[1]), 3)}; decade by decade {steps}"),
            (f"weights' change ~ s^-b, feature regime, {name}: b", f"{PAPER[name][1]}, theory {1 / (L + 1):.2f}",
             plus((-b[0], b[1]), 3)),
            (f"kernel's change ~ s^-a, lazy regime, {name}: a", "1", plus((-found["kernel"][name][1][0],
             found["kernel"][name][1][1]), 3)),
        ]  # fmt: skip
    if "L = 5, ReLU" in cases:
        slopes = [plus(found["local"][n][i]) for n in ("L = 5, ReLU",) for i in range(len(scales) - 1)]
        table.append(("ReLU, between: slopes of the kernel's change, decade by decade from s = "
                      f"{scales[0]:g}", "-1/2 in a third regime", ", ".join(slopes)))  # fmt: skip
    found["in width"] = exponent(widths, across)
    table.append((f"kernel's change ~ h^c at s = {top:g}, L = 2: c", "0 (collapse); here derived: -1/2 at large h",
                  plus(found["in width"])))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
        for i, name in enumerate(cases):
            a, b = (f"{-found[key][name][0][0]:.2f}" for key in ("kernel", "weights"))
            drawn(panels[0], scales, kernel[name], f"{name}: slope -{a}", f"C{i}")
            drawn(panels[1], scales, weights[name], f"{name}: slope -{b}", f"C{i}")
            L = CASES[name][0]
            if i < 2:
                word = "theory: -2/(1+1/L)", "theory: -1/(L+1)"
                for panel, values, power, label in zip(
                    panels, (kernel[name], weights[name]), (-2 / (1 + 1 / L), -1 / (L + 1)), word
                ):
                    guide(panel, at[feature], (scales[0], values[0].mean()), power, "" if i else label)
        guide(panels[0], at[lazy], (scales[-1], kernel[cases[0]][-1].mean()), -1, "")
        drawn(panels[2], widths, across, f"slope {plus(found['in width'])}", "C0")
        guide(panels[2], widths, (widths[0], across[0].mean()), -0.5, "slope -1/2")
        panels[0].set(xlabel="s = sqrt(h) alpha", ylabel="|Theta - Theta_0| / |Theta_0|", title=f"kernel, h = {width}")
        panels[1].set(xlabel="s = sqrt(h) alpha", ylabel="|theta - theta_0| / |theta_0|", title=f"weights, h = {width}")
        panels[2].set(ylabel="|Theta - Theta_0| / |Theta_0|", title=f"lazy kernel, L = 2, s = {top:g}")
        in_widths(panels[2], widths)
        for axes in panels:
            axes.legend(fontsize=8)

    found |= {"table": table, "mean change": {n: [interval(v) for v in k] for n, k in kernel.items()}}
    return finish(out, "kernel_movement_exponents", found, draw)


if __name__ == "__main__":
    command_line(main, __doc__, "kernel_movement_exponents")
