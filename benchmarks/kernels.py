"""Define the benchmark rows for NNGP kernels and NTKs of fully connected, convolutional and attention networks.

One peer is neural-tangents, compiled by JAX. A second peer, for fully connected networks on 1000 or more inputs, is the
matrix product that every method needs. JAX's 64-bit flag is set for float64 and not for float32, because with the flag
neural-tangents computes in float64 even for float32 inputs. Most rows for pooled image kernels in float32 time
neural-tangents in float64, as XLA's convolution of one channel takes five times as long in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache, lru_cache, partial
from multiprocessing import get_context
from time import sleep
from typing import Any

import numpy as np
from harness import Arrays, Row, Side, Work
from ours import finished, moved, on_host
from reference import EXP, infinite_attention_kernels, infinite_cnn_kernels, infinite_kernels

NAMES: dict[str, tuple[str, str]] = {
    "relu": ("ReLU", "Relu"), "erf": ("Erf", "Erf"), "sin": ("Sin", "Sin"), "gelu": ("GELU", "Gelu"),
    "cos": ("Cos", "Cos"), "exp": ("Exp", "Exp"), "gaussian": ("Gaussian", "Gaussian"), "tanh": ("Tanh", ""),
}  # fmt: skip
"""The name of each activation in minintk and in neural-tangents, which integrates tanh by quadrature of degree 25."""


def _ours_phi(activation: str) -> Any:
    import minintk as mn

    return getattr(mn, NAMES[activation][0])(*(EXP if activation == "exp" else ()))


def _peers_phi(activation: str) -> Any:
    import jax
    from neural_tangents import stax

    if activation == "tanh":
        return stax.ElementwiseNumerical(jax.numpy.tanh, deg=25)
    return getattr(stax, NAMES[activation][1])(*(EXP if activation == "exp" else ()))


def random_inputs(n: int, d: int) -> Any:
    """Return x : (N, d), x ~ N(0, 1), rounded to float32, so that the exact kernels are equal in both precisions."""
    return np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)


def digits() -> Any:
    """Return the digits data set (8 x 8 pixels), x : (1797, 64) in [0, 1], as an example of real data.

    The smallest angle between two digits is .09 radians.
    """
    import minintk as mn

    return mn.datasets.digits().x.astype(np.float32)


def _ours(kernel: Any, a: Arrays, device: str, corner: int | None = None, executor: Any = None) -> Work:
    """Return a `Work` for kernel.both(x) or both(x, z). Its answer contains the first `corner` rows and columns."""
    _, a = moved(a, device)

    def run() -> Any:
        both = kernel.both(a["x"], a.get("z"), **({"executor": executor()} if executor else {}))
        finished(both)
        return both

    return Work(run, lambda both: on_host({name: getattr(both, name)[:corner, :corner] for name in ("nngp", "ntk")}))


def _theirs(kernel: Any, a: Arrays, corner: int | None = None, batch: int | None = None) -> Work:
    """Return the `Work` for neural-tangents' compiled kernel. batch : the block size for nt.batch, or None."""
    import jax
    import neural_tangents as nt

    x, z = (jax.numpy.asarray(a[name], float) if name in a else None for name in "xz")  # float64 if JAX's flag is set
    compiled = nt.batch(kernel, batch, 0) if batch else jax.jit(kernel, static_argnames="get")

    def run() -> Any:
        return jax.block_until_ready(compiled(x, z, get=("nngp", "ntk")))

    return Work(run, lambda both: {name: getattr(both, name)[:corner, :corner] for name in ("nngp", "ntk")})


def ours(a: Arrays, device: str, *, depth: int, activation: str, b_std: float, corner: int | None = None) -> Work:
    """Return the `Work` that computes analytic.kernel(spec).both(x), or both(x, z), for a fully connected network."""
    import analytic as an
    import minintk as mn

    phi = _ours_phi(activation)
    hidden = [layer for _ in range(depth) for layer in (mn.Dense(512, w_std=2**0.5, b_std=b_std), phi)]
    return _ours(an.kernel(mn.Sequential(*hidden, mn.Dense(1, w_std=2**0.5, b_std=b_std))), a, device, corner)


def neural_tangents(
    a: Arrays, device: str, *, depth: int, activation: str, b_std: float, corner: int | None = None
) -> Work:
    """Return the `Work` that computes neural-tangents' kernel for the network of `ours`."""
    from neural_tangents import stax

    phi = _peers_phi(activation)
    hidden = [layer for _ in range(depth) for layer in (stax.Dense(512, 2**0.5, b_std or None), phi)]
    return _theirs(stax.serial(*hidden, stax.Dense(1, 2**0.5, b_std or None))[2], a, corner)


