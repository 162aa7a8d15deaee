"""AlexNet against its linearisation, reduced: deeper, with a larger gap than LeNet (Samarin et al. 2022, figure 5).

    python3 make.py python examples/reduced_alexnet.py [--out DIR] [--data DIR --set cifar10]

Five convolutions and three fully connected layers with an eighth of AlexNet's channels, for small images.  The network
and its linearisation at the network's rate, and the linearisation at ten times that rate, which suits it better, as in
the paper; all runs start from the same weights and see the same batches.  On the easy 8 x 8 digits the gap narrows with
width; the paper's, on photographs of snakes, hardly does.

The initialisation.  PyTorch's divides the signal by sqrt(6) in each of eight layers; the network then needs thousands
of steps to leave its plateau (here it does not within 15 epochs on 1,500 digits), which is too long for a laptop.  So
the weights have variance 1 / fan-in, and the rates are 1/50 and 1/5 of the largest stable one.

Laptop: the 8 x 8 digits; with --data --set cifar10, 2,000 photographs.  --scale paper: all of CIFAR-10, half of
AlexNet's channels and more.  (The paper's own images, ten kinds of snake from ImageNet, are not free to use here.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, images, percent, placed, right, stable_rate, tested

import minintk as mn

SQRT3 = 3**0.5
"""w_std that makes PyTorch's uniform weights, of variance 1 / (3 fan-in), ones of variance 1 / fan-in."""
RUNS = (("AlexNet", False, 1), ("LinAlexNet", True, 1), ("LinAlexNet, 10 x rate", True, 10))
"""Name, whether linearised, and the multiple of the rate."""


def alexnet(shape: tuple[int, ...], width: float) -> mn.Sequential:
    """AlexNet with `width` / 8 of its channels; 3 x 3 windows, on larger images a first one of 5 x 5 with stride 2."""
    small = shape[0] == 8

    def conv(channels: int, size: int = 3, stride: int = 1) -> tuple[mn.spec.Layer, ...]:
        return mn.Conv2d(int(channels * width) // 8, size, stride=stride, b_std=1.0, w_std=SQRT3), mn.ReLU()

    first = conv(64) if small else conv(64, 5, 2)
    features = (*first, mn.MaxPool(2), *conv(192), mn.MaxPool(2), *conv(384), *conv(256), *conv(256), mn.MaxPool(2))
    dense = [layer for _ in range(2) for layer in (mn.Dense(int(512 * width) // 8, b_std=1.0, w_std=SQRT3), mn.ReLU())]
    return mn.Sequential(*features, mn.Flatten(), *dense, mn.Dense(10, b_std=1.0))


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[float, ...] = (1, 2, 4),
    n_train: int = 1500, epochs: int = 15, seeds: int = 2,
) -> Found:  # fmt: skip
    """Test and training accuracy of the three runs at each width; draws them."""
    if data:
        widths, n_train, epochs, seeds = ((4, 8, 16), 50_000, 100, 5) if scale == "paper" else (widths, 2000, 20, 1)
    train, test = images(data, n_train, 10_000 if scale == "paper" else 2000)
    host = (*train.standardise().one_hot(), *test.standardise(fit=train).one_hot())
    scores: dict[str, list[Any]] = {name: [] for name, *_ in RUNS}
    found: Found = {"widths": widths, "stable rate": [], "train": {name: [] for name in scores}}
    for width in widths:
        x, y, x_test, y_test = placed(scale, *host)
        net = mn.Network(alexnet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
        theta0 = placed(scale, net.init(np.random.default_rng(int(8 * width)), ensemble=seeds, dtype=np.float32))[0]
        stable = stable_rate(net, theta0[0], x[:100])
        found["stable rate"].append(stable)
        for name, linear, faster in RUNS:
            run = mn.fit(
                mn.Linearized(net, theta0) if linear else net, theta0, x, y, loss=mn.sum_of_squares, epochs=epochs,
                batch_size=32, rng=np.random.default_rng(0),
                optimizer=mn.SGD(lr=stable / 50 * faster, momentum=0.9, weight_decay=5e-6),
            )  # fmt: skip
            scores[name].append(right(run.model, run.theta, x_test, y_test))
            found["train"][name].append(float(np.mean(run.history.last["accuracy"])))
    found |= {name: [tested(s) for s in each] for name, each in scores.items()}
    where = f"{'8 x 8 digits' if data is None else data[0]}, {len(host[0])} images"
    found["table"] = []
    for (name, *_), said in zip(RUNS[1:], ("more than 20 at every width", "20.4 at x1, 18.56 at x4")):
        gaps = [tested(a - b) for a, b in zip(scores["AlexNet"], scores[name])]
        ours = ", ".join(f"{percent(gap)} (x{w:g})" for w, gap in zip(widths, gaps))
        found["table"].append((f"AlexNet - {name}, test, {where} (points)", said, ours))

    def draw(plt: Any) -> None:
        _, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        for (name, *_), style in zip(RUNS, ("o-", "s-", "^-")):
            mean, half = 100 * np.array(found[name]).T
            axes.errorbar(widths, mean, half, fmt=style, capsize=3, label=f"{name}, test")
            axes.plot(widths, 100 * np.array(found["train"][name]), style[0] + ":", color="0.7")
        axes.plot([], [], "k:", alpha=0.4, label="training")
        axes.set(xlabel="width factor", ylabel="accuracy, %; 95 % intervals", xscale="log", title=where)
        axes.set_xticks(widths, map(str, widths))
        axes.legend()

    return finish(out, "reduced_alexnet", found, draw)


if __name__ == "__main__":
    command_line(main, __doc__, "reduced_alexnet")
