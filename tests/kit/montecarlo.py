"""Judge Monte Carlo estimates over networks by z-scores, which test whether the mean of the samples is the true value.

z = (mean - truth) / (standard deviation / sqrt(E)) for each entry. With k entries, the largest |z| of a true statement
exceeds `limit(k)` with probability at most 1e-6 (Bonferroni), for any correlations between entries.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.stats import binom

import minintk as mn
from minintk.spec.parametrization import NTK, Parametrization

Array = np.ndarray[Any, Any]


def within(successes: int, trials: int, p: float) -> bool:
    """Return False if `successes` is improbable for success probability p. P(false alarm) is at most 1e-6."""
    low, high = binom.interval(1 - 1e-6, trials, p)
    return bool(low <= successes <= high)


def limit(k: int, chance: float = 1e-6) -> float:
    """Return a limit that the largest |z| of k standard normal variables exceeds with probability at most `chance`.

    >>> round(limit(1), 2), round(limit(10), 2)
    (4.89, 5.33)
    """
    return -NormalDist().inv_cdf(chance / 2 / k)


def z_scores(samples: Array, truth: Array) -> Array:
    """Return z of each entry for samples : (E, ...) and truth : (...). If all samples are equal, z is 0 or huge."""
    E = len(samples)
    difference, error = samples.mean(axis=0) - truth, samples.std(axis=0, ddof=1) / sqrt(E)
    rounding = 1e-12 * np.abs(truth).max()
    return np.asarray(np.where(np.abs(difference) <= rounding, 0.0, difference / np.maximum(error, 1e-300)))


def assert_mean(law: str, samples: Array, truth: Array) -> None:
    """Raise AssertionError if the mean of the samples differs significantly from `truth`. P(false alarm) <= 1e-6."""
    z = z_scores(samples, truth)
    worst, most = float(np.abs(z).max()), limit(z.size)
    if not worst <= most:
        raise AssertionError(f"{law}: z = {worst:.1f} from {len(samples)} draws, {most:.1f} explained by chance")


def kernels(
    spec: mn.spec.Layer, x: Array, members: int, seed: int = 0, parametrization: Parametrization | None = None
) -> tuple[Array, Array]:
    """Return the upper triangles of NNGP and NTK, (E, N (N + 1) / 2), at initialisation. E is a multiple of 250."""
    net = mn.Network(spec, x.shape[1:], parametrization or NTK())
    rng, upper = np.random.default_rng(seed), np.triu_indices(len(x))
    both = []
    for _ in range(0, members, 250):
        theta = net.init(rng, ensemble=250)
        both.append(np.stack([mn.nngp(net, theta, x), mn.ntk(net, theta, x)])[:, :, *upper])
    nngp, ntk = np.concatenate(both, axis=1)
    return nngp, ntk


def inputs(N: int = 4, d: int = 3, seed: int = 0) -> Array:
    """Return examples in general position with different norms."""
    return np.random.default_rng(seed).standard_normal((N, d))
