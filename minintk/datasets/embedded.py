"""The 8 x 8 handwritten digits inside the package: real data, no download."""

from __future__ import annotations

from typing import Any

import numpy as np

from minintk.datasets.dataset import Dataset
from minintk.files.reading import read_npz, reading
from minintk.validate import precision

ATTRIBUTION = (
    "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, "
    "https://doi.org/10.24432/C50P49, CC BY 4.0"
)


def digits(*, dtype: Any = np.float64) -> Dataset:
    """1,797 real handwritten digits of 8 x 8 pixels, x : (1797, 64) in [0, 1].

    The order is the published one; the classes are nearly balanced (174 to 183 images each).
    Source: see `Dataset.attribution`.

    >>> data = digits()
    >>> data.x.shape, float(data.x.max()), data.labels[:5].tolist()
    ((1797, 64), 1.0, [0, 1, 2, 3, 4])
    """
    from importlib.resources import as_file, files  # here because it takes a tenth of the package's import time

    with (
        as_file(files("minintk.datasets") / "digits.npz") as path,
        reading(path, "the digits of the package", "install minintk again") as file,
    ):
        arrays = read_npz(file)
        images, labels = arrays["images"], arrays["labels"]
    x = images.reshape(-1, 64) / np.asarray(16, precision(dtype))  # grey levels 0 to 16
    return Dataset(x, labels, image_shape=(8, 8, 1), name="digits", attribution=ATTRIBUTION)
