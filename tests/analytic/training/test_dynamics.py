"""Compare closed-form dynamics with small steps, explicit loops, limits and reference values."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import minintk as mn
import minintk.spec as s
from analytic.training.dynamics import (
    GradientDescent,
    GradientFlow,
    critical_learning_rate,
    gradient_descent,
    gradient_flow,
    max_learning_rate,
)
from minintk.arrays import Array as A
from minintk.models.network import Network
from tests.kit.golden import F0, F0_TEST, FLOW, LARGEST_RATE, XF1, XF2, Y
from tests.kit.two_layer_erf import erf_ntk, spread

# ------------------------------------------------------------------------------------- reference values

C = 2  # the reference's loss is 1/(2 N C) sum (f - y)^2, so its learning rate is C times minintk's


def test_one_function_matches_the_reference() -> None:
    flow = gradient_flow(erf_ntk(XF1, XF1), Y, lr=0.5 / C)
    assert abs(flow.predict(10, f0=F0).sum() - FLOW["train"]) < 1e-8
    assert abs(flow.predict(10, erf_ntk(XF2, XF1), f0=F0, f0_test=F0_TEST).sum() - FLOW["test"]) < 1e-8


def test_stable_learning_rates_match_the_reference() -> None:
    k = erf_ntk(XF1, XF1)
    for momentum, rate in LARGEST_RATE.items():
        assert abs(C * max_learning_rate(k, momentum) - rate) < 1e-8


# ------------------------------------------------------------- law: closed form = many small steps, or a loop


@dataclass
class Problem:
    """A linear model f = f_0 + J w of N training and M test examples. J : (N, C, P), J_test : (M, C, P)."""

    J: A
    J_test: A
    y: A
    f0: A
    f0_test: A
    lr: float
    ridge: float

    def gradient(self, w: A) -> A:
        """Return the gradient of L = 1/(2N) sum ||f - y||^2 + ridge/(2N) |w|^2."""
        error = self.f0 + self.J @ w - self.y
        return np.asarray((np.einsum("ncp,nc->p", self.J, error) + self.ridge * w) / len(self.y))

    def flowed(self, t: float) -> A:
        """Return w at time t, by an adaptive integrator of order 8."""
        start = np.zeros(self.J.shape[2])
        solution = solve_ivp(
            lambda _, w: -self.lr * self.gradient(w), (0, t), start, method="DOP853", rtol=1e-12, atol=1e-13
        )
        return np.asarray(solution.y[:, -1])

    def descended(self, t: int) -> A:
        """Return w after t steps of gradient descent."""
        w = np.zeros(self.J.shape[2])
        for _ in range(t):
            w = w - self.lr * self.gradient(w)
        return w

    def kernel(self, test: bool = False) -> A:
        return np.asarray(np.einsum("ncp,mep->ncme", self.J_test if test else self.J, self.J))

    def error(self, t: float, w: A, dynamics: Any) -> float:
        """Return the largest deviation of the closed form at time t, in outputs and weights, from a model at w."""
        train = dynamics.predict(t, f0=self.f0) - (self.f0 + self.J @ w)
        test = dynamics.predict(t, self.kernel(test=True), f0=self.f0, f0_test=self.f0_test)
        a = dynamics.coefficients(t, f0=self.f0)
        parts = (train, test - (self.f0_test + self.J_test @ w), np.einsum("ncp,nc->p", self.J, a) - w)
        return max(float(np.abs(part).max()) for part in parts)


def problem(seed: int, N: int = 4, C: int = 2, P: int = 11, M: int = 3, lr: float = 0.7, ridge: float = 0.0) -> Problem:
    draw = np.random.default_rng(seed).standard_normal
    J, J_test = draw((N, C, P)) / math.sqrt(P), draw((M, C, P)) / math.sqrt(P)
    return Problem(J, J_test, draw((N, C)), draw((N, C)), draw((M, C)), lr, ridge)


problems = st.builds(
    problem,
    seed=st.integers(0, 2**32 - 1),
    N=st.integers(1, 6),
    C=st.integers(1, 3),
    P=st.integers(1, 20),  # fewer than N C: a singular kernel
    ridge=st.sampled_from([0.0, 0.0, 0.3]),
)


@settings(max_examples=40)
@given(p=problems, t=st.sampled_from([0.0, 0.01, 1.0, 30.0]))
def test_flow_is_many_small_steps(p: Problem, t: float) -> None:
    assert p.error(t, p.flowed(t), gradient_flow(p.kernel(), p.y, lr=p.lr, ridge=p.ridge)) < 1e-9


@settings(max_examples=40)
@given(p=problems, t=st.sampled_from([0, 1, 2, 7, 400]))
def test_descent_is_the_loop(p: Problem, t: int) -> None:
    p.lr = min(p.lr, 0.9 * max_learning_rate(p.kernel() + p.ridge * np.eye(p.y.size).reshape(p.kernel().shape)))
    assert p.error(t, p.descended(t), gradient_descent(p.kernel(), p.y, lr=p.lr, ridge=p.ridge)) < 1e-10


class Planted(GradientFlow):
    """Gradient flow with e^(-lr t mu / N) replaced by `wrong`."""

    wrong: Callable[[A, A, float], A]  # (t, mu, lr / N) -> e^(-lr t mu / N), or a mistaken version of this

    def gain(self, t: Any) -> Any:
        mu = self.spectrum.mu
        return (1 - type(self).wrong(t[:, None], mu, self.lr / len(self.y))) / mu


def planted(decay: Callable[[A, A, float], A], p: Problem, ridge: float) -> Planted:
    flow = gradient_flow(p.kernel(), p.y, lr=p.lr, ridge=ridge)
    kind = type("Wrong", (Planted,), {"wrong": staticmethod(decay)})
    return kind(flow.spectrum, flow.y, flow.lr, flow.full, flow.dtype)


FLOW_MISTAKES = {
    "time over N C": lambda t, mu, rate: np.exp(-rate / 2 * t * mu),
    "sum loss, no 1/N": lambda t, mu, rate: np.exp(-4 * rate * t * mu),
    "factor 2": lambda t, mu, rate: np.exp(-2 * rate * t * mu),
    "ridge not in the exponent": lambda t, mu, rate: np.exp(-rate * t * (mu - 0.3)),
    "descent instead of flow": lambda t, mu, rate: (1 - rate * mu) ** t,
}
DESCENT_MISTAKES = {
    "the misprint 1 - (1 - eta Theta)^i": lambda t, mu, rate: 1 - (1 - rate * mu) ** t,
    "one step too many": lambda t, mu, rate: (1 - rate * mu) ** (t + 1),
    "flow instead of descent": lambda t, mu, rate: np.exp(-rate * t * mu),
    "step over N C": lambda t, mu, rate: (1 - rate / 2 * mu) ** t,
}


def test_planted_right_formulas_pass_and_mistakes_do_not() -> None:
    """The check passes on the correct formulas, and fails on every planted mistake by a wide margin."""
    p = problem(seed=0, P=20, ridge=0.3)
    flowed, descended = p.flowed(7), p.descended(7)
    assert p.error(7, flowed, planted(lambda t, mu, rate: np.exp(-rate * t * mu), p, 0.3)) < 1e-9
    assert p.error(7, descended, planted(lambda t, mu, rate: (1 - rate * mu) ** t, p, 0.3)) < 1e-10
    for decay in FLOW_MISTAKES.values():
        assert p.error(7, flowed, planted(decay, p, 0.3)) > 1e-3
    for decay in DESCENT_MISTAKES.values():
        assert p.error(7, descended, planted(decay, p, 0.3)) > 1e-3
    assert p.error(7, flowed, gradient_flow(p.kernel(), p.y, lr=p.lr)) > 1e-3  # the ridge forgotten


# ------------------------------------------------------------------------------------------ a real network


def test_a_linearised_network_trains_as_predicted_in_weight_space() -> None:
    """Check equation (8) of Lee et al., theta_t = theta_0 + J' a_t, with a network's hand-written derivatives."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((6, 4)), rng.standard_normal((6, 2))
    net = Network(s.Sequential(s.Dense(16, w_std=1.5, b_std=0.1), s.Erf(), s.Dense(2)), (4,))
    theta0 = net.init(rng)
    f0, J = net.linearize(theta0, x)
    descent = gradient_descent(J.gram(), y, lr=0.3)
    theta = theta0.copy()
    for _ in range(60):
        theta -= 0.3 / len(y) * J.vjp(f0 + J.jvp(theta - theta0) - y)
    assert np.abs(theta0 + J.vjp(descent.coefficients(60, f0=f0)) - theta).max() < 1e-12
    assert np.abs(descent.predict(60, f0=f0) - (f0 + J.jvp(theta - theta0))).max() < 1e-12
    assert np.abs(theta - theta0).max() > 0.1  # the weights moved


