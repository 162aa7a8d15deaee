"""Inputs that break code which is right for random ones: equal, collinear, opposite, zero, close, tied, single."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]


def hard_inputs(
    rng: np.random.Generator, shape: Sequence[int] = (4,), dtype: Any = np.float64
) -> Iterator[tuple[str, Values]]:
    """(what is hard about it, x : (N, *shape)) for each of the inputs below; a title that begins so is of that kind.

        random       as a control, and more examples than features, and fewer
        equal        two of the examples are the same: the angle between them is 0, its cosine may round to above 1
        collinear    examples that are positive multiples of one another: cosines of 1 that round to either side
        opposite     an example and its negative multiple: cosines of -1
        zero         an example of zeros: no angle at all
        close        1e-9 apart (1e-4 in float32): arccos of the cosine loses half of the digits
        ties         entries among -1, 0, 1: equal maxima, zeros at kinks
        one          a single example
        large        1e3 times larger: exponentials that overflow

    shape : of one example, (d,) or (H, W, C).  Thirty collinear examples make 435 cosines: code without a clip fails.

    >>> [title for title, x in hard_inputs(np.random.default_rng(0))][:4]
    ['random', 'random, more examples than entries', 'random, two examples', 'equal examples']
    """
    shape = tuple(shape)
    size = int(np.prod(shape))

    def normal(n: int) -> Values:
        return rng.standard_normal((n, *shape))

    base = normal(5)
    ray = rng.uniform(0.1, 10, (30, *([1] * len(shape)))) * normal(1)
    near = 1e-4 if np.dtype(dtype) == np.float32 else 1e-9
    pool = {
        "random": base,
        "random, more examples than entries": normal(size + 3),
        "random, two examples": normal(2),
        "equal examples": np.concatenate([base, base[:2]]),
        "collinear examples": ray,
        "opposite examples": np.concatenate([base, -base[:2], -2.5 * base[:1]]),
        "zero: an example of zeros": np.concatenate([base, np.zeros((1, *shape))]),
        f"close: examples {near:g} apart": np.concatenate([base, base[:2] + near * normal(2)]),
        "ties: entries of -1, 0 and 1": rng.integers(-1, 2, (6, *shape)).astype(np.float64),
        "one example": normal(1),
        "large entries": 1e3 * normal(4),
    }
    for title, x in pool.items():
        yield title, x.astype(dtype)
