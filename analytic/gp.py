"""Gaussian processes of wide networks: the trained ensemble at every time, and the Bayesian posterior.

Infinitely wide networks start as draws f_0 ~ GP(0, K) and train by f_t(x) = f_0(x) + A_t (y - f_0(X)), with one matrix
A_t for all of them (see `analytic.dynamics`):

    A_t = Theta(x, X) (Theta + ridge I)^-1 (I - e^(-lr t (Theta + ridge I) / N))

An affine map of a Gaussian process is one: Lee et al. 2019, eqs. (13) to (16).  K is the NNGP kernel, Theta the NTK.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf, log, pi
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from analytic.dynamics import GradientFlow, check_rate, check_targets, gradient_flow
from analytic.spectrum import check_kernel, check_ridge, eps, resolution
from minintk.arrays import Array, array_namespace, check_finite, check_floating, scipy_module, to_library

Kind = Literal["ntk", "nngp"]


@runtime_checkable
class Kernel(Protocol):
    """What `analytic.kernel(spec)` gives, and anything else that gives (N, M) arrays by the same names."""

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """K(x1, x2), (N, M); K(x1, x1) without x2."""

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        """Theta(x1, x2), likewise."""

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        """(K, Theta), in one pass."""


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Infinitely many infinitely wide networks, all trained on (x, y); built by `ensemble`."""

    kernel: Kernel
    x: Array
    y: Array
    lr: float
    ridge: float
    _train: dict[Kind, Array] = field(default_factory=dict, init=False)
    _flows: dict[Kind, GradientFlow] = field(default_factory=dict, init=False)

    def predict(self, x_test: Array, t: Any = inf, *, kind: Kind = "ntk", cov: bool = False) -> Any:
        """Mean (M, C) of the ensemble's outputs at time t, or (mean, covariance (M, M), the same for every output).

        kind="ntk", all layers trained, eqs. (14) to (16):

            mean = A_t y
            cov  = K(x, x) + A_t K(X, X) A_t' - (A_t K(X, x) + transpose)

        kind="nngp", only the last layer trained (supplement of the paper; t = inf is the Bayesian posterior, ridge its
        noise variance: each member then has its own noise in its targets, the "sample-then-optimise" of Matthews et al.):

            mean = K(x, X) (K + ridge I)^-1 (I - e^(-  lr t (K + ridge I) / N)) y
            cov  = K(x, x) - K(x, X) (K + ridge I)^-1 (I - e^(-2 lr t (K + ridge I) / N)) K(X, x)

        x_test : (M, *shape of an example).
        t : a number >= 0, inf included, or a one-dimensional array of them: the results then have a leading axis T.
            t = lr * steps where lr = 1, t = steps where lr is the network's.
        ValueError for a negative t or NaN, an indefinite kernel, and a singular one whose limit does not exist.
        """
        _check_kind(kind)
        k, xp = self._test(x_test), array_namespace(self.x)
        flow = self.flow(kind, with_cov=cov)
        if not cov:
            return flow.predict(t, k.ntk(x_test, self.x) if kind == "ntk" else k.nngp(x_test, self.x))
        nngp, ntk = k.both(x_test, self.x) if kind == "ntk" else (k.nngp(x_test, self.x), None)
        mean = flow.predict(t, nngp if ntk is None else ntk)
        prior = xp.astype(k.nngp(x_test), xp.float64, copy=False)
        q = xp.astype(nngp, xp.float64, copy=False) @ flow.spectrum.Q  # K(x, X) Q
        if ntk is None:
            covs = [prior - (q * g) @ q.T for g in flow.gains(2 * np.asarray(t), nngp)]
        else:
            p = xp.astype(ntk, xp.float64, copy=False) @ flow.spectrum.Q  # Theta(x, X) Q, so that A_t = (p g_t) Q'
            covs = [prior + (p * g) @ self._rotated @ (p * g).T - 2 * ((p * g) @ q.T) for g in flow.gains(t, ntk)]
        stacked = xp.stack([(c + c.T) / 2 for c in covs])
        return mean, xp.astype(stacked if np.ndim(t) else stacked[0], mean.dtype, copy=False)

    def flow(self, kind: Kind = "ntk", *, with_cov: bool = False) -> GradientFlow:
        """The gradient flow of one function under Theta ("ntk") or K ("nngp"), factorised on first use."""
        if kind not in self._flows:
            self._flows[kind] = gradient_flow(self._block(kind, with_cov=with_cov), self.y, lr=self.lr, ridge=self.ridge)
        return self._flows[kind]

    def _block(self, kind: Kind, *, with_cov: bool = False) -> Array:
        """K(X, X) or Theta(X, X), each evaluated once; both in one pass where the covariance will need both."""
        if kind not in self._train:
            if with_cov and kind == "ntk" and not self._train:
                self._train["nngp"], self._train["ntk"] = self.kernel.both(self.x)
            else:
                self._train[kind] = self.kernel.ntk(self.x) if kind == "ntk" else self.kernel.nngp(self.x)
        return self._train[kind]

    @cached_property
    def _rotated(self) -> Array:
        """Q' K(X, X) Q, with the Q of Theta: the covariance of f_0(X) in the directions that train independently."""
        K, Q = self._block("nngp"), self.flow("ntk").spectrum.Q
        check_kernel("kernel.nngp(x)", K)
        return Q.T @ (array_namespace(Q).astype(K, Q.dtype, copy=False) @ Q)

    def _test(self, x_test: Array) -> Kernel:
        """The kernel, once x_test is known to fit it."""
        array_namespace(self.x, x_test)
        if x_test.ndim != self.x.ndim or x_test.shape[1:] != self.x.shape[1:]:
            want = ", ".join(map(str, self.x.shape[1:]))
            raise ValueError(f"x_test expects shape (M, {want}) as the training examples, got {tuple(x_test.shape)}")
        check_floating("x_test", x_test)
        check_finite("x_test", x_test)
        return self.kernel


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """The Gaussian process conditioned on (x, y); built by `posterior`."""

    ensemble: Ensemble
    kind: Kind

    def predict(self, x_test: Array, cov: bool = False) -> Any:
        """Mean (M, C) at x_test : (M, *shape of an example), or (mean, covariance (M, M), the same for every output).

            nngp:  mean = K(x, X) (K + ridge I)^-1 y,        cov = K(x, x) - K(x, X) (K + ridge I)^-1 K(X, x)    eq. (13)
            ntk:   mean = A y, A = Theta(x, X) (Theta + ridge I)^-1,
                   cov  = K(x, x) + A K(X, X) A' - (A K(X, x) + transpose)                                       eq. (16)

        From a Cholesky factor where the kernel has one (1 s at N = 4000 on two cores); the limit t = inf of `ensemble` where
        the kernel is singular, ValueError with its smallest eigenvalue where that limit does not exist.
        """
        ens, L = self.ensemble, self._factor
        if L is None:
            return ens.predict(x_test, kind=self.kind, cov=cov)
        k, X = ens._test(x_test), ens.x
        xp = array_namespace(X)
        if not cov:
            k_test, nngp = (k.ntk if self.kind == "ntk" else k.nngp)(x_test, X), None
        elif self.kind == "ntk":
            nngp, k_test = k.both(x_test, X)
        else:
            k_test = nngp = k.nngp(x_test, X)
        check_finite("the kernel of x_test and x", k_test)
        V = _solve(L, xp.astype(k_test, xp.float64, copy=False).T)  # L^-1 k(X, x)
        dtype = xp.result_type(k_test, ens.y)
        mean = xp.astype(V.T @ self._whitened, dtype, copy=False)
        if not cov:
            return mean
        c = xp.astype(k.nngp(x_test), xp.float64, copy=False)
        if self.kind == "nngp":
            c = c - V.T @ V
        else:
            A = _solve(L, V, transposed=True).T
            K = xp.astype(ens._block("nngp"), xp.float64, copy=False)
            c = c + A @ K @ A.T - 2 * (A @ xp.astype(nngp, xp.float64, copy=False).T)
        return mean, xp.astype((c + c.T) / 2, dtype, copy=False)

    def log_marginal_likelihood(self) -> float:
        """log N(y; 0, K + ridge I), summed over the C outputs; for kind="nngp".

            -1/2 y' (K + ridge I)^-1 y - 1/2 log det (K + ridge I) - N/2 log 2 pi

        ValueError where K + ridge I is singular, with its smallest eigenvalue, and for kind="ntk", which is not a posterior.
        """
        if self.kind != "nngp":
            raise ValueError("log_marginal_likelihood expects kind='nngp': the outputs of trained networks have no likelihood")
        L = self._factor
        if L is None:
            raise ValueError(f"log_marginal_likelihood has no density to take: {self.ensemble.flow('nngp').spectrum.remedy()}")
        xp = array_namespace(L)
        N, C = self.ensemble.y.shape
        half_log_det = float(xp.sum(xp.log(xp.linalg.diagonal(L))))
        return -float(xp.sum(self._whitened**2)) / 2 - C * (half_log_det + N / 2 * log(2 * pi))

    def sample(self, x_test: Array, size: int, rng: np.random.Generator) -> Array:
        """Draws of f at x_test, (size, M, C), from numbers of `rng` on the host: the same in every array library.

        ValueError where the covariance is indefinite beyond rounding.
        """
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
            raise ValueError(f"sample(size=...) expects a whole number >= 1, got {size!r}")
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"sample(rng=...) expects numpy.random.default_rng(seed), got {rng!r}")
        mean, cov = self.predict(x_test, cov=True)
        xp = array_namespace(mean)
        M, C = mean.shape
        variance, U = xp.linalg.eigh(xp.astype(cov, xp.float64, copy=False))
        scale = float(xp.max(xp.abs(self.ensemble.kernel.nngp(x_test[:1]))))
        scale = max(scale, float(xp.max(xp.abs(cov))), float(xp.max(xp.abs(self.ensemble._block("nngp")))))
        if -float(variance[0]) > 30 * (M + len(self.ensemble.y) + 100) * eps(cov) * scale:
            raise ValueError(
                f"the covariance at x_test has the eigenvalue {float(variance[0]):.3g}, where {scale:.3g} is the largest entry of the "
                "prior: the kernel is not positive semi-definite to that accuracy; use float64, or a ridge"
            )
        root = U * xp.sqrt(xp.maximum(variance, xp.zeros_like(variance)))
        z = to_library(rng.standard_normal((size, M, C)), xp)
        return xp.astype(root @ z + mean, mean.dtype, copy=False)

    @cached_property
    def _factor(self) -> Array | None:
        """L, lower triangular, L L' = k + ridge I; None where a pivot cannot be told from zero."""
        k = self.ensemble._block(self.kind, with_cov=True)
        check_kernel(f"kernel.{self.kind}(x)", k)
        xp = array_namespace(k)
        shifted = xp.astype(k, xp.float64) + self.ensemble.ridge * xp.eye(len(k), dtype=xp.float64)
        try:
            L = xp.linalg.cholesky(shifted)
        except np.linalg.LinAlgError:
            return None
        smallest = float(xp.min(xp.linalg.diagonal(L)))  # NaN where the library does not raise
        return L if smallest > 0 and smallest**2 > resolution(k) else None

    @cached_property
    def _whitened(self) -> Array:
        """L^-1 y, (N, C)."""
        y = self.ensemble.y
        return _solve(self._factor, array_namespace(y).astype(y, self._factor.dtype, copy=False))


