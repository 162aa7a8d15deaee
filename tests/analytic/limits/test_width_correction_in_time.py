"""Test the time dependence of `width_correction` for given moments, against ensembles with exact means at every t.

Each ensemble has few members. Their f_0 are the 27 nodes of a rule that is exact for Gaussian moments up to the fifth.
One moment is set to size e, the others to 0. The hierarchy of f, Theta, O3, O4 is integrated for each member without
an expansion. Finite differences in e give the derivatives of the ensemble's mean. Other tests check the moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import analytic as an
import minintk as mn
from analytic.limits.one_finite_layer import Moments
from analytic.limits.width_correction import WidthCorrection
from tests.kit.rewritten import rewrite

Array = np.ndarray[Any, Any]
N, P, E = 3, 4, 1e-4
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((P, 4)), np.array([[1.0], [-1.0], [0.5]])
A, B, C, D = (RNG.standard_normal((P, *(N,) * more)) for more in (1, 1, 3, 3))
TIMES = np.array([0.5, 2.0, 8.0])
PLANTS: dict[str, tuple[str, str, str]] = {
    "theta": ("_source", "- m.theta * y", "- 0.99 * m.theta * y"),
    "J of one mode": ("_integrals", "_integral(abs(b - d), t)", "t"),
    "cov without 1 / N": ("_source", '"rabbd,d->rabd", m.cov, y) / N', '"rabbd,d->rabd", m.cov, y)'),
    "one contraction of O3 twice": ("_source", '"rabcc,b->rabc", m.o3f, y) +', '"rabcc,b->rabc", 2 * m.o3f, y) +'),
    "contraction of O3 swapped": ("_source", '"rabcb,c->rabc"', '"rabcc,b->rabc"'),
    "one pairing of O4 twice": ("_source", "+ y_K + y_K.swapaxes(0, 1)", "+ y_K + 2 * y_K.swapaxes(0, 1)"),
    "one pairing of O4 forgotten": ("_source", " + y_K.transpose(1, 2, 0)", ""),
    "pairing of O4 turned": ("_source", "y_K.transpose(1, 2, 0)", "y_K"),
    "the cube of y": ("_source", "np.multiply.outer(np.outer(y, y), y) +", ""),
    "H of V_c": ("_integrals", "(V[:, None] - _integral(b + d, t)) / d", "(V[:, None] - _integral(b + d, t)) / b"),
    "the driving flow": ("predict", "C[:, :N] @ self.T.T +", "C[:, :N] @ self.T.T * 0.99 +"),
    "the kernel's y y": ("kernel", "(np.outer(self.y, self.y) + self.K)", "self.K"),
    "the kernel's K": ("kernel", "(np.outer(self.y, self.y) + self.K)", "np.outer(self.y, self.y)"),
    "the kernel's V": ("kernel", "m.o3f, V / N", "m.o3f, 2 * V / N"),
    "the kernel's sign": ("kernel", "moved += m.theta -", "moved += m.theta +"),
}  # fmt: skip
"""{error: (method of WidthCorrection, its text, the wrong text)}."""


@cache
def theory() -> WidthCorrection:
    """Return the theory with all moments set to 0."""
    found = an.width_correction(mn.Sequential(mn.Dense(50), mn.Erf(), mn.Dense(1)), X[:N], Y, X[N:], samples=2)
    return replace(
        found, moments=found.moments._replace(**{name: 0 * a for name, a in found.moments._asdict().items()})
    )


@cache
def starts() -> tuple[Array, Array]:
    """Return nodes f_0 of N(0, K) on the training set, (27, N), and weights, from a product of three-point rules."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    g = np.stack(np.meshgrid(*[nodes] * N, indexing="ij"), axis=-1).reshape(-1, N)
    w = np.multiply.outer(np.outer(weights, weights), weights).ravel()
    return g @ np.linalg.cholesky(in_examples(theory().K, 2)).T, w / w.sum()


def in_examples(a: Array, axes: int) -> Array:
    """Rotate the last `axes` axes from the modes of T to the examples."""
    for axis in range(-axes, 0):
        a = np.moveaxis(np.tensordot(theory().Q, a, (1, axis)), 0, axis)
    return a


