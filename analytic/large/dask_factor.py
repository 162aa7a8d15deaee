"""Compute the Cholesky factor of a stored kernel on the workers of a dask cluster, with dask's blocked algorithm.

    L L' = K + ridge I,    (L L')^-1 b = L^-T (L^-1 b)

Each task reads its block of K from the store, which every worker must be able to access.  Blocks of L stay on the
workers that computed them; if one dies, dask recomputes its blocks.  K is padded with the identity to whole blocks.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from analytic.large.gram import Gram
from minintk.arrays import Array, Host
from minintk.files.reading import map_npy
from minintk.progress import progress_of


def dask_client(executor: Any) -> Any:
    """Return the dask client whose `get_executor()` made `executor`, or None for any other executor."""
    return executor._client if type(executor).__module__.startswith("distributed.") else None


def block_of(path: str, n: int, dtype: str, size: int, ridge: float, block_info: Any = None) -> Host:
    """Return a padded (size, size) block of K + ridge I; `path` is the file of K, and dask supplies block_info."""
    K = map_npy(path, (n, n), dtype, "the workers expect the kernel's folder where the caller has it")
    i, j = (size * at for at in block_info[None]["chunk-location"])
    out = np.eye(size, dtype=K.dtype) if i == j else np.zeros((size, size), K.dtype)
    some = K[i : i + size, j : j + size]
    out[: some.shape[0], : some.shape[1]] = some
    if i == j:
        np.einsum("ii->i", out)[: len(some)] += K.dtype.type(ridge)
    return out


class DaskFactor:
    """Cholesky factor of a stored Gram matrix, in the workers' memory.  Raises MemoryError if it does not fit."""

    def __init__(self, gram: Gram, client: Any, size: int, progress: bool) -> None:
        self.gram, self.client, self.size, self.progress = gram, client, size, progress
        self.whole, self.dtype = -(-gram.n // size) * size, gram.dtype
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        have, need = sum(worker["memory_limit"] or 0 for worker in workers), 2 * self.whole**2 * self.dtype.itemsize
        if 0 < have < need:
            raise MemoryError(
                f"the factor of {gram.n} examples needs {need / 1e9:.3g} GB, and the {len(workers)} workers have "
                f"{have / 1e9:.3g} GB: start more workers, or leave out executor="
            )

    @cached_property
    def L(self) -> Any:
        """Return L as a (whole, whole) dask array; raise ValueError if K + ridge I is not positive definite."""
        import dask.array as da
        from distributed import as_completed, futures_of

        shape, stored = ((self.size,) * (self.whole // self.size),) * 2, self.gram.stored
        path = str(Path(str(getattr(stored, "filename", ""))).resolve())
        how: Any = {"chunks": shape, "dtype": self.dtype, "meta": np.empty((0, 0), self.dtype)}
        K = da.map_blocks(block_of, path, self.gram.n, str(self.dtype), self.size, float(self.gram.ridge), **how)
        with progress_of("factor", 1.0, self.progress) as advance:
            L = self.client.persist(da.linalg.cholesky(K, lower=True))
            blocks = futures_of(L)
            for block in as_completed(blocks):
                if isinstance(error := block.exception(), np.linalg.LinAlgError):
                    raise ValueError(
                        f"the kernel + ridge is not positive definite in {self.dtype}: {error} of a block; pass a "
                        f"larger ridge (it is {self.gram.ridge:.3g}), float64 examples, or remove those that coincide"
                    ) from error
                if error is not None:
                    raise error
                advance(1 / len(blocks))
        return L

    def solve(self, b: Array) -> Host:
        """Return (L L')^-1 b, (n, C), computed in the factor's precision and converted to float64."""
        import dask.array as da

        scale = np.maximum(np.max(np.abs(b), axis=0), np.finfo(np.float64).tiny)
        z = np.zeros((self.whole, b.shape[1]), self.dtype)
        z[: self.gram.n] = b / scale
        half = da.linalg.solve_triangular(self.L, da.from_array(z, chunks=(self.size, -1)), lower=True)
        found = da.linalg.solve_triangular(self.L.T, half, lower=False)
        return np.asarray(self.client.compute(found).result()[: self.gram.n] * scale)
