"""The bias of a convolution as a layer of its own:  y = x + c b, the same at every pixel.

jvp     dy = dx + c db
vjp     db = c sum u over examples and pixels,   dx = u
gram    c^2 (sum_p u_p) . (sum_q v_q)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minintk.arrays import Array, array_namespace
from minintk.fast.threaded_matmul import sum_rows
from minintk.layers.contract import Contraction, Gram, Weights, gram_and_back
from minintk.layers.layout import Tensor
from minintk.spec.shapes import Shape


@dataclass(frozen=True)
class BiasJacobian:
    """Linear: holds nothing."""

    layer: BoundBias

    def jvp(self, dw: Weights, dx: Array) -> Array:
        """dy = dx + c db."""
        return self.layer.added(dw, dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """db = c sum u; dx = u."""
        if dw is not None:
            dw[self.layer.tensor.name][...] = self.layer.per_channel(sum_rows(self.layer.flat(u), self.layer.c))
        return u

    def gram(self, u: Array, other: BiasJacobian, v: Array, kernel: Contraction) -> Gram:
        """c^2 (sum_p u_p) . (sum_q v_q)."""
        layer = self.layer
        a = layer.per_channel(layer.flat(u))
        b = a if v is u else layer.per_channel(layer.flat(v))
        return gram_and_back(self, u, other, v, kernel(a, b, layer.c**2))


@dataclass(frozen=True)
class BoundBias:
    """A bias b in its place: its tensor, and the shape (H, W, C) or (L, C) of what it is added to."""

    tensor: Tensor
    shape: Shape

    @property
    def c(self) -> float:
        return float(self.tensor.row.multiplier)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.shape,)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, BiasJacobian]:
        """y = x + c b."""
        return self.added(w, x), BiasJacobian(self)

    def added(self, w: Weights, x: Array) -> Array:
        """x + c b, with b written out for all pixels: long runs."""
        b = (self.c * w[self.tensor.name])[..., None, None, :]
        row = array_namespace(b).broadcast_to(b, (*b.shape[:-2], prod(self.shape[:-1]), b.shape[-1]))
        y = self.flat(x) + row.reshape((*b.shape[:-2], prod(self.shape)))
        return y.reshape((*y.shape[:-1], *self.shape))

    def flat(self, x: Array) -> Array:
        """x : (..., N, *shape) with the pixels and channels on one axis."""
        return x.reshape((*x.shape[: -len(self.shape)], prod(self.shape)))

    def per_channel(self, row: Array) -> Array:
        """The sum over the pixels of what is flat."""
        return row.reshape((*row.shape[:-1], prod(self.shape[:-1]), self.shape[-1])).sum(axis=-2)
