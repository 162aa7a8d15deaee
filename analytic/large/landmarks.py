"""Solve kernel regression on M landmarks z among N examples, using N M entries of the kernel instead of N^2.

    f(x) = k(x, z) a,    a minimises  sum_i w_i |f(x_i) - y_i|^2 + ridge a' K_mm a

With K_mm = L L', W = diag(w) and v = L' a, conjugate gradients preconditioned with P^-1 solve for the minimum:

    S v = L^-1 K_mn W y,    S = L^-1 K_mn W K_nm L^-T + ridge I
                            P = (N / M) L' W_m L + ridge I

P is S with the sum over examples replaced by N / M times the sum over landmarks.  K_nm is read in pieces of rows.  If
K_nm fits in memory, each step reads all pieces; otherwise, S - ridge I is formed once, in O(M^2 + piece)
memory.  With M = N, a is exact up to rounding and the tolerance.  Rudi, Carratino and Rosasco 2017, eqs. (8) and (13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

import numpy as np

from analytic.training.eigen import eps
from analytic.training.posterior import triangular
from minintk.arrays import Array, Host, array_namespace, available_memory, check_floating, on_host, to_library
from minintk.progress import progress_of
from minintk.threads import parallel

PIECE = 2**22
"""Size of a piece of K_nm in float64, in bytes.  Pieces stay in cache for their two products, at triple the speed."""

TOGETHER = 64
"""Number of pieces that are multiplied in parallel before their products are summed."""
ROWS = 2048
"""Minimum number of rows of a piece if S is formed (M if larger), because each piece updates the whole (M, M) sum."""
HELD = 2**32
"""Maximum size of K_nm in memory, in bytes.  Unless K_nm is on disk, a quarter of the free memory is another limit."""

KEPT = 60.0
"""Seconds between writes of the partial sums over pieces."""

Sums = dict[str, Array]


def chosen(landmarks: Any, n: int) -> Host:
    """Return the landmarks' indices in ascending order: the given ones, or a given number drawn without replacement."""
    at = np.asarray(landmarks)
    if at.dtype.kind in "iu" and at.ndim == 0 and at >= 1:
        return np.sort(np.random.default_rng(0).choice(n, min(int(at), n), replace=False))
    whole = at.dtype.kind in "iu" and at.ndim == 1 and at.size > 0
    if whole and 0 <= at.min() <= at.max() < n and len(np.unique(at)) == len(at):
        return np.sort(at)
    raise ValueError(
        "landmarks expects a number of examples from 1 on, or different indices from 0 to "
        f"{n - 1}, got {landmarks!r:.99}: pass for instance landmarks=1000"
    )


def weights(weight: Array | None, x: Array) -> Array:
    """Return the weights, (N,), or ones for None; raise ValueError unless all are finite and >= 0, and one is > 0."""
    xp, n = array_namespace(x), int(x.shape[0])
    if weight is None:
        return xp.ones(n)
    check_floating("weight", weight)
    if tuple(weight.shape) != (n,) or not (bool(xp.all((weight >= 0) & (weight < inf))) and bool(xp.any(weight > 0))):
        got = f"{tuple(weight.shape)} with numbers from {float(xp.min(weight)):.3g} to {float(xp.max(weight)):.3g}"
        raise ValueError(f"weight expects ({n},), finite, >= 0 and not all 0, got {got}: pass one for each example")
    return xp.astype(weight, xp.float64)


