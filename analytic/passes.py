"""How each step acts on images: `prepare` on the variances of all pixels, then `apply` on some pairs of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from math import pi, prod, sqrt
from typing import Any, NamedTuple

from analytic.duals import Erf, Homogeneous, asin_u
from analytic.fields import Edges, Field, Form, Lay, Pixels, Square, across_sum, edges_of, line_sum, picks
from analytic.fused import ARCSINE, KINKED
from analytic.images import Flat, Pool, Window
from analytic.rules import Affine, Normalise, Sum
from analytic.state import Block, Dual, Gap, Pairs, Program, Rows, Scratch, Step, cast
from minintk.arrays import Array, to_library
from minintk.windows import Axis

TINY = 1e-18
"""Stands for the square root of a variance of 0: its square is still a number in float32."""


@dataclass(frozen=True)
class Tile:
    """What `prepare` needs to know of the images it works for.

    pools : what pooling makes of each image with itself, pooling by pooling, (D, Theta) of equal pixels.
    """

    form: Form
    pools: Iterator[tuple[Array, Array]]


@singledispatch
def prepare(step: Step, pixels: Pixels, tile: Tile) -> tuple[Pixels, Any]:
    """The pixels after the step, and the coefficients that `apply` needs."""
    raise TypeError(f"{type(step).__name__} does not act on images: register analytic.passes.prepare and apply for it")


@singledispatch
def apply(step: Step, coefficients: Any, field: Field) -> None:
    """Take the field through the step."""
    raise TypeError(f"{type(step).__name__} does not act on images: register analytic.passes.prepare and apply for it")


def prepare_all(program: Program, pixels: Pixels, tile: Tile) -> tuple[Pixels, tuple[Any, ...]]:
    """The pixels through all steps, and the coefficients of each."""
    coefficients = []
    for step in program:
        pixels, one = prepare(step, pixels, tile)
        coefficients.append(one)
    return pixels, tuple(coefficients)


def apply_all(program: Program, coefficients: tuple[Any, ...], field: Field) -> None:
    """The field through all steps."""
    for step, one in zip(program, coefficients, strict=True):
        apply(step, one, field)


# ------------------------------------------------------------------------------------- weights and biases


class Halves(NamedTuple):
    """q / 2 of the pixels, in the unit: K = half + half' - D."""

    lay: Lay


def halves(pixels: Pixels, form: Form) -> Halves | None:
    """The Halves of pixels, where something is owed."""
    return Halves(form.lay(pixels.q / (2 * pixels.unit))) if pixels.owed else None


def settle(field: Field, half: Halves | None) -> None:
    """Theta += ratio K + rest, where that is still owed."""
    if field.owed is None or half is None or not field.asked:
        return
    (ratio, rest), left, right = field.owed, field.left(half.lay), field.right(half.lay)
    field.owed = None
    if field.theta is None and ratio == 0 and rest == 0:
        return
    fresh = field.theta is None
    two_k = field.begin() if fresh else field.shelf.take(field.d.shape)
    field.xp.add(left, right, out=two_k)
    two_k -= field.d
    two_k *= 2 * ratio
    if rest != 0:
        two_k += 2 * rest
    if not fresh:
        field.theta += two_k
        field.shelf.give(two_k)


class WindowRow(NamedTuple):
    """before : q / 2 in the unit, for what is owed; edges : the same for pixels next to the outside."""

    before: Halves | None
    edges: Edges
    owed: tuple[float, float]


@prepare.register
def _(step: Window, pixels: Pixels, tile: Tile) -> tuple[Pixels, WindowRow]:
    rows, columns = step.axes
    mean = step.affine.w2 / (rows.kernel * columns.kernel)
    unit = pixels.unit * mean
    half = pixels.q / (2 * pixels.unit)
    half_sum = across_sum(half, rows)
    q = 2 * unit * line_sum(half_sum, columns) + step.affine.beta2
    theta = mean * line_sum(across_sum(pixels.theta, rows), columns) + step.affine.ratio * q + step.affine.rest
    edges = edges_of(tile.form, step.axes, half, half_sum)
    coefficients = WindowRow(halves(pixels, tile.form), edges, (step.affine.ratio, step.affine.rest / unit))
    return Pixels(q, theta, unit, pixels.error, owed=True), coefficients


