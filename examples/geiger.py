"""Define the tasks, networks, gradient flows and exponent fits that the scripts on Geiger et al. 2020 share.

The model is alpha (f(theta) - f(theta_0)) for a network f of width h.  The loss is the mean hinge loss divided by
alpha^2.  The parameter s = sqrt(h) alpha separates feature learning (s << 1) from lazy learning (s >> 1).  Training is
a momentum flow with tau = t/1000.  Training ends when every network's loss is exactly zero, or when the outputs have
reached a given size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt
from typing import Any

import numpy as np
from common import Measured, images, interval, placed

import minintk as mn
from minintk.arrays import array_namespace

Host = np.ndarray[Any, Any]
Task = tuple[tuple[Host, Host], tuple[Host, Host]]

SOFTPLUS = mn.Softplus(beta=5.0, scale=1.404383)
"""Softplus with a scale at which initial pre-activations have variance 1, as in the paper."""
STEPS = mn.Steps(high=0.05, early=0.005)
"""Larger steps than the default, which is the paper's choice.  Training takes about a quarter as many steps.  The error
of the time at which the loss halves is 2 % instead of 0.6 %, and the error of the kernel's change is 1 %."""
FEATURE, LAZY = 0.1, 100.0
"""Exponents of the feature regime are fitted at s <= FEATURE, and exponents of the lazy regime at s >= LAZY."""


@lru_cache(maxsize=4)
def task(data: str, n_train: int, n_test: int, dtype: str = "float32") -> Task:
    """Return training and test pairs (x, y), where x is (N, 10).  Equal calls can return the same arrays.

    data : "sparse", "digits" or "mnist".  For "sparse", y = sign(x_1 x_2) with normal x.  No linear function of x
    predicts this y, and only two of ten directions matter.  For "digits" and "mnist", x contains the first 10 principal
    components, with variance 1, and y is 1 for even digits and -1 for odd digits.
    """
    if data == "sparse":
        x = np.random.default_rng(0).standard_normal((n_train + n_test, 10)).astype(dtype)
        y = np.sign(x[:, :1] * x[:, 1:2])
        return (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])
    train, test = images(data, n_train, n_test)
    (x, y), (x_test, y_test) = train.pca(10).parity(), test.pca(10, fit=train).parity()
    return (x.astype(dtype), y.astype(dtype)), (x_test.astype(dtype), y_test.astype(dtype))


def network(width: int, depth: int, activation: mn.spec.Layer = SOFTPLUS) -> mn.Network:
    """Build a network with 10 inputs, `depth` hidden layers and one output.

    Biases start at zero.  Weights that follow a ReLU have w_std = sqrt(2).
    """
    gain = sqrt(2) if isinstance(activation, mn.ReLU) else 1.0
    layers: list[mn.spec.Layer] = []
    for i in range(depth):
        layers += [mn.Dense(width, w_std=gain if i else 1.0, b_std=1.0, b_init="zeros"), activation]
    return mn.Network(mn.Sequential(*layers, mn.Dense(1, w_std=gain, b_std=1.0, b_init="zeros")), (10,))


def start(net: mn.Network, seeds: Sequence[int], dtype: Any = np.float32) -> mn.Array:
    """Draw initial weights (E, P), one network per seed, on the device selected by --device."""
    return placed(np.stack([net.init(np.random.default_rng(seed), dtype=dtype) for seed in seeds]))[0]


@dataclass(frozen=True)
class UntilOutput(mn.Loss):
    """A hinge loss with scale alpha. A network's loss is zero once the rms of its outputs has reached `size`."""

    alpha: float
    size: float = 1.0
    ends = True

    def __call__(self, f: mn.Array, y: mn.Array) -> mn.Array:
        xp = array_namespace(f, y)
        small = xp.mean(xp.square(f), axis=(-2, -1)) < self.size**2
        return mn.Hinge(self.alpha)(f, y) * small.astype(f.dtype)

    def cotangent(self, f: mn.Array, y: mn.Array) -> mn.Array:
        return mn.Hinge(self.alpha).cotangent(f, y)


