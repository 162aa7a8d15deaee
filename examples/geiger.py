"""Shared parts of the scripts on Geiger et al. 2020: digits, networks, training, exponents.

The model is alpha (f(theta) - f(theta_0)), its loss 1/(alpha^2 N) sum hinge; s = sqrt(h) alpha separates feature
learning, s << 1, from lazy learning, s >> 1.  Momentum flow with tau = t/1000, until the loss of every network is
exactly zero.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import sqrt
from multiprocessing import get_context
from typing import Any

import common
import numpy as np
from common import Source, images, interval

import minintk as mn
from minintk.arrays import to_host

SOFTPLUS = mn.Softplus(beta=5.0, scale=1.404383)
"""Pre-activations of variance 1 at initialisation, as in the paper."""
FEATURE, LAZY = 0.1, 100.0
"""Exponents of the feature regime are fitted where s <= FEATURE, those of the lazy one where s >= LAZY."""
HIGH = {"laptop": 0.04, "paper": 0.01}
"""No step changes an output by more; .04 takes half as many steps as the paper's .01, and changes no number by 1 %."""


def digits(data: Source, n_train: int, n_test: int, scale: str) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """(x, y) for training and testing: the first 10 principal components, each of variance 1; y = 1 for even digits.

    `n_train` of the 8 x 8 digits; 5,000 of MNIST at the paper's scale.  ValueError for photographs.
    """
    if scale == "paper" and data is None:
        raise ValueError("--scale paper takes 5,000 digits of MNIST: give their folder with --data DIR")
    train, test = images(data, 5000 if scale == "paper" else n_train, 10_000 if data else n_test)
    return train.pca(10).parity(), test.pca(10, fit=train).parity()


def network(width: int, depth: int, activation: mn.spec.Layer = SOFTPLUS) -> mn.Network:
    """`depth` hidden layers on 10 inputs, one output; biases start at zero; ReLU between weights of variance 2."""
    gain = sqrt(2) if isinstance(activation, mn.ReLU) else 1.0
    layers: list[mn.spec.Layer] = []
    for i in range(depth):
        layers += [mn.Dense(width, w_std=gain if i else 1.0, b_std=1.0, b_init="zeros"), activation]
    return mn.Network(mn.Sequential(*layers, mn.Dense(1, w_std=gain, b_std=1.0, b_init="zeros")), (10,))


@dataclass(frozen=True, eq=False)
class Run:
    """E networks after training: the model alpha (f - f_0), theta (E, P), t (T,) and the losses at t, (T, E)."""

    model: mn.Centred
    theta: mn.Array
    t: np.ndarray[Any, Any]
    loss: np.ndarray[Any, Any]


def trained(
    net: mn.Network, theta0: mn.Array, alpha: float, x: mn.Array, y: mn.Array, *, high: float = 0.04, half: bool = False
) -> Run:
    """Momentum flow until every loss is zero; `half`: only until every loss has halved.

    RuntimeError if a network has not learned all its digits by t = 1e7, thousands of times later than usual.
    """
    model, loss, times = mn.Centred(net, theta0, alpha), mn.Hinge(alpha), np.geomspace(1e-6, 1e7, 325)
    t, losses = [], []
    for moment in mn.flow(model, theta0, x, y, loss=loss, times=times, mu=1000.0, by=mn.Steps(high=high)):
        t.append(moment.t)
        losses.append(to_host(moment.loss).astype(float))
        if moment.ended or (half and np.all(losses[-1] < losses[0] / 2)):
            assert moment.theta is not None
            return Run(model, moment.theta, np.array(t), np.array(losses))
    raise RuntimeError(f"{net!r} is too narrow for {len(x)} digits: some are still not learned at t = 1e7")


def on_all_cores(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """[f(*arguments) for f, arguments in calls], with one process per core."""
    if common._workers == 1:
        return [f(*arguments) for f, arguments in calls]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes to come
    with ProcessPoolExecutor(common._workers, mp_context=get_context("spawn")) as pool:
        return [running.result() for running in [pool.submit(f, *arguments) for f, arguments in calls]]


def exponent(x: Sequence[float], values: Any, where: Any = None) -> tuple[float, float]:
    """The slope of log v in log x, v : (K, E), at the x selected by `where`: mean over seeds, and half a 95 % interval.

    Each seed is fitted separately, because the values of one seed are correlated.

    >>> exponent([1, 10, 100], np.array([[1, 1], [20, 5], [400, 25]]))[0].__round__(12)
    1.0
    """
    keep = np.ones(len(x), bool) if where is None else np.asarray(where)
    slopes = np.polyfit(np.log(np.asarray(x, float)[keep]), np.log(np.asarray(values, float)[keep]), 1)[0]
    return interval(slopes)


def spread(f: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Each network's contribution to Var f, (E,); their mean is the unbiased variance, eq. (7)."""
    return np.asarray(len(f) / (len(f) - 1) * ((f - f.mean(0)) ** 2).mean(1))


def plus(value: tuple[float, float], digits: int = 2) -> str:
    """A number and its half-width."""
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def drawn(axes: Any, x: Any, values: Any, label: str, colour: str, style: str = "") -> None:
    """Geometric means over seeds, values : (K, E), with their 95 % intervals, on logarithmic axes.

    colour : "C0", "C1", ..., each with a marker of its own.
    """
    style = style or "os^Dv"[int(colour[1:]) % 5] + "-"
    mean, half = np.array([interval(np.log(v)) for v in values]).T
    reach = np.exp(mean) - np.exp(mean - half), np.exp(mean + half) - np.exp(mean)
    axes.errorbar(x, np.exp(mean), reach, fmt=style, color=colour, capsize=2, ms=3, lw=1, label=label)
    axes.set(xscale="log", yscale="log")


def in_widths(axes: Any, widths: Sequence[int]) -> None:
    """A logarithmic x axis with ticks at the widths."""
    axes.set(xscale="log", xlabel="width h")
    axes.set_xticks(widths, map(str, widths))
    axes.set_xticks([], minor=True)


def guide(axes: Any, x: Any, through: tuple[float, float], power: float, label: str) -> None:
    """The theory's line v = v_0 (x / x_0)^power over the given x."""
    x = np.asarray(x, float)
    axes.plot(x, through[1] * (x / through[0]) ** power, "k--", lw=0.9, label=label)
