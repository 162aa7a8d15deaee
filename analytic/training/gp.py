"""Gaussian processes of wide networks: the trained ensemble at every time, and the Bayesian posterior.

Infinitely wide networks start as draws f_0 ~ GP(0, K) and train by f_t(x) = f_0(x) + A_t (y - f_0(X)), all with the
same matrix A_t (see `analytic.training.dynamics`):

    A_t = Theta(x, X) (Theta + ridge I)^-1 (I - e_t(Theta + ridge I)),    e_t(mu) = e^(-lr t mu / N)

or, trained in steps, e_t(mu) = (1 - lr mu / N)^t, or that of the heavy ball.  An affine map of a Gaussian process is
Gaussian: Lee et al. 2019, eqs. (13) to (16).  K is the NNGP, Theta the NTK.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, log, pi, sqrt
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from analytic.kernel import Kernel
from analytic.training.dynamics import (
    Dynamics,
    check_momentum,
    check_targets,
    gradient_descent,
    gradient_flow,
    power_of_two,
)
from analytic.training.eigen import check_kernel, check_memory, eps, factorisation_bytes, resolution
from analytic.training.given import Given
from minintk.arrays import (
    Array,
    array_namespace,
    check_finite,
    check_floating,
    on_host,
    scipy_module,
    to_host,
    to_library,
)
from minintk.validate import number, whole

Kind = Literal["ntk", "nngp"]
By = Literal["flow", "descent"]


@runtime_checkable
class KernelLike(Protocol):
    """Anything with the methods of `analytic.kernel(spec)`, which return (N, M) arrays; its `diag` is used if there."""

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """K(x1, x2), (N, M); K(x1, x1) without x2."""

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        """Theta(x1, x2), likewise."""

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        """(K, Theta), in one pass."""


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Infinitely many infinitely wide networks, all trained on (x, y); built by `ensemble`."""

    kernel: KernelLike
    x: Array
    y: Array
    lr: float
    ridge: float
    by: By = "flow"
    momentum: float = 0.0
    _train: dict[Kind, Array] = field(default_factory=dict, init=False)
    _dynamics: dict[Kind, Dynamics] = field(default_factory=dict, init=False)

    def predict(self, x_test: Array, t: Any = inf, *, kind: Kind = "ntk", cov: bool = False, std: bool = False) -> Any:
        """Mean (M, C) of the ensemble's outputs at time t, alone or with its spread, the same for every output:

        cov : (mean, covariance (M, M)).  std : (mean, standard deviation (M,)), in O(M N), with no (M, M) matrix.

        kind="ntk", all layers trained, eqs. (14) to (16):

            mean = A_t y
            cov  = K(x, x) + A_t K(X, X) A_t' - (A_t K(X, x) + transpose)

        kind="nngp", only the last layer trained (supplement).  t = inf is the Bayesian posterior, with ridge as its
        noise variance: each member has its own draw of that noise in its targets (Matthews et al. 2017).

            mean = K(x, X) (K + ridge I)^-1 (I - e_t(K + ridge I)) y
            cov  = K(x, x) - K(x, X) (K + ridge I)^-1 (I - e_t(K + ridge I)^2) K(X, x)

        x_test : (M, *shape of an example).
        t : a number >= 0, inf included, or a one-dimensional array of them: the results then have a leading axis T.
            t = lr * steps if lr = 1, t = steps if lr is the network's; by="descent": steps.
        ValueError for a negative t or NaN, an indefinite kernel, and a singular one whose limit does not exist.
        MemoryError, before any work, with what is needed and what is free.
        """
        _check_kind(kind)
        _check_spread(cov, std)
        k, xp, t = self._test(x_test), array_namespace(self.x), to_host(t)
        self.check_memory(kind, x_test.shape[0], int(np.size(t)) + 2 if cov else 0 if std else None)
        if (cov or std) and kind == "ntk":
            self._both()
        one = self.dynamics(kind)
        if not (cov or std):
            return one.predict(t, k.ntk(x_test, self.x) if kind == "ntk" else k.nngp(x_test, self.x))
        nngp, theta = k.both(x_test, self.x) if kind == "ntk" else (k.nngp(x_test, self.x),) * 2
        mean, Q, spreads = one.predict(t, theta), one.spectrum.Q, []
        prior = self._variances(x_test) if std else xp.astype(k.nngp(x_test), xp.float64, copy=False)
        q = xp.astype(nngp, xp.float64, copy=False) @ Q  # K(x, X) Q
        p = q if kind == "nngp" else xp.astype(theta, xp.float64, copy=False) @ Q  # A_t = (p g_t) Q'
        for g in one.gains(t, theta):
            a = p * g
            b = (a * one.spectrum.mu if kind == "nngp" else a @ self._rotated) - 2 * q  # a b' = A K A' - 2 A K(X, x)
            spreads.append(_deviation(a, b, prior, nngp) if std else _covariance(prior + a @ b.T, prior))
        stacked = xp.stack(spreads)
        return mean, xp.astype(stacked if np.ndim(t) else stacked[0], mean.dtype, copy=False)

    def dynamics(self, kind: Kind = "ntk") -> Dynamics:
        """The training of one function under Theta ("ntk") or K ("nngp"), factorised on first use."""
        if kind not in self._dynamics:
            k, y, how = self._block(kind), self.y, {"lr": self.lr, "ridge": self.ridge}
            by_steps = self.by == "descent"
            one = gradient_descent(k, y, momentum=self.momentum, **how) if by_steps else gradient_flow(k, y, **how)
            self._dynamics[kind] = one
        return self._dynamics[kind]

    def check_memory(self, kind: Kind, M: int, covariances: int | None, factor: int | None = None) -> None:
        """MemoryError, before any work, if what a prediction of M outputs has yet to compute does not fit.

        covariances : how many (M, M) it takes, None for a mean alone.  factor : bytes that the kernel of this kind and
            its factorisation have yet to take, if that is not the ensemble's own.
        """
        N, M, xp, item = int(self.x.shape[0]), int(M), array_namespace(self.x), int(self.x.dtype.itemsize)
        both = covariances is not None and kind == "ntk"
        missing = ({kind, "nngp"} if both else {kind}) - set(self._train) - (set() if factor is None else {kind})
        if factor is None:
            factor = 0 if kind in self._dynamics else factorisation_bytes(N)
        need = (
            factor
            + item * N * N * len(missing)
            + (3 * 8 * N * N if both else 0)
            + ((4 if covariances is None else 6) * 8 * N + 8 * (covariances or 0) * M) * M
        )
        what = f"this prediction of {M} outputs from {N} examples"
        check_memory(xp, what, need, "use fewer examples, predict a part of x_test at a time, or take std for cov")

    def _block(self, kind: Kind) -> Array:
        """K(X, X) or Theta(X, X), evaluated on first use."""
        if kind not in self._train:
            self._train[kind] = self.kernel.ntk(self.x) if kind == "ntk" else self.kernel.nngp(self.x)
        return self._train[kind]

    def _both(self) -> None:
        """Evaluate K(X, X) and Theta(X, X) in one pass, unless one of them is there already."""
        if not self._train:
            self._train["nngp"], self._train["ntk"] = self.kernel.both(self.x)

    @cached_property
    def _rotated(self) -> Array:
        """Q' K(X, X) Q, with the Q of Theta: the covariance of f_0(X) in the directions that train independently."""
        K, Q = self._block("nngp"), self.dynamics("ntk").spectrum.Q
        check_kernel("kernel.nngp(x)", K)
        return Q.T @ (array_namespace(Q).astype(K, Q.dtype, copy=False) @ Q)

    def _variances(self, x: Array) -> Array:
        """K(x, x) of each example with itself, (M,), in float64."""
        xp, k, N = array_namespace(x), self.kernel, max(1, int(self.x.shape[0]))
        if hasattr(k, "diag"):
            return xp.astype(k.diag(x)[0], xp.float64, copy=False)
        blocks = [xp.linalg.diagonal(k.nngp(x[i : i + N])) for i in range(0, max(1, x.shape[0]), N)]
        return xp.astype(xp.concat(blocks), xp.float64, copy=False)

    def _test(self, x_test: Array) -> KernelLike:
        """The kernel; checks that x_test fits the training examples first."""
        array_namespace(self.x, x_test)
        if isinstance(self.kernel, Given):
            self.kernel.check("x_test", x_test)
            return self.kernel
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
    noise: Array | None = None

    def predict(self, x_test: Array, cov: bool = False, std: bool = False) -> Any:
        """Mean (M, C) at x_test : (M, *shape of an example), alone or with its spread, the same for every output:

        cov : (mean, covariance (M, M)).  std : (mean, standard deviation (M,)), in O(M N), with no (M, M) matrix.

            nngp, eq. (13):   mean = A y,   A = K(x, X) (K + ridge I)^-1,   cov = K(x, x) - A K(X, x)
            ntk, eq. (16):    mean = A y,   A = Theta(x, X) (Theta + ridge I)^-1,
                              cov  = K(x, x) + A K(X, X) A' - (A K(X, x) + transpose)

        From a Cholesky factor if the kernel has one (1 s at N = 4000 on two cores).  For a singular kernel, the limit
        t = inf of `ensemble`, or ValueError, with the smallest eigenvalue, if there is no limit.
        MemoryError, before any work, with what is needed and what is free.
        """
        _check_spread(cov, std)
        ens = self.ensemble
        ens._test(x_test)
        ens.check_memory(self.kind, x_test.shape[0], 3 if cov else 0 if std else None, self._factor_bytes)
        if (cov or std) and self.kind == "ntk" and self._factor_bytes:
            ens._both()
        L = self._factor
        if L is None:
            return ens.predict(x_test, kind=self.kind, cov=cov, std=std)
        k, X = ens._test(x_test), ens.x
        xp = array_namespace(X)
        if self.kind == "ntk":
            nngp, k_test = k.both(x_test, X) if cov or std else (None, k.ntk(x_test, X))
        else:
            k_test = nngp = k.nngp(x_test, X)
        check_finite("the kernel of x_test and x", k_test)
        V = _solve(L, xp.astype(k_test, xp.float64, copy=False).T)  # L^-1 k(X, x)
        dtype = xp.result_type(k_test, ens.y)
        size, whitened = self._whitened
        mean = xp.astype(V.T @ whitened * size, dtype, copy=False)
        if nngp is None or not (cov or std):
            return mean
        prior = ens._variances(x_test) if std else xp.astype(k.nngp(x_test), xp.float64, copy=False)
        a, b = V.T, -V.T
        if self.kind == "ntk":
            a = _solve(L, V, transposed=True).T
            b = a @ xp.astype(ens._block("nngp"), xp.float64, copy=False) - 2 * xp.astype(nngp, xp.float64, copy=False)
        spread = _deviation(a, b, prior, k_test) if std else _covariance(prior + a @ b.T, prior)
        return mean, xp.astype(spread, dtype, copy=False)

    def log_marginal_likelihood(self) -> float:
        """log N(y; 0, K + ridge I), summed over the C outputs; for kind="nngp".

            -1/2 y' (K + ridge I)^-1 y - 1/2 log det (K + ridge I) - N/2 log 2 pi

        ValueError, with the smallest eigenvalue, if K + ridge I is singular; and for kind="ntk", not a posterior.
        """
        if self.kind != "nngp":
            raise ValueError("log_marginal_likelihood expects kind='nngp': kind='ntk' is not the posterior of a model")
        L = self._factor
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
        """Draws of f at x_test, (size, M, C).  `rng` draws on the host, so all array libraries give the same.

        ValueError if the covariance is indefinite beyond rounding.
        """
        whole("sample(size=...)", size)
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"sample(rng=...) expects numpy.random.default_rng(seed), got {rng!r}")
        self.ensemble._test(x_test)
        M, C = x_test.shape[0], self.ensemble.y.shape[1]
        need, xp = factorisation_bytes(M) + 8 * M * (M + 2 * size * C), array_namespace(x_test)
        check_memory(xp, f"{size} draws at {M} points", need, "draw fewer, or at fewer points")
        mean, cov = self.predict(x_test, cov=True)
        variance, U = xp.linalg.eigh(xp.astype(cov, xp.float64, copy=False))
        scale = max(float(xp.max(xp.abs(k))) for k in (cov, self.ensemble._variances(self.ensemble.x)))
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
        """What the kernel and its factor have yet to take, at most."""
        if "_factor" in self.__dict__:
            return 0
        ens, N = self.ensemble, int(self.ensemble.x.shape[0])
        item = int(ens.x.dtype.itemsize) if ens.x.dtype.kind == "f" else 8
        kernel = 0 if self.kind in ens._train else item
        factor = 0 if self._owned and item == 8 and on_host(array_namespace(ens.x)) else 8
        return (kernel + factor) * N * N

    @property
    def _owned(self) -> bool:
        """Whether the kernel's matrix is nobody else's, so that the factor may take its place."""
        return type(self.ensemble.kernel) in (Kernel, Given)

    @cached_property
    def _factor(self) -> Array | None:
        """L, lower triangular (what stands above is not part of it), with L L' = k + ridge I.

        On the host and in float64, in the memory of k, which is given up.  None, and k as it was, if a pivot cannot be
        distinguished from zero.
        """
        ens = self.ensemble
        ens.check_memory(self.kind, 0, 0, self._factor_bytes)
        k = ens._block(self.kind)
        check_kernel(f"kernel.{self.kind}(x)", k)
        xp, tau = array_namespace(k), resolution(k)
        ens._train.pop(self.kind)  # whoever interrupts the work leaves nothing that is half done
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
        if L is k:  # its lower triangle is intact
            for n in range(len(k)):
                k[n, n + 1 :] = k[n + 1 :, n]
            k[i, i] = variances
        ens._train[self.kind] = k
        return None

    @cached_property
    def _whitened(self) -> tuple[float, Array]:
        """s, a power of two, and L^-1 y / s, (N, C), which is in range where L^-1 y may not be."""
        y, L, xp = self.ensemble.y, self._factor, array_namespace(self.ensemble.y)
        assert L is not None
        size = power_of_two(y)
        return size, _solve(L, xp.astype(y, xp.float64, copy=False) / size)


