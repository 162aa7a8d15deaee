"""Draw the figures of chapter 3: how far kernel, features and weights move, with and without cancellation."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import COLOURS, Host, bars, line, panels, save

import minintk as mn
from minintk.diagnostics import power_law

WIDTHS, SEEDS, TIMES = (64, 128, 256, 512, 1024), 12, np.geomspace(0.5, 40, 10)


def digits(N: int = 16) -> tuple[Host, Host]:
    """Return (x, y): the first d = 8 principal components of N digits, scaled to |x|^2 = d, and the parities +-1."""
    return mn.datasets.digits().pca(8).on_sphere().subset(N, np.random.default_rng(0)).parity()


def trained(n: int, phi: Any, *, positive: bool = False) -> dict[str, Host]:
    """Return how far the kernel, features and weights move in gradient flow, as {name: array (SEEDS, len(TIMES))}.

    n : width.   positive : if True, the initial output weights are made positive, and F = f - f_0 is trained.
    """
    x, y = digits()
    net = mn.Network(mn.Sequential(mn.Dense(n), phi, mn.Dense(1)), (x.shape[1],))
    theta0 = net.init(np.random.default_rng(n), ensemble=SEEDS)
    if positive:
        output = net.layout.unpack(theta0)["2.W"]
        output[...] = np.abs(output)
    K0, h0 = np.asarray(mn.ntk(net, theta0, x)), np.asarray(net.layer_outputs(theta0, x)[0])
    found: dict[str, list[Host]] = {"kernel": [], "features": [], "weights": []}
    axes = (-2, -1)
    model = mn.Centred(net, theta0, 1.0) if positive else net
    for moment in list(mn.flow(model, theta0, x, y, loss=mn.mse, times=TIMES))[1:]:
        theta = moment.theta
        assert theta is not None
        moved = np.asarray(mn.ntk(net, theta, x)) - K0
        found["kernel"].append(np.linalg.norm(moved, axis=axes) / np.linalg.norm(K0, axis=axes))
        h = np.asarray(net.layer_outputs(theta, x)[0])
        found["features"].append(np.sqrt(np.mean((h - h0) ** 2, axis=axes)))
        found["weights"].append(np.linalg.norm(theta - theta0, axis=-1) / np.linalg.norm(theta0, axis=-1))
    return {name: np.array(values).T for name, values in found.items()}


def main() -> None:
    """Draw the chapter's figures."""
    runs = {name: {n: trained(n, phi, positive=positive) for n in WIDTHS} for name, phi, positive in (
        ("tanh", mn.Tanh(), False), ("ReLU", mn.ReLU(), False), ("softplus, $a_j = |a_j|$", mn.Softplus(), True)
    )}  # fmt: skip
    figure, (one, two) = panels(2)
    for at, (what, slope) in enumerate((("features", -0.5), ("weights", -0.5), ("kernel", -1.0))):
        values = np.array([runs["tanh"][n][what][:, -1] for n in WIDTHS])
        fit = power_law(WIDTHS, list(values))
        low, high = fit.interval
        bars(one, WIDTHS, values, at, f"{what}: $n^{{{fit.exponent:.2f}}}$")
        line(one, WIDTHS, values[-1].mean() * (np.array(WIDTHS) / WIDTHS[-1]) ** slope, None, COLOURS[at])
        print(f"tanh, {what}: exponent {fit.exponent:.2f} ({low:.2f} to {high:.2f})")
    for at, (name, run) in enumerate(runs.items()):
        values = np.array([run[n]["kernel"][:, -1] for n in WIDTHS])
        fit = power_law(WIDTHS, list(values))
        low, high = fit.interval
        bars(two, WIDTHS, values, at, f"{name}: $n^{{{fit.exponent:.2f}}}$")
        wide = power_law(WIDTHS[2:], list(values[2:]))
        print(f"{name}, kernel: exponent {fit.exponent:.2f} ({low:.2f} to {high:.2f})", end="; from width 256 on ")
        print(f"{wide.exponent:.2f} ({wide.interval[0]:.2f} to {wide.interval[1]:.2f})")
        if at != 1:
            slope = (-1.0, None, -0.5)[at]
            line(two, WIDTHS, values[-1].mean() * (np.array(WIDTHS) / WIDTHS[-1]) ** slope, None, COLOURS[at])
    for axes in (one, two):
        axes.set(xlabel="width $n$", xscale="log", yscale="log")
    one.set_ylabel("movement by $t = 40$")
    two.set_ylabel(r"$|\Theta_t - \Theta_0|\,/\,|\Theta_0|$ at $t = 40$")
    one.legend(title="tanh; dashed: $-1/2$, $-1/2$, $-1$", title_fontsize=7.5, loc="lower left")
    two.legend(title="dashed: $-1$ and $-1/2$", title_fontsize=7.5, loc="lower left")
    save(figure, "what-moves")

    figure, (axes,) = panels(1, 4.4)
    for at, n in enumerate(WIDTHS[::2]):
        bars(axes, TIMES, runs["tanh"][n]["kernel"].T, at, f"width {n}, {SEEDS} networks, mean ± s.e.")
    axes.set(xlabel="time $t$ = learning rate × steps", xscale="log", yscale="log")
    axes.set_ylabel(r"$|\Theta_t - \Theta_0|\,/\,|\Theta_0|$")
    axes.legend(loc="lower right")
    save(figure, "kernel-in-time")
