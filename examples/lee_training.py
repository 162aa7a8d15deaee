"""Train networks and their linearisations in the same way, for the scripts on the deep networks of Lee et al. 2019.

The losses in the paper's figures are means over the examples.  The authors' public code also averages over the C
outputs: its losses are 0.5 * mean((f - y)^2) and -mean(y * log_softmax(f)).  `mn.mse` and `mn.softmax_cross_entropy`
average over the examples but sum over the outputs.  The paper's rate eta therefore corresponds to lr = eta / C here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from common import images, interval, placed, plus
from lee import HE, rms, widths_axis
from resuming import collected

import analytic as an
import minintk as mn
from minintk.arrays import to_host
from minintk.training.checkpoints import fingerprint

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]
Pairs = tuple[Pair, Pair]
CLASSES = 10


@lru_cache(maxsize=2)
def ten_classes(data: str, n_train: int, n_test: int, *, flat: bool = False, zero_mean: bool = False) -> Pairs:
    """Return training and test pairs (images, one-hot labels) in float32.

    The standardised images are (N, H, W, C), or (N, d) if `flat`. With zero_mean=True, the labels are 9/10 for the
    correct class and -1/10 for the others. The last two results are cached: do not modify them.
    """
    train, test = images(data, n_train, n_test)
    sets = [part.one_hot(zero_mean=zero_mean) for part in (train.standardise(), test.standardise(fit=train))]
    first, second = [(x.reshape(len(x), -1) if flat else x, y) for x, y in sets]
    return first, second


def two_layers(width: int, shape: tuple[int, ...]) -> mn.Network:
    """Build the paper's network for ten digits: two hidden ReLU layers, sigma_w^2 = 2, sigma_b^2 = .1."""
    return mn.Network(mn.zoo.mlp(2, width, CLASSES, activation=mn.ReLU(), w_std=HE, b_std=0.1**0.5), shape)


def marks(steps: int, number: int = 9) -> list[int]:
    """Return up to `number` steps from 1 to `steps` that are evenly spaced on a logarithmic axis."""
    return sorted({round(step) for step in np.geomspace(1, steps, number)})


def outputs(model: mn.Model, theta: mn.Array, x: mn.Array, batch: int = 100) -> Array:
    """Return f(x) on the host, computed batch by batch."""
    return np.concatenate([to_host(model(theta, x[i : i + batch])) for i in range(0, len(x), batch)])


def trained(
    model: mn.Model, theta0: mn.Array, train: tuple[mn.Array, mn.Array], x_test: mn.Array, at: Sequence[int], *,
    loss: mn.Loss, optimizer: mn.SGD, batch: int | None = None, seed: int = 0,
) -> tuple[Array, Array]:  # fmt: skip
    """Train; return the losses of all batches, (at[-1] + 1,), and f(x_test) after the steps `at`, (len(at), M, C)."""
    how: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "batch_size": batch}

    def run(resume: Any) -> Iterator[mn.Snapshot]:
        return mn.train(
            model, theta0, *train, steps=at[-1], rng=np.random.default_rng(seed), resume=resume, **how
        )  # fmt: skip

    def read(snap: mn.Snapshot) -> tuple[float, Any]:
        return float(snap.loss), outputs(snap.model, snap.theta, x_test) if snap.step in at else None

    name = fingerprint(model, theta0, *train, **how, seed=seed, at=list(at))
    losses, f = zip(*collected(run, read, theta0, name))
    return np.array(losses), np.array([each for each in f if each is not None])


