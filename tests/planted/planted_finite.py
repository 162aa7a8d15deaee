"""Errors planted in the finite network's layers, fully connected; see `planted`."""

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
    chain,
    derivative,
    ensemble,
    float32,
    gram,
)
from planting import planted

import minintk as mn
from minintk.fast.threaded_matmul import sum_rows
from minintk.layers.combine import ChainJacobian, SumJacobian
from minintk.layers.dense import BoundDense, DenseJacobian
from minintk.spec.pointwise import Pointwise, pointwise


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
