"""Compute LayerNorm and BatchNorm:  y = r (x - mean),   r = 1 / sqrt(variance + eps)

LayerNorm averages over the last axis (or given axes), BatchNorm over batch and pixels.  The averages depend on x, so

jvp     dy = r (dx - mean(dx) - y mean(y dx))
vjp     the same map, because it is symmetric
gram    0: there are no weights

A calibrated BatchNorm has a frozen mean and r:  dy = r dx.
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site


@dataclass(frozen=True)
class NormJacobian(LayerJacobian):
    """The Jacobian at y : ([E], N, *shape).  axes : the axes of the statistics.  frozen : True if dy = r dx."""

    y: Array
    r: Array
    axes: tuple[int, ...]
    frozen: bool = False

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = r (dx - mean(dx) - y mean(y dx)), or dy = r dx if frozen."""
        return None if dx is None else self.vjp(dx, None)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Apply the map of `jvp`, which is symmetric."""
        if self.frozen:
            return self.r * u
        du = self.y * -mean_over(self.axes, self.y * u)
        du += u - mean_over(self.axes, u)
        du *= self.r
        return du


UNCALIBRATED = (
    "a network with BatchNorm has no kernel yet, nor has one with masks: each example's output depends on all the "
    "others, or on its place in the batch; freeze them first, net = net.calibrate(theta, x)"
)


def mean_over(axes: tuple[int, ...], a: Array) -> Array:
    """Return the mean over these axes, which remain with length 1.  Sums in float32 would lose many equal pixels."""
    xp = array_namespace(a)
    total = xp.sum(a, axis=axes, keepdims=True, dtype=xp.float64)
    return xp.astype(total / (a.size / total.size), a.dtype)


def statistics(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array]:
    """Return (mean, r) over the given axes, which remain as axes of length 1."""
    xp, mean = array_namespace(x), mean_over(axes, x)
    centred = x - mean
    variance = mean_over(axes, centred * centred)
    if eps == 0 and not bool(xp.all(variance > 0)):
        raise ValueError("LayerNorm(eps=0.0) got features that are all equal, of variance 0: take eps > 0")
    return mean, 1 / xp.sqrt(variance + eps)


@dataclass(frozen=True)
class BoundLayerNorm:
    """A LayerNorm layer bound to a network."""

    eps: float
    axes: tuple[int, ...]
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, NormJacobian]:
        """Compute y = r (x - mean)."""
        mean, r = statistics(x, self.axes, self.eps)
        y = r * (x - mean)
        return y, NormJacobian(y, r, self.axes)


@dataclass(frozen=True)
class BoundBatchNorm:
    """A BatchNorm layer bound to a network.  name : the prefix of the names of its stored statistics."""

    name: str
    shape: Shape
    eps: float
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, NormJacobian]:
        """Compute y = r (x - mean) with the statistics in w.  If w contains none, first store those of x in w."""
        names, ones = (f"{self.name}.mean", f"{self.name}.r"), (1,) * len(self.shape)
        axes, frozen = tuple(range(-1 - len(self.shape), -1)), names[0] in w
        if frozen:
            mean, r = (w[name].reshape((*w[name].shape[:-1], *ones, -1)) for name in names)
        else:
            mean, r = statistics(x, axes, self.eps)
            w |= {name: a.reshape((*a.shape[: -1 - len(ones)], -1)) for name, a in zip(names, (mean, r), strict=True)}
        y = r * (x - mean)
        return y, NormJacobian(y, r, axes, frozen)


@bind.register
def _(layer: s.LayerNorm, site: Site, parametrization: Parametrization, name: str) -> BoundLayerNorm:
    return BoundLayerNorm(float(layer.eps), layer.over)


@bind.register
def _(layer: s.BatchNorm, site: Site, parametrization: Parametrization, name: str) -> BoundBatchNorm:
    return BoundBatchNorm(name, site.shape, float(layer.eps))
