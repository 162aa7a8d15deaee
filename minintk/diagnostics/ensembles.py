"""How much the trained function depends on the initialisation."""

from __future__ import annotations

from math import sqrt

import numpy as np

from minintk.arrays import Array, check_finite, check_floating, to_host
from minintk.diagnostics.power_laws import Estimate


def ensemble_variance(f: Array, *, confidence: float = 0.95) -> Estimate:
    """Var f = mean over examples and outputs of 1/(E-1) sum_e (f_e - mean f)^2, with an interval.

    f : (E, N, C), outputs of E >= 3 networks from different initialisations.  It falls as 1/h in the width h, in the
    lazy and in the feature regime (Geiger et al. 2020, section 4).

    The members are the sample, so the interval comes from the jackknife over members of log Var f, with Student's t and
    E - 1 degrees of freedom.  ValueError for fewer members, and if all members are equal.

    >>> f = np.random.default_rng(0).standard_normal((50, 40, 1))
    >>> v = ensemble_variance(f)
    >>> v.interval[0] < 1 < v.interval[1]
    True
    """
    from scipy.special import stdtrit

    check_floating("f", f)
    check_finite("f", f)
    if f.ndim != 3 or f.shape[0] < 3 or 0 in f.shape:
        raise ValueError(f"f expects shape (E, N, C) with E >= 3, got {tuple(f.shape)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence expects a number between 0 and 1, got {confidence!r}")
    a = to_host(f).astype(np.float64)
    E = len(a)
    spread = np.mean((a - a.mean(axis=0)) ** 2, axis=(1, 2))  # (E,): each member's contribution
    value = float(spread.sum() / (E - 1))
    if not value > 0:
        raise ValueError("ensemble_variance expects members that differ: were they drawn from one seed?")
    # without member e: sum over the others around their own mean = total - E/(E-1) spread_e
    without = (spread.sum() - E / (E - 1) * spread) / (E - 2)
    logs = np.log(np.maximum(without, np.finfo(float).tiny))
    error = sqrt((E - 1) / E * float(np.sum((logs - logs.mean()) ** 2)))
    reach = float(stdtrit(E - 1, (1 + confidence) / 2)) * error
    with np.errstate(over="ignore"):  # inf if the members do not determine Var f
        return Estimate(value, (value * float(np.exp(-reach)), value * float(np.exp(reach))), confidence)
