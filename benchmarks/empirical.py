"""Rows: the empirical NTK of an MLP, averaged over outputs (N, N) and in full (N, N, C, C), and of LeNet-5.

Peer: neural-tangents' three methods, compiled, each in its fastest form found (vmap_axes=0).  Its Jacobian contraction
and its products are left out at N = 512, where a call takes a minute, or a Jacobian 14 GB.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import reference
import training
from harness import Arrays, Row, Side, Work
from ours import finished, moved, on_host

W_STD, B_STD = 2**0.5, 0.1
SIZES = (784, 512, 512, 10)


@cache
def inputs(n: int) -> Arrays:
    """x : (N, 784); W : (n, m) and b : (1, m), all N(0, 1) as in the NTK parametrization; float32."""
    rng = np.random.default_rng(0)
    a = {"x": rng.standard_normal((n, SIZES[0]))}
    for i, (before, after) in enumerate(pairwise(SIZES)):
        a[f"W{i}"], a[f"b{i}"] = rng.standard_normal((before, after)), rng.standard_normal((1, after))
    return {name: value.astype(np.float32) for name, value in a.items()}


def ours(a: Arrays, device: str, *, full: bool) -> Work:
    """mn.ntk, mn.ntk_full."""
    import minintk as mn

    _, a = moved(a, device)
    hidden = [layer for n in SIZES[1:-1] for layer in (mn.Dense(n, w_std=W_STD, b_std=B_STD), mn.ReLU())]
    net = mn.Network(mn.Sequential(*hidden, mn.Dense(SIZES[-1], w_std=W_STD, b_std=B_STD)), SIZES[:1])
    tensors: dict[str, Any] = {}
    for i, (w, b) in enumerate(reference.layers(a)):
        tensors |= {f"{2 * i}.W": w, f"{2 * i}.b": b.reshape(-1)}
    theta, x = net.layout.pack(tensors), a["x"]
    kernel = mn.ntk_full if full else mn.ntk

    def run() -> Any:
        k = kernel(net, theta, x)
        finished([k])
        return k

    return Work(run, lambda k: on_host({"ntk": k.transpose(0, 2, 1, 3) if full else k}))


def neural_tangents(a: Arrays, device: str, *, full: bool, method: str) -> Work:
    """nt.empirical_ntk_fn of its stax network."""
    import jax
    import neural_tangents as nt
    from neural_tangents import stax

    layers = [layer for n in SIZES[1:-1] for layer in (stax.Dense(n, W_STD, B_STD), stax.Relu())]
    _, apply, _ = stax.serial(*layers, stax.Dense(SIZES[-1], W_STD, B_STD))
    params: list[Any] = []
    for w, b in reference.layers(a):
        params += [(jax.device_put(w), jax.device_put(b)), ()]
    x = jax.device_put(a["x"])
    kernel = jax.jit(
        nt.empirical_ntk_fn(
            apply, trace_axes=() if full else (-1,), vmap_axes=0, implementation=nt.NtkImplementation[method]
        )
    )

    def run() -> Any:
        return kernel(x, None, params[:-1]).block_until_ready()

    return Work(run, lambda k: {"ntk": k})


def _answer(a: Arrays, *, full: bool) -> Arrays:
    k = reference.empirical_ntk(a, W_STD, B_STD)
    return {"ntk": k if full else np.trace(k, axis1=2, axis2=3) / k.shape[-1]}


METHODS = {
    "structured derivatives": "STRUCTURED_DERIVATIVES",
    "NTK-vector products": "NTK_VECTOR_PRODUCTS",
    "Jacobian contraction": "JACOBIAN_CONTRACTION",
}


def _row(n: int, full: bool) -> Row:
    outputs = "all outputs" if full else "mean over outputs"
    methods = METHODS if n <= 64 else dict(list(METHODS.items())[:1])
    return Row(
        name=f"empirical NTK, {outputs}, {'-'.join(map(str, SIZES))}, N = {n}, float32",
        inputs=partial(inputs, n),
        reference=partial(_answer, full=full),
        tolerance=1e-4,
        sides=(
            Side("minintk", "ours", partial(ours, full=full)),
            *(
                Side(f"neural-tangents, {title}", "jax", partial(neural_tangents, full=full, method=method), 1.0)
                for title, method in methods.items()
            ),
        ),
    )


# ------------------------------------------------------------------------------------------- LeNet-5


def ours_lenet(a: Arrays, device: str) -> Work:
    """mn.ntk of LeNet-5."""
    import minintk as mn

    _, a = moved(a, device)
    net, theta = training.lenet(a)

    def run() -> Any:
        k = mn.ntk(net, theta, a["x"])
        finished([k])
        return k

    return Work(run, lambda k: on_host({"ntk": k}))


def neural_tangents_lenet(a: Arrays, device: str, *, method: str) -> Work:
    """nt.empirical_ntk_fn of a plain JAX function."""
    import jax
    import jax.numpy as jnp
    import neural_tangents as nt
    from jax import lax

    def conv(x: Any, w: Any, b: Any, padding: str) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")) + b[0]

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def apply(params: Any, x: Any, **_: Any) -> Any:
        for (w, b), padding in zip(params[:2], ("SAME", "VALID"), strict=True):
            x = pool(jax.nn.relu(conv(x, w, b, padding)))
        x = x.reshape(x.shape[0], -1)
        for w, b in params[2:4]:
            x = jax.nn.relu(x @ w + b)
        return x @ params[4][0] + params[4][1]

    params = [(jax.device_put(w), jax.device_put(b)) for w, b in reference.layers(a)]
    x = jax.device_put(a["x"])
    kernel = jax.jit(
        nt.empirical_ntk_fn(apply, trace_axes=(-1,), vmap_axes=0, implementation=nt.NtkImplementation[method])
    )

    def run() -> Any:
        return kernel(x, None, params).block_until_ready()

    return Work(run, lambda k: {"ntk": k})


def _lenet_answer(a: Arrays) -> Arrays:
    return {"ntk": reference.lenet_ntk(a)}


def _lenet(n: int) -> Row:
    return Row(
        name=f"empirical NTK, mean over outputs, LeNet-5, N = {n}, float32",
        inputs=partial(training.lenet_inputs, 1, n),
        reference=_lenet_answer,
        tolerance=1e-4,
        sides=(
            Side("minintk", "ours", ours_lenet),
            *(
                Side(f"neural-tangents, {title}", "jax", partial(neural_tangents_lenet, method=method), 1.0)
                for title, method in METHODS.items()
            ),
        ),
    )


ROWS = (*(_row(n, full) for n in (64, 512) for full in (False, True)), _lenet(32), _lenet(128))
