"""Plant errors in the layers for images: convolution, pooling and normalisation (see `planted`)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

import minintk as mn
from minintk.layers.conv import BoundConv, ConvJacobian
from minintk.layers.norm import BoundBatchNorm, BoundLayerNorm
from minintk.layers.patches import Windows, images
from minintk.layers.pool import (
    AvgPoolJacobian,
    BoundAvgPool,
    BoundMaxPool,
    GlobalAvgPoolJacobian,
    MaxPoolJacobian,
)
from minintk.spec.windows import Axis
from tests.kit.laws import Array, Patch
from tests.planted.planted_laws_images import (
    calibrated,
    image_adjoint,
    image_derivative,
    image_ensemble,
    image_gram,
    pixel_loops,
    ties,
)
from tests.planted.planting import (
    bias_by,
    first_members_weights,
    gram_with,
    multiplier_twice,
    planted,
    weights_by,
    without_weights,
)

# ---------------------------------------------------------------------------------------------- windows


@planted("Conv: dx one pixel off", image_adjoint)
def _(patch: Patch) -> None:
    right = Windows.add
    patch.setattr(Windows, "add", lambda self, P: np.roll(right(self, P), 1, axis=-2))


@planted("Conv: where windows overlap, the last one's dx counts", image_adjoint)
def _(patch: Patch) -> None:
    def add(self: Windows, P: Array) -> Array:
        C = P.shape[-1] // prod(self.window)
        P = P.reshape((*P.shape[:-2], P.shape[-2] // prod(self.out), *self.out, prod(self.window), C))
        canvas = np.zeros((*P.shape[:-4], *self.size, C))
        for k, pixels in enumerate(self.offsets):
            canvas[pixels] = P[..., k, :]
        return np.asarray(self.crop(canvas))

    patch.setattr(Windows, "add", add)


@planted("Conv: kernel upside down, forwards and back alike", pixel_loops)
def _(patch: Patch) -> None:
    read, add = Windows.read, Windows.add

    def turned(self: Windows, P: Array) -> Array:
        return P.reshape((*P.shape[:-1], self.window[0], -1))[..., ::-1, :].reshape(P.shape)

    patch.setattr(Windows, "read", lambda self, x: turned(self, read(self, x)))
    patch.setattr(Windows, "add", lambda self, P: add(self, turned(self, P)))


@planted("Conv: rows of the kernel for its columns, forwards and back alike", pixel_loops)
def _(patch: Patch) -> None:
    read, add = Windows.read, Windows.add

    def turned(P: Array, height: int, width: int) -> Array:
        return P.reshape((*P.shape[:-1], height, width, -1)).swapaxes(-3, -2).reshape(P.shape)

    patch.setattr(Windows, "read", lambda self, x: turned(read(self, x), *self.window))
    patch.setattr(Windows, "add", lambda self, P: add(self, turned(P, *self.window[::-1])))


@planted("Conv: windows one pixel to the left, forwards and back alike", pixel_loops)
def _(patch: Patch) -> None:
    read, add = Windows.read, Windows.add
    patch.setattr(Windows, "read", lambda self, x: read(self, np.roll(x, 1, axis=-2)))
    patch.setattr(Windows, "add", lambda self, P: np.roll(add(self, P), -1, axis=-2))


@planted("Conv: circular padding of zeros", pixel_loops)
def _(patch: Patch) -> None:
    right: Any = Axis.copies
    patch.setattr(Axis, "copies", property(lambda self: right.fget(replace(self, circular=False))))


@planted("Conv: of the copies that circular padding makes of a pixel, the last one's dx counts", image_adjoint)
def _(patch: Patch) -> None:
    def crop(self: Windows, canvas: Array) -> Array:
        x = np.zeros((*canvas.shape[:-3], self.rows.size, self.columns.size, canvas.shape[-1]))
        for place, image in self.copies:
            x[image] = canvas[place]
        return x

    patch.setattr(Windows, "crop", crop)


# ------------------------------------------------------------------------------------------ convolution


@planted("Conv: dW without the multiplier", image_adjoint)
def _(patch: Patch) -> None:
    weights_by(patch, ConvJacobian, lambda J: J.layer.parameters)


@planted("Conv: no gradient for the bias", image_adjoint)
def _(patch: Patch) -> None:
    bias_by(patch, ConvJacobian, lambda J: J.layer.parameters, 0)


@planted("Conv: jvp forgets the weights' own change", image_adjoint)
def _(patch: Patch) -> None:
    without_weights(patch, ConvJacobian)


@planted("Conv: multiplier twice in jvp, vjp and gram alike", image_derivative)
def _(patch: Patch) -> None:
    multiplier_twice(patch, BoundConv)


@planted("Conv: all members of an ensemble use the first one's weights", image_ensemble)
def _(patch: Patch) -> None:
    first_members_weights(patch, BoundConv)


@planted("Conv: gram with the multiplier once", image_gram)
def _(patch: Patch) -> None:
    gram_with(patch, ConvJacobian, lambda p: {"m": p.m**0.5})


@planted("Conv: gram without the bias", image_gram)
def _(patch: Patch) -> None:
    gram_with(patch, ConvJacobian, lambda p: {"b": None})


@planted("Conv: gram of equal positions only, p = q", image_gram)
def _(patch: Patch) -> None:
    right = ConvJacobian.gram

    def wrong(self: ConvJacobian, u: Array, other: ConvJacobian, v: Array, kernel: Any) -> Any:
        total: Any = 0.0
        for at in np.ndindex(*self.layer.after[:-1]):
            a, b = np.zeros((*u.shape[:-3], *self.layer.after)), np.zeros((*v.shape[:-3], *self.layer.after))
            a[(..., *at, slice(None))], b[(..., *at, slice(None))] = (w[(..., *at, slice(None))] for w in (u, v))
            total = total + right(self, a, other, b, kernel)
        return total

    patch.setattr(ConvJacobian, "gram", wrong)


@planted("Conv: gram of the first few output channels only", image_gram)
def _(patch: Patch) -> None:
    right = ConvJacobian.each_example

    def wrong(self: ConvJacobian, u: Array) -> Any:
        P, u = right(self, u)
        return P, u[..., : max(1, u.shape[-2] * u.shape[-1] // P.shape[-2])]

    patch.setattr(ConvJacobian, "each_example", wrong)


# ---------------------------------------------------------------------------------------------- pooling


@planted("AvgPool: dx not divided by the window's size", image_adjoint)
def _(patch: Patch) -> None:
    right = AvgPoolJacobian.vjp
    patch.setattr(AvgPoolJacobian, "vjp", lambda self, u, dw: 4 * right(self, u, dw))


@planted("AvgPool: zeros outside the image do not count", pixel_loops)
def _(patch: Patch) -> None:
    right = BoundAvgPool.mean
    patch.setattr(BoundAvgPool, "mean", lambda self, x: right(self, x) / right(self, np.ones_like(x)))


@planted("MaxPool: zeros outside the image count", pixel_loops)
def _(patch: Patch) -> None:
    right = Windows.pad
    patch.setattr(Windows, "pad", lambda self, x, outside=0.0: right(self, x))


@planted("MaxPool: dx at the first pixel of each window", image_adjoint)
def _(patch: Patch) -> None:
    right = MaxPoolJacobian.vjp

    def vjp(self: MaxPoolJacobian, u: Array, dw: Any) -> Array:
        first: list[Any] = [np.full_like(here, i == 0) for i, here in enumerate(self.first)]
        return np.asarray(right(replace(self, first=first), u, dw))

    patch.setattr(MaxPoolJacobian, "vjp", vjp)


@planted("MaxPool: the first maximum in column-major order", ties)
def _(patch: Patch) -> None:
    def columns_last(self: Windows) -> Any:
        down, right = ([a.along(k) for k in range(a.kernel)] for a in (self.rows, self.columns))
        return [(..., i, j, slice(None)) for j in right for i in down]

    patch.setattr(Windows, "offsets", property(columns_last))


@planted("MaxPool: the last maximum", ties)
def _(patch: Patch) -> None:
    right: Any = Windows.offsets
    patch.setattr(Windows, "offsets", property(lambda self: right.func(self)[::-1]))


@planted("MaxPool: dx to all of the largest", ties)
def _(patch: Patch) -> None:
    right = BoundMaxPool.__call__

    def call(self: BoundMaxPool, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        padded = self.windows.pad(images(x, self.before), -np.inf)
        return y, replace(J, first=[padded[pixels] == y for pixels in self.windows.offsets])

    patch.setattr(BoundMaxPool, "__call__", call)


@planted("GlobalAvgPool: dx not divided by the number of pixels", image_adjoint)
def _(patch: Patch) -> None:
    right = GlobalAvgPoolJacobian.vjp
    patch.setattr(GlobalAvgPoolJacobian, "vjp", lambda self, u, dw: 20 * right(self, u, dw))


# ---------------------------------------------------------------------------------------- normalisation


@planted("LayerNorm: mean and variance held fixed in jvp and vjp", image_derivative)
def _(patch: Patch) -> None:
    right = BoundLayerNorm.__call__

    def call(self: BoundLayerNorm, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        return y, replace(J, frozen=True)

    patch.setattr(BoundLayerNorm, "__call__", call)


@planted("LayerNorm: eps added to the deviation, not to the variance", pixel_loops)
def _(patch: Patch) -> None:
    def wrong(x: Array, axes: Any, eps: float) -> Any:
        return x.mean(axes, keepdims=True), 1 / (np.std(x, axes, keepdims=True) + eps)

    patch.setattr("minintk.layers.norm.statistics", wrong)


@planted("BatchNorm: the batch's statistics held fixed in jvp and vjp", image_derivative)
def _(patch: Patch) -> None:
    right = BoundBatchNorm.__call__

    def call(self: BoundBatchNorm, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        return y, replace(J, frozen=True)

    patch.setattr(BoundBatchNorm, "__call__", call)


@planted("BatchNorm: a calibrated network goes on with the batch's statistics", calibrated)
def _(patch: Patch) -> None:
    patch.setattr(mn.Network, "_with", lambda self, statistics: self)


@planted("BatchNorm: members of an ensemble share their statistics", image_ensemble)
def _(patch: Patch) -> None:
    from minintk.layers import norm

    right = norm.statistics

    def wrong(x: Array, axes: Any, eps: float) -> Any:
        return right(x, (0, *axes) if x.ndim == 5 and len(axes) > 1 else axes, eps)

    patch.setattr(norm, "statistics", wrong)
