"""A Gaussian matrix that is drawn only where it is used, and never written down.

W : (n, n), W_ij ~ N(0, 1), multiplies some vectors, and W' others, each chosen after the answers before.  With P an
orthonormal basis of the vectors u whose W' u is known, the part P' W q of W q is known too; the rest of W is still
independent of everything, so that for a new direction q

    W q = P (W' P)' q + (I - P P') z,    z ~ N(0, I)

has the law of a drawn matrix at any n, and likewise for W'.  m products cost O(n m^2) time and O(n m) memory, where a
matrix takes n^2 (the principle of deferred decisions; Lu 2021, "Householder Dice", with projections for reflections).
"""

from __future__ import annotations

from collections.abc import Callable

from minintk.arrays import Array, array_namespace


class DeferredGaussian:
    """W, (n, n), known as Q, W Q and P, W' P; `add` changes it within the spans of P and Q.

    draw : (rows, columns) -> independent N(0, 1), in the library of the vectors that will come.

    >>> import numpy as np
    >>> W = DeferredGaussian(3, lambda *shape: np.random.default_rng(0).standard_normal(shape))
    >>> u, v = np.array([[1.0], [0.0], [2.0]]), np.array([[1.0], [1.0], [0.0]])
    >>> Wv = W.times(v)
    >>> bool(np.allclose(u.T @ Wv, W.transposed_times(u).T @ v))      # u' (W v) = (W' u)' v
    True
    """

    def __init__(self, n: int, draw: Callable[[int, int], Array]) -> None:
        self.draw = draw
        self.Q = self.WQ = self.P = self.WtP = draw(n, 0)

    def times(self, v: Array) -> Array:
        """W v, for v : (n, k)."""
        self.Q, self.WQ = self._known(v, self.Q, self.WQ, self.P, self.WtP)
        return self.WQ @ (self.Q.T @ v)

    def transposed_times(self, u: Array) -> Array:
        """W' u, for u : (n, k)."""
        self.P, self.WtP = self._known(u, self.P, self.WtP, self.Q, self.WQ)
        return self.WtP @ (self.P.T @ u)

    def add(self, u: Array, v: Array) -> None:
        """W + u v', for u and v : (n, k) in the spans of P and Q."""
        self.WQ = self.WQ + u @ (v.T @ self.Q)
        self.WtP = self.WtP + v @ (u.T @ self.P)

    def _known(self, v: Array, Q: Array, WQ: Array, P: Array, WtP: Array) -> tuple[Array, Array]:
        """(Q, W Q) with the directions of v that Q lacked; less than 1e-7 of v counts as rounding."""
        xp = array_namespace(v, Q)
        q, R = xp.linalg.qr(v - Q @ (Q.T @ v))
        U, size, _ = xp.linalg.svd(R)
        q = q @ U[:, size > 1e-7 * xp.linalg.vector_norm(v)]
        if q.shape[1] == 0:
            return Q, WQ
        q, _ = xp.linalg.qr(q - Q @ (Q.T @ q))  # the first difference of nearly equal vectors was inexact
        q = q * xp.where(q[0] < 0, -1.0, 1.0)  # the same signs on all machines
        z = self.draw(*q.shape)
        return xp.concat([Q, q], axis=1), xp.concat([WQ, P @ (WtP.T @ q) + z - P @ (P.T @ z)], axis=1)
