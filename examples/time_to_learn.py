"""Measure the times t1 and t2 at which the loss halves and vanishes (Geiger et al. 2020, figure 3 (b, c)).

    python3 make.py python examples/time_to_learn.py [--out DIR] [--data DIR] [--scale small|evening|paper]

According to the theory, in the feature regime (s = sqrt(h) alpha << 1 at width h), pre-activations move at the rate
1/(sqrt(h) alpha).  The dynamics are therefore linear for t << t1 ~ alpha sqrt(h), and nonlinear afterwards.  In the
lazy regime, alpha^2 times the loss as a function of time depends on neither alpha nor h.

The power law t1 ~ s has a correction.  With L hidden layers, after t ~ s the weights grow by a factor lambda with d
lambda/dt ~ lambda^L / s.  lambda would diverge at a time s tau, tau ~ 1: lambda ~ (tau - t/s)^(-1/(L-1)).  The output s
lambda^(L+1) reaches order one a little earlier, at t1 = s (tau - O(s^((L-1)/(L+1)))).  The slope of log t1 against log
s is therefore below 1.  If s is ten times smaller, 1 - slope falls by a factor of 10^(1/3) = 2.15 for L = 2 and
10^(2/3) = 4.6 for L = 5.  We fit the exponent of s for each seed and decade, and the exponent of h at fixed s.  The
weights grow early, while the outputs barely move, so the flow initially takes steps of .2 % of t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, placed, plus
from geiger import FEATURE, by_decade, drawn, exponent, flowing, guide, network, start, task
from verdicts import EXPONENT, LOSS, near, sure

import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import t1, t2

SCALES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
DEPTHS = (2, 5)
SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (24, 48, 96), "scales": SCALES, "seeds": 5, "n_train": 60},
    "evening": {"widths": (50, 100, 200), "scales": SCALES, "seeds": 8, "n_train": 500},
    "paper": {"widths": (100, 200, 400, 800), "scales": (1e-5, *SCALES, 1e4), "seeds": 10, "n_train": 5000},
}
TIMES = np.concatenate([np.geomspace(1e-3, 0.1, 40), np.geomspace(0.1, 40.0, 400)[1:], np.geomspace(40, 1e8, 400)[1:]])
"""Times divided by min(s, 1). Neighbouring times are 1.5 % apart when the loss halves, and 3.8 % apart when it
vanishes."""
SHOWN = slice(0, None, 10)


def learned(
    data: str, n_train: int, end: bool, depth: int, width: int, s: float, seed: tuple[int, ...]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return t1 for each seed and, if `end`, also t2 and alpha^2 times the loss at every tenth of TIMES."""
    x, y = placed(*task(data, n_train, 100)[0])
    net, unit = network(width, depth), min(s, 1.0)
    theta0 = start(net, seed)
    by = mn.Steps(high=0.03, early=0.002)
    losses, alpha = [], s / width**0.5
    for moment in flowing(net, theta0, s, x, y, times=unit * TIMES, by=by):
        losses.append(to_host(moment.loss).astype(float) * alpha**2)
        if moment.ended or (not end and np.all(losses[-1] < 0.5)):
            break
    else:
        raise FloatingPointError(f"{net!r} is too narrow for {n_train} examples")
    t = unit * np.concatenate([[0.0], TIMES])[: len(losses)]
    first, last = t1(t, np.array(losses)), t2(t, np.array(losses))
    curve = np.zeros((len(TIMES) + 1, len(seed)))
    curve[: len(losses)] = losses
    found = [{"t1": float(a)} for a in first]
    return (
        [f | {"t2": float(last[e]), "loss": curve[1:][SHOWN, e].tolist()} for e, f in enumerate(found)]
        if end
        else found
    )


