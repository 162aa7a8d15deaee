"""Test definitions, anchors and errors of Linearized, Centred and IterativelyLinearized. The laws are in tests/laws."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import minintk as mn
from minintk.layers.contract import bind
from minintk.spec.shapes import out_shape
from minintk.testing import assert_close, roundings
from tests.kit.strategies import SMOOTH, Case, cases, networks

NET = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,))
THETA = NET.init(np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((5, 3))
ONES = np.ones_like(THETA)


def test_definitions() -> None:
    theta = THETA + 0.3
    f0, J = NET.linearize(THETA, X)
    np.testing.assert_array_equal(mn.Linearized(NET, THETA)(theta, X), f0 + J.jvp(theta - THETA))
    np.testing.assert_array_equal(mn.Centred(NET, THETA, 7.0)(theta, X), 7.0 * (NET(theta, X) - f0))


@given(cases(networks(SMOOTH)))
def test_the_linearisation_is_of_first_order(case: Case) -> None:
    """Halving the distance quarters the error up to rounding: |f - f_lin| = O(|theta - theta_0|^2)."""
    lin = mn.Linearized(case.net, case.theta)
    v = case.rng.standard_normal(case.theta.shape)
    v /= np.linalg.norm(v, axis=-1, keepdims=True)

    def error(step: float) -> float:
        return float(np.abs(lin(case.theta + step * v, case.x) - case.net(case.theta + step * v, case.x)).max())

    rows = case.net.linearize(case.theta, case.x)[1].dense()
    size = (
        np.linalg.norm(rows.reshape(-1, case.net.size)) * np.linalg.norm(case.theta)
        + np.abs(lin(case.theta, case.x)).max()
    )
    floor = roundings(case.net, case.theta, case.x) * size
    coarse, fine = error(2**-8), error(2**-9)
    assert_close("error at half the distance", fine, coarse / 4, 0.1 * coarse / 4 + floor + 1e-3 * 2**-16 * size)


def test_a_model_keeps_its_own_anchor() -> None:
    """Writing to the array that was passed as theta_0 does not change the model."""
    theta0 = THETA.copy()
    models = (mn.Linearized(NET, theta0), mn.Centred(NET, theta0, 2.0), mn.IterativelyLinearized(NET, theta0, 3))
    before = [model(THETA, X) for model in models]
    theta0 += 1
    for model, f in zip(models, before, strict=True):
        np.testing.assert_array_equal(model(THETA, X), f)


def test_a_shared_anchor_serves_an_ensemble() -> None:
    theta = np.stack([THETA, THETA + 0.1, THETA - 0.1])
    for model in (mn.Linearized(NET, THETA), mn.Centred(NET, THETA, 2.0)):
        f = model(theta, X)
        for e in range(3):
            np.testing.assert_array_equal(f[e], model(theta[e], X))


def test_anchors_move_when_they_should() -> None:
    model = mn.IterativelyLinearized(NET, THETA, every=3)
    theta = THETA
    for step in range(1, 8):
        theta = theta + 0.1
        old, model = model, model.advance(theta)
        expected = theta if step % 3 == 0 else old.theta0
        np.testing.assert_array_equal(model.theta0, expected)
    assert (fixed := mn.Linearized(NET, THETA)).advance(THETA + 1) is fixed
    assert NET.advance(THETA) is NET
    never = mn.IterativelyLinearized(NET, THETA, np.inf)
    assert never.advance(THETA + 1) is never


def test_centring_an_iterated_model_keeps_its_zero() -> None:
    """The subtracted outputs stay those at the initial theta_0 when the inner model re-anchors."""
    centred = mn.Centred(mn.IterativelyLinearized(NET, THETA, every=1), THETA, alpha=3.0)
    moved = centred.advance(THETA + 0.2)
    np.testing.assert_allclose(moved(THETA + 0.2, X), 3.0 * (NET(THETA + 0.2, X) - NET(THETA, X)), rtol=1e-13)


def test_a_model_knows_its_network() -> None:
    model = mn.Centred(mn.Linearized(NET, THETA), THETA, 2.0)
    assert model.size == NET.size
    assert model.outputs == NET.outputs
    assert model.input_shape == NET.input_shape
    assert model.layout is NET.layout
    assert model.footprint == NET.footprint


def test_float32_stays_float32() -> None:
    theta, x = THETA.astype(np.float32), X.astype(np.float32)
    for model in (
        mn.Linearized(NET, theta),
        mn.Centred(NET, theta, np.float64(3.0)),
        mn.IterativelyLinearized(mn.Centred(NET, theta, 2.0), theta, 2),
    ):
        f, J = model.linearize(theta + 1, x)
        assert {a.dtype for a in (f, J.gram(), J.vjp(f), J.jvp(theta))} == {np.dtype(np.float32)}


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("alpha", [0, -1.0, np.inf, np.nan, None, "2", True, 10**400, np.ones(2)])
def test_alpha_is_positive(alpha: Any) -> None:
    with pytest.raises(ValueError, match=r"Centred\(alpha=\.\.\.\) expects a finite number > 0, got"):
        mn.Centred(NET, THETA, alpha)


@pytest.mark.parametrize("every", [0, -2, 2.5, np.nan, True])
def test_every_is_a_whole_number_or_inf(every: float) -> None:
    with pytest.raises(ValueError, match=r"every=\.\.\.\) expects a whole number >= 1, or inf, .* got"):
        mn.IterativelyLinearized(NET, THETA, every)


def test_an_anchor_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"theta0 expects shape \(24,\) or \(E, 24\), got \(23,\)"):
        mn.Linearized(NET, THETA[:-1])
    with pytest.raises(TypeError, match=r"Linearized expects a model such as mn\.Network\(\.\.\.\), got Sequential"):
        mn.Linearized(NET.spec, THETA)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="theta and theta0 must be of one dtype, got float32 and float64"):
        mn.Linearized(NET, THETA)(THETA.astype(np.float32), X.astype(np.float32))
    with pytest.raises(TypeError, match="expected arrays of one library"):
        mn.Linearized(NET, THETA.tolist())
    with pytest.raises(TypeError, match="theta0 expects float32 or float64, got int64"):
        mn.Linearized(NET, np.ones(24, int))
    with pytest.raises(ValueError, match=r"theta0 holds 1 values that are NaN or infinite, the first at index \(3,\)"):
        mn.Centred(NET, np.where(np.arange(24) == 3, np.nan, THETA), 2.0)


@pytest.mark.parametrize("nest", [lambda m, t: m, lambda m, t: mn.Linearized(m, t), lambda m, t: mn.Centred(m, t, 2.0)])
def test_a_theta_for_another_ensemble_than_the_anchors(nest: Any) -> None:
    """The error states both shapes, even if the anchored model is inside another model."""
    model = nest(mn.Linearized(NET, np.stack([THETA, ONES])), THETA)
    with pytest.raises(ValueError, match=r"theta expects the shape of theta0, \(2, 24\), got \(24,\)"):
        model(THETA, X)


# --------------------------------------------------------------- when IterativelyLinearized linearises again

Y = np.random.default_rng(2).standard_normal((5, 2))
HOW: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.3, momentum=0.5), "steps": 20}


def path(model: mn.Model, theta: Any = THETA, **how: Any) -> list[mn.Snapshot]:
    return list(mn.train(model, theta, X, Y, **HOW | how))


def test_a_schedule_is_followed() -> None:
    """The model re-anchors after the scheduled steps and after no others.

    Scheduling the multiples of K gives bitwise the same result as every = K. An empty schedule never re-anchors.
    """
    run = path(mn.IterativelyLinearized(NET, THETA, (1, 4, 5, 17)))
    for before, now in pairwise(run):
        moved = not np.array_equal(before.model.theta0, now.model.theta0)  # type: ignore[attr-defined]
        assert moved == (now.step in (1, 4, 5, 17))
        if moved:
            np.testing.assert_array_equal(now.model.theta0, now.theta)  # type: ignore[attr-defined]
    assert run[-1].model.linearizations == 5  # type: ignore[attr-defined]
    schedules: tuple[tuple[Any, float], ...] = ((range(3, 21, 3), 3), ((), np.inf), (np.arange(1, 21), 1))
    for schedule, every in schedules:
        one, other = (path(mn.IterativelyLinearized(NET, THETA, e))[-1] for e in (schedule, every))
        np.testing.assert_array_equal(one.theta, other.theta)
        assert one.model.linearizations == other.model.linearizations  # type: ignore[attr-defined]


def test_the_rule_by_definition() -> None:
    """The rule is |J(theta)' u - J(theta_0)' u| > fraction |J(theta_0)' u| for a random u. Jacobians are dense."""
    rule = mn.Moved(0.15, X[:3], seed=5)
    u = np.random.default_rng(5).standard_normal((3, 2)).ravel()

    def features(theta: Any) -> Any:
        return u @ NET.linearize(theta, X[:3])[1].dense().reshape(6, -1)

    run = path(mn.IterativelyLinearized(NET, THETA, rule))
    theta0, moves = THETA, []
    for snap in run[1:]:
        then, now = features(theta0), features(snap.theta)
        ratio = np.linalg.norm(now - then) / np.linalg.norm(then)
        assert abs(ratio / 0.15 - 1) > 1e-9
        moves.append(bool(ratio > 0.15))
        theta0 = np.asarray(snap.theta) if moves[-1] else theta0
        np.testing.assert_array_equal(snap.model.theta0, theta0)  # type: ignore[attr-defined]
    assert 0 < sum(moves) < 19
    assert run[-1].model.linearizations == 1 + sum(moves)  # type: ignore[attr-defined]


