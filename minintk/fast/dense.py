"""Dense without temporary arrays, its large products split over the cores:  y = m x W + c b

    y = [y_1, y_2]     columns of W         dW = [dW_1, dW_2]   columns of u         dx = [dx_1; dx_2]   rows of u

BLAS is held at one thread meanwhile: its own neither wait on a core nor fight with ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk.arrays import Array, array_namespace, matmul_into, on_host, rows_times
from minintk.fast.threads import parallel
from minintk.fast.thresholds import THRESHOLDS, cut, loops, numba_is_here
from minintk.layers.contract import Tensor, Weights
from minintk.layers.dense import BoundDense, DenseJacobian

Job = tuple[Array, Array, Array]
"""a, b, out:  out[...] = a @ b."""


def large(a: Array, b: Array) -> bool:
    """True if a b is one product that is worth splitting."""
    work = a.shape[0] * a.shape[-1] * b.shape[-1]
    return bool(a.ndim == b.ndim == 2 and work >= 2 * THRESHOLDS.products and on_host(array_namespace(a)))


def split(*jobs: Job) -> None:
    """All products, each cut along the longer side of its result, with one hand-over to the other cores."""

    def work(item: tuple[Job, slice]) -> None:
        (a, b, out), at = item
        if thin(a, b, out, at):
            return
        if out.shape[0] > out.shape[1]:
            matmul_into(a[at], b, out[at])
        else:
            matmul_into(a, b[:, at], out[:, at])

    parts = [cut(max(out.shape), out.size * a.shape[1], THRESHOLDS.products) for a, _, out in jobs]
    parallel(work, [(job, at) for job, some in zip(jobs, parts, strict=True) for at in some])


def thin(a: Array, b: Array, out: Array, at: slice) -> bool:
    """Whether the part `at` of out = a b was small along one side, and so written by compiled loops."""
    (m, n), K, each = out.shape, a.shape[1], at.stop - at.start
    whole = all(x.flags.c_contiguous or x.flags.f_contiguous for x in (a, b)) and out.flags.c_contiguous
    if min(m, K, n) > THRESHOLDS.thin or not whole or not numba_is_here() or (direct := loops()) is None:
        return False
    if not b.flags.c_contiguous:  # out' = b' a', with columns of zeros that fill a vector
        if m > min(n, THRESHOLDS.thin):
            return False
        wide = -(-m // direct.CHANNELS) * direct.CHANNELS
        turned, found = np.zeros((K, wide), a.dtype), np.empty((each, wide), a.dtype)
        turned[:, :m] = a.T
        direct.thin(flat(b), (at.start * K, K, 1), flat(turned), (0, wide), flat(found), (0, wide), (each, K, wide))
        out[:, at] = found[:, :m].T
        return True
    rows = m > n
    size, (row, along) = (each if rows else m, K, n if rows else each), (step // a.dtype.itemsize for step in a.strides)
    if size[2] % direct.CHANNELS:
        return False
    left, right = (at.start * row if rows else 0, row, along), (0 if rows else at.start, n)
    direct.thin(flat(a), left, flat(b), right, flat(out), (at.start * n if rows else at.start, n), size)
    return True


def flat(a: Array) -> Array:
    """The numbers of a contiguous array as they stand in memory."""
    return a.ravel(order="K")


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
