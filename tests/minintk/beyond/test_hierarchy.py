"""Compare the hierarchy with autograd, frozen kernels and the network's gradient flow, and test error messages."""

from __future__ import annotations

from collections.abc import Iterable
from math import log10
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from autograd.scipy.special import erf

import analytic as an
import minintk as mn
from minintk.beyond.hierarchy import Hierarchy, hierarchy
from tests.kit.laws import hierarchy_in_time

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 2))
SPEC = mn.Sequential(
    mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Residual(mn.Sequential(mn.Dense(6), mn.Erf())), mn.Dense(2, b_std=0.2)
)
FINE = mn.Solver(rtol=1e-11, atol=1e-13)


def last(run: Iterable[mn.Moment]) -> mn.Moment:
    *_, end = run
    return end


def kernel_of(moment: mn.Moment) -> Array:
    """Return the kernel of a moment, after checking that it is not None."""
    assert moment.kernel is not None
    return np.asarray(moment.kernel)


# ----------------------------------------------------------------------------- O3 and O4 against autograd


def tensors_of(system: Hierarchy) -> tuple[Array, Array, Array]:
    """Extract Theta, O3 and O4 from the contractions, with all points as training points.

    As in `Hierarchy`, the kernel is Theta - O3.s + Q(s, s) / 2 + Xi. At r = e_c, s = e_d, O4_..cd = Q(r, s) + dXi/dt.
    """
    m, f = system.size, np.zeros(system.size)
    unit, none = np.eye(m), np.zeros(m * m)

    def kernel(s: Array) -> Array:
        return np.asarray(system.kernel(np.concatenate([f, s, none]))[0])

    theta = kernel(0 * f)
    third = np.stack([(kernel(-e) - kernel(e)) / 2 for e in unit], axis=-1)
    fourth = np.empty((m, m, m, m))
    for c, d in np.ndindex(m, m):
        mixed = (kernel(unit[c] + unit[d]) - kernel(unit[c] - unit[d])) / 2 + third @ unit[d]
        r = unit[c].reshape(system.f0.shape)
        grown = -system.learn(np.concatenate([f, unit[d], none]), None, r, lambda f, y: y)[1][2 * m :]
        fourth[:, :, c, d] = mixed + grown.reshape((m, m))
    return theta, third, fourth


def along(f: Any, g: Any, S: Array) -> Any:
    """Return the function theta -> grad f . S grad g."""
    df, dg = (grad(a) for a in (f, g))
    return lambda theta: anp.dot(df(theta), S * dg(theta))


@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.SpectralMuP()], ids=repr)
def test_contractions_are_those_of_the_tensors_by_autograd(parametrization: Any) -> None:
    """Contractions agree with those of the tensors computed by autograd to a relative 1e-9.

    Theta = J S J', O3_abc = grad Theta_ab . S grad f_c, O4_abcd = grad O3_abc . S grad f_d.
    """
    net = mn.Network(SPEC, (3,), parametrization)
    theta0, x = net.init(np.random.default_rng(1)), X[:2]
    scales = net.layout.learning_rate_scales()
    S = np.ones(net.size) if scales is None else scales
    rows = {t.name: (net.layout.slices[t.name], t.shape, float(t.row.multiplier)) for t in net.layout.tensors}

    def f(theta: Any) -> Any:
        w = {name: m * anp.reshape(theta[at], shape) for name, (at, shape, m) in rows.items()}
        h = anp.tanh(x @ w["0.W"] + w["0.b"])
        h = h + erf(h @ w["2.branch.0.W"])
        return anp.reshape(h @ w["3.W"] + w["3.b"], (-1,))

    np.testing.assert_allclose(f(theta0), net(theta0, x).ravel(), atol=1e-13)
    theta, third, fourth = tensors_of(Hierarchy(net, theta0, x, 2, 4))
    for u, v, c, d in np.random.default_rng(2).standard_normal((4, 4, 4)):
        wanted: list[Any] = [lambda theta, u=u: anp.dot(u, f(theta))]
        for w in (v, c, d):
            wanted.append(along(wanted[-1], lambda theta, w=w: anp.dot(w, f(theta)), S))
        found = [v @ theta @ u, np.einsum("abc,a,b,c", third, u, v, c), np.einsum("abcd,a,b,c,d", fourth, u, v, c, d)]
        for got, want in zip(found, wanted[1:], strict=True):
            assert got == pytest.approx(want(theta0), rel=1e-9)
    np.testing.assert_allclose(third, third.swapaxes(0, 1), rtol=0, atol=1e-14 * np.abs(third).max())
    assert np.abs(fourth - fourth.swapaxes(2, 3)).max() > 1e-3 * np.abs(fourth).max()  # the order of c and d matters


# -------------------------------------------------------------------------------------- frozen kernels


