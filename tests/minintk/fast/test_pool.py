"""MaxPool compiled: outputs and derivatives are those of the layer as it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.fast.door import shut
from minintk.fast.pool import CompiledMaxPool, CompiledMaxPoolJacobian
from minintk.layers.pool import MaxPoolJacobian
from tests.kit.small_is_large import small_is_large

POOLS: dict[str, tuple[mn.MaxPool, tuple[int, ...]]] = {
    "apart": (mn.MaxPool(2), (7, 8, 16)),
    "overlapping": (mn.MaxPool((3, 2), stride=(2, 1)), (9, 7, 17)),
    "padded": (mn.MaxPool(3, stride=2, padding="same"), (6, 5, 16)),
    "circular": (mn.MaxPool(3, stride=1, padding="circular"), (4, 5, 16)),
}


def both(name: str) -> tuple[Any, Any]:
    """The layer as it is written, and compiled."""
    layer, shape = POOLS[name]
    with shut():
        plain: Any = mn.Network(mn.Sequential(layer, mn.Flatten(), mn.Dense(1)), shape).layers.layers[0]
    return plain, CompiledMaxPool(plain.windows, plain.before, plain.after)


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_compiled_layer_is_the_layer(name: str, dtype: Any) -> None:
    """With ties, as whole numbers have them; one cotangent and several; members of an ensemble go the plain way."""
    pytest.importorskip("numba")
    plain, fast = both(name)
    rng = np.random.default_rng(0)
    x, dx = rng.integers(-2, 3, (2, 5, *plain.before)).astype(dtype)
    u = rng.integers(-9, 9, (3, 5, *plain.after)).astype(dtype)  # whole numbers have no rounding
    with small_is_large():
        (y, J), (z, K) = plain({}, x), fast({}, x)
        assert isinstance(K, CompiledMaxPoolJacobian)
        assert z.dtype == dtype
        np.testing.assert_array_equal(y, z)
        np.testing.assert_array_equal(J.jvp({}, dx), K.jvp({}, dx))
        for some in (u[0], u):
            np.testing.assert_array_equal(J.vjp(some, None), K.vjp(some, None))
        assert isinstance(fast({}, x[None])[1], MaxPoolJacobian)


def test_the_last_of_equal_numbers_is_refused() -> None:
    """Negative control: the gradient to another of the largest; and a NaN is the largest number of its windows."""
    pytest.importorskip("numba")
    plain, fast = both("overlapping")
    x, u = np.ones((2, *plain.before)), np.ones((2, *plain.after))
    with small_is_large():
        (_, J), (_, K) = plain({}, x), fast({}, x)
        np.testing.assert_array_equal(J.vjp(u, None), K.vjp(u, None))
        K.place[...] = plain.windows.window[0] * plain.windows.window[1] - 1
        assert not np.array_equal(J.vjp(u, None), K.vjp(u, None))
        x[0, 4, 3:5, 2] = np.nan
        y, L = fast({}, x)
        np.testing.assert_array_equal(plain({}, x)[0], y)
        assert L.place[0, 2, 3, 2] == 0  # of two in a window the first
