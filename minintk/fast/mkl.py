"""Intel's MKL, where it is installed (``pip install minintk[fast]``): two functions of its BLAS, called as they are.

    matmul_into    out = a b             ?gemm
    axpby          y <- c x + m y        ?axpby

Each returns whether it did the work; where MKL is missing, or the arrays are not for it, it does nothing.  The library
is loaded by the first call, for one thread a call (`minintk.fast.threads` has the others), and asked for the same bits
wherever the arrays lie in memory.  The interpreter's lock is released meanwhile.  One thread a call is then MKL's
setting for this whole process: a library that is loaded later and uses MKL too has to do with it.
"""

from __future__ import annotations

import ctypes
import site
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from minintk.arrays import Array

ROW_MAJOR, PLAIN, TURNED = 101, 111, 112
"""CBLAS's names: how `out` lies in memory; a matrix as it is, or transposed."""

LP64, SEQUENTIAL, SAME_BITS = 0, 1, 2
"""MKL's names: 32-bit sizes, one thread, conditional numerical reproducibility."""

MOST = 2**31 - 1
"""The largest of its sizes."""

PLACES = ("lib/libmkl_rt.so*", "Library/bin/mkl_rt*.dll")
"""Where pip and conda put it, below their prefix."""


@dataclass(frozen=True)
class Library:
    """gemm, axpby : for float32 and for float64."""

    gemm: dict[Any, Any]
    axpby: dict[Any, Any]


def matmul_into(a: Array, b: Array, out: Array) -> bool:
    """out[...] = a @ b, for matrices of one dtype whose rows or columns have no gaps; out overlaps neither."""
    library = mkl()
    if library is None or out.dtype not in library.gemm or not a.dtype == b.dtype == out.dtype:
        return False
    if lies(out) != PLAIN:  # out' = b' a'
        a, b, out = b.T, a.T, out.T
    how_a, how_b, how_out = lies(a), lies(b), lies(out)
    if how_a is None or how_b is None or how_out != PLAIN:
        return False
    (m, k), n = a.shape, b.shape[1]
    if max(m, k, n, step(a), step(b), step(out)) > MOST:
        return False
    library.gemm[out.dtype](
        ROW_MAJOR, how_a, how_b, m, n, k, 1.0, address(a), step(a), address(b), step(b), 0.0, address(out), step(out)
    )
    return True


def axpby(c: float, x: Array, m: float, y: Array) -> bool:
    """y <- c x + m y, in place, for vectors of one dtype without gaps."""
    library = mkl()
    if library is None or y.dtype not in library.axpby or x.dtype != y.dtype:
        return False
    if x.shape != y.shape or not x.strides == y.strides == (y.itemsize,) or y.size > MOST:
        return False
    library.axpby[y.dtype](y.size, c, address(x), 1, m, address(y), 1)
    return True


def lies(matrix: Array) -> int | None:
    """PLAIN where the rows have no gaps, TURNED where the columns have none, None where both do."""
    (rows, columns), (down, right), item = matrix.shape, matrix.strides, matrix.itemsize
    if right == item and down >= columns * item and down % item == 0:
        return PLAIN
    if down == item and right >= rows * item and right % item == 0:
        return TURNED
    return None


def step(matrix: Array) -> int:
    """Numbers from one row, or column, to the next."""
    return int(max(matrix.strides) // matrix.itemsize)


def address(a: Array) -> int:
    """Of its first number."""
    return int(a.__array_interface__["data"][0])


def mkl() -> Library | None:
    """MKL, or None where it is not installed, does not load, or was loaded by others, who chose its threads.

    (NumPy from conda comes with MKL, and its products are MKL's anyway.)
    """
    with _loading:  # two threads that come first would each take the other one's for the others'
        return None if loaded_by_others() else load()


_loading = RLock()


@cache
def loaded_by_others() -> bool:
    """Whether MKL was there before we loaded it: to be asked first."""
    from threadpoolctl import ThreadpoolController

    return bool(ThreadpoolController().select(internal_api="mkl").info())


@cache
def load() -> Library | None:
    """MKL from where pip or conda put it."""
    for prefix in (sys.prefix, site.getuserbase()):
        for path in (path for place in PLACES for path in sorted(Path(prefix).glob(place))):
            try:
                found = ctypes.CDLL(str(path))
                found.MKL_Set_Interface_Layer(LP64)
                found.MKL_Set_Threading_Layer(SEQUENTIAL)
                found.MKL_CBWR_Set(SAME_BITS)
                return cblas(found, "cblas_{}")
            except (OSError, AttributeError):
                continue
    return None


def cblas(found: Any, name: str, size: Any = ctypes.c_int) -> Library:
    """The functions of a CBLAS: `name` is what it calls one, "cblas_{}", and `size` the type of its sizes."""
    i, at, library = ctypes.c_int, ctypes.c_void_p, Library({}, {})
    for dtype, letter, real in (("float32", "s", ctypes.c_float), ("float64", "d", ctypes.c_double)):
        product, add = (getattr(found, name.format(letter + what)) for what in ("gemm", "axpby"))
        product.argtypes = [i, i, i, size, size, size, real, at, size, at, size, real, at, size]
        add.argtypes = [size, real, at, size, real, at, size]
        product.restype = add.restype = None
        library.gemm[np.dtype(dtype)], library.axpby[np.dtype(dtype)] = product, add
    return library
