"""Test that the z-scores of `minintk verify` are calibrated and reject wrong theories."""

import numpy as np
import pytest
from scipy.special import chdtrc
from scipy.stats import norm

from analytic.verify.claims import FAMILY_WISE_ERROR, critical_z
from analytic.verify.scores import LARGEST_Z, covariance_z, mean_z, scale_z, z_of
from tests.kit.montecarlo import within


def test_z_scores_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    L = np.tril(rng.standard_normal((5, 5))) + 2 * np.eye(5)
    mean, cov = rng.standard_normal(5), L @ L.T
    draws = [mean + rng.standard_normal((14, 5)) @ L.T for _ in range(2000)]  # few enough to need Bartlett's factor
    for z in ([mean_z(f, mean, cov) for f in draws], [covariance_z(f, cov) for f in draws]):
        for level, p in ((1.645, 0.05), (2.326, 0.01)):
            assert within(int(np.sum(np.array(z) > level)), 2000, p)


def test_z_scores_reject_what_is_wrong() -> None:
    f = np.random.default_rng(0).standard_normal((128, 5))
    assert mean_z(f, np.full(5, 0.4), np.eye(5)) > 4
    assert covariance_z(f, 1.5 * np.eye(5)) > 4
    assert covariance_z(f, np.eye(5) + 0.5) > 4
    with pytest.raises(ValueError, match="more than 5 members"):
        covariance_z(f[:5], np.eye(5))


def test_few_members_do_not_see_one_over_the_width() -> None:
    """If sqrt(E) << n for E networks of width n, means that are off by 1/n are rejected as often as correct means.

    If sqrt(E) >> n, they are always rejected.
    """
    rng = np.random.default_rng(0)
    for E, n, seen in ((16, 256, False), (4096, 8, True)):
        z = np.array([mean_z(1 / n + rng.standard_normal((E, 5)), np.zeros(5), np.eye(5)) for _ in range(300)])
        assert np.all(z > 4) if seen else within(int(np.sum(z > 1.645)), 300, 0.05)


@pytest.mark.parametrize("tests", [1, 8, 40])
def test_the_critical_value_is_bonferronis(tests: int) -> None:
    """The two-sided probabilities of all tests add up to the family-wise error, a bound under any dependence."""
    assert 2 * tests * norm.sf(critical_z(tests)) == pytest.approx(FAMILY_WISE_ERROR, rel=1e-9)


def test_the_kernels_scale_is_tested_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    k = np.eye(4) * (1 + 0.1 * rng.standard_normal((2000, 20, 1, 1)))
    z = np.array([scale_z(sample, np.eye(4)) for sample in k])
    assert within(int(np.sum(z > 1.645)), 2000, 0.05)
    assert min(scale_z(1.2 * k[0], np.eye(4)), scale_z(0.8 * k[0], np.eye(4))) > 4


def test_z_scores_end_at_the_range_of_float64() -> None:
    assert z_of(chdtrc(3, 1e6)) == LARGEST_Z
    assert z_of(chdtrc(3, 0.0)) == -LARGEST_Z
