"""Predict with the ensemble of trained networks of infinite width, which is a Gaussian process at every time.

At initialisation, infinitely wide networks are draws f_0 ~ GP(0, K).  Training maps each draw to f_t(x) = f_0(x) +
A_t (y - f_0(X)), with the same matrix A_t for all draws (see `analytic.training.dynamics`):

    A_t = Theta(x, X) (Theta + ridge I)^-1 (I - e_t(Theta + ridge I)),    e_t(mu) = e^(-lr t mu / N)

For discrete steps, e_t(mu) is (1 - lr mu / N)^t, or e_t of the heavy-ball method.  An affine map of a Gaussian process
is a Gaussian process (Lee et al. 2019, eqs. (13) to (16)).  K is the NNGP, and Theta is the NTK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, sqrt
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np

from analytic.training.dynamics import Dynamics, check_momentum, check_targets, gradient_descent, gradient_flow
from analytic.training.eigen import check_kernel, check_memory, eps, factorisation_bytes
from minintk.arrays import Array, array_namespace, check_examples, own, to_host
from minintk.validate import number


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """Check K and Theta, (n, n) each, and wrap them as a kernel on points 0 ... n - 1; x : (N,) holds indices."""

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
        """Raise ValueError unless x : (N,) holds valid indices of points."""
        xp, n = array_namespace(self.K, x), int(self.K.shape[0])
        whole = x.ndim == 1 and x.dtype.kind in "iu"
        if not whole or (x.size and not 0 <= int(xp.min(x)) <= int(xp.max(x)) < n):
            raise ValueError(f"{name} expects numbers of points, (N,) from 0 to {n - 1}, as the kernels are given")

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """Return K(x1, x2)."""
        return self.K[x1[:, None], x1 if x2 is None else x2]

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        """Return Theta(x1, x2)."""
        return self.Theta[x1[:, None], x1 if x2 is None else x2]


Kind = Literal["ntk", "nngp"]
By = Literal["flow", "descent"]


@runtime_checkable
class KernelLike(Protocol):
    """A kernel with the method `nngp` and, for kind="ntk", `ntk`; the methods `both` and `diag` are optional."""

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        """Return K(x1, x2), (N, M), or K(x1, x1) if x2 is None."""


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Ensemble of infinitely many infinitely wide networks, all trained on (x, y), built by `ensemble`."""

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
        """Return the mean (M, C) of the outputs at time t, and optionally their spread, which all outputs share.

        cov : return (mean, covariance (M, M)).  std : return (mean, standard deviation (M,)), without an (M, M) array.

        With kind="ntk", all layers are trained, eqs. (14) to (16):

            mean = A_t y
            cov  = K(x, x) + A_t K(X, X) A_t' - (A_t K(X, x) + transpose)

        With kind="nngp", only the last layer is trained (supplement).  Each member adds its own noise, of variance
        `ridge`, to the targets, so that t = inf is the Bayesian posterior (Matthews et al. 2017).

            mean = K(x, X) (K + ridge I)^-1 (I - e_t(K + ridge I)) y
            cov  = K(x, x) - K(x, X) (K + ridge I)^-1 (I - e_t(K + ridge I)^2) K(X, x)

        x_test : (M, *shape of an example).
        t : a number >= 0, inf included, or a one-dimensional array, which adds a leading axis T to the results.
            `ensemble` defines the unit of t.
        Raises ValueError for a negative t or NaN, an indefinite kernel, or a singular kernel for which the limit does
        not exist.  Raises MemoryError before any computation if too little memory is free.
        """
        check_wanted(kind, cov, std)
        self.check(x_test)
        xp, t = array_namespace(self.x), to_host(t)
        self.check_memory(kind, x_test.shape[0], int(np.size(t)) + 2 if cov else 0 if std else None)
        self.block(kind, spread=cov or std)
        one = self.dynamics(kind)
        if not (cov or std):
            return one.predict(t, self.of(kind)(x_test, self.x))
        nngp, theta, prior = self.joint(x_test, kind, std)
        mean, Q, spreads = one.predict(t, theta), one.spectrum.Q, []
        q = nngp @ Q  # K(x, X) Q
        p = q if kind == "nngp" else xp.astype(theta, xp.float64, copy=False) @ Q  # A_t = (p g_t) Q'
        for g in one.gains(t, theta):  # with the NNGP g mu = 1 - e, so g (g mu - 2) = -(1 - e^2) / mu
            a = p * g
            b = (a * one.spectrum.mu if kind == "nngp" else a @ self._rotated) - 2 * q  # a b' = A K A' - 2 A K(X, x)
            spreads.append(spread(a, b, prior, eps(theta)))
        stacked = xp.stack(spreads)
        return mean, xp.astype(stacked if np.ndim(t) else stacked[0], mean.dtype, copy=False)

    def dynamics(self, kind: Kind = "ntk") -> Dynamics:
        """Return the training dynamics under Theta ("ntk") or K ("nngp"), factorised on first use."""
        if kind not in self._dynamics:
            k, y, how = self.block(kind), self.y, {"lr": self.lr, "ridge": self.ridge}
            by_steps = self.by == "descent"
            one = gradient_descent(k, y, momentum=self.momentum, **how) if by_steps else gradient_flow(k, y, **how)
            self._dynamics[kind] = one
        return self._dynamics[kind]

    def check_memory(self, kind: Kind, M: int, covariances: int | None, factor: int | None = None) -> None:
        """Raise MemoryError, before any computation, if a prediction for M examples needs more memory than is free.

        covariances : the number of (M, M) arrays, or None if only the mean is computed.  factor : bytes still needed
            for the kernel of this kind and its factorisation; estimated by default.
        """
        N, M, xp, item = int(self.x.shape[0]), int(M), array_namespace(self.x), int(self.x.dtype.itemsize)
        both = covariances is not None and kind == "ntk"
        missing = ({kind, "nngp"} if both else {kind}) - set(self._train) - (set() if factor is None else {kind})
        own = 0 if kind in self._dynamics else factorisation_bytes(N)
        need = (own if factor is None else factor) + (item * len(missing) + 24 * both) * N * N
        need += ((4 if covariances is None else 6) * 8 * N + 8 * (covariances or 0) * M) * M
        what = f"this prediction of {M} outputs from {N} examples" if M else f"training on the kernel of {N} examples"
        remedy = f"take analytic.solve, an estimator's landmarks=, fewer examples{', std for cov' * bool(covariances)}"
        check_memory(xp, what, need, remedy)

    def of(self, kind: Kind) -> Callable[..., Array]:
        """Return the function (x1, x2) -> K or Theta.  Raises TypeError for Theta if the kernel has only nngp."""
        if (found := getattr(self.kernel, kind, None)) is None:
            raise TypeError(f"kind='ntk' expects a kernel with ntk, got {type(self.kernel).__name__}: take kind='nngp'")
        return cast(Callable[..., Array], found)

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        """Return (K, Theta), computed in one pass if the kernel has a method `both`."""
        k: Any = self.kernel
        K, Theta = k.both(x1, x2) if hasattr(k, "both") else (k.nngp(x1, x2), self.of("ntk")(x1, x2))
        return K, Theta

    def block(self, kind: Kind, spread: bool = False) -> Array:
        """Return K(X, X) or Theta(X, X), evaluated on first use.   spread : True if "ntk" will also need K(X, X)."""
        if spread and kind == "ntk" and not self._train:
            self._train["nngp"], self._train["ntk"] = self.both(self.x)
        if kind not in self._train:
            self._train[kind] = self.of(kind)(self.x)
        return self._train[kind]

    @cached_property
    def _rotated(self) -> Array:
        """Return Q' K(X, X) Q for Theta's Q, the covariance of f_0(X) in the directions that train independently."""
        K, Q = self.block("nngp"), self.dynamics("ntk").spectrum.Q
        check_kernel("kernel.nngp(x)", K)
        return Q.T @ (array_namespace(Q).astype(K, Q.dtype, copy=False) @ Q)

    def joint(self, x: Array, kind: Kind, std: bool) -> tuple[Array, Array, Array]:
        """Return K(x, X), the `kind` kernel at (x, X), and K(x, x), or its diagonal if std.  K is in float64."""
        xp, k = array_namespace(x), self.kernel
        nngp, found = self.both(x, self.x) if kind == "ntk" else (k.nngp(x, self.x),) * 2
        prior = self.variances(x) if std else xp.astype(k.nngp(x), xp.float64, copy=False)
        return xp.astype(nngp, xp.float64, copy=False), found, prior

    def variances(self, x: Array) -> Array:
        """Return the diagonal of K(x, x) in float64, (M,)."""
        xp, k, N = array_namespace(x), self.kernel, max(1, int(self.x.shape[0]))
        if hasattr(k, "diag"):
            return xp.astype(k.diag(x)[0], xp.float64, copy=False)
        blocks = [xp.linalg.diagonal(k.nngp(x[i : i + N])) for i in range(0, max(1, x.shape[0]), N)]
        return xp.astype(xp.concat(blocks), xp.float64, copy=False)

    def check(self, x_test: Array) -> None:
        """Check that x_test has the training set's array library and example shape or, for matrices, valid indices."""
        array_namespace(self.x, x_test)
        if isinstance(self.kernel, Given):
            self.kernel.check("x_test", x_test)
        else:
            check_examples("x_test", x_test, self.x.shape[1:])


