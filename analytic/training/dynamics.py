"""Solve gradient flow and gradient descent on the squared loss in closed form, for a constant tangent kernel.

    L = 1/(2N) sum ||f - y||^2  +  ridge/(2N) |theta - theta_0|^2            N examples, for any number of outputs

A linearised network f = f_0 + J (theta - theta_0) has weights theta_t = theta_0 + J' a_t at any time t.  Hence f_t(x) =
f_0(x) + Theta(x, X) a_t with Theta = J J'.  With learning rates lr S, theta_t = theta_0 + S J' a_t, Theta = J S J', and
the penalty is |S^-1/2 (theta - theta_0)|^2.  Gradient flow, d theta/dt = -lr grad L, is linear in a_t : (N, C):

    da/dt = -(lr/N) ((Theta + ridge I) a - (y - f_0)),    a_0 = 0
    a_t   = g_t(Theta + ridge I) (y - f_0),               g_t(mu) = (1 - e^(-lr t mu / N)) / mu

For gradient descent, theta <- theta - lr grad L, replace e^(-lr t mu / N) by (1 - lr mu / N)^t.  With momentum, theta
and the velocity are coupled by a 2 x 2 matrix for each eigenvalue.  Without ridge, the flow satisfies eqs. (8) to (11)
of Lee et al. 2019.  Their loss has no factor 1/N, so their eta equals lr/N here.

Units of time: t is the learning rate times the number of steps if lr = 1; t counts steps if lr is the learning rate.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import frexp, isfinite
from typing import Any

import numpy as np

from analytic.training.eigen import Spectrum, as_matrix, check_kernel, extremes, spectrum
from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_library
from minintk.validate import number, times


@dataclass(frozen=True, eq=False, repr=False)
class Dynamics(ABC):
    """Compute f_t(x) = f_0(x) + Theta(x, X) a_t at any t from one factorisation of Theta(X, X).

    Built by `gradient_flow` and `gradient_descent`.  y : (N, C).  full : True if the kernel is (N, C, N, C).
    momentum : m in gradient descent, or 0 for gradient flow.
    """

    spectrum: Spectrum
    y: Array
    lr: float
    full: bool
    dtype: Any
    momentum: float = 0.0

    @abstractmethod
    def gain(self, t: Array) -> Array:
        """Return g_t(mu), (T, n), for times t : (T,), inf included; its limit at mu = 0, or 0 if t = inf too."""

    def predict(self, t: Any, k_test_train: Array | None = None, f0: Any = 0.0, f0_test: Any = 0.0) -> Array:
        """Return f_0 + Theta(X, X) a_t on the training set, (N, C), or f_0(x) + Theta(x, X) a_t on a test set, (M, C).

        t : a number >= 0, inf included, or a one-dimensional array, which adds a leading axis T to the result.
            `gradient_flow` and `gradient_descent` define the unit of t.
        k_test_train : (M, N), or (M, C, N, C) for a full kernel.  Defaults to the training set's kernel.
        f0, f0_test : (N, C) and (M, C), the outputs at t = 0, which are 0 for a centred network or an ensemble's mean.

        Raises ValueError for negative t or NaN, or if the result depends on eigenvalues that are lost in rounding.
        Source: Lee et al. 2019, eqs. (9) to (11).
        """
        t = times(t)
        if k_test_train is None:
            if np.ndim(f0_test) or f0_test != 0:
                raise ValueError("predict(f0_test=...) is for test examples: give k_test_train too, the kernel (M, N)")
            h, start = self.spectrum.lam * self._gain(t), self._outputs("f0", f0, len(self.y))
            return self._result(t, h, self._residual(f0), start)
        k = self._test_kernel(k_test_train)
        f0_test = self._outputs("f0_test", f0_test, k_test_train.shape[0])
        return self._result(t, self._gain(t, k), self._residual(f0), f0_test, k)

    def coefficients(self, t: Any, f0: Any = 0.0) -> Array:
        """Return a_t = g_t(Theta + ridge I) (y - f_0), (N, C), the coefficients of f_t and theta_t:

            f_t(x) = f_0(x) + Theta(x, X) a_t,    theta_t = theta_0 + J' a_t = theta_0 + J.vjp(a_t)

        The arguments and errors are as in `predict`.  Directions in which Theta is exactly zero are omitted, because
        they change neither outputs nor weights.  Lee et al. 2019, eq. (8).
        """
        t = times(t)
        return self._result(t, self._gain(t), self._residual(f0), None)

    def gains(self, t: Any, k_test_train: Array) -> Array:
        """Return g_t(mu), (T, n), T = 1 for a single t, so that f_t = f_0 + k_test_train Q diag(g_t) Q' (y - f_0)."""
        return self._gain(times(t), self._test_kernel(k_test_train))

    def _gain(self, t: Array, k_test: Array | None = None) -> Array:
        """Return g_t(mu), (T, n), 0 in zero directions; raise ValueError if unresolved directions affect outputs."""
        s, rate, latest = self.spectrum, self.lr / (1 - self.momentum), float(np.max(t, initial=0.0))
        dropped = s.certain and (k_test is None or not s.reaches(k_test))
        if not dropped and s.zeros and latest * rate * s.resolution > len(self.y):
            raise ValueError(
                f"the outputs at t = {latest:g} depend on directions that cannot be resolved: {s.remedy()}, "
                f"or stop before t = {len(self.y) / (rate * s.resolution):.2g}"
            )
        gain = self.gain(to_library(np.atleast_1d(t), array_namespace(self.y)))
        if dropped:
            gain[:, : s.zeros] = 0.0
        return gain

    def _outputs(self, name: str, f: Any, count: int) -> Array:
        """Return f : (count, C) in float64, given an array of that shape or a number."""
        xp, C = array_namespace(self.y), self.y.shape[1]
        if not hasattr(f, "shape") or f.shape == ():
            if not isfinite(f):
                raise ValueError(f"{name} expects finite outputs, got {f!r}")
            return xp.full((count, C), float(f), dtype=xp.float64)
        array_namespace(self.y, f)
        check_floating(name, f)
        if tuple(f.shape) != (count, C):
            raise ValueError(f"{name} expects shape {(count, C)}, got {tuple(f.shape)}")
        check_finite(name, f)
        return xp.astype(f, xp.float64, copy=False)

    def _residual(self, f0: Any) -> Array:
        """Return Q' (y - f_0), (n, c), where (n, c) is (N, C), or (N C, 1) for a full kernel."""
        r = self.y - self._outputs("f0", f0, len(self.y))
        return self.spectrum.Q.T @ r.reshape((len(self.spectrum.lam), -1))

    def _test_kernel(self, k: Array) -> Array:
        """Check k_test_train, and return it as a matrix (m, n)."""
        array_namespace(self.y, k)
        check_floating("k_test_train", k)
        N, C = self.y.shape
        want = (C, N, C) if self.full else (N,)
        if k.ndim != len(want) + 1 or tuple(k.shape[1:]) != want:
            hint = ": transpose it" if k.ndim == 2 and k.shape[0] == N else ""
            raise ValueError(
                f"k_test_train expects shape (M, {', '.join(map(str, want))}), test examples first, "
                f"got {tuple(k.shape)}{hint}"
            )
        check_finite("k_test_train", k)
        return as_matrix(k)

    def _result(self, t: Array, h: Array, r: Array, f0: Array | None, k: Array | None = None) -> Array:
        """Return f_0 + [k] Q h_t r : ([T], m, C) in the caller's dtype, for all times at once."""
        xp, (n, c), T, size = array_namespace(r), r.shape, h.shape[0], power_of_two(r)
        a = self.spectrum.Q @ (h.T[:, :, None] * (r / size)[:, None, :]).reshape((n, T * c))
        a = (a if k is None else xp.astype(k, a.dtype, copy=False) @ a) * size  # h r could overflow
        f = xp.moveaxis(a.reshape((a.shape[0], T, c)), 1, 0).reshape((T, -1, self.y.shape[1]))
        f = f if f0 is None else f + f0
        return xp.astype(f if t.ndim else f[0], self.dtype, copy=False)