def ensemble(
    kernel: KernelLike | tuple[Array, Array], x: Array, y: Array, *, lr: float = 1.0, ridge: float = 0.0,
    by: By = "flow", momentum: float = 0.0,
) -> Ensemble:  # fmt: skip
    """The ensemble of infinitely wide networks trained on (x, y) on L = 1/(2N) sum ||f - y||^2.

    kernel : `analytic.kernel(spec)`.  x : (N, *shape of an example), y : (N, C), both copied.  Or kernels that exist
        already, empirical ones or from a store: (nngp, ntk), each (n, n) over all n points, read when they are needed
        and not copied; then x : (N,) and x_test : (M,) are whole numbers, the points' rows.
    by : "flow", gradient flow: with lr = 1 the unit of t is lr * steps, with the network's own lr it is steps.
        "descent", gradient descent with this lr: t counts steps; `momentum` as in `gradient_descent`.  The two differ
        most at first: where lr is near its bound, by a fifth of the standard deviation after one step.
    ridge : absolute; each network minimises L + ridge/(2N) |theta - theta_0|^2.

    Each kernel of the training set is evaluated and factorised once, for all t: about 6 s at N = 4000 on two cores.
    If you need the limit t = inf only, `posterior` is cheaper.  Lee et al. 2019, eqs. (14) to (16).

    >>> import numpy as np
    >>> class Linear:                                          # f(x) = x w / sqrt(d): Theta = K = x x' / d
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
    if isinstance(kernel, tuple) and len(kernel) == 2:
        kernel = Given(*kernel)
    if isinstance(kernel, type) or not isinstance(kernel, KernelLike):
        got = f"the class {kernel.__name__}" if isinstance(kernel, type) else type(kernel).__name__
        expected = "a kernel such as analytic.kernel(spec), with nngp, ntk and both, or the matrices (nngp, ntk)"
        raise TypeError(f"expected {expected}, got {got}")
    array_namespace(x, y)
    lr, ridge = number("lr", lr), number("ridge", ridge, zero=True)
    if by not in get_args(By):
        raise ValueError(f"by expects 'flow' or 'descent', got {by!r}")
    if check_momentum(momentum) and by == "flow":
        raise ValueError(f"momentum expects by='descent', got {momentum!r} with by='flow': mn.kernel_flow has tau")
    check_targets(y)
    if isinstance(kernel, Given):
        kernel.check("x", x)
    else:
        check_floating("x", x)
        check_finite("x", x)
    if x.ndim < (1 if isinstance(kernel, Given) else 2) or x.shape[0] != y.shape[0]:
        raise ValueError(f"expected x : (N, ...) and y : (N, C) with one N, got {tuple(x.shape)} and {tuple(y.shape)}")
    xp = array_namespace(x)  # kernels are evaluated at the first prediction: of the examples as they are now
    return Ensemble(kernel, xp.asarray(x, copy=True), xp.asarray(y, copy=True), lr, ridge, by, float(momentum))


def posterior(
    kernel: KernelLike | NngpAlone | tuple[Array, Array], x: Array, y: Array, *, ridge: float | Array = 0.0,
    kind: Kind = "nngp",
) -> Posterior:  # fmt: skip
    """The Gaussian process GP(0, K) conditioned on (x, y), or (kind="ntk") the fully trained ensemble.

    kernel, x, y as in `ensemble`; for "nngp" a kernel of your own needs the method nngp alone.
    ridge : absolute; for "nngp" the variance of the noise in y, a number or, (N,), one for each example.
    kind="nngp" is Bayes' rule, eq. (13).  kind="ntk" is eq. (16), the outputs of networks with all layers trained to
    t = inf: a Gaussian process, but not the posterior of any probabilistic model.  Lee et al. 2019.

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
    given: Any = kernel  # checked by `ensemble`
    noise: Any = ridge
    if kind == "nngp" and not isinstance(kernel, KernelLike | tuple | type) and callable(getattr(kernel, "nngp", None)):
        given = Prior(kernel)
    if getattr(noise, "shape", ()) == ():
        return Posterior(ensemble(given, x, y, ridge=noise), kind)
    xp = array_namespace(y, noise)
    check_floating("ridge", noise)
    check_finite("ridge", noise)
    if tuple(noise.shape) != (y.shape[0],) or not bool(xp.all(noise >= 0)):
        raise ValueError(f"ridge expects a number or shape ({y.shape[0]},), all >= 0, got {tuple(noise.shape)}")
    return Posterior(ensemble(given, x, y), kind, xp.asarray(noise, copy=True))


