"""Test the laws of finite networks over random specs, parametrizations, ensembles and batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk import testing
from minintk.models.jacobian import Jacobian
from minintk.models.wrappers import Scaled
from minintk.testing import assert_close, roundings
from tests.kit.strategies import SMOOTH, Case, cases, networks

Array = mn.Array


# ------------------------------------------------------------------------------------ laws of networks


@given(cases())
def test_adjoint(case: Case) -> None:
    testing.check_adjoint(case.net, case.theta, case.x, case.rng)


@given(cases())
def test_derivative(case: Case) -> None:
    testing.check_derivative(case.net, case.theta, case.x, case.rng)


@given(cases())
def test_gram(case: Case) -> None:
    testing.check_gram(case.net, case.theta, case.x, case.rng)


@given(cases())
def test_kernel(case: Case) -> None:
    testing.check_kernel(case.net, case.theta, case.x, case.rng)


@given(cases())
def test_stacked(case: Case) -> None:
    testing.check_stacked(case.net, case.theta, case.x, case.rng)


@given(cases(ensembles=(1, 2, 4)))
def test_ensemble(case: Case) -> None:
    testing.check_ensemble(case.net, case.theta, case.x, case.rng)


@given(cases())
def test_blocks(case: Case) -> None:
    testing.check_blocks(case.net, case.theta, case.x, case.rng)


@given(cases(networks(SMOOTH)))
def test_float32(case: Case) -> None:
    testing.check_float32(case.net, case.theta, case.x, case.rng)


@given(cases(dtype=np.float32))
def test_laws_hold_in_float32(case: Case) -> None:
    testing.check_model(case.net, case.theta, case.x, case.rng)


@given(cases(ensembles=(3,)))
def test_members_of_an_ensemble_are_bit_for_bit_the_networks_alone(case: Case) -> None:
    """The members of an ensemble have the same f, J v and J' u as separate networks, bit for bit.

    Kernels are not compared, because the kernel of one network is a single matrix product and rounds differently.
    """
    f, J = case.net.linearize(case.theta, case.x)
    v, u = case.rng.standard_normal(case.theta.shape), case.rng.standard_normal((3, len(case.x), case.net.outputs))
    for e in range(3):
        f_e, J_e = case.net.linearize(case.theta[e], case.x)
        assert np.array_equal(f[e], f_e)
        assert np.array_equal(J.jvp(v)[e], J_e.jvp(np.asarray(v)[e]))
        assert np.array_equal(J.vjp(u)[e], J_e.vjp(u[e]))


@given(cases())
def test_the_kernel_of_a_batch_with_itself_is_symmetric_to_the_last_bit(case: Case) -> None:
    k = mn.ntk(case.net, case.theta, case.x)
    assert np.array_equal(k, k.swapaxes(-1, -2))
    full = mn.ntk_full(case.net, case.theta, case.x)
    assert np.array_equal(full, np.moveaxis(np.asarray(full), (-4, -3), (-2, -1)))


@given(cases())
def test_examples_do_not_see_each_other(case: Case) -> None:
    """Check that permuting the batch permutes f and the kernel."""
    order = case.rng.permutation(len(case.x))
    f, J = case.net.linearize(case.theta, case.x)
    f_p, J_p = case.net.linearize(case.theta, case.x[order])
    m, size = roundings(case.net, case.theta, case.x), float(np.abs(J.dense()).max())
    scale = np.abs(f).max() + np.sqrt(case.net.size) * size * np.linalg.norm(case.theta, axis=-1).max()
    assert_close("f of permuted examples", f_p, f[..., order, :], m * scale)
    k, k_p = J.trace_gram(), J_p.trace_gram()
    size = case.net.outputs * case.net.size * size**2
    assert_close("kernel of permuted examples", k_p, k[..., order, :][..., order], m * size)


# -------------------------------------------------------------------------------------- laws of models


def near(case: Case, size: float = 0.1) -> Array:
    """Return the case's theta plus Gaussian noise of standard deviation `size`."""
    return np.asarray(case.theta + size * case.rng.standard_normal(case.theta.shape))


