"""Plant errors in the infinite network: kernels, dynamics, images and limits (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import pi
from typing import Any

import numpy as np

import analytic as an
import analytic.recursion.rules
import analytic.training.dynamics
import analytic.training.gp
import minintk as mn
from analytic.curves import spectra
from analytic.images import fields, steps
from analytic.images.memory import PixelValues
from analytic.images.pixel_pairs import Diagonal
from analytic.images.rules import Pool, Window
from analytic.limits import deep_linear, finite_width, two_layer
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Affine
from minintk.diagnostics import curvature as curvature_module
from minintk.diagnostics import kappa
from minintk.spec import windows
from minintk.spec.parametrization import NTK
from minintk.testing import assert_close
from tests.kit.laws import Array, Patch, infinite
from tests.kit.laws_infinite import (
    closed_form,
    covariance,
    covariance_in_steps,
    erf_kernel,
    flow_limit,
    heavy_ball,
    relu_kernel,
    residual_kernel,
    zero_bias_kernel,
)
from tests.kit.montecarlo import assert_mean, inputs, kernels
from tests.kit.oracles_kernels import image_errors, image_kernels
from tests.planted.planting import planted

# --------------------------------------------------------------------------- errors in the infinite network


def steps_of(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Apply `change` to every step of every kernel's recursion."""
    right = infinite.program

    def program(*arguments: Any) -> Any:
        return tuple(change(step) for step in right(*arguments))

    patch.setattr(infinite, "program", program)


@planted("NTK recursion: Tdot missing", relu_kernel)
def _(patch: Patch) -> None:
    """Plant Theta_(l+1) = K_(l+1) + sigma_w^2 Theta_l, without the factor for the activation.

    Then tau = Theta / (2 sqrt(q q')) grows as the variances shrink.
    """
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
        patch,
        lambda step: replace(step, beta2=0.0, rest=0.0) if isinstance(step, Affine) else step,
    )


@planted("kernel: sigma_w for sigma_w^2", relu_kernel)
def _(patch: Patch) -> None:
    steps_of(patch, lambda step: replace(step, w2=step.w2**0.5) if isinstance(step, Affine) else step)


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
    wrong = analytic.recursion.rules.lower.dispatch(mn.spec.Activation)(mn.Tanh(), None, None)[0]
    steps_of(patch, lambda step: wrong if getattr(step, "name", None) == "Erf" else step)


@planted("zero-initialised bias counted in the NNGP kernel", zero_bias_kernel)
def _(patch: Patch) -> None:
    def change(step: Any) -> Any:
        if not isinstance(step, Affine) or step.rest == 0:
            return step
        return replace(step, beta2=step.rest, rest=0.0)

    steps_of(patch, change)


@planted("Residual kernel: the shortcut forgotten", residual_kernel)
def _(patch: Patch) -> None:
    def change(step: Any) -> Any:
        return replace(step, shortcut=step.branch) if isinstance(step, analytic.recursion.rules.ResidualSum) else step

    steps_of(patch, change)


@planted("parametrization: fan_out for fan_in", erf_kernel)
def _(patch: Patch) -> None:
    """Change only the finite network. The program of the infinite network was cached with the correct row."""
    right = NTK.row
    infinite.program(mn.Sequential(mn.Dense(32, w_std=1.4), mn.Erf(), mn.Dense(16)), NTK(), (3,))
    patch.setattr(NTK, "row", lambda self, role, fan_in, fan_out, sigma: right(self, role, fan_out, fan_in, sigma))


@planted("gradient descent: time divided by N C", closed_form)
def _(patch: Patch) -> None:
    right = analytic.training.dynamics.GradientDescent.gain
    patch.setattr(
        analytic.training.dynamics.GradientDescent,
        "gain",
        lambda self, t: self.y.shape[1] * right(replace(self, lr=self.lr / self.y.shape[1]), t) / self.y.shape[1],
    )


