"""Errors planted in the layers for images: convolution, pooling, normalisation, shares of a batch; see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from planted_laws import (
    Array,
    Patch,
    arranged_layers,
    calibrated,
    image_adjoint,
    image_derivative,
    image_ensemble,
    image_gram,
    pixel_loops,
    shared_batches,
    ties,
    tiled_convolution,
    zeros_by_tiles,
)
from planting import planted

import minintk as mn
from minintk.fast import conv_gram as convgram
from minintk.fast import patches
from minintk.fast import reorder as arrange
from minintk.fast import split_batch as shares
from minintk.fast import toom_cook_transforms as tiles
from minintk.fast.bias import BoundBias
from minintk.fast.patches import Canvas, Patches
from minintk.fast.split_batch import SharedJacobian
from minintk.fast.threaded_matmul import sum_rows
from minintk.fast.toom_cook_transforms import Tiles
from minintk.layers import pool
from minintk.layers.conv import BoundConv, ConvJacobian
from minintk.layers.norm import BoundBatchNorm, BoundLayerNorm
from minintk.layers.pool import AvgPoolJacobian, AxisMax, BoundAvgPool, GlobalJacobian, Order


def weights_gradient(patch: Patch, wrong: Callable[[ConvJacobian, Array], Array]) -> None:
    """Plants another P(x)' u in place of a convolution's."""
    right = ConvJacobian._weight_gradient
    patch.setattr(ConvJacobian, "_weight_gradient", lambda self, u: wrong(self, right(self, u)))


@planted("Conv: dW without the multiplier", image_adjoint)
def _(patch: Patch) -> None:
    weights_gradient(patch, lambda J, dV: dV / J.layer.m)


@planted("Conv: no gradient for the bias", image_adjoint)
def _(patch: Patch) -> None:
    patch.setattr("minintk.layers.conv.sum_rows", lambda u, c: 0 * sum_rows(u, c))


@planted("Conv: dx one pixel off", image_adjoint)
def _(patch: Patch) -> None:
    right = Patches.add

    def add(self: Patches, P: Array, x: Array) -> None:
        right(self, P, x)
        x[...] = np.roll(x, 1, axis=-2)

    patch.setattr(Patches, "add", add)


@planted("Conv: gradients of windows that share a row of patches not added up", image_adjoint)
def _(patch: Patch) -> None:
    right = Patches.roll

    def roll(self: Patches, V: Array) -> Array:
        return np.asarray(right(self, V) if self.B == 1 else self._bands(V)[..., 0, 0, :, :, :, :])

    patch.setattr(Patches, "roll", roll)


@planted("Conv: kernel upside down, forwards and back alike", pixel_loops)
def _(patch: Patch) -> None:
    right = BoundConv.weights
    patch.setattr(BoundConv, "weights", lambda self, w: right(self, w)[..., ::-1, :, :, :])


@planted("Conv: circular padding of zeros", pixel_loops)
def _(patch: Patch) -> None:
    right = patches._copies
    patch.setattr(patches, "_copies", lambda a: right(replace(a, circular=False)))


@planted("Conv: gram with the multiplier once", image_gram)
def _(patch: Patch) -> None:
    right = convgram.by_gradients

    def wrong(J: ConvJacobian, *rest: Any) -> Any:
        layer = replace(J.layer, weight=replace(J.layer.weight, multiplier=J.layer.m**0.5))
        return right(replace(J, layer=layer), *rest)

    patch.setattr(convgram, "by_gradients", wrong)


@planted("Conv: gram without the bias", image_gram)
def _(patch: Patch) -> None:
    right = convgram.by_gradients
    patch.setattr(convgram, "by_gradients", lambda J, *rest: right(replace(J, layer=replace(J.layer, b=None)), *rest))


@planted("Conv: gram of equal positions only, p = q", image_gram)
def _(patch: Patch) -> None:
    right = convgram.by_pairs

    def wrong(J: ConvJacobian, a: Array, other: ConvJacobian, b: Array, kernel: Any) -> Any:
        total = 0.0
        for p in range(a.shape[-2]):
            u, v = np.zeros_like(a), np.zeros_like(b)
            u[..., p, :], v[..., p, :] = a[..., p, :], b[..., p, :]
            total = total + right(J, u, other, v, kernel)
        return total

    patch.setattr(convgram, "by_pairs", wrong)


@planted("tiles: a power of the points left out", tiled_convolution)
def _(patch: Patch) -> None:
    right = tiles.transforms

    def wrong(*shapes: Any) -> Any:
        A, G, B = right(*shapes)
        return A, np.where(np.abs(G) < 0.1, 0, G), B

    patch.setattr(tiles, "transforms", wrong)


@planted("tiles: where they overlap, the last one's gradient counts", tiled_convolution)
def _(patch: Patch) -> None:
    right = tiles.runs

    def runs(a: Array, axis: int, shape: Any, step: int) -> Array:
        view: Array = right(a, axis, shape, step)
        view[...] = 0
        return view

    patch.setattr(tiles, "runs", runs)


@planted("tiles: the pixels not in the order of the phases that the pooling takes them in", tiled_convolution)
def _(patch: Patch) -> None:
    right = arrange.by_tiles
    patch.setattr(arrange, "by_tiles", lambda conv, phases=(1, 1): right(conv))


@planted("tiles: what rounding leaves of zeros left in", zeros_by_tiles)
def _(patch: Patch) -> None:
    patch.setattr(Tiles, "zeros", lambda *_: None)


@planted("shares: only the first share's gradient counts", shared_batches)
def _(patch: Patch) -> None:
    def vjp(self: SharedJacobian, u: Array, dw: Any) -> Any:
        return self.parts[0].vjp(shares.examples(u, len(self.layer.after), self.shares[0]), dw)

    patch.setattr(SharedJacobian, "vjp", vjp)


@planted("arrange: the pooling takes the pixels as if they came one after the other", arranged_layers)
def _(patch: Patch) -> None:
    right = arrange.phased
    patch.setattr(arrange, "phased", lambda conv, pool: (right(conv, pool)[0], pool))


@planted("arrange: Abs waits for the pooling, as if it were increasing", arranged_layers)
def _(patch: Patch) -> None:
    patch.setattr(arrange, "WAITS", (mn.ReLU, mn.Abs))


@planted("arrange: the bias that waits for the pooling learns from the first pixel only", arranged_layers)
def _(patch: Patch) -> None:
    patch.setattr(BoundBias, "per_channel", lambda self, row: row[..., : self.shape[-1]])


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
    right = Canvas.pad
    patch.setattr(Canvas, "pad", lambda self, x, outside=0.0: right(self, x))


@planted("MaxPool: dx at the first pixel of each window", image_adjoint)
def _(patch: Patch) -> None:
    def back(self: AxisMax, u: Array) -> Array:
        dx = np.zeros((*u.shape[: max(u.ndim - len(self.shape), 0)], *self.shape))
        dx[pool.offsets(self.a, self.at)[0]] += u
        return dx

    patch.setattr(AxisMax, "back", back)


@planted("MaxPool: the first maximum in column-major order", ties)
def _(patch: Patch) -> None:
    def columns_last(canvas: Canvas, C: int) -> Order:
        wide, across = (*canvas.size, C), (canvas.rows, pool.ROWS)
        return Order(wide, across, pool.pooled(wide, *across), (canvas.columns, pool.COLUMNS))

    patch.setattr(Order, "rows", columns_last)


@planted("GlobalAvgPool: dx not divided by the number of pixels", image_adjoint)
def _(patch: Patch) -> None:
    right = GlobalJacobian.vjp
    patch.setattr(GlobalJacobian, "vjp", lambda self, u, dw: 20 * right(self, u, dw))


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
        return x.mean(axes, keepdims=True), 1 / (x.std(axes, keepdims=True) + eps)

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
