"""Data that need no file of the user: the digits inside the package, points on a sphere or a cube."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from minintk.datasets.dataset import Array, Dataset
from minintk.files.reading import read_npz, reading
from minintk.validate import check_generator, precision, whole

ATTRIBUTION = (
    "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, "
    "https://doi.org/10.24432/C50P49, CC BY 4.0"
)


def packaged(name: str) -> dict[str, Array]:
    """The arrays of a file inside the package."""
    from importlib.resources import as_file, files  # here because it takes a tenth of the package's import time

    with (
        as_file(files("minintk.datasets") / f"{name}.npz") as path,
        reading(path, f"the {name} of the package", "install minintk again") as file,
    ):
        return read_npz(file)


def digits(*, dtype: Any = np.float64) -> Dataset:
    """1,797 real handwritten digits of 8 x 8 pixels, x : (1797, 64) in [0, 1].

    The order is the published one; the classes are nearly balanced (174 to 183 images each).
    Source: see `Dataset.attribution`.

    >>> data = digits()
    >>> data.x.shape, float(data.x.max()), data.labels[:5].tolist()
    ((1797, 64), 1.0, [0, 1, 2, 3, 4])
    """
    arrays = packaged("digits")
    x = arrays["images"].reshape(-1, 64) / np.asarray(16, precision(dtype))  # grey levels 0 to 16
    return Dataset(x, arrays["labels"], image_shape=(8, 8, 1), name="digits", attribution=ATTRIBUTION)


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
    check_generator("rng", rng)
