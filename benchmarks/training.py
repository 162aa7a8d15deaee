"""Rows: full-batch SGD with momentum .9, from the same weights, on the same batch; time for one step.

Each call is `steps` steps through the public interface, checks and the snapshot at their end included; on every side
it goes on from where the last call ended.  Drawing mini-batches is left out.  The answer compared is what the first
call's steps changed, f_T - f_0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import numpy as np
import reference
from harness import Arrays, Row, Side, Work
from ours import finished, moved, on_host

MOMENTUM = 0.9

MOST = 10**9
"""Steps that no row comes to the end of."""


@cache
def inputs(sizes: tuple[int, ...], n: int, ensemble: int | None, loss: str) -> Arrays:
    """x : (N, d), y : (N, C), one-hot or normal; W : ([E], n, m) with variance 2/n and b : ([E], 1, m); float32."""
    rng = np.random.default_rng(0)
    lead = () if ensemble is None else (ensemble,)
    a = {"x": rng.standard_normal((n, sizes[0]))}
    labels = np.eye(sizes[-1])[rng.integers(sizes[-1], size=n)]
    a["y"] = labels if loss == "cross-entropy" else rng.standard_normal((n, sizes[-1]))
    for i, (before, after) in enumerate(pairwise(sizes)):
        a[f"W{i}"] = sqrt(2 / before) * rng.standard_normal((*lead, before, after))
        a[f"b{i}"] = 0.1 * rng.standard_normal((*lead, 1, after))
    return {name: value.astype(np.float32) for name, value in a.items()}


# ------------------------------------------------------------------------------------------- minintk


def going_on(snapshots: Callable[[], Iterator[Any]]) -> Callable[[], Any]:
    """A call for each snapshot after the first; the run begins with the first call."""
    begun: list[Iterator[Any]] = []

    def run() -> Any:
        if not begun:
            begun.append(snapshots())
            next(begun[0])  # before the first step
        snap = next(begun[0])
        finished([snap.theta])
        return snap

    return run


def ours(a: Arrays, device: str, *, loss: str, lr: float, steps: int) -> Work:
    """mn.train, of one network or of an ensemble."""
    import minintk as mn

    xp, a = moved(a, device)
    layers = reference.layers(a)
    hidden = [layer for w, _ in layers[:-1] for layer in (mn.Dense(w.shape[-1], b_std=1.0), mn.ReLU())]
    spec = mn.Sequential(*hidden, mn.Dense(layers[-1][0].shape[-1], b_std=1.0))
    net = mn.Network(spec, a["x"].shape[1:], mn.Standard())

    def pack(member: Any) -> Any:
        tensors: dict[str, Any] = {}
        for i, (w, b) in enumerate(layers):
            tensors |= {f"{2 * i}.W": w[member], f"{2 * i}.b": b[member].reshape(-1)}
        return net.layout.pack(tensors)

    alone = layers[0][0].ndim == 2
    theta = pack(...) if alone else xp.stack([pack(e) for e in range(layers[0][0].shape[0])])
    objective = mn.mse if loss == "mse" else mn.softmax_cross_entropy
    start = net(theta, a["x"])

    def run() -> Iterator[Any]:
        optimizer = mn.SGD(lr=lr, momentum=MOMENTUM)
        return mn.train(net, theta, a["x"], a["y"], loss=objective, optimizer=optimizer, steps=MOST, every=steps)

    return Work(going_on(run), lambda last: on_host({"change": net(last.theta, a["x"]) - start}))


# ------------------------------------------------------------------------------------------- PyTorch


def _module(layers: reference.Layers) -> Any:
    """torch.nn.Sequential with these weights."""
    import torch

    modules: list[Any] = []
    for w, b in layers:
        linear = torch.nn.Linear(*w.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w.T))
            linear.bias.copy_(torch.from_numpy(b[0]))
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


def _objective(loss: str) -> Callable[[Any, Any], Any]:
    """The loss as the rows define it; class indices for the cross-entropy, PyTorch's faster form."""
    import torch

    def mse(f: Any, y: Any) -> Any:
        return 0.5 * ((f - y) ** 2).sum() / y.shape[-2]

    def cross_entropy(f: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(f, labels)

    return mse if loss == "mse" else cross_entropy


def torch_loop(
    a: Arrays, device: str, *, loss: str, lr: float, steps: int, fused: bool = False, compiled: bool = False
) -> Work:
    """The usual loop, of one network, or of each network of an ensemble on its own."""
    import torch

    x, y = torch.from_numpy(a["x"]), torch.from_numpy(a["y"])
    layers = reference.layers(a)
    members = [...] if layers[0][0].ndim == 2 else list(range(layers[0][0].shape[0]))
    modules = [_module([(w[e], b[e]) for w, b in layers]) for e in members]
    optimizers = [torch.optim.SGD(m.parameters(), lr=lr, momentum=MOMENTUM, fused=fused or None) for m in modules]
    objective = _objective(loss)
    targets = y if loss == "mse" else y.argmax(dim=1)

    def loss_of(module: Any, x: Any, y: Any) -> Any:
        return objective(module(x), y)

    losses: list[Any] = [partial(loss_of, m) for m in modules]
    if compiled:
        losses = [torch.compile(value) for value in losses]

    def outputs() -> Any:
        with torch.no_grad():
            f = [m(x) for m in modules]
        return f[0] if len(f) == 1 else torch.stack(f)

    start = outputs()

    def run() -> None:
        for _ in range(steps):
            for value, optimizer in zip(losses, optimizers, strict=True):
                optimizer.zero_grad()
                value(x, targets).backward()
                optimizer.step()

    return Work(run, lambda _: {"change": (outputs() - start).numpy()})


def torch_vmap(a: Arrays, device: str, *, loss: str, lr: float, steps: int, compiled: bool = False) -> Work:
    """torch.func: vmap of grad over the stacked weights, momentum in place on the stacks."""
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    x, y = torch.from_numpy(a["x"]), torch.from_numpy(a["y"])
    layers = reference.layers(a)
    modules = [_module([(w[e], b[e]) for w, b in layers]) for e in range(layers[0][0].shape[0])]
    weights, _ = stack_module_state(modules)
    weights = {name: w.detach() for name, w in weights.items()}
    speeds = {name: torch.zeros_like(w) for name, w in weights.items()}
    objective, base = _objective(loss), modules[0]

    def value(w: Any, x: Any, y: Any) -> Any:
        return objective(functional_call(base, w, (x,)), y)

    gradient = vmap(grad(value), in_dims=(0, None, None))
    if compiled:
        gradient = torch.compile(gradient)

    def outputs() -> Any:
        with torch.no_grad():
            return vmap(lambda w: functional_call(base, w, (x,)))(weights)

    start = outputs()

    def run() -> None:
        with torch.no_grad():
            for _ in range(steps):
                g = gradient(weights, x, y)
                for name, w in weights.items():
                    w.add_(speeds[name].mul_(MOMENTUM).add_(g[name]), alpha=-lr)

    return Work(run, lambda _: {"change": (outputs() - start).numpy()})


# ------------------------------------------------------------------------------------------- LeNet-5


@cache
def lenet_inputs(width: int, n: int) -> Arrays:
    """x : (N, 28, 28, 1), y one-hot; W with variance 2 / fan_in, b : (1, m); float32."""
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(5, 5, 1, 6 * width), (5, 5, 6 * width, 16 * width)]
    shapes += pairwise((400 * width, 120 * width, 84 * width, 10))
    a = {"x": rng.standard_normal((n, 28, 28, 1)), "y": np.eye(10)[rng.integers(10, size=n)]}
    for i, shape in enumerate(shapes):
        a[f"W{i}"] = sqrt(2 / prod(shape[:-1])) * rng.standard_normal(shape)
        a[f"b{i}"] = 0.1 * rng.standard_normal((1, shape[-1]))
    return {name: value.astype(np.float32) for name, value in a.items()}


