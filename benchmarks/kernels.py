"""Rows: infinite-width NNGP and NTK of fully connected and convolutional networks, all pairs of N examples.

Peers: neural-tangents, compiled, in its own precision (its 64-bit flag is set for float64 only, where it is needed;
with the flag its float32 is silently float64), and the one matrix product that no method can do without.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from time import sleep
from typing import Any

import numpy as np
from harness import Arrays, Row, Side, Work
from ours import finished, moved, on_host
from reference import infinite_cnn_kernels, infinite_kernels


@cache
def random_inputs(n: int, d: int) -> Any:
    """x : (N, d), x ~ N(0, 1); rounded to float32, so that both precisions have the same answer."""
    return np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)


@cache
def digits() -> Any:
    """The 8x8 digits, x : (1797, 64) in [0, 1]: real data, whose pairs are at small angles, the smallest .09."""
    import minintk as mn

    return mn.datasets.digits().x.astype(np.float32)


@cache
def _reference(data: str, depth: int, activation: str, b_std: float) -> tuple[Any, Any]:
    return infinite_kernels(DATA[data](), depth, activation, 2**0.5, b_std)


DATA: dict[str, Callable[[], Any]] = {"4000 x 784": partial(random_inputs, 4000, 784), "digits, 1797 x 64": digits}


def ours(a: Arrays, device: str, *, depth: int, activation: str, b_std: float) -> Work:
    """analytic.kernel(spec).both(x)."""
    import analytic as an
    import minintk as mn

    _, a = moved(a, device)
    phi: mn.spec.Layer = {"relu": mn.ReLU(), "erf": mn.Erf()}[activation]
    hidden = [layer for _ in range(depth) for layer in (mn.Dense(512, w_std=2**0.5, b_std=b_std), phi)]
    kernel = an.kernel(mn.Sequential(*hidden, mn.Dense(1, w_std=2**0.5, b_std=b_std)))

    def run() -> Any:
        both = kernel.both(a["x"])
        finished(both)
        return both

    return Work(run, lambda both: on_host({"nngp": both.nngp, "ntk": both.ntk}))


def neural_tangents(a: Arrays, device: str, *, depth: int, activation: str, b_std: float) -> Work:
    """The compiled kernel function of its stax network."""
    import jax
    from neural_tangents import stax

    x = jax.device_put(a["x"])
    assert x.dtype == a["x"].dtype
    phi = {"relu": stax.Relu, "erf": stax.Erf}[activation]
    hidden = [layer for _ in range(depth) for layer in (stax.Dense(512, 2**0.5, b_std or None), phi())]
    _, _, kernel = stax.serial(*hidden, stax.Dense(1, 2**0.5, b_std or None))
    compiled = jax.jit(kernel, static_argnames="get")

    def run() -> Any:
        return jax.block_until_ready(compiled(x, None, get=("nngp", "ntk")))

    return Work(run, lambda both: {"nngp": both.nngp, "ntk": both.ntk})


def flag(dtype: str) -> dict[str, str]:
    """JAX's 64-bit flag: on for float64 alone."""
    return {"JAX_ENABLE_X64": str(int(dtype == "float64"))}


def product(a: Arrays, device: str) -> Work:
    """x @ y' with y a copy of x, or BLAS would see the symmetry and do half of it."""
    xp, a = moved(a, device)
    x = a["x"]
    y = xp.asarray(x, copy=True)

    def run() -> Any:
        z = x @ y.T
        finished([z])
        return z

    return Work(run, answer=None)


def _inputs(data: str, dtype: str) -> Arrays:
    return {"x": DATA[data]().astype(dtype)}


def _answer(a: Arrays, *, data: str, depth: int, activation: str, b_std: float) -> Arrays:
    nngp, ntk = _reference(data, depth, activation, b_std)
    return {"nngp": nngp, "ntk": ntk}


def _row(data: str, depth: int, activation: str, b_std: float, dtype: str) -> Row:
    how: dict[str, Any] = {"depth": depth, "activation": activation, "b_std": b_std}
    peer = 3.0 if activation == "relu" else None
    twice_the_product = 0.5 if (activation, data, dtype) == ("relu", "4000 x 784", "float32") else None
    return Row(
        name=f"NNGP + NTK, {activation}, {depth} hidden, {'bias' if b_std else 'no bias'}, {data}, {dtype}",
        inputs=partial(_inputs, data, dtype),
        reference=partial(_answer, data=data, **how),
        tolerance={"float32": 1e-3, "float64": 1e-7}[dtype],
        sides=(
            Side("minintk", "ours", partial(ours, **how)),
            Side("neural-tangents", "jax", partial(neural_tangents, **how), peer, flag(dtype)),
            Side("x @ x.T alone, NumPy", "ours", product, twice_the_product),
        ),
    )


