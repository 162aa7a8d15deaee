"""Train a network and its linearisation side by side, and measure how far apart they move.

    gap(t) = |f_t - f_lin,t| / max_s |f_lin,s - f_0|        on all examples and outputs; a run's gap is its maximum

Both models start at theta_0 and train with the same full batches, loss and rate.  The linearisation is f_lin = f_0 +
J(theta_0) (theta - theta_0) (Lee et al. 2019, eq. 5).  Other distances are relative to the start: |Theta_t - Theta_0| /
|Theta_0| (the maximum) and, at the end T, |h_T - h_0| / |h_0| of layers' inputs and |w_T - w_0| / |w_0| of tensors.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from minintk.arrays import Array, Host, to_host
from minintk.diagnostics.curvature import max_learning_rate, sharpness
from minintk.diagnostics.kernel_over_time import KernelPath, kernel_over_time
from minintk.diagnostics.kernels import relative_distance, weight_movement
from minintk.diagnostics.layer_io import trace
from minintk.models.network import Network
from minintk.models.wrappers import Linearized
from minintk.spec.shapes import UnsupportedLayer
from minintk.training.losses import Loss
from minintk.training.optimizers import SGD
from minintk.training.train import Snapshot, train

POINTS, RTOL = 20, 1e-2
"""A run keeps a snapshot every steps // POINTS steps (at least 1).  RTOL is the relative tolerance of eigenvalues."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A network at theta : (P,) that is trained on x : (N, *input_shape) and y : (N, C) with full batches."""

    net: Network
    theta: Array
    x: Array
    y: Array
    loss: Loss

    def stable_rate(self, theta: Array | None = None) -> float:
        """Return 2 / lambda_max(J S J' L''), L'' = d2L/df2, the stability bound of the model linearised at theta."""
        at = self.theta if theta is None else theta
        return max_learning_rate(self.net, at, self.x, self.loss, y=self.y, rtol=RTOL)

    def sharpness(self, theta: Array) -> float:
        """Return the largest eigenvalue of the loss's Hessian, or 2 / `stable_rate` if it is not available."""
        try:
            return sharpness(self.net, theta, self.x, self.y, loss=self.loss, rtol=RTOL)
        except (UnsupportedLayer, RuntimeError):
            return 2 / self.stable_rate(theta)


@dataclass(frozen=True, eq=False)
class Run:
    """The measurements of one run.

    steps, loss, loss_linear, gap : (S,).  learned : max |f_lin - f_0| / |y - f_0|.  diverged : True if a loss was not
    finite or ended above ten times its start.  If so, or if the kernel or y y' is constant, the rest is empty.
    at : (K,), steps at which kernels and rates 2/lambda_max of J S J' L'' were measured.  sharpness : at start and end.
    """

    steps: Host
    loss: Host
    loss_linear: Host
    gap: Host
    learned: float
    diverged: bool
    at: Host = field(default_factory=lambda: np.zeros(0))
    rates: Host = field(default_factory=lambda: np.zeros(0))
    sharpness: tuple[float, ...] = ()
    kernel: KernelPath | None = None
    features: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)


def parted(problem: Problem, lr: float, steps: int) -> tuple[Run, list[Snapshot]]:
    """Train the network and its linearisation; return a `Run` with losses and gaps, and the network's snapshots."""
    models, every = (problem.net, Linearized(problem.net, problem.theta)), max(1, steps // POINTS)
    snaps, rows, diverged, first = list[Snapshot](), list[tuple[float, ...]](), False, np.zeros(1)
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # the report describes rates that are too large
        start, loss, sgd = (problem.theta, problem.x, problem.y), problem.loss, SGD(lr)
        try:
            for one, lin in zip(*(train(model, *start, loss=loss, optimizer=sgd, steps=steps) for model in models)):
                f, f_lin = (to_host(snap.f).astype(np.float64) for snap in (one, lin))
                first = first if rows else f
                apart, moved = (float(np.linalg.norm(a)) for a in (f - f_lin, f_lin - first))
                rows.append((float(one.loss), float(lin.loss), apart, moved))
                snaps += [one] if one.step % every == 0 or one.step == steps else []
        except FloatingPointError:
            diverged = True
    value, linear, away, come = np.array(rows or [(np.inf, np.inf, 0.0, 0.0)]).T  # the first loss can overflow
    far, wanted = max(come.max(), 1e-300), max(float(np.linalg.norm(to_host(problem.y) - first)), 1e-300)
    diverged |= any(a[-1] > 10 * abs(a[0]) for a in (value, linear))
    return Run(np.arange(len(value)), value, linear, away / far, far / wanted, diverged), snaps


def full_run(problem: Problem, lr: float, steps: int, start: float, *, points: int, hessian: bool) -> Run:
    """Train the network and its linearisation; measure the fields of `Run`, kernels and rates at up to `points` steps.

    start : the stable rate at initialisation.  hessian : False to skip the sharpness.
    """
    run, snaps = parted(problem, lr, steps)
    if run.diverged:
        return run
    net, x, end = problem.net, problem.x, snaps[-1].theta
    at = [snaps[i] for i in sorted({round(i) for i in np.linspace(0, len(snaps) - 1, points)})]
    try:
        kernel = kernel_over_time(net, at, x, problem.y, k=min(10, x.shape[0]))
    except ValueError:  # a constant kernel has no alignment, as when only biases learn
        return run
    rates = np.array([start, *(problem.stable_rate(s.theta) for s in at[1:])])
    sharp = tuple(problem.sharpness(theta) for theta in (problem.theta, end)) if hessian else ()
    weights = {name: float(to_host(a)) for name, a in weight_movement(net, problem.theta, end).items()}
    return replace(
        run, at=np.array([s.step for s in at]), rates=rates, sharpness=sharp, kernel=kernel, weights=weights,
        features=moved_features(net, problem.theta, end, x),
    )  # fmt: skip


def moved_features(net: Network, theta0: Array, theta: Array, x: Array) -> dict[str, float]:
    """Return |h_T - h_0| / |h_0| for the input h of each layer with weights, except the first."""
    before, after = trace(net, theta0, x), trace(net, theta, x)
    pairs = {name: [to_host(seen[name].x).reshape(len(x), -1) for seen in (after, before)] for name in list(before)[1:]}
    return {name: float(relative_distance(a, b)) for name, (a, b) in pairs.items()}
