"""Compare a wide residual network with its linearisation under SGD: Lee et al. 2019, figure 4, table S1.

    python3 make.py python examples/lee_wide_resnet.py [--out DIR] [--data DIR --set cifar10] [--scale evening]

The network of table S1 has three groups of one residual block, the same number of channels in every layer, ReLU,
sigma_w = 1, and sigma_b = 0 even in the head.  There is no normalisation, because the linearised output for one example
must not depend on other examples.  Both models start from the same weights and are trained on the same batches of 8
with momentum.  The models differ most early in training, before the initial outputs are unlearned.  Short runs measure
the largest distance for each number of channels, and long runs yield the curves.

The paper's eta = 1 is lr = .1 for `mn.mse`, which sums over the ten outputs (see `lee_training.py`).  To test this
interpretation, both models are also trained at eta = 10, which is lr = 1.  We count the runs whose mean loss is larger
at the end than at the start, or is not finite.  The bound 2 (1 + momentum) N / lambda_max(Theta) applies to full
batches. With batches of 8, runs below this bound also diverge, because the noise of a step grows with the residual.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, placed, plus
from lee import exponent, words
from lee_training import CLASSES, against_width, by_width, marks, side_by_side, ten_classes, trained
from verdicts import LOSS, POINTS, at_most, below, near, sure

import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"channels": (16, 32, 64, 128), "early": 40, "steps": 300, "seeds": 4},
    "evening": {"channels": (16, 32, 64, 128), "early": 32, "steps": 300, "seeds": 5, "n_test": 150},
    "paper": {
        "channels": (128, 256, 512, 1024), "early": 100, "steps": 50_000, "long": 1024, "seeds": 3, "n_train": 50_000,
        "n_test": 1000,
    },
}  # fmt: skip
MOMENTUM, BATCH, ETA, ABOVE = 0.9, 8, 1.0, 10.0


def network(channels: int, shape: tuple[int, ...]) -> mn.Network:
    """Build the network of table S1 with one block per group and the same number of channels in every layer."""
    return mn.Network(mn.zoo.wide_resnet(10, channels=channels, norm=None, w_std=1.0), shape)


def pair(data: str, channels: int, steps: int, n_train: int, n_test: int, seed: int) -> dict[str, Any]:
    """Train the network and its linearisation at the paper's rate, and return the result of `side_by_side`."""
    train, test = ten_classes(data, n_train, n_test, zero_mean=True)
    net = network(channels, train[0].shape[1:])
    how: dict[str, Any] = {"loss": mn.mse, "lr": ETA / CLASSES, "momentum": MOMENTUM, "batch": BATCH, "seed": seed}
    return side_by_side(net, train, test, marks(steps), **how)