@apply.register
def _(step: Window, row: WindowRow, field: Field) -> None:
    settle(field, row.before)
    field.slide(step.axes, row.edges)
    field.owed = row.owed


PIXEL = Axis(1, 1)


@prepare.register
def _(step: Affine, pixels: Pixels, tile: Tile) -> tuple[Pixels, WindowRow]:
    return prepare(Window((PIXEL, PIXEL), step), pixels, tile)


@apply.register
def _(step: Affine, row: WindowRow, field: Field) -> None:
    settle(field, row.before)
    field.owed = row.owed


# -------------------------------------------------------------------------------------------- activations


class Linear(NamedTuple):
    """Coefficients of alpha x."""

    before: Halves | None


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
    floor = (float(xp.max(root)) * float(xp.finfo(form.dtype).eps) / 4) ** 2
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
    """A step as one kernel, in place; see `analytic.fused`."""
    if field.theta is None:
        kernel(field.d, *inputs, field.d)
    else:
        kernel(field.d, *inputs, field.theta, *tangent, field.d, field.theta)
    field.owed = None


def in_one_pass(field: Field, row: Kinked, c: float, ratio: float, rest: float) -> None:
    """The step of Homogeneous by `analytic.jitted`."""
    from analytic.jitted import kinked

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
    """Coefficients of erf as one kernel: sqrt q, x and y = pi/2 - x of the pixels; see `analytic.fused`."""

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


# ------------------------------------------------------------------------------------------------- sums


class SumRow(NamedTuple):
    """Coefficients of branch and shortcut, and what the shortcut's unit is in the branch's."""

    before: Halves | None
    branch: tuple[Any, ...]
    shortcut: tuple[Any, ...]
    after_branch: Halves | None
    after_shortcut: Halves | None
    ratio: float


@prepare.register
def _(step: Sum, pixels: Pixels, tile: Tile) -> tuple[Pixels, SumRow]:
    settled = replace(pixels, owed=False)
    two, shortcut = prepare_all(step.shortcut, settled, tile)
    one, branch = prepare_all(step.branch, settled, tile)
    return join(pixels, one, two, branch, shortcut, tile)


def join(
    pixels: Pixels, one: Pixels, two: Pixels, branch: tuple[Any, ...], shortcut: tuple[Any, ...], tile: Tile
) -> tuple[Pixels, SumRow]:
    """The pixels of a sum."""
    form, ratio = tile.form, two.unit / one.unit
    after = Pixels(one.q + two.q, one.theta + two.theta, one.unit, max(one.error, two.error))
    return after, SumRow(halves(pixels, form), branch, shortcut, halves(one, form), halves(two, form), ratio)


@apply.register
def _(step: Sum, row: SumRow, field: Field) -> None:
    settle(field, row.before)
    other = field.copy()
    apply_all(step.shortcut, row.shortcut, other)
    apply_all(step.branch, row.branch, field)
    merge(field, other, row)


def merge(field: Field, other: Field, row: SumRow) -> None:
    """field += other, each in its own unit."""
    settle(other, row.after_shortcut)
    settle(field, row.after_branch)
    if row.ratio != 1:
        other.d *= row.ratio
    field.d += other.d
    if other.theta is not None:
        if row.ratio != 1:
            other.theta *= row.ratio
        if field.theta is None:
            field.begin()[...] = other.theta
        else:
            field.theta += other.theta
    other.close()


# ----------------------------------------------------------------------------------- pooling, flattening


class PoolRow(NamedTuple):
    """T_H and T_W on both sides; own: D of each pooled pixel's window with itself, / 2;

    share: sum of a window's weights, 1 away from the edges, and mean: of q / 2 over it; None where all shares are 1.
    """

    before: Halves | None
    T: tuple[Array, Array]
    own: Lay
    share: Lay | None
    mean: Lay | None
    grid: tuple[int, int]


def averaging(xp: Any, axis: Axis, dtype: Any) -> Array:
    """T : (out, size), T x the mean over each window, zeros outside counted."""
    return xp.astype(to_library(picks(axis) / axis.kernel, xp), dtype)


