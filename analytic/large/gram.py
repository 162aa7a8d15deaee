"""The kernel of the training set by panels of rows, from disk or computed when needed, and its large eigenvalues.

    panel r = K[r, :end of r]     the rows of block r up to and including the diagonal, so one half of K is read

Products are in float64 whatever the precision of K, so that a residual is exact to float64 for the K that is stored.
The large eigenvalues, which conjugate gradients would find one by one, make a preconditioner of small rank:

    K ~ U diag(lam) U',      P^-1 v = v + U ((lam_k + ridge) / (lam + ridge) - 1) U' v

P^-1 (K + ridge I) has the spectrum of what is left of K beyond rank k, and no large eigenvalues.  lam_k : the smallest
of the k.  Frangella, Tropp and Udell 2021, eq. (1.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, on_host, to_host, to_library
from minintk.threads import parallel

BLOCK = 2048
"""Rows of a panel, and of a block: a product of two blocks takes a core about 0.2 s."""


class Gram:
    """K + ridge I by panels.   of : (x1, x2 or None) -> their kernel.   stored : all of K(x, x), if it is on disk."""

    def __init__(
        self, of: Callable[[Array, Array | None], Array], x: Array, ridge: float, stored: np.memmap[Any, Any] | None
    ) -> None:
        self.of, self.x, self.ridge, self.stored = of, x, ridge, stored
        self.xp, self.n, self.dtype = array_namespace(x), int(x.shape[0]), np.dtype(str(x.dtype))
        self.blocks = [slice(i, min(i + BLOCK, self.n)) for i in range(0, self.n, BLOCK)]

    def panel(self, r: int) -> Array:
        """K[r, :end], (rows, end), without the ridge; the caller's own."""
        rows = self.blocks[r]
        if self.stored is not None:
            return to_library(np.array(self.stored[rows, : rows.stop]), self.xp)
        own = self.of(self.x[rows], None)
        if not r:
            return own
        return self.xp.concat([self.of(self.x[rows], self.x[: rows.start]), own], axis=1)

    def columns(self, chosen: np.ndarray[Any, Any]) -> Array:
        """K[:, chosen] in float64, (n, len(chosen))."""
        if self.stored is not None:
            return to_library(np.ascontiguousarray(self.stored[chosen].T, dtype=np.float64), self.xp)
        of = self.of(self.x, self.x[to_library(chosen, self.xp)])
        return self.xp.astype(of, self.xp.float64)

    def diagonal(self) -> Array:
        """The diagonal of K in float64, (n,)."""
        pieces = [self.xp.diagonal(self.of(self.x[i : i + 256], None)) for i in range(0, self.n, 256)]
        return self.xp.astype(self.xp.concat(pieces), self.xp.float64)

    def product(self, v: Array, advance: Callable[[float], None] = lambda share: None) -> Array:
        """(K + ridge I) v in float64, (n, C); advance : told the share of the work done by each panel."""
        xp = self.xp
        total = self.ridge * v
        for r, rows in enumerate(self.blocks):
            panel = self.panel(r)

            def both(at: slice, panel: Array = panel, rows: slice = rows) -> tuple[Array, Array]:
                block = xp.astype(panel[:, at], xp.float64)
                return block @ v[at], block.T @ v[rows]

            here = self.blocks[: r + 1]
            pairs = parallel(both, here) if on_host(xp) and self.stored is not None else list(map(both, here))
            for at, (across, down) in zip(here, pairs, strict=True):
                total[rows] += across
                if at != rows:
                    total[at] += down
            advance(len(here) / (len(self.blocks) * (len(self.blocks) + 1) / 2))
        return total


TOGETHER = 64
"""Pivots that are drawn at a time."""


def inverse(U: Array, lam: Array, ridge: float) -> Callable[[Array], Array]:
    """v -> P^-1 v, (n, C).   U : (n, k), orthonormal columns.   lam : (k,).   Both float64."""
    gain = (array_namespace(lam).min(lam) + ridge) / (lam + ridge + 1e-300) - 1
    return lambda v: v + U @ (gain[:, None] * (U.T @ v))


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
        s, Q = xp.linalg.eigh((rest[at] + rest[at].T) / 2)
        keep = s > count * 1e-13 * xp.max(xp.abs(s))
        new = rest @ (Q[:, keep] / xp.sqrt(s[keep]))  # new new' = rest rest[at]^+ rest'
        F = xp.concat([F, new], axis=1)
        left = np.maximum(left - np.asarray(to_host(xp.sum(new * new, axis=1))), 0.0)
        left[chosen] = 0.0
        found += count
        advance(count / rank)
    if not F.shape[1]:  # of a kernel that is 0
        return xp.zeros((gram.n, 1), dtype=F.dtype), xp.zeros(1, dtype=F.dtype)
    lam, W = xp.linalg.eigh(F.T @ F)  # F F' = U diag(lam) U', without what is lost in rounding
    keep = lam > 1e-12 * lam[-1]
    return F @ (W[:, keep] / xp.sqrt(lam[keep])), lam[keep]
