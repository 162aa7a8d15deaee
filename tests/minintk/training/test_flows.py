"""Compare flows with closed forms and with each other, and test the rules for steps."""

from __future__ import annotations

from collections.abc import Iterable
from math import expm1, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.special import hyp0f1

import analytic as an
import minintk as mn
from minintk.training.flow_state import WeightSpace
from minintk.training.integrators import FlowSettings, SteppedFlow

Array = mn.Array

RNG = np.random.default_rng(0)
NET = mn.Network(mn.Sequential(mn.Dense(30, b_std=0.1), mn.Tanh(), mn.Dense(1)), (3,))
THETA = NET.init(RNG)
X, X_TEST = RNG.standard_normal((6, 3)), RNG.standard_normal((4, 3))
Y, SIGNS = RNG.standard_normal((6, 1)), RNG.choice((-1.0, 1.0), (6, 1))
ALL = np.concatenate([X, X_TEST])
TIMES = (0.5, 2.0, 10.0)


def last(run: Iterable[mn.Moment]) -> mn.Moment:
    *_, end = run
    return end


def weights(moment: mn.Moment) -> mn.Array:
    """Return the theta of a moment, which must not be None."""
    assert moment.theta is not None
    return moment.theta


# -------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("method", ["RK45", "DOP853"])
def test_gradient_flow_of_the_linearised_network_is_the_closed_form(method: Any) -> None:
    """Outputs and parameters follow Lee et al. 2019, eqs. (8) and (9). The flow of the network itself differs."""
    by = mn.Solver(rtol=1e-9, atol=1e-11, method=method)
    closed = an.gradient_flow(mn.ntk(NET, THETA, X), Y)
    f0, J = NET.linearize(THETA, X)
    moments = list(mn.flow(mn.Linearized(NET, THETA), THETA, X, Y, loss=mn.mse, times=TIMES, by=by))
    assert [m.t for m in moments] == [0.0, *TIMES]
    for m in moments:
        want = closed.predict(m.t, f0=f0)
        np.testing.assert_allclose(m.f, want, atol=1e-7)
        np.testing.assert_allclose(m.loss, mn.mse(want, Y), atol=1e-7)
        np.testing.assert_allclose(weights(m), THETA + J.vjp(closed.coefficients(m.t, f0=f0)), atol=1e-7)
    own = last(mn.flow(NET, THETA, X, Y, loss=mn.mse, times=TIMES, by=by))
    assert np.abs(own.f - moments[-1].f).max() > 1e-3


def test_steps_are_of_first_order() -> None:
    """The error is proportional to the allowed change per step: the fitted exponent is 1 to within 0.15."""
    closed = an.gradient_flow(mn.ntk(NET, THETA, X), Y).predict(2.0, f0=NET(THETA, X))
    highs = 10.0 ** -np.arange(1.0, 4.0)
    errors = []
    for high in highs:
        by = mn.Steps(high / 100, high)
        end = last(mn.flow(mn.Linearized(NET, THETA), THETA, X, Y, loss=mn.mse, times=2.0, by=by))
        errors.append(np.abs(end.f - closed).max())
    slope = np.polyfit(np.log(highs), np.log(errors), 1)[0]
    assert abs(slope - 1) < 0.15
    assert errors[-1] < 1e-3


CURVATURES = np.array([0.3, 1.0, 2.5])


def oscillators(**how: Any) -> mn.Moment:
    """Return the last moment of three outputs f_n that flow from 1 towards 0 under the kernel 3 diag(lambda)."""
    return last(mn.kernel_flow(3 * np.diag(CURVATURES), np.ones((3, 1)), np.zeros((3, 1)), loss=mn.mse, **how))


@pytest.mark.parametrize(("by", "tolerance"), [(mn.Solver(), 1e-7), (mn.Steps(1e-5, 1e-3), 5e-3)])
@pytest.mark.parametrize("tau", [0.1, 3.0])
def test_momentum_with_constant_tau_is_a_damped_oscillator(tau: float, by: Any, tolerance: float) -> None:
    """(f, v) = expm(t A)(f, v)(0) with A = [[0, 1], [-lambda/tau, -1/tau]]. A different tau gives a different path."""
    got = oscillators(times=4.0, tau=tau, by=by).f[:, 0]

    def closed(tau: float) -> Array:
        return np.array([(expm(4 * np.array([[0, 1], [-c / tau, -1 / tau]])) @ [1, 0])[0] for c in CURVATURES])

    assert np.abs(got - closed(tau)).max() < tolerance < np.abs(got - closed(2 * tau)).max()


