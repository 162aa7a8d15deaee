"""Condition the Gaussian process of an infinitely wide network on data, using a Cholesky factorisation.

The kernel is K for Bayes' rule, f ~ GP(0, K), or Theta for the ensemble at t = inf (Lee et al. 2019, eqs. (13), (16)).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import log, pi, sqrt
from typing import Any

import numpy as np

from analytic.kernels import Kernel
from analytic.training.dynamics import power_of_two
from analytic.training.eigen import check_kernel, check_memory, eps, factorisation_bytes, resolution
from analytic.training.gp import Ensemble, Given, KernelLike, Kind, check_wanted, ensemble, spread
from minintk.arrays import Array, array_namespace, check_finite, check_floating, on_host, own, scipy_module, to_library
from minintk.validate import generator, whole

PIECE = 2**28
"""Without cov, predictions are split if the float64 kernel of test and training examples exceeds this many bytes."""


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Gaussian process conditioned on (x, y), built by `posterior`."""

    ensemble: Ensemble
    kind: Kind
    noise: Array | None = None

    def predict(self, x_test: Array, cov: bool = False, std: bool = False) -> Any:
        """Return the mean (M, C) at x_test : (M, *shape of an example), and optionally the spread of each output.

        cov : return (mean, covariance (M, M)).  std : return (mean, standard deviation (M,)), without an (M, M) array.

            nngp, eq. (13):   mean = A y,   A = K(x, X) (K + ridge I)^-1,   cov = K(x, x) - A K(X, x)
            ntk, eq. (16):    mean = A y,   A = Theta(x, X) (Theta + ridge I)^-1,
                              cov  = K(x, x) + A K(X, X) A' - (A K(X, x) + transpose)

        The Cholesky factorisation of a positive definite kernel takes less than 1 s at N = 4000 on two cores.  For a
        singular kernel, predictions are the limit t = inf of `ensemble`.  Raises ValueError, with the smallest
        eigenvalue, if this limit does not exist, and MemoryError, before any computation, if too little memory is free.
        """
        check_wanted(self.kind, cov, std)
        ens = self.ensemble
        ens.check(x_test)
        rows = max(1, PIECE // (8 * int(ens.x.shape[0])))
        if not cov and x_test.shape[0] > rows:
            found = [self.predict(x_test[i : i + rows], std=std) for i in range(0, x_test.shape[0], rows)]
            xp = array_namespace(ens.x)
            return tuple(map(xp.concat, zip(*found, strict=True))) if std else xp.concat(found)
        ens.check_memory(self.kind, x_test.shape[0], 3 if cov else 0 if std else None, self._factor_bytes)
        if self._factor_bytes:
            ens.block(self.kind, spread=cov or std)
        L, xp = self.factor, array_namespace(ens.x)
        if L is None:
            return ens.predict(x_test, kind=self.kind, cov=cov, std=std)
        nngp = prior = None
        if cov or std:
            nngp, k_test, prior = ens.joint(x_test, self.kind, std)
        else:
            k_test = ens.of(self.kind)(x_test, ens.x)
        check_finite("the kernel of x_test and x", k_test)
        V = triangular(L, xp.astype(k_test, xp.float64, copy=False).T)  # L^-1 k(X, x)
        dtype = xp.result_type(k_test, ens.y)
        size, whitened = self._whitened
        mean = xp.astype(V.T @ whitened * size, dtype, copy=False)
        if nngp is None or prior is None:
            return mean
        a, b = V.T, -V.T
        if self.kind == "ntk":
            a = triangular(L, V, trans=1).T
            b = a @ xp.astype(ens.block("nngp"), xp.float64, copy=False) - 2 * nngp
        return mean, xp.astype(spread(a, b, prior, eps(k_test)), dtype, copy=False)

    def log_marginal_likelihood(self) -> float:
        """Return log N(y; 0, K + ridge I), summed over the C outputs.

            -1/2 y' (K + ridge I)^-1 y - 1/2 log det (K + ridge I) - N/2 log 2 pi

        Raises ValueError if K + ridge I is singular, or if kind="ntk", which is not a posterior.
        """
        if self.kind != "nngp":
            raise ValueError("log_marginal_likelihood expects kind='nngp': kind='ntk' is not the posterior of a model")
        L = self.factor
        if L is None:
            remedy = self.ensemble.dynamics("nngp").spectrum.remedy()
            raise ValueError(f"log_marginal_likelihood expects a kernel that is not singular: {remedy}")
        xp = array_namespace(L)
        N, C = self.ensemble.y.shape
        half_log_det = float(xp.sum(xp.log(xp.diagonal(L))))
        size, whitened = self._whitened
        half_fit = float(xp.sum(whitened**2)) / 2 * size * size
        return -half_fit - int(C) * (half_log_det + int(N) / 2 * log(2 * pi))

    def sample(self, x_test: Array, size: int, rng: np.random.Generator) -> Array:
        """Draw `size` samples of f at x_test, (size, M, C).  Raises ValueError if the covariance is indefinite."""
        whole("sample(size=...)", size)
        rng = generator(rng)
        self.ensemble.check(x_test)
        M, C = x_test.shape[0], self.ensemble.y.shape[1]
        need, xp = factorisation_bytes(M) + 8 * M * (M + 2 * size * C), array_namespace(x_test)
        check_memory(xp, f"{size} draws at {M} points", need, "draw fewer, or at fewer points")
        mean, cov = self.predict(x_test, cov=True)
        variance, U = xp.linalg.eigh(xp.astype(cov, xp.float64, copy=False))
        scale = max(float(xp.max(xp.abs(k))) for k in (cov, self.ensemble.variances(self.ensemble.x)))
        if -float(variance[0]) > sqrt(eps(cov)) * scale:
            raise ValueError(
                f"the covariance at x_test has the eigenvalue {float(variance[0]):.3g}, where kernel entries are up to "
                f"{scale:.3g}: the kernels are not positive semi-definite; compute them in float64, or pass a ridge"
            )
        root = U * xp.sqrt(xp.maximum(variance, xp.zeros_like(variance)))
        z = to_library(rng.standard_normal((size, M, C)), xp)
        return xp.astype(root @ z + mean, mean.dtype, copy=False)

    @property
    def _factor_bytes(self) -> int:
        """Return a bound on the number of bytes that the kernel and its factor still need."""
        if "factor" in self.__dict__:
            return 0
        ens, N = self.ensemble, int(self.ensemble.x.shape[0])
        item = int(ens.x.dtype.itemsize) if ens.x.dtype.kind == "f" else 8
        kernel = 0 if self.kind in ens._train else item
        factor = 0 if self._owned and item == 8 else 8
        copied = 0 if on_host(array_namespace(ens.x)) else 8  # for CuPy's Cholesky
        return (kernel + factor + copied) * N * N

    @property
    def _owned(self) -> bool:
        """True if nothing else refers to the kernel's matrix, so that the factor can overwrite it."""
        return type(self.ensemble.kernel) in (Kernel, Given)

    @cached_property
    def factor(self) -> Array | None:
        """Return lower triangular L (upper entries are arbitrary) with L L' = k + ridge I, or None if that is singular.

        On the host, L overwrites an `_owned` float64 k.  A singular k is restored; with `noise`, it raises ValueError.
        """
        ens = self.ensemble
        ens.check_memory(self.kind, 0, None, self._factor_bytes)
        k = ens.block(self.kind)
        check_kernel(f"kernel.{self.kind}(x)", k)
        xp, tau = array_namespace(k), resolution(k)
        ens._train.pop(self.kind)  # an interruption must not leave a half-overwritten kernel
        L = xp.astype(k, xp.float64, copy=not self._owned)
        i, variances = xp.arange(len(k)), xp.asarray(xp.diagonal(L), copy=True)
        L[i, i] += ens.ridge if self.noise is None else self.noise
        diagonal = xp.asarray(xp.diagonal(L), copy=True)
        with suppress(np.linalg.LinAlgError):
            factor = cholesky(L)
            smallest = float(xp.min(xp.diagonal(factor)))
            if smallest > 0 and smallest**2 > tau and (on_host(xp) or is_factor(factor, diagonal)):
                return factor
        if self.noise is not None:
            raise ValueError("the kernel and the noise of each example are singular together: give each more noise")
        if L is k:  # k's lower triangle is unchanged
            for n in range(len(k)):
                k[n, n + 1 :] = k[n + 1 :, n]
            k[i, i] = variances
        ens._train[self.kind] = k
        return None

    @cached_property
    def _whitened(self) -> tuple[float, Array]:
        """Return s, a power of two, and L^-1 y / s, (N, C), which is finite even if L^-1 y overflows."""
        y, L, xp = self.ensemble.y, self.factor, array_namespace(self.ensemble.y)
        assert L is not None
        size = power_of_two(y)
        return size, triangular(L, xp.astype(y, xp.float64, copy=False) / size)


def posterior(
    kernel: KernelLike | tuple[Array, Array], x: Array, y: Array, *, ridge: float | Array = 0.0, kind: Kind = "nngp"
) -> Posterior:
    """Condition the Gaussian process GP(0, K) on (x, y), or return the fully trained ensemble for kind="ntk".

    kernel, x, y : as in `ensemble`.  For "nngp", a user-defined kernel requires only the method `nngp`.
    ridge : absolute, i.e. not scaled by the kernel.  For "nngp", this is the noise variance of y, a number or (N,).
    kind : "nngp" for Bayes' rule, eq. (13), or "ntk" for networks with all layers trained to t = inf, eq. (16).  Their
        outputs are a Gaussian process, but not the posterior of any probabilistic model.

    >>> import numpy as np
    >>> class Linear:
    ...     def nngp(self, x1, x2=None): return x1 @ (x1 if x2 is None else x2).T / x1.shape[1]
    >>> gp = posterior(Linear(), np.array([[1.0]]), np.array([[3.0]]), ridge=0.5)
    >>> mean, cov = gp.predict(np.array([[2.0]]), cov=True)
    >>> round(float(mean[0, 0]), 6), round(float(cov[0, 0]), 6)          # 2 * 3 / 1.5 and 4 - 4 / 1.5
    (4.0, 1.333333)
    """
    check_wanted(kind)
    noise: Any = ridge
    one_noise = getattr(noise, "shape", ()) == ()
    trained = ensemble(kernel, x, y, ridge=noise if one_noise else 0.0)
    trained.of(kind)  # TypeError if the kernel lacks this kind
    if one_noise:
        return Posterior(trained, kind)
    xp = array_namespace(y, noise)
    check_floating("ridge", noise)
    check_finite("ridge", noise)
    if tuple(noise.shape) != (y.shape[0],) or not bool(xp.all(noise >= 0)):
        raise ValueError(f"ridge expects a number or shape ({y.shape[0]},), all >= 0, got {tuple(noise.shape)}")
    return Posterior(trained, kind, own(noise))


def cholesky(k: Array) -> Array:
    """Return a matrix with L in its lower triangle, L L' = k, or raise LinAlgError; on the host, it overwrites k."""
    xp = array_namespace(k)
    if not on_host(xp):
        return xp.linalg.cholesky(k)
    # LAPACK stores columns first, so it sees k', the same symmetric matrix, and works in place
    return scipy_module(xp, "linalg").cho_factor(k.T, lower=True, overwrite_a=True, check_finite=False)[0]


def is_factor(L: Array, diagonal: Array) -> bool:
    """Return True if the diagonal of L L' equals `diagonal` up to rounding.  A GPU's solver can fail silently."""
    xp = array_namespace(L)
    rounding = float(len(L) + 100) * eps(L) * float(xp.max(diagonal))
    return float(xp.max(xp.abs(xp.einsum("ij,ij->i", L, L) - diagonal))) <= rounding


def triangular(L: Array, b: Array, trans: int = 0) -> Array:
    """Return L^-1 b, or L'^-1 b with trans=1."""
    solve = scipy_module(array_namespace(L), "linalg").solve_triangular
    return solve(L, b, lower=True, trans=trans, check_finite=False)
