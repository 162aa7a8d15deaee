"""Inputs that break code which is right for random ones: equal, collinear, opposite, zero, close, tied, single."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]


def hard_inputs(rng: np.random.Generator, shape: Sequence[int] = (4,)) -> Iterator[tuple[str, Values]]:
    """(what is hard about it, x : (N, *shape)); the first word of a title says of which kind it is.

    shape : of one example, (d,) or (H, W, C).

    >>> [title for title, x in hard_inputs(np.random.default_rng(0))][:4]
    ['random', 'random, more examples than entries', 'random, two examples', 'equal examples']
    """
    shape = tuple(shape)

    def normal(n: int) -> Values:
        return rng.standard_normal((n, *shape))

    base = normal(5)
    rays = rng.uniform(0.1, 10, (30, *([1] * len(shape)))) * normal(1)
    pool = {
        "random": base,
        "random, more examples than entries": normal(prod(shape) + 3),
        "random, two examples": normal(2),
        "equal examples": np.concatenate([base, base[:2]]),  # angles of 0, whose cosines may round to above 1
        "collinear examples": rays,  # 435 such cosines: code without a clip fails
        "opposite examples": np.concatenate([base, -base[:2], -2.5 * base[:1]]),  # cosines of -1
        "zero: an example of zeros": np.concatenate([base, np.zeros((1, *shape))]),  # no angle at all
        "close: examples 1e-09 apart": np.concatenate([base, base[:2] + 1e-9 * normal(2)]),  # arccos loses digits
        "ties: entries of -1, 0 and 1": rng.integers(-1, 2, (6, *shape)).astype(np.float64),  # maxima, kinks
        "one example": normal(1),
        "large entries": 1e3 * normal(4),  # exponentials overflow
    }
    yield from pool.items()
