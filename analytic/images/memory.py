"""Define the memory layout of fields, and lend arrays that each thread reuses."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from threading import local
from typing import Any, NamedTuple

from minintk.arrays import Array, on_host

CACHE_LINE_BYTES = 64
"""Bytes per cache line.  A ufunc is up to twice as fast if its output starts on a cache line."""


class PixelValues(NamedTuple):
    """One value per pixel, in shapes that broadcast to a field.   left : pixels of x.   right : pixels of x'."""

    left: Array
    right: Array


class Workspace(local):
    """Reusable arrays, in one pool for each thread.  Arrays of all shapes share a pool's memory."""

    def __init__(self, xp: Any, dtype: Any) -> None:
        self.xp, self.dtype = xp, xp.dtype(dtype)
        self.free: list[Array] = []
        self.taken: dict[int, Array] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """Lend an array of `shape` that contains arbitrary finite values."""
        size = prod(shape)
        numbers = min((one for one in self.free if one.size >= size), key=lambda one: one.size, default=None)
        if numbers is not None:
            self.drop(numbers)
        else:
            if self.free:  # all arrays are too small, so replace the largest by a larger one
                self.drop(max(self.free, key=lambda one: one.size))
            numbers = self.new(size)
        a = numbers[:size].reshape(shape)
        self.taken[id(a)] = numbers
        return a

    def drop(self, numbers: Array) -> None:
        """Remove an array from the list of free arrays."""
        self.free = [one for one in self.free if one is not numbers]

    def new(self, size: int) -> Array:
        """Allocate an array of `size` entries that, on the host, starts on a cache line."""
        item = self.dtype.itemsize
        whole = self.xp.zeros(size + CACHE_LINE_BYTES // item, dtype=self.dtype)
        first = -whole.ctypes.data % CACHE_LINE_BYTES // item if on_host(self.xp) else 0
        return whole[first : first + size]

    def give(self, *arrays: Array) -> None:
        """Take back arrays that were lent by `take`."""
        self.free.extend(self.taken.pop(id(a)) for a in arrays)


def rounded(n: int, step: int) -> int:
    """Round n up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class FieldLayout:
    """Layout of a tile's fields.   diagonal : True if fields contain only pairs of pixels at the same position."""

    xp: Any
    dtype: Any
    diagonal: bool

    @property
    def number(self) -> int:
        """Return the number of bytes per entry."""
        return int(self.xp.dtype(self.dtype).itemsize)

    def spread(self, v: Array) -> PixelValues:
        """Reshape v : (n, H, W) to broadcast to a field, once for the images x and once for the images x'."""
        right = self.xp.astype(v.reshape((v.shape[0], -1)), self.dtype)
        return PixelValues(right if self.diagonal else right[..., None], right)

    def twice(self, values: PixelValues) -> PixelValues:
        """Return 2 * values."""
        right = 2 * values.right
        return PixelValues(right if self.diagonal else 2 * values.left, right)