def side_by_side(
    net: mn.Network, train: Pair, test: Pair, at: Sequence[int], *,
    loss: mn.Loss, lr: float, momentum: float, batch: int | None, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Train a network and its linearisation at the initial weights, both on the same batches.

    Return a dictionary. After each of the steps `at`, "distance" is rms (f - f_lin), "moved" is rms (f_lin - f_0), and
    "size" is rms f_lin. "accuracy" and "lin accuracy" are the test accuracies of the two models. "f" and "lin f" are
    outputs at one test point. "loss" and "lin loss" are means over the batches since the previous step in `at`.
    """
    theta0, x_test, x, y = placed(net.init(np.random.default_rng(seed), dtype=np.float32), test[0], *train)
    optimizer = mn.SGD(lr, momentum=momentum)
    how: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "batch": batch, "seed": seed}
    (l_net, f), (l_lin, g) = (
        trained(model, theta0, (x, y), x_test, at, **how) for model in (net, mn.Linearized(net, theta0))
    )
    means = [[float(v[a:b].mean()) for a, b in zip([0, *at], at)] for v in (l_net, l_lin)]
    right = [(h.argmax(-1) == test[1].argmax(-1)).mean(1).tolist() for h in (f, g)]
    sizes = {"distance": f - g, "moved": g - outputs(net, theta0, x_test), "size": g}
    return {
        **{name: rms(a, (1, 2)).tolist() for name, a in sizes.items()}, "loss": means[0], "lin loss": means[1],
        "accuracy": right[0], "lin accuracy": right[1], "f": f[:, 0].tolist(), "lin f": g[:, 0].tolist(),
    }  # fmt: skip


class Frozen:
    """A float64 network with two hidden layers, its initial kernel on `n` training images and predictions from kernels.

    kernel : (M, C, N, C) initial kernel between all points (training points first) and the training points.
    limit : (M, N) infinite-width kernel between the same points.
    bound : the largest stable rate of heavy-ball descent on `mn.mse` with this momentum.
    """

    def __init__(self, data: str, width: int, n: int, seed: int, momentum: float, *, zero_mean: bool) -> None:
        train, test = ten_classes(data, n, 100, flat=True, zero_mean=zero_mean)
        x, y, x_test = (a.astype(float) for a in (*train, test[0]))
        self.net, rng = two_layers(width, x.shape[1:]), np.random.default_rng(seed)
        self.theta0, self.x, y_on, self.x_test = placed(self.net.init(rng), x, y, x_test)
        self.train, self.y, both = (self.x, y_on), y, placed(np.concatenate([x, x_test]))[0]
        self.f0 = to_host(self.net(self.theta0, both))
        self.kernel = to_host(mn.ntk_full(self.net, self.theta0, both, self.x))
        self.limit = to_host(an.kernel(self.net.spec).ntk(both, self.x))
        self.bound = an.max_learning_rate(self.kernel[:n], momentum)

    def trained(
        self,
        model: mn.Model,
        at: Sequence[int],
        loss: mn.Loss,
        lr: float,
        momentum: float = 0.0,
        batch: int | None = None,
    ) -> Array:
        """Train the model on full batches or mini-batches (seed 0) and return its test outputs after the steps `at`."""
        how: dict[str, Any] = {"loss": loss, "optimizer": mn.SGD(lr, momentum=momentum), "batch": batch}
        return trained(model, self.theta0, self.train, self.x_test, at, **how)[1]

    def closed(self, kernel: Array, at: Sequence[int], lr: float, momentum: float = 0.0) -> Array:
        """Return the test outputs after the steps `at` of gradient descent on `mn.mse`, in closed form.

        kernel : (M, N) or (M, C, N, C).
        """
        n = len(self.x)
        form = an.gradient_descent(kernel[:n], self.y, lr=lr, momentum=momentum)
        return np.asarray(form.predict(np.array(at), kernel[n:], f0=self.f0[:n], f0_test=self.f0[n:]))

    def flow(self, kernel: Array, times: Sequence[float] | Array, loss: mn.Loss, tau: float | None = None) -> Array:
        """Solve the differential equation of training with this kernel, and return the test outputs at `times`."""
        run = mn.kernel_flow(kernel, self.f0, self.y, loss=loss, times=times, tau=tau, by=mn.Solver())
        return np.stack([moment.f[len(self.x) :] for moment in run][1:])


def by_width(widths: Sequence[int], values: Array, digits: int = 3) -> str:
    """Format the mean over seeds, its interval and, in brackets, the width, for each width.

    values : (widths, seeds).
    """
    return ", ".join(f"{plus(interval(v), digits)} ({n})" for n, v in zip(widths, values))


def against_width(panel: Any, widths: Sequence[int], values: Array, label: str, mark: str = "o") -> None:
    """Plot geometric means and intervals over seeds, and a line with the slope -1/2 of theorem 2.1.

    values : (widths, seeds).
    """
    mean, half = np.array([interval(np.log(v))[:2] for v in values]).T
    ends = np.exp(mean) * abs(np.exp([-half, half]) - 1)
    line = panel.errorbar(widths, np.exp(mean), ends, fmt=mark, capsize=3, label=label)
    bound = np.exp((np.log(values).mean(1) + np.log(widths) / 2).mean()) * np.array(widths, float) ** -0.5
    panel.plot(widths, bound, "--", color=line[0].get_color(), label=None if mark != "o" else "$n^{-1/2}$, the bound")
    panel.set_yscale("log")
    widths_axis(panel, widths)
    panel.legend()