def test_order_two_is_the_linearised_network() -> None:
    """Order 2 equals the flow of the linearised network, also on points without targets.

    The closed form is from Lee et al. 2019, eq. (9).
    """
    net = mn.Network(SPEC, (3,))
    theta0, times = net.init(np.random.default_rng(2)), (0.5, 3.0)
    kernel, f0 = mn.ntk_full(net, theta0, X), net(theta0, X)
    run = list(hierarchy(net, theta0, X, Y[:2], loss=mn.mse, times=times, order=2))
    assert [m.t for m in run] == [0.0, *times]
    for m, flow in zip(run, mn.kernel_flow(kernel[:, :, :2], f0, Y[:2], loss=mn.mse, times=times, by=FINE)):
        np.testing.assert_allclose(m.f, flow.f, rtol=0, atol=1e-7)
        np.testing.assert_allclose(kernel_of(m), kernel, rtol=0, atol=1e-13 * np.abs(kernel).max())
        np.testing.assert_allclose(m.loss, mn.mse(m.f[:2], Y[:2]))
    single = mn.Network(mn.Sequential(mn.Dense(9), mn.Sin(), mn.Dense(1)), (3,))
    theta, y = single.init(RNG), Y[:, :1]
    end = last(hierarchy(single, theta, X, y, loss=mn.mse, times=2.0, order=2))
    closed = an.gradient_flow(mn.ntk(single, theta, X), y).predict(2.0, f0=single(theta, X))
    np.testing.assert_allclose(end.f, closed, rtol=0, atol=1e-7)


@pytest.mark.parametrize("order", [3, 4])
def test_a_linear_model_has_no_corrections(order: int) -> None:
    net = mn.Network(SPEC, (3,))
    theta0 = net.init(np.random.default_rng(2))
    model = mn.Linearized(net, theta0)
    two, more = (last(hierarchy(model, theta0, X, Y, loss=mn.mse, times=2.0, order=k)) for k in (2, order))
    np.testing.assert_allclose(more.f, two.f, rtol=0, atol=1e-9)
    np.testing.assert_allclose(kernel_of(more), kernel_of(two), rtol=0, atol=1e-12)


# -------------------------------------------------------------------------- the network's gradient flow


def test_the_error_starts_with_the_power_of_time_that_the_order_says() -> None:
    """For orders 2, 3 and 4, the kernel's error grows as t, t^2 and t^3, and the outputs' error as t^2, t^3 and t^4.

    A wrong term in O3 or O4 would lower the exponent.
    """
    hierarchy_in_time()