# -------------------------------------------------------------------------------------------------- limits


def test_the_start_is_f0_exactly_and_the_end_the_interpolation() -> None:
    k, k_test, y, _ = spread()
    f0, f0_test = np.cos(y), np.sin(np.ones((3, 2)))
    for dynamics in (gradient_flow(k, y), gradient_descent(k, y)):
        assert np.array_equal(dynamics.predict(0, f0=f0), f0)
        assert np.array_equal(dynamics.predict(0, k_test, f0=f0, f0_test=f0_test), f0_test)
        assert np.abs(dynamics.predict(np.inf, f0=f0) - y).max() < 1e-13
        end = f0_test + k_test @ np.linalg.solve(k, y - f0)
        for t in (1e6, 1e15, np.inf):
            assert np.abs(dynamics.predict(t, k_test, f0=f0, f0_test=f0_test) - end).max() < 1e-12


def test_ridge_gives_kernel_ridge_regression() -> None:
    k, k_test, y, _ = spread()
    regression = k_test @ np.linalg.solve(k + 0.1 * np.eye(len(k)), y)
    assert np.abs(gradient_flow(k, y, ridge=0.1).predict(np.inf, k_test) - regression).max() < 1e-13
    assert np.abs(gradient_descent(k, y, ridge=0.1).predict(np.inf, k_test) - regression).max() < 1e-13


