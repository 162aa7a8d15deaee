"""Compare exact linearised solutions with dense least squares, for several models, memory bounds and libraries."""

from __future__ import annotations

import tracemalloc
import warnings
from math import inf
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg

import analytic as an
import minintk as mn
from minintk.arrays import array_namespace, to_host, to_library
from minintk.large import least_squares as solve
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model
from minintk.models.wrappers import Scaled
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = mn.Array
RNG = np.random.default_rng(0)
DENSE = mn.Network(mn.Sequential(mn.Dense(25, b_std=0.3), mn.Tanh(), mn.Dense(15), mn.ReLU(), mn.Dense(3)), (8,))
IMAGE = mn.Network(
    mn.Sequential(
        mn.Conv2d(6, 3, b_std=0.2), mn.ReLU(), mn.MaxPool(2), mn.Residual(mn.Conv2d(6, 3)), mn.Flatten(), mn.Dense(2)
    ),
    (6, 6, 2),
    mn.PyTorch(),
)


def problem(name: str, N: int = 20) -> tuple[Model, Array, Array, Array]:
    """Return (model, theta0, x, y) for the model `name` and N random examples."""
    rng = np.random.default_rng(1)
    net = IMAGE if name == "image" else DENSE
    theta = net.init(rng)
    x, y = rng.standard_normal((N, *net.input_shape)), rng.standard_normal((N, net.outputs))
    elsewhere = theta + 0.1 * rng.standard_normal(theta.shape)
    models: dict[str, Model] = {
        "dense": net,
        "image": net,
        "linearised": mn.Linearized(net, elsewhere),
        "centred": mn.Centred(net, elsewhere, 7.0),
    }
    return models[name], theta, x, y


