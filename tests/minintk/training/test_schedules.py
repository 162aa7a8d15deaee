"""Compare schedules with formulas, t with the sum of the rates, and training with a loop over the rates."""

from __future__ import annotations

from math import cos, fsum, pi
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.training.schedules import Schedule

simple = st.one_of(
    st.builds(
        mn.StepDecay,
        st.floats(1e-3, 1.0),
        st.integers(1, 9),
        st.sampled_from((0.1, 0.5, 0.9, 1.0, 1 - 1e-9, 1 - 1e-13)),
    ),
    st.builds(mn.Cosine, st.floats(1e-2, 1.0), st.integers(1, 20), st.sampled_from((0.0, 1e-3, 1e-2))),
)
schedules = st.one_of(simple, st.builds(mn.WarmUp, st.integers(1, 9), simple | st.floats(1e-3, 1.0)))


def test_step_decay() -> None:
    lr = mn.StepDecay(0.3, every=4, factor=0.5)
    np.testing.assert_allclose([lr(s) for s in range(9)], [0.3] * 4 + [0.15] * 4 + [0.075], rtol=1e-15)


def test_cosine() -> None:
    lr = mn.Cosine(0.4, steps=10, final=0.1)
    np.testing.assert_allclose(
        [lr(s) for s in range(13)], [0.1 + 0.15 * (1 + cos(pi * min(s, 10) / 10)) for s in range(13)], rtol=1e-15
    )
    assert lr(0) == 0.4
    assert lr(10) == lr(1000) == 0.1


def test_warm_up_rises_evenly_to_the_first_rate_and_then_hands_over() -> None:
    then = mn.StepDecay(0.6, every=2, factor=0.5)
    lr = mn.WarmUp(3, then=then)
    np.testing.assert_allclose([lr(s) for s in range(3)], [0.2, 0.4, 0.6], rtol=1e-15)
    assert [lr(s) for s in range(3, 12)] == [then(s) for s in range(9)]


@given(schedules, st.integers(0, 60))
def test_t_is_the_sum_of_the_rates(lr: Schedule, steps: int) -> None:
    assert lr.t(steps) == pytest.approx(fsum(lr(s) for s in range(steps)), rel=1e-12, abs=1e-15)


def test_steps_may_be_small_integers_of_numpy() -> None:
    """Products of small NumPy integers must not overflow, which would give t = -7949 instead of 35000.5."""
    assert mn.WarmUp(np.int32(50000), 1.0).t(60000) == 35000.5  # type: ignore[arg-type]
    assert mn.Cosine(1.0, np.uint8(200)).t(100) == mn.Cosine(1.0, 200).t(100)  # type: ignore[arg-type]
    assert mn.StepDecay(1.0, np.uint8(3))(300) == mn.StepDecay(1.0, 3)(300)  # type: ignore[arg-type]


@given(schedules, st.integers(0, 30))
def test_a_schedule_from_outside_needs_the_rate_only(lr: Schedule, steps: int) -> None:
    class Mine(Schedule):
        def __call__(self, step: int) -> float:
            return lr(step)

    assert Mine().t(steps) == pytest.approx(lr.t(steps), rel=1e-12, abs=1e-15)


# ---------------------------------------------------------------------------------------- in training

NET = mn.Network(mn.Sequential(mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Dense(2)), (3,))
RNG = np.random.default_rng(0)
THETA = NET.init(RNG)
X, Y = RNG.standard_normal((7, 3)), RNG.standard_normal((7, 2))


@given(schedules, st.sampled_from((0.0, 0.9)))
def test_training_follows_the_schedule(lr: Schedule, momentum: float) -> None:
    """theta <- theta - lr(s) v in a loop gives the same run, and t is the sum of all previous rates."""
    optimizer = mn.SGD(lr=lr, momentum=momentum, weight_decay=0.01)
    y = np.abs(Y) / np.abs(Y).sum(axis=1, keepdims=True)
    theta, v = THETA, np.zeros_like(THETA)
    for snap in mn.train(NET, THETA, X, y, loss=mn.softmax_cross_entropy, optimizer=optimizer, steps=12):
        np.testing.assert_allclose(snap.theta, theta, rtol=1e-11, atol=1e-12)
        assert snap.t == pytest.approx(fsum(lr(s) for s in range(snap.step)), rel=1e-12, abs=1e-15)
        f, J = NET.linearize(theta, X)
        v = momentum * v + J.vjp(mn.softmax_cross_entropy.cotangent(f, y)) + 0.01 * theta
        theta = theta - lr(snap.step) * v


def test_a_constant_schedule_is_a_number_bit_for_bit() -> None:
    number, schedule = (
        list(mn.train(NET, THETA, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=lr, momentum=0.9), steps=20))
        for lr in (0.1, mn.StepDecay(0.1, every=5, factor=1.0))
    )
    for a, b in zip(number, schedule, strict=True):
        assert np.array_equal(a.theta, b.theta)
        assert a.t == pytest.approx(b.t, rel=1e-15)


def test_the_time_of_a_schedule_is_the_time_of_gradient_flow() -> None:
    """After a cosine schedule of small steps, the linearised network is close to its flow at time t.

    The flow at a different time gives a different result.
    """
    import analytic as an

    lin, lr = mn.Linearized(NET, THETA), mn.Cosine(0.01, steps=400)
    *_, last = mn.train(lin, THETA, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=400)
    flow = an.gradient_flow(mn.ntk_full(NET, THETA, X), Y)
    f0 = NET(THETA, X)
    error = np.abs(flow.predict(lr.t(400), f0=f0) - last.f).max()
    assert last.t == lr.t(400) == pytest.approx(2.005)  # 400 * .01 / 2, and half the first step
    assert error < 3e-3  # of order lr
    assert np.abs(flow.predict(4.0, f0=f0) - last.f).max() > 10 * error


def test_the_optimiser_of_a_step_has_a_number() -> None:
    optimizer = mn.SGD(lr=mn.Cosine(0.1, 4), momentum=0.9)
    assert optimizer.at(2) == mn.SGD(lr=0.1 * (1 + cos(pi / 2)) / 2, momentum=0.9)
    assert optimizer.at(4).lr == 0.0  # the last rate of a schedule may be 0
    constant = mn.SGD(lr=0.1)
    assert constant.at(7) == constant
    assert constant.at(7).k == 8
    assert constant.t(7) == 0.1 * 7
    with pytest.raises(TypeError, match=r"depends on the step: optimizer\.at\(step\)"):
        optimizer.step(THETA.copy(), THETA.copy(), THETA.copy(), None)


def test_the_stability_warning_looks_at_the_first_rate() -> None:
    critical = 2 * 7 / float(np.linalg.eigvalsh(mn.ntk_full(NET, THETA, X).reshape(14, 14))[-1])
    with pytest.warns(RuntimeWarning, match="stability bound"):
        next(mn.train(NET, THETA, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=mn.Cosine(2 * critical, 9)), steps=9))
    warming = mn.SGD(lr=mn.WarmUp(10, then=2 * critical))
    next(mn.train(NET, THETA, X, Y, loss=mn.mse, optimizer=warming, steps=9))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mn.StepDecay(0.1, 3, 1.5), r"StepDecay\(factor=\.\.\.\) expects a number <= 1, got 1\.5"),
        (lambda: mn.Cosine(0.1, 3, 0.2), r"Cosine\(final=\.\.\.\) expects a number from 0 to lr = 0\.1, got 0\.2"),
    ],
)
def test_bad_settings(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