@planted("gradient descent: e^(-lr t mu / N) for (1 - lr mu / N)^t", closed_form)
def _(patch: Patch) -> None:
    flow = analytic.training.dynamics.GradientFlow
    patch.setattr(analytic.training.dynamics.GradientDescent, "gain", flow.gain)


def wrong_ball(patch: Patch, wrong: Callable[[Any], dict[str, float]]) -> None:
    """Plant wrong constants in the gain of heavy-ball descent. wrong(descent) returns {name: changed constant}."""
    descent = analytic.training.dynamics.GradientDescent
    right = descent.gain
    patch.setattr(descent, "gain", lambda self, t: right(replace(self, **wrong(self)), t))


@planted("heavy ball: v <- m v + (1 - m) grad L", heavy_ball)
def _(patch: Patch) -> None:
    wrong_ball(patch, lambda self: {"lr": self.lr * (1 - self.momentum)})


@planted("heavy ball: lr / (1 - m) in place of the momentum", heavy_ball)
def _(patch: Patch) -> None:
    wrong_ball(patch, lambda self: {"lr": self.lr / (1 - self.momentum), "momentum": 0.0})


@planted("ensemble in steps: the covariance by gradient flow", covariance_in_steps)
def _(patch: Patch) -> None:
    right = analytic.training.gp.Ensemble.dynamics
    flow = analytic.training.dynamics.gradient_flow

    def dynamics(self: Any, kind: Any = "ntk") -> Any:
        return flow(self.block(kind), self.y) if self.by == "descent" else right(self, kind)

    patch.setattr(analytic.training.gp.Ensemble, "dynamics", dynamics)


@planted("ensemble: e_(2t) for e_t^2 where the last layer trains", covariance_in_steps)
def _(patch: Patch) -> None:
    """Plant a formula for the covariance that is correct for gradient flow but wrong with momentum."""
    right = analytic.training.gp.Ensemble.predict

    def predict(self: Any, x_test: Array, t: Any = np.inf, *, kind: Any = "ntk", **how: Any) -> Any:
        mean, spread = right(self, x_test, t, kind=kind, **how)
        if kind == "nngp" and how.get("cov"):
            one, k = self.dynamics(kind), self.kernel.nngp(x_test, self.x)
            q = k @ one.spectrum.Q
            spread = self.kernel.nngp(x_test) - (q * one.gains(2 * t, k)) @ q.T
        return mean, spread

    patch.setattr(analytic.training.gp.Ensemble, "predict", predict)


@planted("std: the variance without its root", covariance)
def _(patch: Patch) -> None:
    right = analytic.training.gp.spread
    patch.setattr(analytic.training.gp, "spread", lambda a, b, prior, eps: right(a, b, prior, eps) ** (3 - prior.ndim))


@planted("gradient flow: the sum loss, no 1/N", flow_limit)
def _(patch: Patch) -> None:
    flow = analytic.training.dynamics.GradientFlow
    right = flow.gain
    patch.setattr(flow, "gain", lambda self, t: right(self, len(self.y) * t))


def wrong_covariance(patch: Patch, formula: Callable[[Array, Array, Array, Array, Array], Array]) -> None:
    """Plant a wrong covariance, formula(A, K(X, X), K(x, X), K(x, x), Theta(X, X))."""
    right = analytic.training.gp.Ensemble.predict

    def predict(self: Any, x_test: Array, t: Any = np.inf, *, kind: Any = "ntk", cov: bool = False) -> Any:
        mean, _ = right(self, x_test, t, kind=kind, cov=True)
        k, A = self.kernel, []
        for e in np.eye(len(self.x))[:, :, None]:
            flow = analytic.training.dynamics.gradient_flow(k.ntk(self.x), e, lr=self.lr)
            A.append(flow.predict(t, k.ntk(x_test, self.x)))
        a = np.concatenate(A, axis=1)
        return mean, formula(a, k.nngp(self.x), k.nngp(x_test, self.x), k.nngp(x_test), k.ntk(self.x))

    patch.setattr(analytic.training.gp.Ensemble, "predict", predict)


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
    """Return a network of a convolution, ReLU, the layers `middle`, and Dense on the flattened or pooled pixels."""
    end = [] if isinstance(middle[-1], mn.GlobalAvgPool) else [mn.Flatten()]
    first = mn.Conv2d(4, 3, w_std=1.3, b_std=0.2, **how)
    return mn.Sequential(first, mn.ReLU(), *middle, *end, mn.Dense(1, w_std=1.3))


