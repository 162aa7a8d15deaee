"""Solve the Volterra equation of one-pass SGD in `LearningCurve.sgd`.   Symbols: see `analytic.curves.equivalent`.

For Gaussian inputs, a step on b new examples gives on average, in the eigenbasis of A = Lambda^1/2 W W' Lambda^1/2,

    E r_j^2 <- q_j r_j^2 + (lr^2 / b) z_j^2 loss,    loss = |r|^2 + sigma2

    sum_j v_j^2 q(z_j)^T = (1 / 2 pi i) int q(z)^T (sum_k v_k^2 kappa / (lambda_k + kappa)) / z dz
    sum_j z_j^2 q(z_j)^T = (1 / 2 pi i) int q(z)^T (-z sum_k L_k) dz,        s(kappa) = -z

Each node adds a multiple of q^T to both sums, so the equation becomes a recursion with no sum over past steps.
"""

from __future__ import annotations

from math import isinf

import numpy as np

from analytic.curves import contours
from analytic.curves.equivalent import Equivalent
from minintk.arrays import Host


def loss(e: Equivalent, steps: int, lr: float, batch: int) -> Host:
    """Return the test loss after 0, 1, ..., `steps` steps, (steps + 1,); raise ValueError if lr is too large."""
    most = edge(e)
    limit = min(1.4, 2 / (1 + 1 / batch))
    if lr * most >= limit:
        raise ValueError(
            f"lr expects less than {limit / most:.4g} ({limit:.3g} over the largest eigenvalue, {most:.4g}), got {lr!r}"
        )
    z, forced, kernel = nodes(e, max(steps, 1), lr, most)
    q = 1 - 2 * lr * z + lr**2 * (1 + 1 / batch) * z**2
    power, past, found = forced.astype(q.dtype), np.zeros_like(q), np.empty(steps + 1)
    for step in range(steps + 1):
        found[step] = total = float((power.sum() + lr**2 / batch * (kernel @ past)).imag + e.sigma2)
        power, past = power * q, past * q + total
    return found


def nodes(e: Equivalent, steps: int, lr: float, most: float) -> tuple[Host, Host, Host]:
    """Return nodes z and two sets of weights w: Im sum w q(z)^T is F(T) - noise or K(T) of `LearningCurve.sgd`."""
    if isinf(e.n):
        return e.lam + 0j, 1j * e.v2, 1j * e.h * e.lam**2
    z, dz = contours.closed(3 / (lr * steps), 1.1 * most)
    kappa = e.follow(-z.conj()).conj()  # s = -z is below the axis, and kappa(conj s) = conj kappa(s)
    forced = (kappa[:, None] / (e.lam + kappa[:, None])) @ e.v2 / z
    return z, forced * dz, -z * e.freedom(kappa)[0] * dz


def edge(e: Equivalent) -> float:
    """Return the upper edge of A's spectrum, the minimum of c (1 + sum lambda / (c - lambda) / n) over c > max lambda.

    See Silverstein and Choi 1995.
    """
    from scipy.optimize import minimize_scalar

    top = float(e.lam.max())
    if isinf(e.n):
        return top

    def upper(u: float) -> float:
        c = top + np.exp(u)
        return float(c * (1 + ((e.h * e.lam) @ (1 / (c - e.lam)) + e.rest / c) / e.n))

    trace = float(e.h @ e.lam) + e.rest
    return upper(float(minimize_scalar(upper, bounds=(np.log(top) - 35, np.log(top + 4 * trace)), method="bounded").x))
