"""Errors planted in the finite network: its layers, models, losses and training; see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from planted_laws import (
    ACTIVATIONS,
    Array,
    Patch,
    adjoint,
    arranged_layers,
    blocks,
    bound,
    calibrated,
    centred,
    chain,
    constant,
    derivative,
    draws,
    ensemble,
    epochs,
    equivalent,
    every_one,
    float32,
    gram,
    image_adjoint,
    image_derivative,
    image_ensemble,
    image_gram,
    independent,
    linearized,
    loop,
    loss_cotangents,
    mean_field,
    moved,
    mup_by_adam,
    mup_by_descent,
    pixel_loops,
    resumed,
    shared_batches,
    starts_at_zero,
    ties,
    times,
    together,
    untouched,
    zero_start,
)
from planting import planted

import minintk as mn
from minintk import kernels as empirical
from minintk import training
from minintk.batches import Batches
from minintk.jacobian import NetworkJacobian, Scaled
from minintk.layers import arrange, convgram, patches, pool, shares
from minintk.layers.bias import BoundBias
from minintk.layers.combine import ChainJacobian, SumJacobian
from minintk.layers.conv import BoundConv, ConvJacobian
from minintk.layers.dense import BoundDense, DenseJacobian
from minintk.layers.norm import BoundBatchNorm, BoundLayerNorm
from minintk.layers.patches import Canvas, Patches
from minintk.layers.pool import AvgPoolJacobian, AxisMax, BoundAvgPool, GlobalJacobian
from minintk.layers.products import sum_rows
from minintk.layers.shares import SharedJacobian
from minintk.layout import Layout
from minintk.losses import MeanSquared, SoftmaxCrossEntropy
from minintk.models import Centred, IterativelyLinearized, Linearized
from minintk.parametrization import Row
from minintk.pointwise import Pointwise, pointwise


def activation(kind: type[mn.spec.Activation], wrong: Pointwise) -> Callable[[Patch], None]:
    """Plants another phi' for one activation, in networks that are built from now on."""

    def plant(patch: Patch) -> None:
        def lookup(layer: mn.spec.Layer) -> Pointwise:
            return wrong if isinstance(layer, kind) else pointwise(layer)

        patch.setattr("minintk.layers.activation.pointwise", lookup)
        patch.setattr("planted_laws.NETWORKS", [chain(phi) for phi in ACTIVATIONS])

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
