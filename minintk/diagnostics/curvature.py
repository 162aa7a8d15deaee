"""Compute two measures of curvature in parameter space, kappa and the sharpness.

    kappa = |f - y| |D^2 f| / |D f|^2             training is lazy if kappa << 1 (Chizat, Oyallon and Bach 2019)
    H v = J' (d2L/df2) J v + D^2(r . f)[v, .]                    H: the loss's Hessian; r = dL/df held fixed

|D f| and |D^2 f| are the operator norms of the first and second derivatives with respect to theta: the maxima of |J v|
and |D^2 f[v, v]| over |S^-1/2 v| = 1, where S holds the learning-rate scales.  Gradient descent with the rates lr S is
descent with the rate lr on S^-1/2 theta, so lengths are measured in S^-1/2 theta.  |D f|^2 and the sharpness are the
largest eigenvalues of J S J' and S^1/2 H S^1/2.  Equivalent parametrizations give the same values.

To first order, f = y requires a step of at least |f - y| / |D f|, which changes J by up to |D^2 f| times its length.
kappa is this change over |D f|.  At width n, kappa is of order n^-1/2 in NTK, and of order 1 in muP and mean field.

Gradient descent near a minimum is stable if lr x sharpness < 2 (edge of stability: Cohen et al. 2021; catapult:
Lewkowycz et al. 2020).  The model linearised at theta has the Hessian H = J' (d2L/df2) J.  Without momentum,
`max_learning_rate` returns 2 divided by the largest eigenvalue of S^1/2 H S^1/2 for this H.

D^2 f[v, .] is the derivative, at d = v, of the second-order term of f(theta + d).  It is computed in Taylor mode
(`minintk.models.taylor`), with rounding errors of order eps |D f|.  Kinks of ReLU and max-pooling are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_host, to_library
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model, check_model
from minintk.validate import number, real, whole


@dataclass(frozen=True)
class Kappa:
    """kappa = residual x curvature / slope^2, where curvature = |D^2 f|, slope = |D f| and residual = |f - y|."""

    kappa: float
    curvature: float
    slope: float
    residual: float


def kappa(
    model: Model, theta: Array, x: Array, y: Array | None = None, *, starts: int = 4, steps: int = 30,
    scales: Mapping[str, float] | None = None,
) -> Kappa:  # fmt: skip
    """Compute kappa = |f - y| |D^2 f| / |D f|^2 at theta : (P,) on x : (N, *input_shape).

    y : (N, C).  If y is None, |f - y| is set to 1.  ARPACK computes |D f| from J S J'.  For |D^2 f|, u . D^2 f[v, w]
    is maximised over u, v and w in turn, `steps` times, from each of `starts` fixed points.  The largest value found is
    used, which can be less than |D^2 f|.  scales : S by tensor, as for `mn.ntk`, by default the parametrization's
    scales.  Raises ValueError or TypeError for invalid arguments, ValueError if J is zero, FloatingPointError if J S J'
    overflows, and UnsupportedLayer for a model without an expansion.

    >>> import minintk as mn
    >>> product = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))          # f = w v x
    >>> found = kappa(product, np.array([3.0, 4.0]), np.ones((1, 1)))
    >>> round(found.slope, 6), round(found.curvature, 6)                              # |(v, w)|, and |[[0, 1], [1, 0]]|
    (5.0, 1.0)
    """
    _check_one(model, theta, x)
    starts, steps = whole("starts", starts), whole("steps", steps)
    xp, f = array_namespace(theta, x), model(theta, x)
    residual = 1.0
    if y is not None:
        check_floating("y", y)
        check_finite("y", y)
        if tuple(y.shape) != tuple(f.shape):
            raise ValueError(f"y expects shape {tuple(f.shape)}, got {tuple(y.shape)}")
        residual = _norm(f - y)
    S, (_, J) = _scales(model, theta, scales), model.linearize(theta, x)
    slope = sqrt(_largest_eigenvalue(lambda u: J.push(S * _pulled(J, u.reshape(f.shape))), f, 1e-6))
    if slope == 0:
        raise ValueError("kappa expects outputs that depend on theta: J is zero here")
    best = 0.0
    for start in range(starts):
        draw = np.random.default_rng(start).standard_normal(model.size)  # random to break the network's symmetries
        v, _ = _unit(to_library(draw.astype(str(theta.dtype)), xp))
        best = max(best, _ascend(model, theta, x, v, steps, J, S**0.5))
    return Kappa(residual * best / slope**2, best, slope, residual)


def _check_one(model: Model, theta: Array, x: Array) -> None:
    """Raise TypeError or ValueError unless theta belongs to a single network and is finite."""
    check_model(model)
    model.check(theta, x)
    if theta.ndim != 1:
        raise ValueError(f"theta expects one network, ({model.size},), got {tuple(theta.shape)}")
    check_finite("theta", theta)


def _ascend(model: Model, theta: Array, x: Array, v: Array, steps: int, J: Jacobian, root: Any) -> float:
    """Maximise u . D^2 f[v, w] = <v, H_u w> over u, v and w in turn, with H_u = D^2 (u . f).  root : S^1/2."""
    w, value = v, 0.0
    second = _Second(model, theta, x, v, J, root)
    for _ in range(steps):
        u, length = _unit(second.jvp(w))
        if length == 0:
            break
        v, _ = _unit(_Second(model, theta, x, w, J, root).vjp(u))
        second = _Second(model, theta, x, v, J, root)
        w, value = _unit(second.vjp(u))
    return value


class _Second:
    """D^2 f[v, .] in S^-1/2 theta: the derivative of f(theta) + D f[d] + D^2 f[d, d] / 2 at d = v, minus D f."""

    def __init__(self, model: Model, theta: Array, x: Array, v: Array, J: Jacobian, root: Any) -> None:
        self.J, self.root = J, root
        _, self.both = model.expand(theta, root * v, x, 2)

    def jvp(self, w: Array) -> Array:
        """Return D^2 f[v, w] : (N, C)."""
        return self.both.push(self.root * w) - self.J.push(self.root * w)

    def vjp(self, u: Array) -> Array:
        """Return H_u v : (P,), with H_u = D^2 (u . f)."""
        return self.root * (_pulled(self.both, u) - _pulled(self.J, u))


def _unit(a: Array) -> tuple[Array, float]:
    length = _norm(a)
    return (a / length if length else a), length


def _norm(a: Array) -> float:
    return sqrt(float(array_namespace(a).sum(a * a)))


def sharpness(
    model: Model, theta: Array, x: Array, y: Array, *, loss: Any, scales: Mapping[str, float] | None = None,
    rtol: float = 1e-6,
) -> float:  # fmt: skip
    """Return the largest eigenvalue of S^1/2 H S^1/2 at theta : (P,), where H is the Hessian of the loss on x.

    x : (N, *input_shape).  y : (N, C).  loss : `mn.mse` or another loss with a `hessian`.  scales : as for `kappa`.
    rtol : relative tolerance of the eigenvalue.  ARPACK runs on the host and uses exact Hessian-vector products.
    Raises ValueError or TypeError for invalid arguments, NotImplementedError for a loss without a Hessian (`mn.hinge`),
    UnsupportedLayer for a model without an expansion, FloatingPointError for overflow, RuntimeError if ARPACK fails.

    >>> import minintk as mn
    >>> product = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))          # f = w v x, L = (f - y)^2 / 2
    >>> theta, x = np.array([3.0, 4.0]), np.ones((1, 1))
    >>> round(sharpness(product, theta, x, 12 * x, loss=mn.mse), 6)                  # |(v, w)|^2, where r = 0
    25.0
    >>> round(sharpness(product, theta, x, 0 * x, loss=mn.mse), 6)                   # [[16, 12 + 12], [12 + 12, 9]]
    36.753866
    """
    S = _check_descent(model, theta, x, loss, scales)
    loss.check(y, (x.shape[0], model.outputs))
    array_namespace(theta, y)
    with np.errstate(over="ignore", invalid="ignore"):
        f, J = model.forward(theta, x)
        r = loss.cotangent(f, y)

    def product(v: Array) -> Array:
        d = S**0.5 * v
        _, both = model.expand(theta, d, x, 2)  # J + D^2 f[d, .]
        return S**0.5 * (_pulled(both, r) + _pulled(J, loss.hessian(f, y, J.push(d)) - r))

    return _largest_eigenvalue(product, theta, number("rtol", rtol))


def max_learning_rate(
    model: Model, theta: Array, x: Array, loss: Any, *, y: Array | None = None, momentum: float = 0.0,
    scales: Mapping[str, float] | None = None, rtol: float = 1e-6,
) -> float:  # fmt: skip
    """Return the largest stable learning rate of full-batch gradient descent: 2 (1 + m) / lambda_max of J S J' L''.

    J S J' : (N C, N C) is the tangent kernel of all outputs, `ntk_full`.  L'' is d2L/df2 at f = model(theta, x).  For
    `mn.mse`, L'' = 1/N and the result is 2 (1 + m) N / lambda_max(ntk_full).  The largest eigenvalue of `mn.ntk`, which
    averages over outputs, can be C times smaller.  Above the returned rate, training the linearised model diverges
    for a squared loss.  It may converge for other losses, whose L'' changes with f.

    theta : (P,).  x : (N, *input_shape).  loss : `mn.mse` or another loss with a `hessian`.  y : (N, C), needed only
    for custom losses whose L'' depends on the targets.  momentum : the momentum m in [0, 1) of the heavy ball, as in
    `mn.SGD`.  scales : {tensor name: S}, as for `mn.ntk`, by default those of the parametrization.
    rtol : the relative tolerance.  ARPACK does not form the kernel.  It stores 20 vectors on the host, each of length
    N C for a squared loss and P otherwise.  Raises ValueError or TypeError for invalid arguments, NotImplementedError
    for a loss without L'' (`mn.hinge`), ValueError if J S J' L'' is zero, FloatingPointError if products overflow, and
    RuntimeError if ARPACK does not converge to rtol.

    >>> import minintk as mn
    >>> net, x = mn.Network(mn.Dense(3), (2,)), np.eye(2)
    >>> theta = net.init(np.random.default_rng(0))
    >>> kernel = mn.ntk_full(net, theta, x).reshape(6, 6)                        # 1/2 of the identity
    >>> round(max_learning_rate(net, theta, x, mn.mse), 6), round(2 * 2 / float(np.linalg.eigvalsh(kernel)[-1]), 6)
    (8.0, 8.0)
    """
    if not 0 <= real(momentum) < 1:
        raise ValueError(f"momentum expects a number in [0, 1), got {momentum!r}")
    S = _check_descent(model, theta, x, loss, scales)
    with np.errstate(over="ignore", invalid="ignore"):
        f, J = model.forward(theta, x)
    if y is not None:
        loss.check(y, (x.shape[0], model.outputs))
    elif getattr(loss, "hessian_by_targets", True):
        raise ValueError(f"max_learning_rate expects y=..., the targets, as the Hessian of {loss!r} depends on them")
    else:
        y = f

    def on_outputs(u: Array) -> Array:
        return loss.hessian(f, y, J.push(S * _pulled(J, u.reshape(f.shape))))

    def on_parameters(v: Array) -> Array:  # symmetric even if L'' is a matrix, unlike J S J' L''
        return S**0.5 * _pulled(J, loss.hessian(f, y, J.push(S**0.5 * v)))

    product, like = (on_parameters, theta) if loss.curvature is None else (on_outputs, f)
    largest = _largest_eigenvalue(product, like, number("rtol", rtol))
    if largest <= 0:
        raise ValueError("max_learning_rate expects outputs that depend on theta: the kernel is 0, any rate is stable")
    return 2 * (1 + real(momentum)) / largest


def _check_descent(model: Model, theta: Array, x: Array, loss: Any, scales: Mapping[str, float] | None) -> Any:
    """Check the network, batch and loss, and return S : (P,) or 1.0.  Raise TypeError or ValueError if invalid."""
    _check_one(model, theta, x)
    if isinstance(loss, type) or not hasattr(loss, "hessian"):
        raise TypeError(f"loss expects one with hessian(f, y, v), such as mn.mse, got {loss!r}")
    if x.shape[0] == 0:
        raise ValueError("x expects at least one example, N >= 1, got N = 0")
    return _scales(model, theta, scales)


def _scales(model: Model, theta: Array, scales: Mapping[str, float] | None) -> Any:
    """Return the learning-rate scales S : (P,), or 1.0 if all are 1."""
    S = model.layout.learning_rate_scales(scales, "sgd", "scales", like=theta)
    return 1.0 if S is None else S


def _pulled(J: Jacobian, u: Array) -> Array:
    """Return J' u : (P,).  The result can overflow; `_largest_eigenvalue` checks for this."""
    out = array_namespace(u).full((J.size,), float("nan"), dtype=u.dtype)  # NaN remains if a layer writes nothing
    J.pull(u, out)
    return out


