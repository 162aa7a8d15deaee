"""Pooling, one axis of the image after the other: the columns of each row of pixels, then the rows.

AvgPool         y[p] = 1/k sum_s x[stride p + s]         dy the same,  dx[stride p + s] += u[p] / k
MaxPool         y[p] = max_s x[stride p + s]             dy[p] = dx[where it is],  dx[where it is] += u[p]
GlobalAvgPool   y = mean over all pixels                 dx = u / (H W) everywhere

The first of equal maxima counts, in row-major order: the first row that holds it, and there the first column.
gram            0: there are no weights
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from types import EllipsisType

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.fast.patches import Canvas, images
from minintk.layers.contract import Contraction, Gram, Weights, bind, gram_and_back
from minintk.layers.layout import Tensor
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape
from minintk.spec.windows import Axis, axes

COLUMNS, ROWS = -2, -3


def offsets(a: Axis, at: int) -> list[tuple[slice | EllipsisType, ...]]:
    """For s = 0 ... k - 1 the index of the pixels x[stride p + s] along axis `at` of a padded image."""
    behind = (slice(None),) * (-1 - at)
    return [(..., slice(k, k + a.stride * (a.out - 1) + 1, a.stride), *behind) for k in range(a.kernel)]


# --------------------------------------------------------------------------------------------- AvgPool


@dataclass(frozen=True)
class AvgPoolJacobian:
    """Linear: holds nothing but the geometry."""

    layer: BoundAvgPool

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy as y from x."""
        return None if dx is None else self.layer.mean(dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx[stride p + s] += u[p] / k."""
        layer = self.layer
        u = images(u, layer.after)
        u = u * (1 / (layer.canvas.rows.kernel * layer.canvas.columns.kernel))
        for at, a in ((COLUMNS, layer.canvas.columns), (ROWS, layer.canvas.rows)):
            shape = list(u.shape)
            shape[at] = a.before + a.size + a.after
            dx = array_namespace(u).zeros(tuple(shape), dtype=u.dtype)
            for where in offsets(a, at):
                dx[where] += u
            u = dx
        dx = layer.canvas.crop(u)
        return dx.reshape((*dx.shape[:-3], *layer.before))

    def gram(self, u: Array, other: AvgPoolJacobian, v: Array, kernel: Contraction) -> Gram:
        return gram_and_back(self, u, other, v)


@dataclass(frozen=True)
class BoundAvgPool:
    """AvgPool in its place."""

    before: Shape
    after: Shape
    canvas: Canvas
    tensors: tuple[Tensor, ...] = ()

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.after,)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, AvgPoolJacobian]:
        """y[p] = 1/k sum_s x[stride p + s]."""
        return self.mean(x), AvgPoolJacobian(self)

    def mean(self, x: Array) -> Array:
        """The mean over each window."""
        x = self.canvas.pad(images(x, self.before))
        for at, a in ((ROWS, self.canvas.rows), (COLUMNS, self.canvas.columns)):
            first, *others = offsets(a, at)
            y = x[first] * (1 / a.kernel)
            for where in others:
                y += x[where] * (1 / a.kernel)
            x = y
        return x.reshape((*x.shape[:-3], *self.after))


# --------------------------------------------------------------------------------------------- MaxPool


@dataclass(frozen=True)
class AxisMax:
    """y[p] = max_s x[stride p + s] along one axis.

    Holds the shape of x, and for s = 0 ... k - 2 whether a window's first maximum is its pixel s; else it is the last.
    """

    a: Axis
    at: int
    shape: tuple[int, ...]
    first: tuple[Array, ...]

    def forward(self, dx: Array) -> Array:
        """dy[p] = dx[where the first maximum is]."""
        *others, last = offsets(self.a, self.at)
        dy = dx[last]
        for where, here in zip(others, self.first, strict=True):
            dy = array_namespace(dx).where(here, dx[where], dy)
        return dy

    def back(self, u: Array) -> Array:
        """dx[where the first maximum is] += u[p]."""
        *others, last = offsets(self.a, self.at)
        xp, apart = array_namespace(u), self.a.stride >= self.a.kernel
        cover = self.a.stride == self.a.kernel and self.a.kernel * self.a.out == self.shape[self.at]
        shape = (*u.shape[: max(u.ndim - len(self.shape), 0)], *self.shape)
        dx = (xp.empty if cover else xp.zeros)(shape, dtype=u.dtype)
        if apart and others:  # each pixel is in one window at most: nothing is added up, and nothing kept in between
            for where, here in zip(others, self.first, strict=True):
                part = xp.multiply(u, here, out=dx[where])
                u = xp.subtract(u, part, out=dx[last])
            return dx
        for where, here in zip(others, self.first, strict=True):
            part = u * here
            dx[where] += part
            u = u - part
        dx[last] = dx[last] + u if others else u
        return dx


@dataclass(frozen=True)
class Order:
    """How the pixels of an example lie where the columns are pooled, then where the rows are.

    wide, narrow : shapes of an example, with the columns on one axis, and with the rows on one.
    across, down : (the windows, their axis), of the columns and of the rows.
    """

    wide: Shape
    across: tuple[Axis, int]
    narrow: Shape
    down: tuple[Axis, int]

    @staticmethod
    def rows(canvas: Canvas, C: int) -> Order:
        """One pixel after the other, with the padding."""
        wide = (*canvas.size, C)
        across = canvas.columns, COLUMNS
        return Order(wide, across, pooled(wide, *across), (canvas.rows, ROWS))

    @staticmethod
    def runs(canvas: Canvas, C: int, run: int) -> Order:
        """Along the rows in the order of a convolution's phases (`minintk.fast.patches`), `run` numbers together."""
        H, W, k = canvas.rows.size, canvas.columns.size, canvas.columns.kernel
        return Order((H, W * C // (k * run), k, run), (pieces(k), -2), (H, W // k, C), (canvas.rows, ROWS))

    @staticmethod
    def phases(canvas: Canvas, C: int) -> Order:
        """Image after image of the phases of both axes (`minintk.fast.toom_cook_transforms`)."""
        p, q, L = canvas.rows.kernel, canvas.columns.kernel, canvas.rows.out * canvas.columns.out * C
        return Order((p, q, L), (pieces(q), -2), (p, L), (pieces(p), -2))


def pieces(k: int) -> Axis:
    """An axis of k pixels, all in one window."""
    return Axis(k, k, k)


def pooled(shape: Shape, a: Axis, at: int) -> Shape:
    """The shape after pooling along one axis."""
    return tuple(a.out if i == at else n for i, n in zip(range(-len(shape), 0), shape, strict=True))


@dataclass(frozen=True)
class MaxPoolJacobian:
    """The maxima along the columns, then along the rows."""

    layer: BoundMaxPool
    columns: AxisMax
    rows: AxisMax

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy[p] = dx[where the maximum is]."""
        if dx is None:
            return None
        layer, order = self.layer, self.layer.order
        dy = self.columns.forward(layer.wide(dx, 0.0))
        dy = self.rows.forward(shaped(dy, order.wide, order.narrow))
        return shaped(dy, order.narrow, layer.after)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx[where the maximum is] += u[p]."""
        layer, order = self.layer, self.layer.order
        u = self.rows.back(shaped(u, layer.after, pooled(order.narrow, *order.down)))
        dx = self.columns.back(shaped(u, order.narrow, pooled(order.wide, *order.across)))
        dx = layer.canvas.crop(dx)
        return dx.reshape((*dx.shape[: -len(order.wide)], *layer.before))

    def gram(self, u: Array, other: MaxPoolJacobian, v: Array, kernel: Contraction) -> Gram:
        return gram_and_back(self, u, other, v)


@dataclass(frozen=True)
class BoundMaxPool:
    """MaxPool in its place; order : how the pixels of x lie."""

    before: Shape
    after: Shape
    canvas: Canvas
    order: Order
    tensors: tuple[Tensor, ...] = ()

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.after,)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, MaxPoolJacobian]:
        """y[p] = max_s x[stride p + s]."""
        order = self.order
        y, columns = axis_max(self.wide(x, -inf), *order.across)
        y, rows = axis_max(shaped(y, order.wide, order.narrow), *order.down)
        return shaped(y, order.narrow, self.after), MaxPoolJacobian(self, columns, rows)

    def wide(self, x: Array, outside: float) -> Array:
        """x : (..., *before) on its canvas, as the columns are pooled."""
        x = self.canvas.pad(images(x, self.before), outside)
        return shaped(x, self.canvas.size + self.before[-1:], self.order.wide)


def shaped(a: Array, before: Shape, after: Shape) -> Array:
    """a : (..., *before), or with so many axes, as (..., *after)."""
    return a.reshape((*a.shape[: a.ndim - len(before)], *after))


def axis_max(x: Array, a: Axis, at: int) -> tuple[Array, AxisMax]:
    """(y, J): the maxima along one axis."""
    xp = array_namespace(x)
    pixels = [x[where] for where in offsets(a, at)]
    y = pixels[0]
    for pixel in pixels[1:]:
        y = xp.maximum(y, pixel)
    first: list[Array] = []
    for pixel in pixels[:-1]:
        here = pixel == y
        for before in first:
            here &= ~before
        first.append(here)
    return y, AxisMax(a, at, tuple(x.shape), tuple(first))


# --------------------------------------------------------------------------------------- GlobalAvgPool


@dataclass(frozen=True)
class GlobalJacobian:
    """Linear: holds nothing but the shape of one example."""

    shape: Shape

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy as y from x."""
        return None if dx is None else global_mean(dx, self.shape)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """dx = u / (H W) everywhere."""
        *pixels, C = self.shape
        u = (u / prod(pixels)).reshape((*u.shape[:-1], *(1 for _ in pixels), C))
        return array_namespace(u).broadcast_to(u, (*u.shape[: -len(self.shape)], *self.shape))

    def gram(self, u: Array, other: GlobalJacobian, v: Array, kernel: Contraction) -> Gram:
        return gram_and_back(self, u, other, v)


@dataclass(frozen=True)
class BoundGlobalAvgPool:
    """GlobalAvgPool in its place."""

    shape: Shape
    tensors: tuple[Tensor, ...] = ()

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.shape[-1:],)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, GlobalJacobian]:
        """y = the mean over all pixels."""
        return global_mean(x, self.shape), GlobalJacobian(self.shape)


def global_mean(x: Array, shape: Shape) -> Array:
    """The mean over all axes of an example but the last."""
    return array_namespace(x).mean(x, axis=tuple(range(-len(shape), -1)))


# ---------------------------------------------------------------------------------------------- places


def _canvas(layer: s.AvgPool | s.MaxPool, shape: Shape) -> Canvas:
    spatial = axes(layer, shape)
    return Canvas(*(spatial if len(spatial) == 2 else (Axis(1, 1), spatial[0])))


@bind.register
def _(layer: s.AvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundAvgPool:
    return BoundAvgPool(site.shape, out_shape(layer, site.shape), _canvas(layer, site.shape))


@bind.register
def _(layer: s.MaxPool, site: Site, parametrization: Parametrization, name: str) -> BoundMaxPool:
    canvas = _canvas(layer, site.shape)
    for a in (canvas.rows, canvas.columns):
        if not a.circular and (a.before >= a.kernel or a.stride * (a.out - 1) - a.before >= a.size):
            raise ValueError(
                f"{layer!r}: a window lies in the padding altogether and has no maximum: pad less than the window"
            )
    return BoundMaxPool(site.shape, out_shape(layer, site.shape), canvas, Order.rows(canvas, site.shape[-1]))


@bind.register
def _(layer: s.GlobalAvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundGlobalAvgPool:
    return BoundGlobalAvgPool(site.shape)
