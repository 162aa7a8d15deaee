"""Compute convolutions on patches of several windows, a few examples at a time: y = P(x) V + c b,  V = m unroll(W)

The map and its derivatives are those of `minintk.layers.conv`.  Patches (`minintk.fast.patches`) stay in a core's cache
between the copy and the product.  Numba's loops do not form patches.  The examples are divided among the cores.

jvp     dy = P(dx) V + m P(x) unroll(dW) + c db
vjp     dW = m roll(P(x)' u),   db = c sum u,   dx = P'(u V')
gram    `minintk.fast.conv_gram`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, matmul_into, on_host
from minintk.fast.conv_gram import conv_gram
from minintk.fast.gather import Gather
from minintk.fast.numba_here import loops
from minintk.fast.patches import Before, Patches, nothing_before
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, Weights
from minintk.layers.conv import BoundConv, sum_rows
from minintk.layers.patches import images
from minintk.threads import parallel
from minintk.thresholds import THRESHOLDS, cut


def scaled(m: float, a: Array) -> Array:
    """Return m times `a`, or `a` itself (not a copy) if m = 1."""
    return a if m == 1 else m * a


def summed(work: Callable[[Any], Array], pieces: Sequence[Any]) -> Array:
    """Compute work(piece) for all pieces on all cores, and add the results in the order of the pieces."""
    total, *others = parallel(work, pieces)
    for part in others:
        total += part
    return total


def kernels(parts: Sequence[Patches], x: Array) -> Any:
    """Return the module `minintk.fast.numba_loops` if its loops can run these convolutions and pay off, else None."""
    work = prod(x.shape[:-3]) * sum(patches.work for patches in parts)
    worth = work >= THRESHOLDS.compiled and all(patches.direct for patches in parts) and on_host(array_namespace(x))
    return loops() if worth else None


def pieces(work: int, x: Array, weights: int = 0) -> list[slice]:
    """Cut the N examples of x into pieces.  work : multiplications per example.  weights : entries of a piece's dW."""
    N, each = x.shape[-4], max(THRESHOLDS.convolution, THRESHOLDS.convolution_per_weight * weights, 1)
    return cut(N, N * work if on_host(array_namespace(x)) else 0, each)


