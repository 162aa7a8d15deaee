"""Provide linearised training in windows and bounds on its rate, for iterative_linearisation.py.

A window of K steps from theta_0 moves theta by -lr J' sum_j L'(f_j), where f_j are the linear model's outputs.  To
first order in the gradient g this is -A g with A = (1 - (1 - lr G)^K) / G, where G is the Gauss-Newton curvature.  A
window is therefore a step of descent in another metric.  Training can fail in one way with short windows and in another
with long ones.  `along_the_path` measures a bound for each case along the path of gradient descent at a low rate.

Short windows   Steps along the top direction grow unless lr lambda < `IterativelyLinearized.reach`, which is 2 for
                even K.  Here lambda is the largest curvature on the path.  In a LeNet with PyTorch's initial weights,
                lambda is about 100 times the initial curvature.  The growth takes many windows, so a single window
                that starts on the path does not show it.
Long windows    After a time K lr the linear model leaves the region in which it is valid, and a window no longer
                lowers the network's own loss.  The length of the longest window that lowers the loss from every point
                falls as 1 / lr.

Training should succeed if K and the rate satisfy both bounds.  Neither bound applies to K = 1, which moves to flatter
points if lr lambda > 2 (edge of stability).  Inside a window no such move is possible, because the curvature is frozen.
The bounds do not apply to K = infinity either, because this training never reaches the curvature of the path.  Training
with K = 1 or K = infinity therefore converges at rates at which finite K > 1 diverges.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from math import ceil, inf
from typing import Any

import numpy as np
from common import images, lenet, placed, right

import minintk as mn
from minintk.arrays import array_namespace

ROWS, LONGEST, POINTS, TEST = 2000, 2**14, 8, 500
"""The largest number of rows of J for which J J' is stored, the length of the longest window to test, the number of
points on a curve, and the number of test images."""
CrossEntropy = mn.softmax_cross_entropy


def problem(data: str, n_train: int, channels: int, seed: int) -> tuple[mn.Network, mn.Array, tuple[mn.Array, ...]]:
    """Return the network, theta0 : (P,), and (x, y, x_test, y_test)."""
    train, test = images(data, n_train, TEST)
    arrays = placed(*train.standardise().one_hot(), *test.standardise(fit=train).one_hot())
    shape = train.x.shape[1:]
    spec = lenet(shape, 1) if data == "digits" else mn.zoo.lenet(channels)
    net = mn.Network(spec, shape, mn.PyTorch())
    return net, placed(net.init(np.random.default_rng(seed), dtype=np.float32))[0], arrays


class Window:
    """The linearisation at theta0, trained on cross-entropy from theta0.

    The current weights are theta, and the current outputs are f.
    """

    def __init__(self, net: mn.Network, theta0: mn.Array, x: mn.Array, y: mn.Array) -> None:
        self.theta0 = self.theta = theta0
        self.f, self.J = net.linearize(theta0, x)
        self.y = y
        self.gram: mn.Array | None = None

    def product(self, u: mn.Array, often: bool = True) -> mn.Array:
        """Return J J' u. If J J' is small and used often, store it as a Gram matrix."""
        if self.gram is None and often and u.size <= ROWS:
            self.gram = self.J.gram().reshape((u.size, u.size))
        return self.J.jvp(self.J.vjp(u)) if self.gram is None else (self.gram @ u.reshape(-1)).reshape(u.shape)

    def step(self, lr: float, steps: int, last: bool = False) -> None:
        """Take `steps` steps of gradient descent. Raise FloatingPointError if f or theta overflows.

        last : True if f is not needed after the last step.
        """
        total, xp = 0 * self.f, array_namespace(self.f)
        for i in range(steps):
            u = CrossEntropy.cotangent(self.f, self.y)
            if not bool(xp.all(xp.isfinite(u))):
                raise FloatingPointError("the outputs are no longer finite")
            total += u
            if not (last and i == steps - 1):
                self.f = self.f - lr * self.product(u, steps > 5)
        self.theta = self.theta - lr * self.J.vjp(total)
        if not bool(xp.all(xp.isfinite(self.theta))):
            raise FloatingPointError("the weights are no longer finite")

    def curvature(self) -> float:
        """Return lambda_max of J' L'' J, computed by power iteration on L'' J J'."""
        xp = array_namespace(self.f)
        p = xp.exp(self.f - xp.max(self.f, axis=-1, keepdims=True))
        p, v, size = p / xp.sum(p, axis=-1, keepdims=True), CrossEntropy.cotangent(self.f, self.y), 0.0
        for _ in range(30):
            v = self.product(v / xp.sqrt(xp.sum(v * v)))
            v = p * (v - xp.sum(p * v, axis=-1, keepdims=True)) / len(p)
            size = float(xp.sqrt(xp.sum(v * v)))
        return size


def descend(
    net: mn.Network, theta: mn.Array, x: mn.Array, y: mn.Array, lr: float, K: float, steps: int
) -> Iterator[Window]:
    """Train for `steps` steps, rounded up to whole windows, and yield each window after its last step.

    With K = inf there is a single window, which is yielded at most 20 times, at equal intervals.
    """
    part = int(K) if inf > K else ceil(steps / 20)
    window = None
    for _ in range(0, steps, part):
        if window is None or inf > K:
            window = Window(net, theta, x, y)
        window.step(lr, part, last=inf > K)
        theta = window.theta
        yield window


@np.errstate(over="ignore", invalid="ignore")  # FloatingPointError reports divergence
def along_the_path(
    data: str, n_train: int, channels: int, t: float, low: float, rates: int, seed: int
) -> dict[str, Any]:
    """Return the curvatures on gradient descent's path at rate `low`, and the longest window for each rate `low` 2^r.

    The longest window is the largest 2^k up to LONGEST steps that lowers the loss from every tested point, or 0.
    """
    net, theta, (x, y, *_) = problem(data, min(n_train, 200), channels, seed)
    steps = ceil(t / low)
    curvature, allowed = [], [LONGEST] * rates

    def loss(theta: mn.Array) -> float:
        return float(CrossEntropy(net(theta, x), y))

    for i, window in enumerate(descend(net, theta, x, y, low, 1, steps)):
        if i % max(1, steps // (2 * POINTS)):
            continue
        start = Window(net, window.theta0, x, y)
        curvature.append(start.curvature())
        for r in range(rates):
            trial, longest = copy(start), 0
            while longest < allowed[r]:
                trial.step(low * 2**r, max(1, longest))
                if not loss(trial.theta) < loss(start.theta0):
                    break
                longest = max(1, 2 * longest)
            allowed[r] = longest
    return {"curvature": curvature, "longest": allowed}


def beside_it(data: str, n_train: int, channels: int, t: float, lr: float, seed: int) -> dict[str, Any]:
    """Return SGD's final test accuracy, and test accuracies of two relinearisation rules, averaged over training.

    One rule is adaptive. The other has a fixed K and about the same number of windows.
    """
    net, theta, (x, y, x_test, y_test) = problem(data, n_train, channels, seed)
    steps, every = ceil(t / lr), None
    how: dict[str, Any] = {"loss": CrossEntropy, "optimizer": mn.SGD(lr), "steps": steps}
    *_, sgd = mn.train(net, theta, x, y, **how, batch_size=10, rng=np.random.default_rng(seed), every=steps)
    found = {"sgd": float(right(net, sgd.theta, x_test, y_test).mean())}
    for name in ("adaptive", "fixed"):
        model = mn.IterativelyLinearized(net, theta, mn.Moved(0.5, x[:20]) if every is None else every)
        snaps = list(mn.train(model, theta, x, y, **how, every=ceil(steps / POINTS)))
        found[name] = float(np.mean([right(s.model, s.theta, x_test, y_test).mean() for s in snaps]))
        found[f"{name}, linearised"] = n = int(getattr(snaps[-1].model, "linearizations", 1))
        every = max(1, steps // n)
    return found
