"""Copy patches into a matrix P with several windows per row, which takes fewer and longer copies than one per row.

    read     x -> P       (..., N, H, W, C) -> (..., N R, K), with R rows for each image
    add      P -> x       the transposed map, which adds every entry to the pixel from which it was read
    unroll   W -> V       the weights that multiply P, so that P V is the convolution
    roll     V -> W       the transposed map

A row of P contains B adjacent windows and stores shared pixels once.  P is therefore smaller, and copies are longer,
than for B = 1 (`minintk.layers.patches`).  In exchange, V is sparse: it is zero except for the entries

    V[(i, stride b + j, c), (b, o)] = W[i, j, c, o]

R = H_out W_out / B,  K = K_h ((B - 1) stride + K_w) C,  V : (K, B C_out).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, on_host, strided
from minintk.fast.numba_here import numba_is_here
from minintk.layers.patches import Windows
from minintk.thresholds import THRESHOLDS

Frame = tuple[int, int, np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Height and width of a canvas; for each axis, rows (start on the canvas, start in the image, number of pixels)."""

Before = tuple[Array, Array, Any]
"""(mean, r, floor), mean and r for several pixels: the canvas gets max(r (x - mean), floor), or x if they are empty."""


def nothing_before(x: Array) -> Before:
    """Return the `Before` that leaves x unchanged."""
    return np.empty(0, x.dtype), np.empty(0, x.dtype), x.dtype.type(0)


