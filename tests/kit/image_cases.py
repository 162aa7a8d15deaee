"""Define specs and images for tests of whole kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import minintk as mn

Array = np.ndarray[Any, Any]

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
DTYPES = ["float32", "float64"]

CONV = mn.Conv2d(4, 3, w_std=1.4, b_std=0.3)
SPECS = {
    "relu": (mn.Sequential(CONV, mn.ReLU(), CONV, mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)), 2),
    "no bias": (mn.Sequential(mn.Conv2d(4), mn.LeakyReLU(0.3), mn.Conv2d(4), mn.Flatten(), mn.Dense(1)), 1),
    "zeros trained": (
        mn.Sequential(mn.Conv2d(4, b_std=0.5, b_init="zeros"), mn.LeakyReLU(0.3), CONV, mn.GlobalAvgPool()),
        1,
    ),
    "abs, residual": (
        mn.Sequential(CONV, mn.Residual(mn.Sequential(mn.Abs(), CONV)), mn.ReLU(), mn.AvgPool(2), mn.Flatten()),
        2,
    ),
    "erf": (mn.Sequential(CONV, mn.Erf(), CONV, mn.AvgPool(2), mn.Erf(), mn.Flatten(), mn.Dense(1)), 2),
    "erf, diagonal": (mn.Sequential(CONV, mn.Erf(), CONV, mn.Erf(), mn.Flatten(), mn.Dense(1)), 2),
    "gelu": (mn.Sequential(CONV, mn.GELU(), CONV, mn.GELU(), mn.GlobalAvgPool(), mn.Dense(1)), 1),
    "sin": (mn.Sequential(CONV, mn.Sin(1.0, 0.8, 0.3), CONV, mn.AvgPool(2), mn.Sin(), mn.Flatten(), mn.Dense(1)), 1),
    "gaussian": (mn.Sequential(CONV, mn.Gaussian(1.0, -0.3), CONV, mn.Exp(0.5, 0.3), mn.GlobalAvgPool()), 1),
    "rectified square": (mn.Sequential(CONV, mn.RectifiedMonomial(2), mn.Flatten(), mn.Dense(1)), 1),
    "erf first": (mn.Sequential(mn.Conv2d(4, b_init="zeros"), mn.Erf(), mn.Conv2d(4), mn.GlobalAvgPool()), 1),
}


def images(dtype: str) -> Array:
    """Return images in general position, and images that are equal, opposite, scaled, nearly equal, or partly black.

    The last image is entirely black.
    """
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 2))
    black = x[0].copy()
    black[:, :3] = 0
    return np.stack([*x, x[0], -x[1], 1e-2 * x[0], 1e2 * x[0], x[0] + 1e-6 * x[1], black, 0 * x[0]]).astype(dtype)
