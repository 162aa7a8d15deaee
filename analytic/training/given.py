"""Kernels that exist already, of points that go by their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from analytic.training.eigen import check_kernel
from minintk.arrays import Array, array_namespace


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """K and Theta, (n, n) each, as a kernel of the points 0 ... n - 1: every x is an array of their numbers, (N,).

    ValueError or TypeError for matrices that are not symmetric, of one shape, library and dtype.
    """

    K: Array
    Theta: Array

    def __post_init__(self) -> None:
        array_namespace(self.K, self.Theta)
        for name, k in (("nngp", self.K), ("ntk", self.Theta)):
            check_kernel(name, k)
            if k.ndim != 2 or k.shape != self.K.shape or k.dtype != self.K.dtype:
                raise ValueError(
                    f"expected (nngp, ntk), both (n, n) over training and test points and of one dtype, got {name} : "
                    f"{tuple(k.shape)} {k.dtype} beside nngp : {tuple(self.K.shape)} {self.K.dtype}"
                )

    def check(self, name: str, x: Array) -> None:
        """ValueError unless x : (N,) are whole numbers of points."""
        xp, n = array_namespace(self.K, x), int(self.K.shape[0])
        whole = x.ndim == 1 and x.dtype.kind in "iu"
        if not whole or (x.size and not 0 <= int(xp.min(x)) <= int(xp.max(x)) < n):
            raise ValueError(f"{name} expects numbers of points, (N,) from 0 to {n - 1}, as the kernels are given")

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """K(x1, x2)."""
        return self.K[x1[:, None], x1 if x2 is None else x2]

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        """Theta(x1, x2)."""
        return self.Theta[x1[:, None], x1 if x2 is None else x2]

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        """(K, Theta)."""
        return self.nngp(x1, x2), self.ntk(x1, x2)

    def diag(self, x: Array) -> tuple[Array, Array]:
        """K(x, x) and Theta(x, x) of each point with itself, (N,)."""
        return self.K[x, x], self.Theta[x, x]
