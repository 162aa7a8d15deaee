"""Choose the array libraries of the tests: all available libraries, or the library named in MININTK_TEST_ARRAYS.

    MININTK_TEST_ARRAYS=cupy python -m pytest tests/device/test_device.py         # numpy, standin or cupy

NumPy and the stand-in are always available. CuPy is available if it is installed and finds a GPU. A test that
runs once per library:

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_something(library):
        xp = namespace(library)
"""

from __future__ import annotations

import os
from typing import Any

from minintk.arrays import device_namespace
from tests.kit.standin import xp as _standin

VARIABLE = "MININTK_TEST_ARRAYS"
NAMES = ("numpy", "standin", "cupy")


def namespace(library: str) -> Any:
    """Return the array namespace of a library. Raise RuntimeError for CuPy if it finds no GPU."""
    if library not in NAMES:
        raise ValueError(f"{VARIABLE} expects one of {', '.join(NAMES)}, got {library!r}")
    return _standin if library == "standin" else device_namespace("gpu" if library == "cupy" else "cpu")


def _available() -> tuple[str, ...]:
    if chosen := os.environ.get(VARIABLE):
        namespace(chosen)
        return (chosen,)
    try:
        namespace("cupy")
    except RuntimeError:
        return ("numpy", "standin")
    return NAMES


LIBRARIES = _available()
"""The array libraries that the tests use: all available libraries, or only the chosen library."""
