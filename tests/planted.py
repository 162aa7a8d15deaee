"""Planted errors: wrong formulas, each put in place of the right one, and the law that must refuse it.

    python tests/planted.py          prints the sheet, docs/planted-errors.md

A law is a function that raises AssertionError with numbers; tests/test_planted.py checks that each passes on the
library as it is, and fails with the error planted.  The laws over random specs are in tests/test_laws.py and
tests/test_cross.py; here they run on a few fixed networks, so that the sheet is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from math import pi
from typing import Any

import numpy as np
import pytest
from montecarlo import assert_mean, inputs, kernels
from oracles_images import convolution, loop_norm, max_pool, pooled
from oracles_kernels import image_errors, image_kernels

import analytic as an
import analytic.dynamics
import analytic.gp
import analytic.rules
import minintk as mn
from analytic import dmft, fields, fluctuations, learnability, limits, passes
from analytic import modes as modes_module
from analytic.duals import Homogeneous
from analytic.images import Pool, Window
from minintk import kernels as empirical
from minintk import recipes, testing, training, windows
from minintk.batches import Batches
from minintk.diagnostics import curvature as curvature_module
from minintk.diagnostics import kappa
from minintk.jacobian import NetworkJacobian, Scaled
from minintk.layers import arrange, convgram, patches, pool, shares
from minintk.layers.bias import BoundBias
from minintk.layers.combine import ChainJacobian, SumJacobian
from minintk.layers.conv import BoundConv, ConvJacobian
from minintk.layers.dense import BoundDense, DenseJacobian, sum_rows
from minintk.layers.norm import BoundBatchNorm, BoundLayerNorm
from minintk.layers.patches import Canvas, Patches
from minintk.layers.pool import AvgPoolJacobian, AxisMax, BoundAvgPool, GlobalJacobian
from minintk.layers.shares import SharedJacobian
from minintk.layout import Layout
from minintk.losses import MeanSquared, SoftmaxCrossEntropy
from minintk.models import Centred, IterativelyLinearized, Linearized
from minintk.parametrization import NTK, Row
from minintk.pointwise import Pointwise, pointwise
from minintk.testing import assert_close
from minintk.threads import alone

infinite: Any = import_module("analytic.kernel")  # the module; analytic.kernel is its function

Array = np.ndarray[Any, Any]
Patch = pytest.MonkeyPatch
EPS = float(np.finfo(float).eps)

# ------------------------------------------------------------------------------------ what the laws run on

ACTIVATIONS = (mn.Tanh(), mn.ReLU(), mn.GELU(), mn.Sigmoid(), mn.Softplus(2.0, 1.5), mn.Erf(), mn.Sin())


def chain(*activations: mn.spec.Activation) -> mn.Network:
    """Four features throughout, so that a transposed weight fits; every kind of bias and of shortcut."""
    layers: list[mn.spec.Layer] = [mn.Dense(4, w_std=1.4, b_std=0.3)]
    for phi in activations:
        layers += [phi, mn.Dense(4, w_std=1.4, b_std=0.5, b_init="zeros")]
    layers += [mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(4))), mn.Residual(mn.Dense(3), shortcut=mn.Dense(3))]
    return mn.Network(mn.Sequential(*layers, mn.Dense(2, b_std=0.2)), (3,))


X, Y = inputs(5), inputs(5, 2, seed=1)
NETWORKS = [chain(phi) for phi in ACTIVATIONS] + [chain(mn.Tanh(), mn.Sin())]


def points(ensemble: int | None = None) -> list[tuple[mn.Network, Array]]:
    """Each network at a point off its start."""
    rng = np.random.default_rng(3)
    found = []
    for net in NETWORKS:
        theta = net.init(rng, ensemble=ensemble)
        found.append((net, theta + 0.3 * rng.standard_normal(theta.shape)))
    return found


# ------------------------------------------------------------------------------------------- the laws


def adjoint() -> None:
    """<u, J v> = <J' u, v>"""
    for net, theta in points():
        testing.check_adjoint(net, theta, X, np.random.default_rng(0))


def derivative() -> None:
    """J v = df/ds"""
    for net, theta in points():
        testing.check_derivative(net, theta, X, np.random.default_rng(0))


def gram() -> None:
    """gram = J J'"""
    for net, theta in points():
        testing.check_gram(net, theta, X, np.random.default_rng(0))


def ensemble() -> None:
    """members together = apart"""
    for net, theta in points(3):
        testing.check_ensemble(net, theta, X, np.random.default_rng(0))


def blocks() -> None:
    """ntk by blocks = in one piece"""
    for net, theta in points():
        testing.check_blocks(net, theta, X, np.random.default_rng(0))


def float32() -> None:
    """float32 = float64 to rounding"""
    for net, theta in points():
        testing.check_float32(net, theta, X, np.random.default_rng(0))


def centred() -> None:
    """gram of the centred model = J J'"""
    for net, theta in points():
        testing.check_gram(mn.Centred(net, theta, 3.0), theta, X, np.random.default_rng(0))


def linearized() -> None:
    """J of the linearised model = df_lin/ds"""
    for net, theta in points():
        model = mn.Linearized(net, theta)
        testing.check_derivative(model, theta + 0.5, X, np.random.default_rng(0))
        assert_close("f_lin(theta_0) = f(theta_0)", model(theta, X), net(theta, X), 0.0)


def constant() -> None:
    """J of the linearised model is constant"""
    for net, theta in points():
        J0, J = (mn.Linearized(net, theta).linearize(at, X)[1].dense() for at in (theta, theta + 0.5))
        assert_close("J(theta) = J(theta_0)", J, J0, 0.0)


def commute() -> None:
    """Centred o Linearized = Linearized o Centred"""
    for net, theta in points():
        one = mn.Centred(mn.Linearized(net, theta), theta, 2.0)(theta + 0.5, X)
        other = mn.Linearized(mn.Centred(net, theta, 2.0), theta)(theta + 0.5, X)
        assert_close("Centred o Linearized = Linearized o Centred", one, other, 1000 * EPS * np.abs(one).max())


def starts_at_zero() -> None:
    """the centred model is 0 at theta_0"""
    for net, theta in points():
        f = mn.Centred(net, theta, 3.0)(theta, X)
        assert_close("alpha (f(theta_0) - f(theta_0))", f, np.zeros_like(f), 0.0)


def loss_cotangents() -> None:
    """cotangent = dL/df"""
    f, v = inputs(5, 2, seed=4), inputs(5, 2, seed=5)
    y, h = np.abs(Y) / np.abs(Y).sum(axis=1, keepdims=True), 1e-3
    for loss in (mn.mse, mn.softmax_cross_entropy):
        values = [loss(f + k * h * v, y) for k in (1, -1, 2, -2)]
        want = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        assert_close(f"dL/df of {loss}", (loss.cotangent(f, y) * v).sum(), want, 1e-10)


def steps(model: mn.Model, theta: Array, count: int = 12, **options: Any) -> Array:
    """theta after each step on the squared loss."""
    options = {"optimizer": mn.SGD(lr=0.005), "loss": mn.mse} | options
    return np.stack([snap.theta for snap in mn.train(model, theta, X, Y, steps=count, **options)])


def loop() -> None:
    """train = the formulas of SGD in a loop"""
    net, theta = points()[0]
    scales = {"0.W": 0.0, "0.b": 0.5}
    path = steps(net, theta, optimizer=mn.SGD(lr=0.05, momentum=0.9, weight_decay=0.1), lr_scales=scales)
    s = np.concatenate([np.full(t.size, scales.get(t.name, 1.0)) for t in net.layout.tensors])
    v = np.zeros_like(theta)
    for after in path[1:]:
        f, J = net.linearize(theta, X)
        v = 0.9 * v + np.einsum("ncp,nc->p", J.dense(), (f - Y) / 5) + 0.1 * theta
        theta = theta - 0.05 * s * v
        assert_close("theta", after, theta, 1e-12)


def untouched() -> None:
    """train leaves the caller's theta"""
    net, theta = points()[0]
    before = theta.copy()
    steps(net, theta)
    assert_close("theta after training", theta, before, 0.0)


def epochs() -> None:
    """mini-batches cover each epoch once"""
    net, theta = points()[0]
    run = mn.train(
        net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=1e-300), steps=20, batch_size=1, rng=np.random.default_rng(0)
    )
    sums = np.array([snap.f.sum() for snap in run][:20]).reshape(4, 5).sum(axis=1)
    assert_close("sum of f over an epoch", sums, np.full(4, net(theta, X).sum()), 1e-12)


def every_one() -> None:
    """relinearising at every step = gradient descent"""
    for net, theta in points():
        iterated = mn.IterativelyLinearized(net, theta, every=1)
        assert_close("theta, K = 1", steps(iterated, theta), steps(net, theta), 0.0)


