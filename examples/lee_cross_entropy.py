"""Compare networks trained with cross-entropy and momentum with their linearisations (Lee et al. 2019, figures S3, S4).

    python3 make.py python examples/lee_cross_entropy.py [--out DIR] [--data DIR] [--scale evening]

Networks with two hidden ReLU layers, sigma_w^2 = 2 and sigma_b^2 = .1, classify the ten digits.  The networks are
trained on batches of 64 with momentum .9 and eta = 1, which is lr = .1 for `mn.softmax_cross_entropy` (see
`lee_training.py`).  The network and its linearisation share their initial weights and batches.

A squared loss pulls both models' training outputs to the same targets, so the difference between these outputs
vanishes.  With cross-entropy the logits of a separated class grow without bound, and so does the difference between the
models' logits.  A network that deviates early is therefore far from its linearisation at the end, as in the paper's
figure S4.  We measure this difference early and at the end of training, at several widths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, plus
from lee import exponent, words
from lee_training import CLASSES, against_width, by_width, marks, side_by_side, ten_classes, two_layers
from verdicts import LOSS, POINTS, above, at_most, below, factors_above, near

import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (32, 128, 512), "steps": 600, "seeds": 3, "n_train": 1000},
    "evening": {"widths": (32, 128, 512), "steps": 937, "seeds": 6},
    "paper": {"widths": (128, 512, 2048), "steps": 46_850, "seeds": 3, "n_test": 10_000},
}
MOMENTUM, BATCH, ETA, EARLY = 0.9, 64, 1.0, 10


def pair(data: str, width: int, steps: int, n_train: int, n_test: int, seed: int) -> dict[str, Any]:
    """Train the network and its linearisation on the same batches, and return the result of `side_by_side`."""
    train, test = ten_classes(data, n_train, n_test, flat=True)
    net = two_layers(width, train[0].shape[1:])
    loss = mn.softmax_cross_entropy
    how: dict[str, Any] = {"loss": loss, "lr": ETA / CLASSES, "momentum": MOMENTUM, "batch": BATCH, "seed": seed}
    return side_by_side(net, train, test, times(steps), **how)


def times(steps: int) -> list[int]:
    """Return the steps at which the models are compared, including EARLY."""
    return sorted({*marks(steps, 16), EARLY})


def main(
    s: Setting, widths: tuple[int, ...], steps: int, seeds: int, n_train: int = 60_000, n_test: int = 1000
) -> Found:
    """Return the models' early and late differences in logits, their exponents in steps and in width, and accuracies.

    Plot logits and their differences against steps.
    """
    runs = s.sweep(
        pair, {"width": widths, "seed": range(seeds)}, data=s.data, steps=steps, n_train=n_train, n_test=n_test
    )
    at = np.array(times(steps))
    early, far, long = list(at).index(EARLY), runs["distance"], at >= EARLY
    fits = {name: exponent(widths, far[..., i]) for name, i in (("early", early), ("late", -1))}
    logs = np.log(at[long])
    growth = {
        key: np.polyfit(logs, np.log(runs[key][..., long]).reshape(-1, int(long.sum())).T, 1)[0].reshape(far.shape[:2])
        for key in ("distance", "size")
    }
    ratio = far / runs["size"]
    points = [interval(v) for v in 100 * (runs["accuracy"] - runs["lin accuracy"])[..., -1]]
    grows = [interval(v) for v in growth["distance"]]
    how: dict[str, Any] = {
        "of": "seeds", "seeds": seeds, "size": f"{n_train:,} images, {n_test:,} test, {steps:,} steps of {BATCH}",
    }  # fmt: skip
    rows = [
        Row(f"cross-entropy, |f - f_lin| / |f_lin| of test logits after {EARLY} steps, by width", "agree early (2048)",
            by_width(widths, ratio[..., early]), **how,
            agrees=near([interval(ratio[-1, :, early])], 0, LOSS), why="open"),
        Row(f"the same after {steps:,} steps", "far apart late, least where wide", by_width(widths, ratio[..., -1]),
            agrees=factors_above(map(interval, np.log(ratio[..., -1] / ratio[..., early]))) & below([fits["late"]]),
            **how),
        Row("rms of f - f_lin grows with the steps as t^p: p, by width", "> 0: logits grow without end",
            ", ".join(f"{plus(g)} ({n})" for n, g in zip(widths, grows)), **how,
            agrees=above(grows)),
        Row("the linearisation's logits grow as t^p: p, by width", "> 0", by_width(widths, growth["size"], 2), **how,
            agrees=above(map(interval, growth["size"]))),
        *(Row(f"rms of f - f_lin ~ width^b, after {step:,} steps: b", "at most -1/2 (theorem 2.1)", words(fit),
              agrees=at_most([fit], -0.5), why="open", **how)
          for step, fit in ((EARLY, fits["early"]), (steps, fits["late"]))),
        Row("test accuracy, network - linearisation at the end (points), by width", "curves agree (2048)",
            ", ".join(f"{plus(p, 1)} ({n})" for n, p in zip(widths, points)), **how,
            agrees=near(points[-1:], 0, 100 * POINTS), why="open"),
    ]  # fmt: skip
    found: Found = {
        "widths": widths, "steps": at.tolist(), "distance": far.tolist(), "ratio": ratio.tolist(), "exponents": fits,
        "growth": grows, "accuracy": points, "end": runs["accuracy"][..., -1].tolist(),
    }  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
        for width, panel in ((0, panels[0, 0]), (-1, panels[0, 1])):
            lines = panel.plot(at, runs["f"][width, 0][:, :5], "-")
            dashed = panel.plot(at, runs["lin f"][width, 0][:, :5], "k--")
            panel.legend([lines[0], dashed[0]], ["network", "its linearisation"])
            panel.set(xscale="log", xlabel="steps", title=f"logits of a test image, width {widths[width]}")
        for i, width in enumerate(widths):
            panels[1, 0].plot(at, far[i].mean(0), "osD^v"[i % 5] + "-", label=f"$f - f_{{lin}}$, width {width}")
        panels[1, 0].plot(at, runs["size"][-1].mean(0), "k--", label=f"$f_{{lin}}$, width {widths[-1]}")
        panels[1, 0].set(xscale="log", yscale="log", xlabel="steps", title="rms of the test logits")
        panels[1, 0].legend()
        for (name, fit), i, mark in zip(fits.items(), (early, -1), "os"):
            against_width(panels[1, 1], widths, far[..., i], f"{name}: b = {words(fit)}", mark)
        panels[1, 1].set_title("rms of $f - f_{lin}$ on test images")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_cross_entropy")
