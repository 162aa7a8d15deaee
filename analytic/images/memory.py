"""How the fields of a tile are laid out in memory, and the arrays that a thread takes for them and gives back."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from minintk.arrays import Array, on_host

CACHE_LINE_BYTES = 64
"""Bytes of a cache line: a ufunc is up to twice as fast if its results start on one."""


class PixelValues(NamedTuple):
    """Numbers per pixel, one array per image, in the shapes of the fields' two sides: of x, and of x'."""

    left: Array
    right: Array


class Buffer:
    """Memory for one array at a time, of any shape of at most `size` numbers; it starts on a cache line."""

    def __init__(self, xp: Any, dtype: Any, size: int) -> None:
        whole = xp.zeros(size + CACHE_LINE_BYTES // dtype.itemsize, dtype=dtype)
        first = -whole.ctypes.data % CACHE_LINE_BYTES // dtype.itemsize if on_host(xp) else 0
        self.size, self.numbers = size, whole[first : first + size]
        self.arrays: dict[tuple[int, ...], Array] = {}

    def shaped(self, shape: tuple[int, ...]) -> Array:
        """The memory as an array of `shape`: the same object each time."""
        if shape not in self.arrays:
            self.arrays[shape] = self.numbers[: prod(shape)].reshape(shape)
        return self.arrays[shape]


class Workspace:
    """A thread's arrays, taken and given back.

    There are never more buffers than arrays taken at one time, as arrays of all shapes share them.
    """

    def __init__(self, xp: Any, dtype: Any) -> None:
        self.xp, self.dtype = xp, xp.dtype(dtype)
        self.free: list[Buffer] = []
        self.taken: dict[int, Buffer] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, with arbitrary finite numbers."""
        size = prod(shape)
        buffer = min((b for b in self.free if b.size >= size), key=lambda b: b.size, default=None)
        if buffer is not None:
            self.free.remove(buffer)
        else:
            if self.free:  # all are too small: a larger one takes the place of the largest
                self.free.remove(max(self.free, key=lambda b: b.size))
            buffer = Buffer(self.xp, self.dtype, size)
        a = buffer.shaped(shape)
        self.taken[id(a)] = buffer
        return a

    def give(self, *arrays: Array) -> None:
        """Return arrays that were taken."""
        self.free.extend(self.taken.pop(id(a)) for a in arrays)


def rounded(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class FieldLayout:
    """Which numbers the fields of a tile hold.   diagonal : of equal pixels only."""

    xp: Any
    dtype: Any
    diagonal: bool

    @property
    def number(self) -> int:
        """Bytes per number."""
        return int(self.xp.dtype(self.dtype).itemsize)

    def spread(self, v: Array) -> PixelValues:
        """v : (n, H, W) in the shapes of the two sides."""
        right = self.xp.astype(v.reshape((v.shape[0], -1)), self.dtype)
        return PixelValues(right if self.diagonal else right[..., None], right)

    def twice(self, values: PixelValues) -> PixelValues:
        """2 * values."""
        right = 2 * values.right
        return PixelValues(right if self.diagonal else 2 * values.left, right)
