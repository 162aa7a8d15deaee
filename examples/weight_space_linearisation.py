"""Reproduce a notebook of neural-tangents that trains a network and its linearisation on the same batches.

    python3 make.py python examples/weight_space_linearisation.py [--data DIR] [--out FILE.png]

A network with one hidden erf layer of width 512 is trained for five epochs with momentum 0.9 and cross-entropy.  The
training data are the packaged digits in batches of 32, or with --data, as in the notebook, MNIST in batches of 128.
The notebook's loss is a mean over examples and ten outputs, whereas our loss averages only over the examples.  The
notebook's rate of 1 is therefore 0.1 here, and our losses are divided by ten.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn

Array = np.ndarray[Any, Any]
THEIRS = (
    (0.2529, 0.0750, 0.0498, 0.0585, 0.0514, 0.0446, 0.0408),
    (0.2529, 0.0759, 0.0513, 0.0595, 0.0530, 0.0467, 0.0423),
)
"""The notebook's losses on MNIST, on batches 0, 390, 780, ..., for the network and for its linearisation."""


def examples(data: str | None) -> tuple[Array, Array]:
    """Return images with mean 0 and variance 1, and one-hot labels, in float32."""
    given = mn.datasets.digits() if data is None else mn.datasets.mnist(data, "train", dtype=np.float32)
    x, y = given.one_hot()
    return ((x - x.mean()) / x.std()).astype(np.float32), y.astype(np.float32)


def main(out: str | None = None, data: str | None = None, width: int = 512, epochs: int = 5) -> dict[str, float]:
    """Return both models' losses per output at seven steps, and the ratio of their mean losses over the last tenth."""
    x, y = examples(data)
    size = 128 if data else 32
    spec = mn.Sequential(mn.Dense(width, b_std=0.05), mn.Erf(), mn.Dense(10, b_std=0.05))
    net = mn.Network(spec, x.shape[1:])
    theta0 = net.init(np.random.default_rng(0), dtype=np.float32)
    steps = epochs * (len(x) // size)
    every = 390 if data else steps // 6
    losses, parts = dict[str, list[float]](), 10
    for name, model in (("network", net), ("linearised", mn.Linearized(net, theta0))):
        how: dict[str, Any] = {"loss": mn.softmax_cross_entropy, "optimizer": mn.SGD(0.1, momentum=0.9)}
        run = mn.train(model, theta0, x, y, **how, steps=steps, batch_size=size, rng=np.random.default_rng(1))
        losses[name] = [float(snap.loss) / parts for snap in run]
    shown = list(range(0, steps, every))[:7]
    found = {f"{name}, step {step}": losses[name][step] for step in shown for name in losses}
    window = max(1, steps // 10)
    late = [float(np.mean(values[-window:])) for values in losses.values()]
    found["last tenth, linearised over network"] = late[1] / late[0]
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, axes = plt.subplots(layout="constrained")
        for i, (name, values) in enumerate(losses.items()):
            cut = np.array(values[: len(values) // window * window]).reshape(-1, window)
            middle = (np.arange(len(cut)) + 0.5) * window
            axes.errorbar(
                middle, cut.mean(1), cut.std(1), fmt=f"C{i}-", capsize=3, label=f"{name}, mean of {window} batches"
            )
            if data:
                axes.plot(shown, THEIRS[i][: len(shown)], f"C{i}x", label=f"neural-tangents, {name}, one batch")
        axes.set(xlabel="step", ylabel="cross-entropy per output, mean and spread of batches", yscale="log")
        axes.legend(fontsize=8)
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of MNIST's files")
    parser.add_argument("--out", default="weight_space_linearisation.png", help="the figure (%(default)s)")
    given = parser.parse_args()
    for name, value in main(given.out, given.data).items():
        print(f"{name:40} {value:.4f}")
    if given.data:
        print("neural-tangents, network   ", *THEIRS[0])
        print("neural-tangents, linearised", *THEIRS[1])
