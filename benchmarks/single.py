"""Define the benchmark rows for single networks: training, linearised training and the empirical NTK.

The networks are MLPs, LeNet-5, a ResNet and AlexNet. A step is one step of full-batch SGD in float32 with momentum .9
on the mean cross-entropy. Each timed call takes several steps. The change of the outputs, f_T - f_0, or the kernel is
compared with the reference. PyTorch's sides use channels-last memory, which is faster here. PyTorch's kernel is J J'
with J from `vmap` of `jacrev`, and its linearisation uses `jvp` and `vjp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from math import prod
from typing import Any

import networks
import numpy as np
from ensembles import MOMENTUM, MOST, going_on, work_of
from harness import Arrays, Row, Side, Work
from networks import Net
from ours import finished, moved, on_host


@cache
def inputs(net: Net, shape: tuple[int, ...], n: int, outputs: int, biases: bool) -> Arrays:
    """Return {"x": (N, *shape), "y": one-hot targets, name of a tensor: its initial values, ...} in float32."""
    rng = np.random.default_rng(0)
    a = {"x": rng.standard_normal((n, *shape)), "y": np.eye(outputs)[rng.integers(outputs, size=n)]}
    a |= networks.weights(net, shape, rng, biases)
    return {name: value.astype(np.float32) for name, value in a.items()}


def split(a: Arrays) -> tuple[Any, Any, dict[str, Any]]:
    """Split a row's inputs into (x, y, {name: weights})."""
    return a["x"], a["y"], {name: value for name, value in a.items() if name not in "xy"}


# ------------------------------------------------------------------------------------------- minintk


def _ours(a: Arrays, net: Net) -> tuple[Any, Any]:
    """Return the minintk network and its parameters theta."""
    import minintk as mn

    x, _, weights = split(a)
    network = mn.Network(networks.spec(net, any(name.endswith("b") for name in weights)), x.shape[1:], mn.Standard())
    return network, network.layout.pack(weights)


def ours(
    a: Arrays, device: str, *, net: Net, lr: float, steps: int, linear: bool = False, compared: bool = True,
    held: bool = True,
) -> Work:  # fmt: skip
    """Return the `Work` that trains with `mn.train`.

    held : if True, minintk limits BLAS to one thread. If False, BLAS uses its own threads, which spin while they wait.
    """
    import minintk as mn
    from minintk import threads

    if not held:
        threads.blas_libraries = list  # type: ignore[assignment]  # hides the BLAS from minintk
    _, a = moved(a, device)
    network, theta = _ours(a, net)
    model = mn.Linearized(network, theta) if linear else network
    start = model(theta, a["x"])

    def run() -> Iterator[Any]:
        loss, optimizer = mn.softmax_cross_entropy, mn.SGD(lr=lr, momentum=MOMENTUM)
        return mn.train(model, theta, a["x"], a["y"], loss=loss, optimizer=optimizer, steps=MOST, every=steps)

    def change(last: Any) -> Arrays:
        return on_host({"change": model(last.theta, a["x"]) - start})

    return Work(going_on(run), change if compared else None)


def ours_ntk(a: Arrays, device: str, *, net: Net, full: bool = False) -> Work:
    """Return the `Work` that calls `mn.ntk` or `mn.ntk_full`."""
    import minintk as mn

    _, a = moved(a, device)
    network, theta = _ours(a, net)
    kernel = mn.ntk_full if full else mn.ntk

    def run() -> Any:
        k = kernel(network, theta, a["x"])
        finished([k])
        return k

    def corner(k: Any) -> Arrays:
        return on_host({"ntk": k[:CORNER, :, :CORNER].transpose(0, 2, 1, 3) if full else k[:CORNER, :CORNER]})

    return Work(run, corner)


# ------------------------------------------------------------------------------------------- PyTorch


