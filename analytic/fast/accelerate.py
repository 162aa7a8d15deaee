"""Load the faster implementations of the kernel recursion; all of them are optional."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np

from analytic.kernels import kernel
from minintk import spec as s
from minintk.arrays import block_memory, on_host
from minintk.fast.numba_here import with_numba
from minintk.undisturbed import undisturbed


class Faster:
    """Load each faster implementation on first use."""

    def passes(self, xp: Any) -> Any:
        """Return the function `passes` for this array library; None without Numba (host) or CUDA (other devices)."""
        return self.lines if on_host(xp) else partial(self.launches, xp) if block_memory(xp) else None

    @cached_property
    def lines(self) -> Any:
        """Return `analytic.fast.vectors.passes`, or None if Numba is missing or (with a warning) fails to load."""
        return getattr(with_numba("analytic.fast.vectors"), "passes", None)

    @cached_property
    def launches(self) -> Any:
        """Return `analytic.fast.gpu_vectors.passes`."""
        return undisturbed(partial(import_module, "analytic.fast.gpu_vectors")).passes

    @cached_property
    def planes(self) -> Any:
        """Return `analytic.fast.planes`."""
        return undisturbed(partial(import_module, "analytic.fast.planes"))


faster = Faster()


def works() -> Iterator[Callable[[], object]]:
    """Yield small tasks that run the compiled kernel loops of all activations except Sign, or nothing without Numba."""
    if faster.lines is None:
        return
    duals = s.ReLU(), s.Erf(), s.GELU(), s.RectifiedMonomial(2), s.Sin(), s.Exp(0.5, 0.5), s.Gaussian()
    k = kernel(s.Sequential(*(layer for phi in duals for layer in (s.Dense(1, b_std=0.1), phi)), s.Dense(1)))
    for dtype in ("f4", "f8"):
        x = np.random.default_rng(0).standard_normal((32, 12)).astype(dtype)
        yield from (partial(of, x) for of in (k.ntk, k.nngp))
    forms = s.ReLU(), s.Erf(), s.GELU(), s.RectifiedMonomial(2), s.Sin(), s.Exp(), s.Gaussian(), s.LayerNorm()
    k = kernel(s.Sequential(*(layer for phi in forms for layer in (s.Conv2d(1, 3), phi)), s.GlobalAvgPool()))
    for dtype in ("f4", "f8"):
        x = np.random.default_rng(0).standard_normal((32, 12, 12, 3)).astype(dtype)
        yield from (partial(of, x) for of in (k.ntk, k.nngp))
