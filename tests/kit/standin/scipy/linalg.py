"""Provide the functions of cupyx.scipy.linalg, computed by SciPy. cho_factor and cho_solve are missing, as in CuPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.linalg

from tests.kit.standin.device import ndarray, on_device
from tests.kit.standin.namespace import _fill

_fill(sys.modules[__name__], "cupyx.scipy.linalg", scipy.linalg)


def _solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, check_finite: bool = False
) -> Any:
    if np.any(np.diagonal(a) == 0) and not unit_diagonal:
        return np.full_like(b, np.inf)  # cuBLAS divides by zero
    return scipy.linalg.solve_triangular(a, b, trans, lower, unit_diagonal, check_finite=False)


def solve_triangular(a: ndarray, b: ndarray, *args: Any, **kwargs: Any) -> ndarray:
    """Solve a x = b for x. As with cuBLAS, a NaN or a zero on the diagonal raises no error."""
    return on_device(_solve_triangular)(a, b, *args, **kwargs)
