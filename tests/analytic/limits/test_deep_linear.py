"""Test feature-learning limits of linear networks against moment-matched networks, NTK training and wide networks."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

import analytic as an
import analytic.limits.two_layer
import minintk as mn
from analytic.limits import deep_linear
from analytic.limits.two_layer import TwoLayerLimit
from minintk.arrays import array_namespace, to_host, to_library
from minintk.diagnostics import power_law
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, X_TEST, Y = RNG.standard_normal((5, 4)), RNG.standard_normal((3, 4)), RNG.standard_normal((5, 2))
TIMES = np.linspace(0, 3, 7)
GAMMAS = (0.3, 1.0, 2.5)


def spec(*hidden: int, outputs: int = 2) -> mn.Sequential:
    """Return a spec with weights of different scales, so that a wrong scale is noticed."""
    layers = [mn.Dense(n, w_std=1.3 - 0.2 * i) for i, n in enumerate(hidden)]
    return mn.Sequential(*layers, mn.Dense(outputs, w_std=0.7))


def moment_matched(n: int = 6) -> tuple[mn.Network, mn.Array]:
    """Return a network and theta of n = d + C neurons with the limit's moments E[ww'] = I, E[aa'] = I, E[wa'] = 0.

    w and a are a neuron's input and output weights. The limit's equations hold for such neurons, up to rounding.
    """
    net = mn.Network(spec(n), (4,))
    neurons = np.linalg.qr(np.random.default_rng(1).standard_normal((n, n)))[0] * sqrt(n)
    return net, net.layout.pack({"0.W": neurons[:, :4].T, "1.W": neurons[:, 4:]})


def network_at(n: int, gamma0: float, times: Array) -> Array:
    """Return f of the moment-matched network on training and test points, at `times` of gradient flow."""
    net, theta0 = moment_matched()
    alpha = 1 / (gamma0 * sqrt(n))
    model = mn.Centred(net, theta0, alpha)
    by = mn.Solver(rtol=1e-10, atol=1e-12)
    flow: list[Any] = list(mn.flow(model, theta0, X, Y, loss=mn.mse, times=times[1:] / alpha**2, by=by))
    return np.array([model(m.theta, np.concatenate([X, X_TEST])) for m in flow])


def limit_law(gamma0: float) -> float:
    """Return the largest distance between outputs of the closed ODE and of the moment-matched network."""
    limit = an.two_layer_limit(spec(1), X, Y, gamma0=gamma0)
    both = np.concatenate([limit.predict(TIMES), limit.predict(TIMES, X_TEST)], axis=1)
    return float(np.abs(both - network_at(6, gamma0, TIMES)).max())


# ------------------------------------------------------------------------------------------ two layers


@pytest.mark.parametrize("gamma0", GAMMAS)
def test_a_network_with_the_limits_moments_follows_it(gamma0: float) -> None:
    """Outputs on training and test points, the feature kernel and the NTK at width 6 equal those of the limit."""
    net, theta0 = moment_matched()
    alpha = 1 / (gamma0 * sqrt(6))
    by = mn.Solver(rtol=1e-10, atol=1e-12)
    *_, end = mn.flow(
        mn.Centred(net, theta0, alpha), theta0, X, Y, loss=mn.mse, times=[2.0 / alpha**2], by=by
    )  # fmt: skip
    assert limit_law(gamma0) < 1e-7
    assert end.theta is not None
    limit = an.two_layer_limit(spec(1), X, Y, gamma0=gamma0)
    for x in (X, X_TEST):
        np.testing.assert_allclose(limit.ntk(2.0, x), mn.ntk(net, end.theta, x), rtol=1e-6, atol=1e-6)
        h = x @ net.layout.unpack(end.theta)["0.W"] * (1.3 / 2)  # sigma_1 / sqrt(d)
        np.testing.assert_allclose(limit.features(2.0, x), h @ h.T / 6, rtol=1e-6, atol=1e-6)


def test_a_wrong_factor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: the law fails if features learn at twice the rate, or if gamma0 replaces gamma0^2."""
    right = TwoLayerLimit._rate

    def twice(self: TwoLayerLimit, t: float, state: Array) -> Array:
        rate = right(self, t, state)
        r, C = self.problem.sizes
        rate[r * C : r * C + r * r] *= 2
        return rate

    def unsquared(self: TwoLayerLimit, t: float, state: Array) -> Array:
        rate = right(self, t, state)
        rate[self.problem.sizes[0] * self.problem.sizes[1] :] /= self.problem.gamma0
        return rate

    for wrong in (twice, unsquared):
        monkeypatch.setattr(TwoLayerLimit, "_rate", wrong)
        assert limit_law(2.5) > 1e-3


