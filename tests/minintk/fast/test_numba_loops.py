"""Test the compiled loops of a convolution with many weights; `test_conv` tests them in other layers and networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.fast.conv import BlockedConv
from tests.kit.small_is_large import small_is_large
from tests.minintk.fast.test_conv import RNG, bound, maps


def test_more_weights_than_a_cache_holds_go_some_columns_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """y, J v and J' u are correct if the weights exceed the cache and the loops read the images twice.

    As a control, y is wrong if the two passes fill the same channels.
    """
    direct: Any = pytest.importorskip("minintk.fast.numba_loops")
    plain, rng, columns = bound(mn.Conv2d(272, 3), (4, 4, 128)), RNG(0), direct.columns
    assert 1 < plain.parameters.W.size / direct.CACHED < 2
    w, dw = ({t.name: rng.standard_normal(t.shape) for t in plain.tensors} for _ in range(2))
    arrays = *rng.standard_normal((2, 2, 4, 4, 128)), rng.standard_normal((2, *plain.after))
    with small_is_large():
        found, want = maps(BlockedConv.of(plain), w, dw, *arrays), maps(plain, w, dw, *arrays)
        monkeypatch.setattr(direct, "columns", lambda W: [(0, V) for _, V in columns(W)])
        wrong, _ = BlockedConv.of(plain)(w, arrays[0])
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max() * np.sqrt(b.size))
    assert not np.allclose(wrong, want[0], rtol=0, atol=0.1)
