"""Training: a generator of snapshots, for any model, one network or an ensemble.

One step is  f, J = model.linearize(theta, x);  theta <- optimiser(theta, J' dL/df).  The members of an ensemble are
independent; on the CPU they are shared out over the cores.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, on_host, to_host, to_library
from minintk.losses import Loss, MeanSquared
from minintk.network import Model
from minintk.optimizers import Optimizer
from minintk.threads import cores, parallel


@dataclass(frozen=True)
class Snapshot:
    """The state after `step` steps.

    t : lr x steps, the time of the theory.  theta : ([E], P), a copy.  loss : () or (E,), and f : ([E], B, C), on the
    batch about to be used (all examples where training is full batch).  model : the model, re-anchored where it does
    that.
    """

    step: int
    t: float
    theta: Array
    loss: Array
    f: Array
    model: Model


def train(
    model: Model,
    theta: Array,
    x: Array,
    y: Array,
    *,
    loss: Loss,
    optimizer: Optimizer,
    steps: int,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
    every: int = 1,
    lr_scales: Mapping[str, float] | None = None,
) -> Iterator[Snapshot]:
    """Train a model; yields a snapshot at step 0, then every `every` steps, and at the last.

    theta : (P,) or (E, P), left as it is.  x : (N, *input_shape), y : (N, C).  batch_size : examples a step, drawn
    without replacement epoch by epoch with `rng`; all N unless given.  lr_scales : {tensor name: scale} in place of the
    parametrization's own, 0 freezes a tensor.

    Warns where a full-batch squared loss cannot converge at this learning rate; raises FloatingPointError where the
    loss stops being finite, and ValueError or TypeError for data that do not fit, before the first step.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(64), mn.Tanh(), mn.Dense(1)), (2,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> x, y = np.eye(2), np.array([[1.0], [-1.0]])
    >>> run = train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=1.0), steps=50)
    >>> losses = [float(snap.loss) for snap in run]
    >>> len(losses), losses[-1] < 1e-3 * losses[0]
    (51, True)
    """
    _check(model, theta, x, y, loss, optimizer, steps, batch_size, rng, every)
    xp = array_namespace(theta, x, y)
    scales = model.layout.learning_rate_scales(lr_scales)
    if scales is not None:
        scales = to_library(scales.astype(str(theta.dtype)), xp)
    theta = xp.asarray(theta, copy=True)
    return _train(model, theta, x, y, loss, optimizer, steps, batch_size, rng, every, scales)


def _train(
    model: Model, theta: Array, x: Array, y: Array, loss: Loss, optimizer: Optimizer, steps: int,
    batch_size: int | None, rng: np.random.Generator | None, every: int, scales: Array | None,
) -> Iterator[Snapshot]:  # fmt: skip
    xp = array_namespace(theta)
    parts = _parts(model, theta, batch_size or x.shape[0])
    if batch_size is None and isinstance(loss, MeanSquared):
        _warn_if_unstable(model, theta, x, optimizer, scales, parts)
    gradient, memory = xp.empty_like(theta), optimizer.init(theta)
    batches = _batches(x, y, batch_size, rng)
    patience = 1 if on_host(xp) else 50  # a GPU would stand still for each answer
    for step in range(steps + 1):
        xb, yb = next(batches)
        models = [model] if len(parts) == 1 else [model.members(part) for part in parts]
        shown = step % every == 0 or step == steps
        before = xp.asarray(theta, copy=True) if shown else theta

        def advance(
            i: int, step: int = step, xb: Array = xb, yb: Array = yb, models: list[Model] = models
        ) -> tuple[Array, Array]:
            part = parts[i]
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported once, as an error
                f, J = models[i]._linearize(theta[part], xb)
                value = loss(f, yb)
                if step < steps:
                    J._vjp(loss.cotangent(f, yb), gradient[part])
                    optimizer.step(theta[part], gradient[part], None if memory is None else memory[part], scales)
            return f, value

        results = parallel(advance, range(len(parts)))
        f, value = results[0] if len(parts) == 1 else (xp.concat(list(column)) for column in zip(*results, strict=True))
        if (shown or step % patience == 0) and not bool(xp.all(xp.isfinite(value))):
            raise FloatingPointError(_diverged(step, value, optimizer))
        if shown:
            yield Snapshot(step, optimizer.lr * step, before, value, f, model)
        if step < steps:
            model = model.advance(theta)


CACHE = 12 * 2**20
"""Bytes of activations and parameters that one core works on at a time; less than this is not worth two threads."""


def _parts(model: Model, theta: Array, N: int) -> list[slice]:
    """The ensemble cut into slices, for the cores and for their caches; else all of theta."""
    if theta.ndim == 1 or not on_host(array_namespace(theta)):
        return [slice(None)]
    E, P = theta.shape
    member = theta.dtype.itemsize * (2 * N * model.footprint[0] + 3 * P)
    size = E if E * member <= CACHE else max(1, min(-(-E // cores()), CACHE // member))
    return [slice(i, min(i + size, E)) for i in range(0, E, size)]


def _batches(
    x: Array, y: Array, batch_size: int | None, rng: np.random.Generator | None
) -> Iterator[tuple[Array, Array]]:
    """(x, y) for ever: everything, or mini-batches without replacement; an epoch's smaller rest is left out."""
    N = x.shape[0]
    if batch_size is None or rng is None:
        while True:
            yield x, y
    xp = array_namespace(x)
    while True:
        order = to_library(rng.permutation(N), xp)
        for start in range(0, N - batch_size + 1, batch_size):
            batch = order[start : start + batch_size]
            yield xp.take(x, batch, axis=0), xp.take(y, batch, axis=0)