@pytest.mark.parametrize("loss", [mn.mse, mn.softmax_cross_entropy], ids=repr)
def test_orders_come_closer_with_any_loss_scales_and_ensemble(loss: mn.training.losses.Loss) -> None:
    """For two members in muP, each order's error is less than half the previous order's, also on unlabelled points."""
    net = mn.Network(mn.Sequential(mn.Dense(200, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,), mn.SpectralMuP())
    theta0, y = net.init(np.random.default_rng(3), ensemble=2), np.eye(2)[[0, 1, 1]]
    how: dict[str, Any] = {"loss": loss, "times": 0.02}
    true = last(mn.flow(net, theta0, X[:3], y, by=FINE, **how))
    assert true.theta is not None
    f, kernel, start = net(true.theta, X), mn.ntk_full(net, true.theta, X), mn.ntk_full(net, theta0, X)
    ends = [last(hierarchy(net, theta0, X, y, order=order, **how)) for order in (2, 3, 4)]
    errors = [np.abs(end.f - f).max(axis=(-2, -1)) for end in ends]
    kernels = [np.abs(kernel_of(end) - kernel).max(axis=(-4, -3, -2, -1)) for end in ends]
    for found in (errors, kernels):
        assert np.all(found[1] < found[0] / 2)
        assert np.all(found[2] < found[1] / 2)
    np.testing.assert_allclose(kernel_of(ends[0]), start, rtol=0, atol=1e-12 * np.abs(start).max())
    alone = last(hierarchy(net, theta0[1], X, y, order=4, **how))
    np.testing.assert_allclose(ends[2].f[1], alone.f, rtol=0, atol=1e-9)


def test_centred_networks_of_any_scale() -> None:
    """For alpha (f - f_0) at time 1 / alpha^2, the error of order 4 falls as 1 / alpha^3.

    The kernel is alpha^2 Theta, so this time corresponds to t = 1 for f.
    """
    net = mn.Network(mn.Sequential(mn.Dense(30, b_std=0.1), mn.GELU(), mn.Dense(1)), (3,))
    theta0, y, errors = net.init(np.random.default_rng(5)), Y[:, :1], []
    for alpha in (1.0, 10.0):
        model = mn.Centred(net, theta0, alpha)
        true = last(mn.flow(model, theta0, X, y, loss=mn.mse, times=1 / alpha**2, by=FINE))
        end = last(hierarchy(model, theta0, X, y, loss=mn.mse, times=1 / alpha**2))
        errors.append(float(np.abs(end.f - true.f).max()))
    assert log10(errors[0] / errors[1]) == pytest.approx(3, abs=0.3)  # O3 ~ 1/alpha, O5 ~ 1/alpha^3


def test_convolutions_and_norms() -> None:
    """For convolutions with a layer norm, each order is more than three times as accurate as the previous one."""
    spec = mn.Sequential(
        mn.Conv2d(20, b_std=0.1), mn.Tanh(), mn.LayerNorm(), mn.Conv2d(20), mn.Tanh(), mn.GlobalAvgPool(), mn.Dense(2)
    )
    net = mn.Network(spec, (5, 5, 1))
    rng = np.random.default_rng(6)
    theta0, x, y = net.init(rng), rng.standard_normal((3, 5, 5, 1)), rng.standard_normal((3, 2))
    true = last(mn.flow(net, theta0, x, y, loss=mn.mse, times=1.0, by=FINE))
    errors = [
        np.abs(last(hierarchy(net, theta0, x, y, loss=mn.mse, times=1.0, order=k)).f - true.f).max() for k in (2, 3, 4)
    ]
    assert errors[2] < errors[1] / 3 < errors[0] / 9


# --------------------------------------------------------------------------------------------- invalid input


def refused(match: str, kind: type[Exception] = ValueError, **wrong: Any) -> None:
    net = wrong.pop("net", mn.Network(SPEC, (3,)))
    theta0 = net.init(np.random.default_rng(0))
    arguments: dict[str, Any] = {"x": X, "y": Y, "loss": mn.mse, "times": 1.0} | wrong
    with pytest.raises(kind, match=match):
        last(hierarchy(net, theta0, arguments.pop("x"), arguments.pop("y"), **arguments))


def test_what_is_refused_at_once() -> None:
    refused("order expects a whole number from 2 to 4, got 5", order=5)
    refused("by expects mn.Solver", TypeError, by=mn.Steps())
    refused("expected arrays", TypeError, y=1.0)
    refused("the gradient of Hinge", loss=mn.hinge, y=np.sign(Y[:, :1]), net=mn.Network(mn.Dense(1), (3,)))
    refused("the training points of y first, 1 <= N <= M, got N = 4, M = 3", x=X[:3])
    refused("y expects shape", y=Y[:, :1])
    refused("times expects numbers > 0", times=0.0)
    net = mn.Network(mn.Sequential(mn.Dense(4), mn.BatchNorm(), mn.Dense(2)), (3,))
    refused("freeze them first", net=net)


@pytest.mark.slow
def test_float32_takes_about_as_many_steps_in_order_4_as_in_order_3() -> None:
    """Order 4 takes fewer than three times as many steps as order 3.

    If rounding errors of Theta entered dXi/dt, the steps would shrink, and order 4 would take 600 steps, not 30.
    """
    spec = mn.Sequential(mn.Dense(200), mn.Tanh(), mn.Dense(2))
    net, x, y = mn.Network(spec, (3,)), X.astype(np.float32), Y.astype(np.float32)
    theta0 = net.init(np.random.default_rng(0), dtype=np.float32)
    steps = [last(hierarchy(net, theta0, x, y, loss=mn.mse, times=1.0, order=order)).steps for order in (3, 4)]
    assert steps[1] < 3 * steps[0]


def test_a_truncated_hierarchy_that_blows_up_says_so() -> None:
    """Order 3 with twenty units raises an error, because an eigenvalue of the kernel becomes negative near t = 50."""
    rng = np.random.default_rng(0)
    net, x, y = mn.Network(mn.Sequential(mn.Dense(20), mn.Tanh(), mn.Dense(2)), (3,)), *rng.standard_normal((2, 4, 3))
    with pytest.raises(FloatingPointError, match=r"at order 3 a kernel .* take wider networks"):
        last(hierarchy(net, net.init(rng), x, y[:, :2], loss=mn.mse, times=1e3, order=3))


def test_too_many_outputs_are_refused_with_their_bytes() -> None:
    """The error states 22.4 GiB, the size of 30 float64 matrices with N C = 10,000 rows and columns."""
    net = mn.Network(mn.Sequential(mn.Dense(4), mn.Tanh(), mn.Dense(10)), (3,))
    x, y = np.zeros((1000, 3)), np.zeros((1000, 10))
    with pytest.raises(MemoryError, match=r"10000 outputs .* 22\.4 GiB of them for kernels .* the bound is 1 GiB"):
        hierarchy(net, net.init(RNG), x, y, loss=mn.mse, times=1.0, memory=2**30)


def test_a_network_of_too_many_weights_is_refused_at_a_single_output() -> None:
    """Displacements are as large as theta, and order 4 stores two, d1 and dd2/dt. Other arrays are small here."""
    net = mn.Network(mn.Sequential(mn.Dense(100), mn.Tanh(), mn.Dense(1)), (100,))
    theta0 = net.init(np.random.default_rng(0))
    with pytest.raises(MemoryError, match=r"1 outputs .* for kernels of 1 x 1"):
        hierarchy(net, theta0, np.zeros((1, 100)), np.zeros((1, 1)), loss=mn.mse, times=1.0, memory=2 * theta0.nbytes)


def test_a_run_that_nobody_asks_for_says_so() -> None:
    net = mn.Network(SPEC, (3,))
    with pytest.warns(RuntimeWarning, match="nothing was trained"):
        hierarchy(net, net.init(RNG), X, Y, loss=mn.mse, times=1.0)
