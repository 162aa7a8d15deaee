"""Generate the experiment's data: 256 inputs around a circle."""

import numpy as np

LAGS, DRAWS = (1, 2, 4, 8), 20


def circle(M=256):
    """Return M equally spaced points on the circle |x|^2 = 2, (M, 2)."""
    angles = 2 * np.pi * np.arange(M) / M
    return np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def problem(seed):
    """Return (x, lags, draws, seed, w_std, b_std), the arguments of roughness."""
    return circle(), LAGS, DRAWS, seed, np.sqrt(2), 0.0
