"""Test posteriors whose factor may overwrite the kernel's matrix, stored matrices, and factorisations that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import solve

import minintk as mn
from analytic.kernels import kernel
from analytic.training.eigen import asymmetry, check_kernel
from analytic.training.gp import Kind
from analytic.training.posterior import cholesky, posterior
from minintk.arrays import Array as A

DENSE = kernel(mn.Sequential(mn.Dense(8, w_std=1.5, b_std=0.1), mn.Erf(), mn.Dense(1)))


class Stored:
    """A kernel that returns views of a stored matrix."""

    def __init__(self, K: A) -> None:
        self.K = K

    def nngp(self, x1: A, x2: A | None = None) -> A:
        return self.K[:, : len(x1)] if x2 is None else self.K[: len(x1)]

    ntk = nngp

    def both(self, x1: A, x2: A | None = None) -> tuple[A, A]:
        return self.nngp(x1, x2), self.ntk(x1, x2)


def data(N: int, M: int = 7) -> tuple[A, A, A]:
    draw = np.random.default_rng(0).standard_normal
    return draw((N, 5)), draw((N, 2)), draw((M, 5))


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_the_answers_are_those_of_the_matrices(kind: Kind) -> None:
    """Predicting a mean frees the kernel's matrix. Later means and covariances equal formulas in explicit matrices."""
    x, y, x_test = data(300)
    K, T = DENSE.both(x)
    gp = posterior(DENSE, x, y, ridge=0.01, kind=kind)
    mean = gp.predict(x_test)
    assert gp.ensemble._train == {}
    again, cov = gp.predict(x_test, cov=True)
    train, test = (K, DENSE.nngp(x_test, x)) if kind == "nngp" else (T, DENSE.ntk(x_test, x))
    w = solve(train + 0.01 * np.eye(300), test.T, assume_a="pos").T
    cross = DENSE.nngp(x_test, x)
    middle = K if kind == "ntk" else train + 0.01 * np.eye(300)
    np.testing.assert_allclose(mean, w @ y, atol=1e-10)
    assert np.array_equal(mean, again)
    np.testing.assert_allclose(cov, DENSE.nngp(x_test) + w @ middle @ w.T - w @ cross.T - cross @ w.T, atol=1e-10)


def test_a_matrix_that_belongs_to_the_kernel_stays_as_it_was() -> None:
    x, y, _ = data(50)
    K = DENSE.nngp(x)
    before = K.copy()
    gp = posterior(Stored(K), x, y, ridge=0.01)
    gp.predict(x)
    assert np.array_equal(K, before)
    given = posterior((K, K), np.arange(50), y, ridge=0.01)
    given.predict(np.arange(50))
    assert np.array_equal(K, before)


@pytest.mark.parametrize("at", [3, 40])
def test_without_a_factor_the_kernel_is_what_it_was(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a repeated example, K has no Cholesky factor. Predictions use the limit, and K is evaluated once."""
    x, y, x_test = data(60)
    x[at], y[at] = x[0], y[0]
    K, nngp, asked = DENSE.nngp(x), type(DENSE).nngp, list[int]()

    def counted(*args: Any) -> A:
        asked.append(len(args))
        return nngp(*args)

    monkeypatch.setattr(type(DENSE), "nngp", counted)
    gp = posterior(DENSE, x, y)
    once = np.delete(np.arange(60), at)
    found, expected = gp.predict(x_test), posterior(DENSE, x[once], y[once]).predict(x_test)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert np.array_equal(gp.ensemble.block("nngp"), K)
    assert asked.count(2) == 2  # one kernel of the training examples for each posterior


def test_an_interrupted_factorisation_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt when LAPACK returns. The next call computes the kernel again."""
    x, y, x_test = data(60)
    gp = posterior(DENSE, x, y, ridge=0.01)

    def interrupted(k: A) -> A:
        cholesky(k)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("analytic.training.posterior.cholesky", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gp.predict(x_test)
    assert np.array_equal(gp.predict(x_test), posterior(DENSE, x, y, ridge=0.01).predict(x_test))


def test_the_factor_leaves_the_lower_triangle() -> None:
    x, _, _ = data(80)
    K = DENSE.nngp(x) + np.eye(80)
    k = K.copy()
    L = np.tril(cholesky(k))
    np.testing.assert_allclose(L @ L.T, K, atol=1e-12)
    assert np.array_equal(np.tril(k, -1), np.tril(K, -1))


@pytest.mark.parametrize("place", [(0, 1), (700, 3), (255, 256), (999, 998), (400, 400)])
def test_asymmetry_is_found_block_by_block(place: tuple[int, int]) -> None:
    """The largest asymmetry and the largest entry are found, whichever block contains them."""
    z: Any = np.random.default_rng(0).standard_normal((1000, 20))
    k = z @ z.T
    assert asymmetry(k) == (0.0, np.abs(k).max())
    k[place] += 1e3
    assert asymmetry(k) == (np.abs(k - k.T).max(), np.abs(k).max())
    if place[0] != place[1]:
        with pytest.raises(ValueError, match="symmetric"):
            check_kernel("k", k)
