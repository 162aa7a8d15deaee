"""Sharpness: the largest eigenvalue of the loss's Hessian in the parameters, by Lanczos on exact products.

    H v = J' (d2L/df2) J v + D^2(r . f)[v, .],      r = dL/df held fixed

The first part is that of Gauss and Newton, for a squared loss the tangent kernel's eigenvalues over N; the second says
how J turns, and Taylor mode has it.  Descent with the learning rates lr S is descent with the rate lr on S^-1/2 theta,
whose Hessian is S^1/2 H S^1/2: around a minimum it is stable for lr x sharpness < 2, in every parametrization.
(Cohen et al. 2021: the edge of stability; Lewkowycz et al. 2020: the catapult.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, to_host, to_library
from minintk.models.network import Model, check_model
from minintk.validate import number


class Curved(Protocol):
    """A loss with its first two derivatives in f, such as `mn.mse`."""

    def check(self, y: Array, outputs: tuple[int, int]) -> None: ...
    def cotangent(self, f: Array, y: Array) -> Array: ...
    def hessian(self, f: Array, y: Array, v: Array) -> Array: ...


def sharpness(
    model: Model, theta: Array, x: Array, y: Array, *, loss: Curved, scales: Mapping[str, float] | None = None,
    rtol: float = 1e-6,
) -> float:  # fmt: skip
    """The largest eigenvalue of S^1/2 H S^1/2 at theta : (P,), H the Hessian of the loss on x : (N, *input_shape).

    y : (N, C).  loss : `mn.mse` or another one with a `hessian`.  scales : S by tensor, as for `mn.ntk`; the
    parametrization's for gradient descent unless given.  rtol : of the eigenvalue, by ARPACK, whose vectors are on the
    host.  With ReLU and max-pooling it is the Hessian between the kinks.
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

    check_model(model)
    model.check(theta, x)
    if theta.ndim != 1:
        raise ValueError(f"theta expects one network, ({model.size},), got {tuple(theta.shape)}")
    if isinstance(loss, type) or not hasattr(loss, "hessian"):
        raise TypeError(f"loss expects one with hessian(f, y, v), such as mn.mse, got {loss!r}")
    check_finite("theta", theta)
    if x.shape[0] == 0:
        raise ValueError("x expects at least one example, N >= 1, got N = 0")
    loss.check(y, (x.shape[0], model.outputs))
    xp, S, rtol = (
        array_namespace(theta, x, y),
        model.layout.learning_rate_scales(scales, "sgd", "scales"),
        number("rtol", rtol),
    )
    root = 1.0 if S is None else np.sqrt(S)
    with np.errstate(over="ignore", invalid="ignore"):
        f, J = model.linearize(theta, x)
        r = loss.cotangent(f, y)

    def product(v: Any) -> Any:
        d = to_library((root * v.ravel()).astype(str(theta.dtype)), xp)
        _, both = model.expand(theta, d, x, 2)  # J + D^2 f[d, .]
        return root * to_host(both.vjp(r) + J.vjp(loss.hessian(f, y, J.jvp(d)) - r)).astype(np.float64)

    start = np.random.default_rng(0).standard_normal(model.size)
    with np.errstate(over="ignore", invalid="ignore"):
        first = product(start)
    if not np.all(np.isfinite(first)):
        raise FloatingPointError(f"the Hessian overflows {theta.dtype}: take smaller x, theta, y or scales")
    if not np.any(first):
        return 0.0
    if model.size == 1:  # ARPACK needs two
        return float(first[0] / start[0])
    H = LinearOperator((model.size, model.size), matvec=product, dtype=np.float64)
    return float(eigsh(H, k=1, which="LA", v0=start, tol=rtol, return_eigenvectors=False)[0])