class GradientFlow(Dynamics):
    """Gradient flow: g_t(mu) = (1 - e^(-lr t mu / N)) / mu."""

    def gain(self, t: Array) -> Array:
        xp, mu = array_namespace(t), self.spectrum.mu
        some = xp.where(mu > 0, mu, xp.ones_like(mu))
        with np.errstate(over="ignore"):  # overflow gives the correct limit
            s = self.lr / len(self.y) * t[:, None]
            g = -xp.expm1(-s * some) / some
        return xp.where(mu > 0, g, xp.where(xp.isinf(s), xp.zeros_like(s), s))


@dataclass(frozen=True, eq=False, repr=False)
class GradientDescent(Dynamics):
    """Gradient descent: g_t(mu) = (1 - e_t) / mu, e_t = (1 - z)^t, z = lr mu / N.  With momentum m, e_t satisfies

    (e_t, w_t)' = M^t (1, 0)',    M = [[1 - z, -m], [z, m]],    e_(t+1) = (1 + m - z) e_t - m e_(t-1)
    """

    def gain(self, t: Array) -> Array:
        xp, mu, rate = array_namespace(t), self.spectrum.mu, self.lr / len(self.y)
        if bool(xp.any(part := t != xp.floor(t))):
            bad = f"got t = {float(t[part][0]):g}: round it, or use gradient_flow"
            raise ValueError(f"gradient_descent counts whole steps, {bad}")
        if float(xp.max(mu)) * rate >= 2 * (1 + self.momentum) - 1e-12 and bool(xp.any(xp.isinf(t))):
            raise ValueError(f"gradient descent has no limit t = inf: {self._bound()}")
        z, t = xp.where(mu > 0, rate * mu, xp.full_like(mu, 2.0**-1000)), t[:, None]  # mu = 0 gives the limit
        ends = xp.isinf(t)
        t = xp.where(ends, xp.zeros_like(t), t)
        with np.errstate(over="ignore", invalid="ignore"):  # `done` is checked below
            done = self._moved(z, t)
        if not bool(xp.all(xp.isfinite(done))):
            raise ValueError(f"gradient descent has overflowed at t = {float(xp.max(t)):g}: {self._bound()}")
        return xp.where(ends, 1.0 * (mu > 0), done) / z * rate

    def _moved(self, z: Array, t: Array) -> Array:
        """Return 1 - e_t, (T, n).  M^t is a product of powers M^(2^j), stored as D = M^(2^j) - I because z can be tiny.

        M^2 - I = D (2 I + D).  M is not diagonalised, so equal eigenvalues, at z = (1 +- sqrt(m))^2, cause no errors.
        For z > 1 + m, (-1)^t e_t replaces e_t: z becomes 2 (1 + m) - z, and the initial vector becomes (1, -2).
        """
        xp, m = array_namespace(z), self.momentum
        flips = z > 1 + m
        z = xp.where(flips, 2 * (1 + m) - z, z)
        a, b, c, d = -z, xp.full_like(z, -m), z, xp.full_like(z, m - 1)
        p = xp.zeros_like(z * t)  # (1 + p, q) = M^t (1, q_0) for the bits of t so far
        q = p - 2.0 * flips
        for j in range(int(xp.max(t)).bit_length()):
            odd = xp.remainder(xp.floor(t / 2.0**j), 2.0) == 1
            p, q = xp.where(odd, p + a * (1 + p) + b * q, p), xp.where(odd, q + c * (1 + p) + d * q, q)
            a, b, c, d = a * (2 + a) + b * c, b * (2 + a + d), c * (2 + a + d), d * (2 + d) + b * c
        return xp.where(flips, 1 - xp.where(xp.remainder(t, 2.0) == 1, -1 - p, 1 + p), -p)

    def _bound(self) -> str:
        """Describe the learning rate and its bound, for messages."""
        reach = 2 * (1 + self.momentum)
        bound = reach * len(self.y) / float(self.spectrum.mu[-1])
        return f"lr = {self.lr:g} must stay below {bound:.6g} = {reach:g} N / (lambda_max + ridge)"


