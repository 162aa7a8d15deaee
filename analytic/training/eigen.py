"""Factorise a kernel once, and find the eigenvalues that cannot be distinguished from zero.

    k = Q diag(lam) Q',    k + ridge I = Q diag(mu) Q',    mu = lam + ridge

A kernel of n rows has rounding errors of about eps max_i k_ii in each entry, which form a matrix of norm at most

    resolution = (n + 100) eps max_i k_ii

An eigenvalue below this resolution is either lost to rounding or zero (because of a duplicated row, a zero row or too
few features).  We take it to be zero if no eigenvalue lies between the resolution and 100 times the resolution.  Its
direction q is then orthogonal to k(x, X) for every x, and has no effect on predictions.  If the eigenvalues decay
smoothly to the rounding level, the effect of their directions at t = inf is unknown, and t = inf raises an error.

The factorisation uses float64 for every dtype.  In float32 it would be hardly faster (5.9 s against 6.1 s at N = 4000
on two cores), and it would add errors of eps lam_max to the kernel's own rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minintk.arrays import Array, array_namespace, available_memory, check_finite, check_floating, on_host, to_host

CERTAIN_JUMP = 100.0
"""Eigenvalues below the resolution are certainly zero if the others exceed this number times the resolution."""


def check_kernel(name: str, k: Array) -> None:
    """Check that a training kernel is (N, N) or (N, C, N, C), floating-point, finite and symmetric."""
    check_floating(name, k)
    shape = tuple(k.shape)
    half = k.ndim // 2
    if k.ndim not in (2, 4) or shape[:half] != shape[half:] or 0 in shape:
        raise ValueError(f"{name} expects shape (N, N), or (N, C, N, C) where outputs interact, got {shape}")
    check_finite(name, k)
    error, scale = asymmetry(as_matrix(k))
    if error > 1000 * eps(k) * scale:
        raise ValueError(
            f"{name} expects a symmetric kernel, got |k - k'| up to {error:.3g} where |k| is up to {scale:.3g}: "
            f"give the kernel of one set of examples with itself, or symmetrise it, ({name} + {name}.T) / 2"
        )


def asymmetry(k: Array) -> tuple[float, float]:
    """Return max |k - k'| and max |k| of a matrix k, computed block by block to avoid a second matrix."""
    xp = array_namespace(k)
    step = 256 if on_host(xp) else 4096
    pieces = [slice(i, i + step) for i in range(0, k.shape[0], step)]
    pairs = [(k[i, j], k[j, i].T) for n, i in enumerate(pieces) for j in pieces[: n + 1]]
    found = [xp.stack([xp.max(xp.abs(a - b)), xp.max(xp.abs(a)), xp.max(xp.abs(b))]) for a, b in pairs]
    error, *scales = to_host(xp.max(xp.stack(found), axis=0))
    return float(error), float(max(scales))


def as_matrix(k: Array) -> Array:
    """Reshape k : (N, C, M, C) to (N C, M C); return k : (N, M) unchanged."""
    return k if k.ndim == 2 else k.reshape((k.shape[0] * k.shape[1], k.shape[2] * k.shape[3]))


def eps(k: Array) -> float:
    """Return the spacing of floating-point numbers at 1, in the dtype of `k`."""
    return float(array_namespace(k).finfo(k.dtype).eps)


def resolution(k: Array) -> float:
    """Return (n + 100) eps max_i k_ii: smaller eigenvalues of k : (n, n) cannot be distinguished from zero."""
    xp = array_namespace(k)
    return float(k.shape[0] + 100) * eps(k) * float(xp.max(xp.abs(xp.diagonal(k))))


