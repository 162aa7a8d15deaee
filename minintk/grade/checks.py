"""A layer's jvp, vjp and gram one by one, losses and optimisers: which of them is wrong, and what it looks like.

`minintk.testing.check_layer` asks here when a law is broken: its laws tie jvp, vjp and gram together, and so cannot
tell which of them is at fault; differences of the layer's output can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minintk.grade.compare import Diagnosis, Finding, differs
from minintk.grade.gradient import check_gradient, check_pair
from minintk.grade.suspects import Said, Values, close, explain, margin
from minintk.grade.worker import watched
from minintk.layers.contract import Bound, bind
from minintk.models.network import Network
from minintk.spec.layers import Flatten, Layer, Sequential
from minintk.spec.parametrization import NTK, Parametrization
from minintk.spec.shapes import Site, couples, out_shape


def diagnose_layer(layer: Layer, shape: Sequence[int], parametrization: Parametrization | None = None) -> Diagnosis:
    """What is wrong with the layer's jvp, its vjp and its gram, each against differences of its output.

    shape : of one example as it enters the layer.

    >>> import minintk as mn
    >>> diagnose_layer(mn.Dense(4, b_std=0.5), (3,)).passed
    True
    """
    shape, parametrization = tuple(shape), parametrization or NTK()
    bound = bind(layer, Site(shape, first=False, last=False, inputs=True), parametrization, "layer")
    rng = np.random.default_rng(0)
    names = ["x", *(t.name.removeprefix("layer.") for t in bound.tensors)]
    args = [rng.standard_normal((3, *shape)), *(rng.standard_normal(t.shape) for t in bound.tensors)]
    numbers = {f"the multiplier of {name}": t.row.multiplier for name, t in zip(names[1:], bound.tensors)}

    def value(x: Values, *weights: Values) -> tuple[Any, list[int]]:
        y, changed = watched(lambda x, *w: bound(_named(bound, w), x)[0], (x, *weights))
        return np.asarray(y), changed

    written = _written(bound, args, names)
    found = list(written.values())
    for method, gradient in (("jvp", _turned(bound, args)), ("vjp", lambda u, *a: _pull(bound, u, a))):
        said = check_pair(value, gradient, args, names, hard=False, numbers=numbers)
        for f in said.findings:
            if f.where != "forward":
                f = Finding(f"{method}, {f.where}", f.cause, f.text)
            if f.where.removeprefix("vjp, d") not in written:
                found.append(f)
    if not couples(layer) and bound.tensors and not found:
        found += _gram(layer, shape, parametrization, rng)
    return Diagnosis(tuple(dict.fromkeys(found)))


def _named(bound: Bound, weights: Sequence[Values]) -> dict[str, Any]:
    return dict(zip((t.name for t in bound.tensors), weights, strict=True))


def _pull(bound: Bound, u: Values, args: Sequence[Values], fill: float = 0.0) -> tuple[list[Any], list[int]]:
    """(gradients by vjp in arrays that held `fill`, what it has changed of u, which is number -1, and of args)."""
    _, J = bound(_named(bound, args[1:]), args[0])
    given = _named(bound, [np.full_like(a, fill) for a in args[1:]])
    dx, changed = watched(lambda u, *_: J.vjp(u, dict(given)), (u, *args))
    return [dx, *given.values()], [i - 1 for i in changed]


def _turned(bound: Bound, args: Sequence[Values]) -> Callable[..., tuple[Any, list[int]]]:
    """What vjp would be if jvp were right: jvp along each entry of each argument, written down once."""
    _, J = bound(_named(bound, args[1:]), args[0])
    rows = []
    for a in args:
        units = np.eye(a.size).reshape(a.size, *a.shape)
        d = [[unit if b is a else np.zeros_like(b) for b in args] for unit in units]
        rows.append([np.asarray(J.jvp(_named(bound, weights), x)) for x, *weights in d])

    def pull(u: Values, *args: Values) -> tuple[Any, list[int]]:
        return [np.reshape([np.sum(u * y) for y in ys], a.shape).astype(u.dtype) for ys, a in zip(rows, args)], []

    return pull


def _written(bound: Bound, args: Sequence[Values], names: Sequence[str]) -> dict[str, Finding]:
    """{tensor: what is wrong with how its gradient is written}: the arrays that vjp gets hold 0, then 1."""
    y, _ = bound(_named(bound, args[1:]), args[0])
    (zero, _), (one, _) = (_pull(bound, np.ones_like(y), args, fill) for fill in (0.0, 1.0))
    found = {}
    for name, a, b in zip(names[1:], zero[1:], one[1:], strict=True):
        if np.allclose(b - a, 1.0):
            cause, text = "accumulated", "added to what stands in dw: write = and not +="
            if not np.any(a):
                cause, text = "nothing", "not written: `dw[name] = ...` makes a new array, write `dw[name][...] = ...`"
            found[name] = Finding(f"vjp, d{name}", cause, text)
    return found


def _gram(layer: Layer, shape: Any, parametrization: Parametrization, rng: np.random.Generator) -> list[Finding]:
    """gram against J J' of jvp and vjp, which are right by now; which tensor's part is missing."""
    end = [Flatten()] if len(out_shape(layer, shape)) > 1 else []
    net = Network(Sequential(layer, *end), shape, parametrization)
    theta, x = rng.standard_normal(net.size), rng.standard_normal((3, *shape))
    _, J = net.linearize(theta, x)
    got, dense = np.asarray(J.gram()), np.asarray(J.dense())
    parts = {name: dense[..., at] for name, at in net.layout.slices.items()}
    whole = {name.rpartition(".")[2]: np.einsum("ncp,mdp->ncmd", d, d) for name, d in parts.items()}
    right = sum(whole.values(), np.zeros_like(got))
    tolerance = margin(right)
    if close(got, right, tolerance):
        return []
    for name, part in whole.items() if len(whole) > 1 else ():
        if close(got, right - part, tolerance):
            return [Finding("gram", "part missing", f"the part of {name} is missing")]
        if said := explain(got - (right - part), part, tolerance, {}):
            return [Finding("gram", said[0], f"the part of {name}: {said[1]}")]
    return [Finding("gram", *(explain(got, right, tolerance, {}) or ("unnamed", differs(got, right))))]


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
