"""Losses: their values by definition, their cotangents by differences, and targets that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_laws import floating_losses, losses, nan_losses

import minintk as mn
from minintk.training.losses import Loss

LOSSES: list[Loss] = [mn.mse, mn.sum_of_squares, mn.softmax_cross_entropy]
MARGINS: list[Loss] = [mn.hinge, mn.Hinge(alpha=3.0), mn.logistic, mn.Logistic(alpha=0.5)]
seeds = st.integers(0, 2**32 - 1)


def outputs_and_targets(seed: int, lead: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """f : (*lead, 4, 3), and rows of probabilities y : (4, 3)."""
    rng = np.random.default_rng(seed)
    return 3 * rng.standard_normal((*lead, 4, 3)), rng.dirichlet(np.ones(3), 4)


def margins(loss: Loss, seed: int, lead: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """The same; for a loss of the margin f : (*lead, 4, 1), no margin within 0.02 of the kink, and y : (4, 1)."""
    if loss in LOSSES:
        return outputs_and_targets(seed, lead)
    rng = np.random.default_rng(seed)
    y = rng.choice((-1.0, 1.0), (4, 1))
    m = 1 + 2 * rng.standard_normal((*lead, 4, 1))
    return y * (m + np.where(m > 1, 0.02, -0.02)), y


@given(seeds)
def test_values_by_definition(seed: int) -> None:
    f, y = outputs_and_targets(seed)
    assert mn.mse(f, y) == pytest.approx(((f - y) ** 2).sum() / 8, rel=1e-14)
    assert mn.sum_of_squares(f, y) == pytest.approx(((f - y) ** 2).sum() / 4, rel=1e-14)
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    assert mn.softmax_cross_entropy(f, y) == pytest.approx(-(y * np.log(p)).sum() / 4, rel=1e-13)


@given(seeds, st.floats(1e-3, 1e3))
def test_margin_losses_by_definition(seed: int, alpha: float) -> None:
    f, y = margins(mn.hinge, seed)
    hinge, logistic = np.maximum(0, 1 - y * f).sum(), np.log(1 + np.exp(-y * f)).sum()
    assert mn.Hinge(alpha)(f, y) == pytest.approx(hinge / (4 * alpha**2), rel=1e-13, abs=0)
    assert mn.Logistic(alpha)(f, y) == pytest.approx(logistic / (4 * alpha**2), rel=1e-13)


def test_the_hinge_is_exactly_zero_from_margin_one_on() -> None:
    f, y = np.array([[1.0], [-1.0], [-5.0]]), np.array([[1.0], [-1.0], [-1.0]])
    assert mn.hinge(f, y) == 0
    assert not mn.hinge.cotangent(f, y).any()


def test_logistic_of_large_outputs() -> None:
    """No overflow, and an accurate tail: log(1 + e^-m) = e^-m for a large margin m."""
    f, y = np.array([[-1e4], [50.0]]), np.array([[1.0], [1.0]])
    assert mn.logistic(f, y) == 5e3
    assert mn.logistic(f[1:], y[1:]) == pytest.approx(np.exp(-50), rel=1e-14)
    assert np.array_equal(mn.logistic.cotangent(f, y)[0], [-0.5])


@pytest.mark.parametrize("loss", LOSSES + MARGINS, ids=repr)
@given(seed=seeds)
def test_the_cotangent_is_the_derivative(loss: Loss, seed: int) -> None:
    """dL/df against differences of fourth order along a random direction; error eps |L| / h and h^4."""
    f, y = margins(loss, seed)
    v, h = np.random.default_rng(seed + 1).standard_normal(f.shape), 1e-3
    values = [loss(f + k * h * v, y) for k in (1, -1, 2, -2)]
    want = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
    assert (loss.cotangent(f, y) * v).sum() == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize("loss", LOSSES + MARGINS, ids=repr)
@given(seed=seeds)
def test_members_of_an_ensemble_have_a_loss_each(loss: Loss, seed: int) -> None:
    f, y = margins(loss, seed, (5,))
    assert loss(f, y).shape == (5,)
    for e in range(5):
        assert loss(f, y)[e] == loss(f[e], y)
        assert np.array_equal(loss.cotangent(f, y)[e], loss.cotangent(f[e], y))


@pytest.mark.parametrize("loss", LOSSES + MARGINS, ids=repr)
def test_float32_stays_float32(loss: Loss) -> None:
    f, y = (a.astype(np.float32) for a in margins(loss, 0))
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


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_targets_are_never_broadcast(loss: Loss) -> None:
    """(4, 1) - (4,) would be (4, 4): a wrong number and no error."""
    f = np.zeros((3, 4, 1))
    for measure in (loss, loss.cotangent):
        with pytest.raises(ValueError, match=r"expect one \(N, C\), got \(3, 4, 1\), \(4,\): .* y\[:, None\]"):
            measure(f, np.ones(4))
        for y in (np.ones((1, 1)), np.ones((4, 2))):
            with pytest.raises(ValueError, match=r"expect one \(N, C\)"):
                measure(f, y)
        measure(f, np.ones((4, 1)))


def test_numbers_that_wrap_or_round_are_refused_by_every_loss() -> None:
    """(20 - 0)^2 + (0 - 20)^2 over 4 is 200, and 72 in uint8; a cross-entropy of 2e-8 was inf there and 0 in int8."""
    floating_losses()
    assert {type(loss) for loss in LOSSES + MARGINS} == {type(loss) for loss in losses()}
    f = np.array([[0], [20]], np.uint8)
    with pytest.raises(TypeError, match=r"f expects float32 or float64, got uint8: convert it, f\.astype"):
        mn.mse(f, f[::-1])
    with pytest.raises(TypeError, match=r"y: expected arrays of one library.*got builtins\.NoneType"):
        mn.mse(f.astype(float), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", LOSSES + MARGINS, ids=repr)
def test_no_example_is_refused(loss: Loss) -> None:
    """A mean over none was NaN, or a ZeroDivisionError."""
    for measure in (loss, loss.cotangent):
        with pytest.raises(ValueError, match=r"at least one example, N >= 1, got y of shape \(0, 1\)"):
            measure(np.zeros((2, 0, 1)), np.zeros((0, 1)))


def test_nan_gives_nan() -> None:
    nan_losses()


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


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf, np.nan, None, "1", True])
def test_the_scale_of_a_margin_loss_is_positive(alpha: float) -> None:
    for kind in (mn.Hinge, mn.Logistic):
        with pytest.raises(ValueError, match=r"\(alpha=\.\.\.\) expects a finite number > 0, got"):
            kind(alpha)


@pytest.mark.parametrize("loss", [mn.mse, mn.sum_of_squares], ids=repr)
def test_the_curvature_of_a_square(loss: Loss) -> None:
    """c/N = d2L/df2: the cotangent is linear in f with that slope, and a loss that is no square says None."""
    f, y = outputs_and_targets(0)
    v = np.ones_like(f)
    slope = loss.cotangent(f + v, y) - loss.cotangent(f, y)
    assert loss.curvature is not None
    np.testing.assert_allclose(slope, loss.curvature / len(f) * v, rtol=1e-13)
    assert all(other.curvature is None for other in (mn.softmax_cross_entropy, mn.hinge, mn.logistic))


def test_one_output_has_no_softmax() -> None:
    with pytest.raises(ValueError, match=r"one output is 0 whatever it says: use mn\.logistic"):
        mn.softmax_cross_entropy.check(np.ones((3, 1)), (3, 1))