def test_the_rule_between_its_ends() -> None:
    """A tiny fraction acts as every = 1, a huge one as Linearized. Larger fractions give fewer linearisations."""
    ends = {
        fraction: path(mn.IterativelyLinearized(NET, THETA, mn.Moved(fraction, X)))[-1]
        for fraction in (1e-12, 0.03, 0.3, 1e6)
    }
    np.testing.assert_array_equal(ends[1e-12].theta, path(mn.IterativelyLinearized(NET, THETA, 1))[-1].theta)
    np.testing.assert_array_equal(ends[1e6].theta, path(mn.Linearized(NET, THETA))[-1].theta)
    counts = [int(end.model.linearizations) for end in ends.values()]  # type: ignore[attr-defined]
    assert counts[0] == 21 > counts[1] > counts[2] > counts[3] == 1


def test_features_that_stay_are_not_linearised_again() -> None:
    """A linear model is linearised once. A wide network is linearised less often than a narrow one."""
    linear = mn.Network(mn.Dense(2), (3,))
    theta = linear.init(np.random.default_rng(0))
    assert path(mn.IterativelyLinearized(linear, theta, mn.Moved(1e-12, X)), theta)[-1].model.linearizations == 1  # type: ignore[attr-defined]
    counts = []
    for width in (4, 400):
        net = mn.Network(mn.Sequential(mn.Dense(width), mn.Tanh(), mn.Dense(2)), (3,))
        theta = net.init(np.random.default_rng(0))
        end = path(mn.IterativelyLinearized(net, theta, mn.Moved(0.1, X)), theta)[-1]
        counts.append(int(end.model.linearizations))  # type: ignore[attr-defined]
    assert counts[0] > counts[1]


