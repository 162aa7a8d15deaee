"""The thresholds of the fast paths at nothing, so that small networks take all of them, on two cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minintk.fast import conv, dense, split_batch, split_outputs, threads, toom_cook
from minintk.fast.thresholds import THRESHOLDS, Thresholds

NOTHING = Thresholds(
    products=0, convolution=0, batch=0, cotangents=0, share_activations=0, share_per_weight=0, patches_bytes=1,
    tiles_bytes=1, tiles_saving=-1000, cotangent_bytes=1,
)  # fmt: skip


@contextmanager
def small_is_large() -> Iterator[None]:
    """Networks that are made inside go by tiles wherever these fit; every batch and product is split over two cores."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (threads, split_batch, split_outputs, conv, dense, toom_cook):
            patch.setattr(module, "cores", lambda: 2)
        threads._pool.cache_clear()
        for name, value in vars(NOTHING).items():
            patch.setattr(THRESHOLDS, name, value)
        yield
    threads._pool.cache_clear()