def stays(data: str, channels: int, eta: float, model: str, steps: int, n_train: int, seed: int) -> dict[str, float]:
    """Train, and return the mean losses over the first and the last tenth of the steps.

    Raise FloatingPointError if training diverges.
    """
    train, test = ten_classes(data, n_train, 1, zero_mean=True)
    net = network(channels, train[0].shape[1:])
    theta0, x, y, x_test = placed(net.init(np.random.default_rng(seed), dtype=np.float32), *train, test[0])
    trains: mn.Model = net if model == "network" else mn.Linearized(net, theta0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # divergence is counted, so no warning is needed
        losses, _ = trained(
            trains, theta0, (x, y), x_test, [steps], loss=mn.mse, optimizer=mn.SGD(eta / CLASSES, MOMENTUM),
            batch=BATCH, seed=seed,
        )  # fmt: skip
    tenth = max(1, steps // 10)
    return {"first": float(losses[:tenth].mean()), "last": float(losses[-tenth:].mean())}


def main(
    s: Setting, channels: tuple[int, ...], early: int, steps: int, seeds: int, long: int = 32, n_train: int = 10_000,
    n_test: int = 300,
) -> Found:  # fmt: skip
    """Return distances for each number of channels, losses and accuracies of long runs, and how many runs diverged.

    Plot distances, losses and accuracies.
    """
    fixed: dict[str, Any] = {"data": s.data, "n_train": n_train}
    seed = range(seeds)
    brief = s.sweep(pair, {"channels": channels, "seed": seed}, steps=early, n_test=n_test // 3, **fixed)
    runs = s.sweep(pair, {"channels": (long,), "seed": seed}, steps=steps, n_test=n_test, **fixed)
    grid = {"eta": (ETA, ABOVE), "model": ("network", "linearised"), "seed": seed}
    tried = s.sweep(stays, grid, channels=8, steps=min(steps, 200), **fixed)
    gone = (tried.diverged | (tried["last"] > tried["first"])).sum(-1)  # (rates, models)
    apart = brief["distance"].max(-1) / brief["moved"].max(-1)
    fit = exponent(channels, apart)
    off = 100 * (runs["loss"] / runs["lin loss"] - 1)[0]  # (seeds, T)
    losses, most = interval(off[:, -1]), interval(abs(off).max(-1))
    points = interval(100 * (runs["accuracy"] - runs["lin accuracy"])[0, :, -1])
    images = f"{min(n_train, 10_000):,} images" if s.data != "digits" else "1,500 images"
    size = f"{images}, {long} channels, {steps:,} steps of 8"
    how: dict[str, Any] = {"of": "seeds", "seeds": seeds}
    less, more = (f"{lin} of {seeds} linearisations, {net} of {seeds} networks" for net, lin in gone)
    rows = [
        Row(f"wide ResNet: largest |f - f_lin| / largest |f_lin - f_0| in {early} steps, test, by channels",
            "falls", by_width(channels, apart, 2), agrees=below([fit]), why="open",
            size=f"{images}, {early} steps of 8", **how),
        Row("the same ~ channels^b: b", "at most -1/2 (theorem 2.1)", words(fit),
            agrees=at_most([fit], -0.5), why="open", size=f"{images}, {early} steps of 8", **how),
        Row("training loss, |network / linearisation - 1| (%): largest; at the end", "curves agree (1024)",
            f"{plus(most, 1)}; {plus(losses, 1)}", agrees=near([most], 0, 100 * LOSS), size=size, **how,
            why=f"{long} channels for 1024: the distance falls as in the row above, b = {words(fit)}"),
        Row("test accuracy at the end, network - linearisation (points)", "curves agree (1024)", plus(points, 1),
            agrees=near([points], 0, 100 * POINTS), why="open", size=size, **how),
        Row("diverged at eta = 1, the loss a mean over the outputs (lr = .1 of mn.mse)", "0", less,
            size="8 channels", seeds=seeds, agrees=sure(not gone[0].any(), "0"), why="open"),
        Row("diverged at eta = 1, the loss a sum over the outputs (lr = 1 of mn.mse)", "eta = 1 was used", more,
            size="8 channels", seeds=seeds, agrees=sure(not gone[1, 1], "no linearisation diverges"),
            why="its loss is a mean over the outputs, as in its authors' public code: the row above"),
    ]  # fmt: skip
    found: Found = {
        "channels": channels, "exponent": fit, "diverged": gone.tolist(), "distance": apart.tolist(), "loss": losses,
        "accuracy": points, "learned": float(runs["lin accuracy"][0, :, -1].mean()),
    }  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
        at, few = marks(steps), runs["f"].shape[-1] // 2
        for panel, key in zip(panels.flat, ("f", "loss", "accuracy")):
            for name, style, label in ((key, "-", "network"), (f"lin {key}", "k--", "its linearisation")):
                curves = runs[name][-1, 0][:, :few] if key == "f" else runs[name][-1].mean(0)
                lines = panel.plot(at, curves, style)
                lines[0].set_label(label)
            panel.set(xscale="log", xlabel="steps")
            panel.legend()
        titles = ("outputs at a test point", "training loss", "test accuracy")
        for panel, title in zip(panels.flat, titles):
            panel.set_title(f"{title}, {long} channels")
        against_width(panels[1, 1], channels, apart, f"b = {words(fit)}")
        panels[1, 1].set(title=f"$|f - f_{{lin}}| / |f_{{lin}} - f_0|$ in {early} steps", xlabel="channels n")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_wide_resnet")