def test_one_draw_estimates_how_far_the_jacobian_moved() -> None:
    """Check that the mean of |J(theta)' u - J(theta_0)' u|^2 over draws is |J(theta) - J(theta_0)|_F^2."""
    near = THETA + 0.1
    rows = [NET.linearize(theta, X)[1].dense() for theta in (near, THETA)]
    want = float(np.sum((rows[0] - rows[1]) ** 2))
    rules = [mn.Moved(0.1, X, seed=seed) for seed in range(400)]
    moves = [r.features(NET, near) - r.features(NET, THETA) for r in rules]
    squares = np.array([np.sum(move**2) for move in moves])
    z = (squares.mean() - want) / (squares.std() / np.sqrt(len(squares)))
    other = (squares.mean() - 1.5 * want) / (squares.std() / np.sqrt(len(squares)))
    assert abs(z) < 4 < abs(other)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("every", [3, (2, 5, 11), mn.Moved(0.15, X)], ids=repr)
def test_members_are_linearised_for_themselves(every: Any, shared: bool) -> None:
    """Each member is bitwise identical to a separate run, however often the other members are linearised."""
    theta = NET.init(np.random.default_rng(3), ensemble=3) if not shared else np.stack([THETA] * 3)
    theta0 = THETA if shared else theta
    together = path(mn.IterativelyLinearized(NET, theta0, every), theta)[-1]
    counts = together.model.linearizations  # type: ignore[attr-defined]
    for e in range(3):
        alone = path(mn.IterativelyLinearized(NET, theta[e], every), theta[e])[-1]
        np.testing.assert_array_equal(together.theta[e], alone.theta)
        assert counts[e] == alone.model.linearizations  # type: ignore[attr-defined]


@pytest.mark.parametrize("ensemble", [None, 3])
@pytest.mark.parametrize("every", [(2, 5, 11), mn.Moved(0.15, X)], ids=repr)
def test_a_resumed_run_linearises_where_the_whole_one_does(every: Any, ensemble: int | None) -> None:
    theta = NET.init(np.random.default_rng(3), ensemble=ensemble)
    model = mn.IterativelyLinearized(mn.Centred(NET, theta, 2.0), theta, every)
    whole = path(model, theta)[-1]
    for steps in (3, 12):
        half = path(model, theta, steps=steps)[-1]
        rest = path(model, theta, resume=half.state)[-1]
        np.testing.assert_array_equal(rest.theta, whole.theta)
        np.testing.assert_array_equal(rest.model.linearizations, whole.model.linearizations)  # type: ignore[attr-defined]


