"""Test posteriors with noise per example, and with a user's kernel that has only nngp."""

from __future__ import annotations

import numpy as np
import pytest

import analytic as an
from minintk.arrays import Array as A


class Linear:
    """A user's kernel whose only method is nngp."""

    def nngp(self, x1: A, x2: A | None = None) -> A:
        return np.asarray(x1 @ (x1 if x2 is None else x2).T / x1.shape[1])


def test_noise_of_each_example() -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal((8, 3)), rng.standard_normal((8, 2)), rng.standard_normal((5, 3))
    noise = rng.uniform(0.1, 2.0, 8)
    gp = an.posterior(Linear(), x, y, ridge=noise)
    mean, cov = gp.predict(z, cov=True)
    K, k = Linear().nngp(x) + np.diag(noise), Linear().nngp(z, x)
    assert np.allclose(mean, k @ np.linalg.solve(K, y), rtol=1e-12)
    assert np.allclose(cov, Linear().nngp(z) - k @ np.linalg.solve(K, k.T), rtol=1e-10, atol=1e-13)
    assert np.allclose(gp.predict(z, std=True)[1] ** 2, np.diagonal(cov), rtol=1e-9)
    evidence = -0.5 * np.sum(y * np.linalg.solve(K, y)) - np.linalg.slogdet(K)[1] - 8 * np.log(2 * np.pi)
    assert np.isclose(gp.log_marginal_likelihood(), evidence, rtol=1e-12)
    even = an.posterior(Linear(), x, y, ridge=float(noise.mean())).predict(z)
    assert not np.allclose(mean, even, rtol=1e-2)  # the distribution of noise over examples matters
    same = an.posterior(Linear(), x, y, ridge=np.full(8, 0.5)).predict(z)
    assert np.array_equal(same, an.posterior(Linear(), x, y, ridge=0.5).predict(z))


def test_noise_and_kernels_that_are_refused() -> None:
    x, y = np.eye(4), np.ones((4, 1))
    for ridge, says in (
        (np.ones(3), r"shape \(4,\)"),
        (np.array([1.0, 1, 1, -1]), ">= 0"),
        (np.full(4, np.nan), "NaN|nan"),
    ):
        with pytest.raises(ValueError, match=says):
            an.posterior(Linear(), x, y, ridge=ridge)
    twice = np.concatenate([x, x])
    with pytest.raises(ValueError, match="singular together"):
        an.posterior(Linear(), twice, np.ones((8, 1)), ridge=np.zeros(8)).predict(x)
    with pytest.raises(TypeError, match="expects a kernel with ntk, got"):
        an.posterior(Linear(), x, y, kind="ntk")
    with pytest.raises(TypeError, match="take kind="):
        an.posterior(Linear(), x, y).ensemble.predict(x)  # all layers trained: needs the NTK