@pytest.mark.parametrize("gamma0", GAMMAS)
def test_features_gain_what_output_weights_gain(gamma0: float) -> None:
    """The difference tr S / sigma_1^2 - tr Q / sigma_2^2 of `moments` is conserved, but its first term changes."""
    _, S, Q = an.two_layer_limit(spec(1), X, Y, gamma0=gamma0).moments(TIMES)
    s, q = np.trace(S, axis1=1, axis2=2) / 1.3**2, np.trace(Q, axis1=1, axis2=2) / 0.7**2
    np.testing.assert_allclose(s - q, s[0] - q[0], atol=1e-8)
    assert s[-1] - s[0] > 0.05


def test_small_gamma0_is_the_tangent_kernels_training() -> None:
    """At gamma0 = 0, training is that of the NTK. At gamma0 = 1, training differs.

    At 1e-3, the difference is well below 1e-3, because the correction is O(gamma0^2).
    """
    k = an.kernel(spec(1))
    closed = an.gradient_flow(k.ntk(X), Y)
    want, want_test = closed.predict(TIMES), closed.predict(TIMES, k.ntk(X_TEST, X))
    distance = {}
    for gamma0 in (0.0, 1e-3, 1.0):
        limit = an.two_layer_limit(spec(1), X, Y, gamma0=gamma0)
        distance[gamma0] = max(
            np.abs(limit.predict(TIMES) - want).max(), np.abs(limit.predict(TIMES, X_TEST) - want_test).max()
        )
        np.testing.assert_allclose(limit.ntk(0.0), k.ntk(X), rtol=1e-12)
    assert distance[0.0] < 1e-8
    assert distance[1e-3] < 1e-5
    assert distance[1.0] > 0.1


# ------------------------------------------------------------------------------------------- any depth


@pytest.mark.parametrize("gamma0", GAMMAS)
def test_descent_of_the_network_with_the_limits_moments(gamma0: float) -> None:
    """Descent in mean-field theory and in a moment-matched network of width 6 agree step by step, up to rounding."""
    net, theta0 = moment_matched()
    alpha = 1 / (gamma0 * sqrt(6))
    model = mn.Centred(net, theta0, alpha)
    run = mn.train(model, theta0, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.1 / alpha**2), steps=15)
    limit = an.deep_linear_limit(spec(1), X, Y, gamma0=gamma0, lr=0.1, steps=15)
    for k, snap in enumerate(run):
        np.testing.assert_allclose(limit.predict(k), model(snap.theta, X), atol=1e-11)
        np.testing.assert_allclose(limit.predict(k, X_TEST), model(snap.theta, X_TEST), atol=1e-11)
        np.testing.assert_allclose(limit.ntk(k, X_TEST), mn.ntk(net, snap.theta, X_TEST), atol=1e-11)
    assert k == 15


def test_mean_field_is_gamma0_one() -> None:
    """Training with `mn.MeanField()`, learning rates included, follows the limit at gamma0 = 1 step by step."""
    _, theta0 = moment_matched()
    net = mn.Network(spec(6), (4,), mn.MeanField())
    run = mn.train(net, theta0, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=15)
    limit = an.deep_linear_limit(spec(1), X, Y, gamma0=1.0, lr=0.1, steps=15)
    np.testing.assert_allclose(limit.predict(), [net(snap.theta, X) for snap in run], atol=1e-12)


def test_two_layers_of_mean_field_theory_are_the_closed_equation() -> None:
    """Extrapolating descent with steps h, h/2 and h/3 to h = 0 leaves an error of O(h^3).

    Extrapolating from only the two smaller steps leaves O(h^2).
    """
    runs = [(m, an.deep_linear_limit(spec(1), X, Y, gamma0=1.5, lr=0.1 / m, steps=30 * m)) for m in (1, 2, 3)]
    closed = an.two_layer_limit(spec(1), X, Y, gamma0=1.5)
    for x in (None, X_TEST):
        one, two, three = (run.predict(None, x)[::m] for m, run in runs)
        flow = one / 2 - 4 * two + 4.5 * three
        error = np.abs(flow - closed.predict(np.linspace(0, 3, 31), x)).max()
        assert error < np.abs(flow - 3 * three + 2 * two).max() < 5e-4


def test_every_layer_gives_the_same_outputs() -> None:
    """Check f = E[h^l g^l] / gamma0 for l = 1, ..., L, with features h^l and backward signals g^l."""
    limit = an.deep_linear_limit(spec(1, 1, 1), X, Y, gamma0=1.5, lr=0.1, steps=12)
    for at in (1, 2, 3):
        for k in range(13):
            found = deep_linear.outputs(k, *limit.h[at - 1 : at + 1], *limit.g[at - 1 : at + 1])
            np.testing.assert_allclose(found, limit.F[k], atol=1e-13)


