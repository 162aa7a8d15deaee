"""MaxPool in one pass forwards and one back, compiled by Numba: the place of the largest is kept, a byte for each."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

import numpy as np

from minintk.arrays import Array
from minintk.fast.norm import worth
from minintk.fast.numba_here import loops
from minintk.layers.contract import LayerJacobian, Weights
from minintk.layers.patches import images
from minintk.layers.pool import BoundMaxPool, MaxPoolJacobian


@dataclass(frozen=True)
class CompiledMaxPoolJacobian(LayerJacobian):
    """Holds the place of the first of the largest in each window, in row-major order: (N, H', W', C)."""

    layer: BoundMaxPool
    place: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        return self.as_written().jvp(dw, dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx[s] += u where x[s] is the largest."""
        if u.ndim > 1 + len(self.layer.after):
            return self.as_written().vjp(u, dw)
        windows, u = self.layer.windows, images(np.ascontiguousarray(u), self.layer.after)
        dx = np.zeros((len(u), *windows.size, u.shape[-1]), u.dtype)
        loops().give_back(u, self.place, windows.window, windows.strides, dx)
        return windows.crop(dx).reshape((len(u), *self.layer.before))

    def as_written(self) -> MaxPoolJacobian:
        """The same, with a mask for each place: for tangents, and several cotangents at a time."""
        return MaxPoolJacobian(self.layer, [self.place == s for s in range(prod(self.layer.windows.window))])


@dataclass(frozen=True)
class CompiledMaxPool(BoundMaxPool):
    """A MaxPool in its place."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:  # type: ignore[override]
        """y = max_s x[s]."""
        windows = self.windows
        if prod(windows.window) > 256 or x.shape[-1] < 16 or not worth(x, 1 + len(self.before)):
            return super().__call__(w, x)
        x = np.ascontiguousarray(windows.pad(images(x, self.before), -inf))
        y = np.empty((len(x), *windows.out, x.shape[-1]), x.dtype)
        place = np.empty(y.shape, np.uint8)
        loops().largest(x, windows.window, windows.strides, y, place)
        return y.reshape((len(x), *self.after)), CompiledMaxPoolJacobian(self, place)
