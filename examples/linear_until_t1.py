"""Test that the dynamics are linear until t1 and outputs reach order sqrt(h) (Geiger et al. 2020, figures 7 and 8).

    python3 make.py python examples/linear_until_t1.py [--out DIR] [--data DIR] [--scale small|evening|paper]

At the time t1 the loss has halved.  The claims concern networks of width h in the feature regime, s = sqrt(h) alpha <<
1.  With two hidden layers, |f_t - f_0| should grow linearly in t up to about t1, for all s and h.  At a given fraction
of t1, |f_t - f_0| should be of order sqrt(h), not 1, because the sum over the last layer's neurons no longer averages
out.  The paper's explanation is that the pre-activations z of every layer move at the rate 1/(sqrt(h) alpha).  In
networks with five hidden layers, |dz/dt| at t = 0 and alpha = 1 should fall as h^(-1/2).

The paper measures |f| on the test set, whereas we measure it on the training set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, placed, plus
from geiger import by_decade, drawn, exponent, flowing, guide, in_widths, network, start, task
from verdicts import EXPONENT, near, sure

import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import t1

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (32, 64, 128, 256), "scales": (1e-4, 1e-3, 1e-2, 1e-1), "seeds": 6, "n_train": 60},
    "evening": {"widths": (64, 128, 256, 512), "scales": (1e-4, 1e-3, 1e-2, 1e-1), "seeds": 10, "n_train": 1000},
    "paper": {"widths": (100, 200, 400, 800), "scales": (1e-4, 1e-3, 1e-2, 1e-1), "seeds": 10, "n_train": 5000},
}
PARTS = np.geomspace(0.01, 1.0, 13)
"""The values of t / t1 at which outputs are compared."""
EARLY = slice(0, 7)
"""The slice of PARTS up to t / t1 = 1/10, over which the exponent in t is fitted."""
TIMES = np.concatenate([np.geomspace(1e-3, 0.1, 40), np.geomspace(0.1, 20.0, 350)[1:]])


def growth(data: str, n_train: int, width: int, s: float, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Train networks with two hidden layers; return the rms of f_t - f_0 on the training set for t / t1 in PARTS."""
    x, y = placed(*task(data, n_train, 100)[0])
    net = network(width, 2)
    sizes, losses = [], []
    for moment in flowing(net, start(net, seed), s, x, y, times=s * TIMES, by=mn.Steps(high=0.03, early=0.002)):
        sizes.append(np.sqrt((to_host(moment.f).astype(float) ** 2).mean((-2, -1))) * width**0.5 / s)
        losses.append(to_host(moment.loss).astype(float))
        if np.all(losses[-1] < losses[0] / 2):
            break
    t = s * np.concatenate([[0.0], TIMES])[: len(losses)]
    half, f = t1(t, np.array(losses)), np.array(sizes)
    return [{"size": np.interp(PARTS * half[e], t, f[:, e]).tolist()} for e in range(len(seed))]


