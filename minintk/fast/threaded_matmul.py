"""Products with a matrix of weights, large ones shared out over the cores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk.arrays import Array, array_namespace
from minintk.fast.blas import matmul_into
from minintk.fast.threads import cores, free, parallel

LARGE = 2**23
"""Multiplications below which one core is done before a second has started."""


@dataclass(frozen=True)
class Product:
    """out = factor a @ b + row, still to be done."""

    a: Array
    b: Array
    out: Array
    factor: float = 1.0
    row: Array | None = None

    @property
    def large(self) -> bool:
        """Whether it is one product, and worth a hand-over to the other cores."""
        a, b = self.a, self.b
        return bool(a.ndim == b.ndim == 2 and a.shape[0] * a.shape[1] * b.shape[1] >= LARGE)

    def do(self) -> None:
        """In one piece."""
        out = self.out
        matmul_into(self.a, self.b, out)
        if self.factor != 1:
            out *= self.factor
        if self.row is not None:
            out += self.row

    def piece(self, i: int, count: int) -> Product:
        """Piece i of so many, cut along the longer side of `out`."""
        m, n = self.out.shape[-2:]
        at = slice(i * max(m, n) // count, (i + 1) * max(m, n) // count)
        p, q = (at, slice(None)) if m > n else (slice(None), at)
        row = None if self.row is None else self.row[..., q]
        return Product(self.a[..., p, :], self.b[..., q], self.out[..., p, q], self.factor, row)


def products(*jobs: Product | None) -> None:
    """Do them all, with one hand-over to the other cores where those are free and it pays; None is nothing to do."""
    todo = [job for job in jobs if job is not None]
    if free() and any(job.large for job in todo):
        count = cores()

        def work(i: int) -> None:
            for job in todo:
                job.piece(i, count).do()

        parallel(work, range(count))
    else:
        for job in todo:
            job.do()


def rows_times(a: Array, b: Array, factor: float = 1.0, row: Array | None = None) -> Array:
    """factor a @ b + row; one product over all leading axes of a where b has none, instead of one for each."""
    job = rows_product(a, b, factor, row)
    products(job)
    return joined(job.out, a)


def rows_product(a: Array, b: Array, factor: float = 1.0, row: Array | None = None) -> Product:
    """factor a @ b + row, still to be done, all leading axes of a being rows where b has none."""
    rows = a.reshape((-1, a.shape[-1])) if b.ndim == 2 else a
    shape = (*np.broadcast_shapes(rows.shape[:-2], b.shape[:-2]), rows.shape[-2], b.shape[-1])
    return Product(rows, b, array_namespace(rows).empty(shape, dtype=rows.dtype), factor, row)


def joined(out: Array, a: Array) -> Array:
    """`out` of `rows_product` with the leading axes of a."""
    return out.reshape((*a.shape[:-1], out.shape[-1])) if out.ndim == 2 else out


def sum_rows(u: Array, c: float) -> Array:
    """c sum_N u : (..., n), as a product with a row of c's: several times faster than a reduction over axis -2."""
    row = array_namespace(u).full((1, u.shape[-2]), c, dtype=u.dtype)
    return (row @ u)[..., 0, :]
