"""Second derivatives in the parameters: kappa, how much J changes on the way to a solution, and the loss's sharpness.

    kappa = |f - y| |D^2 f| / |D f|^2                            lazy where kappa << 1 (Chizat, Oyallon and Bach 2019)
    H v = J' (d2L/df2) J v + D^2(r . f)[v, .],     r = dL/df held fixed

|D f| and |D^2 f| are the operator norms of the first and second derivatives with respect to the parameters,
sup |J v| and sup |D^2 f[v, v]| over |S^-1/2 v| = 1, S the learning-rate scales.  Gradient descent with rates lr S on
theta is descent with the rate lr on S^-1/2 theta, so it is there that steps have a length: |D f|^2 is the largest
eigenvalue of J S J', the sharpness that of S^1/2 H S^1/2, and both are the same for equivalent parametrizations.

A step of size |f - y| / |D f| solves the problem to first order and changes J by |D^2 f| times that; kappa is this
change relative to |D f|.  It falls as n^-1/2 in the NTK scaling and stays of order 1 in muP and mean field.

Around a minimum descent is stable for lr x sharpness < 2.  (Cohen et al. 2021: the edge of stability; Lewkowycz et al.
2020: the catapult.)

D^2 f[v, .] is the derivative at d = v of the second-order term of f(theta + d), by Taylor mode
(`minintk.models.taylor`), exact up to rounding, eps |D f|.  With ReLU and max-pooling it is the curvature between the
kinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_host, to_library
from minintk.diagnostics.weight_norms import largest_singular_value
from minintk.models.jacobian import Jacobian
from minintk.models.network import Model, check_model
from minintk.validate import number, whole


@dataclass(frozen=True)
class Kappa:
    """kappa = residual x curvature / slope^2, with curvature = |D^2 f|, slope = |D f|, residual = |f - y|."""

    kappa: float
    curvature: float
    slope: float
    residual: float


def kappa(
    model: Model, theta: Array, x: Array, y: Array | None = None, *, starts: int = 4, steps: int = 30,
    scales: Mapping[str, float] | None = None,
) -> Kappa:  # fmt: skip
    """|f - y| |D^2 f| / |D f|^2 at theta : (P,), on x : (N, *input_shape); without y, |D^2 f| / |D f|^2.

    |D f| by Lanczos steps on J S J'.  |D^2 f| = sup u . D^2 f[v, w] by maximising over u, v and w in turn, `steps`
    times, from `starts` fixed starting points; the result is a lower bound, the best local maximum found.
    scales : S by tensor, as for `mn.ntk`; the parametrization's for gradient descent unless given.
    ValueError for arguments that do not fit, and where J is zero; UnsupportedLayer for a model without an expansion.

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
    _, J = model.linearize(theta, x)
    S = model.layout.learning_rate_scales(scales, "sgd", "scales", like=theta)
    root = xp.ones_like(theta) if S is None else S**0.5
    best, slope = 0.0, 0.0
    for start in range(starts):
        draw = np.random.default_rng(start).standard_normal(model.size)  # fixed, without any symmetry of a network
        v, _ = _unit(to_library(draw.astype(str(theta.dtype)), xp))
        across, back = (lambda w: J.jvp(root * w)), (lambda u: root * J.vjp(u))
        slope = max(slope, float(largest_singular_value(across, back, v, 1, rtol=1e-6)))
        best = max(best, _ascend(model, theta, x, v, steps, J, root))
    if slope == 0:
        raise ValueError("kappa expects outputs that depend on theta: J is zero here")
    return Kappa(residual * best / slope**2, best, slope, residual)


def _check_one(model: Model, theta: Array, x: Array) -> None:
    """TypeError or ValueError unless theta is that of one network, finite."""
    check_model(model)
    model.check(theta, x)
    if theta.ndim != 1:
        raise ValueError(f"theta expects one network, ({model.size},), got {tuple(theta.shape)}")
    check_finite("theta", theta)