def brute_force() -> None:
    """Kernels of images equal those computed from the covariances of all pairs of pixels."""
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
    """Apply `change` to the coefficients that `prepare` returns for steps of class `step`."""

    def plant(patch: Patch) -> None:
        right = steps.prepare

        def wrong(one: Any, pixels: Any, tile: Any) -> Any:
            after, row = right(one, pixels, tile)
            return after, change(row) if isinstance(one, step) else row

        patch.setattr(steps, "prepare", wrong)

    return plant


planted("convolution: pixels outside next to pixels inside count as equal, D = 0 for q / 2", brute_force)(
    planted_in_prepare(
        Window,
        lambda row: row._replace(edges=fields.Edges(0 * row.edges.half, 0 * row.edges.half_sum)),
    )
)
planted("convolution: its own share K left out of Theta", brute_force)(
    planted_in_prepare(Window, lambda row: row._replace(pending=(0.0, row.pending[1])))
)
planted("convolution: its own share K of Theta divided by the window's size", brute_force)(
    planted_in_prepare(Window, lambda row: row._replace(pending=(row.pending[0] / 9, row.pending[1])))
)
planted("pooling: D of a pooled pixel's window with itself not taken off", brute_force)(
    planted_in_prepare(Pool, lambda row: row._replace(own=PixelValues(0 * row.own.left, 0 * row.own.right)))
)
planted("pooling: pixels outside not counted in the window's mean", brute_force)(
    planted_in_prepare(Pool, lambda row: row._replace(share=None, mean=None))
)


def without_eps(row: Any) -> Any:
    """Return coefficients with 1 / sqrt(q) in place of r = 1 / sqrt(q + eps)."""
    s, _, half = row.numbers
    return row._replace(numbers=(s, PixelValues(1 / s.left.clip(1e-3), 1 / s.right.clip(1e-3)), half))


planted("layer normalisation of images: Theta and K by 1 / sqrt(q), eps forgotten", brute_force)(
    planted_in_prepare(analytic.recursion.rules.Normalise, without_eps)
)


@planted("flattening: the first pixel for the mean over equal pixels", brute_force)
def _(patch: Patch) -> None:
    def first(self: Any) -> None:
        out = self.new((1, 1))
        out[..., :1] = self.a[..., :1]
        self.swap_in(out, (1, 1))

    patch.setattr(Diagonal, "flatten", first)


@planted("circular padding: zeros outside", brute_force)
def _(patch: Patch) -> None:
    right = windows.axis
    patch.setattr(windows, "axis", lambda *five: replace(right(*five), circular=False))
    patch.setattr(infinite, "_program", infinite._program.__wrapped__)


@planted("ReLU on images: the share of abs(x) as for Abs", brute_force)
def _(patch: Patch) -> None:
    patch.setattr(Homogeneous, "b2", property(lambda self: 1.0))


# --------------------------------------------------- limits in which features move, finite width, learnability


def of_its_limit(gamma0: float = 1.5) -> None:
    """A network with the moments of infinitely many neurons follows the two-layer limit."""
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
    right = two_layer.TwoLayerLimit._rate

    def wrong(self: two_layer.TwoLayerLimit, t: float, state: Any) -> Any:
        rate, (r, C) = right(self, t, state), self.problem.sizes
        rate[r * C : r * (C + r)] *= 2
        return rate

    patch.setattr(two_layer.TwoLayerLimit, "_rate", wrong)


@planted("mean-field theory: gamma0 in place of its square", of_its_limit)
def _(patch: Patch) -> None:
    right = deep_linear.Signal.advance

    def wrong(self: deep_linear.Signal, k: int, source: Any, driven: Any, gamma2: float, *others: Any) -> None:
        right(self, k, source, driven, gamma2**0.5, *others)

    patch.setattr(deep_linear.Signal, "advance", wrong)


