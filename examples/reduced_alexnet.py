"""Show that a reduced AlexNet has a larger gap to its linearisation than LeNet (Samarin et al. 2022, figure 5).

    python3 make.py python examples/reduced_alexnet.py [--out DIR] [--data DIR --set cifar10]

The reduced network has five convolutions and three fully connected layers for small images and, at width 1, an eighth
of AlexNet's channels.  As in the paper, the linearisation is trained at the network's rate and at ten times that rate,
at which it learns better.  Runs of equal width and seed start from the same weights and use the same batches.  On the
easy 8 x 8 digits the gap narrows with width.  On the paper's photographs of snakes the gap hardly narrows.

With PyTorch's default initialisation, each hidden layer divides the signal by about sqrt(6).  The network then needs
thousands of steps to leave its initial plateau, too many for a laptop (15 epochs on 1,500 digits are not enough).  The
hidden layers therefore have weights of variance 1 / fan-in.  The rates are 1/50 and 1/5 of the largest stable rate.

The size "small" uses the 8 x 8 digits or, with --data DIR --set cifar10, photographs.  The size "paper" uses all of
CIFAR-10 and at least half of AlexNet's channels.  The paper's own images, ten kinds of snake from ImageNet, cannot be
distributed with this library.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, percent, placed, right, stable_rate, tested
from resuming import unfinished
from verdicts import POINTS, above, near, percent_of

import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (1, 2)},
    "evening": {"widths": (1, 2, 4), "n_train": 10_000},
    "paper": {"widths": (4, 8, 16), "n_train": 50_000, "n_test": 10_000, "epochs": 100, "seeds": 5},
}
PAPER = {1.0: 0.204, 4.0: 0.1856}
"""The paper's gaps at ten times the rate, by width."""
SQRT3 = 3**0.5
"""The w_std that turns PyTorch's uniform weights, of variance 1 / (3 fan-in), into weights of variance 1 / fan-in."""
KINDS = {"AlexNet": (False, 1), "LinAlexNet": (True, 1), "LinAlexNet, 10 x rate": (True, 10)}
"""The trained models as pairs (True if linearised, multiple of the rate)."""


def alexnet(shape: tuple[int, ...], width: float) -> mn.Sequential:
    """Build AlexNet with `width` / 8 of its channels and 3 x 3 windows.

    For images other than 8 x 8, the first convolution is 5 x 5 with stride 2.
    """
    small = shape[0] == 8

    def conv(channels: int, size: int = 3, stride: int = 1) -> tuple[mn.spec.Layer, ...]:
        return mn.Conv2d(int(channels * width) // 8, size, stride=stride, b_std=1.0, w_std=SQRT3), mn.ReLU()

    first = conv(64) if small else conv(64, 5, 2)
    features = (*first, mn.MaxPool(2), *conv(192), mn.MaxPool(2), *conv(384), *conv(256), *conv(256), mn.MaxPool(2))
    dense = [layer for _ in range(2) for layer in (mn.Dense(int(512 * width) // 8, b_std=1.0, w_std=SQRT3), mn.ReLU())]
    return mn.Sequential(*features, mn.Flatten(), *dense, mn.Dense(10, b_std=1.0))


def train(
    data: str, n_train: int, n_test: int, epochs: int, width: float, kind: str, seed: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Train the networks; return their test scores (0 or 1) and training accuracies and the first one's stable rate."""
    parts = images(data, n_train, n_test)
    x, y, x_test, y_test = placed(*parts[0].standardise().one_hot(), *parts[1].standardise(fit=parts[0]).one_hot())
    net = mn.Network(alexnet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
    drawn = np.stack([net.init(np.random.default_rng((int(8 * width), e)), dtype=np.float32) for e in seed])
    theta0 = placed(drawn)[0]
    (linear, faster), stable = KINDS[kind], stable_rate(net, theta0[0], x[:100])
    sgd = mn.SGD(stable / 50 * faster, momentum=0.9, weight_decay=5e-6, towards=theta0 if linear else None)
    with unfinished(data, n_train, epochs, width, kind, seed) as folder:
        run = mn.fit(
            mn.Linearized(net, theta0) if linear else net, theta0, x, y, loss=mn.sum_of_squares, epochs=epochs,
            batch_size=32, rng=np.random.default_rng(0), optimizer=sgd, checkpoint=folder,
        )  # fmt: skip
    score = right(run.model, run.theta, x_test, y_test).astype(int)
    train_score = np.reshape(run.history.last["accuracy"], -1)
    return [{"right": s.tolist(), "train": float(t), "stable": stable} for s, t in zip(score, train_score)]


def main(
    s: Setting, widths: tuple[float, ...], n_train: int = 1500, n_test: int = 2000, epochs: int = 15, seeds: int = 2
) -> Found:
    """Return the test and training accuracies of the three models in KINDS at each width, and plot them."""
    fixed: dict[str, Any] = {"data": s.data, "n_train": n_train, "n_test": n_test, "epochs": epochs}
    axes: dict[str, Any] = {"width": widths, "kind": tuple(KINDS), "seed": range(seeds)}
    runs = s.sweep(train, axes, together="seed", **fixed)
    score, learnt = runs["right"], runs["train"].mean(-1)  # (widths, kinds, seeds, images)
    found: Found = {"widths": widths, "stable rate": runs["stable"][:, 0, 0].tolist()}
    found |= {kind: [tested(each[k]) for each in score] for k, kind in enumerate(KINDS)}
    found["train"] = learnt.tolist()
    table = []
    said = ("", "more than 20 at every width", "20.4 at x1, 18.56 at x4")
    for k, kind in list(enumerate(KINDS))[1:]:
        gaps = [tested(each[0] - each[k]) for each in score]
        ours = ", ".join(f"{percent(gap)} (x{w:g})" for w, gap in zip(widths, gaps))
        at = {w: near([g], PAPER[w], POINTS) for w, g in zip(widths, gaps) if w in PAPER}
        agrees = percent_of(above(gaps, 0.2) if k == 1 else reduce(and_, at.values())) if k == 1 or at else None
        table.append(Row(f"AlexNet - {kind}, test (points)", said[k], ours, "both" if seeds > 1 else "images",
                         f"{n_train} images, {epochs} epochs", seeds, agrees, "open"))  # fmt: skip

    def draw(plt: Any) -> None:
        _, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        for k, kind in enumerate(KINDS):
            mean, half, *_ = zip(*found[kind])
            line = axes.errorbar(widths, 100 * np.array(mean), 100 * np.array(half), fmt="os^"[k] + "-", capsize=3,
                                 label=f"{kind}, test")  # fmt: skip
            axes.plot(widths, 100 * learnt[:, k], ":", color=line[0].get_color())
        axes.plot([], [], "k:", label="training")
        axes.set(xlabel="width factor", ylabel="accuracy, %; 95 % intervals", xscale="log")
        axes.set_title(f"{s.data}, {n_train} images")
        axes.set_xticks(widths, map(str, widths)), axes.minorticks_off()
        axes.legend(fontsize=8)

    return finish(s, found, table, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "reduced_alexnet")
