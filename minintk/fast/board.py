"""The board where a thread posts compiled loops for others (`minintk.fast.crew`); a line of cache for each place."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

OPEN, INSIDE, NEXT, BACK, PIECES, TASK, FAILED, STOP, CAME, LEFT = range(0, 80, 8)
"""Whether a task is posted; threads that may be at it; pieces taken, and those by others than the caller; all pieces;
addresses of function and arguments; whether a piece failed; whether all shall leave; threads sent here, and left."""


@cache
def board() -> np.ndarray[Any, Any]:
    """int64; a child process gets a new one."""
    return np.zeros(80, np.int64)