def flowing(
    net: mn.Network, theta0: mn.Array, s: float, x: mn.Array, y: mn.Array, *, until: float | None = None,
    times: Any = 1e7, by: mn.Steps = STEPS,
) -> Iterator[mn.Moment]:  # fmt: skip
    """Train F = alpha (f - f_0) with alpha = s / sqrt(h) by momentum flow, and yield its `Moment`s.

    The flow ends when the loss is zero, or when the rms of F has reached `until`.
    """
    alpha = s / sqrt(net.layout.tensors[-2].shape[0])
    loss = mn.Hinge(alpha) if until is None else UntilOutput(alpha, until)
    return mn.flow(mn.Centred(net, theta0, alpha), theta0, x, y, loss=loss, times=times, mu=1000.0, by=by)


def trained(
    net: mn.Network, theta0: mn.Array, s: float, x: mn.Array, y: mn.Array, **how: Any
) -> tuple[mn.Centred, Any]:
    """Train by momentum flow, and return the model and the final theta (E, P).

    Raise FloatingPointError if the flow has not ended by its last time, 1e7 by default.
    """
    *_, end = flowing(net, theta0, s, x, y, **how)
    if not end.ended:
        raise FloatingPointError(f"{net!r} is too narrow for {len(x)} examples: some are not learned at t = 1e7")
    assert end.theta is not None
    return mn.Centred(net, theta0, s / sqrt(net.layout.tensors[-2].shape[0])), end.theta


def frozen(model: mn.Centred, theta: mn.Array, x: mn.Array, y: mn.Array, x_test: mn.Array) -> mn.Array:
    """Train from f = 0 with the model's kernel frozen at theta, and return f on the test set, (E, M, 1)."""
    xp = array_namespace(x)
    K = mn.ntk(model, theta, xp.concat([x, x_test]), x)
    f0 = xp.zeros((*K.shape[:-1], 1), dtype=K.dtype)
    *_, end = mn.kernel_flow(K, f0, y, loss=mn.Hinge(model.alpha), times=inf, mu=1000.0, by=STEPS)
    return end.f[:, len(x) :]


def exponent(x: Any, values: Any, where: Any = None) -> Measured:
    """Fit log v against log x at the points `where`; return the mean slope over seeds and its interval's half-width.

    values : (K, E) values v at K points for E seeds. Each seed is fitted separately, because the values of one seed are
    correlated.

    >>> exponent([1, 10, 100], np.array([[1, 1], [20, 5], [400, 25]]))[0].__round__(12)
    1.0
    """
    keep = np.ones(len(x), bool) if where is None else np.asarray(where)
    slopes = np.polyfit(np.log(np.asarray(x, float)[keep]), np.log(np.asarray(values, float)[keep]), 1)[0]
    return interval(slopes)


def by_decade(x: Any, values: Any) -> list[Measured]:
    """Return the slopes of log v against log x between neighbouring points, in the form that `exponent` returns."""
    return [exponent(x[i : i + 2], values[i : i + 2]) for i in range(len(x) - 1)]


def drawn(axes: Any, x: Any, values: Any, label: str, colour: str, style: str = "") -> None:
    """Plot geometric means over seeds, with 95 % intervals, on logarithmic axes.

    values : (K, E) values at K points for E seeds.
    colour : a Matplotlib colour such as "C0".
    """
    style = style or "os^Dv"[int(colour[1:]) % 5] + "-"
    mean, half = np.array([interval(np.log(v))[:2] for v in values]).T
    reach = np.exp(mean) - np.exp(mean - half), np.exp(mean + half) - np.exp(mean)
    axes.errorbar(x, np.exp(mean), reach, fmt=style, color=colour, capsize=2, ms=3, lw=1, label=label)
    axes.set(xscale="log", yscale="log")


def in_widths(axes: Any, widths: Sequence[int]) -> None:
    """Make the x axis logarithmic, with ticks at the widths."""
    axes.set(xscale="log", xlabel="width h")
    axes.set_xticks(widths, map(str, widths))
    axes.set_xticks([], minor=True)


def guide(axes: Any, x: Any, through: tuple[float, float], power: float, label: str) -> None:
    """Plot the power law v = v_0 (x / x_0)^power through the point (x_0, v_0) over the given x."""
    x = np.asarray(x, float)
    axes.plot(x, through[1] * (x / through[0]) ** power, "k--", lw=0.9, label=label)
