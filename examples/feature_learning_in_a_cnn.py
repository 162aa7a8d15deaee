"""Compare convolutional networks in the lazy and the feature regime (Geiger et al. 2020, figures 1 (b) and 2 (d)).

    python3 make.py python examples/feature_learning_in_a_cnn.py [--out DIR] [--data DIR] [--scale small|evening|paper]

The model is alpha (f - f_0), where f consists of four convolutions with ReLU, a mean over pixels and a dense layer.  It
learns the parity of digits in the feature regime, s = sqrt(h) alpha = .1 with h channels, and in the lazy regime, s =
100.  The paper claims that lazy networks make more errors at every h.  Averages of lazy networks should make 1.7 times
as many errors as averages of feature-learning networks, and averaging should reduce the errors in both regimes.

As in the paper, training is a momentum flow with tau = 10.  The batch size b changes with the step dt so that the
temperature dt/b (1 - (b - 1)/(N - 1)) is constant, where N is the number of training images.  The paper does not state
the temperature.  We use 1e-4, at which batches range from a few examples to most of the training set.  For digits of 8
x 8 pixels, the windows are 3 x 3 instead of 5 x 5.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, percent, placed, tested
from geiger import in_widths, start
from verdicts import above

import minintk as mn
from minintk.arrays import to_host

REGIMES = {"feature": 0.1, "lazy": 100.0}
TAU, TEMPERATURE = 10.0, 1e-4
SIZES: dict[str, dict[str, Any]] = {
    "small": {"channels": (8, 16), "seeds": 4, "n_train": 100, "n_test": 1000},
    "evening": {"channels": (8, 16, 32), "seeds": 8, "n_train": 500, "n_test": 2000},
    "paper": {"channels": (30, 60, 120, 240), "seeds": 20, "n_train": 5000, "n_test": 10_000},
}


def cnn(shape: tuple[int, ...], channels: int) -> mn.Sequential:
    """Build the paper's network.

    For 8 x 8 images, use 3 x 3 windows instead of 5 x 5.
    """
    if shape[0] != 8:
        return mn.zoo.geiger_cnn(channels)
    layers: list[mn.spec.Layer] = []
    for i, stride in enumerate((2, 1, 2, 1)):
        layers += [mn.Conv2d(channels, 3, stride=stride, w_std=sqrt(2) if i else 1.0), mn.ReLU()]
    return mn.Sequential(*layers, mn.GlobalAvgPool(), mn.Dense(1, w_std=sqrt(2)))


def tested_on(
    data: str, n_train: int, n_test: int, channels: int, s: float, seed: tuple[int, ...]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return each seed's test outputs (M,), the mean batch size, and the time at which all losses have reached zero."""
    train, test = images(data, n_train, n_test)
    (x, y), (x_test, _) = (placed(*part.standardise(fit=train).parity()) for part in (train, test))
    net = mn.Network(cnn(x.shape[1:], channels), x.shape[1:])
    theta0, alpha = start(net, seed), s / sqrt(channels)
    model, batches = mn.Centred(net, theta0, alpha), []
    for moment in mn.flow(
        model, theta0, x, y, loss=mn.Hinge(alpha), times=min(s, 1.0) * np.geomspace(1e-2, 1e6, 81), tau=TAU,
        temperature=TEMPERATURE, rng=np.random.default_rng(seed), by=mn.Steps(high=0.1, early=0.02),
    ):  # fmt: skip
        batches.append(moment.batch_size)
    if not moment.ended or moment.theta is None:
        raise FloatingPointError(f"{net!r} has not learned {n_train} images")
    parts = [to_host(model(moment.theta, x_test[i : i + 250])) for i in range(0, len(x_test), 250)]
    f = np.concatenate(parts, axis=1)[..., 0].astype(float).round(5)
    return [{"f": v.tolist(), "batch": float(np.mean(batches[1:])), "t": moment.t} for v in f]


def main(s: Setting, channels: tuple[int, ...], seeds: int, n_train: int, n_test: int) -> Found:
    """Return the test errors of single networks and of averaged networks in both regimes.

    Plot the errors against the number of channels.
    """
    grid = {"s": tuple(REGIMES.values()), "channels": channels, "seed": range(seeds)}
    runs = s.sweep(tested_on, grid, together="seed", data=s.data, n_train=n_train, n_test=n_test)
    f, y = runs["f"], images(s.data, n_train, n_test)[1].parity()[1][:, 0]
    f = np.where(np.isnan(f), 0.0, f)  # a run that did not learn counts as wrong on every image
    wrong, average = (f * y <= 0) * 1.0, (f.mean(-2) * y <= 0) * 1.0  # (regime, channels, [seed], test image)
    behind = [tested(b - a) for a, b in zip(*wrong)]
    averaged = [tested((b - a)[None]) for a, b in zip(*average)]
    ratio = [float(b.mean() / max(a.mean(), 1 / len(y))) for a, b in zip(*average)]
    gains = {n: [tested(w - a) for w, a in zip(wrong[i], average[i])] for i, n in enumerate(REGIMES)}
    errors = {n: [tested(w) for w in wrong[i]] for i, n in enumerate(REGIMES)}
    size = f"{n_train} of {s.data}, h = {', '.join(map(str, channels))}"
    where: dict[str, Any] = {"size": size, "seeds": seeds}

    def each(values: list[Any]) -> str:
        return ", ".join(percent(v) for v in values)

    rows = [
        Row("CNN, stochastic flow: lazy - feature, test error (points)", "> 0, at all h", each(behind), "both",
            agrees=above(behind), why="open", **where),
        Row(f"CNN: averages of {seeds}, lazy - feature (points); lazy error / feature error", "> 0; 1.7",
            f"{each(averaged)}; {', '.join(f'{r:.2f}' for r in ratio)}", "images", agrees=above(averaged),
            why="open", **where),
        *(Row(f"CNN: one network - average of {seeds}, {n}, test error (points)", "> 0",
              f"{each(gain)} (one: {', '.join(f'{100 * e[0]:.1f}' for e in errors[n])} %)", "both",
              agrees=above(gain), why="open", **where) for n, gain in gains.items()),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, axes = plt.subplots(figsize=(5.5, 4), layout="constrained")
        for i, n in enumerate(REGIMES):
            mean, half = 100 * np.array([e[:2] for e in errors[n]]).T
            axes.errorbar(channels, mean, half, fmt=f"C{i}{'os'[i]}-", capsize=2, label=f"{n}, one network")
            axes.plot(channels, 100 * average[i].mean(-1), f"C{i}{'^D'[i]}:", label=f"{n}, average of {seeds}")
        in_widths(axes, channels)
        axes.set(xlabel="channels h", ylabel="test error, %", title=f"{n_train} of {s.data}")
        axes.legend()

    found = {
        "channels": channels, "lazy - feature": behind, "averages, lazy - feature": averaged, "ratio": ratio,
        "gain of averaging": gains, "error": errors, "batch": runs["batch"].mean(-1).tolist(),
        "t": runs["t"].mean(-1).tolist(),
    }  # fmt: skip
    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "feature_learning_in_a_cnn")
