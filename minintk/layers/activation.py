"""Activations:  y = phi(x)

jvp     dy = phi'(x) dx
vjp     dx = phi'(x) u
gram    0: there are no weights
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.contract import Contraction, Gram, Weights, bind, gram_and_back
from minintk.layers.layout import Tensor
from minintk.spec.parametrization import Parametrization
from minintk.spec.pointwise import Pointwise, pointwise
from minintk.spec.shapes import Shape, Site


@dataclass(frozen=True)
class ActivationJacobian:
    """Holds x or y : ([E], N, *shape), whichever phi' is written in."""

    point: Pointwise
    kept: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy = phi'(x) dx."""
        return None if dx is None else dx * self.point.dphi(array_namespace(self.kept), self.kept)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx = phi'(x) u."""
        return u * self.point.dphi(array_namespace(self.kept), self.kept)

    def gram(self, u: Array, other: ActivationJacobian, v: Array, kernel: Contraction) -> Gram:
        """(0, u phi', v phi')."""
        return gram_and_back(self, u, other, v)


@dataclass(frozen=True)
class BoundActivation:
    """phi in its place."""

    point: Pointwise
    shape: Shape
    tensors: tuple[Tensor, ...] = ()

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.shape,)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ActivationJacobian]:
        """y = phi(x)."""
        y = self.point.phi(array_namespace(x), x)
        return y, ActivationJacobian(self.point, x if self.point.keeps == "x" else y)


@bind.register
def _(layer: s.Activation, site: Site, parametrization: Parametrization, name: str) -> BoundActivation:
    return BoundActivation(pointwise(layer), site.shape)
