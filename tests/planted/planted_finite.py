"""Plant errors in the fully connected layers of finite networks (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import minintk as mn
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.branches import SumJacobian
from minintk.layers.combine import ChainJacobian
from minintk.layers.dense import BoundDense, DenseJacobian
from tests.kit.laws import ACTIVATIONS, Array, Patch, adjoint, chain, derivative, ensemble, float32, gram
from tests.planted.planting import (
    bias_by,
    change_gradient,
    first_members_weights,
    gram_with,
    multiplier_twice,
    planted,
    weights_by,
    without_weights,
)


def activation(kind: type[mn.spec.Activation], wrong: Pointwise) -> Callable[[Patch], None]:
    """Plant wrong functions for one activation, and rebuild the networks of the laws with these functions."""

    def plant(patch: Patch) -> None:
        def lookup(layer: mn.spec.Layer) -> Pointwise:
            return wrong if isinstance(layer, kind) else pointwise(layer)

        patch.setattr("minintk.layers.activation.pointwise", lookup)
        patch.setattr("tests.kit.laws.NETWORKS", [chain(phi) for phi in ACTIVATIONS])

    return plant


@planted("Dense: dW without the multiplier", adjoint)
def _(patch: Patch) -> None:
    weights_by(patch, DenseJacobian, lambda J: J.layer.parameters)


@planted("Dense: no gradient for the bias", adjoint)
def _(patch: Patch) -> None:
    bias_by(patch, DenseJacobian, lambda J: J.layer.parameters, 0)


@planted("Dense: gradient of the bias averaged over examples", adjoint)
def _(patch: Patch) -> None:
    def wrong(J: DenseJacobian, u: Array, dw: Any) -> None:
        if J.layer.parameters.b is not None:
            dw[J.layer.parameters.b.name][...] /= u.shape[-2]

    change_gradient(patch, DenseJacobian, wrong)


@planted("Dense: u W for u W' on the way back", adjoint)
def _(patch: Patch) -> None:
    right = DenseJacobian.vjp

    def vjp(self: DenseJacobian, u: Array, dw: Any) -> Any:
        du = right(self, u, dw)
        return du if du is None or du.shape != u.shape else self.layer.parameters.m * (u @ self.W)

    patch.setattr(DenseJacobian, "vjp", vjp)


@planted("Dense: jvp forgets the weights' own change", adjoint)
def _(patch: Patch) -> None:
    without_weights(patch, DenseJacobian)


@planted("Dense: multiplier twice in jvp, vjp and gram alike", derivative)
def _(patch: Patch) -> None:
    multiplier_twice(patch, BoundDense)


@planted("Dense: gram without the bias", gram)
def _(patch: Patch) -> None:
    gram_with(patch, DenseJacobian, lambda p: {"b": None})


@planted("Dense: gram with the multiplier once", gram)
def _(patch: Patch) -> None:
    gram_with(patch, DenseJacobian, lambda p: {"m": p.m**0.5})


@planted("Dense: all members of an ensemble use the first one's weights", ensemble)
def _(patch: Patch) -> None:
    first_members_weights(patch, BoundDense)


@planted("Sequential: gram leaves out the first layer", gram)
def _(patch: Patch) -> None:
    right = ChainJacobian.gram_and_back

    def wrong(self: ChainJacobian, u: Array, other: ChainJacobian, v: Array, kernel: Any) -> Any:
        if len(self.links) < 5:
            return right(self, u, other, v, kernel)
        mine, theirs = (ChainJacobian(J.layers[1:], J.links[1:]) for J in (self, other))
        return right(mine, u, theirs, v, kernel)

    patch.setattr(ChainJacobian, "gram_and_back", wrong)


@planted("Residual: vjp forgets the shortcut", adjoint)
def _(patch: Patch) -> None:
    def vjp(self: SumJacobian, u: Array, dw: Any) -> Any:
        self.parts[1].vjp(u, dw)
        return self.parts[0].vjp(u, dw)

    patch.setattr(SumJacobian, "vjp", vjp)


@planted("Residual: jvp and vjp both forget the branch", derivative)
def _(patch: Patch) -> None:
    patch.setattr(SumJacobian, "jvp", lambda self, dw, dx: self.parts[1].jvp(dw, dx))

    def vjp(self: SumJacobian, u: Array, dw: Any) -> Any:
        self.parts[0].vjp(0 * u, dw)
        return self.parts[1].vjp(u, dw)

    patch.setattr(SumJacobian, "vjp", vjp)


@planted("Residual: gram forgets the shortcut's weights", gram)
def _(patch: Patch) -> None:
    right = SumJacobian.gram_and_back

    def wrong(self: SumJacobian, u: Array, other: SumJacobian, v: Array, kernel: Any) -> Any:
        G = self.parts[0].gram(u, other.parts[0], v, kernel)
        return (G, *right(self, u, other, v, kernel)[1:])

    patch.setattr(SumJacobian, "gram_and_back", wrong)


@planted("Residual: gram sends back through the shortcut twice", gram)
def _(patch: Patch) -> None:
    right = SumJacobian.gram_and_back

    def back(J: Any, u: Array) -> Any:
        return J.parts[0].vjp(u, None) + 2 * J.parts[1].vjp(u, None)

    def wrong(self: SumJacobian, u: Array, other: SumJacobian, v: Array, kernel: Any) -> Any:
        return right(self, u, other, v, kernel)[0], back(self, u), back(other, v)

    patch.setattr(SumJacobian, "gram_and_back", wrong)


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
    activation(mn.Sin, Pointwise(lambda xp, x: xp.float64(1.0) * xp.sin(x), lambda xp, x: xp.cos(x)))
)
