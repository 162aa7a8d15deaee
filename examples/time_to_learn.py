"""When learning happens: the loss halves at t1 and is zero at t2  (Geiger et al. 2020, figures 3 (b, c), 7 and 8).

    python3 make.py python examples/time_to_learn.py [--out DIR] [--data DIR]

The theory: in the feature regime, s = sqrt(h) alpha << 1, pre-activations move at the rate 1/(sqrt(h) alpha), so the
dynamics are linear for t << t1 ~ alpha sqrt(h), then nonlinear; in the lazy regime t1 and t2 depend on neither.

How accurate is this?  After t ~ s the weights grow by lambda, d lambda/dt ~ lambda^L / s, which diverges at a finite
time s tau, lambda ~ (tau - t/s)^(-1/(L-1)); the output s lambda^(L+1) is of order one a little earlier, t1 = s (tau -
O(s^((L-1)/(L+1)))).  With L = 2 the correction is s^(1/3): the slope of log t1 in log s is below 1, and 1 - slope falls
by 10^(1/3) = 2.15 per decade.  Exponents are fitted for each seed, per decade in s, and in h at fixed s.

Laptop: 200 of the 8 x 8 digits, L = 2.  --scale paper: 5,000 of MNIST, widths up to 1,000, on a GPU.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, interval, placed
from geiger import FEATURE, HIGH, digits, drawn, exponent, guide, in_widths, network, plus, trained

import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import activations, t1, t2

SCALES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)


def halving(
    s: float, width: int, depth: int, seeds: int, arrays: tuple[mn.Array, ...], scale: str, *, end: bool = False
) -> tuple[Any, Any]:
    """t1, and if `end`, t2, (E,) each."""
    net = network(width, depth)
    theta0 = placed(scale, net.init(np.random.default_rng(width), ensemble=seeds, dtype=np.float32))[0]
    run = trained(net, theta0, s / sqrt(width), *arrays, high=HIGH[scale], half=not end)
    return t1(run.t, run.loss), t2(run.t, run.loss)


def output(
    s: float, width: int, depth: int, seeds: int, arrays: tuple[mn.Array, ...], scale: str, times: Any
) -> np.ndarray[Any, Any]:
    """The root mean square of alpha (f_t - f_0) on the training set at the given times, (T, E)."""
    net = network(width, depth)
    theta0 = placed(scale, net.init(np.random.default_rng(width), ensemble=seeds, dtype=np.float32))[0]
    alpha = s / sqrt(width)
    model, (x, y) = mn.Centred(net, theta0, alpha), arrays
    moments = mn.flow(model, theta0, x, y, loss=mn.Hinge(alpha), times=times, mu=1000.0, by=mn.Steps(high=HIGH[scale]))
    return np.array([np.sqrt((to_host(m.f).astype(float) ** 2).mean((-2, -1))) for m in moments if m.t])


def speeds(widths: tuple[int, ...], depth: int, seeds: int, arrays: tuple[mn.Array, ...]) -> np.ndarray[Any, Any]:
    """|dz/dt| of each layer's pre-activations at t = 0 and alpha = 1, (layers, widths, E): one small step, figure 8."""
    x, y = (to_host(a).astype(np.float64) for a in arrays)
    found = []
    for h in widths:
        net = network(h, depth)
        theta0 = net.init(np.random.default_rng(h), ensemble=seeds)
        f, J = net.linearize(theta0, x)
        step = 1e-5
        z, z0 = (activations(net, t, x) for t in (theta0 - step * J.vjp(mn.Hinge().cotangent(0 * f, y)), theta0))
        layers = [str(2 * i) for i in range(depth)]
        found.append([np.sqrt(((z[i] - z0[i]) ** 2).mean((-2, -1))) / step for i in layers])
    return np.array(found).swapaxes(0, 1)


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (32, 64, 128, 256),
    scales: tuple[float, ...] = SCALES, fine: tuple[int, ...] = (64, 128, 256, 512), depth: int = 2, seeds: int = 5,
    n_train: int = 200,
) -> Found:  # fmt: skip
    """Exponents of t1 and t2 in s and of t1 in h, of the output in t before t1, of the pre-activations' speed in h."""
    if scale == "paper":
        widths, seeds = (30, 100, 300, 1000), 10
    (x, y), _ = digits(data, n_train, 200, scale)
    arrays = placed(scale, x, y)
    at, feature = np.array(scales), np.array(scales) <= FEATURE
    first = {h: np.array([halving(s, h, depth, seeds, arrays, scale)[0] for s in scales]) for h in widths}
    middle = widths[min(1, len(widths) - 1)]
    last = np.array([halving(s, middle, depth, seeds, arrays, scale, end=True)[1] for s in scales])
    decades = {
        h: [exponent(scales[i : i + 2], t[i : i + 2]) for i in range(sum(feature) - 1)] for h, t in first.items()
    }
    in_h = {s: exponent(widths, [first[h][i] for h in widths]) for i, s in enumerate(scales) if s <= FEATURE}
    ratio = np.array([first[h][:2].mean(1) / at[:2] for h in widths])
    end = exponent(scales, last, feature)
    early = np.geomspace(0.01, 0.1, 5)
    f = output(scales[0], middle, depth, seeds, arrays, scale, early * float(first[middle][0].mean()))
    linear = exponent(list(early), f)
    z = speeds(fine, 5, 3 * seeds, arrays)
    in_layers = [exponent(fine, layer) for layer in z]
    spread = 100 * (ratio.max() / ratio.min() - 1)
    table = [
        (f"t1 ~ s^b, s = sqrt(h) alpha from {scales[0]:g} to {scales[1]:g}: b", "1",
         ", ".join(f"{plus(v[0], 3)} (h = {h})" for h, v in decades.items())),
        (f"the same, decade by decade up to {FEATURE:g}, h = {middle}", "1; here derived: 1 - O(s^(1/3))",
         ", ".join(plus(v, 3) for v in decades[middle])),
        ("t1 / (sqrt(h) alpha) over the first decade and all widths", "constant", f"within {spread:.0f} %"),
        ("t1 ~ h^b at fixed s = sqrt(h) alpha: b", "0",
         ", ".join(f"{plus(v, 3)} (s = {s:g})" for s, v in in_h.items())),
        (f"t2 ~ s^b, s from {scales[0]:g} to {FEATURE:g}: b", "-", f"{plus(end)} (h = {middle})"),
        ("|f_t - f_0| ~ t^b for t from t1/100 to t1/10: b", "1", plus(linear, 3)),
        (f"|dz/dt| at t = 0 ~ h^b, h = {fine[0]} to {fine[-1]}, layers 1 to 5: b", "-1/2",
         ", ".join(map(plus, in_layers))),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        for i, h in enumerate(widths):
            drawn(panels[0], scales, first[h], f"t1, h = {h}", f"C{i}")
        drawn(panels[0], scales, last, f"t2, h = {middle}", "0.5", "s-")
        guide(panels[0], at[at <= 1], (scales[0], first[middle][0].mean()), 1, "slope 1")
        drawn(panels[1], early, f, f"s = {scales[0]:g}, h = {middle}", "C0")
        guide(panels[1], early, (early[0], f[0].mean()), 1, "slope 1")
        for i, layer in enumerate(z):
            drawn(panels[2], fine, layer, f"layer {i + 1}: {plus(in_layers[i])}", f"C{i}")
        guide(panels[2], fine, (fine[0], z[0][0].mean()), -0.5, "slope -1/2")
        panels[0].set(xlabel="s = sqrt(h) alpha", ylabel="time (lr x steps)")
        panels[1].set(xlabel="t / t1", ylabel="alpha |f_t - f_0|, training digits")
        panels[2].set(ylabel="|dz/dt| at t = 0, alpha = 1")
        in_widths(panels[2], fine)
        for axes in panels:
            axes.legend(fontsize=8)

    return finish(out, "time_to_learn", {
        "widths": widths, "scales": scales, "t1": {h: [interval(v) for v in t] for h, t in first.items()},
        "t2": [interval(v) for v in last], "t1 by decade": decades, "t1 in h": in_h, "t2 in s": end,
        "ratio": float(spread), "linear": linear, "speeds": in_layers, "table": table,
    }, draw)  # fmt: skip


if __name__ == "__main__":
    command_line(main, __doc__, "time_to_learn")
