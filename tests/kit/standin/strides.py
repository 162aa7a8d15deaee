"""Provide the function `as_strided` of cupy.lib.stride_tricks for arrays of the stand-in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.kit.standin.device import ndarray


def as_strided(x: ndarray, shape: Sequence[int], strides: Sequence[int]) -> ndarray:
    """Return a view of x with shape `shape` and strides `strides`."""
    return ndarray(np.lib.stride_tricks.as_strided(x._host, shape, strides))
