"""Test the exponents of power laws against learning curves of power-law spectra and against sums over modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import bisect, minimize_scalar

import analytic as an

Host = np.ndarray[Any, Any]


@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 1.8), (2.0, 3.5), (1.5, 3.8), (2.5, 2.0)])
def test_exponents(alpha: float, beta: float) -> None:
    """Exponents in time, width and examples fit learning curves to within 0.02. A time exponent 0.1 larger does not."""
    want, spectrum = an.exponents(alpha, beta), an.power_law(alpha, beta, 10**11)
    flow = an.learning_curve(*spectrum).flow([1e4, 1e5])
    width = [an.learning_curve(*spectrum, width=n).ridge() for n in (10**5, 10**6)]
    examples = [an.learning_curve(*spectrum, examples=n).ridge() for n in (10**5, 10**6)]
    for loss, exponent in ((flow, want.flow), (width, want.width), (examples, want.examples)):
        assert abs(np.log10(loss[0] / loss[1]) - exponent) < 0.02
    assert abs(np.log10(flow[0] / flow[1]) - want.flow - 0.1) > 0.02


def binned(alpha: float, beta: float) -> tuple[Host, Host, Host]:
    """Return eigenvalues, multiplicities and powers of modes 1 to 1e14. Modes above 200 are binned."""
    edge = np.concatenate([np.arange(1, 201.0), 200 * np.exp(np.arange(0.05, np.log(1e14 / 200), 0.05))])
    k = np.concatenate([edge[:199], np.sqrt(edge[199:-1] * edge[200:])])
    powers = (edge[199:-1] ** (1 - beta) - edge[200:] ** (1 - beta)) / (beta - 1)
    return k**-alpha, np.diff(edge), np.concatenate([edge[:199] ** -beta, powers])


def measured(alpha: float, beta: float, lr: float, steps: int = 300_000) -> dict[str, float]:
    """Measure exponents from sums over modes, an independent bisection for kappa, and a recursion for one-pass SGD.

    lr : learning rate times sum lambda. At a large lr, the SGD noise of phase III dominates after fewer steps.
    """
    lam, h, v2 = binned(alpha, beta)
    losses = {"flow": [v2 @ np.exp(-2 * lam * t) for t in (1e5, 1e6)], "width": [], "examples": []}
    for n in (1e6, 1e7):
        kappa = np.exp(bisect(lambda u, n=n: h @ (lam / (lam + np.exp(u))) - n, -200, 10))
        left = kappa / (lam + kappa)
        losses["width"].append(v2 @ left)
        losses["examples"].append(v2 @ left**2 / (1 - h @ (1 - left) ** 2 / n))
    rate = lr / float(h @ lam)
    move = lam * rate * steps > 1e-8
    v2, z, noise = (np.append(a[move], rest) for a, rest in ((v2, v2[~move].sum()), (lam * rate, 0), (h * lam**2, 0)))
    step = np.diag(1 - 2 * z + 2 * z * z) + rate**2 * noise[:, None]  # the noise is proportional to the total loss
    losses["sgd"] = [(np.linalg.matrix_power(step, count) @ v2).sum() for count in (steps // 10, steps)]
    return {name: float(np.log10(pair[0] / pair[1])) for name, pair in losses.items()}


def at_the_best_width(alpha: float, beta: float, noise: float) -> dict[str, float]:
    """Return the exponents with which the lowest loss and the best width scale with the budget, between 1e8 and 1e10.

    noise : the coefficient of the SGD noise, a term that is added to the loss of gradient flow.
    """
    spectrum, found = an.power_law(alpha, beta, 10**11), []
    lam, h = spectrum[0].eigenvalue, spectrum[0].multiplicity
    for budget in (1e8, 1e10):

        def loss(u: float, budget: float = budget) -> float:
            n = round(np.exp(u))
            by_noise = noise * h @ (lam**2 * np.exp(-2 * lam * budget / n))
            return float(np.log(an.learning_curve(*spectrum, width=n).flow(budget / n) + by_noise))

        best = minimize_scalar(loss, bounds=(1, 0.8 * np.log(budget)), method="bounded", options={"xatol": 1e-3})
        found.append((best.fun, best.x))
    (one, narrow), (two, wide) = found
    return {"budget": (one - two) / np.log(100), "best_width": (wide - narrow) / np.log(100)}


@pytest.mark.parametrize(("alpha", "beta", "phase"), [(1.5, 1.8, "Ia"), (2.5, 4.0, "II"), (1.5, 3.8, "III")])
def test_exponents_of_each_phase(alpha: float, beta: float, phase: str) -> None:
    """Six exponents are within 0.02 of the measured ones, whereas the budget exponents of other phases are not."""
    want = an.exponents(alpha, beta)
    assert want.phase == phase
    noisy = phase == "III"
    found = measured(alpha, beta, 0.8 if noisy else 0.2) | at_the_best_width(alpha, beta, 0.3 * noisy)
    print(*(f"{name} {getattr(want, name):.4f} {value:.4f}" for name, value in found.items()), sep="; ")
    assert {name for name, value in found.items() if not abs(value - getattr(want, name)) < 0.02} == set()
    others = {"Ia": (beta - 1) / (1 + alpha), "II": (beta - 1) / beta, "III": 1 - 0.5 / alpha}
    assert all(abs(found["budget"] - other) > 0.02 for name, other in others.items() if name != phase)