@pytest.mark.parametrize("hidden", [1, 2, 4])
def test_gamma0_zero_is_descent_with_the_tangent_kernel(hidden: int) -> None:
    net, steps = spec(*[1] * hidden), 40
    closed = an.gradient_descent(an.kernel(net).ntk(X), Y, lr=0.1).predict(np.arange(steps + 1))
    distance = {}
    for gamma0 in (0.0, 1e-3, 1.0):
        limit = an.deep_linear_limit(net, X, Y, gamma0=gamma0, lr=0.1, steps=steps)
        np.testing.assert_allclose(limit.ntk(0), an.kernel(net).ntk(X), rtol=1e-12)
        distance[gamma0] = np.abs(limit.predict() - closed).max()
    assert distance[0.0] < 1e-13
    assert distance[1e-3] < 1e-4
    assert distance[1.0] > 0.1


def distances(hidden: int, widths: tuple[int, ...], seeds: int) -> tuple[list[Array], list[Array]]:
    """Return distances of networks from the limit and from NTK training: rms over steps, examples and outputs."""
    x, y, gamma0, lr, steps = X[:3], Y[:3], 3.0, 0.1, 15
    limit, ntk = (
        an.deep_linear_limit(spec(*[1] * hidden), x, y, gamma0=g, lr=lr, steps=steps).predict() for g in (gamma0, 0.0)
    )
    found: tuple[list[Array], list[Array]] = ([], [])
    for n in widths:
        net = mn.Network(spec(*[n] * hidden), (4,))
        theta0 = net.init(np.random.default_rng(n), ensemble=seeds)
        model = mn.Centred(net, theta0, 1 / (gamma0 * sqrt(n)))
        sgd = mn.SGD(lr=lr * gamma0**2 * n)
        run = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=sgd, steps=steps)
        f = np.array([model(snap.theta, x) for snap in run])
        for kept, truth in zip(found, (limit, ntk), strict=True):
            kept.append(np.sqrt(((f - truth[:, None]) ** 2).mean(axis=(0, 2, 3))))
    return found


@pytest.mark.parametrize("hidden", [2, 3])
def test_wide_deep_networks_approach_the_limit_as_the_root_of_their_width(hidden: int) -> None:
    """Distances from the limit fall as n^(-1/2). Negative control: networks do not approach training with the NTK."""
    widths = (32, 64, 128)
    law, control = (power_law(widths, values) for values in distances(hidden, widths, 100))
    assert abs(law.exponent + 0.5) < 0.1 + 3 * law.error, law
    assert law.error < 0.06
    assert control.exponent > -0.25, control


def kernel_errors(hidden: int, widths: tuple[int, ...], seeds: int, at: int = 12) -> dict[str, list[Array]]:
    """Return relative distances of H^l and Theta from the limits at step `at`, and of Theta from its initial limit."""
    x, y, gamma0, lr = X[:3], Y[:3], 3.0, 0.1
    limit = an.deep_linear_limit(spec(*[1] * hidden), x, y, gamma0=gamma0, lr=lr, steps=at)
    found: dict[str, list[Array]] = {}
    for n in widths:
        net = mn.Network(spec(*[n] * hidden), (4,))
        theta0 = net.init(np.random.default_rng(n), ensemble=seeds)
        model, sgd = mn.Centred(net, theta0, 1 / (gamma0 * sqrt(n))), mn.SGD(lr=lr * gamma0**2 * n)
        *_, end = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=sgd, steps=at)
        pairs, h = dict[str, tuple[Any, Any]](), x
        for layer in range(1, hidden + 1):
            w = net.layout.unpack(end.theta)[f"{layer - 1}.W"]
            h = h @ w * ((1.3 - 0.2 * (layer - 1)) / sqrt(w.shape[-2]))
            pairs[f"H {layer}"] = h @ h.swapaxes(1, 2) / n, limit.features(layer, at)
        pairs["Theta"] = mn.ntk(net, end.theta, x), limit.ntk(at)
        pairs["Theta against the start's"] = pairs["Theta"][0], limit.ntk(0)
        for name, (a, b) in pairs.items():
            error = np.linalg.norm(a - b, axis=(1, 2)) / np.linalg.norm(b)
            found.setdefault(name, []).append(error)
    return found


