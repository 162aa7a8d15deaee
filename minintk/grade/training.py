"""Losses and optimisers: a cotangent without its 1/N, a softmax that overflows, a step that changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.gradient import check_gradient

Values = np.ndarray[Any, Any]
UPHILL = "it goes uphill: the sign of the step is wrong"


def check_loss(
    loss: Callable[[Any, Any], Any],
    cotangent: Callable[[Any, Any], Any] | None = None,
    f: Values | None = None,
    y: Values | None = None,
    *,
    large: float = 1e4,
) -> Diagnosis:
    """Whether cotangent(f, y) is dL/df of loss(f, y), and both are finite for large outputs.

    cotangent : by default the loss's own method, as `minintk.training.losses.Loss` has it.  f, y : outputs and targets,
    (N, C); random outputs and one-hot targets for five examples of three classes by default.  large : the size of
    outputs for which loss and cotangent must still be finite: exp(1e4) is not, unless the largest is taken off first.

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

    def forward(f: Any, y: Any) -> Any:
        return np.asarray(loss(f, y))

    def backward(u: Any, f: Any, y: Any) -> Any:
        return u * slope(f, y), None

    found = [
        Finding("cotangent" if one.where == "df" else one.where, one.cause, one.text)
        for one in check_gradient(forward, backward, (f, y), wrt=[0], hard=False).findings
    ]
    with np.errstate(all="ignore"):
        for name, function in (("loss", loss), ("cotangent", slope)):
            values = np.asarray(function(large * np.sign(f) * (1 + np.abs(f)), y))
            if not np.all(np.isfinite(values)) and not found:
                text = f"not finite for outputs of size {large:g}: take the largest off before exp"
                found.append(Finding(name, "overflow", text))
    return Diagnosis(tuple(found))


def check_optimizer(step: Any, like: Any = None) -> Diagnosis:
    """Whether an optimiser moves theta, in place, downhill, and as it should.

    step : an optimiser as `minintk.training.optimizers.Optimizer` describes it, or a plain function
    step(theta, gradient, memory), which changes theta in place, or returns theta, or (theta, memory); memory is None at
    first.
    like : the optimiser of this library that it has to agree with, `mn.SGD(lr=0.1, momentum=0.9)` say, over four steps;
    if it does not, the usual mistakes are tried: momentum forgotten, wrong sign, weight decay forgotten, lr used twice.

    >>> import minintk as mn
    >>> def step(theta, gradient, memory):
    ...     theta = theta - 0.1 * gradient
    >>> print(check_optimizer(step))
    theta: it does not change: theta = theta - ... makes a new array; write theta -= ..., or return it
    >>> print(check_optimizer(lambda theta, g, memory: theta - 0.1 * g, like=mn.SGD(lr=0.1, momentum=0.9)))
    theta: the momentum is forgotten
    """
    path = trajectory(step)
    if isinstance(path, Finding):
        return Diagnosis((path,))
    start = path[0]
    if all(np.array_equal(start, theta) for theta in path[1:]):
        text = "it does not change: theta = theta - ... makes a new array; write theta -= ..., or return it"
        return Diagnosis((Finding("theta", "nothing changes", text),))
    if not np.all(np.isfinite(path)):
        return Diagnosis((Finding("theta", "nan", "it is not finite after a step"),))
    if like is None:
        uphill = float(np.sum((path[1] - start) * _gradient(start, 0))) > 0
        return Diagnosis((Finding("theta", "sign", UPHILL),) if uphill else ())
    right = trajectory(like)
    assert not isinstance(right, Finding)
    if np.allclose(path, right, rtol=1e-9, atol=0):
        return Diagnosis()
    for cause, text, other in _mistakes(like):
        if np.allclose(path, other, rtol=1e-9, atol=0):
            return Diagnosis((Finding("theta", cause, text),))
    first = next(k for k in range(len(path)) if not np.allclose(path[k], right[k], rtol=1e-9, atol=0))
    text = f"step {first} goes from {path[first - 1][0]:.6g} to {path[first][0]:.6g}, expected {right[first][0]:.6g}"
    return Diagnosis((Finding("theta", "unnamed", text),))


def trajectory(step: Any, steps: int = 4) -> list[Values] | Finding:
    """theta before and after each of some steps, by gradients that depend on it; a Finding where one has no sense."""
    theta = np.random.default_rng(0).standard_normal(6)
    known = hasattr(step, "init") and hasattr(step, "step")
    memory = step.init(theta) if known else None
    path = [theta.copy()]
    for k in range(steps):
        gradient = _gradient(theta, k)
        said = step.at(k).step(theta, gradient, memory, None) if known else step(theta, gradient, memory)
        if isinstance(said, tuple):
            theta, memory = said
        elif said is not None:
            theta = said
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != path[0].shape:
            return Finding("theta", "wrong shape", f"expected shape {path[0].shape} after a step, got {theta.shape}")
        path.append(theta.copy())
    return path


def _gradient(theta: Values, k: int) -> Values:
    return np.linspace(1, 2, theta.size) * theta + 0.1 * k


def _mistakes(like: Any) -> list[tuple[str, str, Any]]:
    """(cause, words, the path of an optimiser with that mistake)."""

    def turned(theta: Values, gradient: Values, memory: Any) -> Any:
        memory = like.init(theta) if memory is None else memory
        like.step(theta, -gradient, memory, None)
        return theta, memory

    fields: Mapping[str, Any] = {f.name: getattr(like, f.name) for f in dataclasses.fields(like)}
    options: list[tuple[str, str, dict[str, Any]]] = [
        ("no momentum", "the momentum is forgotten", {"momentum": 0.0}),
        ("no weight decay", "the weight decay is forgotten", {"weight_decay": 0.0}),
        ("learning rate", "the learning rate is used twice", {"lr": like.rate**2}),
        ("learning rate", "the learning rate is forgotten", {"lr": 1.0}),
        ("damping", "the gradient is damped by 1 - momentum", {"lr": like.rate * (1 - fields.get("momentum", 0))}),
    ]
    found: list[tuple[str, str, Any]] = [("sign", UPHILL, trajectory(turned))]
    for cause, words, change in options:
        if change.keys() <= fields.keys() and all(fields[name] != value for name, value in change.items()):
            found.append((cause, words, trajectory(dataclasses.replace(like, **change))))
    return found
