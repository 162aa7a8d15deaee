"""Preconditioners of small rank: the large eigenvalues of K, which conjugate gradients would find one by one.

    K ~ U diag(lam) U',      P^-1 v = v + U ((lam_k + ridge) / (lam + ridge) - 1) U' v

P^-1 (K + ridge I) has the spectrum of what is left of K beyond rank k, and no large eigenvalues.  lam_k : the smallest
of the k.  Frangella, Tropp and Udell 2021, eq. (1.3).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analytic.large.gram import Gram
from minintk.arrays import Array, array_namespace, to_host, to_library

TOGETHER = 64
"""Pivots that are drawn at a time."""


def inverse(U: Array, lam: Array, ridge: float) -> Callable[[Array], Array]:
    """v -> P^-1 v, (n, C).   U : (n, k), orthonormal columns.   lam : (k,).   Both float64."""
    gain = (array_namespace(lam).min(lam) + ridge) / (lam + ridge + 1e-300) - 1
    return lambda v: v + U @ (gain[:, None] * (U.T @ v))


def nystrom(gram: Gram, rank: int, advance: Callable[[float], None]) -> tuple[Array, Array]:
    """(U, lam) of K G (G' K G)^-1 G' K, with n x rank random numbers G, orthonormalised: one product with K."""
    xp = gram.xp
    G = to_library(np.linalg.qr(np.random.default_rng(0).standard_normal((gram.n, rank)))[0], xp)
    Y = gram.product(G, advance) - gram.ridge * G
    return _eigen(_whitened(Y, G.T @ Y))


def pivoted(gram: Gram, rank: int, advance: Callable[[float], None]) -> tuple[Array, Array]:
    """(U, lam) of the Cholesky factor of K with `rank` pivots, drawn in proportion to the variance that is left.

    Of K, `rank` columns are needed and the diagonal.  Chen, Epperly, Tropp and Webber 2023, algorithm 2, by blocks.
    """
    xp, rng = gram.xp, np.random.default_rng(0)
    left = np.asarray(to_host(gram.diagonal()))
    if float(left.min()) < 0:
        raise ValueError(f"the kernel is not positive definite: its diagonal has the entry {left.min():.3g}")
    total, found, F = float(left.sum()), 0, xp.zeros((gram.n, 0), dtype=xp.float64)
    while found < rank and left.sum() > 1e-14 * total:
        count = min(TOGETHER, rank - found, int(np.count_nonzero(left)))
        chosen = np.sort(rng.choice(gram.n, count, replace=False, p=left / left.sum()))
        at = to_library(chosen, xp)
        rest = gram.columns(chosen) - F @ F[at].T
        new = _whitened(rest, rest[at])
        F = xp.concat([F, new], axis=1)
        left = np.maximum(left - np.asarray(to_host(xp.sum(new * new, axis=1))), 0.0)
        left[chosen] = 0.0
        found += count
        advance(count / rank)
    return _eigen(F)


def _whitened(Y: Array, S: Array) -> Array:
    """F with F F' = Y S^+ Y', for a symmetric S that is positive but for rounding."""
    xp = array_namespace(Y)
    s, Q = xp.linalg.eigh((S + S.T) / 2)
    keep = s > s.shape[0] * 1e-13 * xp.max(xp.abs(s))
    return Y @ (Q[:, keep] / xp.sqrt(s[keep]))


def _eigen(F: Array) -> tuple[Array, Array]:
    """(U, lam) with U diag(lam) U' = F F', without the eigenvalues that are lost in rounding."""
    xp = array_namespace(F)
    if not F.shape[1]:  # of a kernel that is 0
        return xp.zeros((F.shape[0], 1), dtype=F.dtype), xp.zeros(1, dtype=F.dtype)
    lam, W = xp.linalg.eigh(F.T @ F)
    keep = lam > 1e-12 * lam[-1]
    return F @ (W[:, keep] / xp.sqrt(lam[keep])), lam[keep]
