"""Do convolutional networks lose accuracy in the lazy regime?  (Geiger et al. 2020, figures 1 (b) and 2 (d)).

    python3 make.py python examples/feature_learning_in_a_cnn.py [--out DIR] [--data DIR]

Four convolutions with ReLU, the mean over pixels, a dense layer: alpha (f - f_0) on the parity of digits, in the
feature regime, s = sqrt(h) alpha = .1, and in the lazy one, s = 1000.  The claims: lazy networks make more mistakes at
every number h of channels; so do averages of them, 1.7 times as many; averaging helps in both regimes.  On a few 8 x 8
digits the second claim fails: the average over lazy networks is better.

Laptop: 60 of the 8 x 8 digits, windows of 3 x 3, full batches and tau = t/1000 as for the other networks.  --scale
paper: 5,000 of MNIST, the paper's network, on a GPU.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, images, interval, percent, placed, tested
from geiger import HIGH, in_widths, trained

import minintk as mn
from minintk.arrays import to_host

REGIMES = {"feature": 0.1, "lazy": 1000.0}


def cnn(shape: tuple[int, ...], channels: int) -> mn.Sequential:
    """The paper's network; for 8 x 8 images with 3 x 3 windows instead of 5 x 5."""
    if shape[0] != 8:
        return mn.zoo.geiger_cnn(channels)
    layers: list[mn.spec.Layer] = []
    for i, stride in enumerate((2, 1, 2, 1)):
        layers += [mn.Conv2d(channels, 3, stride=stride, w_std=sqrt(2) if i else 1.0), mn.ReLU()]
    return mn.Sequential(*layers, mn.GlobalAvgPool(), mn.Dense(1, w_std=sqrt(2)))


def outputs(
    s: float, channels: int, seeds: int, x: mn.Array, y: mn.Array, x_test: mn.Array, scale: str
) -> np.ndarray[Any, Any]:
    """Outputs of the trained networks on the test images, (E, M)."""
    net = mn.Network(cnn(x.shape[1:], channels), x.shape[1:])
    theta0 = placed(scale, net.init(np.random.default_rng(channels), ensemble=seeds, dtype=np.float32))[0]
    run = trained(net, theta0, s / sqrt(channels), x, y, high=HIGH[scale])
    parts = [to_host(run.model(run.theta, x_test[i : i + 500])) for i in range(0, len(x_test), 500)]
    return np.concatenate(parts, axis=1)[..., 0].astype(float)


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", channels: tuple[int, ...] = (8, 16),
    seeds: int = 5, n_train: int = 60,
) -> Found:  # fmt: skip
    """Test errors of single networks and of their average in both regimes; draws them against the channels."""
    if scale == "paper":
        channels, seeds, n_train = (30, 60, 120, 240), 20, 5000
    train, test = images(data, n_train, 10_000 if scale == "paper" else 1500)
    train, test = train.standardise(), test.standardise(fit=train)
    x, y, x_test = placed(scale, *train.parity(), test.x)
    sign = test.parity()[1][:, 0]
    f = {(n, h): outputs(s, h, seeds, x, y, x_test, scale) for h in channels for n, s in REGIMES.items()}
    wrong = {key: (v * sign <= 0) * 1.0 for key, v in f.items()}
    average = {key: (v.mean(0) * sign <= 0) * 1.0 for key, v in f.items()}
    behind = [tested(wrong["lazy", h] - wrong["feature", h]) for h in channels]
    averaged = [tested((average["lazy", h] - average["feature", h])[None]) for h in channels]
    gains = {n: [tested(wrong[n, h] - average[n, h]) for h in channels] for n in REGIMES}
    ratios = [average["lazy", h].mean() / max(average["feature", h].mean(), 1 / len(sign)) for h in channels]

    def each(values: list[tuple[float, float]]) -> str:
        return ", ".join(f"{percent(v)} (h = {h})" for h, v in zip(channels, values))

    table: list[tuple[str, str, str]] = [
        ("CNN, lazy - feature, test error (points)", "> 0, at all h", each(behind)),
        (f"CNN, averages of {seeds}, lazy - feature, test error (points)", "> 0", each(averaged)),
        (f"CNN, averages of {seeds}, lazy error / feature error", "1.7",
         ", ".join(f"{r:.2f} (h = {h})" for h, r in zip(channels, ratios))),
        *((f"CNN, one network - average of {seeds}, {n}, test error (points)", "> 0", each(gain))
          for n, gain in gains.items()),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, axes = plt.subplots(figsize=(5.5, 4), layout="constrained")
        for i, n in enumerate(REGIMES):
            mean, half = 100 * np.array([interval(wrong[n, h].mean(1)) for h in channels]).T
            axes.errorbar(channels, mean, half, fmt=f"C{i}{'os'[i]}-", label=f"{n}, one network")
            axes.plot(
                channels,
                [100 * average[n, h].mean() for h in channels],
                f"C{i}{'^D'[i]}:",
                label=f"{n}, average of {seeds}",
            )
        in_widths(axes, channels)
        axes.set(xlabel="channels h", ylabel="test error, %; 95 % intervals over seeds")
        axes.legend()

    return finish(out, "feature_learning_in_a_cnn", {
        "channels": channels, "lazy - feature": behind, "averages, lazy - feature": averaged,
        "ratio": [float(r) for r in ratios],
        "gain of averaging": gains, "error": {f"{n}, {h}": tested(v) for (n, h), v in wrong.items()}, "table": table,
    }, draw)  # fmt: skip


if __name__ == "__main__":
    command_line(main, __doc__, "feature_learning_in_a_cnn")
