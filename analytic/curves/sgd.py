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
    most, c = edge(e), 1 + 1 / batch
    roots = np.roots([c**2, -(12**0.5) * c, 4 + c, -(12**0.5)])  # |q| = 1 at lr z = r e^{i pi/6}
    reach = min(2 / c, float(roots.real[abs(roots.imag) < 1e-9].min()))  # |q| <= 1 for lr |z| < reach, |arg z| < pi/6
    if lr * most >= (limit := min(1.4, 0.95 * reach)):
        raise ValueError(
            f"lr expects less than {limit / most:.4g} ({limit:.3g} over the largest eigenvalue, {most:.4g}), got {lr!r}"
        )
    z, forced, kernel = nodes(e, max(steps, 1), lr, most, reach)
    q = 1 - 2 * lr * z + lr**2 * c * z**2
    power, past, found = forced.astype(q.dtype), np.zeros_like(q), np.empty(steps + 1)
    for step in range(steps + 1):
        found[step] = total = float((power.sum() + lr**2 / batch * (kernel @ past)).imag + e.sigma2)
        if not total < 1e150:
            raise ValueError(f"lr expects a rate at which SGD converges, got {lr!r}: the loss is 1e150 at step {step}")
        power, past = power * q, past * q + total
    return found


def nodes(e: Equivalent, steps: int, lr: float, most: float, reach: float) -> tuple[Host, Host, Host]:
    """Return nodes z and two sets of weights w: Im sum w q(z)^T is F(T) - noise or K(T) of `LearningCurve.sgd`."""
    if isinf(e.n):
        return e.lam + 0j, 1j * e.v2, 1j * e.h * e.lam**2
    z, dz = contours.closed(3 / (lr * steps), most, min(2.2 * most, (most + reach / lr) / 2))
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