def test_a_rule_in_float32() -> None:
    theta, x = THETA.astype(np.float32), X.astype(np.float32)
    model = mn.IterativelyLinearized(NET, theta, mn.Moved(np.float64(0.1), x))
    *_, end = mn.train(model, theta, x, Y.astype(np.float32), **HOW)
    assert end.model.theta0.dtype == end.theta.dtype == np.float32  # type: ignore[attr-defined]
    assert 1 < end.model.linearizations < 21  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="theta and x must be of one dtype"):
        mn.IterativelyLinearized(NET, theta, mn.Moved(0.1, X))


@pytest.mark.parametrize("every", [(3, 3), (3, 1), (0, 1), (1.5, 2), (True, 2)], ids=repr)
def test_schedules_increase(every: Any) -> None:
    with pytest.raises(ValueError, match=r"or increasing steps >= 1, or mn\.Moved\(\.\.\.\), got"):
        mn.IterativelyLinearized(NET, THETA, every)


@pytest.mark.parametrize("fraction", [0.0, -1.0, np.inf, np.nan, True])
def test_fractions_are_positive(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"Moved\(fraction=\.\.\.\) expects a finite number > 0, got"):
        mn.Moved(fraction, X)


def test_probes_are_inputs() -> None:
    for probe in (X[:0], X[0], "x"):
        with pytest.raises(ValueError, match=r"Moved\(probe=\.\.\.\) expects some inputs"):
            mn.Moved(0.1, probe)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x expects shape \(N, 3\), got \(5, 2\)"):
        mn.IterativelyLinearized(NET, THETA, mn.Moved(0.1, X[:, :2]))
    assert repr(mn.IterativelyLinearized(NET, THETA, mn.Moved(0.1, X))).endswith(
        "every=Moved(0.1, probe (5, 3), seed=0))"
    )


# ------------------------------------------------------------------------- sweeps of a linearised step, counted


@dataclass(frozen=True)
class Counted(mn.spec.Layer):
    """An identity layer that records each evaluation, jvp and vjp in `calls`."""

    calls: list[str] = field(default_factory=list, hash=False, compare=False)


@dataclass(frozen=True)
class BoundCounted:
    """A bound `Counted`, which is also its own Jacobian."""

    calls: list[str]
    shape: tuple[int, ...]
    tensors: tuple[Any, ...] = ()

    @property
    def out_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.shape,)

    def __call__(self, w: Any, x: Any) -> Any:
        self.calls.append("f")
        return x, self

    def jvp(self, dw: Any, dx: Any) -> Any:
        self.calls.append("jvp")
        return dx

    def vjp(self, u: Any, dw: Any) -> Any:
        self.calls.append("vjp")
        assert u.ndim == 2  # one cotangent, without a leading axis for C cotangents
        return u

    def gram(self, u: Any, other: Any, v: Any, kernel: Any) -> Any:
        raise AssertionError("a training step needs no kernel")


out_shape.register(Counted, lambda layer, shape: shape)
bind.register(Counted, lambda layer, site, parametrization, name: BoundCounted(layer.calls, site.shape))


@pytest.mark.parametrize("outputs", [1, 10, 1000])
def test_a_linearised_step_is_one_jvp_and_one_vjp(outputs: int) -> None:
    """A linearised step takes one jvp and one vjp for any number of classes. A step of the network needs no jvp."""
    for wrap, expected in (
        (lambda m, t: m, ["f", "vjp"]),
        (mn.Linearized, ["f", "jvp", "vjp"]),
        (lambda m, t: mn.IterativelyLinearized(m, t, 7), ["f", "jvp", "vjp"]),
    ):
        calls: list[str] = []
        net = mn.Network(mn.Sequential(mn.Dense(4), mn.Tanh(), Counted(calls), mn.Dense(outputs)), (3,))
        theta = net.init(np.random.default_rng(0))
        model: Any = wrap(net, theta)
        y = np.random.default_rng(0).dirichlet(np.ones(outputs), 5)
        loss = mn.softmax_cross_entropy if outputs > 1 else mn.mse
        run = mn.train(model, theta, X, y, loss=loss, optimizer=mn.SGD(lr=1e-3), steps=3)
        next(run)
        calls.clear()
        next(run)
        assert calls == expected


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_memory_that_a_taylor_model_asks_for(order: int) -> None:
    """Outputs of Taylor are series of `order` + 1 terms. Each layer keeps the series of its input and Jacobian."""
    net = mn.Network(mn.Sequential(mn.Dense(7), mn.Tanh(), mn.Dense(2)), (3,))
    layers, widest = net.footprint
    taylor = mn.Taylor(net, net.init(np.random.default_rng(0)), order)
    assert taylor.footprint == ((order + 1) * layers + order * layers, (order + 1) * widest)
    assert mn.Linearized(net, net.init(np.random.default_rng(0))).footprint == net.footprint