def check_definite(smallest: float, largest: float, tau: float, ridge: float = 0.0) -> None:
    """Raise ValueError if -smallest exceeds both 30 times the rounding error tau and half the ridge."""
    if -smallest > max(30 * tau, ridge / 2):
        raise ValueError(
            f"expected a positive semi-definite kernel, got one whose smallest eigenvalue is {smallest:.3g} "
            f"(largest {largest:.3g}, rounding {tau:.1g}): no network has such a kernel; look for an error in it, "
            f"compute it in float64, or cover the error with ridge={-10 * smallest:.0e}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """The factorisation k + ridge I = Q diag(lam + ridge) Q'.

    lam : (n,), ascending, at least -ridge / 2.  Q : (n, n).  Both are float64.
    zeros : the number of eigenvalues of k + ridge I that cannot be distinguished from zero.
    certain : True if these eigenvalues (if any) are taken to be zero; their lam is then set to 0.
    smallest : the smallest eigenvalue of k as computed, for messages.
    """

    lam: Array
    Q: Array
    ridge: float
    resolution: float
    zeros: int
    certain: bool
    smallest: float

    @property
    def mu(self) -> Array:
        """Return lam + ridge, (n,)."""
        return self.lam + self.ridge

    def reaches(self, k_test: Array) -> bool:
        """Return True if k_test : (m, n) has a component, beyond rounding, in the zero directions.

        With w = k_test k^+, the weights of the training examples, an exact zero direction q satisfies
        |k_test q| <= resolution (1 + |w|).  This bound is the error of k_test itself plus |w| times the error of k.
        """
        if self.zeros == 0:
            return False
        xp = array_namespace(self.Q, k_test)
        k_test = xp.astype(k_test, self.Q.dtype, copy=False)
        part = xp.linalg.vector_norm(k_test @ self.Q[:, : self.zeros], axis=1)
        if not bool(xp.any(part > self.resolution)):
            return False
        w = xp.linalg.vector_norm(k_test @ (self.Q[:, self.zeros :] / self.mu[self.zeros :]), axis=1)
        return bool(xp.any(part > self.resolution * (1 + w)))

    def remedy(self) -> str:
        """Describe, for messages, a kernel whose zero directions affect the outputs, and the remedy."""
        return (
            f"the smallest eigenvalue of the kernel is {self.smallest:.3g}, {self.zeros} of {len(self.lam)} lie below "
            f"the {self.resolution:.3g} that rounding leaves visible: pass ridge={100 * self.resolution:.0e} or more, "
            "remove examples that nearly coincide, or compute the kernel in float64 if it is in float32"
        )


FEWER = "use fewer examples, or a kernel (N, N) shared by all outputs in place of the full (N, C, N, C)"
"""The remedy if a solve does not fit into memory."""


def factorisation_bytes(n: int) -> int:
    """Return how many bytes `spectrum` needs besides a kernel of n rows: for a float64 copy, workspace and Q."""
    return 44 * n * n


def check_memory(xp: Any, what: str, need: int, remedy: str = FEWER) -> None:
    """Raise MemoryError, before any computation, if `what` needs more bytes than are free on the device of `xp`."""
    if need > (free := available_memory(xp)):
        raise MemoryError(f"{what} needs about {need / 1e9:.3g} GB, but {free / 1e9:.3g} GB are free: {remedy}")


def spectrum(k: Array, ridge: float = 0.0) -> Spectrum:
    """Factorise a symmetric kernel k : (n, n) once for all t, with ascending eigenvalues.

    Raises ValueError if k is indefinite beyond rounding, and MemoryError if too little memory is free.

    >>> import numpy as np
    >>> s = spectrum(np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]]))     # the first example twice
    >>> s.zeros, s.certain, s.lam.round(12).tolist()
    (1, True, [0.0, 1.0, 4.0])
    """
    xp, n = array_namespace(k), k.shape[0]
    check_memory(xp, f"the eigenvalues of a kernel of {n} rows", factorisation_bytes(n))
    tau = resolution(k)
    lam, Q = xp.linalg.eigh(xp.astype(k, xp.float64, copy=False))
    smallest = float(lam[0])
    check_definite(smallest, float(lam[-1]), tau, ridge)
    tau = max(tau, -smallest if ridge < -2 * smallest else 0.0)  # the kernel's own error, if visible
    zeros = int(xp.sum(lam + ridge <= tau))
    exact = tau * eps(lam) / eps(k)  # eigenvalues that are exactly zero are computed as numbers below this
    if zeros and float(xp.max(xp.abs(lam[:zeros]))) > exact:
        exact = tau
    certain = zeros in (0, n) or float(lam[zeros]) + ridge >= CERTAIN_JUMP * exact
    lam = xp.maximum(lam, xp.full_like(lam, -ridge / 2))
    if certain:
        lam[:zeros] = 0.0
    return Spectrum(lam, Q, float(ridge), tau, zeros, certain, smallest)


def extremes(k: Array) -> tuple[float, float]:
    """Check a training kernel, and return lambda_min (0 if rounding makes it negative) and lambda_max."""
    check_kernel("k_train", k)
    xp, k = array_namespace(k), as_matrix(k)
    check_memory(xp, f"the eigenvalues of a kernel of {k.shape[0]} rows", 3 * 8 * k.shape[0] ** 2)
    lam = xp.linalg.eigvalsh(xp.astype(k, xp.float64, copy=False))
    smallest, largest = float(lam[0]), float(lam[-1])
    check_definite(smallest, largest, resolution(k))
    return max(smallest, 0.0), largest