def together() -> None:
    """an ensemble trains like its members"""
    for net, theta in points(3):
        path = steps(net, theta)
        for e in range(3):
            assert_close(f"theta of member {e}", path[:, e], steps(net, theta[e]), 0.0)


def bound() -> None:
    """the warning comes at 2 (1 + m) N / lambda_max"""
    net, theta = points()[0]
    critical = an.max_learning_rate(mn.ntk_full(net, theta, X), momentum=0.5)
    warned = []
    for factor in (0.98, 1.05):
        with pytest.MonkeyPatch.context() as patch:
            said: list[str] = []
            patch.setattr("minintk.training.warnings.warn", lambda text, *_, said=said, **__: said.append(text))
            next(mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=factor * critical, momentum=0.5), steps=1))
            warned.append(float(bool(said)))
    assert_close("warned below and above the bound", np.array(warned), np.array([0.0, 1.0]), 0.0)


def resumed() -> None:
    """a run resumed at any step = the run unbroken"""
    rng = np.random.default_rng(5)
    net, theta = points()[0]
    x, y = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))

    def run(resume: mn.State | None = None) -> list[mn.Snapshot]:
        model = mn.IterativelyLinearized(net, theta, every=4)
        how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=mn.Cosine(0.02, 9), momentum=0.9), "steps": 9}
        rng = np.random.default_rng(1)
        return list(mn.train(model, theta, x, y, **how, batch_size=2, rng=rng, resume=resume))

    whole = run()
    for step in (1, 5):
        assert_close(f"theta, resumed at step {step}", run(whole[step].state)[-1].theta, whole[-1].theta, 0.0)


def times() -> None:
    """t of a schedule = the sum of its rates, in training too"""
    net, theta = points()[0]
    for lr in (mn.StepDecay(0.02, 3, 0.5), mn.Cosine(0.02, 5), mn.WarmUp(4, mn.Cosine(0.02, 5))):
        rates = np.array([lr(s) for s in range(9)])
        assert_close(f"t of {lr}", np.array(lr.t(9)), rates.sum(), 1e-15)
        snaps = list(mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=9))
        assert_close("t of the snapshot", np.array(snaps[-1].t), rates.sum(), 1e-15)
        for rate, a, b in zip(rates, snaps, snaps[1:]):
            gradient = net.linearize(a.theta, X)[1].vjp(mn.mse.cotangent(a.f, Y))
            assert_close(f"step of {lr}", b.theta, a.theta - rate * gradient, 1e-12)


def moved() -> None:
    """a shift by (dy, dx) moves pixel (i, j) to (i + dy, j + dx)"""
    x = np.arange(1.0, 61.0).reshape((3, 4, 5, 1))
    by = np.array([[1, 0], [0, 2], [-2, -1]])
    found = mn.Shift(2)(x, by)
    for n, (dy, dx) in enumerate(by):
        for i, j in np.ndindex(4, 5):
            inside = 0 <= i - dy < 4 and 0 <= j - dx < 5
            want = x[n, i - dy, j - dx, 0] if inside else 0.0
            assert_close(f"pixel {i}, {j} of image {n}", found[n, i, j], np.array([want]), 0.0)


def draws() -> None:
    """tensors are drawn with their row's deviation"""
    net = mn.Network(mn.Sequential(mn.Dense(20, w_std=3.0, b_std=0.5), mn.Dense(1)), (4,), mn.Standard())
    theta = net.layout.unpack(net.init(np.random.default_rng(0), ensemble=500))
    for name, std in (("0.W", 3.0 / 2), ("0.b", 0.5), ("1.W", 1 / 20**0.5)):
        assert_mean(f"variance of {name}", theta[name].reshape(-1, 1) ** 2, np.array([std**2]))


def independent() -> None:
    """members are drawn independently"""
    net = mn.Network(mn.Dense(400), (10,))
    theta = net.init(np.random.default_rng(0), ensemble=4)
    products = np.stack([theta[i] * theta[j] for i in range(4) for j in range(i)], axis=1)
    assert_mean("correlation of members", products, np.zeros(6))


def zero_start() -> None:
    """a zero-initialised bias starts at 0"""
    net = mn.Network(mn.Dense(3, b_std=0.5, b_init="zeros"), (2,))
    start = net.layout.unpack(net.init(np.random.default_rng(0)))["0.b"]
    assert_close("b at the start", start, np.zeros(3), 0.0)


def flat_coordinates(optimizer: mn.optimizers.Optimizer, parametrization: Any) -> Callable[[], None]:
    """muP: every layer learns alike at every width"""

    def law() -> None:
        x, y = mn.datasets.digits().subset(32, np.random.default_rng(0)).one_hot()
        told: dict[str, Any] = {"loss": mn.mse, "optimizer": optimizer, "widths": (64, 128, 256), "seeds": 16}
        found = mn.coordinate_check(recipes.growing("mlp", 10, 2), x, y, parametrization=parametrization(), **told)
        assert found.verdict != "fail", found.report().splitlines()[-1]

    law.__doc__ = f"{flat_coordinates.__doc__} ({parametrization.__name__}, {type(optimizer).__name__})"
    return law


mup_by_descent = flat_coordinates(mn.SGD(lr=0.1), mn.SpectralMuP)
mup_by_adam = flat_coordinates(mn.Adam(lr=0.01), mn.SpectralMuP)
mean_field = flat_coordinates(mn.SGD(lr=0.1), mn.MeanField)


def equivalent() -> None:
    """a + s, b - s, c - 2 s (Adam: c - s) is the same network at every step"""
    spec, x, y = mn.Sequential(mn.Dense(9, b_std=0.3), mn.Tanh(), mn.Dense(9), mn.Tanh(), mn.Dense(2)), X, Y
    for rule, optimizer in (("sgd", mn.SGD(lr=0.02, momentum=0.5)), ("adam", mn.Adam(lr=0.01, eps=1e-60))):
        one = mn.ABC((0, 0.5, 0.5), (0, 0, 0), (0, 0.25, 0), rule)  # type: ignore[arg-type]
        ends = []
        for abc in (one, one.shifted(0.5, -0.5, 0.25)):
            net = mn.Network(spec, (3,), abc)
            theta = net.init(np.random.default_rng(0))
            *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=optimizer, steps=5)
            ends.append(last.f)
        assert_close(f"f after 5 steps, {rule}", ends[1], ends[0], 1e-11)


def monte_carlo(*layers: mn.spec.Layer) -> Callable[[], None]:
    """E hatK = K, E hatTh = Th"""
    spec = mn.Sequential(*layers)

    def law() -> None:
        truth = an.kernel(spec).both(X[:3])
        for name, samples, k in zip(("NNGP", "NTK"), kernels(spec, X[:3], 4000), truth, strict=True):
            assert_mean(f"mean {name}", samples, k[np.triu_indices(3)])

    law.__doc__ = monte_carlo.__doc__
    return law


relu_kernel = monte_carlo(mn.Dense(32, w_std=1.4, b_std=0.6), mn.ReLU(), mn.Dense(16, w_std=1.4))
erf_kernel = monte_carlo(mn.Dense(32, w_std=1.4), mn.Erf(), mn.Dense(16))
zero_bias_kernel = monte_carlo(mn.Dense(32), mn.ReLU(), mn.Dense(16, b_std=1.0, b_init="zeros"))
residual_kernel = monte_carlo(
    mn.Dense(16, b_std=0.3), mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(16, w_std=1.4))), mn.Dense(16)
)


def closed_form() -> None:
    """train on Linearized = gradient_descent"""
    net, theta = points()[0]
    f0, J = net.linearize(theta, X)
    descent = analytic.dynamics.gradient_descent(J.gram(), Y, lr=0.05)
    run = mn.train(mn.Linearized(net, theta), theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.05), steps=40)
    for snap in run:
        assert_close(f"f after {snap.step} steps", snap.f, descent.predict(snap.step, f0=f0), 1e-11)


def flow_limit() -> None:
    """many small steps = gradient_flow"""
    k, y, t, f = X @ X.T + np.eye(5), Y, 2.0, np.zeros_like(Y)
    count = 2**14
    half = [f]
    for steps in (count, 2 * count):
        f = np.zeros_like(Y)
        for _ in range(steps):
            f = f - t / steps / 5 * k @ (f - y)
        half.append(f)
    want = 2 * half[2] - half[1]  # without the error of first order
    assert_close("f at t = 2", analytic.dynamics.gradient_flow(k, y).predict(t), want, 1e-7)


