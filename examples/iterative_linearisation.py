"""Iterative linearisation: a network whose features are updated only every K steps.

    python3 make.py python examples/iterative_linearisation.py [--out DIR] [--data DIR --set mnist|cifar10]

Gradient descent on the linearisation of a network, linearised again every K steps: K = 1 is the network itself, K =
infinity never learns features (Iterative linearised training, 2022, algorithm 1, figures 1 and 2).  Full batches, with
softmax cross-entropy outside the linearisation.  Every finite K ends where the network ends, K = infinity does not.  At
each linearisation the accuracy drops, because the last step was right only for the old one, and then recovers.

Laptop: the 8 x 8 digits, two hidden layers; with --data, a LeNet on 300 images.  --scale paper: all images, LeNet with
50 channels, and the paper's rate of 1e-5 interpreted as that of a loss summed over the examples (README.md says why).
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, images, interval, placed, right

import minintk as mn
from minintk.arrays import to_host

PERIODS = (1, 10, 100, 1000, inf)


def problem(
    data: Source, scale: str, width: int, n_train: int, seeds: int
) -> tuple[mn.Network, mn.Array, tuple[mn.Array, ...]]:
    """The network, its initial weights (E, P), and (x, y, x_test, y_test)."""
    train, test = images(data, 60_000 if scale == "paper" else 300 if data else n_train, 10_000 if data else 797)
    if data:
        train, test = train.standardise(), test.standardise(fit=train)
        spec = mn.zoo.lenet(50 if scale == "paper" else 6)
    else:
        train, test = train.flat(), test.flat()
        hidden = [layer for _ in range(2) for layer in (mn.Dense(width, b_std=1.0), mn.ReLU())]
        spec = mn.Sequential(*hidden, mn.Dense(10, b_std=1.0))
    net = mn.Network(spec, train.x.shape[1:], mn.PyTorch())
    theta0: mn.Array = net.init(np.random.default_rng(0), ensemble=seeds, dtype=np.float32)
    theta0, *arrays = placed(scale, theta0, *train.one_hot(), *test.one_hot())
    return net, theta0, tuple(arrays)


def curve(
    model: mn.IterativelyLinearized, theta0: mn.Array, arrays: tuple[mn.Array, ...], lr: float, steps: int, every: int
) -> dict[str, Any]:
    """Test accuracy (E,) every `every` steps; if K >= every, also just before the features are updated."""
    x, y, x_test, y_test = arrays
    run = mn.train(
        model, theta0, x, y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=lr), steps=steps, every=every
    )
    step, before, after = [], [], []
    count: Any = 1.0
    old: mn.Model = model
    slow = isinstance(model.every, (int, float)) and model.every >= every
    try:
        for snap in run:
            step.append(snap.step)
            after.append(right(snap.model, snap.theta, x_test, y_test).mean(-1))
            before.append(right(old, snap.theta, x_test, y_test).mean(-1) if slow else after[-1])
            old, count = snap.model, getattr(snap.model, "linearizations", count)
    except FloatingPointError:  # the linearisation left its region of validity
        after[-1] = before[-1] = np.full(len(theta0), nan)
    return {"step": step, "before": before, "after": after, "linearizations": float(np.mean(to_host(count)))}


def against_fixed(
    net: mn.Network, theta0: mn.Array, arrays: tuple[mn.Array, ...], lr: float, steps: int, every: int, fraction: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Curves of the adaptive rule, and of the fixed period with as many linearisations (or at most one more)."""
    rule = mn.Moved(fraction, arrays[0][:100])
    adaptive = curve(mn.IterativelyLinearized(net, theta0, rule), theta0, arrays, lr, steps, every)
    K = max(1, int(steps / adaptive["linearizations"]))
    return adaptive, curve(mn.IterativelyLinearized(net, theta0, K), theta0, arrays, lr, steps, every)


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", periods: tuple[float, ...] = PERIODS,
    width: int = 64, n_train: int = 600, steps: int = 6000, every: int = 100, lr: float = 0.03, seeds: int = 5,
    fraction: float = 0.5,
) -> Found:  # fmt: skip
    """Final accuracy and the drop at each linearisation for every K; draws the curves."""
    net, theta0, arrays = problem(data, scale, width, n_train, seeds if data is None else 1)
    if data:
        steps, lr = (20_000, 1e-5 * len(arrays[0])) if scale == "paper" else (2000, 0.03)
    curves = {
        K: curve(mn.IterativelyLinearized(net, theta0, K), theta0, arrays, lr, steps, every) for K in periods
    }  # fmt: skip
    end = {K: c["before"][-1] for K, c in curves.items()}
    adaptive, fixed = against_fixed(net, theta0, arrays, lr, steps, every, fraction)
    better = interval(np.mean(adaptive["after"], axis=0) - np.mean(fixed["after"], axis=0))
    gaps = {K: interval(np.asarray(end[1]) - np.asarray(end[K])) for K in periods}
    drops = {
        K: [interval(np.subtract(b, a)) for s, b, a in zip(c["step"], c["before"], c["after"]) if s and s % K == 0]
        for K, c in curves.items()
        if every <= K < inf
    }  # fmt: skip
    finite = {K: gap for K, gap in gaps.items() if 1 < K < inf}
    worst = max(finite, key=lambda K: abs(finite[K][0]))
    table = [
        ("K <= 1000 ends where gradient descent ends (points)", "within 0.4 (MNIST)",
         f"K = {worst:g} is farthest off: {_points(finite[worst])}"),
        ("K = infinity ends below (points)", "visibly below (figure 1)", _points(gaps[inf])),
        (f"adaptive against fixed, {adaptive['linearizations']:.1f} and {fixed['linearizations']:.1f} linearisations:"
         " mean over training (points)", "asked for", _points(better)),
        *((f"drop at the first renewal, K = {K:g} (points)", "-", _points(d[0])) for K, d in drops.items() if d),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        for i, (K, c) in enumerate(curves.items()):
            steps_twice = np.repeat(c["step"], 2)
            a = 100 * np.stack([c["before"], c["after"]], axis=1).reshape((len(steps_twice), -1))
            low, high = (np.quantile(a, q, axis=1) for q in (0, 1))
            axes.plot(steps_twice, a.mean(1), f"C{i}", lw=1, label=f"K = {'∞' if inf == K else int(K)}")
            axes.fill_between(steps_twice, low, high, color=f"C{i}", alpha=0.2, lw=0)
        axes.axhline(100 * np.mean(end[1]), color="k", ls=":", lw=0.8, label="gradient descent, at the end")
        axes.set(xlabel=f"step of size {lr:g}", ylabel="test accuracy, %", title="mean and range over seeds")
        axes.legend()

    return finish(out, "iterative_linearisation", {
        "accuracy": {str(K): interval(a) for K, a in end.items()},
        "behind gradient descent": {str(K): g for K, g in gaps.items()},
        "drops": {str(K): d for K, d in drops.items()},
        "adaptive against fixed": better, "linearisations": [adaptive["linearizations"], fixed["linearizations"]],
        "table": table,
    }, draw)  # fmt: skip


def _points(value: tuple[float, float]) -> str:
    return f"{100 * value[0]:.2f} ± {100 * value[1]:.2f}"


if __name__ == "__main__":
    command_line(main, __doc__, "iterative_linearisation")
