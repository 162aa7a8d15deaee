"""Check hand-written backpropagation against finite differences, then train a digit classifier with it.

    python3 make.py python examples/backprop_by_hand.py [--out FILE.png]

One backward pass computes the gradient of a loss L, grad L = J' dL/df.  The script compares <grad L, v> with the
central difference (L(theta + h v) - L(theta - h v)) / 2h along random directions v.  As h decreases, the error must
fall as h^2 until rounding errors of size eps / h dominate (eps is the machine precision).  SGD with the same backward
pass then trains a 64-256-256-10 network on 1,500 digits, and the network is tested on the other 297 digits.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn


def gradient_error(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the step sizes h and, for each h, the median relative error of the central difference."""
    rng = np.random.default_rng(seed)
    x, y = mn.datasets.digits().subset(32, rng).one_hot()
    net = mn.Network(SPEC, x.shape[1:])
    theta = net.init(rng)
    f, J = net.linearize(theta, x)
    gradient = J.vjp(mn.softmax_cross_entropy.cotangent(f, y))

    def L(theta: mn.Array) -> float:
        return float(mn.softmax_cross_entropy(net(theta, x), y))

    steps = 10.0 ** np.arange(-8, 1)
    errors = []
    for _ in range(8):
        v = rng.standard_normal(net.size)
        exact = float(gradient @ v)
        errors.append([abs((L(theta + h * v) - L(theta - h * v)) / (2 * h) - exact) / abs(exact) for h in steps])
    return steps, np.median(errors, axis=0)


SPEC = mn.Sequential(
    mn.Dense(256, w_std=1.5, b_std=0.1), mn.Tanh(),
    mn.Dense(256, w_std=1.5, b_std=0.1), mn.Tanh(),
    mn.Dense(10),
)  # fmt: skip


def accuracy_while_training(steps: int = 600, seed: int = 0) -> dict[int, tuple[float, float]]:
    """Train with mini-batches and momentum, and return {step: (training accuracy, test accuracy)}."""
    rng = np.random.default_rng(seed)
    train, test = mn.datasets.digits().split(1500, 297, rng)
    (x, y), (x_test, y_test) = train.one_hot(), test.one_hot()
    net = mn.Network(SPEC, x.shape[1:])

    def correct(theta: mn.Array, x: mn.Array, y: mn.Array) -> float:
        return float(np.mean(net(theta, x).argmax(-1) == y.argmax(-1)))

    run = mn.train(
        net, net.init(rng), x, y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=1.0, momentum=0.9),
        steps=steps, batch_size=100, rng=rng, every=max(1, steps // 30),
    )  # fmt: skip
    return {snap.step: (correct(snap.theta, x, y), correct(snap.theta, x_test, y_test)) for snap in run}


def main(out: str | None = None, steps: int = 600) -> dict[str, float]:
    """Return the smallest gradient error and the final accuracies, and save a plot to `out` if it is given."""
    h, error = gradient_error()
    history = accuracy_while_training(steps)
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
        left.loglog(h, error, "o-", label="measured, median of 8 directions")
        left.loglog(h, error[-3] * (h / h[-3]) ** 2, "k--", label="theory: truncation, $h^2$")
        left.loglog(h, np.finfo(float).eps / h, "k:", label="theory: rounding, $\\varepsilon/h$")
        left.set(xlabel="step h", ylabel="relative error of the gradient", ylim=(1e-13, 10))
        right.plot(list(history), [100 * a for a, _ in history.values()], "o-", ms=3, label="1,500 training digits")
        right.plot(list(history), [100 * b for _, b in history.values()], "s-", ms=3, label="297 test digits")
        right.set(xlabel="step", ylabel="accuracy, %", ylim=(0, 101))
        left.legend(), right.legend()
        figure.savefig(out, dpi=120)
    train_accuracy, test_accuracy = history[steps]
    return {"gradient error": float(error.min()), "train accuracy": train_accuracy, "test accuracy": test_accuracy}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="backprop_by_hand.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:16} {value:.4g}")