# ------------------------------------------------------------------------------------------------ images


@cache
def random_images(n: int, size: int) -> Any:
    """x : (N, size, size, 3), x ~ N(0, 1)."""
    return np.random.default_rng(1).standard_normal((n, size, size, 3)).astype(np.float32)


@cache
def two_processes() -> Executor:
    """Workers that have begun: each waits for the other's first task."""
    workers = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    list(workers.map(sleep, [0.5, 0.5]))
    return workers


def ours_cnn(a: Arrays, device: str, *, depth: int, pool: bool, processes: bool = False, numba: bool = True) -> Work:
    """analytic.kernel(spec).both(x), in threads or in two processes; their memory is not the caller's."""
    import analytic as an
    import analytic.images.plan
    import minintk as mn

    if not numba:
        analytic.images.plan.BYTES_WORTH_NUMBA = 2**62
    elif device == "cpu":
        analytic.images.plan.numba_works()  # loads it, as the peers' sides have loaded theirs

    _, a = moved(a, device)
    hidden = [layer for _ in range(depth) for layer in (mn.Conv2d(64, 3, w_std=2**0.5, b_std=0.1), mn.ReLU())]
    end = mn.GlobalAvgPool() if pool else mn.Flatten()
    kernel = an.kernel(mn.Sequential(*hidden, end, mn.Dense(1, w_std=2**0.5, b_std=0.1)))

    def run() -> Any:
        both = kernel.both(a["x"], executor=two_processes() if processes and device == "cpu" else None)
        finished(both)
        return both

    return Work(run, lambda both: on_host({"nngp": both.nngp, "ntk": both.ntk}))


def neural_tangents_cnn(a: Arrays, device: str, *, depth: int, pool: bool) -> Work:
    """The compiled kernel function of its stax network."""
    import jax
    from neural_tangents import stax

    x = jax.device_put(a["x"])
    assert x.dtype == a["x"].dtype
    hidden = [
        layer for _ in range(depth) for layer in (stax.Conv(64, (3, 3), (1, 1), "SAME", 2**0.5, 0.1), stax.Relu())
    ]
    end = stax.GlobalAvgPool() if pool else stax.Flatten()
    _, _, kernel = stax.serial(*hidden, end, stax.Dense(1, 2**0.5, 0.1))
    compiled = jax.jit(kernel, static_argnames="get")

    def run() -> Any:
        return jax.block_until_ready(compiled(x, None, get=("nngp", "ntk")))

    return Work(run, lambda both: {"nngp": both.nngp, "ntk": both.ntk})


def _cnn_inputs(n: int, size: int, dtype: str) -> Arrays:
    return {"x": random_images(n, size).astype(dtype)}


@cache
def _cnn_reference(n: int, size: int, depth: int, pool: bool) -> tuple[Any, Any]:
    return infinite_cnn_kernels(random_images(n, size), depth, pool, 2**0.5, 0.1)


def _cnn_answer(a: Arrays, *, depth: int, pool: bool) -> Arrays:
    nngp, ntk = _cnn_reference(a["x"].shape[0], a["x"].shape[1], depth, pool)
    return {"nngp": nngp, "ntk": ntk}


def _cnn_row(n: int, size: int, depth: int, pool: bool, dtype: str) -> Row:
    how: dict[str, Any] = {"depth": depth, "pool": pool}
    end, peer = "GlobalAvgPool" if pool else "Flatten", (10.0 if pool else 4.0, flag(dtype))
    return Row(
        name=f"NNGP + NTK, CNN, {depth} layers, {end}, {n} x {size} x {size} x 3, {dtype}",
        inputs=partial(_cnn_inputs, n, size, dtype),
        reference=partial(_cnn_answer, **how),
        tolerance={"float32": 1e-3, "float64": 1e-7}[dtype],
        sides=(
            Side("minintk", "ours", partial(ours_cnn, **how)),
            *((Side("neural-tangents", "jax", partial(neural_tangents_cnn, **how), *peer),) if depth < 10 else ()),
            Side("minintk, without Numba", "ours", partial(ours_cnn, numba=False, **how)),
            *((Side("minintk, 2 processes", "ours", partial(ours_cnn, processes=True, **how)),) if pool else ()),
        ),
    )


ROWS = tuple(
    _cnn_row(*what, dtype)
    for what in ((16, 16, 4, True), (6, 32, 4, True), (6, 32, 11, True), (128, 32, 5, False))
    for dtype in ("float32", "float64")
) + tuple(
    _row(*what, dtype)
    for what in (
        ("4000 x 784", 3, "relu", 0.1),
        ("4000 x 784", 3, "relu", 0.0),
        ("4000 x 784", 3, "erf", 0.1),
        ("digits, 1797 x 64", 3, "relu", 0.1),
    )
    for dtype in ("float32", "float64")
)