def every_layer() -> None:
    """In the limit, f = E h g / gamma0 in each hidden layer. Ten networks of width 512 have the mean f, up to 0.02."""
    spec, steps = mn.Sequential(mn.Dense(512), mn.Dense(512), mn.Dense(1)), 10
    x, y = inputs(3, 3), inputs(3, 1, seed=1)
    limit = an.deep_linear_limit(spec, x, y, gamma0=3.0, lr=0.2, steps=steps)
    for at in (1, 2):
        found = deep_linear.outputs(steps, *limit.h[at - 1 : at + 1], *limit.g[at - 1 : at + 1])
        assert_close("E h g / gamma0", found, limit.F[steps], 1e-12)
    net = mn.Network(spec, (3,))
    theta0 = net.init(np.random.default_rng(0), ensemble=10)
    model, sgd = mn.Centred(net, theta0, 1 / (3 * 512**0.5)), mn.SGD(lr=0.2 * 9 * 512)
    *_, end = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=sgd, steps=steps)
    assert_close("mean of ten", model(end.theta, x).mean(0), limit.predict(steps), 0.02)


@planted("mean-field theory: no echo of what comes back", every_layer)
def _(patch: Patch) -> None:
    advance = deep_linear.Signal.advance

    def deaf(self: deep_linear.Signal, *rest: Any) -> None:
        advance(self, *rest)
        if self.size == 1:  # g
            self.echo[...] = 0

    patch.setattr(deep_linear.Signal, "advance", deaf)


def exact_moments() -> None:
    """At width 5, networks have the predicted E hatTh and E (hatTh - Th)^2."""
    spec = mn.Sequential(mn.Dense(5), mn.ReLU(), mn.Dense(5), mn.ReLU(), mn.Dense(1))
    x = inputs(1, 3)
    found = an.finite_width(spec)
    _, thetas = kernels(spec, x * (3 / (x**2).sum()) ** 0.5, 20_000)
    assert_mean("E hatTh", thetas[:, 0], np.array(found.ntk))
    assert_mean("E (hatTh - Th)^2", (thetas[:, 0] - found.ntk) ** 2, np.array(found.variance))


@planted("finite width: E g^4 = 1 for a Gaussian", exact_moments)
def _(patch: Patch) -> None:
    patch.setattr(finite_width._Hidden, "fourth", property(lambda h: h.square))


@planted("finite width: gates of fixed number", exact_moments)
def _(patch: Patch) -> None:
    patch.setattr(finite_width._Hidden, "square", property(lambda h: (h.n * h.m2) ** 2))


def learnable() -> None:
    """The eigenvalues on the cube are those of the kernel matrix. Learnabilities add up to the number of examples."""
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
    right = spectra.eigenlearning

    def wrong(modes: an.Modes, n: int, **how: Any) -> Any:
        return right(an.Modes(modes.eigenvalue, np.minimum(modes.multiplicity, 5)), n, **how)

    patch.setattr(an, "eigenlearning", wrong)


@planted("modes: the cosine of j coordinates of d is 1 - j/d", learnable)
def _(patch: Patch) -> None:
    right = spectra._values
    patch.setattr(spectra, "_values", lambda k, t, sine, d, kind: right(k, (1 + t) / 2, sine, d, kind))


def curvature() -> None:
    """The second derivative of f = w v x in the weights w, v has norm 1 at x = 1."""
    found = kappa(mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,)), np.array([3.0, 4.0]), np.ones((1, 1)))
    assert_close("|D^2 f|", np.array(found.curvature), np.array(1.0), 1e-9)


@planted("kappa: the coefficient D^2 f / 2 in place of the derivative", curvature)
def _(patch: Patch) -> None:
    for name in ("jvp", "vjp"):
        right = getattr(curvature_module._Second, name)
        patch.setattr(curvature_module._Second, name, lambda self, a, right=right: right(self, a) / 2)
