"""Test an exponent's interval (its coverage, and against SciPy's regression) and the points for an experiment."""

import numpy as np
import pytest
from scipy.stats import linregress
from scipy.stats import t as student

from minintk.grade import Assignment, Exercise, Values, exponent, slope_interval, with_experiment

WIDTHS = (64, 128, 256)


def test_the_interval_is_that_of_scipys_regression() -> None:
    values = np.exp(np.random.default_rng(0).standard_normal((3, 5))) / np.array(WIDTHS)[:, None]
    found = linregress(np.repeat(np.log(WIDTHS), 5), np.log(values).ravel())
    reach = student.ppf(0.995, 13) * found.stderr
    want = (found.slope, found.slope - reach, found.slope + reach)
    assert np.allclose(slope_interval(WIDTHS, values, 0.99), want, rtol=1e-10, atol=0)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Expect 1,547 to 1,651 of 2,000 intervals at level 80 % to contain -1/2 (P = .997), and fewer to contain -0.4."""
    rng = np.random.default_rng(1)
    noise = np.exp(0.2 * rng.standard_normal((2000, 3, 4))) * np.array(WIDTHS)[:, None] ** -0.5
    intervals = np.array([slope_interval(WIDTHS, values, 0.8)[1:] for values in noise])
    held = [np.count_nonzero((intervals[:, 0] < b) & (b < intervals[:, 1])) for b in (-0.5, -0.4)]
    assert 1547 <= held[0] <= 1651
    assert held[1] < 1547


@pytest.mark.parametrize("values", [np.ones(3), np.ones((2, 4)), np.zeros((3, 2)), np.full((3, 2), np.nan)])
def test_other_values_are_refused(values: object) -> None:
    with pytest.raises(ValueError, match="give a row for each x"):
        slope_interval(WIDTHS, values)


@pytest.mark.parametrize("x", [(0, 1, 2), (-1, 1, 2), (1, 2, np.inf)])
def test_variables_that_have_no_logarithm_are_refused(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="x expects a finite number > 0"):
        slope_interval(x, np.ones((3, 2)))


def test_probabilities_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="give a row for each x"):
        slope_interval((8, 8, 8), np.ones((3, 2)))
    with pytest.raises(ValueError, match="1 - confidence expects"):
        slope_interval(WIDTHS, np.ones((3, 2)), confidence=2.0)
    with pytest.raises(ValueError, match="1 - level expects"):
        exponent(lambda n, rng: 1 / n, theory=-1.0, against=-0.5, level=3.0)
    with pytest.raises(ValueError, match="against expects another exponent"):
        exponent(lambda n, rng: 1 / n, theory=-1.0, against=np.nan)


def test_an_experiment_takes_a_fifth_of_the_points() -> None:
    plain = Assignment("demo", [Exercise("one", 30, []), Exercise("two", 70, [], hidden=True)])
    found = with_experiment(plain, lambda rng, variant: [Values("f", (1,), 2)], hint="h")
    assert [(e.name, e.points, e.hidden) for e in found.exercises] == [
        ("one", 24, False), ("two", 56, True), ("measurement", 20, False),
    ]  # fmt: skip
    assert found.exercises[-1].hint == "h"
    assert [e.points for e in plain.exercises] == [30, 70]