def chunks(piece: slice, step: int) -> list[slice]:
    """Cut a piece into nearly equal parts of at most `step` examples, whose patches fit a core's cache."""
    N = piece.stop - piece.start
    count = max(1, -(-N // step))
    return [slice(piece.start + i * N // count, piece.start + (i + 1) * N // count) for i in range(count)]


def correlate(patches: Patches, x: Array, V: Array, b: Array | None, before: Before | None = None) -> Array:
    """Return P(x) V + b : (..., N, *windows.out, C_out), computed in chunks of examples.   b : (..., 1, B C_out).

    before : a map that compiled loops apply to x while they copy it into their frames.  Only these loops support it.
    """
    windows, R, N = patches.windows, patches.R, x.shape[-4]
    lead = np.broadcast_shapes(x.shape[:-4], V.shape[:-2])
    if V.ndim == 2:  # computes one product for all leading axes
        x = x.reshape((-1, *x.shape[-3:]))
    shape = (x.shape[-4] * R, V.shape[-1]) if V.ndim == 2 else (*lead, N * R, V.shape[-1])
    y = array_namespace(x).empty(shape, dtype=x.dtype)
    if V.ndim == 2 and (direct := kernels([patches], x)) is not None:
        start = np.zeros_like(V[0]) if b is None else b[0]
        place, W = (0, 0, 1, 1), V.reshape((*windows.window, *patches.channels))
        y = y.reshape((-1, *windows.out, patches.channels[1]))
        how = before or nothing_before(x)
        convolved(direct, x, [(patches.frame, how, W, windows.strides, start, place)], y, patches.work)
        return y.reshape((*lead, N, *y.shape[1:]))

    def work(piece: slice) -> None:
        P = None
        for at in chunks(piece, patches.step(x)):
            P, z = patches.read(x[..., at, :, :, :], P), y[..., rows(at, R), :]
            matmul_into(P, V, z)
            if b is not None:
                z += b

    parallel(work, pieces(patches.work, x))
    return y.reshape((*lead, N, *windows.out, patches.channels[1]))


def convolved(direct: Any, x: Array, parts: Sequence[tuple[Any, ...]], y: Array, work: int) -> None:
    """Compute parts of y from x.  parts : arguments of `numba_loops.correlate`.  work : multiplications per example."""
    x = np.ascontiguousarray(x)
    blocks = [(f, z, V, stride, b, (*place, o)) for f, z, W, stride, b, place in parts for o, V in direct.columns(W)]

    def some(at: slice) -> None:
        for *how, place in blocks:
            direct.correlate(x[at], *how, y[at], place)

    parallel(some, pieces(work, x))


@dataclass(frozen=True)
class BlockedConvJacobian(LayerJacobian):
    """The Jacobian at x : ([E], N, H, W, C), W : ([E], K_h K_w C, C_out) and V = m unroll(W) : ([E], K, B C_out).

    before : see `correlate`.  J is the derivative with respect to the output of `before`, not with respect to x.
    """

    layer: BlockedConv
    x: Array
    W: Array
    V: Array
    before: Before | None = None

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        layer = self.layer
        dy = layer.product(self.x, layer.unrolled(layer.plain.matrix(dw)), layer.bias_row(dw))
        if dx is not None:
            dy += layer.product(images(dx, layer.plain.before), self.V, None)
        return dy

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        layer, p = self.layer, self.layer.plain.parameters
        u = layer.rows_of(u)
        if dw is not None:
            layer.plain.matrix(dw)[...] = scaled(p.m, layer.patches.roll(self._weight_gradient(u)))
            if p.b is not None:
                row = sum_rows(u, p.c)
                dw[p.b.name][...] = row.reshape((*row.shape[:-1], layer.patches.B, layer.plain.after[-1])).sum(axis=-2)
        return None if p.ends_sweep else self._input_gradient(u)

    def _weight_gradient(self, u: Array) -> Array:
        """Return P(x)' u : (..., K, B C_out), summed over chunks of examples."""
        patches, windows, R = self.layer.patches, self.layer.patches.windows, self.layer.patches.R
        shape = (*np.broadcast_shapes(self.x.shape[:-4], u.shape[:-2]), patches.K, u.shape[-1])
        direct = kernels([patches], self.x) if len(shape) == 2 else None

        if direct is not None:
            x, v = np.ascontiguousarray(self.x), np.ascontiguousarray(u).reshape((1, -1, *windows.out, u.shape[-1]))

            def compiled(at: slice) -> Array:
                dW = np.zeros((1, 1, *windows.window, *patches.channels), u.dtype)
                how = self.before or nothing_before(x)
                direct.add_gradient(x[at], patches.frame, how, v[:, at], windows.strides, dW)
                return dW

            return summed(compiled, pieces(patches.work, x, prod(shape))).reshape(shape)

        def work(piece: slice) -> Array:
            first, *others = chunks(piece, patches.step(self.x))
            P = patches.read(self.x[..., first, :, :, :])
            total = P.swapaxes(-1, -2) @ u[..., rows(first, R), :]
            part = array_namespace(u).empty_like(total)
            for at in others:
                P = patches.read(self.x[..., at, :, :, :], P)
                matmul_into(P.swapaxes(-1, -2), u[..., rows(at, R), :], part)
                total += part
            return total

        return summed(work, pieces(patches.work, self.x, prod(shape)))

    def _gathered(self, u: Array) -> Array:
        """Gather dx from u : (..., N, H_out, W_out, C_out), as a canvas for circular windows, else as an image."""
        gathers, windows = self.layer.gathers, self.layer.patches.windows
        W = scaled(self.layer.plain.parameters.m, self.W)
        W = W.reshape((*W.shape[:-2], *windows.window, *self.layer.patches.channels))
        size = windows.size if windows.circular else (windows.rows.size, windows.columns.size)
        if W.ndim == 4 and (direct := kernels([g.patches for g in gathers], u)) is not None:
            some = u.reshape((-1, *u.shape[-3:]))
            every = len(gathers) == prod(min(pair) for pair in zip(windows.strides, size, strict=True))
            whole = (np.empty if every else np.zeros)((len(some), *size, self.x.shape[-1]), u.dtype)
            start = np.zeros(self.x.shape[-1], u.dtype)
            turned = [
                np.ascontiguousarray(g.turned(W)).reshape((*g.patches.windows.window, *g.patches.channels))
                for g in gathers
            ]
            how = nothing_before(u)
            each = [(g.frame, how, V, (1, 1), start, g.place) for g, V in zip(gathers, turned, strict=True)]
            convolved(direct, some, each, whole, sum(g.patches.work for g in gathers))
            return whole.reshape((*u.shape[:-3], *whole.shape[1:]))
        parts = [
            correlate(g.patches, u[(..., *g.reads, slice(None))], g.patches.unroll(g.turned(W)), None) for g in gathers
        ]
        if windows.strides == (1, 1):
            return parts[0]
        dx = array_namespace(u).zeros((*parts[0].shape[:-3], *size, self.x.shape[-1]), dtype=u.dtype)
        for g, part in zip(gathers, parts, strict=True):
            dx[(..., *g.pixels, slice(None))] = part
        return dx

    def _input_gradient(self, u: Array) -> Array:
        """Return P'(u V') : (..., N, *before), by gathering or, if that is slower, by `Patches.add` chunk by chunk."""
        layer, patches, R = self.layer, self.layer.patches, self.layer.patches.R
        if layer.gathers:
            dx = self._gathered(u.reshape((*u.shape[:-2], u.shape[-2] // R, *patches.windows.out, patches.channels[1])))
            dx = patches.windows.crop(dx) if patches.windows.circular else dx
            return dx.reshape((*dx.shape[:-3], *layer.plain.before))
        N, V = u.shape[-2] // R, self.V.swapaxes(-1, -2)
        lead = np.broadcast_shapes(u.shape[:-2], V.shape[:-2])
        if V.ndim == 2:  # computes one product for all leading axes
            u = u.reshape((-1, u.shape[-1]))
        image = (patches.windows.rows.size, patches.windows.columns.size, patches.channels[0])
        shape = (u.shape[-2] // R, *image) if V.ndim == 2 else (*lead, N, *image)
        dx = array_namespace(u).empty(shape, dtype=u.dtype)

        def work(piece: slice) -> None:
            P = None
            for at in chunks(piece, patches.step(dx)):
                part = u[..., rows(at, R), :]
                if P is None or P.shape[-2] != part.shape[-2]:
                    P = array_namespace(u).empty((*dx.shape[:-4], part.shape[-2], patches.K), dtype=u.dtype)
                matmul_into(part, V, P)
                patches.add(P, dx[..., at, :, :, :])

        parallel(work, pieces(patches.work, dx))
        return dx.reshape((*lead, N, *layer.plain.before))

    def gram(self, u: Array, other: BlockedConvJacobian, v: Array, kernel: Contraction) -> Array | float:
        windows, a = replace(self.layer.patches, B=1), self.cotangents(u)
        b = a if other is self and v is u else other.cotangents(v)
        return conv_gram(self.layer.plain.parameters, windows, self.x, a, other.x, b, kernel)

    def cotangents(self, u: Array) -> Array:
        """Return u : (C, [E], N, positions, C_out), expanded to every member and example."""
        *positions, n = self.layer.plain.after
        shape = (u.shape[0], *self.V.shape[:-2], self.x.shape[-4], *positions, n)
        return array_namespace(u).broadcast_to(u, shape).reshape((*shape[: -len(positions) - 1], prod(positions), n))


def rows(at: slice, R: int) -> slice:
    """Return the slice of the rows of P that belong to the images in the slice `at`.   R : rows per image."""
    return slice(at.start * R, at.stop * R)


@dataclass(frozen=True)
class BlockedConv:
    """A convolution on patches of several windows, which replaces the plain layer."""

    plain: BoundConv
    patches: Patches
    gathers: list[Gather]

    @staticmethod
    def of(plain: BoundConv) -> BlockedConv:
        """Return the convolution, with the number B of windows per row of P that `Patches.of` chooses."""
        windows, channels = plain.windows, plain.parameters.W.shape[-2:]
        gathers = [] if plain.parameters.ends_sweep else Gather.of(windows, channels)  # type: ignore[arg-type]
        return BlockedConv(plain, Patches.of(windows, channels), gathers)  # type: ignore[arg-type]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.plain.tensors

    def __call__(self, w: Weights, x: Array, before: Before | None = None) -> tuple[Array, BlockedConvJacobian]:
        """Return y and J.   before : see `correlate`."""
        x, W = images(x, self.plain.before), self.plain.matrix(w)
        V = self.unrolled(W)
        return self.product(x, V, self.bias_row(w), before), BlockedConvJacobian(self, x, W, V, before)

    def unrolled(self, W: Array) -> Array:
        """Return V = m unroll(W) : ([E], K, B C_out)."""
        return scaled(self.plain.parameters.m, self.patches.unroll(W))

    def bias_row(self, w: Weights) -> Array | None:
        """Return c b, repeated for the B windows of a row of P: (..., 1, B C_out), or None without a bias."""
        p = self.plain.parameters
        if p.b is None:
            return None
        b = (p.c * w[p.b.name])[..., None, :]
        row = array_namespace(b).broadcast_to(b, (*b.shape[:-2], self.patches.B, b.shape[-1]))
        return row.reshape((*b.shape[:-2], 1, -1))

    def rows_of(self, u: Array) -> Array:
        """Return u : (..., N, *after) reshaped to rows (..., N R, B C_out)."""
        *lead, N = u.shape[: u.ndim - len(self.plain.after)]
        return u.reshape((*lead, N * self.patches.R, self.patches.B * self.plain.after[-1]))

    def product(self, x: Array, V: Array, b: Array | None, before: Before | None = None) -> Array:
        """Return P(x) V + b : (..., N, *after)."""
        y = correlate(self.patches, x, V, b, before)
        return y.reshape((*y.shape[:-3], *self.plain.after))
