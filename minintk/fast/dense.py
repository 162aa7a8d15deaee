"""Compute Dense with few temporary arrays and with large products split over the cores: y = m x W + c b

    e.g.  y = [y_1, y_2]  (columns of W),      dW = [dW_1, dW_2]  (columns of u),      dx = [dx_1; dx_2]  (rows of u)

BLAS is limited to one thread during these products, so that its threads do not compete with the pool's threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, matmul_into, on_host, rows_times
from minintk.layers.contract import Tensor, Weights
from minintk.layers.dense import BoundDense, DenseJacobian
from minintk.threads import parallel
from minintk.thresholds import THRESHOLDS, cut

Job = tuple[Array, Array, Array]
"""A product (a, b, out), i.e. out[...] = a @ b."""


def large(a: Array, b: Array) -> bool:
    """Return True if a @ b is a single product that is large enough to split."""
    work = a.shape[0] * a.shape[-1] * b.shape[-1]
    return bool(a.ndim == b.ndim == 2 and work >= 2 * THRESHOLDS.products and on_host(array_namespace(a)))


def split(*jobs: Job) -> None:
    """Compute all products with one dispatch to the other cores; split each along the longer side of its result."""

    def work(item: tuple[Job, slice]) -> None:
        (a, b, out), at = item
        if out.shape[0] > out.shape[1]:
            matmul_into(a[at], b, out[at])
        else:
            matmul_into(a, b[:, at], out[:, at])

    parts = [cut(max(out.shape), out.size * a.shape[1], THRESHOLDS.products) for a, _, out in jobs]
    parallel(work, [(job, at) for job, some in zip(jobs, parts, strict=True) for at in some])


@dataclass(frozen=True)
class SplitDenseJacobian(DenseJacobian):
    """The Jacobian of SplitDense.  Its `jvp` and `gram` are those of the plain layer."""

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        p = self.layer.parameters
        if dw is None:
            return None if p.ends_sweep else p.m * rows_times(u, self.W.swapaxes(-1, -2))
        mu, x = p.m * u, self.x.swapaxes(-1, -2)
        if p.b is not None:
            dw[p.b.name][...] = p.c * u.sum(axis=-2)
        if not large(x, mu):
            matmul_into(x, mu, dw[p.W.name])
            return None if p.ends_sweep else rows_times(mu, self.W.swapaxes(-1, -2))
        if p.ends_sweep:
            split((x, mu, dw[p.W.name]))
            return None
        dx = array_namespace(u).empty(self.x.shape, dtype=u.dtype)
        split((x, mu, dw[p.W.name]), (mu, self.W.T, dx))
        return dx


@dataclass(frozen=True)
class SplitDense:
    """A Dense layer that splits large products over the cores and replaces the plain layer."""

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