def dense(model: Model, theta: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return J : (N C, P) and b = y - f : (N C,) as arrays."""
    f, J = model.linearize(theta, x)
    return J.dense().reshape(f.size, -1), (y - f).ravel()


def assert_near(w: Array, truth: Array, tolerance: float = 1e-10) -> None:
    error = float(np.abs(w - truth).max() / np.abs(truth).max())
    assert error <= tolerance, f"off by {error:.2g} of the largest weight change"


# ------------------------------------------------------------------------------- equal to dense least squares


def minimum_norm(name: str) -> None:
    model, theta, x, y = problem(name)
    J, b = dense(model, theta, x, y)
    truth = np.linalg.lstsq(J, b, rcond=None)[0]
    for method in (mn.solve_gram, mn.solve_lsqr):
        solved = method(model, theta, x, y)
        assert_near(solved.theta - theta, truth)
        np.testing.assert_allclose(solved(x), y, atol=1e-11)
        assert solved.residual < 1e-11


def with_ridge(name: str, ridge: float = 0.7) -> None:
    model, theta, x, y = problem(name)
    J, b = dense(model, theta, x, y)
    truth = np.linalg.solve(J.T @ J + ridge * np.eye(J.shape[1]), J.T @ b)
    for method in (mn.solve_gram, mn.solve_lsqr):
        solved = method(model, theta, x, y, ridge=ridge)
        assert_near(solved.theta - theta, truth)
        assert solved.residual < 1e-11
    a = mn.solve_gram(model, theta, x, y, ridge=ridge).a
    assert a is not None
    assert_near(a.ravel(), np.linalg.solve(J @ J.T + ridge * np.eye(len(J)), b))


def at_time(name: str, t: float = 30.0, ridge: float = 0.2) -> None:
    model, theta, x, y = problem(name)
    J, b = dense(model, theta, x, y)
    lam, V = np.linalg.eigh(J.T @ J)
    mu = np.maximum(lam, 0) + ridge
    truth = V @ (-np.expm1(-t * mu / len(x)) / mu * (V.T @ (J.T @ b)))
    assert_near(mn.solve_gram(model, theta, x, y, ridge=ridge, t=t).theta - theta, truth)


NAMES = ("dense", "image", "linearised", "centred")
LAWS = (minimum_norm, with_ridge, at_time)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_equal_to_dense_least_squares(law: Any, name: str) -> None:
    law(name)


def test_planted_errors_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws fail if w is not minimal, if J' u, J v, a rotation, kernel or ridge is wrong, or if jitter is added."""
    right_vjp, right_jvp, contract = solve.ChunkedJacobian.vjp, solve.ChunkedJacobian.jvp, Scaled.contract

    def not_minimal(self: solve.ChunkedJacobian, u: Array) -> Array:
        w = right_vjp(self, u)
        shift = np.random.default_rng(5).standard_normal(w.shape)
        J, _ = dense(self.model, self.theta, self.x, np.zeros((len(self.x), self.model.outputs)))
        return np.asarray(w + 1e-3 * (shift - np.linalg.pinv(J) @ (J @ shift)))

    def jitter(k: Array, ridge: float) -> None:
        k[np.diag_indices(len(k))] += ridge + 1e-6 * np.trace(k) / len(k)

    planted: list[tuple[Any, str, Any, Any]] = [
        (solve.ChunkedJacobian, "vjp", not_minimal, minimum_norm),
        (solve.ChunkedJacobian, "vjp", lambda self, u: 1.01 * right_vjp(self, u), with_ridge),
        (solve.ChunkedJacobian, "jvp", lambda self, v: 1.01 * right_jvp(self, v), with_ridge),
        (solve, "_add_to_diagonal", lambda k, ridge: None, with_ridge),
        (solve, "sqrt", lambda a: a**0.5 * (1 + 1e-6), with_ridge),
        (Scaled, "contract", lambda self, other, S: contract(self, other, S) / self.alpha**2, at_time),
    ]
    for owner, attribute, wrong, law in planted:
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            patch.setattr(owner, attribute, wrong)
            with pytest.raises((AssertionError, ValueError)):
                law("centred")
    with monkeypatch.context() as patch:  # without refinement, a jitter fails too
        patch.setattr(solve, "_add_to_diagonal", jitter)
        patch.setattr(solve, "MAX_REFINEMENTS", 1)
        with pytest.raises((AssertionError, ValueError)):
            minimum_norm("dense")


def test_the_end_of_training() -> None:
    """Linearised gradient descent ends at the solution. The solution with `t` equals gradient flow at time t."""
    model, theta, x, y = problem("dense", N=6)
    lin = mn.Linearized(model, theta)
    k = mn.ntk_full(model, theta, x).reshape(18, 18)
    lr = 1.9 * 6 / np.linalg.eigvalsh(k)[-1]
    *_, last = mn.train(lin, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=4000, every=4000)
    solved = mn.solve_gram(model, theta, x, y)
    assert_near(solved.theta - theta, last.theta - theta, 1e-9)
    flow = an.gradient_flow(mn.ntk_full(model, theta, x), y)
    stopped = mn.solve_gram(model, theta, x, y, t=20.0)
    assert stopped.a is not None
    assert_near(stopped.a, flow.coefficients(20.0, f0=model(theta, x)))
    test = RNG.standard_normal((5, 8))
    np.testing.assert_allclose(
        stopped(test),
        flow.predict(20.0, mn.ntk_full(model, theta, test, x), f0=model(theta, x), f0_test=model(theta, test)),
        atol=1e-11,
    )
    assert_near(mn.solve_gram(model, theta, x, y, t=1e9).theta - theta, solved.theta - theta, 1e-9)


def test_more_equations_than_parameters() -> None:
    """LSQR gives the least-squares solution. `solve_gram` raises ValueError, because the Gram matrix is singular."""
    net = mn.Network(mn.Sequential(mn.Dense(3), mn.Tanh(), mn.Dense(1)), (2,))
    theta, x, y = net.init(RNG), RNG.standard_normal((40, 2)), RNG.standard_normal((40, 1))
    J, b = dense(net, theta, x, y)
    assert_near(mn.solve_lsqr(net, theta, x, y).theta - theta, np.linalg.lstsq(J, b, rcond=None)[0])
    with pytest.raises(ValueError, match=r"40 equations for 9 parameters.*ridge > 0 or rcond.*solve_lsqr"):
        mn.solve_gram(net, theta, x, y)
    mn.solve_gram(net, theta, x, y, ridge=0.1)


@pytest.mark.parametrize("N", [6, 9, 40])
def test_a_singular_jacobian_has_a_pseudo_inverse(N: int) -> None:
    """Two units never fire and two always do, so J has rank 2, for any N > 1. `rcond` is the square of pinv's rcond."""
    net = mn.Network(mn.Sequential(mn.Dense(4), mn.ReLU(), mn.Dense(1)), (2,))
    theta, x, y = net.init(np.random.default_rng(3)), np.abs(RNG.standard_normal((N, 2))), RNG.standard_normal((N, 1))
    W = net.layout.unpack(theta)["0.W"]
    W[...] = np.abs(W) * [-1, -1, 1, 1]  # two units that never fire
    J, b = dense(net, theta, x, y)
    assert np.linalg.matrix_rank(J) < min(J.shape)
    with pytest.raises(ValueError, match=r"singular|not positive definite|unexplained"):
        mn.solve_gram(net, theta, x, y)
    solved = mn.solve_gram(net, theta, x, y, rcond=1e-10)
    truth = np.linalg.pinv(J, rcond=1e-5) @ b
    assert_near(solved.theta - theta, truth, 1e-10)
    assert solved.residual == pytest.approx(np.linalg.norm(b - J @ truth) / np.linalg.norm(b), rel=1e-6, abs=1e-10)
    assert np.linalg.norm(mn.solve_gram(net, theta, x, y, rcond=0.9).theta - theta) < 0.999 * np.linalg.norm(truth)
    with pytest.raises(ValueError, match="give one of them"):
        mn.solve_gram(net, theta, x, y, rcond=1e-10, ridge=1.0)


@pytest.mark.parametrize("how", [{"rcond": 1e-10}, {"t": 1e10}], ids=str)
def test_rounding_of_float32_kernels_is_not_inverted(how: dict[str, Any]) -> None:
    """A linear network with 50 inputs cannot fit 200 random targets. float32 gives the residual of float64."""
    net, rng = mn.Network(mn.Dense(1), (50,)), np.random.default_rng(0)
    x, y, theta = rng.standard_normal((200, 50)), rng.standard_normal((200, 1)), np.zeros(50)
    exact = solve.solve_gram(net, theta, x, y, **how).residual
    single: list[Any] = [a.astype(np.float32) for a in (theta, x, y)]
    found = solve.solve_gram(net, *single, **how)
    assert found.residual == pytest.approx(exact, rel=1e-3)


def test_repeated_examples() -> None:
    """For a repeated example, the minimum-norm solution fits equal targets.

    If the targets differ, the solution is the least-squares fit of the two targets.
    """
    model, theta, x, y = problem("dense")
    x[7] = x[3]
    for consistent in (True, False):
        y[7] = y[3] if consistent else y[3] + 1
        J, b = dense(model, theta, x, y)
        truth = np.linalg.lstsq(J, b, rcond=1e-12)[0]
        assert_near(mn.solve_lsqr(model, theta, x, y).theta - theta, truth)
    with pytest.raises(ValueError, match=r"(not positive|unexplained).*larger ridge.*coincide.*solve_lsqr"):
        mn.solve_gram(model, theta, x, y)
    with pytest.raises(ValueError, match="in float64"):
        mn.solve_gram(model, *(a.astype(np.float32) for a in (theta, x, y)))


def test_stopping_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping after s steps of LSQR gives the best solution in the Krylov space of dimension s.

    The residual falls at every step.
    """
    model, theta, x, y = problem("dense")
    J, b = dense(model, theta, x, y)
    basis, residuals = [], []
    g = J.T @ b
    for s in range(1, 6):
        basis.append(g / np.linalg.norm(g))
        g = J.T @ (J @ basis[-1])
        K = np.stack(basis, axis=1)
        truth = K @ np.linalg.lstsq(J @ K, b, rcond=None)[0]
        solved = mn.solve_lsqr(model, theta, x, y, steps=s)
        assert_near(solved.theta - theta, truth, 1e-8)
        assert solved.steps == s
        residuals.append(solved.residual)
    assert residuals == sorted(residuals, reverse=True)
    run = solve._lsqr
    monkeypatch.setattr(solve, "_lsqr", lambda J, b, damp, limit, tol: run(J, b, damp, 4, tol))
    with pytest.warns(RuntimeWarning, match=r"did not reach tol.* in 4 steps: pass steps="):
        mn.solve_lsqr(model, theta, x, y)


def test_scipy_solvers_take_the_jacobian() -> None:
    model, theta, x, y = problem("image")
    J, b = dense(model, theta, x, y)
    operator = model.linearize(theta, x)[1].as_linear_operator()
    truth = np.linalg.lstsq(J, b, rcond=None)[0]
    assert_near(scipy.sparse.linalg.lsqr(operator, b, atol=1e-14, btol=1e-14)[0], truth)
    normal = operator @ operator.T
    a, info = scipy.sparse.linalg.cg(normal, b, rtol=1e-14)
    assert info == 0
    assert_near(operator.rmatvec(a), truth)
    with pytest.raises(ValueError, match="one network"):
        model.linearize(np.stack([theta, theta]), x)[1].as_linear_operator()


# ------------------------------------------------------------------------------------- memory, dtype, library


def test_a_smaller_bound_means_smaller_blocks_and_the_same_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    model, theta, x, y = problem("dense", N=40)
    whole = mn.solve_gram(model, theta, x, y)
    sizes: list[int] = []
    jacobian = mn.Network.jacobian

    def spy(self: mn.Network, t: Array, a: Array) -> Any:
        sizes.append(len(a))
        return jacobian(self, t, a)

    monkeypatch.setattr(mn.Network, "jacobian", spy)
    seen = set()
    for memory in (2**k for k in range(22, 12, -1)):
        del sizes[:]
        try:
            solved = mn.solve_gram(model, theta, x, y, memory=memory)
        except MemoryError as error:
            assert "GiB" in str(error)  # noqa: PT017
            break
        seen.add(max(sizes))
        assert_near(solved.theta - theta, whole.theta - theta)
        assert_near(mn.solve_lsqr(model, theta, x, y, memory=memory).theta - theta, whole.theta - theta)
    assert len(seen) >= 3, seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bound_is_kept(dtype: Any) -> None:
    """The peak of NumPy's allocations stays within the limit, not counting the caller's arrays."""
    net = mn.Network(mn.Sequential(mn.Dense(64), mn.ReLU(), mn.Dense(64), mn.ReLU(), mn.Dense(2)), (64,))
    theta, x, y = (a.astype(dtype) for a in (net.init(RNG), RNG.standard_normal((600, 64)), np.ones((600, 2))))
    matrix = x.dtype.itemsize * 1200**2
    for memory in (10 * matrix, 3 * matrix, 3 * matrix // 2):
        tracemalloc.start()
        mn.solve_gram(net, theta, x, y, ridge=1.0, memory=memory)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= memory, (peak / matrix, memory / matrix)


def test_vectors_of_all_weights_are_counted() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(512), mn.ReLU(), mn.Dense(512), mn.ReLU(), mn.Dense(1)), (8,))
    theta, x, y = net.init(RNG), RNG.standard_normal((100, 8)), np.ones((100, 1))
    with pytest.raises(MemoryError, match="Gram matrix of 100 rows and w take"):
        mn.solve_gram(net, theta, x, y, memory=5 * theta.nbytes)
    memory = 8 * theta.nbytes
    tracemalloc.start()
    mn.solve_gram(net, theta, x, y, memory=memory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 4 * theta.nbytes < peak <= memory, peak / memory


def test_outputs_of_layers_are_computed_in_chunks_that_fit() -> None:
    """Peak memory does not exceed the bytes that the outputs of the first two layers need for all examples."""
    spec = mn.Sequential(mn.Conv2d(32, 1), mn.Tanh(), mn.GlobalAvgPool(), mn.Dense(1))
    net, N = mn.Network(spec, (8, 8, 2)), 16
    theta, x, y = net.init(RNG), RNG.standard_normal((N, 8, 8, 2)), np.ones((N, 1))
    mn.solve_gram(net, theta, x[:2], y[:2], ridge=1.0)  # imports take memory too
    memory = 8 * N * 8 * 8 * (32 + 32)
    tracemalloc.start()
    mn.solve_gram(net, theta, x, y, ridge=1.0, memory=memory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= memory, peak / memory


@pytest.mark.parametrize("method", [mn.solve_gram, mn.solve_lsqr])
def test_the_jacobian_is_never_formed(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Jacobian) -> Array:
        raise AssertionError("the Jacobian was written down")

    monkeypatch.setattr(Jacobian, "dense", refuse)
    net = mn.Network(mn.Sequential(mn.Dense(600), mn.ReLU(), mn.Dense(600), mn.ReLU(), mn.Dense(2)), (20,))
    theta, x, y = net.init(RNG), RNG.standard_normal((50, 20)), RNG.standard_normal((50, 2))
    tracemalloc.start()
    method(net, theta, x, y, **({"steps": 20} if method is mn.solve_lsqr else {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 100 * net.size / 5  # J : (N C, P) in float64


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_library_and_dtype(library: str, dtype: str) -> None:
    xp = namespace(library)
    model, theta, x, y = problem("dense")
    J, b = dense(model, theta, x, y)
    arrays = [to_library(a.astype(dtype), xp) for a in (theta, x, y)]
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    cases: list[tuple[Any, dict[str, Any], float]] = [
        (mn.solve_gram, {}, 0.0), (mn.solve_gram, {"ridge": 0.5}, 0.5), (mn.solve_lsqr, {"ridge": 0.5}, 0.5)
    ]  # fmt: skip
    for method, options, ridge in cases:
        solved = method(model, *arrays, **options)
        truth = J.T @ np.linalg.solve(J @ J.T + ridge * np.eye(len(J)), b)
        assert_near(to_host(solved.theta) - theta.astype(dtype), truth, tolerance)
        f = solved(arrays[1])
        for a in (f, solved.theta):
            assert array_namespace(a) is array_namespace(arrays[0])
            assert str(a.dtype) == dtype
    stopped = mn.solve_gram(model, *arrays, t=5.0)
    host = mn.solve_gram(model, theta, x, y, t=5.0)
    assert_near(to_host(stopped.theta) - theta.astype(dtype), host.theta - theta, tolerance)


def test_refinement_removes_rounding() -> None:
    """In float32 the relative error of the first solution is about eps times the condition number.

    Refinement reduces the residual to less than a third.
    """
    model, theta, x, y = problem("dense")
    arrays = [a.astype(np.float32) for a in (theta, x, y)]
    refined = mn.solve_gram(model, *arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "MAX_REFINEMENTS", 1)
        first = mn.solve_gram(model, *arrays)
    assert refined.steps > 1
    assert refined.residual < first.residual / 3 < 1e-4


# ----------------------------------------------------------------------------------------------------- errors


def test_errors() -> None:
    model, theta, x, y = problem("dense")
    nan = y.copy()
    nan[0, 0] = np.nan
    bad: list[tuple[str, Array, Array, Array, float]] = [
        ("y expects shape", theta, x, y[:-1], 0.0),
        ("y expects shape", theta, x, y[:, 0], 0.0),
        ("y holds 1 values", theta, x, nan, 0.0),
        ("one network", np.stack([theta, theta]), x, y, 0.0),
        ("at least one example", theta, x[:0], y[:0], 0.0),
        ("ridge expects", theta, x, y, -1.0),
        ("ridge expects", theta, x, y, inf),
        ("ridge expects", theta, x, y, np.ones(1)),  # type: ignore[list-item]
    ]
    for match, *arrays, ridge in bad:
        for method in (mn.solve_gram, mn.solve_lsqr):
            with pytest.raises(ValueError, match=match):
                method(model, *arrays, ridge=ridge)
    with pytest.raises(TypeError, match="dtype of theta"):
        mn.solve_gram(model, theta, x, y.astype(np.float32))
    with pytest.raises(TypeError, match="expected a model"):
        mn.solve_gram(None, theta, x, y)  # type: ignore[arg-type]
    for t in (-1.0, np.nan):
        with pytest.raises(ValueError, match="t expects"):
            mn.solve_gram(model, theta, x, y, t=t)
    with pytest.raises(ValueError, match="steps expects"):
        mn.solve_lsqr(model, theta, x, y, steps=0)
    for tol in (0.0, 2.0):
        with pytest.raises(ValueError, match="tol expects"):
            mn.solve_lsqr(model, theta, x, y, tol=tol)
    with pytest.raises(MemoryError, match=r"solve_lsqr"):
        mn.solve_gram(model, theta, x, y, memory=1000)
    coupled = mn.Network(mn.Sequential(mn.Dense(4), mn.BatchNorm(), mn.Dense(1)), (8,))
    with pytest.raises(ValueError, match="calibrate"):
        mn.solve_gram(coupled, coupled.init(RNG), x, y[:, :1])


@pytest.mark.parametrize("ridge", [np.float64(0.1), np.float32(0.1), np.int64(1)], ids=repr)
def test_a_ridge_from_numpy_is_a_number(ridge: Any) -> None:
    """np.float64 times a float32 array is a float64 array, so the ridge is converted."""
    model, *arrays = problem("dense")
    theta, x, y = (a.astype(np.float32) for a in arrays)
    for method in (mn.solve_gram, mn.solve_lsqr):
        solved = method(model, theta, x, y, ridge=ridge)
        np.testing.assert_array_equal(solved.theta, method(model, theta, x, y, ridge=float(ridge)).theta)
        assert {solved.theta.dtype, solved(x).dtype} == {np.dtype(np.float32)}
    assert solved(x[:0]).shape == (0, model.outputs)


def test_targets_that_are_met_already() -> None:
    model, theta, x, _ = problem("dense")
    for method in (mn.solve_gram, mn.solve_lsqr):
        solved = method(model, theta, x, model(theta, x))
        assert np.array_equal(solved.theta, theta)
        assert solved.residual == 0
