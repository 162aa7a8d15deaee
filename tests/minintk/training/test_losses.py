"""Test losses: values, large outputs and invalid targets. The laws of losses are in `tests/laws/test_every_loss.py`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.training.losses import Loss

MARGINS: list[Loss] = [mn.hinge, mn.Hinge(alpha=3.0), mn.logistic, mn.Logistic(alpha=0.5)]
seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_values_by_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, y = 3 * rng.standard_normal((4, 3)), rng.dirichlet(np.ones(3), 4)
    assert mn.mse(f, y) == pytest.approx(((f - y) ** 2).sum() / 8, rel=1e-14)
    assert mn.sum_of_squares(f, y) == pytest.approx(((f - y) ** 2).sum() / 4, rel=1e-14)
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    assert mn.softmax_cross_entropy(f, y) == pytest.approx(-(y * np.log(p)).sum() / 4, rel=1e-13)


@given(seeds, st.floats(1e-3, 1e3))
def test_margin_losses_by_definition(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    f, y = 2 * rng.standard_normal((4, 1)), rng.choice((-1.0, 1.0), (4, 1))
    hinge, logistic = np.maximum(0, 1 - y * f).sum(), np.log(1 + np.exp(-y * f)).sum()
    assert mn.Hinge(alpha)(f, y) == pytest.approx(hinge / (4 * alpha**2), rel=1e-13, abs=0)
    assert mn.Logistic(alpha)(f, y) == pytest.approx(logistic / (4 * alpha**2), rel=1e-13)


def test_the_hinge_is_exactly_zero_from_margin_one_on() -> None:
    f, y = np.array([[1.0], [-1.0], [-5.0]]), np.array([[1.0], [-1.0], [-1.0]])
    assert mn.hinge(f, y) == 0
    assert not mn.hinge.cotangent(f, y).any()


def test_logistic_of_large_outputs() -> None:
    """Nothing overflows, and the tail is accurate: log(1 + e^-m) is e^-m up to rounding for a large margin m."""
    f, y = np.array([[-1e4], [50.0]]), np.array([[1.0], [1.0]])
    assert mn.logistic(f, y) == 5e3
    assert mn.logistic(f[1:], y[1:]) == pytest.approx(np.exp(-50), rel=1e-14)
    assert np.array_equal(mn.logistic.cotangent(f, y)[0], [-0.5])


def test_cross_entropy_of_large_logits() -> None:
    """Nothing overflows, because log sum exp is shifted by the largest logit."""
    f, y = np.array([[1e4, 0.0], [0.0, -1e4]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    assert mn.softmax_cross_entropy(f, y) == 5e3
    assert np.array_equal(mn.softmax_cross_entropy.cotangent(f, y), [[0.5, -0.5], [0.0, 0.0]])


@pytest.mark.parametrize("row", [[1.0, 1.0], [2.0, -1.0], [0.0, 0.0]])
def test_cross_entropy_wants_probabilities(row: list[float]) -> None:
    with pytest.raises(ValueError, match=r"expects a probability distribution in each row of y, got"):
        mn.softmax_cross_entropy.check(np.array([row, [0.5, 0.5]]), (2, 2))
    mn.softmax_cross_entropy.check(np.array([[0.25, 0.75], [0.0, 1.0]]), (2, 2))


@pytest.mark.parametrize("loss", MARGINS, ids=repr)
def test_margins_want_signs_and_one_output(loss: Loss) -> None:
    with pytest.raises(ValueError, match=r"expects labels y = -1 or 1, got 0: y = 2\.0 \* \(class == 1\) - 1"):
        loss.check(np.array([[1.0], [0.0]]), (2, 1))
    with pytest.raises(ValueError, match=r"is for networks with one output, got 2"):
        loss.check(np.ones((3, 2)), (3, 2))
    loss.check(np.array([[1.0], [-1.0]]), (2, 1))


def test_one_output_has_no_softmax() -> None:
    with pytest.raises(ValueError, match=r"one output is 0 whatever it says: use mn\.logistic"):
        mn.softmax_cross_entropy.check(np.ones((3, 1)), (3, 1))
