"""Measure how far kernel and weights move in the feature regime (Geiger et al. 2020, figures 3 (a), 6 and table 1).

    python3 make.py python examples/kernel_movement_exponents.py [--out DIR] [--data DIR] [--scale small|evening|paper]

The feature regime is s = sqrt(h) alpha << 1 at width h.  In theory, the layers of a network with L hidden layers then
grow by a factor of s^(-1/(L+1)) until the outputs are of order one.  The kernel is of degree 2 L in the weights of all
layers and therefore grows by a factor of s^(-2/(1+1/L)).  Training ends later, when the last example has a margin of 1.
By then the other margins exceed 1, and the outputs are larger for smaller s.  We therefore measure the changes of
kernel and weights twice: when the rms of the outputs alpha (f - f_0) is 1, and when the hinge loss is zero, as in the
paper.  The theory applies at the first of these times.  Measured exponents approach the theory's slowly, because the
initial weights are not yet negligible.  We fit one exponent per seed at s <= 1e-5, a bound chosen beforehand.

The theory assumes that all layers grow equally.  The gains, which are the largest singular values of the layers'
W_l / sqrt(fan_in), confirm this assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from common import Found, Measured, Row, Setting, command_line, finish, placed, plus
from geiger import by_decade, drawn, exponent, guide, network, start, task, trained
from verdicts import EXPONENT, MUCH, near, sure

from minintk.arrays import array_namespace, to_host
from minintk.diagnostics import kernel_movement

SMALL = 10.0 ** -np.arange(1, 8)
ENDS = (0.1, 0.01, 1e-3, 1e-4)
SIZES: dict[str, dict[str, Any]] = {
    "small": {"scales": tuple(SMALL), "ends": ENDS[:3], "width": 48, "seeds": 8, "n_train": 100},
    "evening": {"scales": tuple(SMALL), "ends": ENDS, "width": 100, "seeds": 10, "n_train": 500},
    "paper": {"scales": tuple(SMALL), "ends": ENDS, "width": 300, "seeds": 10, "n_train": 5000},
}
PAPER = {2: ("1.25", "0.35"), 5: ("1.7", "0.23")}
DEPTHS = (2, 5)
FITTED = 1e-5
MARGIN = {"kernel": EXPONENT, "weights": 0.03}
"""The margins of the exponents.  The margin for the weights is about half the difference between the theory's 1/6 and
the paper's .23 (L = 5)."""