def _check(
    model: Model, theta: Array, x: Array, y: Array, loss: Loss, optimizer: Optimizer, steps: int,
    batch_size: int | None, rng: np.random.Generator | None, every: int,
) -> None:  # fmt: skip
    """Raise for anything that does not fit, before the first step."""
    if not isinstance(model, Model):
        raise TypeError(f"train expects a model such as mn.Network(...), got {model!r}")
    if not isinstance(loss, Loss):
        raise TypeError(f"loss expects mn.mse or mn.softmax_cross_entropy, got {loss!r}")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer expects an optimiser such as mn.SGD(lr=0.1), got {optimizer!r}")
    model.check(theta, x)
    if x.shape[0] == 0:
        raise ValueError("x expects at least one example, got none")
    check_finite("theta", theta)
    array_namespace(theta, x, y)
    loss.check(y, (x.shape[0], model.outputs))
    if y.dtype != theta.dtype:
        raise TypeError(f"y must have the dtype of theta, {theta.dtype}, got {y.dtype}: y.astype(theta.dtype)")
    for name, value, low in (("steps", steps, 0), ("every", every, 1), ("batch_size", batch_size, 1)):
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < low):
            raise ValueError(f"{name} expects a whole number >= {low}, got {value!r}")
    if batch_size is not None and batch_size > x.shape[0]:
        raise ValueError(f"batch_size expects at most the {x.shape[0]} examples there are, got {batch_size}")
    if batch_size is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(f"mini-batches are drawn with rng=numpy.random.default_rng(seed), got {rng!r}")


def _warn_if_unstable(
    model: Model, theta: Array, x: Array, optimizer: Optimizer, scales: Array | None, parts: list[slice]
) -> None:
    """Warn where lr > 2 (1 + momentum) N / lambda_max of the tangent kernel at the start: descent cannot settle."""
    worst = max(parallel(lambda part: _largest_eigenvalue(model.members(part), theta[part], x, scales), parts))
    bound = 2 * (1 + getattr(optimizer, "momentum", 0.0)) * x.shape[0] / worst if worst > 0 else float("inf")
    if optimizer.lr > bound:
        warnings.warn(
            f"learning rate {optimizer.lr:g} is above the stability bound {bound:.4g}: 2 (1 + momentum) N / lambda_max"
            " of the tangent kernel at the start: the linearised network diverges, choose a smaller lr",
            RuntimeWarning,
            stacklevel=3,
        )


def _largest_eigenvalue(model: Model, theta: Array, x: Array, scales: Array | None) -> float:
    """lambda_max of J S J', S the learning-rate scales, of the worst member; 0 where it is not finite.

    That of the tridiagonal matrix of eight Lanczos steps: within a few per cent, from below, so that a warning is never
    a false alarm for the linearised network.
    """
    xp = array_namespace(theta)
    N, C = x.shape[0], model.outputs
    start = np.cos(np.arange(N * C) ** 2).reshape((N, C))  # without the symmetries a network may have
    alphas, betas = [], []
    with np.errstate(over="ignore", invalid="ignore"):
        f, J = model._linearize(theta, x)
        q, last = xp.zeros_like(f) + to_library(start.astype(str(f.dtype)), xp), xp.zeros_like(f)
        for _ in range(8):
            beta = xp.sqrt(xp.sum(q * q, axis=(-2, -1), keepdims=True))
            q = q / xp.where(beta > 0, beta, xp.ones_like(beta))  # q = 0: nothing of the kernel is left
            g = J.vjp(q)
            if scales is not None:
                g *= scales
            v = J._jvp(g)
            alpha = xp.sum(q * v, axis=(-2, -1), keepdims=True)
            last, q = q, v - alpha * q - beta * last
            alphas.append(alpha)
            betas.append(beta)
    diagonals, beside = (to_host(xp.stack(k)).reshape((len(k), -1)).T.astype(np.float64) for k in (alphas, betas))
    if not np.isfinite(diagonals).all():
        return 0.0  # the first step of training reports it
    return max(float(np.linalg.eigvalsh(np.diag(a) + np.diag(b[1:], -1))[-1]) for a, b in zip(diagonals, beside))


def _diverged(step: int, value: Array, optimizer: Optimizer) -> str:
    """The message for a loss that stopped being finite."""
    xp = array_namespace(value)
    who = ""
    if value.ndim:
        bad = [i for i in range(value.shape[0]) if not bool(xp.isfinite(value[i]))]
        who = f" of member{'s' if len(bad) > 1 else ''} {', '.join(map(str, bad[:8]))}{' ...' if len(bad) > 8 else ''}"
    return (
        f"training diverged: the loss{who} is no longer finite at step {step}; "
        f"choose a learning rate below {optimizer.lr:g}"
    )