def ensemble(
    kernel: KernelLike | tuple[Array, Array], x: Array, y: Array, *, lr: float = 1.0, ridge: float = 0.0,
    by: By = "flow", momentum: float = 0.0,
) -> Ensemble:  # fmt: skip
    """Return the ensemble of infinitely wide networks trained on (x, y) with loss L = 1/(2N) sum ||f - y||^2.

    kernel : `analytic.kernel(spec)`.  x : (N, *shape of an example) and y : (N, C) are copied.  Alternatively, pass a
        pair (nngp, ntk) of (n, n) matrices, e.g. empirical kernels or kernels from a store, which are not copied.
        In this case, x : (N,) and x_test : (M,) are row indices of the points.
    by : "flow" for gradient flow, or "descent" for gradient descent with `momentum`, where t is the number of steps.
        As t -> inf, both have the same limit if lr is stable.  Without momentum, they differ by O(lr) at finite times.
    lr : in the flow, t is the learning rate times the number of steps if lr = 1, and counts steps if lr is this rate.
    ridge : absolute, i.e. not scaled by the kernel; each network minimises L + ridge/(2N) |theta - theta_0|^2.

    Each training kernel is evaluated once, and one factorisation (about 6 s at N = 4000 on two cores) serves all t.  If
    only the limit t = inf is needed, `posterior` is cheaper.  Source: Lee et al. 2019, eqs. (14) to (16).

    >>> import numpy as np
    >>> class Linear:                                          # f(x) = x w / sqrt(d): Theta = K = x x' / d
    ...     def nngp(self, x1, x2=None): return x1 @ (x1 if x2 is None else x2).T / x1.shape[1]
    ...     ntk = nngp
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
        expected = "a kernel such as analytic.kernel(spec), with nngp and ntk, or the matrices (nngp, ntk)"
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
        check_examples("x", x)
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"expected x : (N, ...) and y : (N, C) with one N, got {tuple(x.shape)} and {tuple(y.shape)}")
    return Ensemble(kernel, own(x), own(y), lr, ridge, by, float(momentum))  # `predict` evaluates the kernels


def check_wanted(kind: str, cov: bool = False, std: bool = False) -> None:
    """Raise ValueError for an unknown kind, or if both cov and std are requested."""
    if kind not in get_args(Kind):
        raise ValueError(f"kind expects 'ntk' or 'nngp', got {kind!r}")
    if cov and std:
        raise ValueError("predict expects cov=True or std=True, not both: the standard deviation is sqrt(diag(cov))")


def spread(a: Array, b: Array, prior: Array, eps: float) -> Array:
    """Return the symmetrised covariance prior + a b', (M, M), or, if prior is (M,), sqrt(prior + diag(a b')), (M,).

    eps : machine epsilon of the kernel.  Small negative variances, which rounding causes at training points, are set to
        0.  If the result is (M,), other negative variances raise ValueError.
    """
    xp = array_namespace(a, prior)
    if prior.ndim == 2:
        c = prior + a @ b.T
        c = (c + c.T) / 2
        variance, i = xp.diagonal(c), xp.arange(c.shape[0])
        rounding = (variance < 0) & (variance > -max(1e-10, 100 * eps) * (xp.max(xp.abs(prior)) if c.size else 0))
        c[i, i] = xp.where(rounding, xp.zeros_like(variance), variance)
        return c
    variance = prior + xp.sum(a * b, axis=1)
    if bool(xp.any(variance < -sqrt(eps) * (prior + xp.sum(xp.abs(a * b), axis=1)))):
        raise ValueError(
            f"the variance at x_test is {float(xp.min(variance)):.3g}, where the prior's is up to "
            f"{float(xp.max(prior)):.3g}: the kernels are not positive semi-definite; compute them in float64, or pass "
            "a ridge"
        )
    return xp.sqrt(xp.maximum(variance, xp.zeros_like(variance)))
