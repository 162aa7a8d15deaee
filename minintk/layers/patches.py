"""Pad images, and read the patches in windows.  The transposes of both operations are also defined.

    pad     x -> canvas        crop    its transpose, which sums over the copies of the image
    read    x -> canvas -> P   add     its transpose, which adds each entry of P to the pixel it was read from

x : (..., N, H, W, C),   P : (..., N H_out W_out, K_h K_w C), one row per window.  Sequences have height 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import EllipsisType

from minintk.arrays import Array, array_namespace, strided
from minintk.spec.shapes import Shape
from minintk.spec.windows import Axis, Windowed, axes

Index = tuple[slice | EllipsisType, ...]


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution or a pooling layer on images, as one `Axis` for rows and one for columns."""

    rows: Axis
    columns: Axis

    @staticmethod
    def of(layer: Windowed, shape: Shape) -> Windows:
        """Return the windows of this layer on images of shape (H, W, C) or on sequences of shape (L, C)."""
        spatial = axes(layer, shape)
        return Windows(*(spatial if len(spatial) == 2 else (Axis(1, 1), spatial[0])))

    @cached_property
    def size(self) -> tuple[int, int]:
        """Return the height and width of the padded image."""
        return tuple(a.before + a.size + a.after for a in (self.rows, self.columns))  # type: ignore[return-value]

    @property
    def out(self) -> tuple[int, int]:
        """Return the numbers of windows along H and along W."""
        return self.rows.out, self.columns.out

    @property
    def window(self) -> tuple[int, int]:
        """Return the height and width of a window."""
        return self.rows.kernel, self.columns.kernel

    @property
    def strides(self) -> tuple[int, int]:
        """Return the strides of the windows along H and along W."""
        return self.rows.stride, self.columns.stride

    @property
    def circular(self) -> bool:
        """True if the padding repeats the image along an axis."""
        return self.rows.circular or self.columns.circular

    @property
    def apart(self) -> bool:
        """True if the strides are at least the window's height and width, so that windows do not overlap."""
        return all(a.stride >= a.kernel for a in (self.rows, self.columns))

    @cached_property
    def offsets(self) -> list[Index]:
        """Return an index for each position s in a window, row by row.  It selects pixel s of every window."""
        down, right = ([a.along(k) for k in range(a.kernel)] for a in (self.rows, self.columns))
        return [(..., i, j, slice(None)) for i in down for j in right]

    @cached_property
    def copies(self) -> list[tuple[Index, Index]]:
        """Return pairs (index on the canvas, index in the image), for the image and, if circular, its repetitions."""
        down, right = self.rows.copies, self.columns.copies
        return [((..., r, c, slice(None)), (..., i, j, slice(None))) for r, i in down for c, j in right]

    def pad(self, x: Array, outside: float = 0.0) -> Array:
        """Surround x with pixels of value `outside` or, if circular, with copies of x.  Without padding, return x."""
        if self.size == x.shape[-3:-1]:
            return x
        canvas = array_namespace(x).full((*x.shape[:-3], *self.size, x.shape[-1]), outside, dtype=x.dtype)
        for place, image in self.copies:
            canvas[place] = x[image]
        return canvas

    def crop(self, canvas: Array) -> Array:
        """Apply the transpose of `pad`, which sums over the copies of the image."""
        if len(self.copies) == 1:
            return canvas[self.copies[0][0]]
        shape = (*canvas.shape[:-3], self.rows.size, self.columns.size, canvas.shape[-1])
        x = array_namespace(canvas).zeros(shape, dtype=canvas.dtype)
        for place, image in self.copies:
            x[image] += canvas[place]
        return x

    def read(self, x: Array) -> Array:
        """Return the patches P(x), which can be a view of x."""
        x = self.pad(x)
        (h, w, c), (down, right) = x.strides[-3:], self.strides
        shape = (*x.shape[:-3], *self.out, *self.window, x.shape[-1])
        view = strided(x, shape, (*x.strides[:-3], down * h, right * w, h, w, c))
        return view.reshape((*x.shape[:-4], x.shape[-4] * prod(self.out), prod(self.window) * x.shape[-1]))

    def add(self, P: Array) -> Array:
        """Apply the transpose of `read` to patches P, and return images (..., N, H, W, C)."""
        C = P.shape[-1] // prod(self.window)
        P = P.reshape((*P.shape[:-2], P.shape[-2] // prod(self.out), *self.out, prod(self.window), C))
        canvas = array_namespace(P).zeros((*P.shape[:-4], *self.size, C), dtype=P.dtype)
        for k, pixels in enumerate(self.offsets):
            canvas[pixels] += P[..., k, :]
        return self.crop(canvas)


def images(x: Array, shape: Shape) -> Array:
    """Return x : (..., *shape) as images (..., H, W, C)."""
    return x if len(shape) == 3 else x.reshape((*x.shape[:-2], 1, *x.shape[-2:]))
