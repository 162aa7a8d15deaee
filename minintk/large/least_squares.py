"""Compute the fully trained linearised network directly, without forming its Jacobian.

    min_w |J w + f_0 - y|^2 + ridge |w|^2            J = J(theta_0) S^1/2 : (N C, P),   theta = theta_0 + S^1/2 w

The diagonal matrix S contains the learning-rate scales of the parametrization (see `minintk.models.empirical`).

`solve_gram` works in function space and stores the tangent kernel J J', (N C, N C).  It builds the kernel layer by
layer, in blocks, and factorises it (in place on the host).  `solve_lsqr` works in parameter space without a matrix.

Without ridge, both return the solution w of J w = y - f_0 that lies in the row space of J.  This solution has the
smallest norm, and gradient descent converges to it.  Since w is built in the row space, a small residual certifies w.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, available_memory, on_host, scipy_module, to_host, to_library
from minintk.models.empirical import blocks, check_kernel, contraction
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model
from minintk.models.wrappers import Linearized
from minintk.threads import single_threaded_blas
from minintk.training.losses import check_problem, mse
from minintk.validate import number, whole

MAX_REFINEMENTS = 8
"""The maximum number of solves with the Cholesky factor, which includes the solve before the refinements."""

THREADS_FROM = 4096
"""Up to this many rows, BLAS is limited to one thread: more threads take ten times as long on a busy machine."""


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The solution of a least-squares problem, as a linearised model.  Calling it returns f_lin(theta, x).

    theta : (P,), theta_0 + S^1/2 w.   a : (N, C) with w = J' a, or None from `solve_lsqr`.
    steps : number of accepted solves with the Cholesky factor (0 with t or rcond), or of LSQR steps.
    residual : |y - f_0 - J w - ridge a| / |y - f_0|, or |J' (y - f_0 - J w) - ridge w| / |J' (y - f_0)| if `solve_lsqr`
        was called with ridge.
    """

    model: Linearized
    theta: Array
    a: Array | None
    residual: float
    steps: int

    def __call__(self, x: Array) -> Array:
        """Return f_0(x) + J(x) w : (M, C), computed in chunks of examples."""
        self.model.check(self.theta, x)
        J = ChunkedJacobian(self.model.model, self.model.theta0, x, available_memory(array_namespace(x)) // 4)
        return J.f0 + J.jvp(self.theta - self.model.theta0)

    def __repr__(self) -> str:
        return f"Solution(theta {tuple(self.theta.shape)}, residual={self.residual:.2g}, steps={self.steps})"


def solve_gram(
    model: Model, theta0: Array, x: Array, y: Array, *, ridge: float = 0.0, rcond: float | None = None, t: float = inf,
    memory: int | None = None,
) -> Solution:  # fmt: skip
    """Solve the least-squares problem in function space: w = J' (J J' + ridge)^-1 (y - f_0), by Cholesky factorisation.

    model : linearised at theta0.  theta0 : (P,).  x : (N, *input_shape), y : (N, C).  Arrays are float32 or float64.
    t : time lr x steps of gradient flow on L = 1/(2N) (|f - y|^2 + ridge |w|^2), or inf for its limit.  A finite t
    replaces 1 / mu by (1 - exp(-t mu / N)) / mu for eigenvalues mu of J J' + ridge; this takes about ten times as long.
    rcond : cutoff for the pseudo-inverse of J J', as in numpy.linalg.pinv.  Eigenvalues up to rcond times the largest
        (at least eps of the dtype) count as 0.  A pseudo-inverse takes about ten times as long.
    memory : limit in bytes, by default nine tenths of the free memory.  Raises MemoryError if more is required.

    The Cholesky solution is refined up to 7 times while each step at least halves |y - f_0 - J w - ridge a|.  Only
    `ridge` is added to the diagonal.  Raises ValueError if the matrix is singular or the refinement does not converge.
    See Samarin et al. 2022, eqs. (2) and (4); Lee et al. 2019, eq. (8).

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(1)), (3,))
    >>> x, y = np.eye(3), np.array([[1.0], [-1.0], [1.0]])
    >>> solved = solve_gram(net, net.init(np.random.default_rng(0)), x, y)
    >>> bool(np.allclose(solved(x), y))
    True
    """
    total = _budget(theta0, memory)
    ridge = number("ridge", ridge, zero=True)
    b, J = _problem(model, theta0, x, y, total // 8)
    if t != inf and (isinstance(t, bool) or not hasattr(t, "__float__") or not t >= 0):
        raise ValueError(f"t expects a number >= 0 (lr x steps), inf for the end, got {t!r}")
    n = b.size
    cut, spectral = 0.0 if rcond is None else number("rcond", rcond), t < inf or rcond is not None
    if cut > 0 and ridge > 0:
        raise ValueError(f"rcond={rcond:g} and ridge={ridge:g} are two ways out of a singular J J': give one of them")
    if ridge == 0 and not spectral and n > model.size:
        singular = f"{n} equations for {model.size} parameters: J J' is singular"
        raise ValueError(f"{singular}; pass ridge > 0 or rcond, or use mn.solve_lsqr, for the least-squares solution")
    xp, budget = array_namespace(theta0), total - total // 8
    itemsize = 8 if spectral else theta0.dtype.itemsize
    copies = 5 if spectral else 1 if on_host(xp) else 2  # LAPACK factorises in place, CuPy factorises a copy
    need = copies * itemsize * n * n + 5 * theta0.nbytes  # w, the next w, S^1/2 w, ...
    if need > budget:
        size = f"the Gram matrix of {n} rows and w take {need / 2**30:.3g} GiB, the limit is {budget / 2**30:.3g} GiB"
        raise MemoryError(f"{size}: use mn.solve_lsqr, float32, fewer examples, or a larger memory=")
    dtype = xp.float64 if spectral else None
    k = blocks(model, theta0, x, None, contraction(True, model, None), budget, dtype).reshape((n, n))
    if spectral:
        return _filtered(model, theta0, k, b, J, ridge, cut if ridge else max(cut, _eps(theta0)), t)
    _add_to_diagonal(k, ridge)
    return _refined(model, theta0, Factor(k), b, J, ridge)


class Factor:
    """Factor K = J J' + ridge by Cholesky (in place on the host).  Raise ValueError unless K is positive definite."""

    def __init__(self, k: Array) -> None:
        xp, n = array_namespace(k), k.shape[0]
        self.linalg, largest = scipy_module(xp, "linalg"), float(xp.max(xp.diagonal(k)))
        double = "" if k.dtype.itemsize == 8 else "theta0, x and y in float64, "
        self.remedy = (
            f"the largest entry of J J' + ridge is {largest:.3g}, of which rounding in {k.dtype} may leave "
            f"{_eps(k) * n * largest:.1g}: pass a larger ridge ({_eps(k) * n * largest:.0e} covers it), {double}remove "
            "examples that coincide, pass rcond=1e-10 for the pseudo-inverse, or use mn.solve_lsqr, without a factor"
        )
        try:
            if on_host(xp):  # the lower triangle by rows is LAPACK's upper triangle by columns
                with single_threaded_blas() if n <= THREADS_FROM else nullcontext():
                    self.linalg.cho_factor(k.T, overwrite_a=True, check_finite=False)
            self.L = k if on_host(xp) else xp.linalg.cholesky(k)
        except np.linalg.LinAlgError as error:
            raise ValueError(f"J J' + ridge is not positive definite ({error}); {self.remedy}") from None

    def solve(self, b: Array) -> Array:
        """Return K^-1 b."""
        half = self.linalg.solve_triangular(self.L, b.reshape((-1, 1)), lower=True, check_finite=False)
        return self.linalg.solve_triangular(self.L, half, lower=True, trans=1, check_finite=False).reshape(b.shape)


def _refined(model: Model, theta0: Array, K: Factor, b: Array, J: ChunkedJacobian, ridge: float) -> Solution:
    """Refine a += (J J' + ridge)^-1 r, r = b - J J' a - ridge a, while |r| halves, at most MAX_REFINEMENTS times."""
    xp, total = array_namespace(b), _norm(b)
    a, w, r, left, new = xp.zeros_like(b), xp.zeros_like(theta0), b, 1.0 if total else 0.0, 0.0
    steps = 0
    while steps < MAX_REFINEMENTS and left > 0:
        da = K.solve(r)
        nearer = w + J.vjp(da)
        r = b - J.jvp(nearer) - ridge * (a + da)
        new = _norm(r) / total
        if not new < left / 2:
            break
        a, w, left, steps = a + da, nearer, new, steps + 1
    if not left <= sqrt(_eps(b)):
        raise ValueError(f"rounding leaves {min(new, left):.2g} of y - f_0 unexplained; {K.remedy}")
    return Solution(Linearized(model, theta0), theta0 + J.root * w, a, left, steps)


def _filtered(
    model: Model, theta0: Array, k: Array, b: Array, J: ChunkedJacobian, ridge: float, cut: float, t: float
) -> Solution:
    """Compute a = g_t(J J' + ridge) b in float64.  g_t(mu) = (1 - exp(-t mu / N)) / mu, or 0 if mu <= `cut` max(mu)."""
    xp, N = array_namespace(b), b.shape[0]
    lam, Q = xp.linalg.eigh(k)
    mu = xp.maximum(lam, xp.zeros_like(lam)) + ridge
    some = xp.where(mu > 0, mu, xp.ones_like(mu))
    g = xp.where(mu > 0, -xp.expm1(-t / N * some) / some, xp.full_like(mu, t / N)) if t < inf else 1 / some
    if cut > 0:
        g = xp.where(mu > cut * xp.max(mu), g, xp.zeros_like(g))
    a = (Q @ (g[:, None] * (Q.T @ xp.astype(b, xp.float64).reshape((-1, 1))))).reshape(b.shape)
    a = xp.astype(a, b.dtype)
    w = J.vjp(a)
    return Solution(Linearized(model, theta0), theta0 + J.root * w, a, _ratio(b - J.jvp(w) - ridge * a, b), 0)


def solve_lsqr(
    model: Model, theta0: Array, x: Array, y: Array, *, ridge: float = 0.0, steps: int | None = None,
    tol: float | None = None, memory: int | None = None,
) -> Solution:  # fmt: skip
    """Solve the least-squares problem in parameter space by LSQR.  Each step needs a jvp and a vjp for all examples.

    Without ridge, w is the solution of minimum norm, or the least-squares solution of minimum norm if no w fits y.  The
    arguments are those of `solve_gram` except rcond and t, plus those below.  `memory` limits the chunks of examples;
    about six vectors of the size of theta are needed in addition.  Below, r = y - f_0 - J w.
    steps : number s of steps.  Few steps act like early stopping: w is in the span of (J'J)^i J'(y - f_0), i < s.
    tol : relative tolerance, by default ten times the machine epsilon.  LSQR stops when |r| <= tol (|y - f_0| +
        |J| |w|) or |J' r - ridge w| <= tol |J| |r|.

    Without `steps`, issues a RuntimeWarning if 4 min(N C, P) + 100 steps do not reach tol.  See Paige, Saunders 1982.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(1)), (3,))
    >>> x, y = np.eye(3), np.array([[1.0], [-1.0], [1.0]])
    >>> solved = solve_lsqr(net, net.init(np.random.default_rng(0)), x, y)
    >>> bool(np.allclose(solved(x), y)), solved.steps <= 4
    (True, True)
    """
    ridge = number("ridge", ridge, zero=True)
    b, J = _problem(model, theta0, x, y, _budget(theta0, memory))
    if steps is not None:
        whole("steps", steps)
    tol = 10 * _eps(b) if tol is None else float(tol)
    if not 0 < tol < 1:
        raise ValueError(f"tol expects a number between 0 and 1, got {tol!r}")
    limit = steps if steps is not None else 4 * min(b.size, model.size) + 100  # rank(J) suffices in exact arithmetic
    w, stop, done = _lsqr(J, b, sqrt(ridge), limit, tol)
    if stop == 7 and steps is None:  # SciPy's code for the step limit
        warnings.warn(
            f"LSQR did not reach tol={tol:.1g} in {done} steps: pass steps= to stop early on purpose, ridge > 0, a "
            "larger tol, or use mn.solve_gram", RuntimeWarning, stacklevel=2,
        )  # fmt: skip
    r = b - J.jvp(w)
    left = _ratio(r, b) if ridge == 0 else _ratio(J.vjp(r) - ridge * w, J.vjp(b))
    return Solution(Linearized(model, theta0), theta0 + J.root * w, None, left, done)


def _lsqr(J: ChunkedJacobian, b: Array, damp: float, limit: int, tol: float) -> tuple[Array, int, int]:
    """Return (w, SciPy's stopping code, steps).  LSQR's vectors stay on the host; jvp and vjp run on x's device."""
    from scipy.sparse.linalg import lsqr

    how = {"atol": tol, "btol": tol, "conlim": 0, "iter_lim": limit}
    w, stop, steps, *_ = lsqr(J.as_linear_operator(), to_host(b).ravel(), damp, **how)
    return to_library(w.astype(str(b.dtype), copy=False), array_namespace(b)), stop, steps


class ChunkedJacobian(Jacobian):
    """J and f_0 : (N, C), computed in chunks of examples that fit into `memory` bytes.   root : S^1/2."""

    def __init__(self, model: Model, theta: Array, x: Array, memory: int, root: Array | float = 1.0) -> None:
        xp, N = array_namespace(theta, x), x.shape[0]
        self.model, self.theta, self.x, self.root = model, theta, x, root
        layers, widest = model.footprint
        each = theta.dtype.itemsize * (layers + 4 * widest)
        limit = min(memory // 2, 2**27 if on_host(xp) else 2**32)
        step = max(1, min(N, limit // each))
        self.chunks = [slice(i, min(i + step, N)) for i in range(0, max(1, N), step)]
        keep = theta.dtype.itemsize * layers * N <= memory // 2
        both = ((f, J if keep else None) for f, J in (model.forward(theta, x[at]) for at in self.chunks))
        f0, self.kept = zip(*both, strict=True)
        self.f0 = f0[0] if len(f0) == 1 else xp.concat(f0, axis=-2)
        self.size, self.outputs, self.ensemble, self.like = model.size, (N, model.outputs), None, theta

    def _jacobian(self, i: int) -> Jacobian:
        return self.kept[i] or self.model.forward(self.theta, self.x[self.chunks[i]])[1]

    def push(self, v: Array) -> Array:
        v = self.root * v
        parts = [self._jacobian(i).push(v) for i in range(len(self.chunks))]
        return parts[0] if len(parts) == 1 else array_namespace(v).concat(parts, axis=-2)

    def pull(self, u: Array, out: Array) -> None:
        out[...] = 0
        for i, at in enumerate(self.chunks):
            out += self._jacobian(i).vjp(u[..., at, :])
        out *= self.root


def _problem(model: Model, theta0: Array, x: Array, y: Array, memory: int) -> tuple[Array, ChunkedJacobian]:
    """Check the arguments and return (y - f_0, J)."""
    check_kernel(model, theta0, x, None)
    if theta0.ndim != 1:
        raise ValueError(f"theta0 expects one network, ({model.size},), got {theta0.shape}: solve member by member")
    check_problem(model, theta0, x, y, mse)
    S = model.layout.learning_rate_scales(like=theta0)
    J = ChunkedJacobian(model, theta0, x, memory, 1.0 if S is None else S**0.5)
    return y - J.f0, J


def _budget(theta: Array, memory: int | None) -> int:
    return 9 * available_memory(array_namespace(theta)) // 10 if memory is None else int(number("memory", memory))


def _add_to_diagonal(k: Array, ridge: float) -> None:
    i = array_namespace(k).arange(k.shape[0])
    k[i, i] += ridge


def _norm(a: Array) -> float:
    """Return |a|, summed in float64 for any dtype."""
    xp = array_namespace(a)
    return float(xp.linalg.vector_norm(xp.astype(a, xp.float64, copy=False)))


def _ratio(r: Array, b: Array) -> float:
    """Return |r| / |b|, or 0 for b = 0, because w = 0 is then the solution."""
    total = _norm(b)
    return _norm(r) / total if total else 0.0


def _eps(a: Any) -> float:
    return float(array_namespace(a).finfo(a.dtype).eps)