@pytest.mark.parametrize(("by", "tolerance"), [(mn.Solver(), 1e-6), (mn.Steps(1e-5, 1e-3), 5e-3)])
@pytest.mark.parametrize("mu", [1.0, 20.0])
def test_momentum_with_tau_growing_in_time(mu: float, by: Any, tolerance: float) -> None:
    """The solution of t/mu f'' + f' + lambda f = 0, f(0) = 1, regular at 0, is f = 0F1(; mu; -mu lambda t)."""
    end = oscillators(times=3.0, mu=mu, by=by)
    np.testing.assert_allclose(end.f[:, 0], hyp0f1(mu, -mu * CURVATURES * 3.0), atol=tolerance)
    assert np.abs(end.f[:, 0] - hyp0f1(3 * mu, -3 * mu * CURVATURES * 3.0)).max() > tolerance


@pytest.mark.parametrize("how", [{"tau": 0.7}, {"mu": 3.0}], ids=repr)
def test_a_step_solves_for_the_velocity_exactly(how: dict[str, Any]) -> None:
    """Two successive steps damp the velocity by the same factor as one step of their total length.

    For a short step h, 1 - decay is h times the friction.
    """
    rule, t, h, k = FlowSettings(mn.mse, (1.0,), **how), 0.4, 0.3, 0.9
    assert rule.decay(t, h) * rule.decay(t + h, k) == pytest.approx(rule.decay(t, h + k), rel=1e-14)
    assert (1 - rule.decay(t, 1e-6)) / 1e-6 == pytest.approx(rule.friction(t), rel=1e-5)


def test_a_short_relaxation_time_is_gradient_flow() -> None:
    """For small tau, the difference from gradient flow is proportional to tau."""
    flows = [oscillators(times=2.0, tau=tau, by=mn.Solver()).f[:, 0] for tau in (1e-2, 1e-3)]
    far, near = (np.abs(f - np.exp(-CURVATURES * 2.0)).max() for f in flows)
    assert 8 < far / near < 12


# --------------------------------------------------------------------- frozen kernel = linearised network


@pytest.mark.parametrize("loss", [mn.mse, mn.hinge, mn.Logistic(alpha=0.5)], ids=repr)
@pytest.mark.parametrize("momentum", [{}, {"tau": 0.5}, {"mu": 10.0}], ids=repr)
def test_frozen_kernel_flow_is_the_flow_of_the_linearised_network(loss: Any, momentum: Any) -> None:
    """The flow of the weights and the flow of the outputs agree at every moment, on training and test points.

    The kernel at a different theta gives a different flow.
    """
    moments = list(mn.flow(mn.Linearized(NET, THETA), THETA, X, SIGNS, loss=loss, times=TIMES, **momentum))
    lin, f0 = mn.Linearized(NET, THETA), NET(THETA, ALL)
    here, there = (mn.ntk_full(NET, theta, ALL, X) for theta in (THETA, THETA + 0.5))
    kernel = list(mn.kernel_flow(here, f0, SIGNS, loss=loss, times=TIMES, **momentum))
    assert len(moments) == len(kernel)
    for w, k in zip(moments, kernel, strict=True):
        assert (w.t, w.steps, w.batch_size, w.ended) == (k.t, k.steps, k.batch_size, k.ended)
        np.testing.assert_allclose(k.f[:6], w.f, atol=1e-10)
        np.testing.assert_allclose(k.f[6:], lin(weights(w), X_TEST), atol=1e-10)
        np.testing.assert_allclose(k.loss, w.loss, atol=1e-10)
        assert k.theta is None
    other = list(mn.kernel_flow(there, f0, SIGNS, loss=loss, times=TIMES, **momentum))
    assert np.abs(other[1].f - kernel[1].f).max() > 1e-3