class NngpAlone(Protocol):
    """What kind="nngp" asks of a kernel."""

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """K(x1, x2), (N, M); K(x1, x1) without x2."""


@dataclass(frozen=True, eq=False, repr=False)
class Prior:
    """A kernel with nngp alone as one that has no NTK."""

    kernel: NngpAlone

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """K(x1, x2)."""
        return self.kernel.nngp(x1) if x2 is None else self.kernel.nngp(x1, x2)

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        """TypeError."""
        raise TypeError("this kernel has nngp alone: kind='nngp' is what it can answer")

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        """TypeError."""
        return self.nngp(x1, x2), self.ntk(x1, x2)


def _check_kind(kind: str) -> None:
    if kind not in get_args(Kind):
        raise ValueError(f"kind expects 'ntk' or 'nngp', got {kind!r}")


def _check_spread(cov: bool, std: bool) -> None:
    if cov and std:
        raise ValueError("predict expects cov=True or std=True, not both: the standard deviation is sqrt(diag(cov))")


def cholesky(k: Array) -> Array:
    """L with L L' = k, lower triangular; LinAlgError where there is none.

    On the host in the memory of k, whose triangle below the diagonal, which is above that of L, stays as it is.
    """
    xp = array_namespace(k)
    if not on_host(xp):
        return xp.linalg.cholesky(k)
    # LAPACK's order is that of columns: to it, k' is the symmetric k where it stands
    return scipy_module(xp, "linalg").cho_factor(k.T, lower=True, overwrite_a=True, check_finite=False)[0]


