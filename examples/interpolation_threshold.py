"""Show that the interpolation threshold explains the poor exact solution of a narrow linearised LeNet.

    python3 make.py python examples/interpolation_threshold.py [--out DIR] [--data DIR]

In Samarin et al. 2022, tables 1 and 2, the network of width 1 has P = 60,941 weights for N = 60,000 equations.  The
minimum-norm solution is least accurate near N = rank J, where J is the Jacobian.  This is about the largest N at which
it fits every example.  As N approaches this value from below, more examples reduce the accuracy (double descent).  A
small LeNet has the paper's ratio P / N = 1.016 on 867 digits or 1,960 images of MNIST.  We compare it with one of twice
the width at increasing N.  At width 1 the accuracy dips near rank J, which is below P because of dead and redundant
units.  At width 2 the mean accuracy never falls more than two percentage points below its value at the smallest N.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, interval, percent, placed, plus, right
from verdicts import POINTS, above, below, one_of, percent_of

import minintk as mn
from minintk.arrays import array_namespace, to_host

SIZES: dict[str, dict[str, Any]] = {"small": {"seeds": 8}, "evening": {"seeds": 16}, "paper": {"seeds": 64}}
PAPER = {False: {1: 97.8, 2: 99.86}, True: {1: 86.05, 2: 98.7}}
"""The paper's accuracies of the exact solution in per cent, by width, for shifted (True) and unshifted images."""
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)