def speed(data: str, n_train: int, depth: int, width: int, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return |dz/dt| of each layer's pre-activations at t = 0 and alpha = 1, from a small step of gradient descent."""
    x, y = (a.astype(np.float64) for a in task(data, n_train, 100)[0])
    net, step, found = network(width, depth), 1e-5, []
    for e in seed:  # one network at a time, because the outputs of all layers need much memory
        theta0 = net.init(np.random.default_rng(e))
        f, J = net.linearize(theta0, x)
        z, z0 = (net.layer_outputs(t, x) for t in (theta0 - step * J.vjp(mn.Hinge().cotangent(0 * f, y)), theta0))
        found.append({"speed": [float(np.sqrt(((z[2 * i] - z0[2 * i]) ** 2).mean()) / step) for i in range(depth)]})
    return found


def main(s: Setting, widths: tuple[int, ...], scales: tuple[float, ...], seeds: int, n_train: int) -> Found:
    """Return the exponents of |f_t - f_0| in t and in h, and of each layer's pre-activation speed |dz/dt| in h."""
    middle, small = widths[len(widths) // 2], scales[min(1, len(scales) - 1)]
    fixed: dict[str, Any] = {"data": s.data, "n_train": n_train}
    seed = range(seeds)
    by_s = s.sweep(growth, {"s": scales, "seed": seed}, together="seed", width=middle, **fixed)["size"]
    by_h = s.sweep(growth, {"width": widths, "seed": seed}, together="seed", s=small, **fixed)["size"]
    z = s.sweep(speed, {"width": widths, "seed": range(3 * seeds)}, together="seed", depth=5, **fixed)["speed"]
    in_t = [exponent(PARTS[EARLY], runs[:, EARLY].T) for runs in by_s]
    in_h = {f"{PARTS[i]:.2g} t1": exponent(widths, by_h[:, :, i]) for i in (0, 6, 12)}
    layers = [exponent(widths, layer) for layer in np.moveaxis(z, -1, 0)]
    logs = np.log(by_h).mean(1) - 0.5 * np.log(widths)[:, None]
    apart = np.exp(np.ptp(logs, axis=0)) - 1  # (largest - smallest) / smallest over the widths, at each t / t1
    found: Found = {
        "widths": widths, "scales": scales, "in t": in_t, "in h": in_h, "layers": layers,
        "size": [[interval(v) for v in np.moveaxis(h, -1, 0)] for h in by_h], "apart": apart.tolist(),
        "decades": [by_decade(PARTS[::6], runs[:, ::6].T) for runs in by_s],
    }  # fmt: skip
    data = f"{n_train} of {s.data}"
    rows = [
        Row(f"|f_t - f_0| ~ t^b up to t1/10, L = 2, s = {', '.join(f'{v:g}' for v in scales)}: b", "1",
            ", ".join(plus(v, 3) for v in in_t), "seeds", f"{data}, h = {middle}", seeds,
            near(in_t, 1, EXPONENT), "open"),
        Row(f"|f_t - f_0| ~ h^b at s = {small:g}, L = 2, at t = {', '.join(in_h)}: b", "1/2",
            ", ".join(plus(v, 3) for v in in_h.values()), "seeds", f"{data}, h = {widths[0]} to {widths[-1]}", seeds,
            near(in_h.values(), 0.5, EXPONENT), "open"),
        Row("|f_t - f_0| / sqrt(h) at the same t/t1 up to t1/5, over all h", "the same",
            f"within {100 * apart[:9].max():.0f} %; weights inflate between t1/3 and t1, and outputs with them", "",
            f"{data}, h = {widths[0]} to {widths[-1]}", seeds, sure(apart[:9].max() < 0.25, "within 25 %"), "open"),
        Row("|dz/dt| at t = 0 ~ h^b, L = 5, layers 1 to 5: b", "-1/2", ", ".join(plus(v) for v in layers), "seeds",
            f"{data}, h = {widths[0]} to {widths[-1]}", 3 * seeds, near(layers, -0.5, EXPONENT), "open"),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
        for i, scale in enumerate(scales):
            drawn(panels[0], PARTS, by_s[i].T, f"s = {scale:g}", f"C{i}")
        for i, h in enumerate(widths):
            drawn(panels[1], PARTS, by_h[i].T / h**0.5, f"h = {h}", f"C{i}")
        for panel, first in zip(panels, (by_s[0, :, 0].mean(), by_h[0, :, 0].mean() / widths[0] ** 0.5)):
            guide(panel, PARTS, (PARTS[0], first), 1, "slope 1")
        for i, layer in enumerate(np.moveaxis(z, -1, 0)):
            drawn(panels[2], widths, layer, f"layer {i + 1}: {layers[i][0]:.2f}", f"C{i}")
        guide(panels[2], widths, (widths[0], z[0, :, 0].mean()), -0.5, "slope -1/2")
        panels[0].set(xlabel="t / t1", ylabel="|f_t - f_0|", title=f"h = {middle}, L = 2")
        panels[1].set(xlabel="t / t1", ylabel="|f_t - f_0| / sqrt(h)", title=f"s = {small:g}, L = 2")
        panels[2].set(ylabel="|dz/dt| at t = 0, alpha = 1", title="L = 5")
        in_widths(panels[2], widths)
        panels[2].set_ylim(top=3 * panels[2].get_ylim()[1])  # leaves room for the legend
        for panel in panels:
            panel.legend(fontsize=8)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "linear_until_t1")
