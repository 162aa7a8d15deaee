"""Gather the gradient of a convolution with respect to x.  Each pixel of dx is a sum over the windows that read it.

    dx[e + s a] = sum_q u[a + d - q] W[t + s q]'        t = (e + before) mod s,   d = (e + before - t) / s

This formula applies along each axis to the pixels with remainder e modulo the stride s.  On these pixels, dx is thus a
convolution of u, with stride 1, with every s-th weight in reverse order.  The module `conv` computes it.  `Patches.add`
instead adds to each pixel in memory, once per patch that contains it.  `add` is used with few channels, where matrices
are narrow, and with windows that extend far beyond a small image, where gathering takes more multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from minintk.arrays import Array, array_namespace
from minintk.fast.patches import Frame, Patches
from minintk.layers.patches import Windows
from minintk.spec.windows import Axis
from minintk.thresholds import THRESHOLDS

Along = tuple[slice, slice, slice, Axis]
"""For one axis: some pixels of x, the pixels of u that contribute to them, the weights used, and the windows on u."""


def remainders(a: Axis) -> list[Along]:
    """Return an `Along` for each remainder modulo the stride, except for remainders whose pixels no window reads.

    >>> [(pixels.start, weights, on.kernel, on.out) for pixels, _, weights, on in remainders(Axis(7, 3, 2, 1, 1))]
    [(0, slice(1, 0, -2), 1, 4), (1, slice(2, None, -2), 2, 3)]
    """
    found = []
    for e in range(min(a.stride, a.size)):
        t = (e + a.before) % a.stride
        m, d, count = len(range(t, a.kernel, a.stride)), (e + a.before - t) // a.stride, len(range(e, a.size, a.stride))
        start, stop = d - m + 1, d + count
        low, high = max(start, 0), min(stop, a.out)
        if m and low < high:
            weights = slice(t + a.stride * (m - 1), t - 1 if t else None, -a.stride)
            on = Axis(high - low, m, 1, low - start, stop - high)
            found.append((slice(e, None, a.stride), slice(low, high), weights, on))
    return found


@dataclass(frozen=True)
class Gather:
    """dx[pixels] as a convolution of u[reads] with W[weights]; dx : (H, W), u : (H_out, W_out), W : (K_h, K_w)."""

    pixels: tuple[slice, slice]
    reads: tuple[slice, slice]
    weights: tuple[slice, slice]
    patches: Patches

    @staticmethod
    def of(windows: Windows, channels: tuple[int, int]) -> list[Gather]:
        """Return a `Gather` for each part of dx (of the canvas for circular windows), or [] if gathering is slower."""
        found: list[Gather] = []
        axes = [Axis(a.before + a.size + a.after, a.kernel, a.stride) if windows.circular else a
                for a in (windows.rows, windows.columns)]  # fmt: skip
        for down in remainders(axes[0]):
            for right in remainders(axes[1]):
                pixels, reads, weights = ((down[i], right[i]) for i in range(3))
                on = Windows(down[3], right[3])
                found.append(Gather(pixels, reads, weights, Patches.of(on, channels[::-1])))  # type: ignore[arg-type]
        work = sum(replace(g.patches, B=1).work for g in found)
        worth = work <= THRESHOLDS.gathering * prod((*windows.out, *windows.window, *channels))
        return found if channels[0] >= THRESHOLDS.gathered_channels and worth else []

    @cached_property
    def place(self) -> tuple[int, int, int, int]:
        """Return the row and column of the first pixel, and the steps down and right to the next pixels."""
        down, right = self.pixels
        return down.start, right.start, down.step, right.step

    @cached_property
    def frame(self) -> Frame:
        """Return the frame of `patches`, with positions relative to u rather than to u[reads]."""
        (height, width, down, right), (rows, columns) = self.patches.frame, self.reads
        return height, width, down + np.array([0, rows.start, 0]), right + np.array([0, columns.start, 0])

    def turned(self, W: Array) -> Array:
        """Return the matrix (..., K, C) that multiplies patches of u with K entries; W : (..., K_h, K_w, C, C_out)."""
        W = W[(..., *self.weights, slice(None), slice(None))].swapaxes(-1, -2)
        return array_namespace(W).asarray(W, copy=True).reshape((*W.shape[:-4], -1, W.shape[-1]))
