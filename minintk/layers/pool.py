"""Pool over the windows of an image.  x[s] contains the pixels at position s of every window.

AvgPool         y = 1/k sum_s x[s]           dx[s] += u / k      k: pixels per window (inside the image if normalised)
MaxPool         y = max_s x[s]               dx[s] += u if x[s] is the first maximum, in row-major order
GlobalAvgPool   y = mean over all pixels     dx = u / (H W) everywhere
gram            0: there are no weights
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import inf, prod

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.layers.patches import Windows, images
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape


@dataclass(frozen=True)
class BoundPool:
    """The windows of a pooling layer, and its input and output shapes for one example."""

    windows: Windows
    before: Shape
    after: Shape
    normalised: bool = False
    tensors: tuple[Tensor, ...] = ()


# --------------------------------------------------------------------------------------------- AvgPool


@dataclass(frozen=True)
class AvgPoolJacobian(LayerJacobian):
    """The Jacobian of AvgPool.  The map is linear, so only the layer's windows are needed."""

    layer: BoundAvgPool

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = 1/k sum_s dx[s]."""
        return None if dx is None else self.layer.mean(dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Add u / k to dx[s] for every s."""
        layer, windows = self.layer, self.layer.windows
        u = layer.over_k(images(u, layer.after))
        dx = array_namespace(u).zeros((*u.shape[:-3], *windows.size, u.shape[-1]), dtype=u.dtype)
        for pixels in windows.offsets:
            dx[pixels] += u
        dx = windows.crop(dx)
        return dx.reshape((*dx.shape[:-3], *layer.before))


@dataclass(frozen=True)
class BoundAvgPool(BoundPool):
    """An AvgPool layer bound to a network."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, AvgPoolJacobian]:
        """Compute y = 1/k sum_s x[s]."""
        return self.mean(x), AvgPoolJacobian(self)

    def mean(self, x: Array) -> Array:
        """Return the mean over each window."""
        x = self.windows.pad(images(x, self.before))
        first, *others = self.windows.offsets
        y = self.over_k(reduce(lambda y, pixels: y + x[pixels], others, x[first]))
        return y.reshape((*y.shape[:-3], *self.after))

    def over_k(self, sums: Array) -> Array:
        """Divide sums over windows by k.  sums : (..., H', W', C)."""
        if not self.normalised:
            return sums / prod(self.windows.window)
        xp, (rows, columns) = array_namespace(sums), (self.windows.rows.inside, self.windows.columns.inside)
        return sums / xp.asarray([[[n * m] for m in columns] for n in rows], dtype=sums.dtype)


@bind.register
def _(layer: s.AvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundAvgPool:
    return BoundAvgPool(
        Windows.of(layer, site.shape), site.shape, out_shape(layer, site.shape), bool(layer.normalize_edges)
    )


# --------------------------------------------------------------------------------------------- MaxPool


@dataclass(frozen=True)
class MaxPoolJacobian(LayerJacobian):
    """The Jacobian of MaxPool.   first[s] : (..., N, H', W', C), True where x[s] is the first maximum."""

    layer: BoundMaxPool
    first: list[Array]

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = dx[s] at the position s of the maximum."""
        if dx is None:
            return None
        layer = self.layer
        dx = layer.windows.pad(images(dx, layer.before))
        parts = [here * dx[pixels] for pixels, here in zip(layer.windows.offsets, self.first, strict=True)]
        return sum(parts[1:], parts[0]).reshape((*parts[0].shape[:-3], *layer.after))

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Add u to dx[s] at the position s of the maximum."""
        layer, windows, xp = self.layer, self.layer.windows, array_namespace(u)
        u = images(u, layer.after)
        shape = (*(u[..., :1, :1, :1] * self.first[0][..., :1, :1, :1]).shape[:-3], *windows.size, u.shape[-1])
        dx = xp.zeros(shape, dtype=u.dtype)
        for pixels, here in zip(windows.offsets, self.first, strict=True):
            if windows.apart:
                xp.multiply(here, u, out=dx[pixels])
            else:
                dx[pixels] += here * u
        dx = windows.crop(dx)
        return dx.reshape((*dx.shape[:-3], *layer.before))


@dataclass(frozen=True)
class BoundMaxPool(BoundPool):
    """A MaxPool layer bound to a network."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, MaxPoolJacobian]:
        """Compute y = max_s x[s]."""
        xp, x = array_namespace(x), self.windows.pad(images(x, self.before), -inf)
        places = [xp.asarray(x[pixels], copy=True) for pixels in self.windows.offsets]
        y = reduce(xp.maximum, places)
        first = [places[0] == y]
        found = first[0]
        for pixels in places[1:]:
            first.append((pixels == y) & ~found)
            found = found | first[-1]
        return y.reshape((*y.shape[:-3], *self.after)), MaxPoolJacobian(self, first)


@bind.register
def _(layer: s.MaxPool, site: Site, parametrization: Parametrization, name: str) -> BoundMaxPool:
    return BoundMaxPool(Windows.of(layer, site.shape), site.shape, out_shape(layer, site.shape))


# --------------------------------------------------------------------------------------- GlobalAvgPool


@dataclass(frozen=True)
class GlobalAvgPoolJacobian(LayerJacobian):
    """The Jacobian of GlobalAvgPool.  The map is linear, so only the shape of one example is needed."""

    shape: Shape

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = mean of dx over all pixels."""
        return None if dx is None else global_mean(dx, self.shape)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute dx = u / (H W) at every pixel."""
        *pixels, C = self.shape
        u = (u / prod(pixels)).reshape((*u.shape[:-1], *(1 for _ in pixels), C))
        return array_namespace(u).broadcast_to(u, (*u.shape[: -len(self.shape)], *self.shape))


@dataclass(frozen=True)
class BoundGlobalAvgPool:
    """A GlobalAvgPool layer bound to a network."""

    shape: Shape
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, GlobalAvgPoolJacobian]:
        """Compute y = mean of x over all pixels."""
        return global_mean(x, self.shape), GlobalAvgPoolJacobian(self.shape)


def global_mean(x: Array, shape: Shape) -> Array:
    """Return the mean over all axes of an example except the last."""
    return array_namespace(x).mean(x, axis=tuple(range(-len(shape), -1)))


@bind.register
def _(layer: s.GlobalAvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundGlobalAvgPool:
    return BoundGlobalAvgPool(site.shape)