def test_kernels_of_wide_deep_networks_approach_the_limits() -> None:
    """After training, H^1, H^2, H^3 and Theta approach the limit as n^(-1/2).

    Negative control: Theta does not approach the limit of the initial Theta.
    """
    for name, errors in kernel_errors(3, (32, 64, 128), 120).items():
        law = power_law((32, 64, 128), errors)
        if "start" in name:
            assert law.exponent > -0.25, (name, law)
        else:
            assert abs(law.exponent + 0.5) < 0.1 + 3 * law.error, (name, law)
            assert law.error < 0.06


def test_echoes_between_layers_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the responses B of the backward signals, the limit differs."""
    right = an.deep_linear_limit(spec(1, 1), X, Y, gamma0=1.5, lr=0.1, steps=15).predict()
    advance = deep_linear.Signal.advance

    def deaf(self: Any, *rest: Any) -> None:
        advance(self, *rest)
        if self.size == 2:  # the backward signal g
            self.echo[...] = 0

    monkeypatch.setattr(deep_linear.Signal, "advance", deaf)
    assert np.abs(an.deep_linear_limit(spec(1, 1), X, Y, gamma0=1.5, lr=0.1, steps=15).predict() - right).max() > 0.05


# ------------------------------------------------------------------------- arrays, shapes, errors


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_the_callers_arrays(library: str, dtype: str) -> None:
    xp = namespace(library)
    x, y, x_test = (to_library(a.astype(dtype), xp) for a in (X, Y, X_TEST))
    two = an.two_layer_limit(spec(1), x, y)
    deep = an.deep_linear_limit(spec(1, 1), x, y, lr=0.1, steps=3)
    truth = an.two_layer_limit(spec(1), X, Y)
    np.testing.assert_allclose(to_host(two.predict(1.0, x_test)), truth.predict(1.0, X_TEST), rtol=1e-4)
    for a in (two.predict(1.0, x_test), two.ntk(1.0), two.features(1.0), deep.predict(), deep.predict(2, x_test),
              deep.ntk(3), deep.features(2, 3, x_test)):  # fmt: skip
        assert array_namespace(a) is array_namespace(x)
        assert str(a.dtype) == dtype


def test_kernels_of_inputs_outside_the_training_sets_span() -> None:
    """Two examples span two of four dimensions. In the other two directions, the weights do not change."""
    net, theta0 = moment_matched()
    alpha = 1 / (1.5 * sqrt(6))
    model, sgd = mn.Centred(net, theta0, alpha), mn.SGD(lr=0.2 / alpha**2)
    *_, end = mn.train(model, theta0, X[:2], Y[:2], loss=mn.mse, optimizer=sgd, steps=15)
    deep = an.deep_linear_limit(spec(1), X[:2], Y[:2], gamma0=1.5, lr=0.2, steps=15)
    h = X_TEST @ net.layout.unpack(end.theta)["0.W"] * (1.3 / 2)
    assert deep.problem.sizes == (2, 2)
    np.testing.assert_allclose(deep.predict(15, X_TEST), model(end.theta, X_TEST), atol=1e-12)
    np.testing.assert_allclose(deep.features(1, 15, X_TEST), h @ h.T / 6, atol=1e-12)
    np.testing.assert_allclose(deep.ntk(15, X_TEST), mn.ntk(net, end.theta, X_TEST), atol=1e-12)
    two = an.two_layer_limit(spec(1), X[:2], Y[:2], gamma0=1.5)
    whole = an.deep_linear_limit(spec(1), X[:2], Y[:2], gamma0=1.5, lr=0.005, steps=200)
    np.testing.assert_allclose(two.features(1.0, X_TEST), whole.features(1, 200, X_TEST), rtol=2e-2)
    np.testing.assert_allclose(two.ntk(1.0, X_TEST), whole.ntk(200, X_TEST), rtol=2e-2)


def test_more_inputs_than_directions_and_fewer() -> None:
    """Training on inputs of rank 2 in four dimensions equals training on their two nonzero coordinates."""
    x = X @ np.diag([1.0, 1.0, 0.0, 0.0])
    a = an.two_layer_limit(spec(1), x, Y).predict(TIMES)
    b = an.two_layer_limit(spec(1), x[:, :2] / sqrt(2), Y).predict(TIMES)
    np.testing.assert_allclose(a, b, atol=1e-9)
    assert an.two_layer_limit(spec(1), x, Y).problem.sizes == (2, 2)
    zero = an.deep_linear_limit(spec(1, 1), 0 * X, Y, lr=0.1, steps=2)
    assert np.all(zero.predict() == 0)


def test_errors() -> None:
    with pytest.raises(mn.UnsupportedLayer, match="linear networks only"):
        an.two_layer_limit(mn.Sequential(mn.Dense(3), mn.ReLU(), mn.Dense(2)), X, Y)
    with pytest.raises(mn.UnsupportedLayer, match="b_std = 0"):
        an.two_layer_limit(mn.Sequential(mn.Dense(3, b_std=0.1), mn.Dense(2)), X, Y)
    with pytest.raises(ValueError, match=r"use analytic\.deep_linear_limit"):
        an.two_layer_limit(spec(1, 1), X, Y)
    with pytest.raises(ValueError, match="a hidden layer at least"):
        an.deep_linear_limit(mn.Sequential(mn.Dense(2)), X, Y, lr=0.1, steps=1)
    with pytest.raises(ValueError, match=r"gamma0 expects .* got -1"):
        an.two_layer_limit(spec(1), X, Y, gamma0=-1)
    with pytest.raises(ValueError, match=r"y expects shape \(N, C\) = \(5, 2\)"):
        an.two_layer_limit(spec(1), X, Y[:, :1])
    limit = an.two_layer_limit(spec(1), X, Y)
    with pytest.raises(ValueError, match="finite numbers"):
        limit.predict(np.inf)
    with pytest.raises(ValueError, match="x_test expects shape"):
        limit.predict(1.0, X[:, :3])
    for lr, steps in ((0.0, 3), (0.1, -1), (0.1, 1.5)):
        with pytest.raises(ValueError, match="expects a"):
            an.deep_linear_limit(spec(1, 1), X, Y, lr=lr, steps=steps)  # type: ignore[arg-type]
    deep = an.deep_linear_limit(spec(1, 1), X, Y, lr=0.1, steps=3)
    with pytest.raises(ValueError, match="k expects a step, 0 to 3"):
        deep.predict(4)
    with pytest.raises(ValueError, match="layer expects 1 to 2"):
        deep.features(3, 0)
    with pytest.raises(FloatingPointError, match="diverged at step"):
        an.deep_linear_limit(spec(1, 1), X, Y, lr=50.0, steps=60)
    with pytest.raises(MemoryError, match="GB are free"):
        an.deep_linear_limit(spec(1, 1), X, Y, lr=0.1, steps=10**6)


@pytest.mark.parametrize("gamma0", [0.0, 1.0])
def test_inputs_that_are_all_zero_teach_nothing(gamma0: float) -> None:
    limit = an.two_layer_limit(spec(1), 0 * X, Y, gamma0=gamma0)
    assert limit.predict([0.0, 2.0]).tolist() == np.zeros((2, 5, 2)).tolist()
    np.testing.assert_allclose(limit.ntk(2.0, X), limit.ntk(0.0, X))


def test_inputs_without_features_are_refused() -> None:
    for build in (an.two_layer_limit, lambda *told: an.deep_linear_limit(*told, lr=0.1, steps=2)):
        with pytest.raises(ValueError, match=r"x expects shape \(N, d\), d >= 1"):
            build(spec(1), X[:, :0], Y)


def test_the_end_of_the_flow_is_reached_at_once() -> None:
    """Check predictions at t = 1e9, for which an explicit solver would need too many short steps.

    At the end, outputs on the training set equal the least-squares fit.
    """
    limit = an.two_layer_limit(spec(1), X, Y)
    fitted = X @ np.linalg.lstsq(X, Y)[0]
    np.testing.assert_allclose(limit.predict(1e9), fitted, atol=1e-8)
    assert np.abs(limit.predict(1.0) - fitted).max() > 1e-2


@pytest.mark.parametrize("size", [1e-8, 1e-15, 1e-100])
def test_two_layer_targets_of_any_size(size: float) -> None:
    """For small targets, features do not move and one input is learned as 1 - exp(-2 t)."""
    limit = an.two_layer_limit(mn.Sequential(mn.Dense(1), mn.Dense(1)), np.ones((1, 1)), np.full((1, 1), size))
    np.testing.assert_allclose(limit.predict([0.1, 2.0])[:, 0, 0] / size, 1 - np.exp([-0.2, -4.0]), rtol=1e-7)


def test_two_layers_with_many_inputs() -> None:
    """A problem of rank 60, whose state has 3,661 entries, is NTK training for gamma0 -> 0."""
    x, which = np.random.default_rng(0).standard_normal((60, 100)), mn.Sequential(mn.Dense(1), mn.Dense(1))
    y = np.sign(x[:, :1])
    found = an.two_layer_limit(which, x, y, gamma0=1e-6).predict(1.0)
    kernel = an.kernel(which).ntk(x)
    np.testing.assert_allclose(found, an.gradient_flow(kernel, y).predict(1.0), rtol=1e-6, atol=1e-8)
