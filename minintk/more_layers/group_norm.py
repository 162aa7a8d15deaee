"""Compute GroupNorm:  y = r (x - mean),   r = 1 / sqrt(variance + eps)

For each example, the mean and the variance are computed over all pixels and one group of channels.  Both depend on x:

jvp     dy = r (dx - mean(dx) - y mean(y dx))
vjp     the same map, which is its own transpose
gram    0: there are no weights
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk import spec as s
from minintk.arrays import Array
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.layers.norm import NormJacobian, statistics
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape
from minintk.validate import number, whole


@dataclass(frozen=True)
class GroupNorm(s.Layer):
    """y = (x - mean) / sqrt(variance + eps), over all pixels and C / groups channels of each example (Wu, He 2018).

    groups : a divisor of the number of channels C.  One group gives LayerNorm over all axes, and C groups InstanceNorm.

    Raises ValueError if `groups` does not divide the number of channels.

    >>> out_shape(GroupNorm(4), (7, 7, 16))
    (7, 7, 16)
    """

    groups: int
    eps: float = 1e-5

    def __post_init__(self) -> None:
        whole("GroupNorm(groups=...)", self.groups)
        number("GroupNorm(eps=...)", self.eps)


@out_shape.register
def _(layer: GroupNorm, shape: Shape) -> Shape:
    if shape[-1] % layer.groups:
        raise ValueError(f"{layer!r} expects channels that its groups divide, got examples of shape {shape}")
    return shape


@dataclass(frozen=True)
class GroupNormJacobian(LayerJacobian):
    """The Jacobian of GroupNorm.   norm : the Jacobian for x reshaped to (..., *pixels, groups, C / groups)."""

    layer: BoundGroupNorm
    norm: NormJacobian

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = r (dx - mean(dx) - y mean(y dx))."""
        return None if dx is None else self.vjp(dx, None)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Apply the map of `jvp`, which is symmetric."""
        return self.layer.joined(self.norm.vjp(self.layer.split(u), None))


@dataclass(frozen=True)
class BoundGroupNorm:
    """A GroupNorm layer bound to a network."""

    groups: int
    eps: float
    shape: Shape
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, GroupNormJacobian]:
        """Compute y = r (x - mean)."""
        x, axes = self.split(x), (*range(-1 - len(self.shape), -2), -1)
        mean, r = statistics(x, axes, self.eps)
        y = r * (x - mean)
        return self.joined(y), GroupNormJacobian(self, NormJacobian(y, r, axes))

    def split(self, x: Array) -> Array:
        """Reshape (..., C) to (..., groups, C / groups)."""
        return x.reshape((*x.shape[:-1], self.groups, x.shape[-1] // self.groups))

    def joined(self, x: Array) -> Array:
        """Reshape (..., groups, C / groups) to (..., C)."""
        return x.reshape((*x.shape[:-2], self.shape[-1]))


@bind.register
def _(layer: GroupNorm, site: Site, parametrization: Parametrization, name: str) -> BoundGroupNorm:
    return BoundGroupNorm(int(layer.groups), float(layer.eps), out_shape(layer, site.shape))
