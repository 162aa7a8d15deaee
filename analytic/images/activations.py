"""Activations and normalisations on images: `prepare` and `apply` of those steps (see `analytic.images.steps`)."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, prod, sqrt
from typing import Any, NamedTuple

from analytic.images.fields import Field, Pixels
from analytic.images.gpu_kernels import ARCSINE, KINKED
from analytic.images.memory import Lay
from analytic.images.pixel_pairs import Square
from analytic.images.steps import Halves, Linear, Tile, apply, halves, prepare, settle
from analytic.vectors.duals import Erf, Homogeneous, asin_u
from analytic.vectors.rules import Normalise
from analytic.vectors.state import Block, Dual, Gap, Pairs, Rows, Scratch, cast
from minintk.arrays import Array

TINY = 1e-18
"""Stands for the square root of a variance of 0: its square is still a number in float32."""


class Kinked(NamedTuple):
    """Coefficients of alpha x + beta |x|.

    half : sqrt(q / 2 unit), and twice as much;  floor : the least that X may be, not to divide by 0: a quarter of a
    rounding error of the angle pi, in the largest U.
    scale : D and Theta times this, once their unit has become too small or too large.
    dead : 1 for pixels with q = 0, and slope: alpha, and phi'(0) for those; None where Theta is 0 there.
    """

    half: Lay
    twice: Lay
    floor: float
    scale: float
    dead: Lay | None
    slope: Lay | None


@prepare.register
def _(step: Homogeneous, pixels: Pixels, tile: Tile) -> tuple[Pixels, Any]:
    xp, form, gain = tile.form.xp, tile.form, step.alpha**2 + step.beta**2
    q, theta, zero = gain * pixels.q, gain * pixels.theta, None
    if not bool(xp.all(pixels.q)):
        zero = pixels.q == 0
        theta = xp.where(zero, step.at_zero**2 * pixels.theta, theta)
    if step.beta == 0:
        unit = pixels.unit * gain
        return Pixels(q, theta, unit, pixels.error), Linear(halves(pixels, form))
    unit, scale = pixels.unit * gain * step.b2 * 2 / pi, 1.0
    if not 1e-4 < unit < 1e4:
        unit, scale = 1.0, unit
    root = xp.maximum(xp.sqrt(pixels.q / (2 * pixels.unit)), TINY)
    floor = max((float(xp.max(root)) * float(xp.finfo(form.dtype).eps) / 4) ** 2, float(xp.finfo(form.dtype).tiny))
    dead = slope = None
    if zero is not None and bool(xp.any(zero & (pixels.theta > 0))):
        dead = form.lay(xp.astype(zero, xp.float64))
        slope = form.lay(xp.where(zero, step.at_zero, step.alpha) * sqrt(pixels.unit / unit))
    half = form.lay(root, TINY)
    return Pixels(q, theta, unit, pixels.error), Kinked(half, form.twice(half), floor, scale, dead, slope)


def sides(field: Field, lay: Lay) -> tuple[Array, Array]:
    """The numbers of the images x, and of x', broadcasting to d."""
    return field.left(lay), field.right(lay)


def launch(kernel: Callable[..., Any], field: Field, inputs: tuple[Any, ...], tangent: tuple[Any, ...]) -> None:
    """A step as one kernel, in place; see `analytic.images.gpu_kernels`."""
    if field.theta is None:
        kernel(field.d, *inputs, field.d)
    else:
        kernel(field.d, *inputs, field.theta, *tangent, field.d, field.theta)
    field.owed = None


def in_one_pass(field: Field, row: Kinked, c: float, ratio: float, rest: float) -> None:
    """The step of Homogeneous by `analytic.images.numba_kernels`."""
    from analytic.images.numba_kernels import kinked

    half, half2 = (v.reshape((-1, v.shape[-1])) for v in sides(field, row.half))
    shape = (half.shape[0], half2.shape[0], -1)
    theta = None if field.theta is None else field.theta.reshape(shape)
    kinked(field.d.reshape(shape), half, half2, c, row.scale, theta, ratio, rest)
    field.owed = None