def _torch(a: Arrays, net: Net) -> tuple[Any, Any, dict[str, Any], Callable[[Any, Any], Any]]:
    """Return (x, class indices, weights, f) for PyTorch, where f is a function of the weights and x."""
    import torch

    x, y, arrays = split(a)
    x = torch.from_numpy(x)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2)  # the memory layout remains channels last
    weights = networks.ByPyTorch.weights(arrays)
    weights = {name: w.contiguous(memory_format=torch.channels_last) if w.ndim == 4 else w
               for name, w in weights.items()}  # fmt: skip
    return x, torch.from_numpy(y).argmax(dim=1), weights, partial(networks.apply, net, ops=networks.ByPyTorch())


def torch_loop(a: Arrays, device: str, *, net: Net, lr: float, steps: int, compiled: bool = False) -> Work:
    """Return the `Work` that runs PyTorch's usual training loop with its fused optimiser."""
    import torch

    x, y, weights, f = _torch(a, net)
    for w in weights.values():
        w.requires_grad_()
    optimizer = torch.optim.SGD(list(weights.values()), lr=lr, momentum=MOMENTUM, fused=True)

    def value(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(f(weights, x), y)

    loss = torch.compile(value) if compiled else value

    def outputs() -> Any:
        with torch.no_grad():
            return f(weights, x)

    start = outputs()

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()

    return Work(run, lambda _: {"change": (outputs() - start).numpy()})


def torch_linear(a: Arrays, device: str, *, net: Net, lr: float, steps: int) -> Work:
    """Return the `Work` that trains f_0 + J (theta - theta_0) in PyTorch. A step needs one jvp (J) and one vjp (J')."""
    import torch
    from torch.func import jvp, vjp

    x, y, weights, f = _torch(a, net)
    moved_by = {name: torch.zeros_like(w) for name, w in weights.items()}
    speed = {name: torch.zeros_like(w) for name, w in weights.items()}

    def at(w: Any) -> Any:
        return f(w, x)

    def run() -> None:
        for _ in range(steps):
            f0, df = jvp(at, (weights,), (moved_by,))
            delta = (torch.softmax(f0 + df, dim=1) - torch.nn.functional.one_hot(y, f0.shape[1])) / len(y)
            (gradient,) = vjp(at, weights)[1](delta)
            for name, d in moved_by.items():
                d.add_(speed[name].mul_(MOMENTUM).add_(gradient[name]), alpha=-lr)

    return Work(run, lambda _: {"change": jvp(at, (weights,), (moved_by,))[1].numpy()})


def torch_ntk(a: Arrays, device: str, *, net: Net) -> Work:
    """Return the `Work` for 1/C sum_c J_c J_c' in PyTorch. `vmap` computes the gradients of all examples together."""
    import torch
    from torch.func import jacrev, vmap

    x, _, weights, f = _torch(a, net)
    classes = a["y"].shape[1]
    jacobian = vmap(jacrev(lambda w, one: f(w, one[None])[0]), in_dims=(None, 0))

    def run() -> Any:
        with torch.no_grad():
            return sum(j @ j.T for j in (j.reshape(len(x), -1) for j in jacobian(weights, x).values())) / classes

    return Work(run, lambda k: {"ntk": k.numpy()[:CORNER, :CORNER]})


# ----------------------------------------------------------------------------------- neural-tangents


def jax_ntk(a: Arrays, device: str, *, net: Net, method: str, full: bool = False) -> Work:
    """Return the `Work` that applies `nt.empirical_ntk_fn` to the network as a JAX function."""
    import jax
    import neural_tangents as nt

    x, _, weights = split(a)
    x, weights = jax.device_put(x), {name: jax.device_put(w) for name, w in weights.items()}
    ops = networks.ByJAX(jax.numpy)

    def f(w: Any, x: Any, **_: Any) -> Any:
        return networks.apply(net, w, x, ops)

    how, axes = nt.NtkImplementation[method], () if full else (-1,)
    kernel = jax.jit(nt.empirical_ntk_fn(f, trace_axes=axes, vmap_axes=0, implementation=how))

    def run() -> Any:
        return kernel(x, None, weights).block_until_ready()

    return Work(run, lambda k: {"ntk": k[:CORNER, :CORNER]})


# ----------------------------------------------------------------------------------------- reference


def _reference(a: Arrays, net: Net) -> tuple[Any, Any, dict[str, Any], Callable[[Any, Any], Any]]:
    """Return (x, y, weights, f) in float64, with f in Autograd's NumPy, for computing the reference."""
    import autograd.numpy as anp

    x, y, weights = split({name: value.astype(np.float64) for name, value in a.items()})
    return x, y, weights, partial(networks.apply, net, ops=networks.ByNumPy(anp))


def answer(a: Arrays, *, net: Net, lr: float, steps: int, linear: bool = False) -> Arrays:
    """Return {"change": f_T - f_0 : (N, C)} for the network, or for its linearisation if `linear`.

    A step is v <- momentum v + gradient, theta <- theta - lr v.
    """
    from autograd import make_vjp

    x, y, weights, f = _reference(a, net)
    speed = {name: np.zeros_like(w) for name, w in weights.items()}
    pull, start = make_vjp(lambda w: f(w, x))(weights)
    push = make_vjp(pull)(start)[0] if linear else None  # J is the transpose of J'
    change = np.zeros_like(start)
    for _ in range(steps):
        p = np.exp(start + change)
        delta = (p / p.sum(axis=1, keepdims=True) - y) / len(x)
        for name, g in (pull if linear else make_vjp(lambda w: f(w, x))(weights)[0])(delta).items():
            speed[name] = MOMENTUM * speed[name] + g
        weights = {name: w - lr * speed[name] for name, w in weights.items()}
        if push is None:
            change = f(weights, x) - start
        else:
            change = change - lr * push(speed)
    return {"change": change}


CORNER = 8
"""The number of examples whose kernel is compared with the reference."""


def ntk_answer(a: Arrays, *, net: Net, full: bool = False) -> Arrays:
    """Return J J' : (n, n, C, C) if `full`, else 1/C sum_c J_c J_c' : (n, n), for the first n = CORNER examples."""
    from autograd import make_vjp

    x, y, weights, f = _reference(a, net)
    J = []
    for one in x[:CORNER]:
        pull = make_vjp(lambda w, one=one: f(w, one[None]))(weights)[0]
        J.append([np.concatenate([g.ravel() for g in pull(e[None]).values()]) for e in np.eye(y.shape[1])])
    k = np.einsum("icp,jdp->ijcd", J, J, optimize=True)
    return {"ntk": k if full else np.einsum("ijcc->ij", k) / y.shape[1]}


# ---------------------------------------------------------------------------------------------- rows


ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _step(
    title: str, net: Net, shape: tuple[int, ...], n: int, lr: float, steps: int, *, outputs: int = 10,
    biases: bool = True, linear: bool = False, tolerance: float = 1e-3, compiled: bool = True, neighbours: int = 0,
) -> Row:  # fmt: skip
    """Return a row for training steps.

    neighbours : the number of processes that keep the cores busy. If it is positive, both libraries are also timed on
    one thread, and minintk with BLAS's own threads, which spin while they wait, as a control.
    """
    how: dict[str, Any] = {"net": net, "lr": lr, "steps": steps}
    loop = partial(torch_loop, **how)
    if linear:
        own = Side("minintk, the network itself", "ours", partial(ours, compared=False, **how), 1 / 3)
        peers = [Side("PyTorch, jvp and vjp", "torch", partial(torch_linear, **how), 1.0), own]
        how["linear"] = True
    else:
        peers = [Side("PyTorch, fused SGD", "torch", loop, 1.0)]
        if neighbours:
            peers += [Side("PyTorch, fused SGD, one thread", "torch", loop, None, ALONE)]
            peers += [Side("minintk, one BLAS thread", "ours", partial(ours, **how), 1 / 1.5, ALONE)]
            peers += [Side("minintk, BLAS's own threads", "ours", partial(ours, held=False, **how))]
        elif compiled:
            peers += [Side("PyTorch, compiled, fused SGD", "torch", partial(loop, compiled=True))]
    beside = f", {neighbours} busy neighbours" if neighbours else ""
    return Row(
        name=f"{'linearised ' if linear else ''}SGD step, {title}, batch {n}{beside}, cross-entropy, float32",
        inputs=partial(inputs, net, shape, n, outputs, biases),
        reference=partial(answer, **how),
        tolerance=tolerance,
        per=steps,
        unit="step",
        neighbours=neighbours,
        **work_of([(prod(size), pixels) for _, size, pixels in networks.trace(net, shape)], n, linear),
        sides=(Side("minintk", "ours", partial(ours, **how)), *peers),
    )


METHODS = {
    "structured derivatives": "STRUCTURED_DERIVATIVES",
    "NTK-vector products": "NTK_VECTOR_PRODUCTS",
    "Jacobian contraction": "JACOBIAN_CONTRACTION",
}


def _ntk(
    title: str, net: Net, shape: tuple[int, ...], n: int, methods: int, *, biases: bool = True, full: bool = False,
    torch: bool = True,
) -> Row:  # fmt: skip
    """Return a row for the empirical NTK.

    methods : the number of methods to compare with, from the start of METHODS. The others are 30 to 500 times slower
    than minintk.
    """
    how: dict[str, Any] = {"net": net, "full": full}
    each = [prod(size) * pixels for _, size, pixels in networks.trace(net, shape)]
    return Row(
        name=f"empirical NTK, {'all outputs' if full else 'mean over outputs'}, {title}, N = {n}, float32",
        inputs=partial(inputs, net, shape, n, 10, biases),
        reference=partial(ntk_answer, **how),
        tolerance=1e-4,
        flops=2.0 * n * (sum(each) + 10 * sum(each[1:])),
        sides=(
            Side("minintk", "ours", partial(ours_ntk, **how)),
            *(
                Side(f"neural-tangents, {name}", "jax", partial(jax_ntk, method=method, **how), 1.0)
                for name, method in list(METHODS.items())[:methods]
            ),
            *([Side("torch.func, J J'", "torch", partial(torch_ntk, net=net), 1.0)] if torch else []),
        ),
    )


IMAGE, DIGIT = (32, 32, 3), (28, 28, 1)
NORMED, PLAIN, TIES = networks.resnet(norm=True), networks.resnet(norm=False), 1e-2
"""TIES : the tolerance for networks with MaxPool, where rounding decides ties. A tie changes the answer by about 1e-3.
"""
SMALL, WIDE = (128, 128, 128, 10), (2048, 2048, 10)

ROWS = (
    _step("30-64-64-10", networks.mlp(64, 64, 10), (30,), 20, 0.01, 2000),  # a typical size in course exercises
    _step("784-128-128-128-10", networks.mlp(*SMALL), (784,), 32, 0.01, 400),
    _step("784-128-128-128-10", networks.mlp(*SMALL), (784,), 32, 0.01, 100, neighbours=2),
    _step("784-2048-2048-10", networks.mlp(*WIDE), (784,), 256, 0.01, 40),
    *(_step(f"LeNet-5 of width {w}", networks.lenet(w), DIGIT, n, 0.01 / w, steps, tolerance=TIES)
      for w, n, steps in ((1, 32, 100), (1, 256, 40), (8, 32, 40), (8, 256, 10))),
    _step("ResNet-16 with BatchNorm", NORMED, IMAGE, 32, 0.01, 5, biases=False),
    _step("ResNet-16 with BatchNorm", NORMED, IMAGE, 256, 0.01, 2, biases=False, compiled=False),
    _step("ResNet-16", PLAIN, IMAGE, 32, 1e-4, 5, biases=False, compiled=False),
    _step("ResNet-16", PLAIN, IMAGE, 32, 1e-4, 5, biases=False, linear=True),
    _step("AlexNet", networks.alexnet(), (224, 224, 3), 8, 1e-4, 2, outputs=1000, compiled=False, tolerance=TIES),
    *(_ntk("784-512-512-10", networks.mlp(512, 512, 10), (784,), n, 1, full=full, torch=False)
      for n in (64, 512) for full in (False, True)),
    _ntk("LeNet-5", networks.lenet(1), DIGIT, 32, 3),
    _ntk("LeNet-5", networks.lenet(1), DIGIT, 128, 1),
    _ntk("ResNet-16", PLAIN, IMAGE, 16, 1, biases=False),
)  # fmt: skip