def flag(dtype: str) -> dict[str, str]:
    """Return the environment variable that sets JAX's 64-bit flag if the dtype is float64 and clears it otherwise."""
    return {"JAX_ENABLE_X64": str(int(dtype == "float64"))}


def product(a: Arrays, device: str) -> Work:
    """Return the `Work` that computes x @ z', or x @ y' with a copy y of x if there is no z.

    Without the copy, BLAS would use the symmetry and do only half the work.
    """
    xp, a = moved(a, device)
    x = a["x"]
    y = a["z"] if "z" in a else xp.asarray(x, copy=True)

    def run() -> Any:
        z = x @ y.T
        finished([z])
        return z

    return Work(run, answer=None)


def _inputs(n: int, d: int, m: int, dtype: str) -> Arrays:
    """Return {"x": (N, d)}, and "z": (M, d) unless m = 0. The inputs are digits if n = 1797, and otherwise random."""
    x = (digits() if n == 1797 else random_inputs(n + m, d)).astype(dtype)
    return {"x": x[:n], "z": x[n:]} if m else {"x": x}


@lru_cache(1)
def _reference(n: int, d: int, m: int, corner: int | None, **how: Any) -> Arrays:
    a = _inputs(n, d, m, "float32")  # both precisions have the same inputs
    x, z = a["x"][:corner], a.get("z", a["x"])[:corner]
    return dict(zip(("nngp", "ntk"), infinite_kernels(x, z, w_std=2**0.5, **how)))


def _row(
    n: int, d: int, activation: str, b_std: float, dtype: str, *, m: int = 0, target: float | None = None,
) -> Row:  # fmt: skip
    """Return a row for a fully connected network with three hidden layers.

    m : the number of inputs z, or 0. For GELU and tanh, whose reference is slow, only a corner is compared.
    """
    how: dict[str, Any] = {"depth": 3, "activation": activation, "b_std": b_std}
    how["corner"] = 64 if activation in ("gelu", "tanh") else None
    twice_the_product = 0.5 if (activation, n, dtype) == ("relu", 4000, "float32") else None
    size, data = np.dtype(dtype).itemsize, "digits, " if n == 1797 else ""
    pairs = n * m or n * (n + 1) / 2
    return Row(
        name=f"NNGP + NTK, {activation}, 3 hidden, {'bias' if b_std else 'no bias'}, {data}{n} x {m or d}"
        f"{f', d = {d}' if m else ''}, {dtype}",
        inputs=partial(_inputs, n, d, m, dtype),
        reference=lambda a: _reference(n, d, m, **how),
        tolerance=2e-2 if activation == "tanh" else {"float32": 1e-3, "float64": 1e-7}[dtype],
        flops=2.0 * pairs * d,
        bytes=size * ((n + m) * d + 2.0 * (n * m or n * n)),
        entries=3 * pairs,
        sides=(
            Side("minintk", "ours", partial(ours, **how)),
            Side("neural-tangents", "jax", partial(neural_tangents, **how), target, flag(dtype)),
            *([Side("x @ x.T alone, NumPy", "ours", product, twice_the_product)] if n >= 1000 else []),
        ),
    )


# --------------------------------------------------------------------------------------------- sequences


def ours_attention(a: Arrays, device: str) -> Work:
    """Return the `Work` for minintk's kernel: pointwise ReLU, four-head softmax attention, global mean pooling."""
    import analytic as an
    import minintk as mn

    hidden = mn.Conv1d(64, 1, w_std=2**0.5), mn.ReLU(), mn.GlobalSelfAttention(64, heads=4)
    return _ours(an.kernel(mn.Sequential(*hidden, mn.GlobalAvgPool(), mn.Dense(1, w_std=2**0.5))), a, device)


def neural_tangents_attention(a: Arrays, device: str) -> Work:
    """Return the `Work` that computes neural-tangents' kernel for the network of `ours_attention`."""
    from neural_tangents import stax

    hidden = stax.Conv(64, (1,), W_std=2**0.5), stax.Relu(), stax.GlobalSelfAttention(64, 16, 16, 4)
    return _theirs(stax.serial(*hidden, stax.GlobalAvgPool(), stax.Dense(1, 2**0.5))[2], a)


