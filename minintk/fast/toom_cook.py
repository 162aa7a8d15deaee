"""A convolution of many channels by tiles:  y = m A' [(G W) . (B x)] + c b     (`minintk.fast.toom_cook_transforms`)

The function of `minintk.layers.conv` with a half to a quarter of its multiplications, and its derivatives:

jvp     dy = m A' [(G W) . (B dx)] + m A' [(G dW) . (B x)] + c db
vjp     dW = m G' [(B x)' (A u)],   db = c sum u,   dx = m B' [(A u) (G W)']

It is for outputs and sweeps; a kernel takes the convolution as it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk.arrays import Array, array_namespace, matmul_into
from minintk.fast.conv import dealt, scaled, sum_rows, summed
from minintk.fast.memory import scratch
from minintk.fast.threads import cores, parallel
from minintk.fast.toom_cook_transforms import Tiles
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, Weights
from minintk.layers.conv import BoundConv
from minintk.layers.patches import images
from minintk.spec.shapes import Shape


@dataclass(frozen=True)
class ToomCookJacobian(LayerJacobian):
    """Holds x : ([E], N, H, W, C), V = m G W : ([E], n^2, C, C_out), and w for `gram`; B x is formed again."""

    layer: ToomCook
    x: Array
    V: Array
    w: Weights

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """dy = m A' [(G W) . (B dx)] + m A' [(G dW) . (B x)] + c db."""
        layer = self.layer
        dy = layer.product(self.x, layer.unrolled(dw), layer.bias(dw))
        if dx is not None:
            dy += layer.product(images(dx, layer.conv.before), self.V, None)
        return dy

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """dW = m G' [(B x)' (A u)], db = c sum u; dx = m B' [(A u) (G W)']."""
        layer, conv, tiles, xp = self.layer, self.layer.conv, self.layer.tiles, array_namespace(u)
        p = conv.parameters
        u = images(u, conv.after)
        N, lead = u.shape[-4], np.broadcast_shapes(u.shape[:-4], self.V.shape[:-3])
        dx = None if p.first else xp.empty((*lead, N, *self.x.shape[-3:]), dtype=u.dtype)
        shape = (*np.broadcast_shapes(u.shape[:-4], self.x.shape[:-4]), *self.V.shape[-3:])

        def work(share: list[slice]) -> Array:
            dV = xp.empty(shape if dw is not None else (0,), dtype=u.dtype)
            for i, at in enumerate(share):
                Y = tiles.take(u[..., at, :, :, :])
                if dw is not None:
                    part = scratch(u, shape, "gradient") if i else dV
                    matmul_into(tiles.read(self.x[..., at, :, :, :]).swapaxes(-1, -2), Y, part)
                    if i:
                        dV += part
                if dx is not None:
                    X = scratch(u, (*lead, *Y.shape[-3:-1], self.V.shape[-2]), "points")
                    matmul_into(Y, self.V.swapaxes(-1, -2), X)
                    tiles.add(X, dx[..., at, :, :, :])
            return dV

        dV = summed(work, layer.shares(self.x, lead))
        if dw is not None:
            conv.matrix(dw)[...] = scaled(p.m, tiles.roll(dV))
            if p.b is not None:
                dw[p.b.name][...] = sum_rows(u.reshape((*u.shape[:-4], -1, u.shape[-1])), p.c)
        return None if dx is None else dx.reshape((*lead, N, *conv.before))

    def gram(self, u: Array, other: ToomCookJacobian, v: Array, kernel: Contraction) -> Array | float:
        """That of the convolution as it is written."""
        J = self.layer.conv(self.w, self.x)[1]
        return J.gram(u, J if other is self else other.layer.conv(other.w, other.x)[1], v, kernel)


@dataclass(frozen=True)
class ToomCook:
    """A convolution in its place, `conv`, by tiles."""

    conv: BoundConv
    tiles: Tiles

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.conv.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ToomCookJacobian]:
        """y = m A' [(G W) . (B x)] + c b."""
        x, V = images(x, self.conv.before), self.unrolled(w)
        return self.product(x, V, self.bias(w)), ToomCookJacobian(self, x, V, w)

    def unrolled(self, w: Weights) -> Array:
        """m G W : ([E], n^2, C, C_out)."""
        return scaled(self.conv.parameters.m, self.tiles.unroll(self.conv.matrix(w)))

    def bias(self, w: Weights) -> Array | None:
        """c b : ([E], 1, 1, 1, C_out)."""
        p = self.conv.parameters
        return None if p.b is None else (p.c * w[p.b.name])[..., None, None, None, :]

    def shares(self, x: Array, lead: Shape) -> list[list[slice]]:
        """The examples in chunks, with these axes in front, the chunks dealt out to the cores."""
        return dealt(int(x.shape[-4]), self.tiles.step(x, lead), cores())

    def product(self, x: Array, V: Array, b: Array | None) -> Array:
        """A' [V . (B x)] + b : (..., N, *after), chunk by chunk of examples."""
        tiles, N = self.tiles, x.shape[-4]
        lead = np.broadcast_shapes(x.shape[:-4], V.shape[:-3])
        y = array_namespace(x).empty((*lead, N, *tiles.windows.out, V.shape[-1]), dtype=x.dtype)

        def work(share: list[slice]) -> None:
            for at in share:
                X = tiles.read(x[..., at, :, :, :])
                Y = scratch(x, (*lead, *X.shape[-3:-1], V.shape[-1]), "outputs")
                matmul_into(X, V, Y)
                tiles.write(Y, y[..., at, :, :, :])
                tiles.zeros(x[..., at, :, :, :], y[..., at, :, :, :])

        parallel(work, self.shares(x, lead))
        if b is not None:
            y += b
        return y.reshape((*lead, N, *self.conv.after))