def is_factor(L: Array, diagonal: Array) -> bool:
    """Whether L L' has this diagonal, up to rounding: a GPU's solver may fail and say nothing."""
    xp = array_namespace(L)
    rounding = float(len(L) + 100) * eps(L) * float(xp.max(diagonal))
    return float(xp.max(xp.abs(xp.einsum("ij,ij->i", L, L) - diagonal))) <= rounding


def _covariance(c: Array, prior: Array) -> Array:
    """c made symmetric; a variance that is 0 up to rounding (at a training point) is not negative."""
    xp = array_namespace(c, prior)
    c = (c + c.T) / 2
    variance = xp.diagonal(c)
    rounding = (variance < 0) & (variance > -1e-10 * xp.max(xp.abs(prior)))
    i = xp.arange(c.shape[0])
    c[i, i] = xp.where(rounding, xp.zeros_like(variance), variance)
    return c


def _deviation(a: Array, b: Array, prior: Array, k: Array) -> Array:
    """sqrt(prior + diag(a b')), (M,); ValueError for a variance below zero beyond the rounding of the kernel k."""
    xp = array_namespace(a, prior)
    parts = a * b
    variance = prior + xp.sum(parts, axis=1)
    if bool(xp.any(variance < -sqrt(eps(k)) * (prior + xp.sum(xp.abs(parts), axis=1)))):
        raise ValueError(
            f"the variance at x_test is {float(xp.min(variance)):.3g}, where the prior's is up to "
            f"{float(xp.max(prior)):.3g}: the kernels are not positive semi-definite; compute them in float64, or pass "
            "a ridge"
        )
    return xp.sqrt(xp.maximum(variance, xp.zeros_like(variance)))


def _solve(L: Array, b: Array, *, transposed: bool = False) -> Array:
    """L^-1 b, or L'^-1 b."""
    solve_triangular = scipy_module(array_namespace(L), "linalg").solve_triangular
    return solve_triangular(L, b, lower=True, trans=1 if transposed else 0)
