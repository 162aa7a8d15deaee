"""Test that intervals cover the mean of simulated results, and test every verdict."""

from typing import Any

import numpy as np
import pytest

from minintk.examination.judge import Statement, above, interval, regime


def test_the_interval_of_draws_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        low, high = interval(np.exp(0.3 * rng.standard_normal(5)).tolist(), drawn=True)[1]
        hits += low < 1 < high
    assert 0.93 < hits / 2000 < 0.97


def test_halves_give_the_standard_error_of_a_mean_of_all_examples() -> None:
    rng, ends, means = np.random.default_rng(0), [], []
    for _ in range(400):
        a = 10 + rng.standard_normal(64)
        halves = [a[rng.permutation(64)[:32]].mean() for _ in range(40)]
        value, (low, high) = interval([a.mean(), *halves], drawn=False)
        means.append(value)
        ends.append(np.log(high / low) / 2)
    spread = np.std(np.log(means))  # 2.023: Student's 97.5 % quantile, 39 degrees of freedom
    assert np.median(ends) / 2.023 == pytest.approx(spread, rel=0.1)


def test_intervals_of_zeros_and_of_one_replicate() -> None:
    assert interval([0.0, 0.0, 0.0], drawn=True) == (0.0, (0.0, 0.0))
    assert interval([2.0], drawn=True) == (2.0, (0.0, np.inf))


@pytest.mark.parametrize(("ends", "found"), [((0.06, 0.1), True), ((0.01, 0.04), False), ((0.04, 0.06), None)])
def test_above_is_none_where_the_interval_holds_the_border(ends: Any, found: Any) -> None:
    assert above(ends, 0.05) is found


@pytest.mark.parametrize(
    ("gap", "kernel", "verdict"),
    [
        ((0.01, 0.04), (0.0, 9.0), "lazy"),
        ((0.04, 0.06), (0.5, 0.9), "undecided"),
        ((0.10, 0.20), (0.5, 0.9), "between"),
        ((0.30, 0.60), (0.1, 0.2), "between"),
        ((0.30, 0.60), (0.2, 0.3), "undecided"),
        ((0.20, 0.30), (0.5, 0.9), "undecided"),
        ((0.30, 0.60), (0.5, 0.9), "rich"),
    ],
)
def test_verdicts(gap: Any, kernel: Any, verdict: Any) -> None:
    assert regime(gap, kernel, 0.9)[0] == verdict
    assert regime(gap, kernel, 0.05)[0] == "undecided"
    assert regime(gap, kernel, 0.9, "training diverged") == ("undecided", "training diverged")


def test_a_statement_in_plain_numbers() -> None:
    assert str(Statement("rate", 0.5, (0.25, 1.0), "")) == "0.5 (0.25 to 1)"