def covariance() -> None:
    """ensemble's covariance = the prior's, pushed through gradient_flow"""
    kernel = an.kernel(mn.Sequential(mn.Dense(9, w_std=1.4, b_std=0.3), mn.Erf(), mn.Dense(1)))
    x, x_test = X[:3], X[3:]
    flow, k = analytic.dynamics.gradient_flow(kernel.ntk(x), Y[:3, :1]), kernel.ntk(x_test, x)
    start = flow.predict(5.0, k)
    columns = [flow.predict(5.0, k, f0=e[:3], f0_test=e[3:]) - start for e in np.eye(5)[:, :, None]]
    B = np.concatenate(columns, axis=1)
    _, cov = analytic.gp.ensemble(kernel, x, Y[:3, :1]).predict(x_test, t=5.0, cov=True)
    assert_close("covariance at t = 5", cov, B @ kernel.nngp(np.concatenate([x, x_test])) @ B.T, 1e-12)


# on images

IMAGE_LAYERS: tuple[mn.spec.Layer, ...] = (
    mn.Conv2d(3, 3, w_std=1.4, b_std=0.3),
    mn.Conv2d(3, (2, 4), stride=(1, 2), padding="circular"),
    mn.Conv2d(2, 2, padding=((0, 2), (1, 0)), b_std=0.5, b_init="zeros"),
    mn.AvgPool(2),
    mn.AvgPool(3, stride=2, padding="same"),
    mn.MaxPool(2),
    mn.MaxPool(3, stride=2, padding="same"),
    mn.LayerNorm(eps=0.01),
    mn.Residual(mn.Conv2d(3, 3), shortcut=mn.Conv2d(3, 1)),
)
PIXELS = np.random.default_rng(6).standard_normal((4, 4, 5, 3)) - 2.0


def on_images(*layers: mn.spec.Layer, ensemble: int | None = None) -> list[tuple[mn.Network, Array]]:
    """A network around each of the layers, at a point off its start; weights before and after, both kinds of end."""
    rng, found = np.random.default_rng(3), []
    for i, layer in enumerate(layers or IMAGE_LAYERS):
        end = mn.Flatten() if i % 2 else mn.GlobalAvgPool()
        spec = mn.Sequential(mn.Conv2d(3, 2, b_std=0.2), layer, mn.Sin(), mn.Conv2d(2, 2, b_std=0.3), end, mn.Dense(2))
        net = mn.Network(spec, PIXELS.shape[1:])
        theta = net.init(rng, ensemble=ensemble)
        found.append((net, theta + 0.3 * rng.standard_normal(theta.shape)))
    return found


def image_adjoint() -> None:
    """<u, J v> = <J' u, v> on images"""
    for net, theta in on_images():
        testing.check_adjoint(net, theta, PIXELS, np.random.default_rng(0))


def image_derivative() -> None:
    """J v = df/ds on images"""
    for net, theta in on_images(*IMAGE_LAYERS, mn.BatchNorm(eps=0.01)):
        testing.check_derivative(net, theta, PIXELS, np.random.default_rng(0))


def image_gram() -> None:
    """gram = J J' on images, by gradients and by pairs of positions"""
    for pairs in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(convgram, "pairs_are_cheaper", lambda *_, pairs=pairs: pairs)
            for net, theta in on_images():
                testing.check_gram(net, theta, PIXELS, np.random.default_rng(0))


def image_ensemble() -> None:
    """members together = apart on images"""
    for net, theta in on_images(*IMAGE_LAYERS, mn.BatchNorm(), ensemble=3):
        testing.check_ensemble(net, theta, PIXELS, np.random.default_rng(0))


def pixel_loops() -> None:
    """a layer = the loop over its pixels"""
    for layer in IMAGE_LAYERS[:7]:
        net = mn.Network(mn.Sequential(layer, mn.Flatten()), PIXELS.shape[1:])
        theta = net.init(np.random.default_rng(0))
        w = net.layout.unpack(theta)
        want = convolution(layer, PIXELS, w["0.W"], w.get("0.b")) if w else pooled(layer, PIXELS)
        assert_close(f"{type(layer).__name__}", net(theta, PIXELS), want.reshape(4, -1), 1e-12)
    net = mn.Network(mn.Sequential(mn.LayerNorm(eps=0.01), mn.Flatten()), PIXELS.shape[1:])
    at = [(n, h, w) for n in range(4) for h in range(4) for w in range(5)]
    assert_close("LayerNorm", net(np.empty(0), PIXELS), loop_norm(at, PIXELS, 0.01).reshape(4, -1), 1e-12)


def ties() -> None:
    """the first maximum in row-major order takes the derivative"""
    _, dx = max_pool(np.array([[0.0, 7.0], [7.0, 7.0]]))
    assert_close("d max / d x", dx, np.array([[0.0, 1.0], [0.0, 0.0]]), 0.0)


def calibrated() -> None:
    """a calibrated network's examples do not see each other"""
    ((net, theta),) = on_images(mn.BatchNorm())
    frozen = net.calibrate(theta, PIXELS)
    assert_close("f of half a batch", frozen(theta, PIXELS[:2]), net(theta, PIXELS)[:2], 1e-12)