def sequences(n: int, length: int, d: int) -> Arrays:
    """Return {"x": (N, L, d)} with entries drawn from N(0, 1)."""
    return {"x": np.random.default_rng(2).standard_normal((n, length, d))}


def _attention_row(n: int, length: int, d: int) -> Row:
    pairs = n * (n + 1) / 2
    return Row(
        name=f"NNGP + NTK, ReLU, attention, GlobalAvgPool, {n} x {length} x {d}, float64",
        inputs=partial(sequences, n, length, d),
        reference=lambda a: dict(zip(("nngp", "ntk"), infinite_attention_kernels(a["x"], 2**0.5))),
        tolerance=1e-7,
        flops=pairs * length**2 * (2 * d + 8 * length),
        bytes=8.0 * (n * length * d + 2 * n**2),
        entries=3 * pairs * length**2,
        sides=(
            Side("minintk", "ours", ours_attention),
            Side("neural-tangents", "jax", neural_tangents_attention, 1.0, flag("float64")),
        ),
    )


# ------------------------------------------------------------------------------------------------ images


@cache
def random_images(n: int, size: int) -> Any:
    """Return x : (N, size, size, 3), drawn from N(0, 1) and rounded to float32."""
    return np.random.default_rng(1).standard_normal((n, size, size, 3)).astype(np.float32)


@cache
def two_processes() -> Executor:
    """Return a pool of two running processes.

    Each process first runs a task that only sleeps, because the pool starts a new process only when none is free.
    """
    workers = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    list(workers.map(sleep, [0.5, 0.5]))
    return workers


def ours_cnn(
    a: Arrays, device: str, *, body: Sequence[str], pool: bool, processes: bool = False, numba: bool = True
) -> Work:
    """Return the `Work` that computes analytic.kernel(spec).both(x), in threads or in two processes.

    The measured memory does not include the memory of the two processes.
    """
    import analytic as an
    import analytic.fast.planes
    import minintk as mn

    if not numba:
        analytic.fast.planes.BYTES_WORTH_NUMBA = 2**62
    elif device == "cpu":
        analytic.fast.planes.numba_works()  # loads Numba before any timing; the peers have their compilers loaded too

    def part(name: str) -> list[Any]:
        return [mn.AvgPool(2)] if name == "mean" else [mn.Conv2d(64, 3, w_std=2**0.5, b_std=0.1), _ours_phi(name)]

    end = mn.GlobalAvgPool() if pool else mn.Flatten()
    hidden = [layer for name in body for layer in part(name)]
    kernel = an.kernel(mn.Sequential(*hidden, end, mn.Dense(1, w_std=2**0.5, b_std=0.1)))
    return _ours(kernel, a, device, executor=two_processes if processes and device == "cpu" else None)


def neural_tangents_cnn(a: Arrays, device: str, *, body: Sequence[str], pool: bool, batch: int | None = None) -> Work:
    """Return the `Work` that computes neural-tangents' kernel for the network of `ours_cnn`."""
    from neural_tangents import stax

    def part(name: str) -> list[Any]:
        if name == "mean":
            return [stax.AvgPool((2, 2), (2, 2))]
        return [stax.Conv(64, (3, 3), (1, 1), "SAME", 2**0.5, 0.1), _peers_phi(name)]

    end = stax.GlobalAvgPool() if pool else stax.Flatten()
    hidden = [layer for name in body for layer in part(name)]
    return _theirs(stax.serial(*hidden, end, stax.Dense(1, 2**0.5, 0.1))[2], a, batch=batch)


def _cnn_inputs(n: int, size: int, dtype: str) -> Arrays:
    return {"x": random_images(n, size).astype(dtype)}


@cache
def _cnn_reference(n: int, size: int, body: tuple[str, ...], pool: bool) -> Arrays:
    return dict(zip(("nngp", "ntk"), infinite_cnn_kernels(random_images(n, size), body, pool, 2**0.5, 0.1)))


def _cnn_answer(a: Arrays, *, body: tuple[str, ...], pool: bool) -> Arrays:
    return _cnn_reference(a["x"].shape[0], a["x"].shape[1], body, pool)


