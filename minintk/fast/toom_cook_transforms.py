"""Tiles: a convolution of stride 1 with fewer multiplications, after Toom (1963) and Cook (1966).

Along one axis the product of two polynomials, of m coefficients u and r coefficients w, is known from its values at
n = m + r - 1 points, infinity one of them: n multiplications instead of m r.  With the powers V_k of the points,

    u * w = V_n^-1 [(V_m u) . (V_r w)]         V_k[p, j] = p^j,   at infinity the last coefficient

The same map transposed in u takes n pixels x of an image to m pixels of its convolution with r weights,

    y = A' [(G w) . (B x)]                     A = V_m,   G = V_r,   B = V_n^-T

and along both axes the matrices are Kronecker products.  In each of the n^2 points a product of matrices is left, over
the channels: for windows of 5 x 5 pixels 36 of them for 2 x 2 pixels of the output instead of 100, for 3 x 3 pixels 36
for 4 x 4 instead of 144 (these are Winograd's, 1980).

    read     x -> X = B x       (..., N, H, W, C) -> (..., n^2, N T, C), for the T tiles of an image
    add      X -> x = B' X      every entry is added to the pixel that it was read from
    unroll   W -> V = G W       (..., r r C, C_out) -> (..., n^2, C, C_out), to multiply X with
    roll     V -> W = G' V
    write    Y -> y = A' Y      (..., n^2, N T, C_out) -> (..., N, H_out, W_out, C_out)
    take     y -> Y = A y
    zeros    0 -> 0             exact zeros for windows that read only zeros: the transform mixes in the tile's rounding

Rounding errors grow with the inverse of V_n.  At these points a convolution in float32 is off by 1e-6 of its root mean
square, four times a plain one's error, gradients by six to eight times a plain one's; a seventh point would double
that.  The largest numbers of a dtype overflow a factor of ten earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, reduce
from math import prod
from operator import or_
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, matmul_into, strided, to_library
from minintk.fast.memory import scratch
from minintk.fast.thresholds import THRESHOLDS
from minintk.layers.patches import Windows
from minintk.spec.shapes import Shape
from minintk.spec.windows import Axis

POINTS = (0.0, 1.0, -1.0, 2.0, -0.5)
"""The points beside infinity, the first n - 1 of them: of the simple fractions those with the smallest errors."""


def powers(n: int, k: int) -> np.ndarray[Any, Any]:
    """V_k : (n, k), the powers 0 ... k - 1 of the first n - 1 points, and of infinity.

    >>> powers(3, 2)
    array([[1., 0.],
           [1., 1.],
           [0., 1.]])
    """
    V = np.zeros((n, k))
    V[:-1] = np.array(POINTS[: n - 1])[:, None] ** np.arange(k)
    V[-1, -1] = 1
    return V


@cache
def transforms(tile: tuple[int, int], window: tuple[int, int], dtype: str) -> tuple[np.ndarray[Any, Any], ...]:
    """(A, G, B) : (n^2, m^2), (n^2, r^2) and (n^2, n^2), Kronecker products of those for rows and for columns."""
    axes = []
    for m, r in zip(tile, window, strict=True):
        n = m + r - 1
        axes.append((powers(n, m), powers(n, r), np.linalg.inv(powers(n, n)).T))
    return tuple(np.kron(down, right).astype(dtype) for down, right in zip(*axes, strict=True))


def longest(a: Axis) -> int:
    """m: the longest tile that the points allow and that divides the output's pixels; 1 where there is none."""
    return next((m for m in range(len(POINTS) + 2 - a.kernel, 1, -1) if a.out % m == 0), 1)


