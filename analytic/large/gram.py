"""Provide the training set's kernel in panels of rows, read from disk or computed on demand.

    panel r = K[r, :end of r]     rows of block r up to and including the diagonal; only half of K is read

Products use float64 for any precision of K, so residuals for the stored K are accurate to float64 rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, on_host, to_library
from minintk.threads import parallel

BLOCK = 2048
"""Number of rows of a panel and of a block; a product of two blocks takes about 0.2 s on one core."""


class Gram:
    """K + ridge I in panels of rows.   of : (x1, x2 or None) -> their kernel.   stored : K(x, x), if on disk."""

    def __init__(
        self, of: Callable[[Array, Array | None], Array], x: Array, ridge: float, stored: np.memmap[Any, Any] | None
    ) -> None:
        self.of, self.x, self.ridge, self.stored = of, x, ridge, stored
        self.xp, self.n, self.dtype = array_namespace(x), int(x.shape[0]), np.dtype(str(x.dtype))
        self.blocks = [slice(i, min(i + BLOCK, self.n)) for i in range(0, self.n, BLOCK)]

    def panel(self, r: int) -> Array:
        """Return K[r, :end], (rows, end), without the ridge; the caller may modify the panel."""
        rows = self.blocks[r]
        if self.stored is not None:
            return to_library(np.array(self.stored[rows, : rows.stop]), self.xp)
        before = [self.of(self.x[rows], self.x[: rows.start])] if r else []
        return self.xp.concat([*before, self.of(self.x[rows], None)], axis=1)  # also copies a kernel's own array

    def product(self, v: Array) -> Array:
        """Return (K + ridge I) v in float64, (n, C)."""
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
        return total