def main(s: Setting, widths: tuple[int, ...], scales: tuple[float, ...], seeds: int, n_train: int) -> Found:
    """Return the exponents of t1 and t2 in s and of t1 in h, and plot the loss against time."""
    middle, at = widths[len(widths) // 2], np.array(scales)
    grid: dict[str, Any] = {"depth": DEPTHS, "width": widths, "s": scales, "seed": range(seeds)}
    fixed: dict[str, Any] = {"data": s.data, "n_train": n_train}
    half = s.sweep(learned, grid, together="seed", end=False, **fixed)["t1"]  # (depth, width, s, seed)
    runs = s.sweep(learned, grid | {"width": [middle]}, together="seed", end=True, **fixed)
    zero, loss = runs["t2"][:, 0], runs["loss"][:, 0]
    feature, lazy = at <= FEATURE, at >= 100
    found: Found = {"widths": widths, "scales": scales, "t1 by decade": {}, "t1 in h": {}, "t2 in s": {}, "ratio": {}}
    rows = []
    for d, L in enumerate(DEPTHS):
        size, m = f"{n_train} of {s.data}, h = {', '.join(map(str, widths))}", widths.index(middle)
        slopes = found["t1 by decade"][f"L = {L}"] = by_decade(at[feature], half[d, m, feature])
        lacks = ", ".join(f"{1 - v[0]:.3f}" for v in slopes)
        rows.append(Row(
            f"t1 ~ s^b in each decade from s = {scales[0]:g} to {FEATURE:g}, L = {L}: b", "1",
            ", ".join(plus(v, 3) for v in slopes), "seeds", f"{n_train} of {s.data}, h = {middle}", seeds,
            near(slopes, 1, EXPONENT),
            f"s is not small: 1 - b, {lacks}, grows with s, as s^({L - 1}/{L + 1}) by our derivation",
        ))  # fmt: skip
        in_h = found["t1 in h"][f"L = {L}"] = [exponent(widths, half[d, :, i]) for i in np.flatnonzero(feature)]
        ratio = half[d][:, :2].mean(-1) / at[:2]
        spread = found["ratio"][f"L = {L}"] = float(ratio.max() / ratio.min() - 1)
        rows.append(Row(
            f"t1 ~ h^b at fixed s = {scales[0]:g} to {FEATURE:g}, L = {L}: b", "0",
            f"{', '.join(plus(v, 3) for v in in_h)}; t1/s over a decade and all widths within {100 * spread:.0f} %",
            "seeds", size, seeds, near(in_h, 0, EXPONENT),
        ))  # fmt: skip
        late = found["t2 in s"][f"L = {L}"] = exponent(scales, zero[d], feature)
        rows.append(Row(f"t2 ~ s^b, s to {FEATURE:g}, L = {L}: b", "-", plus(late), "seeds", size, seeds))
        times = exponent(scales, half[d, m], lazy)
        curves = loss[d, lazy].mean(1)
        apart = found[f"lazy, L = {L}"] = float(np.abs(curves - curves[-1]).max())
        rows.append(Row(
            f"lazy, s = {at[lazy][0]:g} to {at[-1]:g}, L = {L}: t1 ~ s^b: b; largest difference of alpha^2 loss",
            "0; 0", f"{plus(times, 3)}; {apart:.3f}", "seeds", size, seeds,
            near([times], 0, EXPONENT) & sure(apart < LOSS, "losses within 0.05"),
        ))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
        for d, L in enumerate(DEPTHS):
            time, rescaled, axes = panels[d]
            for i, scale in enumerate(scales):
                t, mean = min(scale, 1.0) * TIMES[SHOWN], loss[d, i].mean(0)
                colour = plt.get_cmap("viridis")(i / len(scales))
                time.semilogx(t[mean > 0], mean[mean > 0], color=colour, lw=1.2, label=f"s = {scale:g}")
                rescaled.semilogx(t[mean > 0] / scale, mean[mean > 0], color=colour, lw=1.2)
            for j, h in enumerate(widths):
                drawn(axes, scales, half[d, j], f"t1, h = {h}", f"C{j}")
            drawn(axes, scales, zero[d], f"t2, h = {middle}", "C4", "s:")
            guide(axes, at[at <= 1], (scales[0], half[d, 0, 0].mean()), 1, "slope 1")
            time.set(xlabel="time (lr x steps)", ylabel="$\\alpha^2$ loss", title=f"L = {L}, h = {middle}")
            rescaled.set(xlabel="t / (sqrt(h) alpha)", ylabel="$\\alpha^2$ loss", title=f"L = {L}: collapse for s << 1")
            axes.set(xlabel="s = sqrt(h) alpha", ylabel="time (lr x steps)", title=f"L = {L}")
            time.legend(fontsize=7), axes.legend(fontsize=7)

    found |= {"t1": [[[interval(v) for v in w] for w in depth] for depth in half],
              "t2": [[interval(v) for v in depth] for depth in zero]}  # fmt: skip
    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "time_to_learn")
