"""Losses and optimisers: a cotangent without its 1/N, a softmax that overflows, a step that changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from minintk.grade.compare import Diagnosis, Finding
from minintk.grade.gradient import check_gradient
from minintk.grade.suspects import Said, Values

UPHILL, LARGE = "it goes uphill: the sign of the step is wrong", 1e4


def check_loss(
    loss: Callable[[Any, Any], Any],
    cotangent: Callable[[Any, Any], Any] | None = None,
    f: Values | None = None,
    y: Values | None = None,
) -> Diagnosis:
    """Whether cotangent(f, y) is dL/df of loss(f, y), and both are finite for large outputs.

    cotangent : by default the loss's own method, as `minintk.training.losses.Loss` has it.  f, y : outputs and targets,
    (N, C); by default random ones for five examples of three classes.  Both must be finite for outputs of size 1e4:
    exp(1e4) is not, unless the largest is taken off first.

    >>> import minintk as mn
    >>> check_loss(mn.softmax_cross_entropy).passed
    True
    >>> print(check_loss(mn.mse, lambda f, y: f - y))
    cotangent: right but for a factor 5 = N: a sum where a mean belongs
    """
    rng = np.random.default_rng(0)
    f = rng.standard_normal((5, 3)) if f is None else f
    y = np.eye(f.shape[-1])[rng.integers(f.shape[-1], size=f.shape[0])] if y is None else y
    slope: Callable[[Any, Any], Any] = cotangent or loss.cotangent  # type: ignore[attr-defined]
    said = check_gradient(
        lambda f, y: np.asarray(loss(f, y)), lambda u, f, y: (u * slope(f, y), None), (f, y), wrt=[0], hard=False
    )
    found = [dataclasses.replace(one, where=one.where.replace("df", "cotangent")) for one in said.findings]
    with np.errstate(all="ignore"):
        for name, function in (("loss", loss), ("cotangent", slope)):
            values = np.asarray(function(LARGE * np.sign(f) * (1 + np.abs(f)), y))
            if not np.all(np.isfinite(values)) and not found:
                text = f"not finite for outputs of size {LARGE:g}: take the largest off before exp"
                found.append(Finding(name, "overflow", text))
    return Diagnosis(tuple(found))


def check_optimizer(step: Any, like: Any = None) -> Diagnosis:
    """Whether an optimiser moves theta, downhill, and as it should.

    step : an optimiser as `minintk.training.optimizers.Optimizer` describes it, or a plain function
    step(theta, gradient, memory), which changes theta in place, or returns theta, or (theta, memory); memory is None at
    first.  like : the optimiser of this library that it has to agree with over four steps; if it does not, the usual
    mistakes are tried: momentum forgotten, wrong sign, weight decay forgotten, lr used twice.

    >>> import minintk as mn
    >>> def step(theta, gradient, memory):
    ...     theta = theta - 0.1 * gradient
    >>> print(check_optimizer(step))
    theta: it does not change: theta = theta - ... makes a new array; write theta -= ..., or return it
    >>> print(check_optimizer(lambda theta, g, memory: theta - 0.1 * g, like=mn.SGD(lr=0.1, momentum=0.9)))
    theta: the momentum is forgotten
    """
    said = _wrong(trajectory(step), like)
    return Diagnosis((Finding("theta", *said),) if said else ())


def _wrong(path: list[Values], like: Any) -> Said | None:
    """What is wrong with the thetas of some steps."""
    start = path[0]
    if path[-1].shape != start.shape:
        return "wrong shape", f"expected shape {start.shape} after a step, got {path[-1].shape}"
    if np.array_equal(path, [start] * len(path)):
        text = "it does not change: theta = theta - ... makes a new array; write theta -= ..., or return it"
        return "nothing changes", text
    if not np.all(np.isfinite(path)):
        return "nan", "it is not finite after a step"
    if like is None:
        return ("sign", UPHILL) if np.sum((path[1] - start) * _gradient(start, 0)) > 0 else None

    def same(other: list[Values]) -> bool:
        return np.allclose(path, other, rtol=1e-9, atol=0)

    if same(right := trajectory(like)):
        return None
    if same(trajectory(like, sign=-1.0)):
        return "sign", UPHILL
    for cause, text, name, value in (
        ("no momentum", "the momentum is forgotten", "momentum", 0.0),
        ("no weight decay", "the weight decay is forgotten", "weight_decay", 0.0),
        ("learning rate", "the learning rate is used twice", "lr", like.rate**2),
        ("learning rate", "the learning rate is forgotten", "lr", 1.0),
        ("damping", "the gradient is damped by 1 - momentum", "lr", like.rate * (1 - getattr(like, "momentum", 0.0))),
    ):
        if hasattr(like, name) and same(trajectory(dataclasses.replace(like, **{name: value}))):
            return cause, text
    k = next(k for k in range(len(path)) if not np.allclose(path[k], right[k], rtol=1e-9, atol=0))
    return "unnamed", f"step {k} goes from {path[k - 1][0]:.6g} to {path[k][0]:.6g}, expected {right[k][0]:.6g}"


def trajectory(step: Any, *, sign: float = 1.0) -> list[Values]:
    """theta before and after each of four steps, by gradients that depend on it; it ends at one of another shape."""
    theta = np.random.default_rng(0).standard_normal(6)
    known = hasattr(step, "init") and hasattr(step, "step")
    memory, path = step.init(theta) if known else None, [theta.copy()]
    for k in range(4):
        gradient = sign * _gradient(theta, k)
        said = step.at(k).step(theta, gradient, memory, None) if known else step(theta, gradient, memory)
        if isinstance(said, tuple):
            theta, memory = said
        elif said is not None:
            theta = said
        theta = np.asarray(theta, dtype=np.float64)
        path.append(theta.copy())
        if theta.shape != path[0].shape:
            break
    return path


def _gradient(theta: Values, k: int) -> Values:
    return np.linspace(1, 2, theta.size) * theta + 0.1 * k
