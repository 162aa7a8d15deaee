"""List forty wrong backward functions of dense, convolution, pooling and activation layers, with the diagnosis of each.

python tests/minintk/grade/wrong_gradients.py        the table
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minintk.grade import Diagnosis, check_gradient

Array = Any


@dataclass(frozen=True)
class Wrong:
    """A wrong backward function.  where, causes : the place that must be named, and the accepted causes."""

    name: str
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    args: tuple[Any, ...]
    where: str
    causes: tuple[str, ...]

    def diagnose(self) -> Diagnosis:
        return check_gradient(self.forward, self.backward, self.args)

    def named(self, said: Diagnosis) -> bool:
        """True if the first finding at the expected place names an accepted cause."""
        return said.causes.get(self.where) in self.causes


# ------------------------------------------------------------------------------------------------------ dense


def dense(x: Array, W: Array, b: Array, m: float) -> Array:
    return m * (x @ W) + b


def dense_backward(u: Array, x: Array, W: Array, b: Array, m: float) -> tuple[Array, ...]:
    return m * (u @ W.T), m * (x.T @ u), u.sum(axis=0)


def relu_dense(x: Array, W: Array, b: Array) -> Array:
    return np.maximum(x @ W + b, 0)


def relu_dense_backward(u: Array, x: Array, W: Array, b: Array) -> tuple[Array, ...]:
    v = u * (x @ W + b > 0)
    return v @ W.T, x.T @ v, v.sum(axis=0)


def tanh(x: Array) -> Array:
    return np.tanh(x)


def dense_with_cache(x: Array, W: Array, b: Array, m: float) -> tuple[Array, Array]:
    return dense(x, W, b, m), (x, W, m)


def dense_cache_backward(u: Array, cache: Any) -> tuple[Array, ...]:
    x, W, m = cache
    return m * (u @ W.T), m * (x.T @ u), u.sum(axis=0)


class Adds:
    """A backward pass that accumulates the gradient with respect to W over all calls."""

    def __init__(self) -> None:
        self.dW: Array = 0.0

    def __call__(self, u: Array, x: Array, W: Array, b: Array, m: float) -> tuple[Array, ...]:
        self.dW = self.dW + m * (x.T @ u)
        return m * (u @ W.T), self.dW, u.sum(axis=0)


def in_place(u: Array, x: Array, W: Array, b: Array, m: float) -> tuple[Array, ...]:
    u *= m
    return u @ W.T, x.T @ u, u.sum(axis=0) / m


def last_only(u: Array, x: Array, W: Array, b: Array, m: float) -> tuple[Array, ...]:
    for n in range(len(x)):
        dW = m * np.outer(x[n], u[n])
    return m * (u @ W.T), dW, u.sum(axis=0)


def double(u: Array, x: Array, W: Array, b: Array, m: float) -> tuple[Array, ...]:
    dW = np.zeros(W.shape)
    dW += m * (x.T @ u)
    return m * (u @ W.T), dW, u.sum(axis=0)


def by_sign(u: Array, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return u * (1 + x / np.abs(x)) / 2


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def dense_variants() -> Iterator[Wrong]:
    rng = np.random.default_rng(0)
    x, W, b, m = rng.standard_normal((5, 4)), rng.standard_normal((4, 4)), rng.standard_normal(4), 0.7
    right = dense_backward

    def but(which: int, change: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*a: Any) -> tuple[Any, ...]:
            g = list(right(*a))
            g[which] = change(g[which], *a)
            return tuple(g)

        return backward

    args = (x, W, b, m)

    def one(name: str, which: int, change: Callable[..., Any], *causes: str) -> Wrong:
        return Wrong(name, dense, but(which, change), args, ("dx", "dW", "db")[which], causes)

    yield one("dx = u W, no transpose", 0, lambda g, u, x, W, b, m: m * (u @ W), "map transposed")
    yield one("dx without m", 0, lambda g, u, x, W, b, m: u @ W.T, "factor")
    yield one("dx with the wrong sign", 0, lambda g, *a: -g, "sign")
    yield one("dx is None", 0, lambda g, *a: None, "nothing")
    yield one("dx stays zero", 0, lambda g, *a: 0 * g, "zeros")
    yield one("dW = u' x, transposed", 1, lambda g, *a: g.T, "transpose")
    yield one("dW a mean over examples", 1, lambda g, *a: g / 5, "mean for sum")
    yield one("dW without m", 1, lambda g, u, x, *a: x.T @ u, "factor")
    yield one("dW twice too large", 1, lambda g, *a: 2 * g, "factor")
    yield one("db a mean over examples", 2, lambda g, *a: g / 5, "mean for sum")
    yield one("db not summed", 2, lambda g, u, *a: u, "broadcast")
    yield one("db of shape (1, n)", 2, lambda g, *a: g[None], "wrong shape")
    yield Wrong("dW added to the last call's", dense, Adds(), args, "dW", ("accumulated",))
    yield Wrong("u changed in place", dense, in_place, args, "u", ("in place",))
    yield Wrong("dW of the last example only", dense, last_only, args, "dW", ("one example",))
    yield Wrong("float64 for float32", dense, double, args, "dW", ("wrong dtype",))
    wide = (x, rng.standard_normal((4, 3)), rng.standard_normal(3), m)
    yield Wrong(
        "dW, dx in the wrong order", dense, lambda *a: [right(*a)[k] for k in (1, 0, 2)], wide, "dx", ("swapped",)
    )
    yield Wrong(
        "relu's mask forgotten", relu_dense, lambda u, x, W, b: right(u, x, W, b, 1.0), (x, W, b), "dx", ("mask",)
    )
    yield Wrong("tanh' at the output", tanh, lambda u, x: u / np.cosh(np.tanh(x)) ** 2, (x,), "dx", ("at the output",))
    yield Wrong("relu' by x / |x|: NaN at 0", lambda x: np.maximum(x, 0), by_sign, (x,), "dx", ("nan",))


# --------------------------------------------------------------------------------------- convolution, pooling


def windows(x: Array, K: int, stride: int = 1) -> Iterator[tuple[int, int, slice, slice]]:
    for i in range((x.shape[1] - K) // stride + 1):
        for j in range((x.shape[2] - K) // stride + 1):
            yield i, j, slice(stride * i, stride * i + K), slice(stride * j, stride * j + K)


def valid(x: Array, W: Array, stride: int = 1) -> Array:
    K = W.shape[0]
    y = np.zeros((len(x), (x.shape[1] - K) // stride + 1, (x.shape[2] - K) // stride + 1, W.shape[3]), x.dtype)
    for i, j, a, b in windows(x, K, stride):
        y[:, i, j] = np.tensordot(x[:, a, b], W, 3)
    return y


def pad(x: Array, p: int) -> Array:
    return np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))


def conv(x: Array, W: Array, b: Array) -> Array:
    """Convolve with stride 1 and "same" padding."""
    return valid(pad(x, W.shape[0] // 2), W) + b


def conv_backward(u: Array, x: Array, W: Array, b: Array, add: bool = True, crop: int = 1) -> tuple[Array, ...]:
    K, xp = W.shape[0], pad(x, W.shape[0] // 2)
    dx, dW = np.zeros_like(xp), np.zeros_like(W)
    for i, j, a, c in windows(xp, K):
        part = np.tensordot(u[:, i, j], W, (1, 3))
        dx[:, a, c] = dx[:, a, c] + part if add else part
        dW += np.tensordot(xp[:, a, c], u[:, i, j], (0, 0))
    return dx[:, crop : crop + x.shape[1], crop : crop + x.shape[2]], dW, u.sum(axis=(0, 1, 2))


def strided(x: Array, W: Array) -> Array:
    return valid(x, W, 2)


def strided_backward(u: Array, x: Array, W: Array) -> tuple[Array, ...]:
    dx, dW = np.zeros_like(x), np.zeros_like(W)
    for i, j, a, c in windows(x, W.shape[0], 2):
        dx[:, a, c] += np.tensordot(u[:, i, j], W, (1, 3))
        dW += np.tensordot(x[:, a, c], u[:, i, j], (0, 0))
    return dx, dW


def avg_pool(x: Array, window: int) -> Array:
    y = np.zeros((len(x), x.shape[1] // window, x.shape[2] // window, x.shape[3]), x.dtype)
    for i, j, a, b in windows(x, window, window):
        y[:, i, j] = x[:, a, b].mean(axis=(1, 2))
    return y


def avg_pool_backward(u: Array, x: Array, window: int) -> Array:
    dx = np.zeros_like(x)
    for i, j, a, b in windows(x, window, window):
        dx[:, a, b] += u[:, i : i + 1, j : j + 1] / window**2
    return dx


def max_pool(x: Array, window: int, stride: int) -> Array:
    y = np.zeros(
        (len(x), (x.shape[1] - window) // stride + 1, (x.shape[2] - window) // stride + 1, x.shape[3]), x.dtype
    )
    for i, j, a, b in windows(x, window, stride):
        y[:, i, j] = x[:, a, b].max(axis=(1, 2))
    return y


def max_pool_backward(u: Array, x: Array, window: int, stride: int, pick: str = "first", add: bool = True) -> Array:
    dx = np.zeros_like(x)
    for i, j, a, b in windows(x, window, stride):
        part = x[:, a, b]
        flat = part.reshape(len(x), -1, x.shape[3])
        at = flat.argmin(axis=1) if pick == "least" else flat.argmax(axis=1)
        mask = np.moveaxis(np.eye(window**2)[at], 2, 1).reshape(part.shape)
        if pick == "all":
            mask = part == part.max(axis=(1, 2), keepdims=True)
        if pick == "even":
            mask = np.full(part.shape, 1 / window**2)
        share = (u[:, i : i + 1, j : j + 1] * mask).astype(x.dtype)
        dx[:, a, b] = dx[:, a, b] + share if add else share
    return dx


def conv_variants() -> Iterator[Wrong]:
    rng = np.random.default_rng(1)
    x, W, b = rng.standard_normal((2, 5, 4, 3)), rng.standard_normal((3, 3, 3, 3)), rng.standard_normal(3)
    args, right = (x, W, b), conv_backward

    def dx(name: str, change: Callable[..., Any], *causes: str) -> Wrong:
        return Wrong(name, conv, lambda *a: (change(*a), *right(*a)[1:]), args, "dx", causes)

    def dW(name: str, change: Callable[..., Any], *causes: str) -> Wrong:
        return Wrong(name, conv, lambda *a: (right(*a)[0], change(right(*a)[1], *a), right(*a)[2]), args, "dW", causes)

    def db(name: str, change: Callable[..., Any], *causes: str) -> Wrong:
        return Wrong(name, conv, lambda *a: (*right(*a)[:2], change(*a)), args, "db", causes)

    yield dx("dx with the kernel not flipped", lambda u, x, W, b: right(u, x, W[::-1, ::-1], b)[0], "flip")
    yield dx("dx with channels swapped", lambda u, x, W, b: right(u, x, W.swapaxes(2, 3), b)[0], "map transposed")
    yield dx("dx shifted by (1, 1)", lambda u, x, W, b: right(u, x, W, b, crop=0)[0], "shift")
    yield dx("dx shifted by (0, -1)", lambda *a: np.roll(right(*a)[0], -1, axis=2), "shift")
    yield dx("dx overwritten where windows overlap", lambda u, x, W, b: right(u, x, W, b, add=False)[0], "overwritten")
    yield dx("dx lost at the border", lambda *a: pad(right(*a)[0][:, 1:-1, 1:-1], 1), "border")
    yield dx("dx with its padding", lambda *a: pad(right(*a)[0], 1), "wrong shape", "padding")
    yield dx("dx with the wrong sign", lambda *a: -right(*a)[0], "sign")
    yield dW("dW flipped in space", lambda g, *a: g[::-1, ::-1], "flip")
    yield dW("dW with channels swapped", lambda g, *a: g.swapaxes(2, 3), "transpose")
    yield dW("dW a mean over pixels", lambda g, *a: g / 20, "mean for sum")
    yield dW("dW of the first example only", lambda g, u, x, W, b: right(u[:1], x[:1], W, b)[1], "one example")
    yield db("db summed over examples only", lambda u, *a: u.sum(axis=0), "broadcast")
    yield db("db a mean over all", lambda u, *a: u.mean(axis=(0, 1, 2)), "mean for sum")
    odd = rng.standard_normal((2, 5, 5, 2)), rng.standard_normal((3, 3, 2, 3))
    yield Wrong("stride forgotten in dx", strided, unstrided_backward, odd, "dx", ("stride",))
    z = rng.standard_normal((2, 6, 6, 2))
    avg, most = avg_pool_backward, max_pool_backward
    yield Wrong("avg-pool not divided", avg_pool, lambda u, x, w: 9 * avg(u, x, w), (z, 3), "dx", ("sum for mean",))
    for name, pick, add, stride, cause in (
        ("max-pool: ties get all of it", "all", True, 3, "ties"),
        ("max-pool: to the least", "least", True, 3, "other argument"),
        ("max-pool: shared evenly", "even", True, 3, "spread"),
        ("max-pool: overwritten where windows overlap", "first", False, 1, "overwritten"),
    ):
        yield Wrong(name, max_pool, partial(most, pick=pick, add=add), (z, 3, stride), "dx", (cause,))


def unstrided_backward(u: Array, x: Array, W: Array) -> tuple[Array, ...]:
    dx, dW = strided_backward(u, x, W)
    dx[...] = 0
    for i, j, _, _ in windows(x, 3, 2):
        dx[:, i : i + 3, j : j + 3] += np.tensordot(u[:, i, j], W, (1, 3))
    return dx, dW


def right_ones() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """Yield correct functions for the layers above. The checker must accept them."""
    rng = np.random.default_rng(2)
    x, W, b = rng.standard_normal((5, 4)), rng.standard_normal((4, 4)), rng.standard_normal(4)
    image, kernel = rng.standard_normal((2, 5, 4, 3)), rng.standard_normal((3, 3, 3, 3))
    yield "dense", dense, dense_backward, (x, W, b, 0.7)
    yield "dense, one example", dense, dense_backward, (x[:1], W, b, 0.7)
    yield "dense, float32", dense, dense_backward, (x.astype(np.float32), W, b, 0.7)
    yield "dense with a cache", dense_with_cache, dense_cache_backward, (x, W, b, 0.7)
    yield (
        "dense, by name",
        dense,
        lambda *a: dict(zip(("dx", "dW", "db"), dense_backward(*a), strict=True)),
        (x, W, b, 2.0),
    )
    yield "dense and relu", relu_dense, relu_dense_backward, (x, W, b)
    yield "relu", lambda x: np.maximum(x, 0), lambda u, x: u * (x > 0), (x,)
    yield "relu with the subgradient 1/2", lambda x: np.maximum(x, 0), lambda u, x: u * (np.sign(x) + 1) / 2, (x,)
    yield "softmax", softmax, lambda u, x: softmax(x) * (u - (u * softmax(x)).sum(axis=1, keepdims=True)), (x,)
    yield "convolution", conv, conv_backward, (image, kernel, b[:3])
    yield "convolution, stride 2", strided, strided_backward, (image, kernel)
    yield "average pooling", avg_pool, avg_pool_backward, (rng.standard_normal((2, 6, 6, 2)), 3)
    for stride in (3, 1):
        yield (
            f"max pooling, stride {stride}",
            max_pool,
            max_pool_backward,
            (rng.standard_normal((2, 6, 6, 2)), 3, stride),
        )


def table() -> str:
    """Return a table with the finding for each wrong function."""
    lines = []
    for title, variants in (("Dense", dense_variants), ("Convolution and pooling", conv_variants)):
        count = named = 0
        rows = []
        for wrong in variants():
            began = time.perf_counter()
            said = wrong.diagnose()
            took = time.perf_counter() - began
            count, named = count + 1, named + wrong.named(said)
            first = next((f for f in said.findings if f.where == wrong.where), None) or str(said).splitlines()[0]
            rows.append(f"{'yes' if wrong.named(said) else 'NO ':4} {took:5.2f} s  {wrong.name:45} {first}")
        lines += [f"{title}: {named} of {count} named by their cause", *rows, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