def moved(
    data: str, n_train: int, width: int, until: float | None, depth: int, s: float, seed: tuple[int, ...]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the relative changes of kernel and weights, the rms output, and the gain and |W_l - W_l(0)| of each layer.

    The entries for layers that a network lacks are zero.
    """
    (x, y), (x_test, _) = task(data, n_train, 100, "float64")
    arrays = placed(x, y, x_test[:100])
    net = network(width, depth)
    theta0 = start(net, seed, np.float64)
    model, theta = trained(net, theta0, s, *arrays[:2], until=until)
    norm, f = array_namespace(theta).linalg.vector_norm, to_host(model(theta, arrays[0]))
    weights = to_host(norm(theta - theta0, axis=-1) / norm(theta0, axis=-1))
    kernel = to_host(kernel_movement(net, theta0, theta, arrays[2]))
    before, after = ([to_host(w) for k, w in net.layout.unpack(t).items() if k.endswith("W")] for t in (theta0, theta))
    gains, layers = np.zeros((2, max(DEPTHS) + 1, len(seed)))
    for i, (v, w) in enumerate(zip(before, after)):
        gains[i] = np.linalg.norm(w, 2, axis=(-2, -1)) / w.shape[-2] ** 0.5
        layers[i] = np.linalg.norm(w - v, axis=(-2, -1))
    return [
        {"kernel": float(kernel[e]), "weights": float(weights[e]), "output": float(np.sqrt((f[e] ** 2).mean())),
         "gains": gains[:, e].tolist(), "layers": layers[:, e].tolist()}
        for e in range(len(seed))
    ]  # fmt: skip


def falling(slopes: Sequence[Measured], digits: int = 2) -> str:
    """Format the exponents b of power laws s^-b, given their log-log slopes -b."""
    return ", ".join(plus((-v[0], v[1]), digits) for v in slopes)


def main(
    s: Setting, scales: tuple[float, ...], ends: tuple[float, ...], width: int, seeds: int, n_train: int
) -> Found:  # fmt: skip
    """Return the exponents in s of kernel and weights (at fixed output and at zero loss) and of outputs and gains."""
    fixed: dict[str, Any] = {"data": s.data, "n_train": n_train, "width": width}
    axes = {"depth": DEPTHS, "seed": range(seeds)}
    runs = s.sweep(moved, {"s": scales, **axes}, together="seed", until=1.0, **fixed)
    late = s.sweep(moved, {"s": ends, **axes}, together="seed", until=None, **fixed)  # (s, depth, seed)
    at, fitted = np.array(scales), np.array(scales) <= FITTED
    if fitted.sum() < 2:
        fitted = at <= np.sort(at)[1]
    found: Found = {"scales": scales, "ends": ends, "exponents": {}, "decades": {}, "at zero loss": {}}
    size, rows = f"{n_train} of {s.data}, h = {width}", []
    for d, L in enumerate(DEPTHS):
        grown = found["at zero loss"][f"output, L = {L}"] = by_decade(ends, late["output"][:, d])
        for name, said, theory in zip(("kernel", "weights"), PAPER[L], (2 / (1 + 1 / L), 1 / (L + 1))):
            key, own = f"{name}, L = {L}", runs[name][:, d]
            fit = found["exponents"][key] = exponent(scales, own, fitted)
            steps = found["decades"][key] = by_decade(scales, own)
            end = found["at zero loss"][key] = by_decade(ends, late[name][:, d])
            rows.append(Row(
                f"{name}: change ~ s^-b where the rms output is 1, L = {L}: b", f"theory {theory:.3f}",
                f"{falling([fit], 3)}; by decade from s = {scales[0]:g}: {falling(steps)}", "seeds", size, seeds,
                near([fit], -theory, MARGIN[name]), "open",
            ))  # fmt: skip
            rows.append(Row(
                f"{name}: change ~ s^-b at zero loss, L = {L}, by decade from s = {ends[0]:g}: b", said,
                f"{falling(end)}; the outputs' b: {falling(grown)}", "seeds", size, seeds,
                near(end[-1:], -float(said), MARGIN[name]),


                f"outputs grow as s falls: where all have the same, b = {falling([fit], 3)}",
            ))  # fmt: skip
    layers = np.moveaxis(runs["gains"][:, -1], -1, 0)  # (layer, s, seed) for L = 5
    gains = [exponent(scales, layer, fitted) for layer in layers]
    change = runs["layers"][-1, -1].mean(0)
    spread = float(change.max() / change.min() - 1)
    found |= {"gains": gains, "layers": change.tolist(), "spread": spread}
    rows.append(Row(
        "gains of the six layers ~ s^-b, L = 5: b", "0.167, all alike (assumed)",
        f"{falling(gains)}; |W_l - W_l(0)| at s = {scales[-1]:g} within {100 * spread:.0f} %", "seeds", size, seeds,
        near(gains, -1 / 6, MARGIN["weights"]) & sure(spread < MUCH, "gains within 50 %"), "open",
    ))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 4, figsize=(15, 3.9), layout="constrained")
        for d, L in enumerate(DEPTHS):
            for panel, name, power in zip(panels, ("kernel", "weights"), (-2 / (1 + 1 / L), -1 / (L + 1))):
                values = runs[name][:, d]
                drawn(panel, scales, values, f"L = {L}, rms output 1", f"C{d}")
                drawn(panel, ends, late[name][:, d], f"L = {L}, zero loss", f"C{d}", ":")
                guide(panel, at, (scales[-1], float(np.exp(np.log(values[-1]).mean()))), power, f"theory, {power:.3f}")
            drawn(panels[2], ends, late["output"][:, d], f"L = {L}, zero loss", f"C{d}")
        panels[2].axhline(1, color="k", ls="--", lw=0.9, label="where the others are measured")
        for i, layer in enumerate(layers):
            drawn(panels[3], scales, layer, f"layer {i + 1}: {gains[i][0]:.2f}", f"C{i}")
        for panel, name in zip(panels, ("|Theta - Theta_0| / |Theta_0|", "|theta - theta_0| / |theta_0|",
                                        "rms output at the end", "gain of a layer, L = 5")):  # fmt: skip
            panel.set(xlabel="s = sqrt(h) alpha", ylabel=name)
            panel.legend(fontsize=7)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "kernel_movement_exponents")