def ensemble(kernel: Kernel, x: Array, y: Array, *, lr: float = 1.0, ridge: float = 0.0) -> Ensemble:
    """The ensemble of infinitely wide networks trained on (x, y) by gradient flow on L = 1/(2N) sum ||f - y||^2.

    kernel : `analytic.kernel(spec)`.  x : (N, *shape of an example).  y : (N, C).
    lr : with lr = 1 the unit of t is lr * steps, with the network's own lr it is steps.
    ridge : absolute; each network minimises L + ridge/(2N) |theta - theta_0|^2.

    Each block of the kernel is evaluated once and factorised once, for all t: about 6 s at N = 4000 on two cores.  Where only
    the limit t = inf is asked for, `posterior` has it cheaper.  Lee et al. 2019, eqs. (14) to (16).

    >>> import numpy as np
    >>> class Linear:                                          # f(x) = w x / sqrt(d), all of it trained: Theta = K = x x' / d
    ...     def nngp(self, x1, x2=None): return x1 @ (x1 if x2 is None else x2).T / x1.shape[1]
    ...     ntk = nngp
    ...     def both(self, x1, x2=None): return self.nngp(x1, x2), self.ntk(x1, x2)
    >>> trained = ensemble(Linear(), np.array([[1.0]]), np.array([[3.0]]))
    >>> mean, cov = trained.predict(np.array([[2.0]]), t=[0.0, 1.0, np.inf], cov=True)
    >>> mean[:, 0, 0].round(6)                                 # 2 * 3 (1 - e^-t)
    array([0.      , 3.792723, 6.      ])
    >>> cov[:, 0, 0].round(6)                                  # 4 e^-2t
    array([4.      , 0.541341, 0.      ])
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"expected a kernel such as analytic.kernel(spec), with nngp, ntk and both, got {type(kernel).__name__}")
    array_namespace(x, y)
    check_rate(lr)
    check_ridge(ridge)
    check_targets(y)
    check_floating("x", x)
    if x.ndim < 2 or x.shape[0] != y.shape[0]:
        raise ValueError(f"x and y expect shapes (N, ...) and (N, C) with one N, got {tuple(x.shape)} and {tuple(y.shape)}")
    check_finite("x", x)
    return Ensemble(kernel, x, y, float(lr), float(ridge))


def posterior(kernel: Kernel, x: Array, y: Array, *, ridge: float = 0.0, kind: Kind = "nngp") -> Posterior:
    """The Gaussian process GP(0, K) conditioned on (x, y), or (kind="ntk") the ensemble trained to the end.

    kernel, x, y as in `ensemble`.  ridge : absolute; for "nngp" the variance of the noise in y.
    kind="nngp" is Bayes' rule, eq. (13).  kind="ntk" is eq. (16), the outputs of networks all of whose layers were trained to
    t = inf: a Gaussian process, but the posterior of no probabilistic model.  Lee et al. 2019.

    >>> import numpy as np
    >>> class Linear:
    ...     def nngp(self, x1, x2=None): return x1 @ (x1 if x2 is None else x2).T / x1.shape[1]
    ...     ntk = nngp
    ...     def both(self, x1, x2=None): return self.nngp(x1, x2), self.ntk(x1, x2)
    >>> gp = posterior(Linear(), np.array([[1.0]]), np.array([[3.0]]), ridge=0.5)
    >>> mean, cov = gp.predict(np.array([[2.0]]), cov=True)
    >>> round(float(mean[0, 0]), 6), round(float(cov[0, 0]), 6)          # 2 * 3 / 1.5 and 4 - 4 / 1.5
    (4.0, 1.333333)
    """
    _check_kind(kind)
    return Posterior(ensemble(kernel, x, y, ridge=ridge), kind)


def _check_kind(kind: str) -> None:
    if kind not in get_args(Kind):
        raise ValueError(f"kind expects 'ntk' or 'nngp', got {kind!r}")


def _solve(L: Array, b: Array, *, transposed: bool = False) -> Array:
    """L^-1 b, or L'^-1 b."""
    solve_triangular = scipy_module(array_namespace(L), "linalg").solve_triangular
    return solve_triangular(L, b, lower=True, trans=1 if transposed else 0)