def test_descent_tends_to_flow_to_first_order_in_the_learning_rate() -> None:
    """At a fixed lr * steps, the distance from the flow is c lr + O(lr^2), so halving lr nearly halves it."""
    k, k_test, y, _ = spread()
    flow = gradient_flow(k, y).predict(4.0, k_test)
    rates = 2.0 ** -np.arange(5, 12)
    gaps = [np.abs(gradient_descent(k, y, lr=lr).predict(round(4 / lr), k_test) - flow).max() for lr in rates]
    orders = np.diff(np.log2(gaps)) / -1.0
    assert np.abs(orders[-1] - 1) < 0.01
    assert np.all(np.diff(np.abs(orders - 1)) < 0)  # the approach to order 1 is monotone too


def test_lr_only_scales_time() -> None:
    k, k_test, y, _ = spread()
    slow, fast = gradient_flow(k, y, lr=0.01), gradient_flow(k, y)
    assert np.abs(slow.predict(500, k_test) - fast.predict(5, k_test)).max() < 1e-13


def test_a_shared_kernel_is_the_full_one_with_the_identity_over_outputs() -> None:
    k, k_test, y, _ = spread()
    eye = np.eye(2)
    full, full_test = (np.einsum("nm,ce->ncme", a, eye) for a in (k, k_test))
    for make in (gradient_flow, gradient_descent):
        shared, whole = make(k, y, ridge=0.01), make(full, y, ridge=0.01)
        for t in (0, 5, [1, np.inf]):
            assert np.abs(shared.predict(t, f0=np.cos(y)) - whole.predict(t, f0=np.cos(y))).max() < 1e-13
            assert np.abs(shared.predict(t, k_test) - whole.predict(t, full_test)).max() < 1e-13
            assert np.abs(shared.coefficients(t) - whole.coefficients(t)).max() < 1e-12
    assert max_learning_rate(full) == pytest.approx(max_learning_rate(k), rel=1e-13)