def gradient_flow(k_train: Array, y: Array, *, lr: float = 1.0, ridge: float = 0.0) -> GradientFlow:
    """Solve gradient flow on L = 1/(2N) sum ||f - y||^2 in closed form: df/dt = -(lr/N) Theta (f - y).

        f_t = f_0 + Theta (Theta + ridge I)^-1 (I - e^(-lr t (Theta + ridge I) / N)) (y - f_0)

    k_train : (N, N), one kernel shared by all outputs, or (N, C, N, C): `minintk.ntk`, `minintk.ntk_full`,
        `analytic.kernel(spec).ntk(x)`, or any other kernel.  y : (N, C).
    lr : if 1, t is the learning rate times the number of steps; if equal to the learning rate, t counts steps.
    ridge : absolute, i.e. not scaled by the kernel; the flow then minimises L + ridge/(2N) |theta - theta_0|^2.

    One O(N^3) factorisation serves all t and takes about 6 s at N = 4000 on two cores.  Results have the arrays' common
    dtype.  Raises TypeError or ValueError for mixed libraries, wrong shapes, NaN, or an asymmetric or indefinite
    kernel, and MemoryError, before any computation, if too little memory is free.  Lee et al. 2019, eqs. (8) to (11).

    >>> import numpy as np
    >>> flow = gradient_flow(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [-1.0]]))
    >>> flow.predict([0.0, 2.0, np.inf])[:, :, 0].round(6)      # the difference decays with eigenvalue 1 over N = 2
    array([[ 0.      ,  0.      ],
           [ 0.632121, -0.632121],
           [ 1.      , -1.      ]])
    """
    return GradientFlow(*_factorised(k_train, y, lr, ridge))


