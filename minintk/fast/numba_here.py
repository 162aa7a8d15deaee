"""Check whether Numba is available, and load the compiled loops when they are first needed."""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from minintk.undisturbed import undisturbed


@cache
def numba_is_here() -> bool:
    """Return True if Numba is installed (the extra `fast`) and not disabled by NUMBA_DISABLE_JIT."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def with_numba(module: str) -> Any:
    """Import a module that needs Numba.  Return None if Numba is missing; warn and return None if loading fails."""

    def load() -> Any:
        try:
            return import_module(module)
        except Exception as error:  # extension modules can raise anything
            return error

    found = undisturbed(load) if numba_is_here() else None
    if not isinstance(found, Exception):
        return found
    warnings.warn(f"Numba is installed but does not load, so NumPy is used alone: {found}", RuntimeWarning, 3)


@cache
def loops() -> Any:
    """Load and return `minintk.fast.numba_loops`, or return None if Numba is missing or fails to load."""
    return with_numba("minintk.fast.numba_loops")