def test_many_times_need_one_factorisation(monkeypatch: pytest.MonkeyPatch) -> None:
    xp: Any = np

    k, k_test, y, _ = spread()
    calls = 0
    eigh = xp.linalg.eigh

    def counted(a: A) -> Any:
        nonlocal calls
        calls += 1
        return eigh(a)

    monkeypatch.setattr(xp.linalg, "eigh", counted)
    flow = gradient_flow(k, y)
    times = np.array([0.0, 0.5, 3.0, np.inf])
    together, train, a = flow.predict(times, k_test), flow.predict(times), flow.coefficients(times)
    assert calls == 1
    assert (together.shape, train.shape, a.shape) == ((4, 3, 2), (4, 7, 2), (4, 7, 2))
    for i, t in enumerate(times):
        assert np.abs(together[i] - flow.predict(float(t), k_test)).max() < 1e-14
        assert np.abs(train[i] - flow.predict(float(t))).max() < 1e-14
    assert flow.predict([0.5]).shape == (1, 7, 2)


# -------------------------------------------------------------------------------------- learning rates


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_heavy_ball_converges_below_the_bound_and_diverges_above(momentum: float) -> None:
    k, _, y, _ = spread()

    def loss_after(lr: float, steps: int = 4000) -> float:
        f, v = np.zeros_like(y), np.zeros_like(y)
        for _ in range(steps):
            v = momentum * v + k @ (f - y) / len(y)
            f = f - lr * v
            if np.abs(f).max() > 1e6:
                return math.inf
        return float(np.abs(f - y).max())

    bound = max_learning_rate(k, momentum)
    assert loss_after(0.98 * bound) < 1e-3
    assert loss_after(1.02 * bound) == math.inf


def test_the_critical_learning_rate_is_the_theorems() -> None:
    k, _, _, _ = spread()
    lam = np.linalg.eigvalsh(k)
    assert critical_learning_rate(k) == pytest.approx(2 * 7 / (lam[0] + lam[-1]), rel=1e-12)
    assert critical_learning_rate(k) < max_learning_rate(k)
    # At the best rate, the slowest and the fastest direction contract equally.
    contraction = np.abs(1 - critical_learning_rate(k) * lam / 7)
    assert contraction[0] == pytest.approx(contraction[-1], rel=1e-10)


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-310])
def test_a_kernel_that_bounds_no_rate_is_refused(size: float) -> None:
    """A kernel of zeros, or one whose bound would be infinite, raises an error. The kernel 1e-300 I has a bound."""
    for bound in (max_learning_rate, critical_learning_rate):
        with pytest.raises(ValueError, match=r"expects an eigenvalue .*, got .* as its largest: .*; scale the inputs"):
            bound(size * np.eye(3))
        assert 1e300 < bound(1e-300 * np.eye(3)) < math.inf


def test_the_mean_over_outputs_has_another_rate() -> None:
    """Descent converges just below the full kernel's largest stable rate, and diverges just below the mean kernel's."""
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(32), mn.ReLU(), mn.Dense(4)), (5,))
    theta, x = net.init(rng), rng.standard_normal((10, 5))
    full, mean = mn.ntk_full(net, theta, x), mn.ntk(net, theta, x)
    assert max_learning_rate(full) == max_learning_rate(np.ascontiguousarray(full.reshape(40, 40))) / 4
    lin, y = mn.Linearized(net, theta), np.ones((10, 4))
    for kernel, expected in ((full, nullcontext()), (mean, pytest.warns(RuntimeWarning, match="stability bound"))):
        how: Any = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.98 * max_learning_rate(kernel)), "steps": 500}
        with expected:
            *_, last = mn.train(lin, theta, x, y, **how)
        assert (mn.mse(last.f, y) < mn.mse(net(theta, x), y)) == (kernel is full)


