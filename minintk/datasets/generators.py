"""Synthetic data: points on a sphere or a cube, and targets from a teacher."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from minintk.arrays import check_finite
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


def teacher_student(
    teacher: Callable[[Array], Array], n: int, d: int, rng: np.random.Generator, *, noise: float = 0.0
) -> tuple[Array, Array]:
    """(x, y) with x uniform on the sphere |x|^2 = d and y = teacher(x) + noise * N(0, 1), y : (n, C).

    teacher : any function (n, d) -> (n, C); a network at random weights is ``lambda x: net(theta, x)``.

    >>> x, y = teacher_student(lambda x: x[:, :1] * x[:, 1:2], 100, 5, np.random.default_rng(0))
    >>> x.shape, y.shape
    ((100, 5), (100, 1))
    """
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise expects a standard deviation >= 0, got {noise!r}")
    x = sphere(n, d, rng)
    y = teacher(x)
    if not isinstance(y, np.ndarray) or y.ndim != 2 or len(y) != n:
        raise ValueError(
            f"teacher must return an array of shape ({n}, C) for x of shape {x.shape}, "
            f"got {getattr(y, 'shape', type(y).__name__)}: one output is a column, y[:, None]"
        )
    check_finite("teacher(x)", y)
    return x, y + noise * rng.standard_normal(y.shape) if noise else y


def _check(n: int, d: int, rng: np.random.Generator) -> None:
    whole("n", n)
    whole("d", d)
    check_rng(rng)
