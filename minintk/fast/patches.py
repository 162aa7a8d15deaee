"""Patches: what the windows of a convolution read, as the rows of a matrix, so that it is one matrix product.

    read     x -> P       (..., N, H, W, C) -> (..., N R, K), R rows for each image
    add      P -> x       the transposed map: every entry is added to the pixel that it was read from
    unroll   W -> V       the weights to multiply P with: P V = the convolution
    roll     V -> W       the transposed map

A row of P holds B windows that stand side by side, with the pixels they share read once; so P is smaller and its copies
are longer than with B = 1 (the usual im2col), at the price of zeros in

    V[(i, stride b + j, c), (b, o)] = W[i, j, c, o]

R = H_out W_out / B,  K = K_h ((B - 1) stride + K_w) C,  V : (K, B C_out).

A pooling along the columns that comes next has long runs to work on where, of the B windows, first all those come that
are the first of a pooling window, then all second ones, ...: window b = phases q + p in the place p B / phases + q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from minintk.arrays import Array, array_namespace, on_host, scratch, strided
from minintk.spec.shapes import Shape
from minintk.spec.windows import Axis

CHUNK = 3 * 2**20
"""Bytes of patches that one core works on at a time: they stay in its cache from the copy to the product."""


@dataclass(frozen=True)
class Canvas:
    """Images with their padding: `pad` puts them on it, `crop` is the transposed map."""

    rows: Axis
    columns: Axis

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width with the padding."""
        return tuple(a.before + a.size + a.after for a in (self.rows, self.columns))  # type: ignore[return-value]

    @cached_property
    def plain(self) -> bool:
        """Whether there is no padding at all."""
        return self.size == (self.rows.size, self.columns.size)

    @cached_property
    def copies(self) -> list[tuple[tuple[slice, slice], tuple[slice, slice]]]:
        """Where each copy of the image lies: (rows and columns of the canvas, rows and columns of the image)."""
        return [
            ((ri, ci), (rj, cj)) for ri, rj in _copies(self.rows) for ci, cj in _copies(self.columns)
        ]  # one, and its repetitions where the padding is circular

    def pad(self, x: Array, outside: float = 0.0) -> Array:
        """x : (..., H, W, C) among pixels of the value `outside`, or repeated; x itself where there is no padding."""
        if self.plain:
            return x
        shape = (*x.shape[:-3], *self.size, x.shape[-1])
        canvas = array_namespace(x).full(shape, outside, dtype=x.dtype)
        for (r, c), (rows, columns) in self.copies:
            canvas[..., r, c, :] = x[..., rows, columns, :]
        return canvas

    def crop(self, canvas: Array) -> Array:
        """The sum over the copies of the image."""
        if self.plain:
            return canvas
        if len(self.copies) == 1:
            (r, c), _ = self.copies[0]
            return canvas[..., r, c, :]
        x = array_namespace(canvas).zeros(
            (*canvas.shape[:-3], self.rows.size, self.columns.size, canvas.shape[-1]), dtype=canvas.dtype
        )
        for (r, c), (rows, columns) in self.copies:
            x[..., rows, columns, :] += canvas[..., r, c, :]
        return x


