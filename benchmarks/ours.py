"""What our sides share: arrays on the device asked for, and waiting for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness import Arrays


def moved(a: Arrays, device: str) -> tuple[Any, dict[str, Any]]:
    """(xp, the arrays as arrays of xp), on "cpu" or "gpu"."""
    from minintk.arrays import device_namespace, to_library

    xp = device_namespace(device)
    return xp, {name: to_library(value, xp) for name, value in a.items()}


def finished(arrays: Iterable[Any]) -> None:
    """Wait until the arrays are computed: a GPU works on its own, and copying one number from it waits for it."""
    from minintk.arrays import to_host

    for array in arrays:
        to_host(array.reshape(-1)[-1:])


def on_host(arrays: dict[str, Any]) -> Arrays:
    """The arrays in NumPy."""
    from minintk.arrays import to_host

    return {name: to_host(array) for name, array in arrays.items()}