def _cnn_row(n: int, size: int, body: tuple[str, ...], pool: bool, dtype: str, *, peers: Sequence[str] = ()) -> Row:
    """Return a row for the kernel of a CNN on n images of `size` x `size` pixels.

    peers : how to run neural-tangents: any of "float32", "float64" and "batch" (nt.batch in float64).
    """
    how: dict[str, Any] = {"body": body, "pool": pool}
    layers = [name for name in body if name != "mean"]
    target = (10.0 if pool else 4.0) if layers[0] == "relu" else None
    theirs = partial(neural_tangents_cnn, **how)
    forms = {
        "float32": Side("neural-tangents", "jax", theirs, None if "float64" in peers else target, flag("float32")),
        "float64": Side("neural-tangents, in float64", "jax", theirs, target, flag("float64")),
        "batch": Side("neural-tangents, nt.batch of 2", "jax", partial(theirs, batch=2), None, flag("float64")),
    }
    pixels, entries = size**2, 0
    for name in body:
        pixels, entries = (pixels // 4, entries) if name == "mean" else (pixels, entries + pixels ** (1 + pool))
    at = "".join(f", mean of 2 x 2 after {i}" for i, name in enumerate(body) if name == "mean")
    pairs = n * (n + 1) / 2
    return Row(
        name=f"NNGP + NTK, CNN, {'' if layers[0] == 'relu' else layers[0] + ', '}{len(layers)} layers{at},"
        f" {'GlobalAvgPool' if pool else 'Flatten'}, {n} x {size} x {size} x 3, {dtype}",
        inputs=partial(_cnn_inputs, n, size, dtype),
        reference=partial(_cnn_answer, **how),
        tolerance=2e-2 if "tanh" in body else {"float32": 1e-3, "float64": 1e-7}[dtype],
        flops=2.0 * 3 * pairs * size ** (4 if pool else 2),
        bytes=np.dtype(dtype).itemsize * (3.0 * n * size**2 + 2 * n**2),
        entries=pairs * entries,
        sides=(
            Side("minintk", "ours", partial(ours_cnn, **how)),
            *(forms[form] for form in peers),
            *([Side("minintk, without Numba", "ours", partial(ours_cnn, numba=False, **how))] if n > 4 else []),
            *(
                [Side("minintk, 2 processes", "ours", partial(ours_cnn, processes=True, **how))]
                if len(body) > 9
                else []
            ),
        ),
    )


POOLED: tuple[tuple[tuple[int, int, tuple[str, ...]], str, tuple[str, ...]], ...] = (
    ((16, 16, ("relu",) * 4), "float32", ("float64",)),
    ((16, 16, ("relu",) * 4), "float64", ("float64", "batch")),
    ((6, 32, ("relu",) * 4), "float32", ("float64",)),
    ((6, 32, ("relu",) * 4), "float64", ("float64",)),
    ((2, 32, ("relu",) * 11), "float32", ("float64",)),
    ((6, 32, ("relu",) * 11), "float32", ()),
    ((6, 32, ("relu",) * 11), "float64", ()),
    ((6, 16, ("relu", "relu", "mean", "relu", "relu", "relu")), "float32", ("float32", "float64")),
    ((4, 16, ("erf",) * 3), "float32", ("float32", "float64")),
    ((4, 8, ("gelu",) * 3), "float32", ("float32", "float64")),
    ((4, 8, ("sin",) * 3), "float32", ("float32", "float64")),
    ((4, 8, ("tanh",) * 3), "float32", ("float32",)),
)
"""((N, pixels per side, layers), dtype, `peers` of `_cnn_row`). Some peers are left out because they take minutes."""

ROWS = (
    *(_cnn_row(*what, True, dtype, peers=peers) for what, dtype, peers in POOLED),
    *(_cnn_row(128, 32, ("relu",) * 5, False, dtype, peers=[dtype]) for dtype in ("float32", "float64")),
    *(_row(4000, 784, "relu", 0.1, dtype, target=3.0) for dtype in ("float32", "float64")),
    *(_row(1000, 3072, "relu", 0.1, dtype) for dtype in ("float32", "float64")),
    *(_row(n, 784, "relu", 0.1, "float64") for n in (50, 100, 200)),
    *(_row(10_000, 784, "relu", 0.1, dtype, m=16) for dtype in ("float32", "float64")),
    *(_row(4000, 784, "erf", 0.1, dtype) for dtype in ("float32", "float64")),
    *(_row(1000, 784, phi, 0.1, dtype) for phi in ("sin", "gelu") for dtype in ("float32", "float64")),
    *(_row(1000, 784, phi, 0.1, "float64") for phi in ("cos", "exp", "gaussian")),
    _row(200, 784, "tanh", 0.1, "float32"),
    *(_attention_row(n, 16, 8) for n in (64, 256)),
    *(_row(1797, 64, "relu", 0.1, dtype, target=3.0) for dtype in ("float32", "float64")),
)  # fmt: skip
