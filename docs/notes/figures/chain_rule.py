"""Draw the figures of chapter 1: finite-difference errors, the cost of a gradient, and a convolution as a matrix."""

from __future__ import annotations

from functools import partial
from time import process_time

import numpy as np
from common import COLOURS, Host, line, panels, save

import minintk as mn

EPSILON = float(np.finfo(np.float64).eps)


def network(n: int, N: int = 32) -> tuple[mn.Network, Host, Host, Host]:
    """Return a tanh network of width n, its parameters, N digits and their labels."""
    x, y = mn.datasets.digits().subset(N, np.random.default_rng(0)).one_hot()
    net = mn.Network(mn.Sequential(mn.Dense(n, w_std=1.5), mn.Tanh(), mn.Dense(n), mn.Tanh(), mn.Dense(10)), (64,))
    return net, net.init(np.random.default_rng(1)), x.reshape(N, 64), y


def gradient(net: mn.Network, theta: Host, x: Host, y: Host) -> Host:
    """Compute the gradient of the cross-entropy by one backward pass."""
    f, J = net.linearize(theta, x)
    return np.asarray(J.vjp(mn.softmax_cross_entropy.cotangent(f, y)))


def differences() -> None:
    """Draw the errors of one-sided and central differences, and the terms of their bounds, against the step h."""
    net, theta, x, y = network(64)
    v = np.random.default_rng(2).standard_normal(net.size)
    v /= np.linalg.norm(v)

    def L(s: float) -> float:
        return float(mn.softmax_cross_entropy(net(theta + s * v, x), y))

    def slope(s: float) -> float:
        return float(gradient(net, theta + s * v, x, y) @ v)

    steps, exact, r = 10.0 ** np.arange(-11, 0.6, 0.5), slope(0.0), 0.05
    second, third = (slope(r) - slope(-r)) / (2 * r), (slope(r) - 2 * exact + slope(-r)) / r**2
    sided = np.array([abs((L(h) - L(0.0)) / h - exact) for h in steps])
    central = np.array([abs((L(h) - L(-h)) / (2 * h) - exact) for h in steps])
    figure, (axes,) = panels(1, 4.6)
    axes.loglog(steps, sided, "s", ms=4, color=COLOURS[1], label="one-sided")
    axes.loglog(steps, central, "o", ms=4, color=COLOURS[0], label="central")
    line(axes, steps, abs(second) / 2 * steps, r"$h\,|g''|/2$", COLOURS[1])
    line(axes, steps, abs(third) / 6 * steps**2, r"$h^2\,|g'''|/6$", COLOURS[0])
    line(axes, steps, EPSILON * L(0.0) / steps, r"rounding, $\varepsilon\,|g|/h$")
    axes.set(xlabel="step $h$ (dimensionless)", ylabel="absolute error of the slope", ylim=(1e-14, 1))
    axes.legend(ncols=2, loc="upper center")
    save(figure, "differences")
    best = (3 * EPSILON * L(0.0) / abs(third)) ** (1 / 3)
    print(f"central differences: smallest error {central.min():.1e} at h = {steps[central.argmin()]:.0e}", end="; ")
    print(f"Theorem 1: h = {best:.0e}, error {0.5 * (9 * (EPSILON * L(0.0)) ** 2 * abs(third)) ** (1 / 3):.1e}")


def cost() -> None:
    """Draw the CPU time of a gradient, divided by that of a forward pass, against the number of parameters."""
    sizes, ratios = [], []
    for n in (32, 64, 128, 256, 512):
        net, theta, x, y = network(n, 512)
        best = []
        for run in (partial(net, theta, x), partial(gradient, net, theta, x, y)):
            times = []
            for _ in range(9):
                began = process_time()
                for _ in range(max(1, 2**17 // net.size)):
                    run()
                times.append(process_time() - began)
            best.append(min(times))
        sizes.append(net.size)
        ratios.append(best[1] / best[0])
    P = np.array(sizes)
    figure, (axes,) = panels(1, 4.6)
    axes.loglog(P, ratios, "o", ms=4, color=COLOURS[0], label="backward mode, measured time")
    line(axes, P, np.full(len(P), 3.0), "backward mode, 3 by Theorem 3", COLOURS[0])
    line(axes, P, P, "forward mode, $P$ tangents", COLOURS[2])
    line(axes, P, 2.0 * P, "central differences, $2P$", COLOURS[1])
    axes.set(xlabel="number of parameters $P$", ylabel="cost in forward passes", ylim=(1, 1e8))
    axes.legend(loc="upper left")
    save(figure, "cost")
    print("time of a gradient over that of a forward pass:", ", ".join(f"{r:.1f}" for r in ratios), f"P = {P.tolist()}")


def convolution() -> None:
    """Draw the matrix of a 3 x 3 convolution on a 6 x 6 image, with one colour for each of the nine weights."""
    net = mn.Network(mn.Sequential(mn.Conv2d(1, 3), mn.Flatten()), (6, 6, 1), mn.Standard())
    theta = np.arange(1.0, 10.0)
    matrix = np.asarray(net(theta, np.eye(36).reshape(36, 6, 6, 1))).T
    figure, (axes,) = panels(1, 4.2, 3.5)
    shown = axes.imshow(np.where(matrix == 0, np.nan, matrix), cmap="tab10", vmin=0.5, vmax=10.5)
    figure.colorbar(
        shown, ax=axes, ticks=range(1, 10), label="which of the nine weights", boundaries=np.arange(0.5, 10)
    )
    axes.set(xlabel="input pixel, row by row", ylabel="output pixel, row by row")
    axes.grid(visible=False)
    save(figure, "convolution")
    print(f"convolution as a matrix: {np.count_nonzero(matrix)} of {matrix.size} entries are not zero, 9 are different")


def main() -> None:
    """Draw the chapter's figures."""
    differences()
    cost()
    convolution()
