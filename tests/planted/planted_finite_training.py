"""Plant errors in initialisation, rates, models, losses and training of finite networks (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import minintk as mn
from minintk.beyond import hierarchy
from minintk.beyond.hierarchy import Hierarchy
from minintk.diagnostics import curvature
from minintk.layers.contract import Contraction, Layout, WeightAndBias
from minintk.models.jacobian import NetworkJacobian
from minintk.models.wrappers import Scaled
from minintk.spec.parametrization import Row
from minintk.training import losses
from minintk.training import train as training
from minintk.training.batches import Batches
from minintk.training.kernel_descent import FromKernel, InCoefficients
from minintk.training.losses import MeanSquared, SoftmaxCrossEntropy
from tests.kit.laws import (
    Array,
    Patch,
    blocks,
    bound,
    centred,
    constant,
    draws,
    epochs,
    equivalent,
    every_one,
    floating_losses,
    hierarchy_in_time,
    independent,
    linearized,
    loop,
    loss_cotangents,
    mean_field,
    moved,
    mup_by_adam,
    mup_by_descent,
    nan_losses,
    on_a_kernel,
    pickled,
    resumed,
    sharpest,
    stable_rates,
    starts_at_zero,
    subsets,
    times,
    together,
    untouched,
    zero_start,
)
from tests.planted.planting import planted


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
    patch.setattr("minintk.layers.contract.replace", lambda row, std: replace(row, std=1.0))


def table(kind: type[Any], place: str, **factors: Callable[[int, int], float]) -> Callable[[Patch], None]:
    """Multiply entries of a parametrization's row for the weights at `place` by factors[name](fan_in, fan_out)."""

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
    def wrong(self: mn.Linearized, theta: Array, x: Array) -> Any:
        theta0 = self.theta0
        _, J = self.model.forward(theta, x)
        return self.model.forward(theta0, x)[0] + J.push(theta - theta0), J

    patch.setattr(mn.Linearized, "forward", wrong)


@planted("Linearized: theta_0 - theta", linearized)
def _(patch: Patch) -> None:
    def wrong(self: mn.Linearized, theta: Array, x: Array) -> Any:
        theta0 = self.theta0
        f0, J = self.model.forward(theta0, x)
        return f0 - J.push(theta - theta0), J

    patch.setattr(mn.Linearized, "forward", wrong)


@planted("Linearized: half the change", linearized)
def _(patch: Patch) -> None:
    def wrong(self: mn.Linearized, theta: Array, x: Array) -> Any:
        theta0 = self.theta0
        f0, J = self.model.forward(theta0, x)
        return f0 + J.push(theta - theta0) / 2, J

    patch.setattr(mn.Linearized, "forward", wrong)


@planted("Centred: kernel scaled by alpha, not alpha^2", centred)
def _(patch: Patch) -> None:
    right = Scaled.contract
    patch.setattr(Scaled, "contract", lambda self, other, kernel: right(self, other, kernel) / self.alpha)


@planted("Centred: f(theta_0) not scaled by alpha", starts_at_zero)
def _(patch: Patch) -> None:
    def wrong(self: mn.Centred, theta: Array, x: Array) -> Any:
        f, J = self.model.forward(theta, x)
        return self.alpha * f - self._start.forward(self.theta0, x)[0], Scaled(J, self.alpha)

    patch.setattr(mn.Centred, "forward", wrong)


@planted("IterativelyLinearized: never re-anchors", every_one)
def _(patch: Patch) -> None:
    patch.setattr(mn.IterativelyLinearized, "advance", lambda self, theta: self)


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
    """Plant the rule v <- velocity(v, g, theta, momentum, weight_decay) in SGD."""

    def step(self: mn.SGD, theta: Array, g: Array, v: Array, scales: Any) -> None:
        s = np.ones_like(theta) if scales is None else scales
        v[...] = velocity(v, s * g, theta, self.momentum, self.weight_decay * (s > 0))
        theta -= float(self.at(0).lr) * v  # type: ignore[arg-type]

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
    patch.setattr(Layout, "learning_rate_scales", lambda self, override=None, rule="sgd", **_: None)


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
    right = NetworkJacobian.pull

    def vjp(self: Any, u: Array, out: Array) -> None:
        right(self, u, out)
        if out.ndim == 2:
            out[...] = out.sum(axis=0)

    patch.setattr(NetworkJacobian, "pull", vjp)


@planted("resume: momentum starts again", resumed)
def _(patch: Patch) -> None:
    right = training.Descent.restore

    def restore(self: training.Descent, state: mn.State) -> None:
        right(self, replace(state, memory=np.zeros_like(state.theta)))

    patch.setattr(training.Descent, "restore", restore)


@planted("resume: the epoch is drawn again", resumed)
def _(patch: Patch) -> None:
    patch.setattr(Batches, "restore", lambda self, state: None)


@planted("resume: the generator of now, not of the epoch's start", resumed)
def _(patch: Patch) -> None:
    patch.setattr(Batches, "state", lambda self, step: dict(self.rng.bit_generator.state))


@planted("resume: the anchor is theta_0 again", resumed)
def _(patch: Patch) -> None:
    patch.setattr(mn.IterativelyLinearized, "anchored", lambda self, anchors: self)


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
    right = training.warn_if_unstable

    def wrong(run: training.Descent, stacklevel: int = 3) -> None:
        optimizer: Any = run.optimizer
        run.optimizer = replace(optimizer, lr=optimizer.lr * len(run.batches.x))
        right(run, stacklevel)

    patch.setattr(training, "warn_if_unstable", wrong)