class Nystrom:
    """The matrix S as an operator for conjugate gradients, and the right-hand side `right` = L^-1 K_mn W y : (M, C).

    of : (x1, x2) -> their kernel.   y : (N, C), float64.   at : (M,), indices of the landmarks.   weight : (N,).
    stored : K_nm, if on disk.   read, write : load and store partial sums.   Raises ValueError if K is indefinite.
    """

    def __init__(
        self, of: Callable[..., Array], x: Array, y: Array, at: Host, ridge: float, weight: Array, stored: Any = None,
        read: Callable[[Sums], Mapping[str, Array] | None] = lambda like: None,
        write: Callable[[Sums], None] = lambda sums: None, progress: bool = False,
    ) -> None:  # fmt: skip
        self.of, self.x, self.at, self.ridge, self.weight, self.stored = of, x, at, ridge, weight, stored
        xp, n, m = array_namespace(x), int(x.shape[0]), len(at)
        self.xp, self.z, self.held, self.K2 = xp, x[to_library(at, xp)], dict[int, Array](), None
        self.L = self._factor(xp.astype(of(xp.astype(self.z, xp.float64)), xp.float64), eps(x))
        P = (n / m) * (self.L.T * weight[to_library(at, xp)]) @ self.L + ridge * xp.eye(m)
        self.B = self._factor(P, eps(P))
        room = HELD if stored is not None else min(HELD, available_memory(xp) // 4)
        holds = n * m * int(x.dtype.itemsize) <= room
        rows = max(1, PIECE // (8 * m)) if holds else max(ROWS, m)
        self.pieces = [slice(i, min(i + rows, n)) for i in range(0, n, rows)]
        with progress_of("kernel", len(self.pieces), progress) as advance:
            self.right = triangular(self.L, self._sums(weight[:, None] * y, holds, read, write, advance))

    def _sums(self, wy: Array, holds: bool, read: Any, write: Any, advance: Callable[[float], None]) -> Array:
        """Return K_mn W y; set K2 = S - ridge I unless K_nm stays in memory; resume an interrupted process's sums."""
        xp, m = self.xp, len(self.at)
        sums = {"K2": xp.zeros((m, m)), "b": xp.zeros((m, wy.shape[1])), "pieces": xp.zeros(1)}
        if not holds:
            sums = {name: to_library(a, xp) for name, a in (read(sums) or sums).items()}
            self.K2 = sums["K2"]
        b, done, last = sums["b"], int(sums["pieces"][0]), monotonic()
        advance(done)
        for i in range(done, len(self.pieces)):
            K = self.rows(i)
            b += K.T @ wy[self.pieces[i]]
            if self.K2 is not None:
                K = triangular(self.L, (self.weight[self.pieces[i], None] ** 0.5 * K).T)  # keeps K2 definite
                self.K2 += K @ K.T
                if monotonic() - last > KEPT or i == len(self.pieces) - 1:
                    write(sums | {"pieces": xp.asarray([i + 1.0])})
                    last = monotonic()
            advance(1)
        return b

    def _factor(self, K: Array, rounding: float) -> Array:
        """Return lower triangular L, L L' = K + jitter I.  The jitter exceeds rounding errors and grows on failure."""
        xp, m = self.xp, len(K)
        jitter = 10 * m**0.5 * rounding * float(xp.max(xp.abs(xp.diagonal(K)))) or 1e-300
        for scale in (1.0, 10.0, 100.0, 1000.0):
            with suppress(np.linalg.LinAlgError):
                L = xp.linalg.cholesky(K + scale * jitter * xp.eye(m))
                if bool(xp.all(xp.isfinite(L))):
                    return L
        raise ValueError(
            f"the kernel between the {m} landmarks is expected to be positive semi-definite, but has no Cholesky "
            f"factor even with {1000 * jitter:.2g} on the diagonal: look for an error in it, or compute it in float64"
        )

    def rows(self, i: int) -> Array:
        """Return piece i of K_nm, (rows, M), in float64."""
        if self.stored is not None:
            return to_library(np.asarray(self.stored[self.pieces[i]], dtype=np.float64), self.xp)
        if (found := self.held.get(i)) is None:
            found = self.of(self.x[self.pieces[i]], self.z)
            if self.K2 is None:
                self.held[i] = found
        return self.xp.astype(found, self.xp.float64, copy=False)

    def product(self, v: Array) -> Array:
        """Return S v, (M, C)."""
        if self.K2 is not None:
            return self.K2 @ v + self.ridge * v
        a, total = self.coefficients(v), self.xp.zeros_like(v.T)

        def part(i: int) -> Array:
            K = self.rows(i)
            return (self.weight[self.pieces[i], None] * (K @ a)).T @ K

        for i in range(0, len(self.pieces), TOGETHER):  # BLAS threads would wait for each other in such small products
            some = range(len(self.pieces))[i : i + TOGETHER]
            for found in parallel(part, some) if on_host(self.xp) else map(part, some):
                total += found
        return triangular(self.L, total.T) + self.ridge * v

    def precondition(self, r: Array) -> Array:
        """Return P^-1 r."""
        return triangular(self.B, triangular(self.B, r), trans=1)

    def coefficients(self, v: Array) -> Array:
        """Return a = L^-T v."""
        return triangular(self.L, v, trans=1)

    def residual(self, a: Array, y: Array) -> float:
        """Return the maximum over columns of |W (y - K_nm a) - ridge a| / |W y|, with a = 0 for non-landmarks."""
        xp, W = self.xp, self.weight[:, None]
        size = float(xp.max(xp.abs(y))) or 1.0
        a, y = a / size, y / size
        left = W * (y - xp.concat([self.rows(i) @ a for i in range(len(self.pieces))]))
        left[to_library(self.at, xp)] -= self.ridge * a
        return float(xp.max(xp.linalg.vector_norm(left, axis=0) / (xp.linalg.vector_norm(W * y, axis=0) + 1e-300)))