def _ascend(model: Model, theta: Array, x: Array, v: Array, steps: int, J: Jacobian, root: Array) -> float:
    """max of u . D^2 f[v, w] = <v, H_u w>, H_u = D^2 (u . f), over each of u, v, w in turn.  root : S^1/2."""
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
    """D^2 f[v, .] in S^-1/2 theta: f(theta) + D f[d] + D^2 f[d, d] / 2 has the derivative D f[.] + D^2 f[d, .] in d."""

    def __init__(self, model: Model, theta: Array, x: Array, v: Array, J: Jacobian, root: Array) -> None:
        self.J, self.root = J, root
        _, self.both = model.expand(theta, root * v, x, 2)

    def jvp(self, w: Array) -> Array:
        """D^2 f[v, w] : (N, C)."""
        return self.both.jvp(self.root * w) - self.J.jvp(self.root * w)

    def vjp(self, u: Array) -> Array:
        """H_u v : (P,)."""
        return self.root * (self.both.vjp(u) - self.J.vjp(u))


def _unit(a: Array) -> tuple[Array, float]:
    length = _norm(a)
    return (a / length if length else a), length


def _norm(a: Array) -> float:
    return sqrt(float(array_namespace(a).sum(a * a)))


def sharpness(
    model: Model, theta: Array, x: Array, y: Array, *, loss: Any, scales: Mapping[str, float] | None = None,
    rtol: float = 1e-6,
) -> float:  # fmt: skip
    """The largest eigenvalue of S^1/2 H S^1/2 at theta : (P,), H the Hessian of the loss on x : (N, *input_shape).

    y : (N, C).  loss : `mn.mse` or another one with a `hessian`.  scales : as for `kappa`.  rtol : of the eigenvalue,
    by ARPACK's Lanczos steps on exact products, whose vectors are on the host.
    ValueError or TypeError for arguments that do not fit, UnsupportedLayer for a model without an expansion,
    FloatingPointError if products with H overflow.

    >>> import minintk as mn
    >>> product = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))          # f = w v x, L = (f - y)^2 / 2
    >>> theta, x = np.array([3.0, 4.0]), np.ones((1, 1))
    >>> round(sharpness(product, theta, x, 12 * x, loss=mn.mse), 6)                  # |(v, w)|^2, where r = 0
    25.0
    >>> round(sharpness(product, theta, x, 0 * x, loss=mn.mse), 6)                   # [[16, 12 + 12], [12 + 12, 9]]
    36.753866
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    _check_one(model, theta, x)
    if isinstance(loss, type) or not hasattr(loss, "hessian"):
        raise TypeError(f"loss expects one with hessian(f, y, v), such as mn.mse, got {loss!r}")
    if x.shape[0] == 0:
        raise ValueError("x expects at least one example, N >= 1, got N = 0")
    loss.check(y, (x.shape[0], model.outputs))
    xp, rtol = array_namespace(theta, x, y), number("rtol", rtol)
    S = model.layout.learning_rate_scales(scales, "sgd", "scales")
    root = 1.0 if S is None else np.sqrt(S)

    def product(v: Any) -> Any:
        d = to_library((root * v.ravel()).astype(str(theta.dtype)), xp)
        _, both = model.expand(theta, d, x, 2)  # J + D^2 f[d, .]
        return root * to_host(both.vjp(r) + J.vjp(loss.hessian(f, y, J.jvp(d)) - r)).astype(np.float64)

    start = np.random.default_rng(0).standard_normal(model.size)
    with np.errstate(over="ignore", invalid="ignore"):
        f, J = model.linearize(theta, x)
        r = loss.cotangent(f, y)
        first = product(start)
    if not np.all(np.isfinite(first)):
        raise FloatingPointError(f"the Hessian overflows {theta.dtype}: take smaller x, theta, y or scales")
    if not np.any(first):
        return 0.0
    if model.size == 1:  # ARPACK needs two
        return float(first[0] / start[0])
    H = LinearOperator((model.size, model.size), matvec=product, dtype=np.float64)
    return float(eigsh(H, k=1, which="LA", v0=start, tol=rtol, return_eigenvectors=False)[0])