def test_above_stability_it_warns_with_the_bound_and_predicts_the_divergence() -> None:
    p = problem(seed=4)
    bound = max_learning_rate(p.kernel())
    p.lr = 1.1 * bound
    with pytest.warns(RuntimeWarning, match=f"lr = {p.lr:g} must stay below {bound:.6g}"):
        descent = gradient_descent(p.kernel(), p.y, lr=p.lr)
    w = p.descended(40)
    assert np.abs(w).max() > 100
    assert p.error(40, w, descent) < 1e-9 * np.abs(w).max()
    with pytest.raises(ValueError, match="no limit t = inf: lr = "):
        descent.predict(np.inf)
    with pytest.raises(ValueError, match="overflowed at t = "):
        descent.predict([1, 10**9])


def test_at_the_bound_itself_descent_swings_for_ever() -> None:
    k, _, y, _ = spread()
    descent = gradient_descent(k, y, lr=max_learning_rate(k))  # no warning: it does not diverge
    top = np.linalg.eigh(k)[1][:, -1]
    even, odd = (top @ (descent.predict(t) - y) for t in (1000, 1001))
    assert even == pytest.approx(-odd, rel=1e-9)
    with pytest.raises(ValueError, match="no limit"):
        descent.predict(np.inf)


# ------------------------------------------------------------------------------------------ precision, errors


@pytest.mark.parametrize("make", [gradient_flow, gradient_descent])
def test_float32_in_is_float32_out_with_float64_inside(make: Callable[..., GradientFlow | GradientDescent]) -> None:
    k, k_test, y, _ = spread()
    k32, k_test32, y32 = (a.astype(np.float32) for a in (k, k_test, y))
    low, high = make(k32, y32), make(k32.astype(np.float64), y32.astype(np.float64))
    for t in (0, 3, np.inf):
        for a, b in (
            (low.predict(t), high.predict(t)),
            (low.predict(t, k_test32, f0=y32), high.predict(t, k_test32.astype(np.float64), f0=y32.astype(np.float64))),
            (low.coefficients(t), high.coefficients(t)),
        ):
            assert a.dtype == np.float32
            assert b.dtype == np.float64
            assert np.abs(a - b).max() <= 6e-8 * max(1.0, np.abs(b).max())  # only the final rounding


def test_the_time_constants_are_those_of_expm() -> None:
    k, _, y, _ = spread()
    decay = expm(-0.2 * 3 / 7 * (k + 0.1 * np.eye(7)))
    a = np.linalg.solve(k + 0.1 * np.eye(7), (np.eye(7) - decay) @ y)
    assert np.abs(gradient_flow(k, y, lr=0.2, ridge=0.1).coefficients(3) - a).max() < 1e-13


