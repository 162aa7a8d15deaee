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


class Workspace:
    """A thread's arrays, taken and given back; they start on cache lines and have room on both sides.

    room : how many numbers before and after an array a shifted view may reach.
    """

    def __init__(self, xp: Any, dtype: Any, room: int) -> None:
        self.xp, self.dtype = xp, xp.dtype(dtype)
        self.line = CACHE_LINE_BYTES // self.dtype.itemsize
        self.room = rounded(room, self.line)
        self.free: dict[tuple[int, ...], list[Array]] = {}
        self.places: dict[int, tuple[Array, int]] = {}
        self.views: dict[Any, Any] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, with arbitrary finite numbers."""
        free = self.free.setdefault(shape, [])
        if free:
            return free.pop()
        size = prod(shape)
        whole = self.xp.zeros(size + 2 * self.room + self.line, dtype=self.dtype)
        first = self.room + (-whole.ctypes.data % CACHE_LINE_BYTES // self.dtype.itemsize if on_host(self.xp) else 0)
        a = whole[first : first + size].reshape(shape)
        self.places[id(a)] = whole, first
        return a

    def give(self, *arrays: Array) -> None:
        """Return arrays that were taken."""
        for a in arrays:
            self.free[a.shape].append(a)

    def shifted(self, a: Array, shift: int, shape: tuple[int, ...]) -> Array:
        """The numbers `shift` places after those of an array that was taken, a view of `shape`."""
        whole, first = self.places[id(a)]
        return whole[first + shift : first + shift + prod(shape)].reshape(shape)


def rounded(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class FieldLayout:
    """Where the numbers of an image of H x W pixels are in the fields of a tile.

    Each line of W pixels ends in guards.  Images are padded to start on a cache line, so that guards precede an image
    too: those at the end of the previous one.

    diagonal : equal pixels only.   most_guards : guards after each line, if lines are long enough for any.
    jit : whether ReLUs use `analytic.images.numba_kernels`.
    """

    xp: Any
    dtype: Any
    diagonal: bool
    most_guards: int
    jit: bool

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
