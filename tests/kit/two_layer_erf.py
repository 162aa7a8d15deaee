"""Provide an explicit NTK and well-conditioned data for tests of training dynamics."""

from __future__ import annotations

import math

import numpy as np

from minintk.arrays import Array as A


def erf_ntk(x1: A, x2: A, w: float = 1.5, b: float = 0.05) -> A:
    """Return the NTK of Dense-erf-Dense (Lee et al. 2019, supplement)."""
    d = x1.shape[1]
    k, q1, q2 = (w**2 * v / d + b**2 for v in (x1 @ x2.T, (x1**2).sum(1), (x2**2).sum(1)))
    product = np.outer(1 + 2 * q1, 1 + 2 * q2)
    nngp = w**2 * 2 / math.pi * np.arcsin(2 * k / np.sqrt(product)) + b**2
    return np.asarray(nngp + w**2 * k * 4 / math.pi / np.sqrt(product - 4 * k**2))


def spread(N: int = 7, M: int = 3, C: int = 2, d: int = 6, seed: int = 1) -> tuple[A, A, A, A]:
    """Return (k, k_test, y, x): for random x, a well-conditioned NTK, the NTK of test inputs and x, random targets."""
    draw = np.random.default_rng(seed).standard_normal
    x, x_test = draw((N, d)), draw((M, d))
    return erf_ntk(x, x), erf_ntk(x_test, x), draw((N, C)), x
