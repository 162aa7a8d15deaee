"""Define rows that train twenty networks by full-batch SGD with momentum .9.

All sides use the same initial weights and the same batch. Each call takes `steps` steps and continues from the state
after the previous call. minintk's calls use the public interface and include a snapshot. The reported time is per step.
The result compared with the reference is the change of the outputs in the first call, f_T - f_0. The loss is
1/(2N) sum |f - y|^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import reference
from harness import Arrays, Row, Side, Work
from ours import finished, moved, on_host

MOMENTUM = 0.9

MOST = 10**9
"""The number of steps given to `mn.train`. It is so large that no row reaches it."""
MEMBERS = 20


@cache
def inputs(sizes: tuple[int, ...], n: int) -> Arrays:
    """Return normal x : (N, d), y : (N, C), W : (MEMBERS, n, m) of variance 2/n and b : (MEMBERS, 1, m), in float32."""
    rng = np.random.default_rng(0)
    a = {"x": rng.standard_normal((n, sizes[0])), "y": rng.standard_normal((n, sizes[-1]))}
    for i, (before, after) in enumerate(pairwise(sizes)):
        a[f"W{i}"] = sqrt(2 / before) * rng.standard_normal((MEMBERS, before, after))
        a[f"b{i}"] = 0.1 * rng.standard_normal((MEMBERS, 1, after))
    return {name: value.astype(np.float32) for name, value in a.items()}


# ------------------------------------------------------------------------------------------- minintk


def going_on(snapshots: Callable[[], Iterator[Any]]) -> Callable[[], Any]:
    """Return a function that returns the next snapshot. Its first call starts training and skips the first snapshot."""
    begun: list[Iterator[Any]] = []

    def run() -> Any:
        if not begun:
            begun.append(snapshots())
            next(begun[0])  # the snapshot before the first step
        snap = next(begun[0])
        finished([snap.theta])
        return snap

    return run


def ours(a: Arrays, device: str, *, lr: float, steps: int) -> Work:
    """Return the `Work` that trains an ensemble with `mn.train`."""
    import minintk as mn

    xp, a = moved(a, device)
    layers = reference.layers(a)
    hidden = [layer for w, _ in layers[:-1] for layer in (mn.Dense(w.shape[-1], b_std=1.0), mn.ReLU())]
    spec = mn.Sequential(*hidden, mn.Dense(layers[-1][0].shape[-1], b_std=1.0))
    net = mn.Network(spec, a["x"].shape[1:], mn.Standard())
    members = []
    for e in range(MEMBERS):
        weights = {f"{2 * i}.W": w[e] for i, (w, _) in enumerate(layers)}
        members.append(net.layout.pack(weights | {f"{2 * i}.b": b[e, 0] for i, (_, b) in enumerate(layers)}))
    theta = xp.stack(members)
    start = net(theta, a["x"])

    def run() -> Iterator[Any]:
        optimizer = mn.SGD(lr=lr, momentum=MOMENTUM)
        return mn.train(net, theta, a["x"], a["y"], loss=mn.mse, optimizer=optimizer, steps=MOST, every=steps)

    return Work(going_on(run), lambda last: on_host({"change": net(last.theta, a["x"]) - start}))


# ------------------------------------------------------------------------------------------- PyTorch


def _modules(a: Arrays) -> list[Any]:
    """Return a torch.nn.Sequential for each of the twenty networks, with these weights."""
    import torch

    found: list[Any] = []
    for e in range(MEMBERS):
        modules: list[Any] = []
        for w, b in reference.layers(a):
            linear = torch.nn.Linear(*w.shape[1:])
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(w[e].T))
                linear.bias.copy_(torch.from_numpy(b[e, 0]))
            modules += [linear, torch.nn.ReLU()]
        found.append(torch.nn.Sequential(*modules[:-1]))
    return found


def _mse(f: Any, y: Any) -> Any:
    return 0.5 * ((f - y) ** 2).sum() / y.shape[-2]


def torch_loop(a: Arrays, device: str, *, lr: float, steps: int) -> Work:
    """Return the `Work` that runs PyTorch's usual loop, in which each step updates one network after another."""
    import torch

    x, y, modules = torch.from_numpy(a["x"]), torch.from_numpy(a["y"]), _modules(a)
    optimizers = [torch.optim.SGD(m.parameters(), lr=lr, momentum=MOMENTUM) for m in modules]

    def outputs() -> Any:
        with torch.no_grad():
            return torch.stack([m(x) for m in modules])

    start = outputs()

    def run() -> None:
        for _ in range(steps):
            for module, optimizer in zip(modules, optimizers, strict=True):
                optimizer.zero_grad()
                _mse(module(x), y).backward()
                optimizer.step()

    return Work(run, lambda _: {"change": (outputs() - start).numpy()})