def reduced(shape: tuple[int, ...], width: int) -> mn.Sequential:
    """Build a LeNet for small images.

    For 8 x 8 images the LeNet has 50 k^2 + 20 k + 1 weights with k = 4 width. For 28 x 28 images and width 1 it has
    1,991 weights.
    """
    c, size, dense = (4 * width, 3, 16 * width) if shape[0] == 8 else (2 * width, 5, 17 * width)
    layers: list[mn.spec.Layer] = []
    for channels, padding in ((c, size // 2), (2 * c, 1 if size == 3 else 0)):
        layers += [mn.Conv2d(channels, size, padding=padding, b_std=1.0), mn.ReLU(), mn.MaxPool(2)]
    return mn.Sequential(*layers, mn.Flatten(), mn.Dense(dense, b_std=1.0), mn.ReLU(), mn.Dense(1, b_std=1.0))


def problem(data: str, n_train: int, shift: int, width: int, seed: int) -> tuple[mn.Network, mn.Array, list[mn.Array]]:
    """Return the network, theta_0 and (x, y, x_test, y_test).

    y is 1 for the first class and -1 for the others. The dtype is float64, or float32 for LeNet-5 (>= 10,000 images).
    """
    train, test = images(data, n_train, 2000, seed)
    if shift:
        rng = np.random.default_rng(seed)
        train, test = train.shifted(shift, rng), test.shifted(shift, rng)
    first = train.classes[0]
    arrays = (*train.standardise().binary(first), *test.standardise(fit=train).binary(first))
    dtype = np.float64 if n_train < 10_000 else np.float32  # float32 is too inaccurate at the threshold
    shape = train.x.shape[1:]
    net = mn.Network(reduced(shape, width) if n_train < 10_000 else mn.zoo.lenet5(width, 1), shape, mn.PyTorch())
    theta0 = net.init(np.random.default_rng(seed), dtype=dtype)
    return net, placed(theta0)[0], list(placed(*(a.astype(dtype) for a in arrays)))


def exact(net: mn.Network, theta0: mn.Array, x: mn.Array, y: mn.Array) -> mn.Array:
    """Return the minimum-norm least-squares theta. If J J' is singular, use LAPACK's solver for J, as in the paper."""
    try:
        return mn.solve_gram(net, theta0, x, y).theta
    except ValueError:
        return theta0 + array_namespace(x).linalg.lstsq(rows(net, theta0, x), (y - net(theta0, x))[:, 0])[0]


def rows(net: mn.Network, theta0: mn.Array, x: mn.Array) -> mn.Array:
    """Return the Jacobian J (N, P) of a network with one output."""
    xp = array_namespace(x)
    return xp.stack([net.linearize(theta0, x[i : i + 1])[1].vjp(xp.ones((1, 1))) for i in range(len(x))])


def curve(data: str, n_train: int, shift: int, width: int, seed: int) -> dict[str, Any]:
    """Return {"test": accuracies after fits to SHARES of the images, "rank": the rank of J at width 1, otherwise 0}."""
    net, theta0, (x, y, x_test, y_test) = problem(data, n_train, shift, width, seed)
    lin, found = mn.Linearized(net, theta0), []
    for n in (int(share * n_train) for share in SHARES):
        theta = exact(net, theta0, x[:n], y[:n])
        found.append(float(right(lin, theta, x_test, y_test).mean()))
    rank = np.linalg.matrix_rank(to_host(rows(net, theta0, x))) if width == 1 else 0
    return {"test": found, "rank": int(rank)}


def main(
    s: Setting, widths: tuple[int, ...] = (1, 2), shifts: tuple[int, ...] = (), n_train: int = 0, seeds: int = 16
) -> Found:
    """Return the test accuracy of the exact solution for each shift, width and number of images, and plot it."""
    shifts = shifts or (0, 2 if s.data == "digits" else 7)
    n_train = n_train or (867 if s.data == "digits" else 1960)
    s = replace(s, sizes={**s.sizes, "n_train": n_train}, papers={**s.papers, "n_train": 60_000})
    axes: dict[str, Any] = {"shift": shifts, "width": widths, "seed": range(seeds)}
    runs = s.sweep(curve, axes, data=s.data, n_train=n_train)
    sizes, found, table = [int(share * n_train) for share in SHARES], Found(), []
    size = f"{n_train} images, first class against the rest"
    for i, shift in enumerate(shifts):
        rank = interval(runs["rank"][i, 0])
        by = {f"x{w}": [interval(v) for v in runs["test"][i, j].T] for j, w in enumerate(widths)}
        found[f"shifts up to {shift}"] = by | {"rank": rank}
        for name, values in by.items():
            ours = "; ".join(f"{percent(value)} ({n})" for n, value in zip(sizes, values))
            at = f"; rank J = {plus(rank, 0)}" if name == "x1" else ""
            claim = f"exact solution at {name}, shifts up to {shift}: test accuracy (%) by number of images"
            said = "{}, {} at x1, x2, all images".format(*PAPER[shift > 0].values())
            few, *many = runs["test"][i, widths.index(int(name[1:]))].T
            drops = [interval(few - v) for v in many]
            dips = one_of(above(drops)) if name == "x1" else percent_of(below(drops, POINTS))
            table.append(Row(claim, said, ours + at, "seeds", size, seeds,
                             dips, "open"))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, len(shifts), figsize=(5.5 * len(shifts), 4), squeeze=False, layout="constrained")
        for panel, shift in zip(panels[0], shifts):
            by = found[f"shifts up to {shift}"]
            for w, style in zip(widths, ("o-", "s-", "^-")):
                mean, half, *_ = zip(*by[f"x{w}"])
                label = f"exact solution, x{w}"
                line = panel.errorbar(
                    sizes, 100 * np.array(mean), 100 * np.array(half), fmt=style, capsize=3, label=label
                )
                if w in PAPER[shift > 0]:
                    panel.plot(sizes[-1], PAPER[shift > 0][w], "*", ms=10, color=line[0].get_color(), mec="k")
            panel.plot([], [], "k*", ms=10, label="the paper's, on 60,000 images")
            panel.axvline(by["rank"].mean, color="k", ls=":", label="N = rank J at x1")
            panel.set(xscale="log", xlabel="training images", title=f"{s.data}, shifts up to {shift} pixels")
            panel.set_xticks(sizes, [f"{n:g}" for n in sizes]), panel.minorticks_off()
        panels[0, 0].set_ylabel(f"test accuracy, %; 95 % intervals, {seeds} seeds")
        panels[0, 0].legend()

    return finish(s, found, table, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "interpolation_threshold")