def _largest_eigenvalue(product: Callable[[Array], Array], like: Array, rtol: float) -> float:
    """Return the largest eigenvalue of a symmetric map on arrays with the size, library and dtype of `like`."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    xp, dtype, size = array_namespace(like), str(like.dtype), like.size

    def matvec(v: Any) -> Any:
        return to_host(product(to_library(v.ravel().astype(dtype), xp))).ravel().astype(np.float64)

    start = np.random.default_rng(0).standard_normal(size)
    with np.errstate(over="ignore", invalid="ignore"):
        first = matvec(start)
    if not np.all(np.isfinite(first)):
        raise FloatingPointError(f"the kernel or the Hessian overflows {dtype}: take smaller x, theta, y or scales")
    if (unit := float(np.abs(first).max())) == 0:  # ARPACK's tolerance is absolute for small maps
        return 0.0
    if size == 1:  # ARPACK needs a size of at least two
        return float(first[0] / start[0])
    H = LinearOperator((size, size), matvec=lambda v: matvec(v) / unit, dtype=np.float64)
    try:
        return unit * float(eigsh(H, k=1, which="LA", v0=start, tol=rtol, return_eigenvectors=False)[0])
    except ArpackNoConvergence as error:
        what = f"expected the largest eigenvalue to rtol={rtol:g}, got {error}"
        raise RuntimeError(f"{what}: pass a larger rtol, or float64") from error