@apply.register
def _(step: Homogeneous, row: Any, field: Field) -> None:
    """With U = sqrt(q q'), A = D - (sqrt q - sqrt q')^2 / 2 = U (1 - cos a), X = 2U - A = U (1 + cos a), K = U - A:

    t      = tan(a/2) = sqrt(A / X)              X t = U sin a
    D'     = gain (2 b2 / pi) [pi / (2 b2) D + a K - U sin a]
    Theta' = gain (2 b2 / pi) [pi / (2 b2) - a] Theta
    """
    if isinstance(row, Linear):
        settle(field, row.before)
        return
    xp, c = field.xp, pi / (2 * step.b2)
    ratio, rest = field.owed or (0.0, 0.0)
    fresh = field.asked and field.theta is None and ratio != 0
    if fresh:
        field.begin()
    if (kernel := KINKED.compiled(xp, tangent=field.theta is not None)) is not None:
        if fresh and field.theta is not None:
            field.theta[...] = 0
        dead = (0.0, 0.0) if row.dead is None else sides(field, row.dead)
        slope = (0.0, 0.0) if row.slope is None else sides(field, row.slope)
        owed = (ratio, rest, *dead, *slope)
        launch(kernel, field, (*sides(field, row.half), c, row.scale), owed)
        return
    if field.form.jit and row.dead is None:
        if fresh and field.theta is not None:
            field.theta[...] = 0
        in_one_pass(field, row, c, ratio, rest)
        return
    for strip in field.strips():
        D = field.d[strip]
        theta = None if field.theta is None else field.theta[strip]
        both, t = field.shelf.take((2, *D.shape)), field.shelf.take(D.shape)
        A, X = both
        xp.subtract(*field.pick(row.half, strip), out=A)
        xp.multiply(A, A, out=A)
        xp.subtract(D, A, out=A)
        xp.multiply(*field.pick(row.twice, strip), out=X)  # 2 U
        xp.subtract(X, A, out=X)
        xp.maximum(A, 0, out=A)
        xp.maximum(X, row.floor, out=X)
        xp.divide(A, X, out=t)
        xp.sqrt(t, out=t)
        two_k = xp.subtract(X, A, out=A)
        W = xp.multiply(X, t, out=X)
        h = xp.arctan(t, out=t)  # a / 2
        if theta is not None and ratio != 0:
            if fresh:
                xp.multiply(two_k, ratio, out=theta)
            elif ratio == 1:
                xp.add(theta, two_k, out=theta)
            else:
                theta += two_k * ratio
            if rest != 0:
                theta += 2 * rest
        xp.multiply(two_k, h, out=two_k)
        xp.subtract(two_k, W, out=two_k)
        xp.multiply(D, c, out=D)
        xp.add(D, two_k, out=D)
        if row.scale != 1:
            D *= row.scale
        if theta is not None:
            xp.multiply(h, -2 * row.scale, out=h)
            bend = xp.add(h, c * row.scale, out=h)
            if row.dead is not None and row.slope is not None:
                dead, slope = field.pick(row.dead, strip), field.pick(row.slope, strip)
                bend[...] = xp.where(dead[0] + dead[1] > 0, slope[0] * slope[1], bend)
            xp.multiply(theta, bend, out=theta)
        field.shelf.give(both, t)
    field.owed = None


class Bent(NamedTuple):
    """Coefficients of any other activation: of its dual, row, and sqrt q and scale of the pixels before and after."""

    row: Any
    before: Halves | None
    root: Lay
    scale: Lay
    root_after: Lay
    scale_after: Lay
    unit: float
    pixels: int


@prepare.register
def bent(step: Dual, pixels: Pixels, tile: Tile) -> tuple[Pixels, Bent]:
    """The coefficients of any activation's dual."""
    xp, form, shape = tile.form.xp, tile.form, pixels.q.shape
    rows = Rows(pixels.q.reshape(-1), pixels.theta.reshape(-1), pixels.error)
    after, row = step.rows(rows)
    root, scale, root_after, scale_after = (
        form.lay(xp.reshape(v, shape), 1.0) for v in (xp.sqrt(rows.q), rows.scale, xp.sqrt(after.q), after.scale)
    )
    found = Pixels(after.q.reshape(shape), after.theta.reshape(shape), 1.0, after.error)
    lays = (root, scale, root_after, scale_after)
    return found, Bent(cast(row, form.dtype), halves(pixels, form), *lays, pixels.unit, prod(pixels.grid))


@apply.register
def bend(step: Dual, row: Bent, field: Field) -> None:
    """D -> p = (D - (sqrt q - sqrt q')^2 / 2) / (2 sqrt(q q')) -> p' -> D'."""
    settle(field, row.before)
    xp, P = field.xp, row.pixels
    for strip in field.strips():
        p = field.d[strip]
        theta = None if field.theta is None else field.theta[strip]
        with Scratch(xp, field.form.dtype, p.size).borrow(2, p.shape) as (u, w):
            left, right = field.pick(row.root, strip)
            xp.subtract(left, right, out=w)
            w *= w
            w *= 0.5
            p *= row.unit
            p -= w
            xp.multiply(left, right, out=u)
            u *= 2
            xp.maximum(u, TINY * TINY, out=u)
            xp.clip(p, 0, u, out=p)
            p /= u
            if theta is not None:
                xp.multiply(*field.pick(row.scale, strip), out=u)
                theta *= row.unit / 4
                theta /= u
        scratch = Scratch(xp, field.form.dtype, p.size)
        if isinstance(field, Square):
            start = field.i.start * P
            block: Pairs = Block(
                scratch,
                slice(start + strip.start, start + strip.stop),
                slice(field.j.start * P, field.j.stop * P),
                p,
                theta,
            )
        else:
            block = Aligned(scratch, field, P, p, theta)
        step.pairs(block, row.row)
        with scratch.borrow(2, p.shape) as (u, w):
            left, right = field.pick(row.root_after, strip)
            xp.multiply(left, right, out=u)
            p *= u
            p *= 2
            xp.subtract(left, right, out=w)
            w *= w
            w *= 0.5
            p += w
            if theta is not None:
                xp.multiply(*field.pick(row.scale_after, strip), out=u)
                theta *= u
                theta *= 4