def test_several_outputs_and_an_averaged_kernel() -> None:
    """A kernel (M, N) acts on each output separately. The full NTK gives the flow of the linearised network."""
    net = mn.Network(mn.Sequential(mn.Dense(10), mn.Erf(), mn.Dense(3)), (3,))
    theta, y = net.init(np.random.default_rng(1)), np.eye(3)[[0, 1, 2, 0, 1, 2]]
    how: dict[str, Any] = {"loss": mn.softmax_cross_entropy, "times": TIMES}
    full = mn.ntk_full(net, theta, ALL, X)
    lin = last(mn.flow(mn.Linearized(net, theta), theta, X, y, **how))
    np.testing.assert_allclose(last(mn.kernel_flow(full, net(theta, ALL), y, **how)).f[:6], lin.f, atol=1e-10)
    plain = mn.ntk(net, theta, ALL, X)
    spread = np.einsum("mn,ce->mcne", plain, np.eye(3))
    one, other = (last(mn.kernel_flow(k, net(theta, ALL), y, **how)).f for k in (plain, spread))
    np.testing.assert_allclose(one, other, atol=1e-10)
    assert np.abs(one[:6] - lin.f).max() > 1e-3


def test_large_alpha_is_the_frozen_kernel() -> None:
    """With Logistic(alpha), the flow of Centred(alpha) differs from that of the kernel at theta_0 by O(1/alpha)."""
    how: dict[str, Any] = {"times": 1.0, "by": mn.Solver(rtol=1e-10, atol=1e-13)}
    frozen = last(mn.kernel_flow(mn.ntk(NET, THETA, X), np.zeros((6, 1)), SIGNS, loss=mn.logistic, **how)).f
    errors = []
    for alpha in (1e2, 1e3):
        end = last(mn.flow(mn.Centred(NET, THETA, alpha), THETA, X, SIGNS, loss=mn.Logistic(alpha), **how))
        errors.append(np.abs(end.f - frozen).max())
    assert 8 < errors[0] / errors[1] < 12
    assert errors[1] < 1e-3


# ------------------------------------------------------------------------------------------ the rules


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e-1))
@settings(max_examples=30, deadline=None)
def test_steps_change_the_outputs_as_much_as_they_may(rate: float, high: float) -> None:
    """f grows from 0 to 0.9 in steps of at most `high`, for any unit of time and without many extra steps."""
    end = last(
        mn.kernel_flow(
            np.array([[rate]]), np.zeros((1, 1)), np.ones((1, 1)), loss=mn.mse, times=2.3 / rate,
            by=mn.Steps(high / 100, high),
        )
    )  # fmt: skip
    f = float(end.f[0, 0])
    assert abs(f + expm1(-2.3)) < high
    assert f / high <= end.steps <= 3 * f / high + 40


@pytest.mark.parametrize("momentum", [{}, {"tau": 0.2}, {"mu": 5.0}], ids=repr)
def test_a_flow_ends_when_the_hinge_is_zero(momentum: Any) -> None:
    model = mn.Centred(NET, THETA, 0.5)
    moments = list(mn.flow(model, THETA, X, SIGNS, loss=mn.Hinge(0.5), times=(0.01, inf), **momentum))
    assert [m.ended for m in moments] == [False, False, True]
    assert moments[-1].loss == 0
    assert np.all(SIGNS * moments[-1].f >= 1)
    assert 0.01 < moments[-1].t < inf
    np.testing.assert_array_equal(model(weights(moments[-1]), X), moments[-1].f)


def test_the_time_at_which_it_ends() -> None:
    """If f' = k while f < 1, the flow ends within a step after t = 1/k."""
    end = last(mn.kernel_flow(np.array([[4.0]]), np.zeros((1, 1)), np.ones((1, 1)), loss=mn.hinge, times=inf))
    assert 0.25 <= end.t <= 0.25 + end.dt
    assert end.dt <= 1e-2 / 4


