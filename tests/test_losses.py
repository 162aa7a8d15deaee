"""Losses: their values by definition, their cotangents by differences, and targets that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.losses import Loss

LOSSES = [mn.mse, mn.softmax_cross_entropy]
seeds = st.integers(0, 2**32 - 1)


def outputs_and_targets(seed: int, lead: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """f : (*lead, 4, 3), and rows of probabilities y : (4, 3)."""
    rng = np.random.default_rng(seed)
    return 3 * rng.standard_normal((*lead, 4, 3)), rng.dirichlet(np.ones(3), 4)


@given(seeds)
def test_values_by_definition(seed: int) -> None:
    f, y = outputs_and_targets(seed)
    assert mn.mse(f, y) == pytest.approx(((f - y) ** 2).sum() / 8, rel=1e-14)
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    assert mn.softmax_cross_entropy(f, y) == pytest.approx(-(y * np.log(p)).sum() / 4, rel=1e-13)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@given(seed=seeds)
def test_the_cotangent_is_the_derivative(loss: Loss, seed: int) -> None:
    """dL/df against differences of fourth order along a random direction; error eps |L| / h and h^4."""
    f, y = outputs_and_targets(seed)
    v, h = np.random.default_rng(seed + 1).standard_normal(f.shape), 1e-3
    values = [loss(f + k * h * v, y) for k in (1, -1, 2, -2)]
    want = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
    assert (loss.cotangent(f, y) * v).sum() == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@given(seed=seeds)
def test_members_of_an_ensemble_have_a_loss_each(loss: Loss, seed: int) -> None:
    f, y = outputs_and_targets(seed, (5,))
    assert loss(f, y).shape == (5,)
    for e in range(5):
        assert loss(f, y)[e] == loss(f[e], y)
        assert np.array_equal(loss.cotangent(f, y)[e], loss.cotangent(f[e], y))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_float32_stays_float32(loss: Loss) -> None:
    f, y = (a.astype(np.float32) for a in outputs_and_targets(0))
    assert loss(f, y).dtype == np.float32
    assert loss.cotangent(f, y).dtype == np.float32


def test_cross_entropy_of_large_logits() -> None:
    """No overflow: log sum exp is shifted by the largest."""
    f, y = np.array([[1e4, 0.0], [0.0, -1e4]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    assert mn.softmax_cross_entropy(f, y) == 5e3
    assert np.array_equal(mn.softmax_cross_entropy.cotangent(f, y), [[0.5, -0.5], [0.0, 0.0]])


# --------------------------------------------------------------------------------------- bad targets


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(
    ("y", "outputs", "error", "words"),
    [
        (np.ones(4), (4, 1), ValueError, r"y expects shape \(N, C\) = \(4, 1\), got \(4,\): .* a column, y\[:, None\]"),
        (np.ones((3, 1)), (4, 1), ValueError, r"= \(4, 1\), got \(3, 1\)"),
        (np.ones((4, 1), int), (4, 1), TypeError, r"y expects float32 or float64, got int64: convert it, y\.astype"),
        (np.array([[1.0], [np.nan]]), (2, 1), ValueError, r"y holds 1 values that are NaN .* index \(1, 0\)"),
    ],
)
def test_targets_that_do_not_fit(loss: Loss, y: Any, outputs: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        loss.check(y, outputs)


@pytest.mark.parametrize("row", [[1.0, 1.0], [2.0, -1.0], [0.0, 0.0]])
def test_cross_entropy_wants_probabilities(row: list[float]) -> None:
    with pytest.raises(
        ValueError, match=r"expects each row of y to be a probability distribution \(one-hot labels\), got"
    ):
        mn.softmax_cross_entropy.check(np.array([row, [0.5, 0.5]]), (2, 2))
    mn.softmax_cross_entropy.check(np.array([[0.25, 0.75], [0.0, 1.0]]), (2, 2))
