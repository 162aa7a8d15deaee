"""Train networks of one width, and measure their kernels and their distance from the theory.

Networks and their kernels use float32; linearised networks and all errors use float64.  Rounding changes errors by a
relative 1e-5, or by up to 2e-2 if a ReLU unit switches one step early.  Both are far below the errors' scatter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.training.dynamics import gradient_descent
from analytic.training.gp import Ensemble
from analytic.verify.problem import Problem
from minintk import spec as s
from minintk.arrays import Host, on_host, to_host, to_library
from minintk.cores import cores
from minintk.diagnostics import relative_distance, weight_movement
from minintk.lab.experiments.layer_sizes import initial_thetas
from minintk.models.empirical import nngp, ntk
from minintk.models.network import Network
from minintk.models.wrappers import Linearized
from minintk.threads import parallel, single_threaded_blas
from minintk.training.losses import mse
from minintk.training.optimizers import SGD
from minintk.training.train import train

DTYPE = np.float32


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """Measurements of networks of one width during training, on all A points, starting with the training set.

    f : (T, E, A), outputs after steps : (T,).  ntk0, ntk : (E, A, A) at the start and at the end.  nngp0 : (E, A, A),
    the kernel of the last hidden layer's initial pre-activations.  movement : {tensor: (E,)}, |W - W_0| / |W_0|.
    """

    steps: Host
    f: Host
    ntk0: Host
    ntk: Host
    nngp0: Host
    movement: dict[str, Host]


def trained_networks(
    net: Network,
    problem: Problem,
    xp: Any,
    members: int,
    rng: np.random.Generator,
    *,
    lr: float,
    steps: int,
    every: int,
    advance: Callable[[float], None] = lambda share: None,
) -> Trajectory:
    """Draw `members` networks and train them by full-batch gradient descent on L = 1/(2N) sum (f - y)^2.

    xp : array library for training.  every : steps between snapshots.  advance : called with each share of the work.
    """
    x, y, points = (to_library(a.astype(DTYPE), xp) for a in (problem.x, problem.y, problem.points))
    trunk, parts = hidden_part(net), []
    for theta0 in initial_thetas(net, x, rng, members):
        f, at = [], []
        with single_threaded_blas():  # products are small, so threads run over members instead
            ntk0 = _by_member(xp, lambda theta: ntk(net, theta, points), theta0)
            nngp0 = _by_member(xp, lambda theta: nngp(trunk, theta[:, : trunk.size], points), theta0)
            for snap in train(net, theta0, x, y, loss=mse, optimizer=SGD(lr=lr), steps=steps, every=every):
                f.append(_by_member(xp, lambda theta: net(theta, points)[..., 0], snap.theta))
                at.append(snap.step)
                advance(len(theta0) / members * min(every, snap.step) / steps)
            ntkT = _by_member(xp, lambda theta: ntk(net, theta, points), snap.theta)
        movement = {name: _host(a) for name, a in weight_movement(net, theta0, snap.theta).items()}
        parts.append(Trajectory(np.array(at), np.stack(f), ntk0, ntkT, nngp0, movement))
    return _concatenated(parts)


def _by_member(xp: Any, work: Callable[[Any], Any], theta: Any) -> Host:
    """Return work(theta) as float64 on the host; theta : (E, P) is split over the cores, or stays whole on a GPU."""
    E = len(theta)
    size = -(-E // cores()) if on_host(xp) else E
    return np.concatenate(parallel(lambda i: _host(work(theta[i : i + size])), range(0, E, size)))


def hidden_part(net: Network) -> Network:
    """Return the network up to the last hidden layer's pre-activations.  Its theta is the first part of net's theta."""
    return Network(s.Sequential(*net.spec.layers[:-2]), net.input_shape, net.parametrization)


def _host(a: Any) -> Host:
    return to_host(a).astype(np.float64)


def _concatenated(parts: list[Trajectory]) -> Trajectory:
    """Join the trajectories of groups of members into one trajectory of all members."""
    movement = {name: np.concatenate([p.movement[name] for p in parts]) for name in parts[0].movement}
    f = np.concatenate([p.f for p in parts], axis=1)
    ntk0, ntkT, nngp0 = (np.concatenate([getattr(p, a) for p in parts]) for a in ("ntk0", "ntk", "nngp0"))
    return Trajectory(parts[0].steps, f, ntk0, ntkT, nngp0, movement)


def descend(ntk: Host, y: Host, f0: Host, steps: Host, lr: float) -> Host:
    """Return f_t on all points, (T, A), of gradient descent with a constant kernel (cf. Lee et al. 2019, eqs. 9 to 11).

    ntk : (A, N), of all points with the N training points, which come first.  y : (N, 1).  f0 : (A,), initial outputs.
    """
    N = len(y)
    return gradient_descent(ntk[:N], y, lr=lr).predict(steps, ntk, f0=f0[:N, None], f0_test=f0[:, None])[..., 0]


def errors(run: Trajectory, theory: Ensemble, hidden_nngp: Host, n_test: int) -> dict[str, Host]:
    """Return {claim: (E,)}, distances whose scaling the theory predicts.  For outputs, these are suprema of RMS errors.

    theory : an ensemble with the kernels of all points.  hidden_nngp : (A, A), the last hidden layer's analytic NNGP.
    """
    N, Theta = len(theory.y), theory.of("ntk")(np.arange(run.f.shape[-1]))
    seen = slice(N + n_test)  # omits the arc, which is only for figures
    train_set, test_set = slice(N), slice(N, N + n_test)
    k0, kT, nngp0 = (k[:, seen, seen] for k in (run.ntk0, run.ntk, run.nngp0))
    found: dict[str, Any] = {
        "ntk": relative_distance(k0, Theta[None, seen, seen]),
        "nngp": relative_distance(nngp0, hidden_nngp[None, seen, seen]),
        "kernel movement": relative_distance(kT, k0),
    }
    weights = [name for name in run.movement if name.endswith(".W")]
    places = {"input weights": weights[:1], "hidden weights": weights[1:-1], "output weights": weights[-1:]}
    for claim, names in places.items():
        if names:
            found[claim] = np.sqrt(np.mean([run.movement[name] ** 2 for name in names], axis=0))
    for claim, kernel_of in (("linearisation", lambda e: run.ntk0[e]), ("infinite width", lambda e: Theta)):
        members = range(run.f.shape[1])
        each = [descend(kernel_of(e)[:, :N], theory.y, run.f[0, e], run.steps, theory.lr) for e in members]
        predicted = np.stack(each, axis=1)
        for where, which in (("train", train_set), ("test", test_set)):
            distance = np.sqrt(np.mean((run.f - predicted)[..., which] ** 2, axis=-1))  # (T, E)
            found[f"{claim}, {where}"] = distance.max(axis=0)
    return found


def linearised_training_error(
    net: Network, problem: Problem, xp: Any, rng: np.random.Generator, *, lr: float, steps: int, every: int
) -> float:
    """Train a `Linearized` network and return max |f - f_closed| / max |f_closed|.   f_closed : from `descend`."""
    theta0 = to_library(net.init(rng), xp)
    x, y, points = (to_library(a, xp) for a in (problem.x, problem.y, problem.points))
    model = Linearized(net, theta0)
    snaps = train(model, theta0, x, y, loss=mse, optimizer=SGD(lr=lr), steps=steps, every=every)
    found = [(snap.step, _host(model(snap.theta, points))[..., 0]) for snap in snaps]
    at, f = np.array([step for step, _ in found]), np.stack([f for _, f in found])
    closed = descend(_host(ntk(net, theta0, points, x)), problem.y, f[0], at, lr)
    return float(np.abs(f - closed).max() / np.abs(closed).max())
