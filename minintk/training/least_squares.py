"""Training the linearised network to its end at once, without ever forming its Jacobian.

    min_w |J w + f_0 - y|^2 + ridge |w|^2            J = J(theta_0) : (N C, P),   theta = theta_0 + w

solve_gram    function space: w = J' (J J' + ridge)^-1 (y - f_0), the Gram matrix J J' built layer by layer in blocks
              and factorised in place.  Memory N C x N C, whatever P.
solve_lsqr    parameter space: the iteration of Paige and Saunders 1982 through jvp and vjp.  Memory P, whatever N C.

Without ridge both give the solution of smallest |w|, the one that gradient descent from theta_0 arrives at: w lies in
the row space of J and J w = y - f_0, and there is only one such w.  So the residual alone certifies the answer, and
both report it.  At finite width the outputs share their layers, so J J' couples them: it is (N C) x (N C), all of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, inf, sqrt
from typing import Any

from minintk.arrays import Array, array_namespace, available_memory, check_finite, check_floating, on_host
from minintk.fast.cholesky import BLOCK, NotPositive, factorise, smallest_eigenvalue, solve_factorised
from minintk.models.empirical import _block_size, _check
from minintk.models.jacobian import Jacobian, full_contraction
from minintk.models.network import Model
from minintk.models.wrappers import Linearized
from minintk.progress import progress_of
from minintk.validate import number, whole

REFINEMENTS = 8


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The solved linearised model.

    theta : (P,), theta_0 + w.  a : (N, C) with w = J' a, None from `solve_lsqr`.  steps : refinements, or iterations.
    residual : |y - f_0 - J w - ridge a| / |y - f_0|, what rounding or stopping early left; from `solve_lsqr` without
    ridge likewise, with ridge |J' r - ridge w| / |J' (y - f_0)|.  Calling it gives f_lin(theta, x).
    """

    model: Linearized
    theta: Array
    a: Array | None
    residual: float
    steps: int

    def __call__(self, x: Array) -> Array:
        """f_0(x) + J(x) w : (M, C), some examples at a time."""
        self.model.check(self.theta, x)
        rows = Rows(self.model.model, self.model.theta0, x, available_memory(array_namespace(x)) // 4)
        return rows.f0 + rows.jvp(self.theta - self.model.theta0)

    def __repr__(self) -> str:
        return f"Solution(theta {tuple(self.theta.shape)}, residual={self.residual:.2g}, steps={self.steps})"


def solve_gram(
    model: Model,
    theta0: Array,
    x: Array,
    y: Array,
    *,
    ridge: float = 0.0,
    t: float = inf,
    memory: int | None = None,
    progress: bool = False,
) -> Solution:
    """Least squares in function space, w = J' (J J' + ridge)^-1 (y - f_0), by Cholesky in place.

    model : linearised at theta0 : (P,).  x : (N, *input_shape), y : (N, C).  float32 or float64 throughout.
    t : lr x steps of gradient flow on L = 1/(2N) (|f - y|^2 + ridge |w|^2), inf for the end; a finite t takes the
        spectral filter (1 - exp(-t mu / N)) / mu in place of 1 / mu, and a factorisation about ten times dearer.
    memory : bytes it may take, nine tenths of what is free unless given; MemoryError says what is needed.
    progress : a bar with the time left, on stderr.

    The first answer is refined with the residual of the model itself, r = y - f_0 - J w - ridge a through jvp, as long
    as that shrinks: rounding in the Gram matrix is gone from the result.  Nothing is ever added to its diagonal but
    `ridge`.  ValueError, with the smallest eigenvalue and what to do, where the matrix is singular or the refinement
    does not converge.  Samarin et al. 2020, eqs. (2) and (4); Lee et al. 2019, eq. (8).

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(1)), (3,))
    >>> x, y = np.eye(3), np.array([[1.0], [-1.0], [1.0]])
    >>> solved = solve_gram(net, net.init(np.random.default_rng(0)), x, y)
    >>> bool(np.allclose(solved(x), y))
    True
    """
    total = _budget(theta0, memory)
    ridge = number("ridge", ridge, zero=True)
    b, rows = _problem(model, theta0, x, y, total // 8)
    if t != inf and (isinstance(t, bool) or not hasattr(t, "__float__") or not t >= 0):
        raise ValueError(f"t expects a number >= 0 (lr x steps), inf for the end, got {t!r}")
    n = b.size
    if ridge == 0 and t == inf and n > model.size:
        raise ValueError(
            f"{n} equations for {model.size} parameters: J J' is singular; pass ridge > 0, or use mn.solve_lsqr, "
            "which gives the least-squares solution there too"
        )
    xp, itemsize = array_namespace(theta0), 8 if t < inf else theta0.dtype.itemsize
    budget = total - total // 8
    copies = 1 if t == inf else 5
    if copies * itemsize * n * n > budget:
        raise MemoryError(
            f"the Gram matrix of {n} rows takes {copies * itemsize * n * n / 2**30:.3g} GiB, the bound is "
            f"{budget / 2**30:.3g} GiB: use mn.solve_lsqr, float32, fewer examples, or a larger memory="
        )
    with progress_of("Gram matrix", 1.0, progress) as advance:
        k = gram_matrix(model, theta0, x, budget, advance, both=t < inf)
    if t < inf:
        return _stopped(model, theta0, k, b, rows, ridge, t)
    _add_to_diagonal(k, ridge)
    scale = float(xp.max(xp.abs(xp.diagonal(k))))
    with progress_of("Cholesky", 1.0, progress) as advance:
        try:
            spare = (budget - k.nbytes) // (6 * n * itemsize)  # a panel, and what it takes to solve for it
            factorise(k, block=max(16, min(BLOCK, spare)), report=advance)
        except NotPositive as error:
            raise ValueError(_singular(f"at most {error.bound:.3g}", k, scale)) from None
    return _refined(model, theta0, k, b, rows, ridge, scale)


def _refined(
    model: Model, theta0: Array, k: Array, b: Array, rows: Rows, ridge: float, scale: float
) -> Solution:  # fmt: skip
    """a += (J J' + ridge)^-1 r,  r = b - J J' a - ridge a, as long as r shrinks."""
    xp, total = array_namespace(b), _norm(b)
    a, w, r, left, new = xp.zeros_like(b), xp.zeros_like(theta0), b, 1.0 if total else 0.0, 0.0
    steps = 0
    while steps < REFINEMENTS and left > 0:
        da = solve_factorised(k, r.reshape((-1, 1))).reshape(b.shape)
        nearer = w + rows.vjp(da)
        r = b - rows.jvp(nearer) - ridge * (a + da)
        new = _norm(r) / total
        if not new < left / 2:
            break
        a, w, left, steps = a + da, nearer, new, steps + 1
    if not left <= sqrt(_eps(b)):
        lowest = f"about {smallest_eigenvalue(k):.3g}"
        raise ValueError(f"rounding leaves {min(new, left):.2g} of y - f_0 unexplained: {_singular(lowest, k, scale)}")
    return Solution(Linearized(model, theta0), theta0 + w, a, left, steps)


def _stopped(
    model: Model, theta0: Array, k: Array, b: Array, rows: Rows, ridge: float, t: float
) -> Solution:  # fmt: skip
    """a = g_t(J J' + ridge) b,  g_t(mu) = (1 - exp(-t mu / N)) / mu,  in float64."""
    xp, N = array_namespace(b), b.shape[0]
    lam, Q = xp.linalg.eigh(k)
    mu = xp.maximum(lam, xp.zeros_like(lam)) + ridge
    some = xp.where(mu > 0, mu, xp.ones_like(mu))
    g = xp.where(mu > 0, -xp.expm1(-t / N * some) / some, xp.full_like(mu, t / N))
    a = (Q @ (g[:, None] * (Q.T @ xp.astype(b, xp.float64).reshape((-1, 1))))).reshape(b.shape)
    a = xp.astype(a, b.dtype)
    w = rows.vjp(a)
    total = _norm(b)
    left = _norm(b - rows.jvp(w) - ridge * a) / total if total else 0.0
    return Solution(Linearized(model, theta0), theta0 + w, a, left, 0)


def gram_matrix(
    model: Model, theta: Array, x: Array, memory: int, report: Callable[[float], None] = lambda share: None, *,
    both: bool = False,
) -> Array:  # fmt: skip
    """J J' : (N C, N C), block by block; the lower triangle, and where `both` also the upper one, in float64 then.

    memory : bytes for it and the blocks.  report : told each block's share of the work.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Dense(1), (2,))
    >>> gram_matrix(net, np.ones(2), np.eye(2), 2**20)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    xp, N, C = array_namespace(theta, x), x.shape[0], model.outputs
    dtype = xp.float64 if both else theta.dtype
    k = xp.zeros((N * C, N * C), dtype=dtype)
    size = min(_block_size(model, theta, N, False, k.nbytes, memory), max(1024, -(-N // 16)))
    for i in range(0, N, size):
        J = model._linearize(theta, x[i : i + size])[1]
        for j in range(0, i + size, size):
            J2 = J if j == i else model._linearize(theta, x[j : j + size])[1]
            block = J._gram(None if J2 is J else J2, full_contraction)
            at = slice(i * C, (i + size) * C), slice(j * C, (j + size) * C)
            block = block.reshape((block.shape[0] * C, -1))
            k[at] = block
            if both:
                k[at[::-1]] = block.T
            report((1 if i == j else 2) * (block.shape[0] / (N * C)) * (block.shape[1] / (N * C)))
    return k


# --------------------------------------------------------------------------------------- parameter space


def solve_lsqr(
    model: Model,
    theta0: Array,
    x: Array,
    y: Array,
    *,
    ridge: float = 0.0,
    steps: int | None = None,
    tol: float | None = None,
    memory: int | None = None,
    progress: bool = False,
) -> Solution:
    """Least squares in parameter space, by LSQR: each step one jvp and one vjp over all examples.

    Minimum norm without ridge; where no w fits y, the smallest of those that come closest.  Arguments as for
    `solve_gram`, and
    steps : stop there, whatever is left: after s steps w is the best in the span of (J'J)^i J'(y - f_0), i < s, which
        regularises as stopping descent does, and spends far fewer steps.
    tol : relative size of what may be left, ten roundings unless given: |r| <= tol (|y - f_0| + |J| |w|), or
        |J' r - ridge w| <= tol |J| |r|.

    Without `steps`, RuntimeWarning where 4 min(N C, P) + 100 steps do not reach `tol`.  Paige and Saunders 1982.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(1)), (3,))
    >>> x, y = np.eye(3), np.array([[1.0], [-1.0], [1.0]])
    >>> solved = solve_lsqr(net, net.init(np.random.default_rng(0)), x, y)
    >>> bool(np.allclose(solved(x), y)), solved.steps <= 4
    (True, True)
    """
    ridge = number("ridge", ridge, zero=True)
    b, rows = _problem(model, theta0, x, y, _budget(theta0, memory))
    if steps is not None:
        whole("steps", steps)
    tol = 10 * _eps(b) if tol is None else float(tol)
    if not 0 < tol < 1:
        raise ValueError(f"tol expects a number between 0 and 1, got {tol!r}")
    limit = steps if steps is not None else _limit(min(b.size, model.size))
    with progress_of("LSQR", limit, progress) as advance:
        w, done, fits = _lsqr(rows, b, sqrt(ridge), limit, tol, advance)
    if not fits and steps is None:
        warnings.warn(
            f"LSQR did not reach tol={tol:.1g} in {limit} steps: pass steps= to stop early on purpose, ridge > 0, a "
            "larger tol, or use mn.solve_gram",
            RuntimeWarning,
            stacklevel=2,
        )
    r = b - rows.jvp(w)
    against = b if ridge == 0 else rows.vjp(b)
    total = _norm(against)
    left = _norm(r if ridge == 0 else rows.vjp(r) - ridge * w) / total if total else 0.0
    return Solution(Linearized(model, theta0), theta0 + w, None, left, done)


def _lsqr(
    J: Rows, b: Array, damp: float, limit: int, tol: float, report: Callable[[float], None]
) -> tuple[Array, int, bool]:
    """(w, steps, whether tol was reached): Golub-Kahan bidiagonalisation, and QR of the bidiagonal as it grows.

    beta u = J v - alpha u,   alpha v = J' u - beta v        the next column
    (rho, theta, phi)                                        one rotation of it
    w += phi/rho d,   d = v - theta/rho d                    the next solution
    """
    xp = array_namespace(b)
    w = xp.zeros_like(J.theta)
    beta = total = _norm(b)
    if not beta:
        return w, 0, True
    u = b / beta
    v = J.vjp(u)
    alpha = _norm(v)
    if not alpha:
        return w, 0, True
    v = v / alpha
    d, rho_bar, phi_bar, size, tail = v, alpha, beta, 0.0, 0.0
    for step in range(1, limit + 1):
        u = J.jvp(v) - alpha * u
        size, beta = hypot(size, alpha, damp), _norm(u)
        if beta:
            u = u / beta
            v = J.vjp(u) - beta * v
            size, alpha = hypot(size, beta), _norm(v)
            v = v / alpha if alpha else v
        else:
            alpha = 0.0
        rho_1 = hypot(rho_bar, damp)  # the ridge, rotated away
        psi, phi_bar = damp / rho_1 * phi_bar, rho_bar / rho_1 * phi_bar
        rho = hypot(rho_1, beta)
        c, s = rho_1 / rho, beta / rho
        theta, rho_bar, phi, phi_bar = s * alpha, -c * alpha, c * phi_bar, s * phi_bar
        w = w + (phi / rho) * d
        d = v - (theta / rho) * d
        tail = hypot(tail, psi)
        r = hypot(phi_bar, tail)
        report(1)
        if r <= tol * (total + size * _norm(w)) or alpha * abs(phi * s) <= tol * size * r:
            return w, step, True
    return w, limit, False


class Rows:
    """J and f_0 over all examples, a piece at a time; the pieces' Jacobians are kept where they fit `memory` bytes.

    jvp : (P,) -> (N, C).  vjp : (N, C) -> (P,).  f0 : (N, C).
    """

    def __init__(self, model: Model, theta: Array, x: Array, memory: int) -> None:
        xp, N = array_namespace(theta, x), x.shape[0]
        self.model, self.theta, self.x = model, theta, x
        layers, widest = model.footprint
        each = theta.dtype.itemsize * (layers + 4 * widest)
        limit = min(memory // 2, 2**27 if on_host(xp) else 2**32)
        step = max(1, min(N, limit // each))
        self.pieces = [slice(i, min(i + step, N)) for i in range(0, max(1, N), step)]
        keep = theta.dtype.itemsize * layers * N <= memory // 2
        self.kept: list[Jacobian | None] = []
        f0 = []
        for at in self.pieces:
            f, J = model._linearize(theta, x[at])
            f0.append(f)
            self.kept.append(J if keep else None)
        self.f0 = f0[0] if len(f0) == 1 else xp.concat(f0, axis=-2)

    def _jacobian(self, i: int) -> Jacobian:
        return self.kept[i] or self.model._linearize(self.theta, self.x[self.pieces[i]])[1]

    def jvp(self, v: Array) -> Array:
        """J v : (N, C)."""
        parts = [self._jacobian(i)._jvp(v) for i in range(len(self.pieces))]
        return parts[0] if len(parts) == 1 else array_namespace(v).concat(parts, axis=-2)

    def vjp(self, u: Array) -> Array:
        """J' u : (P,)."""
        total = self._jacobian(0).vjp(u[self.pieces[0]])
        for i in range(1, len(self.pieces)):
            total += self._jacobian(i).vjp(u[self.pieces[i]])
        return total


# ------------------------------------------------------------------------------------------------ checks


def _problem(model: Model, theta0: Array, x: Array, y: Array, memory: int) -> tuple[Array, Rows]:
    """(y - f_0, J), checked."""
    _check(model, theta0, x, None)
    if theta0.ndim != 1:
        raise ValueError(
            f"theta0 expects one network, ({model.size},), got {tuple(theta0.shape)}: solve member by member"
        )
    check_finite("theta0", theta0)
    check_floating("y", y)
    if tuple(y.shape) != (x.shape[0], model.outputs) or not len(y):
        hint = ": a single output needs a column, y[:, None]" if y.ndim == 1 and model.outputs == 1 else ""
        raise ValueError(f"y expects shape {(x.shape[0], model.outputs)}, N >= 1, got {tuple(y.shape)}{hint}")
    check_finite("y", y)
    if y.dtype != theta0.dtype:
        raise TypeError(f"y must have the dtype of theta0, {theta0.dtype}, got {y.dtype}: y.astype(theta0.dtype)")
    rows = Rows(model, theta0, x, memory)
    return y - rows.f0, rows


def _singular(smallest: str, k: Array, scale: float) -> str:
    """What is wrong with a Gram matrix, and what to do."""
    rounding = _eps(k) * k.shape[0] * scale
    double = "" if k.dtype.itemsize == 8 else "theta0, x and y in float64, "
    return (
        f"the smallest eigenvalue of J J' + ridge is {smallest}, its largest entry {scale:.3g}, and rounding in "
        f"{k.dtype} may reach {rounding:.1g}: pass a larger ridge ({rounding:.0e} covers it), {double}remove examples "
        "that coincide, or use mn.solve_lsqr, which factorises nothing"
    )


def _budget(theta: Array, memory: int | None) -> int:
    return 9 * available_memory(array_namespace(theta)) // 10 if memory is None else int(number("memory", memory))


def _limit(rank: int) -> int:
    """Steps of LSQR: `rank` would do without rounding."""
    return 4 * rank + 100


def _add_to_diagonal(k: Array, ridge: float) -> None:
    if ridge:
        i = array_namespace(k).arange(k.shape[0])
        k[i, i] += ridge


def _norm(a: Array) -> float:
    """|a|, in float64 whatever the dtype."""
    xp = array_namespace(a)
    top = float(xp.max(xp.abs(a))) if a.size else 0.0
    if not 0 < top < inf:
        return top
    return top * sqrt(float(xp.sum(xp.astype(a / top, xp.float64, copy=False) ** 2)))


def _eps(a: Any) -> float:
    return float(array_namespace(a).finfo(a.dtype).eps)
