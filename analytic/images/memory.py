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
    """Memory for one array at a time, of any shape of at most `size` numbers, with room on both sides."""

    def __init__(self, xp: Any, dtype: Any, size: int, room: int) -> None:
        line = CACHE_LINE_BYTES // dtype.itemsize
        room = rounded(room, line)
        self.size, self.whole = size, xp.zeros(size + 2 * room + line, dtype=dtype)
        self.first = room + (-self.whole.ctypes.data % CACHE_LINE_BYTES // dtype.itemsize if on_host(xp) else 0)
        self.arrays: dict[tuple[int, ...], Array] = {}

    def shaped(self, shape: tuple[int, ...]) -> Array:
        """The memory as an array of `shape`: the same object each time."""
        if shape not in self.arrays:
            self.arrays[shape] = self.shifted(0, shape)
        return self.arrays[shape]

    def shifted(self, shift: int, shape: tuple[int, ...]) -> Array:
        """A view of `shape` that starts `shift` places further on."""
        return self.whole[self.first + shift : self.first + shift + prod(shape)].reshape(shape)


class Workspace:
    """A thread's arrays, taken and given back; they start on cache lines and have room on both sides.

    There are never more buffers than arrays taken at one time, as arrays of all shapes share them.

    room : how many numbers before and after an array a shifted view may reach.
    """

    def __init__(self, xp: Any, dtype: Any, room: int) -> None:
        self.xp, self.dtype, self.room = xp, xp.dtype(dtype), room
        self.free: list[Buffer] = []
        self.taken: dict[int, Buffer] = {}
        self.views: dict[Any, Any] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, with arbitrary finite numbers."""
        size = prod(shape)
        buffer = min((b for b in self.free if b.size >= size), key=lambda b: b.size, default=None)
        if buffer is not None:
            self.free.remove(buffer)
        else:
            if self.free:  # all are too small: a larger one takes the place of the largest
                self.free.remove(max(self.free, key=lambda b: b.size))
                self.views.clear()  # some of them are of its memory
            buffer = Buffer(self.xp, self.dtype, size, self.room)
        a = buffer.shaped(shape)
        self.taken[id(a)] = buffer
        return a

    def give(self, *arrays: Array) -> None:
        """Return arrays that were taken."""
        self.free.extend(self.taken.pop(id(a)) for a in arrays)

    def shifted(self, a: Array, shift: int, shape: tuple[int, ...]) -> Array:
        """The numbers `shift` places after those of an array that is taken, a view of `shape`."""
        return self.taken[id(a)].shifted(shift, shape)


def rounded(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class FieldLayout:
    """Where the numbers of an image of H x W pixels are in the fields of a tile.

    Each line of W pixels ends in guards.  Images are padded to start on a cache line, so that guards precede an image
    too: those at the end of the previous one.

    diagonal : equal pixels only.   most_guards : guards after each line, if lines are long enough for any.
    """

    xp: Any
    dtype: Any
    diagonal: bool
    most_guards: int

    @property
    def number(self) -> int:
        """Bytes per number."""
        return int(self.xp.dtype(self.dtype).itemsize)

    def guards(self, W: int) -> int:
        """Guards after a line of W pixels."""
        return self.most_guards if 2 * self.most_guards < W else 0

    def padded_size(self, H: int, W: int) -> int:
        """How many numbers one image x' takes, guards and padding included."""
        g = self.guards(W)
        return rounded(H * (W + g) + g, CACHE_LINE_BYTES // self.number) if g else H * W

    def spread(self, v: Array, fill: float = 0.0) -> PixelValues:
        """v : (n, H, W) in the shapes of the two sides, with `fill` in the guards."""
        xp, (n, H, W) = self.xp, v.shape
        right = xp.full((n, self.padded_size(H, W)), fill, dtype=self.dtype)
        self.inside(right, H, W)[...] = v
        return PixelValues(right if self.diagonal else xp.astype(v.reshape((n, H * W, 1)), self.dtype), right)

    def twice(self, values: PixelValues) -> PixelValues:
        """2 * values."""
        right = 2 * values.right
        return PixelValues(right if self.diagonal else 2 * values.left, right)

    def inside(self, a: Array, H: int, W: int) -> Array:
        """a : (..., size) as (..., H, W), without the guards."""
        return self.lines(a, H, W)[..., :W]

    def lines(self, a: Array, H: int, W: int) -> Array:
        """a : (..., size) as (..., H, W + guards)."""
        width = W + self.guards(W)
        return a[..., : H * width].reshape((*a.shape[:-1], H, width))
