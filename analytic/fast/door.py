"""The door between the recursion of kernels as it is written and its cheaper ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from analytic.kernels import kernel
from minintk import spec as s


def works() -> Iterator[Callable[[], object]]:
    """Yield small works that between them take every compiled loop of kernels, in both precisions."""
    forms = s.ReLU(), s.Erf(), s.GELU(), s.RectifiedMonomial(2), s.Sin(), s.Exp(), s.Gaussian(), s.LayerNorm()
    k = kernel(s.Sequential(*(layer for phi in forms for layer in (s.Conv2d(1, 3), phi)), s.GlobalAvgPool()))
    for dtype in ("f4", "f8"):
        x = np.random.default_rng(0).standard_normal((32, 12, 12, 3)).astype(dtype)
        yield from (partial(of, x) for of in (k.ntk, k.nngp))