@pytest.mark.parametrize("momentum", [{}, {"tau": 1.0}], ids=repr)
def test_members_at_zero_loss_stand_still(momentum: Any) -> None:
    """A member at zero loss keeps its theta bit for bit while other members continue, even with momentum."""
    theta = np.stack([THETA, NET.init(np.random.default_rng(3))])
    model = mn.Centred(NET, theta, 1.0)
    seen = list(mn.flow(model, theta, X, SIGNS, loss=mn.hinge, times=np.geomspace(1.0, 1e4, 100), **momentum))
    done = [m for m in seen if (m.loss == 0).any()]
    e = int(np.argmin(done[0].loss))
    assert not done[0].ended
    assert len(done) > 1
    for m in done:
        assert np.array_equal(weights(m)[e], weights(done[0])[e])
    assert not np.array_equal(weights(done[-1])[1 - e], weights(done[0])[1 - e])


@given(st.integers(2, 10**5), st.floats(1e-4, 10.0), st.floats(1e-6, 10.0))
def test_the_batch_holds_the_temperature(N: int, h: float, temperature: float) -> None:
    """The rounded batch size b satisfies T(b - 1/2) >= T >= T(b + 1/2). The first inequality may fail if b = 1."""
    settings = FlowSettings(mn.mse, 1.0, temperature=temperature, rng=np.random.default_rng(0))

    def hot(b: float) -> float:
        return h / b * (1 - (b - 1) / (N - 1))

    b = settings.batch(h, N)
    assert 1 <= b <= N
    assert hot(b + 0.5) <= temperature * (1 + 1e-9) + 1e-12
    assert b == 1 or hot(b - 0.5) >= temperature * (1 - 1e-9)


def test_the_noise_of_a_step_has_the_temperature() -> None:
    """Check with a z-score over 4000 seeds that a step dt of f' = -mean(f - y_n) adds the variance dt T Var(y).

    The check fails for 2 T.
    """
    N, h, temperature = 40, 0.05, 0.02
    y = np.random.default_rng(1).standard_normal((N, 1))
    kernel, f0, ends = np.ones((N, N)), np.zeros((N, 1)), []
    for seed in range(4000):
        end = last(
            mn.kernel_flow(
                kernel, f0, y, loss=mn.mse, times=h, temperature=temperature, rng=np.random.default_rng(seed),
                by=mn.Steps(0.0, 1e3),
            )
        )  # fmt: skip
        ends.append(end.f[0, 0])
    b = end.batch_size
    exact = h / b * (1 - (b - 1) / (N - 1))
    assert abs(exact / temperature - 1) < 0.25  # b is a whole number
    squares = (np.array(ends) - h * y.mean()) ** 2
    z = [(squares.mean() - h * T * y.var()) / (squares.std() / np.sqrt(len(squares))) for T in (exact, 2 * exact)]
    assert abs(z[0]) < 4 < abs(z[1])


def test_a_cold_stochastic_flow_is_the_flow() -> None:
    """At T = 1e-9, nearly every batch contains all examples. At zero temperature, the generator is not used."""
    rng = np.random.default_rng(0)
    how: dict[str, Any] = {"loss": mn.mse, "times": 1.0}
    cold = last(mn.flow(NET, THETA, X, Y, **how, temperature=1e-9, rng=rng))
    plain = last(mn.flow(NET, THETA, X, Y, **how))
    assert cold.batch_size == 6
    np.testing.assert_allclose(cold.f, plain.f, atol=1e-10)
    before = rng.bit_generator.state
    last(mn.flow(NET, THETA, X, Y, **how, rng=rng))
    assert rng.bit_generator.state == before