def gradient_descent(
    k_train: Array, y: Array, *, lr: float = 1.0, momentum: float = 0.0, ridge: float = 0.0
) -> GradientDescent:
    """Solve full-batch gradient descent on L = 1/(2N) sum ||f - y||^2: t steps of f <- f - (lr/N) Theta (f - y).

        f_t = f_0 + Theta (Theta + ridge I)^-1 (I - (I - lr (Theta + ridge I) / N)^t) (y - f_0)

    Arguments and errors are as in `gradient_flow`, but t is a number of steps, an integer or inf.  momentum : m of the
    heavy-ball method, in [0, 1): v <- m v + grad L, theta <- theta - lr v, from v = 0, as in `minintk.SGD`.  Warns if
    lr is above the stability bound 2 (1 + m) N / (lambda_max + ridge): outputs then diverge, as in actual training.

    As lr -> 0 at fixed tau = lr / (1 - m)^2, t steps converge to `minintk.kernel_flow(..., tau=tau)` at the time lr t /
    (1 - m), with an error of order lr / (1 - m) = sqrt(lr tau).  For m = 0, the limit is gradient flow.

    >>> import numpy as np
    >>> k, y = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [-1.0]])
    >>> gradient_descent(k, y, lr=0.5).predict(1)[:, 0]         # -(lr/N) Theta (0 - y)
    array([ 0.25, -0.25])
    >>> gradient_descent(k, y, lr=0.5, momentum=0.5).predict([2, np.inf])[:, :, 0]
    array([[ 0.5625, -0.5625],
           [ 1.    , -1.    ]])
    """
    momentum = check_momentum(momentum)
    descent = GradientDescent(*_factorised(k_train, y, lr, ridge), momentum)
    if lr * float(descent.spectrum.mu[-1]) / len(y) > 2 * (1 + momentum) + 1e-12:
        warnings.warn(f"gradient descent diverges: {descent._bound()}", RuntimeWarning, stacklevel=2)
    return descent