class Arcs(NamedTuple):
    """Coefficients of erf as one kernel: sqrt q, x and y = pi/2 - x of the pixels."""

    root: Lay
    x: Lay
    y: Lay
    unit: float


@prepare.register
def _(step: Erf, pixels: Pixels, tile: Tile) -> tuple[Pixels, Bent | Arcs]:
    xp, form = tile.form.xp, tile.form
    if ARCSINE.compiled(xp, tangent=False) is None:
        return bent(step, pixels, tile)
    after = step.after(Rows(pixels.q, pixels.theta, pixels.error))
    y = 2 * xp.arcsin(xp.sqrt(0.5 / (1 + 2 * pixels.q)))
    arcs = Arcs(form.lay(xp.sqrt(pixels.q)), form.lay(asin_u(xp, pixels.q)), form.lay(y), pixels.unit)
    return Pixels(after.q, after.theta, 1.0, after.error), arcs


@apply.register
def _(step: Erf, row: Bent | Arcs, field: Field) -> None:
    """All in one kernel, where the library compiles it."""
    if isinstance(row, Bent):
        bend(step, row, field)
        return
    ratio, rest = field.owed or (0.0, 0.0)
    if field.asked and field.theta is None and field.owed is not None:
        field.begin()[...] = 0
    kernel = ARCSINE.compiled(field.xp, tangent=field.theta is not None)
    assert kernel is not None
    lays = (number for lay in (row.root, row.x, row.y) for number in sides(field, lay))
    launch(kernel, field, (*lays, row.unit), (ratio, rest))


class Aligned(Pairs):
    """Equal pixels of images x and x': p, tau : (A, B, run)."""

    def __init__(self, scratch: Scratch, field: Field, P: int, p: Array, tau: Array | None) -> None:
        super().__init__(scratch, p, None, tau)
        self.field, self.P = field, P

    def sides(self, v: Array) -> tuple[Array, Array]:
        """Numbers of the pixels (n P,) as the pairs meet them, (A, 1, P) and (1, B, P)."""
        images = v.reshape((-1, self.P))
        return images[self.field.i][:, None, :], images[self.field.j][None, :, :]

    def dot(self, left: Array, right: Array, out: Array) -> Array:
        with self.borrow(1) as (w,):
            for k in range(left.shape[1]):
                self.xp.multiply(self.sides(left[:, k])[0], self.sides(right[:, k])[1], out=w[..., : self.P])
                if k:
                    out += w
                else:
                    out[...] = w
        return out

    def outer(self, left: Array, right: Array, out: Array) -> Array:
        self.xp.multiply(self.sides(left)[0], self.sides(right)[1], out=out[..., : self.P])
        return out

    def quarter_gap(self, gap: Gap, out: Array) -> Array:
        out[...] = 0
        with self.borrow(1) as (w,):
            for k in range(gap.y.shape[1]):
                self.xp.subtract(*self.sides(gap.y[:, k]), out=w[..., : self.P])
                w *= w
                out += w
        out /= 4
        return out


class Scaled(NamedTuple):
    """Coefficients of a normalisation: sqrt(q) and the square roots of the gains, before what they multiply."""

    before: Halves | None
    bend: Lay
    gain: Lay
    unit: float


@prepare.register
def _(step: Normalise, pixels: Pixels, tile: Tile) -> tuple[Pixels, Scaled]:
    xp, form = tile.form.xp, tile.form
    gain = step.gain(pixels.q)
    root = xp.sqrt(gain)
    bend = form.lay(xp.sqrt(pixels.q))
    after = Pixels(pixels.q * gain, pixels.theta * gain, 1.0, pixels.error)
    return after, Scaled(halves(pixels, form), bend, form.lay(root), pixels.unit)


@apply.register
def _(step: Normalise, row: Scaled, field: Field) -> None:
    """D' = r r' A + (r sqrt q - r' sqrt q')^2 / 2,  A = D - (sqrt q - sqrt q')^2 / 2,  r^2 the gain."""
    settle(field, row.before)
    xp = field.xp
    for strip in field.strips():
        D = field.d[strip]
        with Scratch(xp, field.form.dtype, D.size).borrow(2, D.shape) as (w, gain):
            D *= row.unit
            xp.subtract(*field.pick(row.bend, strip), out=w)
            w *= w
            w *= 0.5
            D -= w
            xp.maximum(D, 0, out=D)
            (left, right), (r, r2) = field.pick(row.bend, strip), field.pick(row.gain, strip)
            xp.multiply(r, r2, out=gain)
            D *= gain
            xp.subtract(left * r, right * r2, out=w)
            w *= w
            w *= 0.5
            D += w
            if field.theta is not None:
                theta = field.theta[strip]
                theta *= gain
                theta *= row.unit
