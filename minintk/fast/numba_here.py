"""Find out whether Numba is here, and load what it compiles when it is first needed."""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@cache
def numba_is_here() -> bool:
    """Whether Numba is installed (the extra `fast`) and not switched off: in Python none of our loops would work."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


@cache
def loops() -> Any:
    """`minintk.fast.direct`, loaded; None, with a warning, where Numba does not load (it needs another NumPy)."""
    try:
        return import_module("minintk.fast.direct")
    except Exception as error:  # whatever an extension module raises
        warnings.warn(f"Numba is installed but does not load, so NumPy is used alone: {error}", RuntimeWarning, 2)
        return None