def max_learning_rate(k_train: Array, momentum: float = 0.0) -> float:
    """Return the largest stable learning rate of gradient descent on 1/(2N) sum ||f - y||^2: 2 (1 + m) N / lambda_max.

    k_train : the training set's kernel, (N, N) if all outputs share it: `analytic.kernel(spec).ntk(x)`, or the
        `minintk.ntk` of a network with one output.  For a network with C > 1 outputs, pass `minintk.ntk_full`, of shape
        (N, C, N, C).  Do not pass its `minintk.ntk`, the mean over outputs: the result would be too large (by a
        measured factor of 1.2 to 4.5), and gradient descent at that rate would diverge.
    momentum : m in [0, 1) of the heavy-ball method, v <- m v + grad L, theta <- theta - lr v.
    Raises ValueError if the kernel is zero, or so small that every rate is stable.  Lee et al. 2019, supplement.

    >>> import numpy as np
    >>> max_learning_rate(np.array([[2.0, 1.0], [1.0, 2.0]]))
    1.3333333333333333
    """
    momentum = check_momentum(momentum)
    _, largest = extremes(k_train)
    return rate(2 * (1 + momentum) * k_train.shape[0], largest)


def critical_learning_rate(k_train: Array) -> float:
    """Return the rate 2 N / (lambda_min + lambda_max) below which Theorem 2.1 of Lee et al. 2019 holds.

    k_train : (N, N) or (N, C, N, C), the infinite-width NTK.  The loss is L = 1/(2N) sum ||f - y||^2.  The theorem also
        requires lambda_min > 0.  Raises ValueError if the kernel is zero, or so small that every rate is stable.

    >>> import numpy as np
    >>> critical_learning_rate(np.array([[2.0, 1.0], [1.0, 2.0]]))
    1.0
    """
    smallest, largest = extremes(k_train)
    return rate(2 * k_train.shape[0], smallest + largest)


def rate(count: float, largest: float) -> float:
    """Return count / largest.  Raises ValueError unless the quotient is finite."""
    if not largest > 0 or not isfinite(count / largest):
        raise ValueError(
            f"k_train expects an eigenvalue that bounds the learning rate, got {largest:.3g} as its largest: the "
            "gradient is 0 or underflows; scale the inputs or w_std up, or look for a layer that is dead"
        )
    return count / largest


def check_targets(y: Array) -> None:
    """Raise TypeError or ValueError unless the targets y are floating-point, finite and (N, C)."""
    check_floating("y", y)
    if y.ndim != 2 or 0 in y.shape:
        hint = ": a single output needs its axis, y[:, None]" if y.ndim == 1 else ""
        raise ValueError(f"y expects shape (N, C), got {tuple(y.shape)}{hint}")
    check_finite("y", y)


def check_momentum(momentum: Any) -> float:
    """Return the momentum m as a float.  Raises ValueError unless m is in [0, 1)."""
    if isinstance(momentum, str) or not 0 <= momentum < 1:
        raise ValueError(f"momentum expects a number in [0, 1), got {momentum!r}")
    return float(momentum)


def power_of_two(a: Array) -> float:
    """Return a power of two s such that the entries of a / s are below 2 in absolute value."""
    return 2.0 ** (frexp(float(array_namespace(a).max(abs(a))))[1] - 1)


def _factorised(k_train: Array, y: Array, lr: float, ridge: float) -> tuple[Spectrum, Array, float, bool, Any]:
    """Check the arguments, factorise the kernel, and return the fields of a `Dynamics`."""
    xp = array_namespace(k_train, y)
    lr, ridge = number("lr", lr), number("ridge", ridge, zero=True)
    check_targets(y)
    check_kernel("k_train", k_train)
    if k_train.shape[0] != y.shape[0] or (k_train.ndim == 4 and k_train.shape[1] != y.shape[1]):
        want = 2 * tuple(y.shape[: k_train.ndim // 2])
        raise ValueError(f"k_train expects shape {want} for y of shape {tuple(y.shape)}, got {tuple(k_train.shape)}")
    factors = spectrum(as_matrix(k_train), ridge)
    return factors, xp.astype(y, xp.float64), lr, k_train.ndim == 4, xp.result_type(k_train, y)