@planted("train: stability bound without 1 + momentum", bound)
def _(patch: Patch) -> None:
    right = training.warn_if_unstable

    def wrong(run: training.Descent, stacklevel: int = 3) -> None:
        optimizer: Any = run.optimizer
        run.optimizer = replace(optimizer, momentum=0.0)
        right(run, stacklevel)

    patch.setattr(training, "warn_if_unstable", wrong)


@planted("ntk: examples of a block in the wrong order", blocks)
def _(patch: Patch) -> None:
    right = NetworkJacobian.gram_by

    def wrong(self: Any, other: Any, kernel: Any) -> Array:
        return np.asarray(right(self, other, kernel)[:: 1 if other is None else -1])

    patch.setattr(NetworkJacobian, "gram_by", wrong)


@planted("ntk of some tensors: a bias counts with its layer's weights", subsets)
def _(patch: Patch) -> None:
    def squares(self: WeightAndBias, kernel: Any) -> tuple[float, float]:
        S = kernel.scale(self.W)
        return S * self.m**2, 0.0 if self.b is None else S * self.c**2 + 0 * kernel.scale(self.b)

    patch.setattr(WeightAndBias, "squares", squares)


@planted("ntk of some tensors: S^2 for S", subsets)
def _(patch: Patch) -> None:
    right = Contraction.scale
    patch.setattr(Contraction, "scale", lambda self, tensor: right(self, tensor) ** 2)


@planted("kernel descent: a batch's gradient over N, not over its own size", on_a_kernel)
def _(patch: Patch) -> None:
    right = InCoefficients.pull
    patch.setattr(InCoefficients, "pull", lambda self, u, out: right(self, u * u.shape[-2] / self.model.N, out))


@planted("kernel descent: f = K a, without the outputs at the start", on_a_kernel)
def _(patch: Patch) -> None:
    right = FromKernel.forward

    def forward(self: FromKernel, theta: Array, x: Array) -> Any:
        _, J = right(self, theta, x)
        return J.push(theta), J

    patch.setattr(FromKernel, "forward", forward)


@planted("hierarchy: O3 = 2 D^2f_a[grad f_b, grad f_c], not symmetric in a and b", hierarchy_in_time)
def _(patch: Patch) -> None:
    patch.setattr(hierarchy, "_symmetric", lambda a: 2 * a)


@planted("hierarchy: O4 without the change of grad f_c along grad f_d", hierarchy_in_time)
def _(patch: Patch) -> None:
    patch.setattr(Hierarchy, "along", lambda self, d: 0 * self.theta_0)


@planted("hierarchy: O4 without D^3f", hierarchy_in_time)
def _(patch: Patch) -> None:
    right = Hierarchy.expansion
    patch.setattr(Hierarchy, "expansion", lambda self, d, order: right(self, d, 2))


@planted("hierarchy: gradients pulled back without the learning-rate scales", hierarchy_in_time)
def _(patch: Patch) -> None:
    patch.setattr(Hierarchy, "pull", lambda self, J, u: J.vjp(u))


@planted("sharpness: Gauss-Newton alone, without D^2(r . f)", sharpest)
def _(patch: Patch) -> None:
    patch.setattr(mn.Network, "expand", lambda self, theta, d, x, order: (None, self.forward(theta, x)[1]))


@planted("sharpness: without the learning-rate scales", sharpest)
def _(patch: Patch) -> None:
    patch.setattr(Layout, "learning_rate_scales", lambda self, *a, **k: None)


@planted("sharpness: cross-entropy's second derivative without - p p'", sharpest)
def _(patch: Patch) -> None:
    right = SoftmaxCrossEntropy._probabilities
    patch.setattr(SoftmaxCrossEntropy, "hessian", lambda self, f, y, v: right(self, f, y) * v / f.shape[-2])


def forgets(*names: str) -> Callable[[Patch], None]:
    """Plant an error: pickles contain default values of the attributes `names`, taken from a new network."""

    def plant(patch: Patch) -> None:
        right, new = mn.Network.__getstate__, vars(mn.Network(mn.Dense(1), (1,)))
        patch.setattr(mn.Network, "__getstate__", lambda self: right(self) | {name: new[name] for name in names})

    return plant


planted("pickle: statistics of BatchNorm left out", pickled)(forgets("statistics"))
planted("pickle: keys of masks left out", pickled)(forgets("keys"))
planted("pickle: parametrization left out", pickled)(forgets("parametrization"))


@planted("max_learning_rate: of the mean over outputs, mn.ntk", stable_rates)
def _(patch: Patch) -> None:
    def wrong(model: Any, theta: Array, x: Array, loss: Any, momentum: float = 0.0, **_: Any) -> float:
        lead = float(np.linalg.eigvalsh(mn.ntk(model, theta, x))[-1])
        return 2 * (1 + momentum) * len(x) / lead / (getattr(loss, "curvature", None) or 1.0)

    patch.setattr(mn, "max_learning_rate", wrong)


@planted("max_learning_rate: without the learning-rate scales", stable_rates)
def _(patch: Patch) -> None:
    patch.setattr(curvature, "_check_descent", lambda *arguments: 1.0)


@planted("max_learning_rate: cross-entropy's curvature 1/N, as of a squared loss", stable_rates)
def _(patch: Patch) -> None:
    patch.setattr(SoftmaxCrossEntropy, "hessian", lambda self, f, y, v: v / f.shape[-2])


@planted("losses: numbers taken as they come", floating_losses)
def _(patch: Patch) -> None:
    patch.setattr(losses, "check_floating", lambda name, a: None)


@planted("Hinge: the slope of a margin that is NaN is 0", nan_losses)
def _(patch: Patch) -> None:
    def cotangent(self: mn.Hinge, f: Array, y: Array) -> Array:
        return np.where(y * f < 1, -y * self._share(f), np.zeros_like(f))

    patch.setattr(mn.Hinge, "cotangent", cotangent)
