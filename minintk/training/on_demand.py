"""Runs that compute nothing until a result is asked for, and say so if none ever was."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class OnDemand(Iterator[T]):
    """An iterator that warns, as it is deleted, if nothing was ever asked of it: the run that it stands for never ran.

    call : how the run was started, for the warning.
    """

    def __init__(self, results: Iterator[T], call: str) -> None:
        self._results = results
        self._forgotten = weakref.finalize(self, _warn, call)
        self._forgotten.atexit = False

    def __next__(self) -> T:
        self._forgotten.detach()
        return next(self._results)


def _warn(call: str) -> None:
    warnings.warn(
        f"{call} computes each result when it is asked for, and none was: nothing was trained. Write "
        f"`for snapshot in {call}: ...`, or `*_, end = {call}` for the last one alone",
        RuntimeWarning,
        stacklevel=2,
    )
