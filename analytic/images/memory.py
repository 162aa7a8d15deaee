"""How the fields of a tile lie in memory, and the arrays that a thread takes for them and gives back."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from minintk.arrays import Array, on_host

LINE = 64
"""Bytes of a cache line: a ufunc is up to twice as fast where its results start on one."""


class Lay(NamedTuple):
    """Numbers of the pixels, one array an image, as the pairs meet them: of x, and of x'."""

    left: Array
    right: Array


class Shelf:
    """Arrays taken and given back, a thread's working memory: on cache lines, and with room on both sides.

    room : numbers before and behind each array that a shifted view may reach.
    """

    def __init__(self, xp: Any, dtype: Any, room: int) -> None:
        self.xp, self.dtype = xp, xp.dtype(dtype)
        self.line = LINE // self.dtype.itemsize
        self.room = rounded(room, self.line)
        self.free: dict[tuple[int, ...], list[Array]] = {}
        self.places: dict[int, tuple[Array, int]] = {}
        self.views: dict[Any, Any] = {}

    def take(self, shape: tuple[int, ...]) -> Array:
        """An array of `shape`, of whatever finite numbers."""
        free = self.free.setdefault(shape, [])
        if free:
            return free.pop()
        size = prod(shape)
        whole = self.xp.zeros(size + 2 * self.room + self.line, dtype=self.dtype)
        first = self.room + (-whole.ctypes.data % LINE // self.dtype.itemsize if on_host(self.xp) else 0)
        a = whole[first : first + size].reshape(shape)
        self.places[id(a)] = whole, first
        return a

    def give(self, *arrays: Array) -> None:
        """Arrays that were taken."""
        for a in arrays:
            self.free[a.shape].append(a)

    def shifted(self, a: Array, shift: int, shape: tuple[int, ...]) -> Array:
        """What stands `shift` numbers behind each number of an array that was taken, as `shape`."""
        whole, first = self.places[id(a)]
        return whole[first + shift : first + shift + prod(shape)].reshape(shape)


def form_of(xp: Any, dtype: Any, diagonal: bool, most: int, jit: bool) -> Form:
    """The Form for arrays of `dtype`."""
    return Form(xp, dtype, diagonal, most, LINE // int(xp.dtype(dtype).itemsize), jit)


def rounded(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class Form:
    """How the numbers of an image of H x W pixels lie in the fields of a tile.

    Lines of W pixels, each with its guards; and a few numbers more, so that every image starts on a cache line, and has
    guards before it: the end of what precedes it.

    diagonal : equal pixels only.   most : guards after each line, where the lines are long enough for any.
    line : numbers in a cache line.   jit : whether `analytic.images.numba_kernels` takes ReLUs.
    """

    xp: Any
    dtype: Any
    diagonal: bool
    most: int
    line: int
    jit: bool

    @property
    def number(self) -> int:
        """Bytes of a number."""
        return LINE // self.line

    def guard(self, W: int) -> int:
        """Guards after a line of W pixels."""
        return self.most if 2 * self.most < W else 0

    def run(self, H: int, W: int) -> int:
        """Numbers of one image on the right."""
        g = self.guard(W)
        return rounded(H * (W + g) + g, self.line) if g else H * W

    def lay(self, v: Array, fill: float = 0.0) -> Lay:
        """v : (n, H, W) as the pairs meet it, `fill` in the guards."""
        xp, (n, H, W) = self.xp, v.shape
        right = xp.full((n, self.run(H, W)), fill, dtype=self.dtype)
        self.inside(right, H, W)[...] = v
        return Lay(right if self.diagonal else xp.astype(v.reshape((n, H * W, 1)), self.dtype), right)

    def twice(self, lay: Lay) -> Lay:
        """2 lay."""
        right = 2 * lay.right
        return Lay(right if self.diagonal else 2 * lay.left, right)

    def inside(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W), the guards left out."""
        return self.lines(a, H, W)[..., :W]

    def lines(self, a: Array, H: int, W: int) -> Array:
        """a : (..., run) as (..., H, W + guards)."""
        width = W + self.guard(W)
        return a[..., : H * width].reshape((*a.shape[:-1], H, width))
