"""Compute z-scores of an ensemble of trained networks against the theory's Gaussian process.

For E members with outputs f_e at M points, and with mu and Sigma from eqs. (14) and (15):

    mean         E (m - mu)' Sigma^-1 (m - mu)                            ~ chi2(M),            m the sample mean
    covariance   rho (E - 1) (tr R - log det R - M),   R = Sigma^-1 S     ~ chi2(M (M + 1)/2),  S the sample covariance

The first line is exact for Gaussian outputs.  The second line, the likelihood ratio, holds up to O(1/E^2) with
Bartlett's factor rho.  A tail probability p is reported as the z with P(Z > z) = p for standard normal Z.  If sqrt(E)
<< n, E members cannot detect the O(1/n) effect of a finite width n.
"""

from __future__ import annotations

import numpy as np
from scipy.special import chdtrc, ndtri, stdtr

from minintk.arrays import Host

LARGEST_Z = 37.0
"""Largest |z|; larger z-scores are clipped to it, because the tail probability underflows in float64."""


def mean_z(f: Host, mean: Host, cov: Host) -> float:
    """Return the z-score of the sample mean of f : (E, M) under N(mean, cov)."""
    deviation = _whiten(cov, f.mean(axis=0) - mean)
    return z_of(chdtrc(len(mean), len(f) * float(deviation @ deviation)))


def covariance_z(f: Host, cov: Host) -> float:
    """Return the z-score of the sample covariance of f : (E, M), E > M, if the true covariance is cov."""
    E, M = f.shape
    if E <= M:
        raise ValueError(f"a covariance of {M} points expects more than {M} members, got {E}")
    white = _whiten(cov, (f - f.mean(axis=0)).T)
    r = np.linalg.eigvalsh(white @ white.T / (E - 1))
    rho = 1 - (2 * M + 1 - 2 / (M + 1)) / (6 * (E - 1))
    return z_of(chdtrc(M * (M + 1) // 2, rho * (E - 1) * float(np.sum(r - np.log(r) - 1))))


def scale_z(k: Host, expected: Host) -> float:
    """Return the two-sided z of the mean over members of <k_e, expected> / <expected, expected> - 1; k : (E, A, A)."""
    ratio = (k * expected).sum(axis=(-2, -1)) / (expected**2).sum() - 1
    t = abs(float(ratio.mean())) / (float(ratio.std(ddof=1)) / len(k) ** 0.5)
    return z_of(2 * stdtr(len(k) - 1, -t))


def z_of(p: float) -> float:
    """Return the z with P(Z > z) = p, between -LARGEST_Z and LARGEST_Z.

    >>> round(z_of(chdtrc(1, 3.841459)), 3)                       # chi2(1) exceeds 3.841459 with p = 0.05
    1.645
    """
    return float(np.clip(-ndtri(p), -LARGEST_Z, LARGEST_Z))


def _whiten(cov: Host, a: Host) -> Host:
    """Return L^-1 `a`, where L L' = cov."""
    return np.linalg.solve(np.linalg.cholesky(cov), a)