K, K_TEST, TARGETS, _X = spread()
BAD_CONSTRUCTION: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (K, TARGETS[:, 0], {}, ValueError, r"y expects shape \(N, C\), got \(7,\).*y\[:, None\]"),
    (K, TARGETS[:6], {}, ValueError, r"k_train expects shape \(6, 6\) for y of shape \(6, 2\), got \(7, 7\)"),
    (K[:6], TARGETS, {}, ValueError, r"k_train expects shape \(N, N\)"),
    (np.zeros((7, 3, 7, 3)), TARGETS, {}, ValueError, r"k_train expects shape \(7, 2, 7, 2\) .* got \(7, 3, 7, 3\)"),
    (np.zeros((7, 2, 7)), TARGETS, {}, ValueError, r"k_train expects shape"),
    (K + np.triu(np.ones((7, 7)), 1), TARGETS, {}, ValueError, "symmetric"),
    (np.where(np.eye(7) > 0, np.nan, K), TARGETS, {}, ValueError, "k_train holds 7 values that are NaN"),
    (K, TARGETS * np.inf, {}, ValueError, "y holds 14 values that are NaN or infinite"),
    (K, (TARGETS > 0).astype(int), {}, TypeError, "y expects float32 or float64"),
    (K.astype(int), TARGETS, {}, TypeError, "k_train expects float32 or float64"),
    (K, TARGETS.tolist(), {}, TypeError, "expected arrays of one library"),
    (K, TARGETS, {"lr": 0.0}, ValueError, "lr expects a finite number > 0"),
    (K, TARGETS, {"lr": math.nan}, ValueError, "lr expects a finite number > 0"),
    (K, TARGETS, {"ridge": -1e-9}, ValueError, "ridge expects a finite number >= 0"),
    (K, TARGETS, {"ridge": math.inf}, ValueError, "ridge expects a finite number >= 0"),
]


@pytest.mark.parametrize("make", [gradient_flow, gradient_descent])
@pytest.mark.parametrize(("k", "y", "options", "error", "message"), BAD_CONSTRUCTION)
def test_bad_input_is_refused_at_once(
    make: Callable[..., Any], k: Any, y: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(k, y, **options)


BAD_PREDICTION: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (-1.0, {}, ValueError, "t expects numbers >= 0"),
    (math.nan, {}, ValueError, "t expects numbers >= 0"),
    ([1.0, -2.0], {}, ValueError, r"t expects numbers >= 0 \(inf for the limit\), .* got \[1\.0, -2"),
    ([[1.0]], {}, ValueError, r"a one-dimensional array of them, got \[\[1"),
    (1.0, {"k_test_train": K_TEST.T}, ValueError, r"k_test_train expects shape \(M, 7\).*got \(7, 3\): transpose it"),
    (1.0, {"k_test_train": np.zeros((3, 2, 7, 2))}, ValueError, r"k_test_train expects shape \(M, 7\)"),
    (1.0, {"k_test_train": K_TEST * np.nan}, ValueError, "k_test_train holds 21 values"),
    (1.0, {"k_test_train": K_TEST.astype(int)}, TypeError, "k_test_train expects float32 or float64"),
    (1.0, {"k_test_train": K_TEST.tolist()}, TypeError, "one library"),
    (1.0, {"f0": np.zeros((3, 2))}, ValueError, r"f0 expects shape \(7, 2\), got \(3, 2\)"),
    (1.0, {"f0": math.nan}, ValueError, "f0 expects finite outputs"),
    (1.0, {"f0": TARGETS * np.nan}, ValueError, "f0 holds 14 values"),
    (1.0, {"k_test_train": K_TEST, "f0_test": np.zeros((7, 2))}, ValueError, r"f0_test expects shape \(3, 2\)"),
    (1.0, {"f0_test": np.zeros((3, 2))}, ValueError, "give k_test_train too"),
]


@pytest.mark.parametrize("make", [gradient_flow, gradient_descent])
@pytest.mark.parametrize(("t", "options", "error", "message"), BAD_PREDICTION)
def test_bad_questions_are_refused(
    make: Callable[..., Any], t: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(K, TARGETS).predict(t, **options)


def test_descent_counts_whole_steps() -> None:
    descent = gradient_descent(K, TARGETS)
    assert np.array_equal(descent.predict(3.0), descent.predict(3))
    with pytest.raises(ValueError, match=r"whole steps, got t = 2.5: round it, or use gradient_flow"):
        descent.predict([1.0, 2.5])


def test_momentum_must_be_one() -> None:
    for momentum in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"momentum expects a number in \[0, 1\)"):
            max_learning_rate(K, momentum)
