"""Test the closed form of the heavy ball against a loop, 60-digit values, a trained network, and the limiting flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import minintk as mn
from analytic.training.dynamics import GradientDescent, gradient_descent, gradient_flow, max_learning_rate
from analytic.training.eigen import Spectrum
from minintk.arrays import Array as A
from tests.kit.two_layer_erf import spread

# ---------------------------------------------------------------------------------------- law: the loop

Step = Callable[[A, A, A, float, float], tuple[A, A]]


def heavy_ball(f: A, v: A, g: A, lr: float, m: float) -> tuple[A, A]:
    """Take one step, v <- m v + g and f <- f - lr v."""
    v = m * v + g
    return f - lr * v, v


WRONG: dict[str, Step] = {
    "without momentum": lambda f, v, g, lr, m: (f - lr * g, v),
    "v <- m v + (1 - m) g": lambda f, v, g, lr, m: heavy_ball(f, v, (1 - m) * g, lr, m),
    "Nesterov's": lambda f, v, g, lr, m: (f - lr * (g + m * (m * v + g)), m * v + g),
    "velocity of the step before": lambda f, v, g, lr, m: (f - lr * v, m * v + g),
    "lr / (1 - m) for the momentum": lambda f, v, g, lr, m: (f - lr / (1 - m) * g, v),
}


def departure(step: Step, lr: float, m: float, ridge: float, t: int, seed: int = 0, N: int = 5, P: int = 20) -> float:
    """Return the largest |closed form - loop| in weights and outputs, relative to max(1, the largest entry).

    If P < N, the kernel is singular, and outputs do not move along its null space.
    """
    draw = np.random.default_rng(seed).standard_normal
    J, J_test, y, f0, f0_test = draw((N, P)), draw((3, P)), draw((N, 2)), draw((N, 2)), draw((3, 2))
    w: A = np.zeros((P, 2))
    v: A = np.zeros((P, 2))
    lr *= max_learning_rate(J @ J.T + ridge * np.eye(N), m)
    for _ in range(t):
        w, v = step(w, v, (J.T @ (f0 + J @ w - y) + ridge * w) / N, lr, m)
    descent = gradient_descent(J @ J.T, y, lr=lr, momentum=m, ridge=ridge)
    pairs = (
        (descent.predict(t, f0=f0), f0 + J @ w),
        (descent.predict(t, J_test @ J.T, f0=f0, f0_test=f0_test), f0_test + J_test @ w),
        (J.T @ descent.coefficients(t, f0=f0), w),
    )
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1)) for a, b in pairs)


@pytest.mark.parametrize("m", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("lr", [1e-3, 0.2, 0.97])  # fractions of the bound
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_it_is_the_loop(m: float, lr: float, ridge: float) -> None:
    for t in (0, 1, 2, 7, 300):
        assert departure(heavy_ball, lr, m, ridge, t) < 1e-12
        assert departure(heavy_ball, lr, m, ridge, t, N=8, P=6) < 1e-12


@pytest.mark.parametrize("mistake", WRONG)
def test_the_same_law_refuses_planted_mistakes(mistake: str) -> None:
    assert departure(WRONG[mistake], 0.2, 0.9, 0.3, 7) > 1e-3


def test_without_momentum_it_is_gradient_descent() -> None:
    k, k_test, y, _ = spread()
    plain, ball = gradient_descent(k, y), gradient_descent(k, y, momentum=1e-300)
    for t in (1, 5, 400):
        np.testing.assert_allclose(ball.predict(t, k_test), plain.predict(t, k_test), rtol=1e-11)


def test_late_steps_in_lost_directions_are_refused() -> None:
    """Late steps act like steps at rate lr / (1 - m). At m = .999 and t = 5e14, outputs would be wrong by 180 %."""
    x = np.linspace(-1, 1, 14)
    k, k_test = np.exp(-((x[:, None] - x) ** 2) / 2), np.exp(-((1.5 - x) ** 2) / 2)[None]
    y = np.sign(np.sin(7 * x))[:, None]
    assert np.isfinite(gradient_descent(k, y).predict(5e14, k_test)).all()
    with pytest.raises(ValueError, match="cannot be resolved"):
        gradient_descent(k, y, momentum=0.999).predict(5e14, k_test)


# ------------------------------------------------------------------------------------------- to rounding


def gains(z: list[float], m: float, t: list[int]) -> A:
    """Return the library's g_t for lr = N = 1 and eigenvalues z : (n,), as an array (T, n)."""
    factors = Spectrum(np.array(z), np.eye(len(z)), 0.0, 0.0, 0, True, min(z))
    return np.asarray(GradientDescent(factors, np.zeros((1, 1)), 1.0, False, np.float64, m).gain(np.array(t, float)))


def exact(z: Any, m: float, t: int) -> Any:
    """Return g_t = (1 - e_t) / z in 60 digits, where e_t is an entry of a power of the matrix of one step."""
    z, m = mp.mpf(z), mp.mpf(m)
    return (1 - (mp.matrix([[1 - z, -m], [z, m]]) ** t)[0, 0]) / z


@pytest.mark.parametrize("m", [0.5, 0.9, 0.999])
def test_every_eigenvalue_keeps_its_digits(m: float) -> None:
    """Check slow, critical, nearly critical, oscillating and nearly unstable eigenvalues for up to 10^5 steps.

    The error stays below 10 eps plus twice the change that a relative error eps of z causes.
    """
    low, high, edge = (1 - math.sqrt(m)) ** 2, (1 + math.sqrt(m)) ** 2, 2 * (1 + m)
    z = [1e-14, 1e-5, low * (1 - 1e-6), low, float(np.nextafter(low, 1)), 0.3, 1.0, high, edge * (1 - 1e-9)]
    times, eps = [1, 2, 3, 10, 100, 1000, 10**5], 2.0**-53
    with mp.workdps(60):
        for t, row in zip(times, gains(z, m, times), strict=True):
            for one, got in zip(z, row, strict=True):
                want, moved = exact(one, m, t), exact(mp.mpf(one) * (mp.mpf(1) + eps), m, t)
                assert abs(mp.mpf(float(got)) - want) <= 10 * eps * abs(want) + 2 * abs(moved - want), (one, t)