@given(cases(), st.booleans())
def test_every_model_obeys_the_laws(case: Case, shared: bool) -> None:
    anchor = case.theta[0] if shared and case.theta.ndim == 2 else case.theta
    for model in (
        mn.Linearized(case.net, anchor),
        mn.Centred(case.net, anchor, alpha=3.0),
        mn.Centred(mn.Linearized(case.net, anchor), anchor, alpha=0.5),
        mn.Linearized(mn.Centred(case.net, anchor, alpha=0.5), anchor),
        mn.IterativelyLinearized(case.net, anchor, every=3),
    ):
        theta = near(case)
        testing.check_adjoint(model, theta, case.x, case.rng)
        testing.check_derivative(model, theta, case.x, case.rng)
        testing.check_gram(model, theta, case.x, case.rng)
        testing.check_stacked(model, theta, case.x, case.rng)
        if theta.ndim == 2:
            testing.check_ensemble(model, theta, case.x, case.rng)


def saturated(seed: int, scale: float = 8.0) -> tuple[mn.Network, Array, Array, np.random.Generator]:
    """Return (network, theta_0, x, rng). The network ends in tanh, and at scale 8 its outputs are near 1 or -1."""
    net = mn.Network(mn.Sequential(mn.Dense(4, b_std=1.0), mn.Tanh(), mn.Dense(2, b_std=1.0), mn.Tanh()), (3,))
    rng = np.random.default_rng(seed)
    return net, scale * net.init(rng), scale * rng.standard_normal((3, 3)), rng


@pytest.mark.parametrize("seed", range(30))
def test_a_saturated_network_less_its_start_obeys_the_law_of_the_derivative(seed: int) -> None:
    """If |f| and |f_0| are near 1 but f - f_0 and J are near 0, the rounding errors are those of f and f_0."""
    net, theta0, x, rng = saturated(seed)
    theta = theta0 + 0.1 * rng.standard_normal(theta0.shape)
    testing.check_derivative(mn.Centred(net, theta0, alpha=3.0), theta, x, rng)


