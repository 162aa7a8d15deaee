"""Compare networks with their linearisations by width and number of examples: Lee et al. 2019, figure S5.

    python3 make.py python examples/lee_width_and_data.py [--out DIR] [--data DIR]

Networks with three hidden ReLU layers (sigma_w^2 = 2, sigma_b^2 = .1) learn a binary task.  The rms distance between
the outputs of the network and its linearisation on test images falls with the width.  Whether this distance grows with
the number N of examples depends on when training stops.  Since |theta - theta_0|^2 is about y' Theta^(-1) y, the
weights must move further to fit more examples equally well.  At a given loss, the distance therefore grows with N. At a
given time eta x steps, the distance hardly grows.

The distance is measured at two times.  At the first time, the loss of the infinitely wide network trained on the same N
examples is a tenth of its initial value.  The second time is the first time at the smallest N, and is used for all N.
"""

from __future__ import annotations

from typing import Any

import lee
import numpy as np
from common import Found, Row, Setting, command_line, finish, interval
from verdicts import above, below

import analytic as an
import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (64, 128, 256, 512), "numbers": (16, 64, 256), "seeds": 4},
    "evening": {"widths": (64, 128, 256, 512), "numbers": (32, 128, 512), "seeds": 4},
    "paper": {"widths": (64, 256, 1024, 4096), "numbers": (32, 128, 512, 2048, 4096), "seeds": 10},
}
B_STD, N_TEST, LEFT = 0.1**0.5, 200, 0.1
WHEN = ("at a tenth of the loss", "at one time")


def length(data: str, N: int, share: float) -> tuple[float, int]:
    """Return (lr, steps) for N examples.

    lr is `share` times the largest stable rate. After `steps` the loss of the infinitely wide network is a tenth of its
    initial value.
    """
    x, y, *_ = lee.problem(data, "binary", N, N_TEST)
    k = an.kernel(lee.spec("relu", 3, 1, b_std=B_STD)).ntk(x)
    lr = share * an.max_learning_rate(k)
    steps = np.unique(np.geomspace(1, 10**6, 400).astype(int))
    left = np.mean((an.gradient_descent(k, y, lr=lr).predict(steps) - y) ** 2, axis=(1, 2))
    return lr, int(steps[np.argmax(left <= LEFT)])


def work(data: str, N: int, first: int, share: float, width: int, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the distances of the network from its linearisation and of theta from theta_0, at both times.

    first : the smallest number of examples.
    """
    x, y, x_test, _ = lee.problem(data, "binary", N, N_TEST)
    lr, steps = length(data, N, share)
    rate, number = length(data, first, share)
    early = max(1, round(rate * number / lr))  # the step at which lr x steps is the same for all N
    net = mn.Network(lee.spec("relu", 3, width, b_std=B_STD), x.shape[1:])
    theta0, at = lee.start(net, seed), sorted({early, steps})
    says = np.stack([lee.linearised(net, theta, x, y, x_test, lr, at) for theta in theta0], axis=1)

    def read(snap: mn.Snapshot) -> Any:
        return lee.outputs(net, snap.theta, x_test), lee.distance(snap.theta, theta0)

    read_off = lee.at_steps(net, theta0, x, y, lr, at, read)
    found: dict[str, Any] = {}
    for when, step in zip(WHEN, (steps, early)):
        i = at.index(step)
        f, found[f"weights, {when}"] = read_off[i]
        found[when] = lee.rms(f - says[i], axis=(1, 2))
    return [{name: float(v[e]) for name, v in found.items()} for e in range(len(seed))]


def main(s: Setting, widths: tuple[int, ...], numbers: tuple[int, ...], seeds: int, share: float = 0.25) -> Found:
    """Return the exponents of the distances in width and number of examples at both times, and plot the distances."""
    runs = s.sweep(
        work, {"N": numbers, "width": widths, "seed": range(seeds)}, together="seed", data=s.data, first=numbers[0],
        share=share,
    )  # fmt: skip
    found: Found = {"widths": widths, "numbers": numbers, "steps": [length(s.data, N, share)[1] for N in numbers]}
    size, rows = f"N = {numbers[0]} to {numbers[-1]}, n = {widths[0]} to {widths[-1]}", []
    for when in WHEN:
        v = runs[when]  # (numbers, widths, seeds)
        found[when] = [[interval(cell) for cell in line] for line in v]
        in_n = found[f"{when}, in n"] = [lee.exponent(widths, line) for line in v]
        in_N = found[f"{when}, in N"] = [lee.exponent(numbers, v[:, j]) for j in range(len(widths))]
        moved = found[f"{when}, weights in N"] = lee.exponent(numbers, runs[f"weights, {when}"][:, -1])
        rows += [
            Row(f"rms of network - linearisation, test, {when}: ~ n^b, by N: b", "falls",
                ", ".join(f"{lee.words(fit)} (N = {N})" for fit, N in zip(in_n, numbers)), "seeds", size, seeds,
                below(in_n), "open"),
            Row(f"the same, n = {widths[-1]}, ~ N^c: c; of |theta - theta_0|: c", "grows" if when == WHEN[0] else "-",
                f"{lee.words(in_N[-1])}; {lee.words(moved)}", "seeds", size, seeds,
                above([in_N[-1]]) if when == WHEN[0] else None,
                "" if when == WHEN[0] else "more examples are fitted less well after the same time"),
        ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
        for i, (when, style) in enumerate(zip(WHEN, ("-", ":"))):
            cells = np.array([[v[:2] for v in line] for line in found[when]])  # (numbers, widths, 2)
            for j, N in enumerate(numbers):
                label = f"N = {N}: {found[f'{when}, in n'][j][0]:.2f}, {when}"
                panels[0].errorbar(widths, *cells[j].T, fmt=f"C{j}{'os^vD'[j]}{style}", ms=4, lw=1, label=label)
            label = f"n = {widths[-1]}, {when}: {found[f'{when}, in N'][-1][0]:.2f}"
            panels[1].errorbar(numbers, *cells[:, -1].T, fmt=f"C{i}{'os'[i]}{style}", label=label)
        n = np.array(widths, float)
        panels[0].plot(n, 1.2 * cells[-1, 0, 0] * (n / n[0]) ** -0.5, "k--", label="bound of the theory, $n^{-1/2}$")
        lee.widths_axis(panels[0], widths)
        lee.widths_axis(panels[1], numbers)
        panels[1].set_xlabel("number N of examples")
        for panel in panels:
            panel.set(yscale="log", ylabel="rms |network - linearisation|, test")
            panel.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_width_and_data")