def lenet(a: Arrays) -> tuple[Any, Any]:
    """minintk's network and its theta."""
    import minintk as mn

    c1, c2, n1, n2, n3 = (w.shape[-1] for w, _ in reference.layers(a))
    spec = mn.Sequential(
        mn.Conv2d(c1, 5, padding=2, b_std=1.0), mn.ReLU(), mn.MaxPool(2),
        mn.Conv2d(c2, 5, padding="valid", b_std=1.0), mn.ReLU(), mn.MaxPool(2), mn.Flatten(),
        mn.Dense(n1, b_std=1.0), mn.ReLU(), mn.Dense(n2, b_std=1.0), mn.ReLU(), mn.Dense(n3, b_std=1.0),
    )  # fmt: skip
    net = mn.Network(spec, a["x"].shape[1:], mn.Standard())
    tensors: dict[str, Any] = {}
    for name, (w, b) in zip((0, 3, 7, 9, 11), reference.layers(a), strict=True):
        tensors |= {f"{name}.W": w, f"{name}.b": b.reshape(-1)}
    return net, net.layout.pack(tensors)


def ours_lenet(a: Arrays, device: str, *, lr: float, steps: int) -> Work:
    """mn.train of LeNet-5."""
    import minintk as mn

    _, a = moved(a, device)
    net, theta = lenet(a)
    start = net(theta, a["x"])

    def run() -> Iterator[Any]:
        loss, optimizer = mn.softmax_cross_entropy, mn.SGD(lr=lr, momentum=MOMENTUM)
        return mn.train(net, theta, a["x"], a["y"], loss=loss, optimizer=optimizer, steps=MOST, every=steps)

    return Work(going_on(run), lambda last: on_host({"change": net(last.theta, a["x"]) - start}))


