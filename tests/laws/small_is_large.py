"""The thresholds of the fast paths at nothing, so that small networks take all of them, on two cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minintk.fast import conv, dense, split_batch, split_outputs, threads
from minintk.fast.thresholds import THRESHOLDS, Thresholds

NOTHING = Thresholds(
    products=0, convolution=0, batch=0, cotangents=0, share_activations=0, share_per_weight=0, patches_bytes=1,
    cotangent_bytes=1, compiled=0, meeting=0, spread=0, spread_numbers=0, normalised=0, gathering=10**9,
    gathered_channels=0,
)  # fmt: skip


@contextmanager
def small_is_large() -> Iterator[None]:
    """Every batch and product is split over two cores, every gradient in x gathered, whatever Numba can do compiled."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (threads, split_batch, split_outputs, conv, dense):
            patch.setattr(module, "cores", lambda: 2)
        threads._pool.cache_clear()
        for name, value in vars(NOTHING).items():
            patch.setattr(THRESHOLDS, name, value)
        yield
    threads._pool.cache_clear()