def shared_batches() -> None:
    """a batch shared out over the cores = in one piece"""
    for net, theta in on_images():
        g = net.linearize(theta, PIXELS)[1].vjp(np.ones((4, 2)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shares, "LEAST", 0)
            patch.setattr(shares, "cores", lambda: 2)
            J = net.linearize(theta, PIXELS)[1]
            assert_close("J' u", J.vjp(np.ones((4, 2))), g, 1e-12 * np.abs(g).max())


def arranged_layers() -> None:
    """layers arranged for speed = as they are written"""
    for phi in (mn.ReLU(), mn.Abs()):
        spec = mn.Sequential(mn.Conv2d(3, 3, b_std=0.2), phi, mn.MaxPool((2, 2)), mn.Flatten(), mn.Dense(2))
        x = np.random.default_rng(6).standard_normal((4, 4, 6, 3))
        net = mn.Network(spec, x.shape[1:])
        theta = net.init(np.random.default_rng(3))
        with alone():
            want = net.linearize(theta, x)[1].vjp(np.ones((4, 2)))
        got = net.linearize(theta, x)[1].vjp(np.ones((4, 2)))
        assert_close("J' u", got, want, 1e-12 * np.abs(want).max())


# ---------------------------------------------------------------------------------------- the errors


@dataclass(frozen=True)
class Planted:
    """An error: what it is, how to plant it, and the law that must refuse it."""

    error: str
    plant: Callable[[Patch], None]
    law: Callable[[], None]


PLANTED: list[Planted] = []


def planted(error: str, law: Callable[[], None]) -> Callable[[Callable[[Patch], None]], None]:
    """Puts an error on the list."""
    return lambda plant: PLANTED.append(Planted(error, plant, law))


def activation(kind: type[mn.spec.Activation], wrong: Pointwise) -> Callable[[Patch], None]:
    """Plants another phi' for one activation, in networks that are built from now on."""

    def plant(patch: Patch) -> None:
        def lookup(layer: mn.spec.Layer) -> Pointwise:
            return wrong if isinstance(layer, kind) else pointwise(layer)

        patch.setattr("minintk.layers.activation.pointwise", lookup)
        patch.setitem(globals(), "NETWORKS", [chain(phi) for phi in ACTIVATIONS])

    return plant


@planted("Dense: dW without the multiplier", adjoint)
def _(patch: Patch) -> None:
    right = DenseJacobian.vjp

    def vjp(self: DenseJacobian, u: Array, dw: Any) -> Any:
        du = right(self, u, dw)
        if dw is not None:
            dw[self.layer.W] /= self.layer.m
        return du

    patch.setattr(DenseJacobian, "vjp", vjp)


@planted("Dense: no gradient for the bias", adjoint)
def _(patch: Patch) -> None:
    patch.setattr("minintk.layers.dense.sum_rows", lambda u, c: 0 * sum_rows(u, c))


@planted("Dense: gradient of the bias averaged over examples", adjoint)
def _(patch: Patch) -> None:
    patch.setattr("minintk.layers.dense.sum_rows", lambda u, c: sum_rows(u, c) / u.shape[-2])


@planted("Dense: u W for u W' on the way back", adjoint)
def _(patch: Patch) -> None:
    right = DenseJacobian.vjp

    def vjp(self: DenseJacobian, u: Array, dw: Any) -> Any:
        du = right(self, u, dw)
        return du if du is None or du.shape != u.shape else self.r * (u @ self.V)

    patch.setattr(DenseJacobian, "vjp", vjp)


@planted("Dense: jvp forgets the weights' own change", adjoint)
def _(patch: Patch) -> None:
    right = DenseJacobian.jvp

    def jvp(self: DenseJacobian, dw: Any, dx: Any) -> Array:
        return np.asarray(right(self, dw, dx) - self.layer.m * (self.x @ dw[self.layer.W]))

    patch.setattr(DenseJacobian, "jvp", jvp)


@planted("Dense: multiplier twice in jvp, vjp and gram alike", derivative)
def _(patch: Patch) -> None:
    """Consistent with itself: only the network's own outputs can tell."""
    right = BoundDense.__call__

    def call(self: BoundDense, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        return y, DenseJacobian(
            replace(self, weight=replace(self.weight, multiplier=self.m**2)), J.x, self.m * J.V, J.r
        )

    patch.setattr(BoundDense, "__call__", call)


@planted("Dense: gram without the bias", gram)
def _(patch: Patch) -> None:
    right = DenseJacobian.gram

    def wrong(self: DenseJacobian, u: Array, other: DenseJacobian, v: Array, kernel: Any) -> Any:
        return right(replace(self, layer=replace(self.layer, b=None)), u, other, v, kernel)

    patch.setattr(DenseJacobian, "gram", wrong)


@planted("Dense: gram with the multiplier once", gram)
def _(patch: Patch) -> None:
    right = DenseJacobian.gram

    def wrong(self: DenseJacobian, u: Array, other: DenseJacobian, v: Array, kernel: Any) -> Any:
        g = self.layer.m * (self.x @ other.x.swapaxes(-1, -2)) + (0.0 if self.layer.b is None else self.layer.c**2)
        return (kernel(u, v, g), *right(self, u, other, v, kernel)[1:])

    patch.setattr(DenseJacobian, "gram", wrong)


@planted("Dense: all members of an ensemble use the first one's weights", ensemble)
def _(patch: Patch) -> None:
    right = BoundDense.__call__

    def call(self: BoundDense, w: Any, x: Array) -> Any:
        W = w[self.W]
        return right(self, w | {self.W: W if W.ndim == 2 else np.broadcast_to(W[:1], W.shape)}, x)

    patch.setattr(BoundDense, "__call__", call)


@planted("Sequential: gram leaves out the first layer", gram)
def _(patch: Patch) -> None:
    right = ChainJacobian.gram

    def wrong(self: ChainJacobian, u: Array, other: ChainJacobian, v: Array, kernel: Any) -> Any:
        if len(self.links) < 5:
            return right(self, u, other, v, kernel)
        return right(ChainJacobian(self.links[1:]), u, ChainJacobian(other.links[1:]), v, kernel)

    patch.setattr(ChainJacobian, "gram", wrong)


@planted("Residual: vjp forgets the shortcut", adjoint)
def _(patch: Patch) -> None:
    def vjp(self: SumJacobian, u: Array, dw: Any) -> Any:
        self.shortcut.vjp(u, dw)
        return self.branch.vjp(u, dw)

    patch.setattr(SumJacobian, "vjp", vjp)


@planted("Residual: jvp and vjp both forget the branch", derivative)
def _(patch: Patch) -> None:
    patch.setattr(SumJacobian, "jvp", lambda self, dw, dx: self.shortcut.jvp(dw, dx))

    def vjp(self: SumJacobian, u: Array, dw: Any) -> Any:
        self.branch.vjp(0 * u, dw)
        return self.shortcut.vjp(u, dw)

    patch.setattr(SumJacobian, "vjp", vjp)


@planted("Residual: gram forgets the shortcut's weights", gram)
def _(patch: Patch) -> None:
    right = SumJacobian.gram

    def wrong(self: SumJacobian, u: Array, other: SumJacobian, v: Array, kernel: Any) -> Any:
        G = self.branch.gram(u, other.branch, v, kernel)[0]
        return (G, *right(self, u, other, v, kernel)[1:])

    patch.setattr(SumJacobian, "gram", wrong)


for kind, what, wrong in (
    (mn.Tanh, "tanh' = 1 - y", Pointwise(lambda xp, x: xp.tanh(x), lambda xp, y: 1 - y, "y")),
    (mn.ReLU, "ReLU'(x) = 1 where x < 0 too", Pointwise(lambda xp, x: xp.maximum(x, 0), lambda xp, y: 0 * y + 1, "y")),
    (mn.GELU, "GELU' = Phi(x), without x times the density", replace(pointwise(mn.GELU()), dphi=lambda xp, x: pointwise(
        mn.Sigmoid()).phi(xp, 1.702 * x))),
    (mn.Sigmoid, "sigmoid' = y (1 - y) of x for y", replace(pointwise(mn.Sigmoid()), keeps="x")),
    (mn.Softplus, "softplus' without the scale", replace(pointwise(mn.Softplus(2.0, 1.5)), dphi=lambda xp, x: pointwise(
        mn.Sigmoid()).phi(xp, 2.0 * x))),
    (mn.Erf, "erf' without 2 / sqrt(pi)", replace(pointwise(mn.Erf()), dphi=lambda xp, x: xp.exp(-(x**2)))),
):  # fmt: skip
    planted(f"Activation: {what}", derivative)(activation(kind, wrong))

planted("Activation: a NumPy number makes float32 float64", float32)(
    activation(mn.Sin, Pointwise(lambda xp, x: np.float64(1.0) * xp.sin(x), lambda xp, x: xp.cos(x)))
)


def weights_gradient(patch: Patch, wrong: Callable[[ConvJacobian, Array], Array]) -> None:
    """Plants another P(x)' u in place of a convolution's."""
    right = ConvJacobian._weight_gradient
    patch.setattr(ConvJacobian, "_weight_gradient", lambda self, u: wrong(self, right(self, u)))


@planted("Conv: dW without the multiplier", image_adjoint)
def _(patch: Patch) -> None:
    weights_gradient(patch, lambda J, dV: dV / J.layer.m)


@planted("Conv: no gradient for the bias", image_adjoint)
def _(patch: Patch) -> None:
    patch.setattr("minintk.layers.conv.sum_rows", lambda u, c: 0 * sum_rows(u, c))


@planted("Conv: dx one pixel off", image_adjoint)
def _(patch: Patch) -> None:
    right = Patches.add

    def add(self: Patches, P: Array, x: Array) -> None:
        right(self, P, x)
        x[...] = np.roll(x, 1, axis=-2)

    patch.setattr(Patches, "add", add)


@planted("Conv: gradients of windows that share a row of patches not added up", image_adjoint)
def _(patch: Patch) -> None:
    right = Patches.roll

    def roll(self: Patches, V: Array) -> Array:
        return np.asarray(right(self, V) if self.B == 1 else self._bands(V)[..., 0, 0, :, :, :, :])

    patch.setattr(Patches, "roll", roll)


@planted("Conv: kernel upside down, forwards and back alike", pixel_loops)
def _(patch: Patch) -> None:
    right = BoundConv.weights
    patch.setattr(BoundConv, "weights", lambda self, w: right(self, w)[..., ::-1, :, :, :])


@planted("Conv: circular padding of zeros", pixel_loops)
def _(patch: Patch) -> None:
    right = patches._copies
    patch.setattr(patches, "_copies", lambda a: right(replace(a, circular=False)))


@planted("Conv: gram with the multiplier once", image_gram)
def _(patch: Patch) -> None:
    right = convgram.by_gradients

    def wrong(J: ConvJacobian, *rest: Any) -> Any:
        layer = replace(J.layer, weight=replace(J.layer.weight, multiplier=J.layer.m**0.5))
        return right(replace(J, layer=layer), *rest)

    patch.setattr(convgram, "by_gradients", wrong)


@planted("Conv: gram without the bias", image_gram)
def _(patch: Patch) -> None:
    right = convgram.by_gradients
    patch.setattr(convgram, "by_gradients", lambda J, *rest: right(replace(J, layer=replace(J.layer, b=None)), *rest))


@planted("Conv: gram of equal positions only, p = q", image_gram)
def _(patch: Patch) -> None:
    right = convgram.by_pairs

    def wrong(J: ConvJacobian, a: Array, other: ConvJacobian, b: Array, kernel: Any) -> Any:
        total = 0.0
        for p in range(a.shape[-2]):
            u, v = np.zeros_like(a), np.zeros_like(b)
            u[..., p, :], v[..., p, :] = a[..., p, :], b[..., p, :]
            total = total + right(J, u, other, v, kernel)
        return total

    patch.setattr(convgram, "by_pairs", wrong)


@planted("shares: only the first share's gradient counts", shared_batches)
def _(patch: Patch) -> None:
    def vjp(self: SharedJacobian, u: Array, dw: Any) -> Any:
        return self.parts[0].vjp(shares.examples(u, len(self.layer.after), self.shares[0]), dw)

    patch.setattr(SharedJacobian, "vjp", vjp)


@planted("arrange: the pooling takes the pixels as if they came one after the other", arranged_layers)
def _(patch: Patch) -> None:
    right = arrange.phased
    patch.setattr(arrange, "phased", lambda conv, pool: (right(conv, pool)[0], pool))


@planted("arrange: Abs waits for the pooling, as if it were increasing", arranged_layers)
def _(patch: Patch) -> None:
    patch.setattr(arrange, "WAITS", (mn.ReLU, mn.Abs))


@planted("arrange: the bias that waits for the pooling learns from the first pixel only", arranged_layers)
def _(patch: Patch) -> None:
    patch.setattr(BoundBias, "per_channel", lambda self, row: row[..., : self.shape[-1]])


@planted("AvgPool: dx not divided by the window's size", image_adjoint)
def _(patch: Patch) -> None:
    right = AvgPoolJacobian.vjp
    patch.setattr(AvgPoolJacobian, "vjp", lambda self, u, dw: 4 * right(self, u, dw))


@planted("AvgPool: zeros outside the image do not count", pixel_loops)
def _(patch: Patch) -> None:
    right = BoundAvgPool.mean
    patch.setattr(BoundAvgPool, "mean", lambda self, x: right(self, x) / right(self, np.ones_like(x)))


@planted("MaxPool: zeros outside the image count", pixel_loops)
def _(patch: Patch) -> None:
    right = Canvas.pad
    patch.setattr(Canvas, "pad", lambda self, x, outside=0.0: right(self, x))


@planted("MaxPool: dx at the first pixel of each window", image_adjoint)
def _(patch: Patch) -> None:
    def back(self: AxisMax, u: Array) -> Array:
        dx = np.zeros((*u.shape[: max(u.ndim - len(self.shape), 0)], *self.shape))
        dx[pool.offsets(self.a, self.at)[0]] += u
        return dx

    patch.setattr(AxisMax, "back", back)


@planted("MaxPool: the first maximum in column-major order", ties)
def _(patch: Patch) -> None:
    right = pool.axis_max
    order = iter((pool.ROWS, pool.COLUMNS))

    def wrong(x: Array, a: Any, at: int) -> tuple[Array, AxisMax]:
        return right(x, a, next(order))

    patch.setattr(pool, "axis_max", wrong)


@planted("GlobalAvgPool: dx not divided by the number of pixels", image_adjoint)
def _(patch: Patch) -> None:
    right = GlobalJacobian.vjp
    patch.setattr(GlobalJacobian, "vjp", lambda self, u, dw: 20 * right(self, u, dw))


@planted("LayerNorm: mean and variance held fixed in jvp and vjp", image_derivative)
def _(patch: Patch) -> None:
    right = BoundLayerNorm.__call__

    def call(self: BoundLayerNorm, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        return y, replace(J, frozen=True)

    patch.setattr(BoundLayerNorm, "__call__", call)


@planted("LayerNorm: eps added to the deviation, not to the variance", pixel_loops)
def _(patch: Patch) -> None:
    def wrong(x: Array, axes: Any, eps: float) -> Any:
        return x.mean(axes, keepdims=True), 1 / (x.std(axes, keepdims=True) + eps)

    patch.setattr("minintk.layers.norm.statistics", wrong)


@planted("BatchNorm: the batch's statistics held fixed in jvp and vjp", image_derivative)
def _(patch: Patch) -> None:
    right = BoundBatchNorm.__call__

    def call(self: BoundBatchNorm, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        return y, replace(J, frozen=True)

    patch.setattr(BoundBatchNorm, "__call__", call)


@planted("BatchNorm: a calibrated network goes on with the batch's statistics", calibrated)
def _(patch: Patch) -> None:
    patch.setattr(mn.Network, "_with", lambda self, statistics: self)


@planted("BatchNorm: members of an ensemble share their statistics", image_ensemble)
def _(patch: Patch) -> None:
    from minintk.layers import norm

    right = norm.statistics

    def wrong(x: Array, axes: Any, eps: float) -> Any:
        return right(x, (0, *axes) if x.ndim == 5 and len(axes) > 1 else axes, eps)

    patch.setattr(norm, "statistics", wrong)


@planted("init: standard deviation squared", draws)
def _(patch: Patch) -> None:
    right = Layout.init

    def init(self: Layout, *arguments: Any) -> Array:
        tensors = tuple(replace(t, row=replace(t.row, std=t.row.std**2)) for t in self.tensors)
        return right(Layout(tensors), *arguments)

    patch.setattr(Layout, "init", init)


@planted("init: every member of an ensemble is the first one", independent)
def _(patch: Patch) -> None:
    right = Layout.init

    def init(self: Layout, rng: Any, ensemble: Any, dtype: Any) -> Array:
        return np.repeat(right(self, rng, 1, dtype), ensemble, axis=0) if ensemble else right(self, rng, None, dtype)

    patch.setattr(Layout, "init", init)


@planted("init: zero-initialised bias drawn", zero_start)
def _(patch: Patch) -> None:
    patch.setattr("minintk.layers.dense.replace", lambda row, std: replace(row, std=1.0))


def table(kind: type[Any], place: str, **factors: Callable[[int, int], float]) -> Callable[[Patch], None]:
    """Plants factors(fan_in, fan_out) in one place of a parametrization's rows of weights."""

    def plant(patch: Patch) -> None:
        right = kind.row

        def row(self: Any, role: Any, fan_in: int, fan_out: int, sigma: float) -> Row:
            row: Row = right(self, role, fan_in, fan_out, sigma)
            if role.kind == "bias" or role.place != place:
                return row
            return replace(row, **{name: getattr(row, name) * by(fan_in, fan_out) for name, by in factors.items()})

        patch.setattr(kind, "row", row)

    return plant


planted("SpectralMuP: output as hidden layers, 1/sqrt(n)", mup_by_descent)(
    table(mn.SpectralMuP, "output", std=lambda i, o: (i / o) ** 0.5)
)
planted("SpectralMuP: the input's rate without the fan-out", mup_by_descent)(
    table(mn.SpectralMuP, "input", lr=lambda i, o: 64 / o)
)
planted("SpectralMuP: hidden rate of gradient descent 1/fan_in, Adam's", mup_by_descent)(
    table(mn.SpectralMuP, "hidden", lr=lambda i, o: 64 / i)
)
planted("SpectralMuP: Adam's hidden rate 1/sqrt(fan_in)", mup_by_adam)(
    table(mn.SpectralMuP, "hidden", adam=lambda i, o: (i / 64) ** 0.5)
)
planted("MeanField: output divided by sqrt(n), with the rates of n", mean_field)(
    table(mn.MeanField, "output", multiplier=lambda i, o: i**0.5 / 8)
)


@planted("Adam takes the rates of gradient descent", mup_by_adam)
def _(patch: Patch) -> None:
    patch.setattr(Row, "rate", lambda self, rule: self.lr)


@planted("ABC: Adam's shift of c for gradient descent too", equivalent)
def _(patch: Patch) -> None:
    right = mn.ABC.shifted

    def wrong(self: mn.ABC, *by: float) -> mn.ABC:
        return replace(right(replace(self, rule="adam"), *by), rule=self.rule)

    patch.setattr(mn.ABC, "shifted", wrong)


@planted("Linearized: J at theta for J at theta_0", constant)
def _(patch: Patch) -> None:
    def wrong(self: Linearized, theta: Array, x: Array) -> Any:
        theta0 = self._anchor(theta)
        _, J = self.model._linearize(theta, x)
        return self.model._linearize(theta0, x)[0] + J._jvp(theta - theta0), J

    patch.setattr(Linearized, "_linearize", wrong)


@planted("Linearized: theta_0 - theta", linearized)
def _(patch: Patch) -> None:
    def wrong(self: Linearized, theta: Array, x: Array) -> Any:
        theta0 = self._anchor(theta)
        f0, J = self.model._linearize(theta0, x)
        return f0 - J._jvp(theta - theta0), J

    patch.setattr(Linearized, "_linearize", wrong)


@planted("Linearized: half the change", linearized)
def _(patch: Patch) -> None:
    def wrong(self: Linearized, theta: Array, x: Array) -> Any:
        theta0 = self._anchor(theta)
        f0, J = self.model._linearize(theta0, x)
        return f0 + J._jvp(theta - theta0) / 2, J

    patch.setattr(Linearized, "_linearize", wrong)


@planted("Centred: kernel scaled by alpha, not alpha^2", centred)
def _(patch: Patch) -> None:
    right = Scaled._factor

    def factor(self: Scaled) -> Any:
        alpha, J = right(self)
        return alpha**0.5, J

    patch.setattr(Scaled, "_factor", factor)


@planted("Centred: f(theta_0) not scaled by alpha", starts_at_zero)
def _(patch: Patch) -> None:
    def wrong(self: Centred, theta: Array, x: Array) -> Any:
        f, J = self.model._linearize(theta, x)
        return self.alpha * f - self._start._linearize(self._anchor(theta), x)[0], Scaled(J, self.alpha)

    patch.setattr(Centred, "_linearize", wrong)


@planted("IterativelyLinearized: never re-anchors", every_one)
def _(patch: Patch) -> None:
    patch.setattr(IterativelyLinearized, "advance", lambda self, theta: self)


@planted("mean squared loss without 1/2", loss_cotangents)
def _(patch: Patch) -> None:
    patch.setattr(MeanSquared, "__call__", lambda self, f, y: ((f - y) ** 2).sum((-2, -1)) / f.shape[-2])


@planted("mean squared loss: cotangent without 1/N", loss_cotangents)
def _(patch: Patch) -> None:
    patch.setattr(MeanSquared, "cotangent", lambda self, f, y: f - y)


@planted("cross-entropy: cotangent without 1/N", loss_cotangents)
def _(patch: Patch) -> None:
    right = SoftmaxCrossEntropy.cotangent
    patch.setattr(SoftmaxCrossEntropy, "cotangent", lambda self, f, y: f.shape[-2] * right(self, f, y))


@planted("cross-entropy: softmax not normalised", loss_cotangents)
def _(patch: Patch) -> None:
    patch.setattr(
        SoftmaxCrossEntropy, "cotangent", lambda self, f, y: (np.exp(f - f.max(-1, keepdims=True)) - y) / len(f)
    )


def optimizer(patch: Patch, velocity: Callable[..., Array]) -> None:
    """Plants a rule for v, given (v, g, theta) and the settings."""

    def step(self: mn.SGD, theta: Array, g: Array, v: Array, scales: Any) -> None:
        v[...] = velocity(v, g, theta, self.momentum, self.weight_decay)
        theta -= float(self.at(0).lr) * (1.0 if scales is None else scales) * v  # type: ignore[arg-type]

    patch.setattr(mn.SGD, "step", step)


@planted("SGD: momentum with the wrong sign", loop)
def _(patch: Patch) -> None:
    optimizer(patch, lambda v, g, theta, m, wd: -m * v + g + wd * theta)


@planted("SGD: momentum as an average, v = m v + (1 - m) g", loop)
def _(patch: Patch) -> None:
    optimizer(patch, lambda v, g, theta, m, wd: m * v + (1 - m) * (g + wd * theta))


@planted("SGD: weight decay twice", loop)
def _(patch: Patch) -> None:
    optimizer(patch, lambda v, g, theta, m, wd: m * v + g + 2 * wd * theta)


@planted("SGD: weight decay forgotten", loop)
def _(patch: Patch) -> None:
    optimizer(patch, lambda v, g, theta, m, wd: m * v + g)


@planted("train: learning-rate scales ignored", loop)
def _(patch: Patch) -> None:
    patch.setattr(Layout, "learning_rate_scales", lambda self, override=None, rule="sgd": None)


@planted("train: moves the caller's theta", untouched)
def _(patch: Patch) -> None:
    class Careless(training.Descent):
        def __init__(self, model: mn.Model, theta: Array, *rest: Any) -> None:
            super().__init__(model, theta, *rest)
            self.theta = theta

    patch.setattr(training, "Descent", Careless)


@planted("train: mini-batches drawn with replacement", epochs)
def _(patch: Patch) -> None:
    def shuffle(self: Batches, rng: np.random.Generator) -> None:
        self._order = rng.integers(0, len(self.x), len(self.x))

    patch.setattr(Batches, "_shuffle", shuffle)


@planted("train: gradient of all members added up", together)
def _(patch: Patch) -> None:
    right = NetworkJacobian._vjp

    def vjp(self: Any, u: Array, out: Array) -> None:
        right(self, u, out)
        if out.ndim == 2:
            out[...] = out.sum(axis=0)

    patch.setattr(NetworkJacobian, "_vjp", vjp)


@planted("resume: momentum starts anew", resumed)
def _(patch: Patch) -> None:
    right = training.Descent._restore

    def restore(self: training.Descent, state: mn.State) -> None:
        right(self, replace(state, memory=np.zeros_like(state.theta)))

    patch.setattr(training.Descent, "_restore", restore)


@planted("resume: the epoch is drawn anew", resumed)
def _(patch: Patch) -> None:
    patch.setattr(Batches, "restore", lambda self, state: None)


@planted("resume: the generator of now, not of the epoch's start", resumed)
def _(patch: Patch) -> None:
    patch.setattr(Batches, "state", lambda self, step: dict(self.rng.bit_generator.state))


@planted("resume: the anchor is theta_0 again", resumed)
def _(patch: Patch) -> None:
    patch.setattr(IterativelyLinearized, "anchored", lambda self, anchors: self)


@planted("schedule: t counts the coming step", times)
def _(patch: Patch) -> None:
    right = mn.SGD.t
    patch.setattr(mn.SGD, "t", lambda self, steps: right(self, steps + 1))


@planted("schedule: t = first rate x steps", times)
def _(patch: Patch) -> None:
    patch.setattr(mn.SGD, "t", lambda self, steps: self.at(0).lr * steps)


@planted("train: the first rate at every step", times)
def _(patch: Patch) -> None:
    right = mn.SGD.at
    patch.setattr(mn.SGD, "at", lambda self, step: right(self, 0))


@planted("Shift: to the other side", moved)
def _(patch: Patch) -> None:
    right = mn.Shift.__call__
    patch.setattr(mn.Shift, "__call__", lambda self, x, draws: right(self, x, -draws))


@planted("Shift: what leaves on one side returns on the other", moved)
def _(patch: Patch) -> None:
    def roll(self: mn.Shift, x: Array, draws: Array) -> Array:
        return np.stack([np.roll(image, by, axis=(0, 1)) for image, by in zip(x, draws)])

    patch.setattr(mn.Shift, "__call__", roll)


@planted("train: stability bound without N", bound)
def _(patch: Patch) -> None:
    right = training._warn_if_unstable

    def wrong(run: training.Descent) -> None:
        optimizer: Any = run.optimizer
        run.optimizer = replace(optimizer, lr=optimizer.lr * len(run.batches.x))
        right(run)

    patch.setattr(training, "_warn_if_unstable", wrong)


@planted("train: stability bound without 1 + momentum", bound)
def _(patch: Patch) -> None:
    right = training._warn_if_unstable

    def wrong(run: training.Descent) -> None:
        optimizer: Any = run.optimizer
        run.optimizer = replace(optimizer, momentum=0.0)
        right(run)

    patch.setattr(training, "_warn_if_unstable", wrong)


@planted("ntk: examples of a block in the wrong order", blocks)
def _(patch: Patch) -> None:
    right = empirical._block

    def wrong(J1: Any, J2: Any, trace: bool, shares: int) -> Array:
        return np.asarray(right(J1, J2, trace, shares)[:: 1 if J1 is J2 else -1])

    patch.setattr(empirical, "_block", wrong)


# --------------------------------------------------------------------------- errors in the infinite network


def steps_of(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Plants other steps in every kernel's recursion."""
    right = infinite.program

    def program(*arguments: Any) -> Any:
        return tuple(change(step) for step in right(*arguments))

    patch.setattr(infinite, "program", program)


@planted("NTK recursion: Tdot missing", relu_kernel)
def _(patch: Patch) -> None:
    """Theta_(l+1) = K_(l+1) + sigma_w^2 Theta_l: tau = Theta / (2 sqrt(q q')) grows as the variances shrink."""
    rows, pairs = Homogeneous.rows, Homogeneous.pairs

    def wrong_rows(self: Homogeneous, at: Any) -> Any:
        after, row = rows(self, at)
        return replace(after, theta=at.theta), row

    def wrong_pairs(self: Homogeneous, at: Any, row: Any) -> None:
        before = None if at.tau is None else at.tau / (self.alpha**2 + self.beta**2)
        pairs(self, at, row)
        if before is not None:
            at.tau[...] = before

    patch.setattr(Homogeneous, "rows", wrong_rows)
    patch.setattr(Homogeneous, "pairs", wrong_pairs)


@planted("kernel: sigma_b dropped", relu_kernel)
def _(patch: Patch) -> None:
    steps_of(
        patch, lambda step: replace(step, beta2=0.0, rest=0.0) if isinstance(step, analytic.rules.Affine) else step
    )


@planted("kernel: sigma_w for sigma_w^2", relu_kernel)
def _(patch: Patch) -> None:
    steps_of(patch, lambda step: replace(step, w2=step.w2**0.5) if isinstance(step, analytic.rules.Affine) else step)


@planted("ReLU kernel: E phi(z)^2 = q for q / 2", relu_kernel)
def _(patch: Patch) -> None:
    r = 2**0.5
    steps_of(patch, lambda s: replace(s, alpha=r * s.alpha, beta=r * s.beta) if isinstance(s, Homogeneous) else s)


@planted("ReLU kernel: without the square root, sin(a)^2 for sin(a)", relu_kernel)
def _(patch: Patch) -> None:
    pairs = Homogeneous.pairs

    def wrong(self: Homogeneous, at: Any, row: Any) -> None:
        w = np.sqrt(at.p * (1 - at.p))
        pairs(self, at, row)
        at.p += 2 * self.b2 / pi * (w - 2 * w * w)

    patch.setattr(Homogeneous, "pairs", wrong)


@planted("erf kernel: computed as tanh's", erf_kernel)
def _(patch: Patch) -> None:
    wrong = analytic.rules.lower.dispatch(mn.spec.Activation)(mn.Tanh(), None, None)[0]
    steps_of(patch, lambda step: wrong if isinstance(step, analytic.duals.Erf) else step)


@planted("zero-initialised bias counted in the NNGP kernel", zero_bias_kernel)
def _(patch: Patch) -> None:
    def change(step: Any) -> Any:
        if not isinstance(step, analytic.rules.Affine) or step.rest == 0:
            return step
        return replace(step, beta2=step.rest, rest=0.0)

    steps_of(patch, change)


@planted("Residual kernel: the shortcut forgotten", residual_kernel)
def _(patch: Patch) -> None:
    def change(step: Any) -> Any:
        return replace(step, shortcut=step.branch) if isinstance(step, analytic.rules.Sum) else step

    steps_of(patch, change)


@planted("parametrization: fan_out for fan_in", erf_kernel)
def _(patch: Patch) -> None:
    """In the finite network; the infinite one was built from the right row."""
    right = NTK.row
    infinite.program(mn.Sequential(mn.Dense(32, w_std=1.4), mn.Erf(), mn.Dense(16)), NTK(), (3,))
    patch.setattr(NTK, "row", lambda self, role, fan_in, fan_out, sigma: right(self, role, fan_out, fan_in, sigma))


@planted("gradient descent: time divided by N C", closed_form)
def _(patch: Patch) -> None:
    right = analytic.dynamics.GradientDescent.gain
    patch.setattr(
        analytic.dynamics.GradientDescent,
        "gain",
        lambda self, t: self.y.shape[1] * right(replace(self, lr=self.lr / self.y.shape[1]), t) / self.y.shape[1],
    )


@planted("gradient descent: e^(-lr t mu / N) for (1 - lr mu / N)^t", closed_form)
def _(patch: Patch) -> None:
    flow = analytic.dynamics.GradientFlow
    patch.setattr(analytic.dynamics.GradientDescent, "gain", flow.gain)


@planted("gradient flow: the sum loss, no 1/N", flow_limit)
def _(patch: Patch) -> None:
    flow = analytic.dynamics.GradientFlow
    right = flow.gain
    patch.setattr(flow, "gain", lambda self, t: right(self, len(self.y) * t))


def wrong_covariance(patch: Patch, formula: Callable[[Array, Array, Array, Array, Array], Array]) -> None:
    """Plants another covariance, given A, K(X, X), K(x, X), K(x, x) and Theta(X, X)."""
    right = analytic.gp.Ensemble.predict

    def predict(self: Any, x_test: Array, t: Any = np.inf, *, kind: Any = "ntk", cov: bool = False) -> Any:
        mean, _ = right(self, x_test, t, kind=kind, cov=True)
        k, A = self.kernel, []
        for e in np.eye(len(self.x))[:, :, None]:
            flow = analytic.dynamics.gradient_flow(k.ntk(self.x), e, lr=self.lr)
            A.append(flow.predict(t, k.ntk(x_test, self.x)))
        a = np.concatenate(A, axis=1)
        return mean, formula(a, k.nngp(self.x), k.nngp(x_test, self.x), k.nngp(x_test), k.ntk(self.x))

    patch.setattr(analytic.gp.Ensemble, "predict", predict)


@planted("ensemble: cross term of the covariance missing", covariance)
def _(patch: Patch) -> None:
    wrong_covariance(patch, lambda A, K, k, prior, Th: prior + A @ K @ A.T)


@planted("ensemble: cross term of the covariance once, not with its transpose", covariance)
def _(patch: Patch) -> None:
    wrong_covariance(patch, lambda A, K, k, prior, Th: prior + A @ K @ A.T - (A @ k.T + k @ A.T) / 2)


@planted("ensemble: Theta(X, X) for K(X, X) in the covariance", covariance)
def _(patch: Patch) -> None:
    wrong_covariance(patch, lambda A, K, k, prior, Th: prior + A @ Th @ A.T - A @ k.T - k @ A.T)


# ------------------------------------------------------------------------- infinite convolutional networks

IMAGES = np.random.default_rng(5).standard_normal((3, 4, 5, 2))
HALF_BLACK = np.concatenate((IMAGES[:2], 0 * IMAGES[:1]))


def image_network(*middle: mn.spec.Layer, **how: Any) -> mn.Sequential:
    """A convolution, some layers, and a linear output from flattened pixels unless they end otherwise."""
    end = [] if isinstance(middle[-1], mn.GlobalAvgPool) else [mn.Flatten()]
    first = mn.Conv2d(4, 3, w_std=1.3, b_std=0.2, **how)
    return mn.Sequential(first, mn.ReLU(), *middle, *end, mn.Dense(1, w_std=1.3))


def brute_force() -> None:
    """kernels of images = covariances of all pairs of pixels"""
    again = mn.Conv2d(4, 3, w_std=1.3, b_std=0.2)
    for spec in (
        image_network(again, mn.ReLU()),
        image_network(again, mn.Erf(), mn.GlobalAvgPool()),
        image_network(again, mn.LeakyReLU(0.3), mn.GlobalAvgPool()),
        image_network(mn.AvgPool(2, stride=1, padding="same"), again, mn.ReLU(), mn.GlobalAvgPool()),
        image_network(mn.AvgPool(2), mn.GlobalAvgPool(), stride=(1, 2)),
        image_network(again, mn.LayerNorm(eps=0.5), mn.ReLU(), mn.GlobalAvgPool(), padding="circular"),
        image_network(mn.Residual(mn.Sequential(again, mn.ReLU(), mn.Conv2d(4, 3, padding=1))), mn.GlobalAvgPool()),
    ):
        errors = image_errors(an.kernel(spec).both(HALF_BLACK), image_kernels(spec, HALF_BLACK))
        assert max(errors) < 1e-7, f"NNGP, NTK off by {errors[0]:.1e}, {errors[1]:.1e}"


def planted_in_prepare(step: type[Any], change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """Plants other coefficients of a step."""

    def plant(patch: Patch) -> None:
        right = passes.prepare

        def wrong(one: Any, pixels: Any, tile: Any) -> Any:
            after, row = right(one, pixels, tile)
            return after, change(row) if isinstance(one, step) else row

        patch.setattr(passes, "prepare", wrong)

    return plant


planted("convolution: pixels outside next to pixels inside count as equal, D = 0 for q / 2", brute_force)(
    planted_in_prepare(
        Window,
        lambda row: row._replace(
            edges=fields.Edges(
                0 * row.edges.half,
                0 * row.edges.half_sum,
                {s: 0 * v for s, v in row.edges.across.items()},
                {s: 0 * v for s, v in row.edges.along.items()},
            )
        ),
    )
)
planted("convolution: its own share K left out of Theta", brute_force)(
    planted_in_prepare(Window, lambda row: row._replace(owed=(0.0, row.owed[1])))
)
planted("convolution: its own share K of Theta divided by the window's size", brute_force)(
    planted_in_prepare(Window, lambda row: row._replace(owed=(row.owed[0] / 9, row.owed[1])))
)
planted("pooling: D of a pooled pixel's window with itself not taken off", brute_force)(
    planted_in_prepare(Pool, lambda row: row._replace(own=fields.Lay(0 * row.own.left, 0 * row.own.right)))
)
planted("pooling: pixels outside not counted in the window's mean", brute_force)(
    planted_in_prepare(Pool, lambda row: row._replace(share=None, mean=None))
)
planted("layer normalisation of images: Theta and K by 1 / sqrt(q), eps forgotten", brute_force)(
    planted_in_prepare(
        analytic.rules.Normalise,
        lambda row: row._replace(gain=fields.Lay(1 / row.bend.left.clip(1e-3), 1 / row.bend.right.clip(1e-3))),
    )
)


@planted("flattening: the first pixel for the mean over equal pixels", brute_force)
def _(patch: Patch) -> None:
    def first(self: Any) -> None:
        out = self.new((1, 1))
        out[..., :1] = self.a[..., :1]
        self.become(out, (1, 1))

    patch.setattr(fields.Diagonal, "flatten", first)


@planted("circular padding: zeros outside", brute_force)
def _(patch: Patch) -> None:
    right = windows.axis
    patch.setattr(windows, "axis", lambda *five: replace(right(*five), circular=False))
    patch.setattr(infinite, "program", infinite.program.__wrapped__)


@planted("ReLU on images: the share of abs(x) as for Abs", brute_force)
def _(patch: Patch) -> None:
    patch.setattr(Homogeneous, "b2", property(lambda self: 1.0))


# --------------------------------------------------- limits in which features move, finite width, learnability


def of_its_limit(gamma0: float = 1.5) -> None:
    """a network with the moments of infinitely many neurons follows the two-layer limit"""
    n, x, y = 6, inputs(5, 4), inputs(5, 2, seed=1)
    spec = mn.Sequential(mn.Dense(n, w_std=1.3), mn.Dense(2, w_std=0.7))
    neurons = np.linalg.qr(inputs(n, n, seed=2))[0] * n**0.5
    net, alpha = mn.Network(spec, (4,)), 1 / (gamma0 * n**0.5)
    theta0 = net.layout.pack({"0.W": neurons[:, :4].T, "1.W": neurons[:, 4:]})
    model = mn.Centred(net, theta0, alpha)
    *_, flow = mn.flow(model, theta0, x, y, loss=mn.mse, times=[2 / alpha**2], by=mn.Solver())
    assert_close("flow", an.two_layer_limit(spec, x, y, gamma0=gamma0).predict(2.0), flow.f, 1e-6)
    *_, descent = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.1 / alpha**2), steps=10)
    limit = an.deep_linear_limit(spec, x, y, gamma0=gamma0, lr=0.1, steps=10)
    assert_close("descent", limit.predict(10), model(descent.theta, x), 1e-10)


@planted("two layers: features learn at twice their rate", of_its_limit)
def _(patch: Patch) -> None:
    right = limits.TwoLayerLimit._rate

    def wrong(self: limits.TwoLayerLimit, t: float, state: Array) -> Array:
        rate, (r, C) = right(self, t, state), self.problem.sizes
        rate[r * C : r * (C + r)] *= 2
        return rate

    patch.setattr(limits.TwoLayerLimit, "_rate", wrong)


@planted("mean-field theory: gamma0 in place of its square", of_its_limit)
def _(patch: Patch) -> None:
    up = dmft.Layer.up
    patch.setattr(dmft.Layer, "up", lambda self, k, C, gamma2, H, G: up(self, k, C, gamma2**0.5, H, G))


def every_layer() -> None:
    """f = E h g / gamma0 of every hidden layer, and of networks of width 512 up to O(n^-1/2)"""
    spec, steps = mn.Sequential(mn.Dense(512), mn.Dense(512), mn.Dense(1)), 10
    x, y = inputs(3, 3), inputs(3, 1, seed=1)
    limit = an.deep_linear_limit(spec, x, y, gamma0=3.0, lr=0.2, steps=steps)
    eye_h, eye_g = np.tile(np.eye(3), (steps + 1, steps + 1)), np.ones((steps + 1, steps + 1))
    low, high = limit.layers
    for layer, H, G in ((low, eye_h, high.G), (high, low.H, eye_g)):
        assert_close("E h g / gamma0", layer.outputs(steps, H, G), limit.F[steps], 1e-12)
    net = mn.Network(spec, (3,))
    theta0 = net.init(np.random.default_rng(0), ensemble=10)
    model, sgd = mn.Centred(net, theta0, 1 / (3 * 512**0.5)), mn.SGD(lr=0.2 * 9 * 512)
    *_, end = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=sgd, steps=steps)
    assert_close("mean of ten", model(end.theta, x).mean(0), limit.predict(steps), 0.02)


@planted("mean-field theory: no echo of what comes back", every_layer)
def _(patch: Patch) -> None:
    down = dmft.Layer.down

    def deaf(self: dmft.Layer, *rest: Any) -> None:
        down(self, *rest)
        self.B[...] = 0

    patch.setattr(dmft.Layer, "down", deaf)


def exact_moments() -> None:
    """E hatTh and E (hatTh - Th)^2 at width 5"""
    spec = mn.Sequential(mn.Dense(5), mn.ReLU(), mn.Dense(5), mn.ReLU(), mn.Dense(1))
    x = inputs(1, 3)
    found = an.finite_width(spec)
    _, thetas = kernels(spec, x * (3 / (x**2).sum()) ** 0.5, 20_000)
    assert_mean("E hatTh", thetas[:, 0], np.array(found.ntk))
    assert_mean("E (hatTh - Th)^2", (thetas[:, 0] - found.ntk) ** 2, np.array(found.variance))


@planted("finite width: E g^4 = 1 for a Gaussian", exact_moments)
def _(patch: Patch) -> None:
    patch.setattr(fluctuations._Hidden, "fourth", property(lambda h: h.square))


@planted("finite width: gates of fixed number", exact_moments)
def _(patch: Patch) -> None:
    patch.setattr(fluctuations._Hidden, "square", property(lambda h: (h.n * h.m2) ** 2))


def learnable() -> None:
    """eigenvalues of the cube's kernel matrix, and learnabilities that add up to n"""
    kernel = an.kernel(mn.Sequential(mn.Dense(1, b_std=0.3), mn.ReLU(), mn.Dense(1)))
    x = 2.0 * (np.arange(64)[:, None] >> np.arange(6) & 1) - 1
    modes = an.cube_modes(kernel, 6)
    every = np.sort(np.repeat(modes.eigenvalue, modes.multiplicity.astype(int)))
    assert_close("eigenvalues", every, np.linalg.eigvalsh(kernel.ntk(x) / 64), 1e-12)
    K, at = kernel.ntk(x), np.random.default_rng(0).choice(64, 20, replace=False)
    hat = K[:, at] @ np.linalg.inv(K[np.ix_(at, at)])
    learned = an.eigenlearning(modes, 20)
    assert_close("sum of L", modes.multiplicity @ learned.learnability, np.trace(hat[at]), 1e-8)


@planted("modes: a level counted as one function", learnable)
def _(patch: Patch) -> None:
    right = learnability.eigenlearning

    def wrong(modes: an.Modes, n: int, **how: Any) -> Any:
        return right(an.Modes(modes.eigenvalue, np.minimum(modes.multiplicity, 5)), n, **how)

    patch.setattr(an, "eigenlearning", wrong)


@planted("modes: the cosine of j coordinates of d is 1 - j/d", learnable)
def _(patch: Patch) -> None:
    right = modes_module._values
    patch.setattr(modes_module, "_values", lambda k, t, sine, d, kind: right(k, (1 + t) / 2, sine, d, kind))


def curvature() -> None:
    """the second derivative of f = w v x has norm 1"""
    found = kappa(mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,)), np.array([3.0, 4.0]), np.ones((1, 1)))
    assert_close("|D^2 f|", np.array(found.curvature), np.array(1.0), 1e-9)


@planted("kappa: the coefficient D^2 f / 2 in place of the derivative", curvature)
def _(patch: Patch) -> None:
    for name in ("jvp", "vjp"):
        right = getattr(curvature_module._Second, name)
        patch.setattr(curvature_module._Second, name, lambda self, a, right=right: right(self, a) / 2)


# -------------------------------------------------------------------------------------------- the sheet

HEAD = """# Planted errors

A test that cannot fail shows nothing. Each line is a wrong formula, planted in place of the right one, the law that
refused it, and what the law said. Without the error, the same law passes.

`tests/planted.py` holds the errors and prints this page, `tests/test_planted.py` plants them again on every run, and
the laws run over random networks in `tests/test_laws.py` and `tests/test_cross.py`.

| planted error | law that caught it | how it failed |
| --- | --- | --- |
"""


def caught(case: Planted) -> str | None:
    """What the law said with the error planted; None where it let it pass."""
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        try:
            case.law()
        except AssertionError as error:
            return str(error).splitlines()[0]
    return None


def sheet() -> str:
    """The page as it is committed."""
    lines = []
    for case in PLANTED:
        said = (caught(case) or "NOT CAUGHT").replace("|", "\\|")
        lines.append(f"| {case.error.replace('|', chr(92) + '|')} | {case.law.__doc__} | {said} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    print(sheet(), end="")
