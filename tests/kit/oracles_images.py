"""Compute convolution, pooling and normalisation by plain loops over pixels, which are slow but easy to verify."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt
from typing import Any

import numpy as np

import minintk as mn
from minintk.layers.contract import bind
from minintk.spec.shapes import Site

Array = mn.Array


def window(size: int, kernel: int, stride: int, padding: Any) -> list[list[int | None]]:
    """Return the pixels that each output reads along one axis. Positions outside the image are None."""
    if padding == "valid":
        before, after = 0, 0
    elif padding in ("same", "circular"):
        missing = max((ceil(size / stride) - 1) * stride + kernel - size, 0)
        before, after = missing // 2, missing - missing // 2
    else:
        before, after = padding
    found: list[list[int | None]] = []
    first = -before
    while first + kernel <= size + after:
        reads = range(first, first + kernel)
        found.append([i % size if padding == "circular" else i if 0 <= i < size else None for i in reads])
        first += stride
    return found


def windows(layer: Any, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], list[tuple[Any, Any, int, int]]]]:
    """Yield (output pixel, [(row, column, i, j) that the pixel reads]) for images of shape (H, W, C)."""

    def pair(value: Any) -> tuple[Any, Any]:
        return value if isinstance(value, tuple) else (value, value)

    kernel = pair(layer.window if isinstance(layer, (mn.AvgPool, mn.MaxPool)) else layer.kernel_size)
    stride = kernel if layer.stride is None else pair(layer.stride)
    padding = pair(layer.padding)
    each = [(p, p) if isinstance(p, int) else p for p in padding]
    rows, columns = (window(*four) for four in zip(shape[:2], kernel, stride, each, strict=True))
    for p, reads_down in enumerate(rows):
        for q, reads_right in enumerate(columns):
            yield (p, q), [(r, c, i, j) for i, r in enumerate(reads_down) for j, c in enumerate(reads_right)]


def convolution(layer: Any, x: Array, W: Array, b: Array | None) -> Array:
    """Compute z[p] = w_std / sqrt(K K C_in) sum_s x[p + s] W[s] + b_std b with loops over single entries."""
    out: dict[tuple[int, int], Array] = {}
    for at, reads in windows(layer, x.shape[1:]):
        z = np.zeros((len(x), layer.channels))
        for r, c, i, j in reads:
            if r is not None and c is not None:
                for n in range(len(x)):
                    for o in range(layer.channels):
                        for a in range(x.shape[-1]):
                            z[n, o] += x[n, r, c, a] * W[i, j, a, o]
        out[at] = layer.w_std / sqrt(W[..., 0].size) * z + (0.0 if b is None else layer.b_std * b)
    return gathered(out)


def pooled(layer: Any, x: Array) -> Array:
    """Return the mean (AvgPool) or the maximum (MaxPool) of each window.

    `normalize_edges` excludes the zeros outside the image from the mean.
    """
    out: dict[tuple[int, int], Array] = {}
    for at, reads in windows(layer, x.shape[1:]):
        inside = [x[:, r, c] for r, c, _, _ in reads if r is not None and c is not None]
        if isinstance(layer, mn.AvgPool):
            out[at] = np.sum(inside, axis=0) / len(inside if layer.normalize_edges else reads)
        else:
            out[at] = np.max(inside, axis=0)
    return gathered(out)


def gathered(out: dict[tuple[int, int], Array]) -> Array:
    """Stack the outputs of all pixels into an array of shape (N, H, W, C)."""
    H, W = (1 + max(at[k] for at in out) for k in (0, 1))
    return np.stack([np.stack([out[p, q] for q in range(W)], axis=1) for p in range(H)], axis=1)


def loop_norm(groups: list[tuple[Any, ...]], x: Array, eps: float) -> Array:
    """Return (x - mean) / sqrt(variance + eps), with the mean and the variance over each group of entries."""
    y = np.empty_like(x)
    for group in groups:
        numbers = [float(a) for a in np.ravel(x[group])]
        mean = sum(numbers) / len(numbers)
        variance = sum((a - mean) ** 2 for a in numbers) / len(numbers)
        y[group] = (x[group] - mean) / sqrt(variance + eps)
    return y


def max_pool(x: Array) -> tuple[Array, Array]:
    """Return (y, dy/dx) of the library's MaxPool for one image of 2 x 2 pixels."""
    y, J = bind(mn.MaxPool(2), Site((2, 2, 1), first=False), mn.NTK(), "0")({}, x[None, :, :, None])
    dx = J.vjp(np.ones_like(y), None)
    assert dx is not None
    return y, dx[0, :, :, 0]
