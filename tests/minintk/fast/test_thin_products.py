"""Products that are small along one side, by compiled loops: those of BLAS, whichever side it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_is_large import small_is_large

from minintk.fast import dense
from minintk.fast.threads import single_threaded_blas

direct: Any = pytest.importorskip("minintk.fast.direct")
Array = np.ndarray[Any, Any]


def products(M: int, K: int, n: int, dtype: str, seed: int) -> list[tuple[Array, Array]]:
    """y = x W, dW = x' u, dx = u W', of whole numbers: right to the last bit in any order."""
    rng = np.random.default_rng(seed)
    x, W, u = (rng.integers(-9, 10, shape).astype(dtype) for shape in ((M, K), (K, n), (M, n)))
    return [(x, W), (x.T, u), (u, W.T)]


def by_halves(a: Array, b: Array) -> Array:
    """a b, as Dense has it computed."""
    out = np.full((a.shape[0], b.shape[1]), np.nan, a.dtype)
    with small_is_large(), single_threaded_blas():
        dense.split((a, b, out))
    return out


@settings(max_examples=30)
@given(
    st.integers(1, 70),
    st.integers(1, 40),
    st.integers(1, 6),
    st.sampled_from(("float32", "float64")),
    st.integers(0, 9),
)
def test_thin_products_are_the_products(M: int, K: int, n: int, dtype: str, seed: int) -> None:
    for a, b in products(M, 5 * K, 32 * n, dtype, seed):
        np.testing.assert_array_equal(by_halves(a, b), a @ b)


def test_dense_on_few_examples_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All three of them in halves; not where a part of the columns fills no vector.  A term left out is seen."""
    calls: list[tuple[int, ...]] = []
    right = direct.thin

    def counted(a: Array, left: Any, b: Array, of_b: Any, y: Array, of_y: Any, size: tuple[int, ...]) -> None:
        calls.append(size)
        right(a, left, b, of_b, y, of_y, size)

    monkeypatch.setattr(direct, "thin", counted)
    for a, b in products(8, 96, 64, "float64", 0):
        by_halves(a, b)
    assert sorted(calls) == sorted([(8, 96, 32)] * 2 + [(48, 8, 64)] * 2 + [(48, 64, 16)] * 2)
    calls.clear()
    by_halves(*products(8, 96, 24, "float64", 0)[0])
    assert not calls
    monkeypatch.setattr(direct, "thin", lambda *args: right(*args[:-1], (args[-1][0], args[-1][1] - 1, args[-1][2])))
    for a, b in products(8, 96, 64, "float64", 0):
        assert (by_halves(a, b) != a @ b).any()