def test_a_wrong_derivative_of_a_centred_network_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    net, theta0, x, rng = saturated(0, scale=1.0)
    model = mn.Centred(net, theta0, alpha=3.0)
    right = type(model).forward

    def wrong(self: mn.Centred, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        f, J = right(self, theta, x)
        return f, Scaled(J, 1 + 1e-4)

    monkeypatch.setattr(type(model), "forward", wrong)
    with pytest.raises(AssertionError, match="derivative J v = df/ds"):
        testing.check_derivative(model, theta0 + 0.1, x, rng)


@given(cases())
def test_linearized_has_a_constant_jacobian_and_the_value_at_theta0(case: Case) -> None:
    lin = mn.Linearized(case.net, case.theta)
    f0, J0 = case.net.linearize(case.theta, case.x)
    _, J = lin.linearize(near(case, 10.0), case.x)
    assert np.array_equal(lin(case.theta, case.x), f0)
    assert np.array_equal(J.dense(), J0.dense())
    assert np.array_equal(J.gram(), J0.gram())


@given(cases(), st.floats(1e-3, 1e3))
def test_linearising_and_centring_commute(case: Case, alpha: float) -> None:
    """Centred o Linearized and Linearized o Centred both give alpha J (theta - theta_0).

    In Centred o Linearized, f(theta_0) is added and then subtracted, which causes a rounding error.
    """
    theta = near(case)
    one = mn.Centred(mn.Linearized(case.net, case.theta), case.theta, alpha)
    other = mn.Linearized(mn.Centred(case.net, case.theta, alpha), case.theta)
    f, J = one.linearize(theta, case.x)
    g, K = other.linearize(theta, case.x)
    size = alpha * (np.abs(case.net(case.theta, case.x)).max() + np.abs(f).max() / alpha)
    assert_close("Centred o Linearized = Linearized o Centred", f, g, roundings(case.net, theta, case.x) * size)
    assert np.array_equal(J.dense(), K.dense())


@given(cases(), st.floats(1e-3, 1e3))
def test_centring_scales_the_kernel_by_alpha_squared(case: Case, alpha: float) -> None:
    centred = mn.Centred(case.net, case.theta, alpha)
    assert np.array_equal(centred(case.theta, case.x), np.zeros_like(case.net(case.theta, case.x)))
    k, k0 = (mn.ntk_full(model, near, case.x) for model in (centred, case.net) for near in (case.theta,))
    assert_close("NTK(Centred) = alpha^2 NTK", k, alpha**2 * k0, 4 * np.finfo(float).eps * alpha**2 * np.abs(k0))


# ------------------------------------------------------------------------------------ laws of training


def run(model: mn.Model, theta: Array, x: Array, y: Array, lr: float, steps: int, momentum: float = 0.0) -> Array:
    """Train with the squared loss, and return theta at the start and after each step : (steps + 1, [E], P)."""
    optimizer = mn.SGD(lr=lr, momentum=momentum)
    run = mn.train(model, theta, x, y, loss=mn.mse, optimizer=optimizer, steps=steps)
    return np.stack([snap.theta for snap in run])


def stable_rate(net: mn.Network, theta: Array, x: Array) -> float:
    """Return a quarter of the smallest bound 2 N / lambda_max over all members, for the full kernel J S J'.

    A small network's kernel can start near 0 and grow. Hence lambda_max is taken as the largest of its
    values at theta and 2 theta and of N times the largest learning-rate scale.
    """
    scales = net.layout.learning_rate_scales()
    s = np.ones(net.size) if scales is None else scales
    largest = float(len(x) * s.max())
    for at in (theta, 2 * theta):
        rows = net.linearize(at, x)[1].dense().reshape((*theta.shape[:-1], -1, net.size)) * np.sqrt(s)
        largest = max(largest, float(np.linalg.norm(rows, 2, axis=(-2, -1)).max()) ** 2)
    return 0.5 * len(x) / largest


SHORT = 20
"""The number of training steps in most laws below.

Near the start, each step multiplies a rounding error by at most 1 + lr |Hessian|, about 2.
"""

smooth_cases = cases(networks(SMOOTH))


@given(smooth_cases, st.sampled_from((0.0, 0.9)))
def test_relinearising_at_every_step_is_gradient_descent(case: Case, momentum: float) -> None:
    """At theta = theta_0, network and linearisation have equal f and J, so their steps are equal bit for bit."""
    lr = stable_rate(case.net, case.theta, case.x)
    iterated = mn.IterativelyLinearized(case.net, case.theta, every=1)
    a, b = (run(model, case.theta, case.x, case.y, lr / 4, SHORT, momentum) for model in (case.net, iterated))
    assert np.array_equal(a, b)


@given(smooth_cases, st.sampled_from((0.0, 0.9)))
def test_never_relinearising_is_the_linearised_network(case: Case, momentum: float) -> None:
    lr = stable_rate(case.net, case.theta, case.x)
    models = (mn.Linearized(case.net, case.theta), mn.IterativelyLinearized(case.net, case.theta, every=np.inf))
    a, b = (run(model, case.theta, case.x, case.y, lr, SHORT, momentum) for model in models)
    assert np.array_equal(a, b)


@pytest.mark.filterwarnings("ignore:learning rate")
@given(smooth_cases, st.integers(2, 5))
def test_relinearising_every_k_steps_starts_afresh(case: Case, every: int) -> None:
    """Each period of K steps of IterativelyLinearized equals K steps of the model linearised at the period's start."""
    lr = stable_rate(case.net, case.theta, case.x) / 4
    path = run(mn.IterativelyLinearized(case.net, case.theta, every), case.theta, case.x, case.y, lr, 3 * every)
    theta = case.theta
    for period in range(3):
        stretch = run(mn.Linearized(case.net, theta), theta, case.x, case.y, lr, every)
        assert np.array_equal(path[period * every : (period + 1) * every + 1], stretch)
        theta = stretch[-1]


@given(cases(networks(SMOOTH), ensembles=(3,)), st.sampled_from((0.0, 0.9)))
def test_an_ensemble_trains_like_its_members_alone(case: Case, momentum: float) -> None:
    """Check that members trained in the ensemble and separately have equal theta at every step, bit for bit."""
    lr = stable_rate(case.net, case.theta, case.x) / 4
    together = run(case.net, case.theta, case.x, case.y, lr, SHORT, momentum)
    for e in range(3):
        assert np.array_equal(together[:, e], run(case.net, case.theta[e], case.x, case.y, lr, SHORT, momentum))


@given(smooth_cases)
def test_models_nest_in_any_order_and_train(case: Case) -> None:
    """Check that Linearized and Centred nest in either order, equal up to rounding, and that the losses fall."""
    lr = stable_rate(case.net, case.theta, case.x)
    net, theta0 = case.net, case.theta
    lin_cen = mn.Linearized(mn.Centred(net, theta0, 2.0), theta0)
    cen_lin = mn.Centred(mn.Linearized(net, theta0), theta0, 2.0)
    nested: list[mn.Model] = [
        lin_cen,
        cen_lin,
        mn.Centred(mn.IterativelyLinearized(net, theta0, every=2), theta0, 2.0),
        mn.IterativelyLinearized(mn.Centred(net, theta0, 2.0), theta0, every=2),
        mn.Linearized(mn.IterativelyLinearized(mn.Centred(net, theta0, 2.0), theta0, every=2), theta0),
        mn.IterativelyLinearized(mn.IterativelyLinearized(net, theta0, every=3), theta0, every=2),
    ]
    for model in nested:
        optimizer = mn.SGD(lr=lr / 40)  # small enough that every loss falls, also in nonlinear networks
        snaps = list(mn.train(model, theta0, case.x, case.y, loss=mn.mse, optimizer=optimizer, steps=4))
        losses = np.stack([snap.loss for snap in snaps])
        assert np.all(np.diff(losses, axis=0) <= 1e-12 * losses[0])
    paths = [run(model, theta0, case.x, case.y, lr / 4, SHORT) for model in (lin_cen, cen_lin)]
    moved = np.abs(paths[0] - theta0).max() + np.abs(theta0).max()
    slack = SHORT * roundings(net, theta0, case.x) * (1 + np.abs(net(theta0, case.x)).max()) * (1 + moved)
    assert_close("Centred o Linearized trains like Linearized o Centred", paths[0], paths[1], slack)


@given(smooth_cases)
def test_descent_on_the_linearised_network_is_a_power_of_one_matrix(case: Case) -> None:
    """Check that f_t - y = (I - lr/N J S J')^t (f_0 - y) after t steps, with the learning-rate scales S.

    The entries of J come from J.dense().
    """
    lr, (N, C) = stable_rate(case.net, case.theta, case.x), case.y.shape
    f0, J = case.net.linearize(case.theta, case.x)
    scales = case.net.layout.learning_rate_scales()
    rows = J.dense().reshape((*J.lead, N * C, case.net.size))
    A = np.eye(N * C) - lr / N * (rows * (1.0 if scales is None else scales)) @ rows.swapaxes(-1, -2)
    r = (f0 - case.y).reshape((*J.lead, N * C, 1))
    optimizer = mn.SGD(lr=lr)
    lin = mn.Linearized(case.net, case.theta)
    snaps = mn.train(lin, case.theta, case.x, case.y, loss=mn.mse, optimizer=optimizer, steps=SHORT)
    size = float(np.abs(f0).max() + np.linalg.norm(case.y) + np.linalg.norm(rows) * np.abs(case.theta).max())
    for snap in snaps:
        want = case.y + r.reshape(f0.shape)
        tolerance = (snap.step + 1) * roundings(case.net, case.theta, case.x) * size
        assert_close(f"f after {snap.step} steps", snap.f, want, tolerance)
        assert_close(
            f"loss after {snap.step} steps", snap.loss, (r * r).sum((-2, -1)) / (2 * N), tolerance * (1 + size)
        )
        r = A @ r