def test_a_direction_that_is_zero_and_not_dropped_moves_as_far_as_it_can() -> None:
    """At mu = 0, step j adds (1 - m^j) / (1 - m) to g_t."""
    for t in (1, 2, 3, 50):
        want = sum((1 - 0.9**j) / (1 - 0.9) for j in range(1, t + 1))
        assert gains([0.0, 1.0], 0.9, [t])[0, 0] == pytest.approx(want, rel=1e-13)


# ------------------------------------------------------------------------------------- stability and limit


@pytest.mark.parametrize("m", [0.0, 0.5, 0.9])
def test_its_bound_and_its_limit(m: float) -> None:
    k, k_test, y, _ = spread()
    bound = max_learning_rate(k, m)
    below = gradient_descent(k, y, lr=0.98 * bound, momentum=m)
    np.testing.assert_allclose(below.predict(10**5), y, atol=1e-9)
    np.testing.assert_allclose(below.predict(10**5, k_test), below.predict(np.inf, k_test), rtol=1e-7)
    at = gradient_descent(k, y, lr=bound, momentum=m)  # oscillates for ever without growing
    np.testing.assert_allclose(at.predict(10**5), at.predict(10**4), rtol=1e-6)
    with pytest.warns(RuntimeWarning, match=rf"must stay below {bound:.6g} = {2 * (1 + m):g} N"):
        above = gradient_descent(k, y, lr=1.02 * bound, momentum=m)
    assert np.abs(above.predict(2000)).max() > 1e3 * np.abs(y).max()
    with pytest.raises(ValueError, match=r"no limit t = inf: lr = "):
        above.predict(np.inf)
    with pytest.raises(ValueError, match=r"overflowed at t = "):
        above.predict(10**9)


@pytest.mark.parametrize("m", [-0.1, 1.0, math.nan, "0.9"])
def test_momentum_out_of_range(m: Any) -> None:
    k, _, y, _ = spread()
    with pytest.raises(ValueError, match=r"momentum expects a number in \[0, 1\), got "):
        gradient_descent(k, y, momentum=m)


# ------------------------------------------------------------------------------------- a network's training


def test_a_linearised_network_trains_as_predicted() -> None:
    """At every 25th of 100 steps, outputs and weights are as predicted, to within 2e-14 of the largest entry."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 5)), rng.standard_normal((8, 2))
    net = mn.Network(mn.Sequential(mn.Dense(32, w_std=1.5, b_std=0.1), mn.Erf(), mn.Dense(2)), (5,))
    theta = net.init(rng)
    f0, J = net.linearize(theta, x)
    lr = 0.2 * max_learning_rate(J.gram(), 0.9)
    theory = gradient_descent(J.gram(), y, lr=lr, momentum=0.9)
    run = mn.train(mn.Linearized(net, theta), theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr, 0.9), steps=100, every=25)
    for snap in run:
        f = theory.predict(snap.step, f0=f0)
        assert np.abs(f - snap.f).max() < 2e-14 * np.abs(f).max()
        moved = J.vjp(theory.coefficients(snap.step, f0=f0))
        assert np.abs(theta + moved - snap.theta).max() < 2e-14 * np.abs(theta).max()


# --------------------------------------------------------------------------------------- its limit in time


def distance(lr: float, m: float, time: float) -> float:
    """Return the largest |heavy ball - momentum flow| at lr steps / (1 - m) = time, with tau = lr / (1 - m)^2."""
    k, _, y, _ = spread()
    f0 = y[::-1] / 2
    steps = round(time * (1 - m) / lr)
    f = gradient_descent(k, y, lr=lr, momentum=m).predict(steps, f0=f0)
    by = mn.Solver(rtol=1e-11, atol=1e-13)
    flow = mn.kernel_flow(k, f0, y, loss=mn.mse, times=lr * steps / (1 - m), tau=lr / (1 - m) ** 2, by=by)
    *_, end = flow
    return float(np.abs(f - end.f).max())


def test_small_steps_are_the_momentum_flow_to_first_order() -> None:
    """At a fixed m, the error is of order lr. At a fixed tau, it is of order lr / (1 - m) = sqrt(lr tau).

    Negative control: without the factor 1 / (1 - m) in the time, the flow does not match the steps.
    """
    fixed_m = [distance(lr, 0.75, 8.0) for lr in (2**-7, 2**-8, 2**-9)]
    assert [a / b for a, b in pairwise(fixed_m)] == pytest.approx([2, 2], rel=0.05)
    fixed_tau = [distance(h**2, 1 - h, 8.0) for h in (2**-5, 2**-6, 2**-7)]  # tau = 1
    assert [a / b for a, b in pairwise(fixed_tau)] == pytest.approx([2, 2], rel=0.05)
    k, _, y, _ = spread()
    f0 = y[::-1] / 2
    lr, m, t = 2**-9, 0.75, 8.0
    right = gradient_flow(k, y).predict(t, f0=f0)  # tau -> 0 as lr does
    errors = [
        float(np.abs(gradient_descent(k, y, lr=lr, momentum=m).predict(round(steps), f0=f0) - right).max())
        for steps in (t * (1 - m) / lr, t / lr)
    ]
    assert errors[0] < 0.05 * errors[1]
