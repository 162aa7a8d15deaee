"""What kernel regression learns from n examples: the eigenlearning equations.

Expand the target in the kernel's eigenfunctions, f = sum_i v_i phi_i, lambda_i the eigenvalues over the distribution of
inputs (`analytic.spectra.modes`).  Kernel regression on n random examples, with ridge, finds f^ = sum_i v^_i phi_i;
averaged over draws of the examples,

    kappa solves    sum_i lambda_i / (lambda_i + kappa) + ridge / kappa = n
    E v^_i = L_i v_i,                    L_i = lambda_i / (lambda_i + kappa)          learnability: how much of mode i
    test error = E0 (sum_i (1 - L_i)^2 v_i^2 + noise),    E0 = n / (n - sum_i L_i^2)       mean squared, noise included
    training error = (ridge / (n kappa))^2 test error

The first line is a conservation law: without ridge the learnabilities of all modes add up to n, for any kernel; this
sum is exact for every draw.  The rest is exact for Gaussian eigenfunctions and, as measured, close for real ones.
(Simon, Dickens, Karkada and DeWeese 2023; Bordelon, Canatar and Pehlevan 2020; Jacot et al. 2020.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from analytic.spectra.modes import Host, Modes
from minintk.validate import number


@dataclass(frozen=True, eq=False)
class Eigenlearning:
    """What is learned from n examples; built by `eigenlearning`.

    kappa : the threshold; modes with lambda >> kappa are learned.  learnability : (K,), L of each level.
    overfitting : E0, the factor by which noise in the labels grows.
    """

    modes: Modes
    n: int
    ridge: float
    kappa: float
    learnability: Host
    overfitting: float

    def test_error(self, power: Host, noise: float = 0.0) -> float:
        """E (f^(x) - y)^2 at a new input with a noisy label; subtract `noise` for the error relative to f.

        power : (K,), sum of v_i^2 over each level's functions.  noise : the labels' variance, >= 0.
        """
        power = np.asarray(power)
        if (
            power.dtype.kind not in "biuf"
            or power.shape != self.learnability.shape
            or not np.all(power >= 0)
            or not noise >= 0
        ):
            raise ValueError(
                f"test_error expects a power >= 0 for each of {len(self.learnability)} levels and noise >= 0, "
                f"got {power!r}, {noise!r}"
            )
        return float(self.overfitting * (np.sum((1 - self.learnability) ** 2 * power) + noise))

    def train_error(self, power: Host, noise: float = 0.0) -> float:
        """(1/n) sum (f^ - y)^2 on the training examples: 0 without ridge."""
        error = self.test_error(power, noise)
        return 0.0 if self.ridge == 0 else (self.ridge / (self.n * self.kappa)) ** 2 * error


def eigenlearning(modes: Modes, n: int, *, ridge: float = 0.0) -> Eigenlearning:
    """Learnability of every level from n >= 1 random examples, by regression with k + ridge I.

    Levels that `modes` leaves out, modes.rest in all, are too small to learn and act as ridge.  ValueError for a
    negative eigenvalue beyond rounding, and, without ridge, for n >= the number of modes, as all is learned then.

    >>> modes = Modes(np.array([1.0, 0.1]), np.array([1, 100]))
    >>> learned = eigenlearning(modes, 20)
    >>> learned.learnability.round(3), round(float(modes.multiplicity @ learned.learnability), 6)
    (array([0.705, 0.193]), 20.0)
    """
    if not isinstance(modes, Modes):
        raise TypeError(
            f"modes expects analytic.sphere_modes(...), cube_modes(...) or data_modes(...)[0], got {modes!r}"
        )
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 1:
        raise ValueError(f"n expects a number of examples >= 1, got {n!r}")
    ridge = number("ridge", ridge, zero=True)
    lam, h = np.asarray(modes.eigenvalue, dtype=np.float64), np.asarray(modes.multiplicity, dtype=np.float64)
    if lam.shape != h.shape or lam.ndim != 1:
        raise ValueError(f"modes expect an eigenvalue and multiplicity per level, (K,), got {lam.shape} and {h.shape}")
    trace = float(h @ np.abs(lam)) + abs(modes.rest)
    if not (isfinite(trace) and np.all(lam >= -1e-13 * trace) and modes.rest >= -1e-10 * trace):
        raise ValueError(
            f"modes expect eigenvalues >= 0, got {lam.min()!r} (rest {modes.rest!r}, trace {trace:.3g}): no kernel has "
            "such a spectrum"
        )
    lam = np.maximum(lam, 0.0)
    held = ridge + (modes.rest if modes.rest > 1e-12 * trace else 0.0)
    if held == 0 and n >= (count := float(h[lam > 0].sum())):
        raise ValueError(
            f"{n} examples determine all {count:.0f} modes: nothing is left to predict; take fewer, or ridge > 0"
        )
    low, high = -800.0, float(np.log((trace + held) / n)) + 1.0  # of log kappa: kappa <= (trace + ridge) / n
    for _ in range(200):
        middle = (low + high) / 2
        kappa = np.exp(middle)
        low, high = (middle, high) if h @ (lam / (lam + kappa)) + held / kappa > n else (low, middle)
    kappa = float(np.exp((low + high) / 2))
    L = lam / (lam + kappa)
    return Eigenlearning(modes, int(n), ridge, kappa, L, float(n / (n - h @ L**2)))
