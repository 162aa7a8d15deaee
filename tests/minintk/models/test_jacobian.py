"""Test that the Jacobian is linear and consistent, and that invalid arguments raise clear errors."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import minintk as mn
from minintk.models.jacobian import Jacobian
from minintk.models.wrappers import Scaled
from tests.kit.strategies import Case, cases

NET = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,))
RNG = np.random.default_rng(0)
THETA = NET.init(RNG)
X = RNG.standard_normal((5, 3))


@given(cases())
def test_written_down_it_is_the_same_map(case: Case) -> None:
    f, J = case.net.linearize(case.theta, case.x)
    v, u = case.rng.standard_normal(case.theta.shape), case.rng.standard_normal(f.shape)
    dense = J.dense()
    size = np.abs(dense).sum() * (1 + np.abs(v).max() + np.abs(u).max())
    np.testing.assert_allclose(J.jvp(v), np.einsum("...ncp,...p->...nc", dense, v), rtol=0, atol=1e-13 * size)
    np.testing.assert_allclose(J.vjp(u), np.einsum("...ncp,...nc->...p", dense, u), rtol=0, atol=1e-13 * size)


@given(cases())
def test_it_is_linear(case: Case) -> None:
    """J (4 v) = 4 J v and J' (-u) = -J' u bit for bit, because factors of 4 and -1 change no mantissa."""
    f, J = case.net.linearize(case.theta, case.x)
    v, u = case.rng.standard_normal(case.theta.shape), case.rng.standard_normal(f.shape)
    assert np.array_equal(J.jvp(4 * v), 4 * J.jvp(v))
    assert np.array_equal(J.vjp(-u), -J.vjp(u))


@given(cases())
def test_vjp_writes_where_it_is_told(case: Case) -> None:
    f, J = case.net.linearize(case.theta, case.x)
    out = np.full_like(case.theta, np.nan)
    assert J.vjp(f, out=out) is out
    assert np.array_equal(out, J.vjp(f))


@given(cases())
def test_grams_between_batches_are_blocks_of_the_gram_of_both(case: Case) -> None:
    x = np.concatenate([case.x, 0.5 * case.x])
    N = len(case.x)
    _, J = case.net.linearize(case.theta, x)
    _, J1 = case.net.linearize(case.theta, x[:N])
    _, J2 = case.net.linearize(case.theta, x[N:])
    k = J.gram()
    size = 1e-12 * np.abs(k).max()
    np.testing.assert_allclose(J1.gram(J2), k[..., :N, :, N:, :], rtol=0, atol=size)
    np.testing.assert_allclose(J1.trace_gram(J2), J.trace_gram()[..., :N, N:], rtol=0, atol=J.outputs[1] * size)


def test_scaled() -> None:
    _, J = NET.linearize(THETA, X)
    half = Scaled(Scaled(J, 2.0), 0.25)
    v, u = RNG.standard_normal(24), RNG.standard_normal((5, 2))
    np.testing.assert_allclose(half.jvp(v), J.jvp(v) / 2, rtol=1e-15)
    np.testing.assert_allclose(half.vjp(u), J.vjp(u) / 2, rtol=1e-14)
    np.testing.assert_allclose(half.dense(), J.dense() / 2, rtol=1e-14)
    np.testing.assert_allclose(half.gram(), J.gram() / 4, rtol=1e-14)
    np.testing.assert_allclose(half.trace_gram(J), J.trace_gram() / 2, rtol=1e-14)
    np.testing.assert_allclose(J.gram(half), J.gram() / 2, rtol=1e-14)
    assert (half.size, half.outputs, half.ensemble, half.lead) == (24, (5, 2), None, ())


def test_the_kernel_of_one_point_with_another() -> None:
    """The kernel J(theta) J(theta')' is correct for two parameter vectors of one network."""
    other = THETA + 1
    (_, J), (_, K) = NET.linearize(THETA, X), NET.linearize(other, X[:2])
    np.testing.assert_allclose(J.gram(K), np.einsum("ncp,mep->ncme", J.dense(), K.dense()), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda J: J.jvp(np.ones(23)), ValueError, r"^v expects shape \(24,\), or \(K, \.\.\.\) .*got \(23,\)"),
        (lambda J: J.jvp(np.ones((2, 2, 24))), ValueError, r"^v expects shape \(24,\).*got \(2, 2, 24\)"),
        (lambda J: J.vjp(np.ones((5, 1))), ValueError, r"^u expects shape \(5, 2\), or .*got \(5, 1\)"),
        (
            lambda J: J.vjp(np.ones((5, 2)), out=np.ones(23)),
            ValueError,
            r"vjp\(out=\.\.\.\) expects shape \(24,\), got \(23,\)",
        ),
        (
            lambda J: J.jvp(np.ones(24, np.float32)),
            TypeError,
            r"^v expects float64, the dtype of theta, got float32",
        ),
        (
            lambda J: J.vjp(np.ones((5, 2), int)),
            TypeError,
            r"^u expects float32 or float64, got int64: convert it, u\.astype",
        ),
        (lambda J: J.jvp([1.0] * 24), TypeError, r"v: expected arrays of one library"),
        (lambda J: J.jvp(None), TypeError, r"v: expected arrays of one library, NumPy or CuPy, got builtins\.NoneType"),
        (lambda J: J.vjp(None), TypeError, r"u: expected arrays of one library, NumPy or CuPy, got builtins\.NoneType"),
        (lambda J: J.vjp(3.0), TypeError, r"u: expected arrays of one library, NumPy or CuPy, got builtins\.float"),
        (lambda J: J.vjp(np.ma.ones((5, 2))), TypeError, r"u expects numbers without a mask.*: fill it"),
        (lambda J: J.jvp(np.ma.ones(24)), TypeError, r"v expects numbers without a mask.*: fill it"),
        (lambda J: J.vjp(np.ones((5, 2)).view(np.matrix)), TypeError, r"u expects an array, got a numpy\.matrix"),
        (lambda J: J.jvp(np.ones((1, 24)).view(np.matrix)), TypeError, r"v expects an array, got a numpy\.matrix"),
    ],
)
def test_arguments_that_do_not_fit(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(NET.linearize(THETA, X)[1])


@pytest.mark.parametrize("ensemble", [None, 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_in_a_tangent_or_a_cotangent_is_named_with_its_place(bad: float, ensemble: int | None) -> None:
    theta = THETA if ensemble is None else np.stack([THETA] * ensemble)
    f, J = NET.linearize(theta, X)
    u, v = np.ones_like(f), np.ones_like(theta)
    u[..., 3, 1], v[..., 7] = bad, bad
    for call, name, at in ((J.vjp, "u", "3, 1"), (J.jvp, "v", "7,?")):
        words = rf"{name} holds . values that are NaN or infinite, .*{at}\)"
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=words):
            call(u if name == "u" else v)
    for wrt, shape in (("u", f.shape), ("v", X.shape)):
        a = np.ones(shape)
        a[..., 2, 0] = bad
        across = NET.linearize(theta, X, wrt="x")[1]
        with pytest.raises(ValueError, match=rf"{wrt} holds"):
            (across.vjp if wrt == "u" else across.jvp)(a)


def test_jacobians_that_do_not_fit_each_other() -> None:
    _, J = NET.linearize(THETA, X)
    _, ensemble = NET.linearize(np.stack([THETA, THETA]), X)
    _, single = NET.linearize(THETA.astype(np.float32), X.astype(np.float32))
    wide = mn.Network(mn.Dense(2), (3,))
    _, other = wide.linearize(wide.init(RNG), X)
    for wrong in (ensemble, single, other):
        for gram in (J.gram, J.trace_gram):
            with pytest.raises(ValueError, match=r"gram\(other\) expects .* \(P, C, E, dtype\) = \(24, 2, None, .*got"):
                gram(wrong)


class Twice(Jacobian):
    """A user-defined Jacobian 2 J with the four required attributes, `push` and `pull`."""

    def __init__(self, J: Jacobian) -> None:
        self.J, self.size, self.outputs, self.ensemble, self.like = J, J.size, J.outputs, J.ensemble, J.like

    def push(self, v: Any) -> Any:
        return 2 * self.J.push(v)

    def pull(self, u: Any, out: Any) -> None:
        self.J.pull(2 * u, out)


@pytest.mark.parametrize("ensemble", [None, 2])
def test_a_jacobian_from_outside_has_all_maps(ensemble: int | None) -> None:
    theta = NET.init(RNG, ensemble=ensemble)
    J, K = (NET.linearize(theta, x)[1] for x in (X, X[:2]))
    for mine, theirs, factor in ((Twice(J), Twice(K), 4), (Twice(J), K, 2), (J, Twice(K), 2)):
        for name in ("gram", "trace_gram"):
            want = factor * getattr(J, name)(K)
            np.testing.assert_allclose(getattr(mine, name)(theirs), want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(Twice(J).dense(), 2 * J.dense(), rtol=1e-12)


def test_a_trace_by_maps_holds_no_full_kernel() -> None:
    """The default `contract` allocates less than 8 N^2 C bytes for a trace. Full blocks would need 8 N^2 C^2."""
    N, C = 40, 20
    net = mn.Network(mn.Dense(C), (3,))
    theta, x = net.init(np.random.default_rng(0)), np.random.default_rng(1).standard_normal((N, 3))
    J = Twice(net.linearize(theta, x)[1])
    tracemalloc.start()
    J.trace_gram(J)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * N * N * C


# -------------------------------------------------------------------------------------------------- dense


def row_by_row(J: Any) -> Any:
    """Return the dense J, computed from one cotangent at a time on the whole batch."""
    N, C = J.outputs
    rows = []
    for i in range(N * C):
        u = np.zeros((*J.lead, N * C))
        u[..., i] = 1
        rows.append(J.vjp(u.reshape((*J.lead, N, C))))
    return np.stack(rows, axis=-2).reshape((*J.lead, N, C, J.size))


@pytest.mark.parametrize("ensemble", [None, 2])
def test_dense_is_every_row_of_the_whole_batch(ensemble: int | None) -> None:
    """`dense` equals the rows that are computed one at a time, for up to 19 examples.

    The models are a network, a centred linearisation, a Taylor expansion, and a network that couples its examples.
    """
    spec = mn.Sequential(mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Dense(3, b_std=0.1))
    rng = np.random.default_rng(0)
    net, coupled = mn.Network(spec, (4,)), mn.Network(mn.Sequential(mn.Dense(5), mn.BatchNorm(), mn.Dense(3)), (4,))
    theta, other = net.init(rng, ensemble=ensemble), coupled.init(rng, ensemble=ensemble)
    models: list[tuple[mn.Model, Any]] = [
        (net, theta),
        (mn.Centred(mn.Linearized(net, theta), theta, 3.0), 1.1 * theta),
    ]
    models += [(mn.Taylor(net, theta, 2), 1.1 * theta), (coupled, other)]
    for model, at in models:
        for N in (0, 1, 8, 19) if model is not coupled else (8, 19):
            J = model.linearize(at, rng.standard_normal((N, 4)))[1]
            want = row_by_row(J) if N else np.zeros((*J.lead, 0, 3, J.size))
            np.testing.assert_allclose(J.dense(), want, rtol=1e-12, atol=1e-13)


def test_dense_takes_little_more_memory_than_its_result() -> None:
    """Without batching, `dense` would take over 100 times the result's bytes, for N C cotangents on N examples each."""
    net, rng = mn.Network(mn.Sequential(mn.Dense(30), mn.Tanh(), mn.Dense(1)), (10,)), np.random.default_rng(0)
    _, J = net.linearize(net.init(rng), rng.standard_normal((1000, 10)))
    tracemalloc.start()
    dense = J.dense()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * 8 * dense.size + 2**20
