"""Products of matrices and sums of vectors, into memory that is there already.

    matmul_into      out = a b
    decay_and_add    y <- m y + x
    add_scaled       y <- y + c x

NumPy's, as its wheels come, with OpenBLAS.  Where Intel's MKL is installed (the extra ``fast``, `minintk.fast.mkl`) it takes
what is large in training: its products are a tenth to a half faster, and it needs one pass over the vectors where NumPy
needs two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from minintk.arrays import Array, array_namespace, on_host, scratch
from minintk.fast import mkl

WORTH = 2**15
"""Multiplications below which calling another library costs more than it saves."""

LONG = 2**18
"""Numbers of a vector below which it stays in a core's cache, and nothing is saved."""

FEW = 64
"""Rows of a product that cost less to turn than BLAS loses on them."""


_fast: ContextVar[bool] = ContextVar("minintk_fast_products", default=False)


@contextmanager
def fast_products() -> Iterator[None]:
    """Large products of single matrices by MKL, where there is one, and few rows turned round: in training.

    Of this thread, and of the tasks that it hands to the pool; what others compute meanwhile keeps its bits.  Small
    kernels go without: MKL's 15 MB are much, next to them.
    """
    mkl.mkl()  # before several threads ask for it
    token = _fast.set(True)
    try:
        yield
    finally:
        _fast.reset(token)


def matmul_into(a: Array, b: Array, out: Array) -> None:
    """out[...] = a @ b, without a temporary where the library can write into a view; out overlaps neither.

    >>> a, out = np.eye(2), np.zeros((2, 3))
    >>> matmul_into(a, a, out[:, :2])
    >>> out
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    if not on_host(array_namespace(a, b, out)):
        out[...] = a @ b
    elif not (a.ndim == b.ndim == 2 and a.shape[0] * a.shape[1] * b.shape[1] >= WORTH and _fast.get()):
        np.matmul(a, b, out=out)
    elif a.shape[0] <= FEW and b.strides[0] < b.strides[1]:  # b = W': (W a')' is a third faster than a W'
        turned = scratch(out, out.shape[::-1], "turned")
        large_into(b.T, a.T, turned)
        out[...] = turned.T
    else:
        large_into(a, b, out)


def large_into(a: Array, b: Array, out: Array) -> None:
    """`matmul_into` of matrices that are worth a call."""
    if not mkl.matmul_into(a, b, out):
        np.matmul(a, b, out=out)


def decay_and_add(y: Array, m: float, x: Array) -> None:
    """y <- m y + x, in place."""
    if not (long(y) and mkl.axpby(1.0, x, m, y)):
        y *= m
        y += x


def add_scaled(y: Array, c: float, x: Array, spare: Array | None = None) -> None:
    """y <- y + c x, in place; spare : memory of the shape of x that may be written to, such as x itself."""
    if not (long(y) and mkl.axpby(c, x, 1.0, y)):
        y += array_namespace(x).multiply(x, c, out=spare)


def long(y: Array) -> bool:
    """Whether this is a vector in the host's memory, and a long one."""
    return bool(y.ndim == 1 and y.shape[0] >= LONG and on_host(array_namespace(y)))


def piece(y: Array) -> int:
    """Numbers of a long vector to take at a time: what a core's cache holds through NumPy's passes; MKL makes one."""
    return 2**20 if long(y) and mkl.mkl() is not None else 2**17
