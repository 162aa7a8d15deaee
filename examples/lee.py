"""Define the data, networks, training runs, closed forms and exponent fits that the scripts on Lee et al. 2019 share.

The paper defines the loss as the sum L = 1/2 sum ||f - y||^2, but its figures show means.  Training at the rates of
these figures is stable only for means.  On 128 digits of MNIST this sum allows rates up to .005, but figure 1 uses a
rate of 1.  Here eta is the learning rate for the mean over N examples and C outputs, 1/(2 N C) sum ||f - y||^2, as in
the authors' own library.  `mn.mse` averages only over the examples.  Therefore lr = eta / C, and the corresponding rate
for the paper's sum is lr / N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from common import Measured, images, placed
from resuming import collected

import analytic as an
import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import power_law
from minintk.training.checkpoints import fingerprint

Host = np.ndarray[Any, Any]

HE, TANH = 2**0.5, 1.5**0.5
"""The w_std of the paper's ReLU and tanh networks."""


@lru_cache(maxsize=8)
def problem(data: str, task: str, n_train: int, n_test: int, seed: int = 0) -> tuple[Host, Host, Host, Host]:
    """Return (x, y, x_test, y_test) in float64, with images as standardised vectors.

    task : "classes" or "binary". The ten outputs of "classes" have the target 9/10 for the correct class and -1/10 for
    the others. The targets of "binary" are +-1 for the parity of digits, or for horses against aeroplanes in CIFAR-10.

    Calls with equal arguments can return the same arrays.
    """
    if data == "cifar10" and task == "binary":
        rng = np.random.default_rng(seed)
        sets = [part.pair("horse", "airplane") for part in images(data, 10**9, 10**9)]
        train, test = (part.subset(min(n, len(part)), rng) for part, n in zip(sets, (n_train, n_test)))
        ends = [part.binary(0, 1) for part in (train.standardise(), test.standardise(fit=train))]
    else:
        train, test = images(data, n_train, n_test, seed)
        both = train.standardise(), test.standardise(fit=train)
        ends = [part.parity() if task == "binary" else part.one_hot(zero_mean=True) for part in both]
    (x, y), (x_test, y_test) = [(x.reshape(len(x), -1).astype(float), y.astype(float)) for x, y in ends]
    return x, y, x_test, y_test


def spec(phi: str, depth: int, width: int, outputs: int = 1, b_std: float = 0.0) -> mn.Sequential:
    """Build a network with `depth` hidden layers. sigma_w^2 is 2 for phi = "relu" and 1.5 for phi = "tanh"."""
    activation, w_std = (mn.ReLU(), HE) if phi == "relu" else (mn.Tanh(), TANH)
    return mn.zoo.mlp(depth, width, outputs, activation=activation, w_std=w_std, b_std=b_std)


def start(net: mn.Network, seeds: Sequence[int], dtype: Any = np.float32) -> Any:
    """Draw initial weights (E, P), one network per seed, on the device selected by --device."""
    return placed(np.stack([net.init(np.random.default_rng(seed), dtype=dtype) for seed in seeds]))[0]


def like(theta: Any, *arrays: Host) -> tuple[Any, ...]:
    """Copy host arrays to the device of theta, in its dtype."""
    return placed(*(a.astype(str(theta.dtype)) for a in arrays))


def double(theta: Any) -> Any:
    """Convert theta to float64 on its device."""
    return placed(to_host(theta).astype(np.float64))[0]


def outputs(model: mn.Model, theta: Any, x: Host) -> Host:
    """Return f(x) on the host, computed on theta's device and in its dtype."""
    return to_host(model(theta, *like(theta, x)))


def distance(theta: Any, theta0: Any) -> Host:
    """Return |theta - theta_0|, (E,), on the host."""
    return to_host(((theta - theta0) ** 2).sum(-1)) ** 0.5


def powers(steps: int, base: int = 2) -> list[int]:
    """Return the list [0, 1, base, base^2, ..., steps].

    >>> powers(10)
    [0, 1, 2, 4, 8, 10]
    """
    found, step = [0], 1
    while step < steps:
        found.append(step)
        step *= base
    return [*found, steps]


def at_steps(
    model: mn.Model, theta0: Any, x: Any, y: Any, lr: float, steps: Sequence[int], read: Callable[[mn.Snapshot], Any],
    **options: Any,
) -> list[Any]:  # fmt: skip
    """Train by full-batch descent on `mn.mse`, and collect read(snapshot) after each of the ascending `steps`.

    Training uses the dtype of theta0.
    """
    x, y = like(theta0, x, y)
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=lr), **options}

    def run(resume: Any) -> Iterator[mn.Snapshot]:
        return mn.train(model, theta0, x, y, steps=steps[-1], resume=resume, **how)

    name = fingerprint(model, theta0, x, y, **how)
    rows = collected(run, lambda snap: [read(snap)] if snap.step in steps else [], theta0, name, list(steps))
    return [found for row in rows for found in row]


def linearised(net: mn.Network, theta0: Any, x: Any, y: Any, points: Any, lr: float, steps: Sequence[int]) -> Host:
    """Return f_lin (T, len(points), C), the outputs of the linearisation at theta0 (P,) after each of T `steps`.

    The outputs follow from eqs. (9) to (11), with powers of I - lr Theta / N in place of the exponential.
    """
    theta0 = double(theta0)
    x, y, points = like(theta0, x, y, points)
    k, k_test = mn.ntk_full(net, theta0, x), mn.ntk_full(net, theta0, points, x)
    descent = an.gradient_descent(k, y, lr=lr)
    return to_host(descent.predict(np.array(steps), k_test, f0=net(theta0, x), f0_test=net(theta0, points)))


def rms(a: Any, axis: Any = None) -> Any:
    """Return the root mean square along `axis`."""
    return np.sqrt(np.mean(np.square(a), axis=axis))


def exponent(widths: Sequence[float], values: Any) -> Measured:
    """Fit the power law v ~ width^b to values (widths, seeds); return b with the half-width of its 95 % interval."""
    values = list(np.asarray(values))
    fit = power_law(widths, values)
    return Measured(fit.exponent, float(np.ptp(fit.interval)) / 2, df=sum(len(v) - 1 for v in values))


def words(fit: Measured) -> str:
    """Format an exponent with its 95 % interval."""
    return span(fit.mean, fit.mean - fit.half, fit.mean + fit.half)


def span(value: float, low: float, high: float) -> str:
    """Format a number with its interval."""
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def widths_axis(panel: Any, widths: Sequence[int]) -> None:
    """Make the x axis logarithmic, with ticks at the widths."""
    panel.set(xscale="log", xlabel="width n")
    panel.set_xticks(widths, map(str, widths))
    if panel.get_yscale() == "log":
        panel.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
        panel.yaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
