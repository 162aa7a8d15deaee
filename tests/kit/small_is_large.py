"""Change the thresholds of the fast paths, so that small networks use all fast paths, with two cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minintk import threads, thresholds
from minintk.thresholds import THRESHOLDS, Thresholds

NOTHING = Thresholds(
    products=1, convolution=1, convolution_per_weight=0, share=1, share_per_weight=0, cotangents=1, pixels=1,
    patches_bytes=1, cotangent_bytes=1, compiled=0, normalised=0, gathering=10**9, gathered_channels=0, plain=0,
)  # fmt: skip


@contextmanager
def small_is_large() -> Iterator[None]:
    """Make networks split batches and products in two, gather gradients with respect to x, and use compiled layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "cores", lambda: 2)
        patch.setattr(thresholds, "PIECES", 2)
        for name, value in vars(NOTHING).items():
            patch.setattr(THRESHOLDS, name, value)
        yield