def flow(Theta: Array, O3: Array, O4: Array) -> tuple[Array, Array]:
    """Return the means of f, (times, P), and Theta, (times, P, N), over members (27, ...) that follow the hierarchy.

    The mean of f_0 outside the training set is 0, and nothing depends on it.
    """
    f0, w = starts()
    sizes = [P, P * N, P * N * N]
    start = [np.concatenate([f0, np.zeros((len(w), P - N))], axis=1), Theta, O3]
    y0 = np.concatenate(
        [np.broadcast_to(a, (len(w), *a.shape[-k:])).reshape(len(w), -1) for k, a in enumerate(start, 1)], axis=1
    )

    def rate(_: float, state: Array) -> Array:
        f, Theta, O3 = np.split(state.reshape(len(w), -1), np.cumsum(sizes)[:-1], axis=1)
        r = (f[:, :N] - Y[:, 0]) / N
        moved = np.einsum("eab,eb->ea", Theta.reshape(-1, P, N), r)
        turned = np.einsum("eabc,ec->eab", O3.reshape(-1, P, N, N), r)
        bent = np.einsum("abcd,ed->eabc", O4, r)
        return -np.concatenate([a.reshape(len(w), -1) for a in (moved, turned, bent)], axis=1).ravel()

    found = solve_ivp(rate, (0, TIMES[-1]), y0.ravel(), "DOP853", TIMES, rtol=1e-11, atol=1e-12)
    states = found.y.T.reshape(len(TIMES), len(w), -1)
    f, Theta, _ = np.split(np.einsum("e,tei->ti", w, states), np.cumsum(sizes)[:-1], axis=1)
    return f, Theta.reshape(-1, P, N)


@cache
def measured(moment: str) -> tuple[Array, Array]:
    """Return the derivatives of the means of f and Theta with respect to the size e of the moment."""
    T, no3, no4 = theory().T, np.zeros((P, N, N)), np.zeros((P, N, N, N))
    K_inverse_f = np.linalg.solve(in_examples(theory().K, 2), starts()[0].T).T  # E f_c (K^-1 f)_d = 1 if c = d
    members: dict[str, Callable[[float], tuple[Array, Array, Array]]] = {
        "theta": lambda e: (T + e * B, no3, no4),
        "o3f": lambda e: (T, np.einsum("abcd,ed->eabc", e * C, K_inverse_f), no4),
        "o4": lambda e: (T, no3, e * D),
    }
    if moment == "cov":  # Theta = T +- sqrt(e) A, with equal probability
        less, none, more = (flow(T + sign * E**0.5 * A, no3, no4) for sign in (-1, 0, 1))
        f, Theta = ((a + c - 2 * b) / (2 * E) for a, b, c in zip(less, none, more, strict=True))
        return f, Theta
    less, more = (flow(*members[moment](sign * E)) for sign in (-1, 1))
    f, Theta = ((b - a) / (2 * E) for a, b in zip(less, more, strict=True))
    return f, Theta


def law(moment: str) -> None:
    """Corrections of f, and of Theta at the test point, equal those of an ensemble with only this moment."""
    Q = theory().Q
    planted = {"theta": B, "cov": np.multiply.outer(A, A[:N]), "o3f": C, "o4": D}[moment]
    turned = planted @ Q if moment == "theta" else np.einsum("abcd,bi,cj,dk->aijk", planted, Q, Q, Q)
    every = theory().moments
    claim = replace(theory(), moments=every._replace(**{moment: np.repeat(turned[None], len(every.theta), 0)}))
    f, Theta = measured(moment)
    # On all P examples: `predict` returns only those of x_test.
    outputs = replace(claim, T=claim.T[:N], moments=Moments(*(a[:, :N] for a in claim.moments)))
    found = np.concatenate([c.predict(TIMES).correction[..., 0] for c in (outputs, claim)], axis=1)
    assert np.abs(found - f).max() < 2e-4 * np.abs(f).max(), f"f, {moment}"
    for t, right in zip(TIMES, Theta, strict=True):
        off = np.abs(claim.kernel(t).correction - right[N:]).max()
        assert off < 2e-4 * max(np.abs(Theta).max(), 1e-3), f"Theta, {moment}"


def laws() -> None:
    """Check the law for every moment."""
    for moment in MOMENTS:
        law(moment)


MOMENTS = ("theta", "cov", "o3f", "o4")


@pytest.mark.parametrize("moment", MOMENTS)
def test_means_of_an_ensemble_with_one_moment(moment: str) -> None:
    law(moment)


@pytest.mark.parametrize("error", PLANTS)
def test_an_error_of_the_assembly_is_refused(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(monkeypatch, WidthCorrection, *PLANTS[error])
    with pytest.raises(AssertionError, match=r"^(f|Theta), "):
        laws()


def test_no_moment_no_correction() -> None:
    """Both corrections are 0 if all moments are 0."""
    assert not theory().predict(TIMES).correction.any()
    assert not theory().kernel(2.0).correction.any()
