"""Dense without temporary arrays, its large products split over the cores:  y = m x W + c b

    y = [y_1, y_2]     columns of W         dW = [dW_1, dW_2]   columns of u         dx = [dx_1; dx_2]   rows of u

Where BLAS is held at one thread, its own threads neither wait on a core nor fight with ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, matmul_into, on_host, rows_times
from minintk.fast.threads import cores, free, parallel
from minintk.fast.thresholds import THRESHOLDS
from minintk.layers.contract import Tensor, Weights
from minintk.layers.dense import BoundDense, DenseJacobian

Job = tuple[Array, Array, Array]
"""a, b, out:  out[...] = a @ b."""


def large(a: Array, b: Array) -> bool:
    """Whether a b is one product, the cores are free, and it is worth splitting."""
    return bool(
        a.ndim == b.ndim == 2
        and a.shape[0] * a.shape[1] * b.shape[1] >= THRESHOLDS.products
        and free()
        and on_host(array_namespace(a))
    )


def split(*jobs: Job) -> None:
    """All products, each cut along the longer side of its result, with one hand-over to the other cores."""
    count = cores()

    def work(i: int) -> None:
        for a, b, out in jobs:
            m, n = out.shape
            at = slice(i * max(m, n) // count, (i + 1) * max(m, n) // count)
            if m > n:
                matmul_into(a[at], b, out[at])
            else:
                matmul_into(a, b[:, at], out[:, at])

    parallel(work, range(count))


@dataclass(frozen=True)
class SplitDenseJacobian(DenseJacobian):
    """`jvp` and `gram` are those of the layer as it is written."""

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        p = self.layer.parameters
        if dw is None:
            return None if p.first else p.m * rows_times(u, self.W.swapaxes(-1, -2))
        mu, x = p.m * u, self.x.swapaxes(-1, -2)
        if p.b is not None:
            dw[p.b.name][...] = p.c * u.sum(axis=-2)
        if not large(x, mu):
            matmul_into(x, mu, dw[p.W.name])
            return None if p.first else rows_times(mu, self.W.swapaxes(-1, -2))
        if p.first:
            split((x, mu, dw[p.W.name]))
            return None
        dx = array_namespace(u).empty(self.x.shape, dtype=u.dtype)
        split((x, mu, dw[p.W.name]), (mu, self.W.T, dx))
        return dx


@dataclass(frozen=True)
class SplitDense:
    """A Dense in its place."""

    plain: BoundDense

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.plain.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, DenseJacobian]:
        p = self.plain.parameters
        W = w[p.W.name]
        if large(x, W):
            y = array_namespace(x).empty((x.shape[0], W.shape[1]), dtype=x.dtype)
            split((x, W, y))
        else:
            y = rows_times(x, W)
        if p.m != 1:
            y *= p.m
        if p.b is not None:
            y += p.c * w[p.b.name][..., None, :]
        return y, SplitDenseJacobian(self.plain, x, W)
