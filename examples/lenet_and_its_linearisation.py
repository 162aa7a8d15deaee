"""LeNet against its own linearisation at growing width: the gap closes (Samarin et al. 2022, figures 2, 3 and 4).

    python3 make.py python examples/lenet_and_its_linearisation.py [--out DIR] [--data DIR --set mnist|cifar10]

Both start from the same weights and see the same mini-batches: sum of squares on one-hot targets, momentum .9, batches
of 32, PyTorch's initialisation.  The network gains little from width, the linearisation much; shifting the digits
widens the gap, most at small width.  A step takes one JVP and one VJP for any number of classes.

The rate.  The paper's loss is sum_l (f_l - y_l)^2 and its rate .1.  The largest rate at which heavy-ball descent on
that loss is stable for the linearisation, 2 (1 + m) / (2 lambda_max(Theta) / N), falls with the width and is below .1
from width 10 on (MNIST: about .5, .3, .15, .08 at widths 1, 2, 5, 10), so that rate on that loss cannot have trained
widths 25 and 60.  It can if the loss is a mean over the ten classes (PyTorch's MSELoss): rate .01 here, and weight
decay 5e-4 in place of 5e-5.

Laptop: 1,500 8 x 8 digits and a LeNet for them; with --data, 5,000 images and LeNet-5.  --scale paper: 100 epochs of
all images, widths up to 60, also with shifts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, images, lenet, percent, placed, right, stable_rate, tested

import minintk as mn

PAPER = {("mnist", 0): (4.67, 0.48), ("mnist", 7): (27.65, 3.91), ("cifar10", 0): (20.22, 13.17)}
"""Gaps at widths 1 and 60, in points."""


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (1, 2, 5, 10),
    shifts: tuple[int, ...] | None = None, n_train: int = 5000, epochs: int | None = None, seeds: int = 2,
    lr: float | None = None,
) -> Found:  # fmt: skip
    """Accuracies of both and their gap at each width and shift, with 95 % intervals; draws them against width."""
    if scale == "paper":
        widths, n_train, epochs, seeds = (1, 2, 5, 10, 25, 60), 60_000, epochs or 100, 5
    epochs, lr = epochs or (5 if data else 15), lr or (0.01 if data else 0.03)
    seeds = seeds if scale == "paper" or not data else 1
    largest = 2 if data is None else 7
    shifts = shifts if shifts is not None else (0, largest) if scale == "paper" or not data else (0,)
    found: Found = {"widths": widths, "stable rate": {}, "LeNet": {}, "LinLeNet": {}, "gap": {}, "train gap": {}}
    for shift in shifts:
        train, test = images(data, n_train, 10_000)
        if shift:
            rng = np.random.default_rng(1)
            train, test = train.shifted(shift, rng), test.shifted(shift, rng)
        host = (*train.standardise().one_hot(), *test.standardise(fit=train).one_hot())
        rows = [pair(host, width, seeds, epochs, lr, scale) for width in widths]
        for name in rows[0]:
            found[name][shift] = [row[name] for row in rows]
    table = []
    for shift, gaps in found["gap"].items():
        key = (data[0], shift) if data else None
        falling = all(a[0] > b[0] for a, b in pairwise(gaps))
        said = "{} at x1, {} at x60".format(*PAPER[key]) if key in PAPER else "falls with width"
        ours = ", ".join(f"{percent(g)} (x{w})" for w, g in zip(widths, gaps))
        where = "8 x 8 digits" if data is None else f"{data[0]}, {n_train} images"
        table.append((f"LeNet - LinLeNet, test, {where}, shifts up to {shift} (points)", said,
                      f"{ours}: {'falls' if falling else 'does not fall'} monotonically"))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, len(shifts), figsize=(5.5 * len(shifts), 4), squeeze=False, layout="constrained")
        for panel, shift in zip(panels[0], shifts):
            for name, style in (("LeNet", "o-"), ("LinLeNet", "s-")):
                mean, half = 100 * np.array(found[name][shift]).T
                panel.errorbar(widths, mean, half, fmt=style, capsize=3, label=name)
            panel.axhline(100 * found["LeNet"][shift][0][0], color="0.5", ls=":", lw=0.8, label="LeNet x1")
            panel.set(xscale="log", xlabel="width factor", title=f"shifts up to {shift} pixels")
            panel.set_xticks(widths, map(str, widths))
        panels[0, 0].set_ylabel("test accuracy, %; 95 % intervals")
        panels[0, 0].legend()

    return finish(out, "lenet_and_its_linearisation", {**found, "table": table}, draw)


def pair(host: tuple[Any, ...], width: int, seeds: int, epochs: int, lr: float, scale: str) -> dict[str, Any]:
    """The network and its linearisation, trained in the same way from the same weights."""
    x, y, x_test, y_test = placed(scale, *host)
    net = mn.Network(lenet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
    theta0 = placed(scale, net.init(np.random.default_rng(width), ensemble=seeds, dtype=np.float32))[0]
    stable = stable_rate(net, theta0[0], x[:100])
    scores, learnt = [], []
    for model in (net, mn.Linearized(net, theta0)):
        run = mn.fit(
            model, theta0, x, y, loss=mn.sum_of_squares, epochs=epochs, batch_size=32, rng=np.random.default_rng(0),
            optimizer=mn.SGD(lr=lr, momentum=0.9, weight_decay=5e-6 / lr),
        )  # fmt: skip
        scores.append(right(run.model, run.theta, x_test, y_test))
        learnt.append(np.asarray(run.history.last["accuracy"]))
    a, b = scores
    return {
        "LeNet": tested(a), "LinLeNet": tested(b), "gap": tested(a - b), "stable rate": stable,
        "train gap": float(np.mean(learnt[0] - learnt[1])),
    }  # fmt: skip


if __name__ == "__main__":
    command_line(main, __doc__, "lenet_and_its_linearisation")
