"""Synthetic data: points on a sphere or a cube."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from minintk.datasets.dataset import check_rng
from minintk.validate import whole

Array = np.ndarray[Any, Any]


def sphere(n: int, d: int, rng: np.random.Generator) -> Array:
    """x : (n, d), uniform on the sphere |x|^2 = d, so that the input kernel x x' / d has a unit diagonal.

    >>> x = sphere(5, 3, np.random.default_rng(0))
    >>> bool(np.allclose((x**2).sum(axis=1), 3))
    True
    """
    _check(n, d, rng)
    x: Array = rng.standard_normal((n, d))
    x *= sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
    return x


def cube(n: int, d: int, rng: np.random.Generator) -> Array:
    """x : (n, d), independent uniform corners of the cube {-1, +1}^d; |x|^2 = d, and corners may repeat.

    >>> np.unique(cube(20, 3, np.random.default_rng(0))).tolist()
    [-1.0, 1.0]
    """
    _check(n, d, rng)
    return 2.0 * rng.integers(0, 2, (n, d)) - 1.0


def _check(n: int, d: int, rng: np.random.Generator) -> None:
    whole("n", n)
    whole("d", d)
    check_rng(rng)
