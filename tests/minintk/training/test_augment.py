"""Compare shifts with a loop over pixels, and test the distribution of shifts and training with shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import minintk as mn
from minintk.arrays import to_host, to_library
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = np.ndarray[Any, Any]


def moved(x: Array, dy: int, dx: int, fill: float) -> Array:
    """Return one image, shifted pixel by pixel. Pixels shifted in from outside have the value `fill`."""
    H, W, _ = x.shape
    out = np.full_like(x, fill)
    for i in range(H):
        for j in range(W):
            if 0 <= i - dy < H and 0 <= j - dx < W:
                out[i, j] = x[i - dy, j - dx]
    return out


@given(
    st.integers(0, 4), st.sampled_from((0.0, -0.4)), st.sampled_from((np.float32, np.float64)), st.integers(0, 10**6)
)
def test_a_shift_is_this_loop(pixels: int, fill: float, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 5, 6, 2)).astype(dtype)
    shift = mn.Shift(pixels, fill)
    draws = shift.draw(3, rng)
    found = shift(x, draws)
    assert found.dtype == dtype
    for n in range(3):
        np.testing.assert_array_equal(found[n], moved(x[n], int(draws[n, 0]), int(draws[n, 1]), fill))
    assert not np.shares_memory(found, x)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_array_library_shifts_alike(library: str) -> None:
    rng = np.random.default_rng(0)
    x, xp = rng.standard_normal((4, 6, 5, 3)), namespace(library)
    shift = mn.Shift(3, 0.5)
    draws = shift.draw(4, rng)
    np.testing.assert_array_equal(to_host(shift(to_library(x, xp), to_library(draws, xp))), shift(x, draws))


def test_shifts_are_uniform_and_independent() -> None:
    """Shifts pass a chi-square test over the 25 cells of a 5 x 5 square.

    Draws that never reach 2 fail the test, and so do equal draws for both axes.
    """
    draws = mn.Shift(2).draw(20_000, np.random.default_rng(0))

    def p(draws: Array) -> float:
        cells = np.bincount((draws[:, 0] + 2) * 5 + draws[:, 1] + 2, minlength=25)
        return float(stats.chisquare(cells).pvalue)

    assert draws.min() == -2
    assert draws.max() == 2
    assert 1e-4 < p(draws) < 1 - 1e-4
    assert p(np.minimum(draws, 1)) < 1e-12
    assert p(np.stack([draws[:, 0], draws[:, 0]], axis=1)) < 1e-12


def test_the_data_sets_shifts_are_these() -> None:
    data = mn.datasets.digits()[:20]
    by = mn.Shift(2).draw(20, np.random.default_rng(3))
    found = data.shifted(2, np.random.default_rng(3)).images().x
    np.testing.assert_array_equal(found, mn.Shift(2)(data.images().x, by))


NET = mn.Network(mn.Sequential(mn.Flatten(), mn.Dense(5), mn.Tanh(), mn.Dense(2)), (4, 5, 1))
THETA = NET.init(np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((7, 4, 5, 1))
Y = np.random.default_rng(2).standard_normal((7, 2))
DRAWS = np.zeros((7, 2), dtype=int)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_training_sees_shifted_images(batch_size: int | None) -> None:
    """At each step, outputs are computed on the batch with the shifts drawn at the start of the epoch."""
    shift, per_epoch = mn.Shift(2, fill=0.5), 1 if batch_size is None else 2
    rng = np.random.default_rng(9)
    for snap in mn.train(
        NET, THETA, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.05), steps=6, batch_size=batch_size,
        rng=np.random.default_rng(9), augment=shift,
    ):  # fmt: skip
        place = snap.step % per_epoch
        if place == 0:
            order = rng.permutation(7) if batch_size else np.arange(7)
            by = shift.draw(7, rng)
        batch = order[place * 3 : place * 3 + 3] if batch_size else order
        np.testing.assert_array_equal(snap.f, NET(snap.theta, shift(X[batch], by[batch])))


def test_no_shift_is_no_augmentation() -> None:
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.05), "steps": 5}
    *_, a = mn.train(NET, THETA, X, Y, **how)
    *_, b = mn.train(NET, THETA, X, Y, **how, augment=mn.Shift(0), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(a.theta, b.theta)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: mn.Shift(-1), ValueError, r"Shift\(pixels=\.\.\.\) expects a whole number >= 0, got -1"),
        (lambda: mn.Shift(1, fill=np.nan), ValueError, r"Shift\(fill=\.\.\.\) expects a finite number, got nan"),
        (lambda: mn.Shift(2)(X[..., 0], DRAWS), ValueError, r"Shift moves images x : \(N, H, W, C\)"),
        (
            lambda: go(augment=mn.Shift(4)),
            ValueError,
            r"Shift\(pixels=4\) moves images of shape \(4, 5, 1\) out of sight",
        ),
        (
            lambda: go(augment=mn.Shift(1), rng=None),
            TypeError,
            r"rng, of .*augmentation, expects a numpy\.random\.Generator",
        ),
        (lambda: go(augment=2), TypeError, r"augment expects mn\.Shift\(\.\.\.\), got 2"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def go(**changes: Any) -> Any:
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.05), "steps": 5, "rng": np.random.default_rng(0)}
    return mn.train(NET, THETA, X, Y, **(how | changes))
