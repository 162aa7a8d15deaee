"""Kernel regression on M landmarks z among N examples: N M entries of the kernel in place of N^2.

    f(x) = k(x, z) a,    a minimises  sum_i w_i |f(x_i) - y_i|^2 + ridge a' K_mm a

With K_mm = L L' and v = L' a the minimum solves, by conjugate gradients with P^-1 for a preconditioner,

    S v = L^-1 K_mn W y,    S = L^-1 K_mn W K_nm L^-T + ridge I
                            P = (N / M) L' W_m L + ridge I

P is S if the sum over examples becomes N / M times that over landmarks.  K_nm is read by pieces of its rows, so memory
is O(M^2 + piece).  With M = N, a is the exact solution.  Rudi, Carratino and Rosasco 2017, eqs. (8) and (13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from analytic.training.eigen import check_memory, eps
from analytic.training.posterior import triangular
from minintk.arrays import (
    Array,
    Host,
    array_namespace,
    available_memory,
    check_finite,
    check_floating,
    to_host,
    to_library,
)

PIECE = 2**26
"""Bytes of a piece of K_nm, in float64."""

HELD = 2**31
"""Bytes of K_nm that stay in memory, if that is at most a quarter of what is free; other pieces are computed again."""

DEFAULT = 5000
"""Landmarks, or all examples if they are fewer."""


def chosen(landmarks: Any, n: int) -> Host:
    """Return the indices of the landmarks, ascending: a number of them drawn without replacement, or those given.

    ValueError unless landmarks is a number from 1 on, or indices from 0 to n - 1 that differ.
    """
    at = np.asarray(to_host(DEFAULT if landmarks is None else landmarks))
    whole = at.dtype.kind in "iu" and at.size > 0
    if whole and at.ndim == 0 and at >= 1:
        return np.sort(np.random.default_rng(0).choice(n, min(int(at), n), replace=False))
    if whole and at.ndim == 1 and at.min() >= 0 and at.max() < n and len(np.unique(at)) == len(at):
        return np.sort(at)
    raise ValueError(
        f"landmarks expects a number of examples from 1 on, or different indices from 0 to {n - 1}, got {landmarks!r}: "
        "pass for instance landmarks=1000"
    )


class Nystrom:
    """S as a product with vectors, for `solve`'s conjugate gradients.

    of : (x1, x2) -> their kernel.   at : (M,), indices of the landmarks.   weight : (N,), or None for ones.
    stored : K_nm, if it is on disk.   ValueError if the kernel is not positive semi-definite.
    """

    def __init__(
        self,
        of: Callable[[Array, Array | None], Array],
        x: Array,
        at: Host,
        ridge: float,
        weight: Array | None,
        stored: Any,
    ) -> None:
        self.of, self.x, self.ridge, self.weight, self.stored = of, x, ridge, weight, stored
        self.xp, self.n, self.at, m = array_namespace(x), int(x.shape[0]), at, len(at)
        xp, rows = self.xp, max(1, PIECE // (8 * m))
        self.pieces = [slice(i, min(i + rows, self.n)) for i in range(0, self.n, rows)]
        self.z = x[to_library(at, xp)]
        self.held: dict[int, Array] = {}
        self.room = min(HELD, available_memory(xp) // 4) // (rows * m * int(x.dtype.itemsize))
        K_mm = xp.astype(of(xp.astype(self.z, xp.float64), None), xp.float64)
        self.L = self._factor(K_mm, eps(x))
        w_m = xp.ones(m) if weight is None else weight[to_library(at, xp)]
        P = (self.n / m) * (self.L.T * w_m) @ self.L
        self.B = self._factor(P + ridge * xp.eye(m), eps(P))

    def _factor(self, K: Array, rounding: float) -> Array:
        """L, lower triangular, of K + jitter I; the jitter is that of rounding, or more where a pivot is lost."""
        xp, m = self.xp, len(K)
        jitter = 10 * m**0.5 * rounding * float(xp.max(xp.abs(xp.diagonal(K)))) or 1e-300
        for scale in (1.0, 10.0, 100.0, 1000.0):
            try:
                L = xp.linalg.cholesky(K + scale * jitter * xp.eye(m))
            except np.linalg.LinAlgError:
                continue
            if bool(xp.all(xp.isfinite(L))):
                return L
        raise ValueError(
            f"the kernel between the {m} landmarks is expected to be positive semi-definite, but its Cholesky factor "
            f"fails even with {1000 * jitter:.2g} on the diagonal: look for an error in the kernel, or compute it in "
            "float64"
        )

    def rows(self, i: int) -> Array:
        """Piece i of K_nm, (rows, M), in float64."""
        if self.stored is not None:
            return to_library(np.asarray(self.stored[self.pieces[i]], dtype=np.float64), self.xp)
        if (found := self.held.get(i)) is None:
            found = self.of(self.x[self.pieces[i]], self.z)
            if i < self.room:
                self.held[i] = found
        return self.xp.astype(found, self.xp.float64, copy=False)

    def _weighted(self, residual: Array, i: int) -> Array:
        return residual if self.weight is None else self.weight[self.pieces[i], None] * residual

    def product(self, v: Array) -> Array:
        """S v, (M, C)."""
        a, total = self.coefficients(v), self.xp.zeros_like(v)
        for i in range(len(self.pieces)):
            K = self.rows(i)
            total += K.T @ self._weighted(K @ a, i)
        return triangular(self.L, total) + self.ridge * v

    def precondition(self, r: Array) -> Array:
        """P^-1 r."""
        return triangular(self.B, triangular(self.B, r), trans=1)

    def right(self, y: Array) -> Array:
        """L^-1 K_mn W y, (M, C)."""
        y = self.xp.astype(y, self.xp.float64)
        pairs = enumerate(self.pieces)
        return triangular(self.L, sum(self.rows(i).T @ self._weighted(y[rows], i) for i, rows in pairs))

    def coefficients(self, v: Array) -> Array:
        """a = L^-T v."""
        return triangular(self.L, v, trans=1)

    def residual(self, a: Array, y: Array) -> float:
        """|W (y - K_nm a) - ridge a| / |W y|, the largest of the C columns; a is 0 at other examples.

        Zero for the exact solution, W (y - f) = ridge a.
        """
        xp = self.xp
        pieces = [self._weighted(y[rows] - self.rows(i) @ a, i) for i, rows in enumerate(self.pieces)]
        left, at = xp.concat(pieces), to_library(self.at, xp)
        left[at] -= self.ridge * a
        sizes = xp.linalg.vector_norm(y if self.weight is None else self.weight[:, None] * y, axis=0)
        return float(xp.max(xp.linalg.vector_norm(left, axis=0) / xp.where(sizes > 0, sizes, xp.ones_like(sizes))))


def check_weight(weight: Array | None, y: Array) -> None:
    """ValueError or TypeError unless weight is None or (N,), floating, finite, >= 0 and somewhere positive."""
    if weight is None:
        return
    xp = array_namespace(weight, y)
    check_floating("weight", weight)
    check_finite("weight", weight)
    if tuple(weight.shape) != (y.shape[0],) or not (bool(xp.all(weight >= 0)) and bool(xp.any(weight > 0))):
        raise ValueError(
            f"weight expects ({y.shape[0]},) numbers >= 0, not all of them 0, got shape {tuple(weight.shape)} and "
            f"numbers from {float(xp.min(weight)):.3g}: pass one for each example"
        )


def check_landmark_memory(x: Array, m: int, columns: int) -> None:
    """MemoryError, before the work, with what is needed."""
    n = int(x.shape[0])
    need = 6 * 8 * m * m + 2 * PIECE + 8 * columns * (6 * m + 4 * n)
    check_memory(array_namespace(x), f"the solve with {n} examples on {m} landmarks", need, "take fewer landmarks")