@prepare.register
def _(step: Pool, pixels: Pixels, tile: Tile) -> tuple[Pixels, PoolRow]:
    own, theta = next(tile.pools)
    return pooled(step, pixels, tile, own, theta)


def pooled(step: Pool, pixels: Pixels, tile: Tile, own: Array, theta: Array) -> tuple[Pixels, PoolRow]:
    """The pixels after pooling, given D and Theta of each pooled pixel with itself (both 0 where nobody needs them)."""
    xp, form = tile.form.xp, tile.form
    T = tuple(averaging(xp, axis, xp.float64) for axis in step.axes)
    share = xp.sum(T[0], axis=1)[:, None] * xp.sum(T[1], axis=1)[None, :]
    mean = xp.matmul(xp.matmul(T[0], pixels.q), T[1].T)
    after = Pixels(share * mean - own, theta, pixels.unit, pixels.error)
    whole = bool(xp.all(xp.abs(share - 1) < 1e-12))
    row = PoolRow(
        halves(pixels, form),
        tuple(xp.astype(t, form.dtype) for t in T),
        form.lay(own / (2 * pixels.unit)),
        None if whole else form.lay(xp.broadcast_to(share, mean.shape)),
        None if whole else form.lay(mean / (2 * pixels.unit)),
        (step.axes[0].out, step.axes[1].out),
    )
    return after, row


@apply.register
def _(step: Pool, row: PoolRow, field: Field) -> None:
    """D' = mean D - own / 2 - own' / 2 + (share - share') (mean q - mean q') / 2."""
    settle(field, row.before)
    field.pool(row.T, row.grid)
    field.d -= field.left(row.own)
    field.d -= field.right(row.own)
    if row.share is not None and row.mean is not None:
        share = field.left(row.share) - field.right(row.share)
        share *= field.left(row.mean) - field.right(row.mean)
        field.d += share


@prepare.register
def _(step: Flat, pixels: Pixels, tile: Tile) -> tuple[Pixels, Linear]:
    xp = tile.form.xp
    q, theta = (xp.mean(v, axis=(1, 2), keepdims=True) for v in (pixels.q, pixels.theta))
    return Pixels(q, theta, pixels.unit, pixels.error), Linear(halves(pixels, tile.form))


@apply.register
def _(step: Flat, row: Linear, field: Field) -> None:
    settle(field, row.before)
    field.flatten()


# ------------------------------------------------------------------------- one image with itself, step by step


def follow(
    program: Program, pixels: Pixels, field: Field, tile: Tile, record: list[tuple[Array, Array]]
) -> tuple[Pixels, Field]:
    """An image with itself through all steps, pixels and field side by side, recording what `Tile.pools` gives."""
    for step in program:
        if isinstance(step, Sum):
            settle(field, halves(pixels, tile.form))
            pixels, other = replace(pixels, owed=False), field.copy()
            two, other = follow(step.shortcut, pixels, other, tile, record)
            one, field = follow(step.branch, pixels, field, tile, record)
            pixels, row = join(pixels, one, two, (), (), tile)
            merge(field, other, row)
        elif isinstance(step, Pool):
            zero = tile.form.xp.zeros((1, step.axes[0].out, step.axes[1].out), dtype=tile.form.xp.float64)
            apply(step, pooled(step, pixels, tile, zero, zero)[1], field)
            own = diagonal(field, field.d) * pixels.unit
            theta = zero if field.theta is None else diagonal(field, field.theta) * (pixels.unit / 2)
            pixels, found = pooled(step, pixels, tile, own, theta)
            field.d -= field.left(found.own)
            field.d -= field.right(found.own)
            record.append((own, theta))
        else:
            pixels, row = prepare(step, pixels, tile)
            apply(step, row, field)
    return pixels, field


def diagonal(field: Field, a: Array) -> Array:
    """The equal pixels of a Square field of one pair, (1, H, W), float64."""
    xp, P = field.xp, prod(field.grid)
    every = xp.arange(P)
    equal = field.form.inside(a, *field.grid).reshape((P, P))[every, every]
    return xp.astype(equal, xp.float64).reshape((1, *field.grid))
