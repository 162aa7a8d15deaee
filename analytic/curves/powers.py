"""Compute power-law spectra, the exponents of their learning curves, and the optimal width for a compute budget.

    lambda_k = k^-alpha,    v_k^2 = k^-beta,    alpha, beta > 1

Sources: Bordelon, Atanasov and Pehlevan 2024; Paquette et al. 2024.  The alpha and beta of Paquette et al. are alpha/2
and (beta - alpha)/2 in our notation.  For alpha > 1, only their phases Ia, II and III occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from analytic.curves.curve import learning_curve
from analytic.curves.spectra import Modes
from minintk.arrays import Host
from minintk.validate import number, whole


def power_law(alpha: float, beta: float, count: int = 10**6) -> tuple[Modes, Host]:
    """Return `count` modes lambda_k = k^-alpha and their power v_k^2 = k^-beta, as (modes, power).

    Each of the first 200 modes forms a level.  Each later level merges modes whose k differ by up to 1 %, and has their
    mean eigenvalue and total power.  Raises ValueError unless alpha, beta > 1 and count is an integer from 1 to 10^12.

    >>> modes, power = power_law(2.0, 1.5, count=1000)
    >>> modes.eigenvalue[:3].round(4), float(modes.multiplicity.sum()), round(float(power.sum()), 4)
    (array([1.    , 0.25  , 0.1111]), 1000.0, 2.5491)
    """
    from scipy.special import zeta

    _check(alpha, beta)
    count = whole("count", count, 1, 10**12)
    far = np.exp(np.arange(log(201), log(count + 1), 0.01)) if count > 200 else np.array([])
    first = np.unique(np.concatenate([np.arange(1, min(count, 200) + 1), far.round(), [count + 1]]))
    h = np.diff(first)
    return Modes(-np.diff(zeta(alpha, first)) / h, h), np.asarray(-np.diff(zeta(beta, first)))


@dataclass(frozen=True)
class Exponents:
    """Exponents e in loss - noise ~ size^-e; each is valid while the other sizes do not limit the loss.

    flow : for time, (beta - 1) / alpha.  sgd : for the number of steps of one-pass SGD, min(flow, 2 - 1/alpha).
    width : min(beta - 1, alpha).  examples : min(beta - 1, 2 alpha), if there is no noise.
    budget : for a budget B = width x steps of one-pass SGD, at the best width; the best width grows as B^best_width.
    phase : "Ia", "II" or "III" of Paquette et al.; it determines the terms that balance at the best width.
    """

    flow: float
    sgd: float
    width: float
    examples: float
    budget: float
    best_width: float
    phase: str


def exponents(alpha: float, beta: float) -> Exponents:
    """Return the exponents for lambda_k = k^-alpha and v_k^2 = k^-beta.  Raises ValueError unless alpha, beta > 1.

        Ia   beta < 1 + alpha            t^-(beta-1)/alpha balances n^-(beta-1)               t steps, width n
        II   1 + alpha < beta < 2 alpha  t^-(beta-1)/alpha balances n^-1 t^-(1-1/alpha)
        III  beta > 2 alpha              t^-(2-1/alpha)    balances n^-1 t^-(1-1/alpha)

    >>> one = exponents(1.5, 1.8)
    >>> one.phase, round(one.flow, 4), one.width, round(one.budget, 4)
    ('Ia', 0.5333, 0.8, 0.32)
    """
    _check(alpha, beta)
    flow = (beta - 1) / alpha
    if beta < 1 + alpha:
        phase, budget, best = "Ia", (beta - 1) / (1 + alpha), 1 / (1 + alpha)
    elif beta < 2 * alpha:
        phase, budget, best = "II", (beta - 1) / beta, (beta - alpha) / beta
    else:
        phase, budget, best = "III", 1 - 0.5 / alpha, 0.5
    sgd, width, data = min(flow, 2 - 1 / alpha), min(beta - 1, alpha), min(beta - 1, 2 * alpha)
    return Exponents(flow, sgd, width, data, budget, best, phase)


def compute_optimal(modes: Modes, power: Any, compute: Any, *, noise: float = 0.0) -> tuple[Host, Host]:
    """Return the optimal widths and their test losses, both (B,), for compute budgets width x time of gradient flow.

    The loss is minimised over log width, for widths from 1 to the budget, with a tolerance of 1 % in the width.  For
    power laws in phase III, gradient flow has the exponents of phase II, because phase III is due to the noise of SGD.
    Raises ValueError for a budget below 2 and for arguments that `learning_curve` rejects.

    >>> widths, losses = compute_optimal(*power_law(1.5, 1.8, 10_000), [100.0, 1000.0])
    >>> widths.round(), losses.round(3)
    (array([21., 56.]), array([0.473, 0.237]))
    """
    from scipy.optimize import minimize_scalar

    budgets = np.atleast_1d(np.asarray(compute, dtype=np.float64))
    if budgets.ndim != 1 or not np.all(np.isfinite(budgets) & (budgets >= 2)):
        raise ValueError(f"compute expects budgets width x time >= 2, (B,), got {compute!r}")
    found = []
    for budget in budgets:

        def at(u: float, budget: float = float(budget)) -> float:
            width = max(1, round(exp(u)))
            return float(learning_curve(modes, power, width=width, noise=noise).flow(budget / width))

        best = minimize_scalar(at, bounds=(0.0, log(budget)), method="bounded", options={"xatol": 0.01})
        found.append((max(1, round(exp(best.x))), best.fun))
    widths, losses = np.array(found, dtype=np.float64).T
    return widths, losses


def _check(alpha: float, beta: float) -> None:
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not number(name, value) > 1:
            raise ValueError(f"{name} expects a number > 1, so that the sum converges, got {value!r}")