def _copies(a: Axis) -> list[tuple[slice, slice]]:
    """(part of the padded axis, part of the image) for the image and, where circular, its repetitions."""
    found = []
    before, after = (-(-a.before // a.size), -(-a.after // a.size)) if a.circular else (0, 0)
    for k in range(-before, after + 1):
        start = a.before + k * a.size
        low, high = max(start, 0), min(start + a.size, a.before + a.size + a.after)
        found.append((slice(low, high), slice(low - start, high - start)))
    return found


@dataclass(frozen=True)
class Patches:
    """The windows of a convolution of C channels into C_out, B side by side, in the order of their phases."""

    rows: Axis
    columns: Axis
    channels: tuple[int, int]
    B: int
    phases: int = 1

    @staticmethod
    def of(rows: Axis, columns: Axis, channels: tuple[int, int], phases: int = 1) -> Patches:
        """With the B that is fastest, of the divisors of the output's width that `phases` divides."""
        divisors = (B for B in range(phases, columns.out + 1, phases) if columns.out % B == 0)
        return min((Patches(rows, columns, channels, B, phases) for B in divisors), key=lambda p: p.cost)

    @cached_property
    def canvas(self) -> Canvas:
        return Canvas(self.rows, self.columns)

    @cached_property
    def blocks(self) -> int:
        """Blocks of B windows in a row of pixels."""
        return self.columns.out // self.B

    @cached_property
    def kernel(self) -> tuple[int, int]:
        """Height and width of what a row of P reads."""
        return self.rows.kernel, (self.B - 1) * self.columns.stride + self.columns.kernel

    @property
    def R(self) -> int:
        return self.rows.out * self.blocks

    @property
    def K(self) -> int:
        return prod(self.kernel) * self.channels[0]

    @property
    def whole(self) -> bool:
        """Whether the windows cut the images into pieces and P is x itself in another shape (1 x 1 kernels)."""
        (height, width), side = self.kernel, self.rows.stride * self.columns.stride
        return self.canvas.plain and height == side == 1 and width == self.B

    @property
    def cost(self) -> float:
        """Nanoseconds for one pixel, forwards and back, on a core: copies, and products with P (AVX-512, float32)."""
        (height, width), n = self.kernel, self.B * self.channels[1]
        run = width * self.channels[0]
        copies = 0.0 if self.whole else height * (2 * (8 + 0.35 * run) + 40 + 0.6 * run)
        return (copies + 3 * (self.K * n / 75 + 0.3 * self.K + 0.3 * n)) / self.B

    def read(self, x: Array, *, passing: bool = False) -> Array:
        """P : (..., N R, K) of images x : (..., N, H, W, C); where `passing` in memory that the next call may reuse."""
        shape = (*x.shape[:-4], x.shape[-4] * self.R, self.K)
        if self.whole:
            return x.reshape(shape)
        x = self.canvas.pad(x)
        down, right = self.rows.stride, self.B * self.columns.stride
        h, w, c = x.strides[-3:]
        view = strided(
            x,
            (*x.shape[:-3], self.rows.out, self.blocks, *self.kernel, x.shape[-1]),
            (*x.strides[:-3], h * down, w * right, h, w, c),
        )
        P = scratch(x, view.shape, "patches") if passing else array_namespace(x).empty(view.shape, dtype=x.dtype)
        P[...] = view
        return P.reshape(shape)

    def add(self, P: Array, x: Array) -> None:
        """Writes to each pixel of x : (..., N, H, W, C) the sum of the entries of P : (..., N R, K) read from it."""
        if self.whole:
            x[...] = P.reshape(x.shape)
            return
        P = P.reshape((*x.shape[:-3], self.rows.out, self.blocks, *self.kernel, x.shape[-1]))
        size = (*x.shape[:-3], *self.canvas.size, x.shape[-1])
        canvas = x if self.canvas.plain else array_namespace(P).empty(size, dtype=P.dtype)
        canvas[...] = 0
        (height, width), right = self.kernel, self.B * self.columns.stride
        if self.blocks == 1 and width == size[-2]:
            bands = P[..., 0, :, :, :]
        else:
            bands = scratch(P, (*x.shape[:-3], self.rows.out, height, *canvas.shape[-2:]), "bands")  # columns added up
            bands[...] = 0
            if self.blocks <= width:  # block by block: long runs
                for b in range(self.blocks):
                    bands[..., b * right : b * right + width, :] += P[..., b, :, :, :]
            else:
                for j in range(width):
                    bands[..., j : j + right * (self.blocks - 1) + 1 : right, :] += P[..., j, :].swapaxes(-2, -3)
        for i in range(height):
            r = slice(i, i + self.rows.stride * (self.rows.out - 1) + 1, self.rows.stride)
            canvas[..., r, :, :] += bands[..., i, :, :]
        if not self.canvas.plain:
            x[...] = self.canvas.crop(canvas)

    def unroll(self, W: Array) -> Array:
        """V : (..., K, B C_out) of W : (..., K_h, K_w, C, C_out)."""
        shape = (*W.shape[:-4], self.K, self.B * self.channels[1])
        if self.B == 1:
            return W.reshape(shape)
        V = array_namespace(W).zeros(shape, dtype=W.dtype)
        self._bands(V)[...] = W[..., None, None, :, :, :, :]
        return V

    def roll(self, V: Array) -> Array:
        """W : (..., K_h, K_w, C, C_out), the sums over the B places of each weight in V."""
        if self.B == 1:
            return V.reshape((*V.shape[:-2], self.rows.kernel, self.columns.kernel, *self.channels))
        return array_namespace(V).sum(self._bands(V), axis=(-6, -5))

    def _bands(self, V: Array) -> Array:
        """V seen as (..., B / phases, phases, K_h, K_w, C, C_out): where each of the B windows has its weights."""
        (C, n), width, count = self.channels, self.kernel[1], self.B // self.phases
        o, item = V.strides[-1], V.itemsize
        row = self.B * n * item  # from one row of V to the next
        down = self.columns.stride * C * row  # from one window to the next
        return strided(
            V,
            (*V.shape[:-2], count, self.phases, self.rows.kernel, self.columns.kernel, C, n),
            (
                *V.strides[:-2], self.phases * down + n * item, down + count * n * item,
                width * C * row, C * row, row, o,
            ),
        )  # fmt: skip

    def step(self, x: Array) -> int:
        """Images whose patches stay in a core's cache; on the GPU, a GiB of them."""
        bytes_each = self.R * self.K * int(x.dtype.itemsize)
        return max(1, (CHUNK if on_host(array_namespace(x)) else 2**30) // bytes_each)


def images(x: Array, shape: Shape) -> Array:
    """x : (..., *shape) as images (..., H, W, C): a sequence (L, C) is an image of height 1."""
    return x if len(shape) == 3 else x.reshape((*x.shape[:-2], 1, *x.shape[-2:]))