@dataclass(frozen=True)
class Patches:
    """The windows of a convolution from C to C_out channels, with B adjacent windows in each row of P."""

    windows: Windows
    channels: tuple[int, int]
    B: int = 1

    @staticmethod
    def of(windows: Windows, channels: tuple[int, int]) -> Patches:
        """Choose the B of least `cost` among the divisors of the output's width, or 1 for Numba's loops (`direct`)."""
        if (one := Patches(windows, channels)).direct:
            return one
        divisors = (B for B in range(1, windows.columns.out + 1) if windows.columns.out % B == 0)
        return min((Patches(windows, channels, B) for B in divisors), key=lambda p: p.cost)

    @cached_property
    def direct(self) -> bool:
        """Return True if Numba's loops are available and fast: sums or rows are long, and C_out fills whole vectors."""
        C, n = self.channels
        return (C >= 16 or self.windows.columns.out >= 16) and n % 16 == 0 and numba_is_here()

    @cached_property
    def work(self) -> int:
        """Return the number of multiplications per image.  Numba's loops skip rows outside the image."""
        a, numbers = self.windows.rows, self.blocks * self.kernel[1] * prod(self.channels) * self.B
        inside = range(a.before, a.before + a.size) if self.direct and not a.circular else range(sum(self.windows.size))
        return numbers * sum(p * a.stride + r in inside for p in range(a.out) for r in range(a.kernel))

    @cached_property
    def frame(self) -> Frame:
        """Return the `Frame` of a padded image, for `minintk.fast.numba_loops.correlate`."""
        down, right = (
            np.array([(to.start, start.start, to.stop - to.start) for to, start in a.copies])
            for a in (self.windows.rows, self.windows.columns)
        )
        return *self.windows.size, down, right

    @cached_property
    def blocks(self) -> int:
        """Return the number of blocks of B windows in a row of output pixels."""
        return self.windows.columns.out // self.B

    @cached_property
    def kernel(self) -> tuple[int, int]:
        """Return the height and width in pixels of the area that a row of P reads."""
        rows, columns = self.windows.rows, self.windows.columns
        return rows.kernel, (self.B - 1) * columns.stride + columns.kernel

    @cached_property
    def R(self) -> int:
        """Return the number of rows of P per image."""
        return self.windows.rows.out * self.blocks

    @cached_property
    def K(self) -> int:
        """Return the length of a row of P."""
        return prod(self.kernel) * self.channels[0]

    @cached_property
    def whole(self) -> bool:
        """Return True if P is just x reshaped, as for 1 x 1 kernels with stride 1 and without padding."""
        rows, columns = self.windows.rows, self.windows.columns
        (height, width), side = self.kernel, rows.stride * columns.stride
        return self.windows.size == (rows.size, columns.size) and height == side == 1 and width == self.B

    @property
    def cost(self) -> float:
        """Estimate the time in ns per output pixel to copy and multiply P, forward and backward (AVX-512, float32)."""
        (height, width), n = self.kernel, self.B * self.channels[1]
        run = width * self.channels[0]
        copies = 0.0 if self.whole else height * (2 * (8 + 0.35 * run) + 40 + 0.6 * run)
        return (copies + 3 * (self.K * n / 75 + 0.3 * self.K + 0.3 * n)) / self.B

    def read(self, x: Array, out: Array | None = None) -> Array:
        """Return P : (..., N R, K) for x : (..., N, H, W, C).  out : an earlier P, reused if it has this shape."""
        shape = (*x.shape[:-4], x.shape[-4] * self.R, self.K)
        if self.whole:
            return x.reshape(shape)
        x = self.windows.pad(x)
        down, right = self.windows.rows.stride, self.B * self.windows.columns.stride
        h, w, c = x.strides[-3:]
        view = strided(
            x,
            (*x.shape[:-3], self.windows.rows.out, self.blocks, *self.kernel, x.shape[-1]),
            (*x.strides[:-3], h * down, w * right, h, w, c),
        )
        P = array_namespace(x).empty(shape, dtype=x.dtype) if out is None or out.shape != shape else out
        P.reshape(view.shape)[...] = view
        return P

    def add(self, P: Array, x: Array) -> None:
        """Set each pixel of x : (..., N, H, W, C) to the sum of the entries of P : (..., N R, K) that belong to it."""
        if self.whole:
            x[...] = P.reshape(x.shape)
            return
        rows, (height, width), right = self.windows.rows, self.kernel, self.B * self.windows.columns.stride
        P = P.reshape((*x.shape[:-3], rows.out, self.blocks, height, width, x.shape[-1]))
        size = (*x.shape[:-3], *self.windows.size, x.shape[-1])
        canvas = x if size == x.shape else array_namespace(P).empty(size, dtype=P.dtype)
        canvas[...] = 0
        for i in range(height):
            for b in range(self.blocks):
                canvas[..., rows.along(i), b * right : b * right + width, :] += P[..., b, i, :, :]
        if canvas is not x:
            x[...] = self.windows.crop(canvas)

    def unroll(self, W: Array) -> Array:
        """Return V : (..., K, B C_out), with a copy of W : (..., K_h K_w C, C_out) for each of the B windows."""
        if self.B == 1:
            return W
        V = array_namespace(W).zeros((*W.shape[:-2], self.K, self.B * self.channels[1]), dtype=W.dtype)
        self._bands(V)[...] = W.reshape((*W.shape[:-2], 1, *self.windows.window, *self.channels))
        return V

    def roll(self, V: Array) -> Array:
        """Return W : (..., K_h K_w C, C_out), where each weight is the sum of its B entries in V."""
        if self.B == 1:
            return V
        W = array_namespace(V).sum(self._bands(V), axis=-5)
        return W.reshape((*V.shape[:-2], prod(self.windows.window) * self.channels[0], self.channels[1]))

    def _bands(self, V: Array) -> Array:
        """Return V viewed as (..., B, K_h, K_w, C, C_out), the weights of each of the B windows."""
        (C, n), width, window = self.channels, self.kernel[1], self.windows.window
        o, row = V.strides[-1], V.strides[-2]  # strides to the next number and to the next row of V
        down = self.windows.columns.stride * C * row + n * o  # the stride to the next window
        return strided(
            V, (*V.shape[:-2], self.B, *window, C, n), (*V.strides[:-2], down, width * C * row, C * row, row, o)
        )

    def step(self, x: Array) -> int:
        """Return the number of images whose patches fit into a core's cache, or into 1 GiB on a GPU."""
        bytes_each = self.R * self.K * int(x.dtype.itemsize)
        limit = THRESHOLDS.patches_bytes if on_host(array_namespace(x)) else THRESHOLDS.patches_bytes_gpu
        return max(1, limit // bytes_each)