def torch_lenet(a: Arrays, device: str, *, lr: float, steps: int, fused: bool = False, compiled: bool = False) -> Work:
    """torch.nn.Sequential in its own layout, channels first, and the usual loop."""
    import torch
    from torch import nn

    (w0, _), (w1, _), (w2, _), *_ = layers = reference.layers(a)
    modules = [nn.Conv2d(1, w0.shape[-1], 5, padding=2), nn.Conv2d(*w1.shape[2:], 5)]
    modules += [nn.Linear(*w.shape) for w, _ in layers[2:]]
    with torch.no_grad():
        for i, (module, (w, b)) in enumerate(zip(modules, layers, strict=True)):
            if i == 2:  # their Flatten runs over channels first
                w = w2.reshape(5, 5, -1, w2.shape[-1]).transpose(2, 0, 1, 3).reshape(w2.shape)
            w = w.transpose(3, 2, 0, 1) if w.ndim == 4 else w.T
            module.weight.copy_(torch.from_numpy(np.ascontiguousarray(w)))
            module.bias.copy_(torch.from_numpy(b[0]))
    conv1, conv2, *linear = modules
    net = nn.Sequential(
        conv1, nn.ReLU(), nn.MaxPool2d(2), conv2, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2],
    )  # fmt: skip
    x, y = torch.from_numpy(a["x"].transpose(0, 3, 1, 2).copy()), torch.from_numpy(a["y"]).argmax(dim=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, fused=fused or None)

    def value(x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(net(x), y)

    loss = torch.compile(value) if compiled else value

    def outputs() -> Any:
        with torch.no_grad():
            return net(x)

    start = outputs()

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()

    return Work(run, lambda _: {"change": (outputs() - start).numpy()})


def _lenet_answer(a: Arrays, *, lr: float, steps: int) -> Arrays:
    return {"change": reference.lenet_train(a, lr, MOMENTUM, steps)}


def _lenet(width: int, n: int, steps: int) -> Row:
    how: dict[str, Any] = {"lr": 0.01 / width, "steps": steps}
    return Row(
        name=f"SGD step, LeNet-5 of width {width}, batch {n}, cross-entropy, float32",
        inputs=partial(lenet_inputs, width, n),
        reference=partial(_lenet_answer, **how),
        tolerance=1e-2,  # rounding decides ties of MaxPool, each of which moves the answer by some 1e-3
        per=steps,
        unit="step",
        sides=(
            Side("minintk", "ours", partial(ours_lenet, **how)),
            Side("PyTorch", "torch", partial(torch_lenet, **how), 1.0),
            Side("PyTorch, fused SGD", "torch", partial(torch_lenet, fused=True, **how), 1.0),
            Side("PyTorch, compiled, fused SGD", "torch", partial(torch_lenet, fused=True, compiled=True, **how)),
        ),
    )


# ---------------------------------------------------------------------------------------------- rows


def _answer(a: Arrays, *, loss: str, lr: float, steps: int) -> Arrays:
    return {"change": reference.train(a, loss, lr, MOMENTUM, steps)}


def _single(sizes: tuple[int, ...], n: int, loss: str, lr: float, steps: int) -> Row:
    how: dict[str, Any] = {"loss": loss, "lr": lr, "steps": steps}
    return Row(
        name=f"SGD step, {'-'.join(map(str, sizes))}, batch {n}, {loss}, float32",
        inputs=partial(inputs, sizes, n, None, loss),
        reference=partial(_answer, **how),
        tolerance=1e-3,
        per=steps,
        unit="step",
        sides=(
            Side("minintk", "ours", partial(ours, **how)),
            Side("PyTorch", "torch", partial(torch_loop, **how), 1.0),
            Side("PyTorch, fused SGD", "torch", partial(torch_loop, fused=True, **how), 1.0),
            Side("PyTorch, compiled, fused SGD", "torch", partial(torch_loop, fused=True, compiled=True, **how)),
        ),
    )


def _ensemble(
    sizes: tuple[int, ...], n: int, lr: float, steps: int, vmap_target: float | None, loop_target: float | None
) -> Row:
    how: dict[str, Any] = {"loss": "mse", "lr": lr, "steps": steps}
    return Row(
        name=f"SGD step of 20 networks, {'-'.join(map(str, sizes))}, batch {n}, mse, float32",
        inputs=partial(inputs, sizes, n, 20, "mse"),
        reference=partial(_answer, **how),
        tolerance=1e-3,
        per=steps,
        unit="step",
        sides=(
            Side("minintk", "ours", partial(ours, **how)),
            Side("torch.func.vmap", "torch", partial(torch_vmap, **how), vmap_target),
            Side("torch.func.vmap, compiled", "torch", partial(torch_vmap, compiled=True, **how)),
            Side("20 PyTorch runs", "torch", partial(torch_loop, **how), loop_target),
        ),
    )


ROWS = (
    _single((30, 64, 64, 10), 20, "cross-entropy", 0.01, 2000),  # the size of a course's exercises
    _single((784, 128, 128, 128, 10), 32, "cross-entropy", 0.01, 400),
    _single((784, 2048, 2048, 10), 256, "cross-entropy", 0.01, 40),
    _ensemble((64, 100, 100, 100, 100, 100, 1), 200, 0.001, 100, 1.0, None),
    _lenet(1, 32, 100),
    _lenet(1, 256, 40),
    _lenet(8, 32, 40),
    _lenet(8, 256, 10),
    _ensemble((64, 50, 50, 50, 50, 50, 1), 20, 0.001, 100, None, 3.0),
)
