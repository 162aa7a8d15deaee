"""Cholesky in place, block column by block column, for matrices that fill the memory.

    K = L L'        L_jj L_jj' = K_jj - L_j L_j',    L_ij = (K_ij - L_i L_j') L_jj^-T      (L_j: the blocks left of jj)

Nearly all of it is matrix products over whole panels, so it runs at the speed of the library's product, on the CPU
and on the GPU, in the memory of K and one panel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minintk.arrays import Array, array_namespace, scipy_module
from minintk.fast.threads import single_threaded_blas

BLOCK = 512


class NotPositive(ValueError):
    """The matrix is not positive definite to rounding; `bound` is an upper bound of its smallest eigenvalue."""

    def __init__(self, bound: float) -> None:
        super().__init__(f"expected a positive definite matrix, its smallest eigenvalue is at most {bound:.3g}")
        self.bound = bound


def factorise(k: Array, *, block: int = BLOCK, report: Callable[[float], None] = lambda share: None) -> None:
    """k : (n, n) -> L in its lower triangle, in place; only the lower triangle is read.

    What stands above the diagonal afterwards means nothing.  report : told the share of the work done by each block
    column.  NotPositive where there is no L to rounding.

    >>> k = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> factorise(k)
    >>> np.tril(k)
    array([[2., 0.],
           [1., 2.]])
    """
    n = k.shape[0]
    solve = scipy_module(array_namespace(k), "linalg").solve_triangular
    for j in range(0, n, block):
        end = min(j + block, n)
        if j:
            k[j:, j:end] -= k[j:, :j] @ k[j:end, :j].T
        L = _small(k[j:end, j:end])
        if L is None:
            raise NotPositive(_bound(k, j, end))
        k[j:end, j:end] = L
        if end < n:
            k[end:, j:end] = solve(L, k[end:, j:end].T, lower=True).T
        report(((n - j) ** 2 * (n + 2 * j) - (n - end) ** 2 * (n + 2 * end)) / n**3)


def solve_factorised(k: Array, b: Array, *, block: int = BLOCK) -> Array:
    """x : (n, m) with L L' x = b, for k as `factorise` left it.

    >>> k = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> factorise(k)
    >>> solve_factorised(k, np.array([[6.0], [7.0]]))
    array([[1.],
           [1.]])
    """
    xp = array_namespace(k, b)
    x = xp.asarray(b, copy=True)
    _forwards(k, x, x.shape[0], block)
    _backwards(k, x, x.shape[0], block)
    return x


def smallest_eigenvalue(k: Array, steps: int = 10) -> float:
    """An upper bound of the smallest eigenvalue of K = L L', close to it: inverse iteration.  k as `factorise` left it.

    >>> k = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> factorise(k)
    >>> round(smallest_eigenvalue(k), 6)
    1.0
    """
    xp, n = array_namespace(k), k.shape[0]
    v = xp.asarray(np.cos(np.arange(n) ** 2 % 1001.0)[:, None].astype(str(k.dtype)))
    value = float("inf")
    for _ in range(steps):
        v = v / float(xp.sqrt(xp.sum(v * v)))
        w = solve_factorised(k, v)
        value = min(value, 1 / abs(float(xp.sum(v * w))))  # 1 / (v' K^-1 v) >= lambda_min
        v = w
    return value


def _forwards(k: Array, x: Array, n: int, block: int) -> None:
    """x <- L^-1 x for the leading n rows, in place."""
    solve = scipy_module(array_namespace(k), "linalg").solve_triangular
    for j in range(0, n, block):
        end = min(j + block, n)
        if j:
            x[j:end] -= k[j:end, :j] @ x[:j]
        x[j:end] = solve(k[j:end, j:end], x[j:end], lower=True)


def _backwards(k: Array, x: Array, n: int, block: int) -> None:
    """x <- L'^-1 x for the leading n rows, in place."""
    solve = scipy_module(array_namespace(k), "linalg").solve_triangular
    for j in reversed(range(0, n, block)):
        end = min(j + block, n)
        if end < n:
            x[j:end] -= k[end:n, j:end].T @ x[end:n]
        x[j:end] = solve(k[j:end, j:end], x[j:end], lower=True, trans=1)


def _small(a: Array) -> Array | None:
    """L of one diagonal block; None where it has none."""
    xp = array_namespace(a)
    lower = xp.tril(a)
    try:
        with single_threaded_blas():  # a block is too small for OpenBLAS's threads: ten times slower on a busy machine
            L = xp.linalg.cholesky(lower + xp.tril(a, k=-1).T)
    except np.linalg.LinAlgError:
        return None
    return L if bool(xp.all(xp.isfinite(L))) else None  # CuPy raises nothing


def _bound(k: Array, j: int, end: int) -> float:
    """lambda_min(K) <= z' S z / |v|^2, S the block that failed: v = (-L^-T L_j' z, z) gives v' K v = z' S z."""
    xp = array_namespace(k)
    S = xp.tril(k[j:end, j:end]) + xp.tril(k[j:end, j:end], k=-1).T
    lam, Q = xp.linalg.eigh(S)
    z = Q[:, :1]
    v = k[j:end, :j].T @ z
    _backwards(k, v, j, BLOCK)
    return float(lam[0]) / (1 + float(xp.sum(v * v)))