def torch_vmap(a: Arrays, device: str, *, lr: float, steps: int, compiled: bool = False) -> Work:
    """Return the `Work` that applies torch.func's `vmap` of `grad` to stacked weights and updates momentum in place."""
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    x, y, modules = torch.from_numpy(a["x"]), torch.from_numpy(a["y"]), _modules(a)
    weights, _ = stack_module_state(modules)
    weights = {name: w.detach() for name, w in weights.items()}
    speeds = {name: torch.zeros_like(w) for name, w in weights.items()}

    def value(w: Any, x: Any, y: Any) -> Any:
        return _mse(functional_call(modules[0], w, (x,)), y)

    gradient = vmap(grad(value), in_dims=(0, None, None))
    if compiled:
        gradient = torch.compile(gradient)

    def outputs() -> Any:
        with torch.no_grad():
            return vmap(lambda w: functional_call(modules[0], w, (x,)))(weights)

    start = outputs()

    def run() -> None:
        with torch.no_grad():
            for _ in range(steps):
                g = gradient(weights, x, y)
                for name, w in weights.items():
                    w.add_(speeds[name].mul_(MOMENTUM).add_(g[name]), alpha=-lr)

    return Work(run, lambda _: {"change": (outputs() - start).numpy()})


# ---------------------------------------------------------------------------------------------- rows


def work_of(layers: Sequence[tuple[int, int]], n: int, linear: bool = False, members: int = 1) -> dict[str, Any]:
    """Count the flops and bytes of a training step for `Row`.

    layers : (number of weights, output pixels) of each layer. A step needs three matrix products per layer, but only
    two for the first layer. A linearised step needs five, but only three for the first layer. The bytes are 20 per
    weight: theta, the velocity and the gradient are read or written five times in float32.
    """
    each = [weights * pixels for weights, pixels in layers]
    products = 5 * sum(each) - 2 * each[0] if linear else 3 * sum(each) - each[0]
    return {"flops": 2.0 * members * n * products, "bytes": 20.0 * members * sum(weights for weights, _ in layers)}


def _row(sizes: tuple[int, ...], n: int, lr: float, steps: int, vmap: float | None, loop: float | None) -> Row:
    """Return a row for twenty networks with these layer sizes.

    vmap, loop : targets (or None) for the times of torch.func.vmap and of twenty PyTorch runs, divided by our time.
    """
    how: dict[str, Any] = {"lr": lr, "steps": steps}
    return Row(
        name=f"SGD step of {MEMBERS} networks, {'-'.join(map(str, sizes))}, batch {n}, mse, float32",
        inputs=partial(inputs, sizes, n),
        reference=lambda a: {"change": reference.train(a, lr, MOMENTUM, steps)},
        tolerance=1e-3,
        per=steps,
        unit="step",
        **work_of([(a * b, 1) for a, b in pairwise(sizes)], n, members=MEMBERS),
        sides=(
            Side("minintk", "ours", partial(ours, **how)),
            Side("torch.func.vmap", "torch", partial(torch_vmap, **how), vmap),
            Side("torch.func.vmap, compiled", "torch", partial(torch_vmap, compiled=True, **how)),
            Side("20 PyTorch runs", "torch", partial(torch_loop, **how), loop),
        ),
    )


ROWS = (
    _row((64, 100, 100, 100, 100, 100, 1), 200, 0.001, 100, 1.0, None),
    _row((64, 50, 50, 50, 50, 50, 1), 20, 0.001, 100, None, 3.0),
)