def test_a_stochastic_flow_ends_and_repeats() -> None:
    """A flow with momentum and temperature ends, and the same seed gives the same bits.

    Geiger et al. use such flows for convolutional networks.
    """
    model = mn.Centred(NET, THETA, 1.0)
    ends = [
        last(
            mn.flow(
                model, THETA, X, SIGNS, loss=mn.hinge, times=inf, tau=0.1, temperature=0.01, by=mn.Steps(1e-3, 0.1),
                rng=np.random.default_rng(seed),
            )
        )
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert all(end.ended and end.loss == 0 and np.all(SIGNS * end.f >= 1) for end in ends)
    assert np.array_equal(weights(ends[0]), weights(ends[1]))
    assert not np.array_equal(weights(ends[0]), weights(ends[2]))


@pytest.mark.parametrize("depth", [2, 5])
def test_the_early_flow_is_resolved(depth: int) -> None:
    """At alpha = 1/4000, the loss halves within 0.6 % of the correct time.

    If steps are limited only by the change in outputs, the loss halves at least 6 % too late.
    """
    layers = [layer for _ in range(depth) for layer in (mn.Dense(16), mn.Softplus(5.0, 1.404383))]
    net = mn.Network(mn.Sequential(*layers, mn.Dense(1)), (3,))
    theta, alpha = net.init(np.random.default_rng(0)), 1e-3 / 4
    x, y = X, np.sign(X[:, :1])
    how: dict[str, Any] = {"loss": mn.Hinge(alpha), "mu": 1000.0}

    def losses(times: Any, by: mn.Steps) -> list[float]:
        """Return alpha^2 L at `times`, up to the first value below 1/2."""
        found = []
        for m in mn.flow(mn.Centred(net, theta, alpha), theta, x, y, times=times, by=by, **how):
            found.append(float(alpha**2 * m.loss))
            if found[-1] < 0.5:
                break
        return found[1:]

    grid = np.geomspace(1e-4, 0.02, 400)
    fine = losses(grid, mn.Steps(high=5e-3, early=4e-4))
    t1 = float(np.exp(np.interp(-0.5, -np.array(fine), np.log(grid[: len(fine)]))))
    before, after = losses([0.994 * t1, 1.006 * t1], mn.Steps())
    assert before > 0.5 > after
    assert losses([1.06 * t1], mn.Steps(early=1.0))[0] > 0.5


def test_weights_do_not_inflate_within_a_step() -> None:
    """Near the finite time at which weights would diverge, a step at most triples the total change in outputs."""
    layers = [layer for _ in range(5) for layer in (mn.Dense(16), mn.Softplus(5.0, 1.404383))]
    net = mn.Network(mn.Sequential(*layers, mn.Dense(1)), (3,))
    theta, alpha = net.init(np.random.default_rng(0)), 1e-8
    by = mn.Steps(high=0.05, early=5e-3)
    how = FlowSettings(mn.Hinge(alpha), inf, mu=1000.0, by=by)
    system = WeightSpace(mn.Centred(net, theta, alpha), X, None, theta, True)
    run = SteppedFlow(system, theta, np.sign(X[:, :1]), how, by)
    moments, worst, before = run.moments(), 0.0, 0.0
    next(moments)
    while before < 0.1:
        run._step(inf)
        worst, before = max(worst, float(run.path) / before if before else 0.0), float(run.path)
    assert 2 < worst <= 3


# ----------------------------------------------------------------------------------- models, ensembles


def test_models_that_re_anchor() -> None:
    """A flow with every = 1 is bitwise the network's, and with every = inf Linearized's. `Solver` accepts only inf."""
    runs = {
        every: last(
            mn.flow(
                mn.IterativelyLinearized(NET, THETA, every), THETA, X, Y, loss=mn.mse, times=3.0, by=mn.Steps(1e-3, 0.1)
            )
        )
        for every in (1, 10, inf)
    }
    for every, model in ((1, NET), (inf, mn.Linearized(NET, THETA))):
        same = last(mn.flow(model, THETA, X, Y, loss=mn.mse, times=3.0, by=mn.Steps(1e-3, 0.1)))
        assert np.array_equal(weights(runs[every]), weights(same))
    assert not np.array_equal(weights(runs[10]), weights(runs[1]))
    with pytest.raises(ValueError, match=r"knows no steps at which IterativelyLinearized\(.*use by=Steps\(\)"):
        mn.flow(mn.IterativelyLinearized(NET, THETA, 5), THETA, X, Y, loss=mn.mse, times=1.0, by=mn.Solver())
    never, linear = (
        last(mn.flow(model, THETA, X, Y, loss=mn.mse, times=1.0, by=mn.Solver()))
        for model in (mn.IterativelyLinearized(NET, THETA, inf), mn.Linearized(NET, THETA))
    )
    assert np.array_equal(weights(never), weights(linear))


def test_a_centred_model_stays_centred_while_it_re_anchors() -> None:
    """With every = 1 inside Centred, the flow equals that of Centred bit for bit. With every = 5, the flows differ."""
    how: dict[str, Any] = {"loss": mn.mse, "times": 3.0, "by": mn.Steps(1e-3, 0.1)}
    centred = mn.Centred(NET, THETA, 3.0)
    inner = mn.IterativelyLinearized(NET, THETA, 1), mn.IterativelyLinearized(NET, THETA, 5)
    plain = last(mn.flow(centred, THETA, X, Y, **how))
    same, other = (last(mn.flow(mn.Centred(model, THETA, 3.0), THETA, X, Y, **how)) for model in inner)
    np.testing.assert_array_equal(plain.f, centred(weights(plain), X))
    np.testing.assert_array_equal(plain.theta, same.theta)
    assert np.abs(weights(plain) - weights(other)).max() > 1e-6


@pytest.mark.parametrize("by", [mn.Steps(), mn.Solver()], ids=repr)
def test_an_ensemble_flows_like_its_members(by: Any) -> None:
    """Equal members flow like one network. Different members agree with separate runs to their steps' accuracy."""
    same = last(mn.flow(NET, np.stack([THETA] * 3), X, Y, loss=mn.mse, times=1.0, by=by, tau=0.3))
    alone = last(mn.flow(NET, THETA, X, Y, loss=mn.mse, times=1.0, by=by, tau=0.3))
    np.testing.assert_allclose(weights(same), np.stack([weights(alone)] * 3), atol=1e-7)
    theta = NET.init(np.random.default_rng(2), ensemble=3)
    together = last(mn.flow(NET, theta, X, Y, loss=mn.mse, times=1.0, by=by, tau=0.3))
    assert together.loss.shape == (3,)
    for e in range(3):
        member = last(mn.flow(NET, theta[e], X, Y, loss=mn.mse, times=1.0, by=by, tau=0.3))
        np.testing.assert_allclose(together.f[e], member.f, atol=1e-7 if by == mn.Solver() else 3e-2)


def test_kernels_of_an_ensemble() -> None:
    theta = NET.init(np.random.default_rng(2), ensemble=2)
    kernels, f0 = mn.ntk(NET, theta, ALL, X), NET(theta, ALL)
    for k in (kernels, mn.ntk_full(NET, theta, ALL, X)):
        together = last(mn.kernel_flow(k, f0, Y, loss=mn.mse, times=2.0, by=mn.Solver()))
        for e in range(2):
            member = last(mn.kernel_flow(k[e], f0[e], Y, loss=mn.mse, times=2.0, by=mn.Solver()))
            np.testing.assert_allclose(together.f[e], member.f, atol=1e-7)
    shared = last(mn.kernel_flow(kernels[0], f0, Y, loss=mn.mse, times=2.0, by=mn.Solver()))
    np.testing.assert_allclose(
        shared.f[0], last(mn.kernel_flow(kernels[0], f0[0], Y, loss=mn.mse, times=2.0, by=mn.Solver())).f, atol=1e-7
    )


def test_learning_rate_scales_are_part_of_the_flow() -> None:
    """In theta' = -S grad L, a scale of 0 freezes a tensor. A common scale c changes the unit of time."""
    first, last_ = (t.name for t in (NET.layout.tensors[0], NET.layout.tensors[-1]))
    end = last(mn.flow(NET, THETA, X, Y, loss=mn.mse, times=1.0, lr_scales={first: 0.0}, by=mn.Solver()))
    moved = NET.layout.unpack(end.theta - THETA)
    assert not moved[first].any()
    assert moved[last_].any()
    doubled = dict.fromkeys((t.name for t in NET.layout.tensors), 2.0)
    ends = [
        last(mn.flow(NET, THETA, X, Y, loss=mn.mse, times=t, lr_scales=s, by=mn.Solver()))
        for t, s in ((1.0, doubled), (2.0, None))
    ]
    np.testing.assert_allclose(weights(ends[0]), weights(ends[1]), atol=1e-7)


@pytest.mark.parametrize("by", [mn.Steps(), mn.Solver(rtol=1e-4, atol=1e-5)], ids=repr)
def test_float32_stays_float32(by: Any) -> None:
    theta, x, y = (a.astype(np.float32) for a in (THETA, X, Y))
    end = last(mn.flow(NET, theta, x, y, loss=mn.mse, times=1.0, tau=0.5, by=by))
    assert {weights(end).dtype, end.f.dtype, end.loss.dtype} == {np.dtype(np.float32)}
    k = last(mn.kernel_flow(mn.ntk(NET, theta, x), NET(theta, x), y, loss=mn.mse, times=1.0, tau=0.5, by=by))
    assert k.f.dtype == np.float32


@pytest.mark.parametrize(
    "rules",
    [{"by": mn.Steps(np.float64(1e-4), np.float64(1e-2))}, {"tau": np.float64(0.5)}, {"mu": np.float64(2.0)},
     {"temperature": np.float64(0.1), "rng": np.random.default_rng(0)}, {"times": np.float64(1.0)}],
    ids=lambda rules: next(iter(rules)),
)  # fmt: skip
def test_rules_from_numpy_are_numbers(rules: dict[str, Any]) -> None:
    """np.float64 times a float32 array is a float64 array, so settings are converted to Python numbers."""
    theta, x, y = (a.astype(np.float32) for a in (THETA, X, Y))
    given: dict[str, Any] = {"loss": mn.mse, "times": 1.0} | rules
    end = last(mn.flow(NET, theta, x, y, **given))
    assert {weights(end).dtype, end.f.dtype, end.loss.dtype} == {np.dtype(np.float32)}


def test_the_callers_arrays_stay_as_they_are() -> None:
    theta, f0 = THETA.copy(), NET(THETA, X)
    before = f0.copy()
    last(mn.flow(NET, theta, X, Y, loss=mn.mse, times=1.0))
    moments = list(mn.kernel_flow(mn.ntk(NET, THETA, X), f0, Y, loss=mn.mse, times=(0.5, 1.0)))
    assert np.array_equal(theta, THETA)
    assert np.array_equal(f0, before)
    assert len({id(m.f) for m in moments}) == 3
    assert np.abs(moments[1].f - moments[2].f).max() > 1e-6


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e-2])
def test_small_targets_are_resolved_as_large_ones(size: float) -> None:
    """The steps scale with the outputs and targets, so f / size is that of targets of size 1 with the default `Steps`.

    In the control, steps are absolute, u = 1, and a single step overshoots.
    """
    kernel, f0 = np.diag([1.0, 3.0, 9.0]), np.zeros((3, 1))
    exact = 1 - np.exp(-np.array([1.0, 3.0, 9.0]) * 1.0 / 3)
    small, one = (last(mn.kernel_flow(kernel, f0, np.full((3, 1), s), loss=mn.mse, times=1.0)) for s in (size, 1.0))
    np.testing.assert_allclose(small.f / size, one.f, rtol=1e-9)
    np.testing.assert_allclose(one.f[:, 0], exact, rtol=0.02)
    loose = mn.Steps(1e-4 / size, 1e-2 / size)
    control = last(mn.kernel_flow(kernel, f0, np.full((3, 1), size), loss=mn.mse, times=1.0, by=loose))
    assert np.abs(control.f[:, 0] / size - exact).max() > 0.05


def test_a_resumed_flow_keeps_the_size_of_its_steps() -> None:
    """u is that of the start of the flow, and not of the outputs at which the flow resumes."""
    kernel, f0, y = np.diag([1.0, 3.0, 9.0]), np.full((3, 1), 5e-3), np.full((3, 1), 1e-3)
    whole = list(mn.kernel_flow(kernel, f0, y, loss=mn.mse, times=(0.5, 1.0, 2.0)))
    resumed = list(mn.kernel_flow(kernel, f0, y, loss=mn.mse, times=(0.5, 1.0, 2.0), resume=whole[2].state))
    assert [m.steps for m in resumed] == [m.steps for m in whole[2:]]
    assert np.array_equal(resumed[-1].f, whole[-1].f)
