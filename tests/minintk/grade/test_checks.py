"""Test losses, hard inputs and exponents: correct code passes, errors are named, and wrong verdicts are rare."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.grade import Diagnosis, check_gradient, exponent, hard_inputs

Array = Any

# ----------------------------------------------------------------------------------------------------- losses


def entropy(f: Array, y: Array) -> Array:
    return -np.mean(np.sum(y * np.log(np.exp(f) / np.exp(f).sum(1, keepdims=True)), axis=1))


def entropy_cotangent(f: Array, y: Array) -> Array:
    return (np.exp(f) / np.exp(f).sum(1, keepdims=True) - y) / len(f)


def shifted(f: Array, y: Array) -> Array:
    z = f - f.max(axis=1, keepdims=True)
    return -np.mean(np.sum(y * (z - np.log(np.exp(z).sum(1, keepdims=True))), axis=1))


def shifted_cotangent(f: Array, y: Array) -> Array:
    return entropy_cotangent(f - f.max(axis=1, keepdims=True), y)


def checked(loss: Any, cotangent: Any) -> Diagnosis:
    """Return the diagnosis of a loss, with `cotangent` as the gradient with respect to the outputs."""
    f = np.random.default_rng(0).standard_normal((5, 3))
    pair = (lambda f, y: np.asarray(loss(f, y))), (lambda u, f, y: (u * cotangent(f, y), None))
    return check_gradient(*pair, (f, np.eye(3)[[0, 2, 1, 1, 0]]), wrt=[0], hard=False)


def test_right_losses_pass() -> None:
    for loss in (mn.mse, mn.sum_of_squares, mn.softmax_cross_entropy):
        assert checked(loss, loss.cotangent).passed, loss
    assert checked(shifted, shifted_cotangent).passed


@pytest.mark.parametrize(
    ("cotangent", "says"),
    [
        (lambda f, y: f - y, "right but for a factor 5 = N: a sum where a mean belongs"),
        (lambda f, y: (y - f) / len(f), "right but for the sign"),
        (lambda f, y: 2 * (f - y) / len(f), "right but for a factor 2"),
        (lambda f, y: (f - y) / f.size, "1/C"),
        (lambda f, y: f / len(f), "y is forgotten"),
    ],
)
def test_wrong_cotangents_of_squares_are_named(cotangent: Any, says: str) -> None:
    said = checked(mn.mse, cotangent)
    assert says in str(said), said
    assert list(said.causes) == ["df"]


# ------------------------------------------------------------------------------------------------ hard inputs


def angles(x: Array, clip: bool) -> Array:
    norm = np.sqrt((x * x).sum(axis=1))
    with np.errstate(all="ignore"):
        c = x @ x.T / np.outer(norm, norm)
        return np.arccos(np.clip(np.nan_to_num(c), -1, 1) if clip else c)


def test_code_without_a_clip_fails_for_every_seed() -> None:
    """For each of 100 seeds, arccos without a clip fails on an input of the pool, because a cosine rounds above one."""
    for seed in range(100):
        titled = dict(hard_inputs(np.random.default_rng(seed)))
        pool = [x for title, x in titled.items() if not title.startswith(("zero", "ties"))]
        assert any(np.isnan(angles(x, clip=False)).any() for x in pool), seed
        assert not any(np.isnan(angles(x, clip=True)).any() for x in pool)


def test_the_pool_is_what_it_says() -> None:
    pool = dict(hard_inputs(np.random.default_rng(0), (3, 3, 2)))
    assert {x.dtype for x in pool.values()} == {np.dtype(np.float64)}
    assert {x.shape[1:] for x in pool.values()} == {(3, 3, 2)}
    assert np.array_equal(pool["equal examples"][0], pool["equal examples"][5])
    assert np.array_equal(pool["opposite examples"][0], -pool["opposite examples"][5])
    assert not pool["zero: an example of zeros"][-1].any()
    assert len(pool["one example"]) == 1
    near = next(x for title, x in pool.items() if title.startswith("close"))
    assert 0 < np.abs(near[0] - near[5]).max() < 1e-8


# -------------------------------------------------------------------------------------------------- exponents


def outcomes(b: float, theory: float, against: float, runs: int = 100) -> Counter[str]:
    def measure(n: int, rng: np.random.Generator) -> float:
        return float(np.exp(b * np.log(n) + 0.3 * rng.standard_normal()))

    def run(k: int) -> str:
        return exponent(measure, theory, against, 32, level=0.1, rng=np.random.default_rng(k)).outcome

    return Counter(map(run, range(runs)))


def test_wrong_verdicts_are_as_rare_as_stated() -> None:
    """At level 0.1, at most 10 of 100 verdicts are wrong on average. The probability of 23 or more is about 1e-4."""
    assert outcomes(-1.0, -1.0, -0.5)["fail"] < 23
    assert outcomes(-0.5, -1.0, -0.5)["pass"] < 23
    assert outcomes(-0.75, -1.0, -0.5)["pass"] < 23  # the exponent is on the border


def test_right_verdicts_are_the_rule() -> None:
    assert outcomes(-1.0, -1.0, -0.5)["pass"] > 95
    assert outcomes(-0.5, -1.0, -0.5)["fail"] > 95
    assert outcomes(-1.5, -1.0, -0.5)["fail"] > 95


def test_each_look_spends_half_of_what_is_left() -> None:
    """The first three looks have 1/2, 1/4 and 1/8 of the total level, so all levels sum to less than the total.

    With the full level at each of four looks, the sum would be four times the total level.
    """

    def at_look(k: int) -> float:
        return exponent(lambda n, rng: n**-0.75 * np.exp(rng.standard_normal()), -1.0, -0.5, 2 ** (k + 1)).confidence

    assert [1 - at_look(k) for k in (1, 2, 3)] == pytest.approx([0.025, 0.0125, 0.00625])


def test_a_budget_that_is_spent_says_undecided() -> None:
    verdict = exponent(lambda n, rng: n**-0.75 * np.exp(rng.standard_normal()), -1.0, -0.5, 8)
    assert (verdict.outcome, verdict.seeds, verdict.looks) == ("undecided", 8, 2)
    assert "8 seeds), expected -1, and not -0.5" in verdict.text
    with pytest.raises(ValueError, match="against expects"):
        exponent(lambda n, rng: 1.0, -1.0, -1.0)