@dataclass(frozen=True)
class Tiles:
    """The tiles of a convolution of C channels into C_out."""

    windows: Windows
    channels: tuple[int, int]

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Height and width of a tile of the output, m."""
        return longest(self.windows.rows), longest(self.windows.columns)

    @cached_property
    def reads(self) -> tuple[int, int]:
        """Height and width of what a tile is read from, n."""
        return self.tile[0] + self.windows.window[0] - 1, self.tile[1] + self.windows.window[1] - 1

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Tiles below each other, and side by side; T in all."""
        return self.windows.rows.out // self.tile[0], self.windows.columns.out // self.tile[1]

    @property
    def fit(self) -> bool:
        """Whether there are tiles that save something along both axes; along one alone it is not worth the trouble."""
        return (
            self.windows.rows.stride == self.windows.columns.stride == 1 and min(*self.windows.window, *self.tile) > 1
        )

    @property
    def worth(self) -> bool:
        """Whether the products save more than the transforms of their factors and of their sums cost."""
        (C, n), fewer = self.channels, prod(self.windows.window) * prod(self.tile) / prod(self.reads)
        return self.fit and C * n * (fewer - 1) >= THRESHOLDS.tiles_saving * (C + n)

    def step(self, x: Array, lead: Shape) -> int:
        """Images whose X and Y, with these axes in front, are a chunk."""
        bytes_each = prod(self.reads) * prod(self.counts) * sum(self.channels) * int(x.dtype.itemsize)
        return max(1, THRESHOLDS.tiles_bytes // (bytes_each * prod(lead)))

    def transforms(self, like: Array) -> tuple[Array, ...]:
        """A, G, B in the library and the dtype of an array."""
        xp = array_namespace(like)
        return tuple(to_library(a, xp) for a in transforms(self.tile, self.windows.window, str(like.dtype)))

    # ------------------------------------------------------------------------------------------- inputs

    def read(self, x: Array) -> Array:
        """X = B x : (..., n^2, N T, C) for x : (..., N, H, W, C), in memory that the next call may reuse."""
        x = self.windows.pad(x)
        lead, N, C = x.shape[:-4], x.shape[-4], x.shape[-1]
        (down, right), (h, w, c) = self.tile, x.strides[-3:]
        view = strided(
            x,
            (*lead, *self.reads, N, *self.counts, C),
            (*x.strides[:-4], h, w, x.strides[-4], h * down, w * right, c),
        )
        pixels = scratch(x, view.shape, "patches")
        pixels[...] = view
        flat = (*lead, prod(self.reads), N * prod(self.counts) * C)
        X = scratch(x, flat, "points")
        matmul_into(self.transforms(x)[2], pixels.reshape(flat), X)
        return X.reshape((*flat[:-1], -1, C))

    def add(self, X: Array, x: Array) -> None:
        """Writes to each pixel of x : (..., N, H, W, C) the sum of the entries of B' X that were read from it."""
        (height, width), (h, w), (down, right) = self.reads, self.counts, self.tile
        lead, N, C, xp = x.shape[:-4], x.shape[-4], x.shape[-1], array_namespace(x)
        pixels = scratch(X, (*lead, height, width, N, h, w, C), "patches")
        flat = (*lead, height * width, N * h * w * C)
        matmul_into(self.transforms(X)[2].T, X.reshape(flat), pixels.reshape(flat))
        bands = scratch(X, (*lead, height, N, h, self.windows.size[1], C), "bands")  # columns added up
        bands[...] = 0
        for j in range(0, width, right):
            part = xp.moveaxis(pixels[..., j : j + right, :, :, :, :], -5, -2)
            runs(bands[..., j:, :], -2, part.shape[-3:-1], right)[...] += part
        size = (*lead, N, *self.windows.size, C)
        canvas = x if size == x.shape else xp.empty(size, dtype=X.dtype)
        canvas[...] = 0
        for i in range(0, height, down):
            part = xp.moveaxis(bands[..., i : i + down, :, :, :, :], -5, -3)
            runs(canvas[..., i:, :, :], -3, part.shape[-4:-2], down)[...] += part
        if canvas is not x:
            x[...] = self.windows.crop(canvas)

    # ------------------------------------------------------------------------------------------ weights

    def unroll(self, W: Array) -> Array:
        """V = G W : (..., n^2, C, C_out) for W : (..., r r C, C_out)."""
        V = self.transforms(W)[1] @ W.reshape((*W.shape[:-2], prod(self.windows.window), prod(self.channels)))
        return V.reshape((*V.shape[:-1], *self.channels))

    def roll(self, V: Array) -> Array:
        """W = G' V : (..., r r C, C_out)."""
        W = self.transforms(V)[1].T @ V.reshape((*V.shape[:-2], prod(self.channels)))
        return W.reshape((*W.shape[:-2], prod(self.windows.window) * self.channels[0], self.channels[1]))

    # ------------------------------------------------------------------------------------------ outputs

    def write(self, Y: Array, y: Array) -> None:
        """y[...] = A' Y for y : (..., N, H_out, W_out, C_out)."""
        lead, rest = Y.shape[:-3], Y.shape[-2] * Y.shape[-1]
        pixels = scratch(Y, (*lead, prod(self.tile), rest), "patches")
        matmul_into(self.transforms(Y)[0].T, Y.reshape((*lead, prod(self.reads), rest)), pixels)
        self.by_place(y)[...] = pixels.reshape((*lead, *self.places(y)))

    def take(self, y: Array) -> Array:
        """Y = A y : (..., n^2, N T, C_out), in memory that the next call may reuse."""
        lead, places = y.shape[:-4], self.places(y)
        pixels = scratch(y, (*lead, *places), "patches")
        pixels[...] = self.by_place(y)
        rest = prod(places) // prod(self.tile)
        Y = scratch(y, (*lead, prod(self.reads), rest), "outputs")
        matmul_into(self.transforms(y)[0], pixels.reshape((*lead, prod(self.tile), rest)), Y)
        return Y.reshape((*lead, prod(self.reads), -1, y.shape[-1]))

    def zeros(self, x: Array, y: Array) -> None:
        """Sets y to 0 where a window reads nothing else.

        Rounding may have left 1e-16 there; relu'(1e-16) is not relu'(0), and not the first of these is the maximum.
        """
        lit, (height, width) = (x != 0).any(axis=-1, keepdims=True), self.windows.window
        a, b = self.windows.rows, self.windows.columns
        if max(a.before, a.after) < height and max(b.before, b.after) < width and bool(lit.all()):
            return
        lit = self.windows.pad(lit)[..., 0]
        lit = reduce(or_, (lit[..., i : i + a.out, :] for i in range(height)))
        lit = reduce(or_, (lit[..., j : j + b.out] for j in range(width)))
        dark = array_namespace(y).broadcast_to(~lit, y.shape[:-1])
        y[dark] = 0

    def places(self, y: Array) -> Shape:
        """(m, m, N, T's two axes, C_out): the pixels of y, place in the tile by place in the tile."""
        return (*self.tile, y.shape[-4], *self.counts, y.shape[-1])

    def by_place(self, y: Array) -> Array:
        """A view of y : (..., N, h, m, w, m, C_out) with its axes as `places` has them."""
        (m, k), (h, w), lead = self.tile, self.counts, y.ndim - 4
        y = y.reshape((*y.shape[:-3], h, m, w, k, y.shape[-1]))
        return array_namespace(y).permute_dims(y, (*range(lead), *(lead + i for i in (2, 4, 0, 1, 3, 5))))


def runs(a: Array, axis: int, shape: Shape, step: int) -> Array:
    """A view of `a` with (count, size) for `shape` in place of an axis: so many runs of this size, one every `step`."""
    item = a.strides[axis]
    return strided(
        a,
        (*a.shape[:axis], *shape, *a.shape[axis + 1 :]),
        (*a.strides[:axis], step * item, item, *a.strides[axis + 1 :]),
    )
