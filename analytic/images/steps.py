"""Apply each step to images: `prepare` acts on the variances of all pixels, then `apply` on some pairs of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any, NamedTuple

import numpy as np

from analytic.images.fields import Edges, Field, Pixels
from analytic.images.memory import FieldLayout, PixelValues
from analytic.images.rules import Flat, Mixing, Pool, Window
from analytic.images.window_sums import across_sum, line_sum, window_matrix
from analytic.recursion.rules import Affine, Fork, Masks, ProductOfParts
from analytic.recursion.state import Program, Step
from minintk.arrays import Array, to_library
from minintk.spec.windows import Axis

LARGEST_OF_IMAGES = 1e300
"""Largest variance and Theta.  Larger numbers leave too little range for the sums of fields."""


@dataclass(frozen=True)
class Tile:
    """Properties of a tile's images that `prepare` needs.

    pools : for each `Mixing` in turn, D (in its unit) and Theta of each image with itself, as `follow` records them, or
        None if no later step needs exact variances.  In this case, bounds replace the variances.
    called : index -> an image's name, for messages.   opposite : True if x' = -x for two images; always False on a GPU.
    """

    layout: FieldLayout
    pools: Iterator[tuple[Array, Array] | None]
    called: Callable[[int], str] = "image {}".format
    opposite: bool = False

    def check(self, pixels: Pixels) -> None:
        """Raise ValueError, naming the image, if a variance or Theta exceeds LARGEST_OF_IMAGES or is NaN."""
        xp = self.layout.xp
        if not all(float(xp.max(values)) <= LARGEST_OF_IMAGES for values in (pixels.q, pixels.theta)):
            bad = xp.any(~(xp.maximum(pixels.q, pixels.theta) <= LARGEST_OF_IMAGES), axis=(1, 2))
            raise ValueError(
                f"{self.called(int(xp.argmax(bad)))} is out of range: a pixel's variance, or Theta, exceeds "
                f"{LARGEST_OF_IMAGES:g} after some layer: scale the image, or w_std, down"
            )


@singledispatch
def prepare(step: Step, pixels: Pixels, tile: Tile) -> tuple[Pixels, Any]:
    """Return the pixels after the step, and the coefficients that `apply` needs."""
    raise TypeError(
        f"{type(step).__name__} does not act on images: register analytic.images.steps.prepare and apply for it"
    )


@singledispatch
def apply(step: Step, coefficients: Any, field: Field) -> None:
    """Apply the step to the field."""
    raise TypeError(f"{type(step).__name__} is prepared for images: register analytic.images.steps.apply for it too")


def prepare_all(program: Program, pixels: Pixels, tile: Tile) -> tuple[Pixels, tuple[Any, ...]]:
    """Return the pixels after all steps, and the coefficients of each step."""
    coefficients = []
    for step in program:
        if not isinstance(step, Window | Affine | Pool | Flat):
            tile.check(pixels)
        with np.errstate(over="ignore", invalid="ignore"):  # `check` reports overflow before results are used
            pixels, one = prepare(step, pixels, tile)
        coefficients.append(one)
    tile.check(pixels)
    return pixels, tuple(coefficients)


def apply_all(program: Program, coefficients: tuple[Any, ...], field: Field) -> None:
    """Apply all steps to the field."""
    for step, one in zip(program, coefficients, strict=True):
        apply(step, one, field)


# ------------------------------------------------------------------------------------- weights and biases


def half_variances(pixels: Pixels, layout: FieldLayout) -> PixelValues | None:
    """Return q / 2 in D's unit, or None if Theta has no pending term.  This term needs K = q / 2 + q' / 2 - D."""
    return layout.spread(pixels.q / (2 * pixels.unit)) if pixels.pending else None


def owed(field: Field) -> tuple[float, float]:
    """Return (ratio, rest) of the pending term, which the caller must add now; if necessary, start Theta at 0."""
    pending, field.pending = field.pending or (0.0, 0.0), None
    if field.asked and field.theta is None and pending != (0.0, 0.0):
        field.start_theta()[...] = 0
    return pending


def add_term(theta: Array, two_k: Array, pending: tuple[float, float]) -> None:
    """Add ratio K + rest to Theta, given 2 K; all are in the field's unit."""
    ratio, rest = pending
    if ratio != 0:
        theta += two_k if ratio == 1 else two_k * ratio
    if rest != 0:
        theta += 2 * rest


def add_pending(field: Field, half: PixelValues | None) -> None:
    """Add ratio K + rest to Theta, if it is still pending."""
    pending = (0.0, 0.0) if half is None else owed(field)
    if half is None or field.theta is None or pending == (0.0, 0.0):
        return
    for piece in field.pieces():
        two_k = field.workspace.take(field.d[piece].shape)
        field.xp.add(*field.pick(half, piece), out=two_k)
        two_k -= field.d[piece]
        two_k *= 2
        add_term(field.theta[piece], two_k, pending)
        field.workspace.give(two_k)


class WindowCoefficients(NamedTuple):
    """A window's `edges`, its new `pending` term (ratio, rest), and `before`, q / 2 for adding the old term."""

    before: PixelValues | None
    edges: Edges
    pending: tuple[float, float]


@prepare.register
def _(step: Window, pixels: Pixels, tile: Tile) -> tuple[Pixels, WindowCoefficients]:
    rows, columns = step.axes
    mean = step.affine.w2 / (rows.kernel * columns.kernel)
    unit = pixels.unit * mean
    half = pixels.q / (2 * pixels.unit)
    half_sum = across_sum(half, rows)
    q = 2 * unit * line_sum(half_sum, columns) + step.affine.beta2
    theta = mean * line_sum(across_sum(pixels.theta, rows), columns) + step.affine.ratio * q + step.affine.rest
    edges, xp = Edges(half[None], half_sum[None]), tile.layout.xp
    if not tile.layout.diagonal:  # if `diagonal`, either both pixels are outside or neither
        edges = Edges(*(xp.astype(xp.concat((v, xp.zeros_like(v)), axis=0), tile.layout.dtype) for v in edges))
    before, pending = half_variances(pixels, tile.layout), (step.affine.ratio, step.affine.rest / unit)
    return Pixels(q, theta, unit, pixels.error, pending=True), WindowCoefficients(before, edges, pending)


@apply.register
def _(step: Window, row: WindowCoefficients, field: Field) -> None:
    add_pending(field, row.before)
    field.slide(step.axes, row.edges)
    field.pending = row.pending


ONE_PIXEL = Axis(1, 1)


@prepare.register
def _(step: Affine, pixels: Pixels, tile: Tile) -> tuple[Pixels, WindowCoefficients]:
    return prepare(Window((ONE_PIXEL, ONE_PIXEL), step), pixels, tile)


@apply.register
def _(step: Affine, row: WindowCoefficients, field: Field) -> None:
    add_pending(field, row.before)
    field.pending = row.pending


# ------------------------------------------------------------------------------------------------- sums


class ForkCoefficients(NamedTuple):
    """Coefficients of branch and shortcut.   ratio : the shortcut's unit divided by the branch's unit.

    after_branch, after_shortcut : q / 2 in each part's unit, for the pending terms.  A product always has both.
    """

    before: PixelValues | None
    branch: tuple[Any, ...]
    shortcut: tuple[Any, ...]
    after_branch: PixelValues | None
    after_shortcut: PixelValues | None
    ratio: float


@prepare.register
def _(step: Fork, pixels: Pixels, tile: Tile) -> tuple[Pixels, ForkCoefficients]:
    settled = replace(pixels, pending=False)
    two, shortcut = prepare_all(step.shortcut, settled, tile)
    one, branch = prepare_all(step.branch, settled, tile)
    return join_pixels(step, pixels, one, two, branch, shortcut, tile)


def join_pixels(
    step: Fork, pixels: Pixels, one: Pixels, two: Pixels, branch: tuple[Any, ...], shortcut: tuple[Any, ...], tile: Tile
) -> tuple[Pixels, ForkCoefficients]:
    """Return the pixels after a sum or a product of parts, and the coefficients that `join_fields` needs."""
    after = Pixels(one.q + two.q, one.theta + two.theta, one.unit, max(one.error, two.error))
    if isinstance(step, ProductOfParts):
        theta = one.theta * two.q + one.q * two.theta
        after = Pixels(one.q * two.q, theta, one.unit * two.unit, one.error + two.error)
        one, two = replace(one, pending=True), replace(two, pending=True)
    before, after_one, after_two = (half_variances(p, tile.layout) for p in (pixels, one, two))
    return after, ForkCoefficients(before, branch, shortcut, after_one, after_two, two.unit / one.unit)


@apply.register
def _(step: Fork, row: ForkCoefficients, field: Field) -> None:
    add_pending(field, row.before)
    other = field.copy()
    apply_all(step.shortcut, row.shortcut, other)
    apply_all(step.branch, row.branch, field)
    join_fields(step, field, other, row)


def join_fields(step: Fork, field: Field, other: Field, row: ForkCoefficients) -> None:
    """Combine the fields of branch and shortcut, each in its own unit."""
    add_pending(other, row.after_shortcut)
    add_pending(field, row.after_branch)
    field.roundings = max(field.roundings, other.roundings)
    if field.live < other.live:
        field.start_theta()[...] = 0
    if isinstance(step, ProductOfParts):
        multiply_fields(field, other, row)
    else:
        other.a[: other.live] *= row.ratio
        field.a[: other.live] += other.a[: other.live]
    other.release()


def multiply_fields(field: Field, other: Field, row: ForkCoefficients) -> None:
    """Multiply fields: K' = K1 K2 and Theta' = Theta1 K2 + K1 Theta2; with h = q / 2 and K = h + h' - D,
    D' = (h1 - h1')(h2 - h2') + K1 D2 + (h2 + h2') D1.
    """
    assert row.after_branch is not None
    assert row.after_shortcut is not None
    for piece in field.pieces():
        (h1, g1), (h2, g2) = field.pick(row.after_branch, piece), field.pick(row.after_shortcut, piece)
        d1, d2 = field.d[piece], other.d[piece]
        k1 = h1 + g1 - d1
        if field.theta is not None:
            field.theta[piece] *= h2 + g2 - d2
            if other.theta is not None:
                field.theta[piece] += k1 * other.theta[piece]
        d1 *= h2 + g2
        k1 *= d2
        d1 += k1
        d1 += (h1 - g1) * (h2 - g2)


# ------------------------------------------------------------------------------------------------ masks


class MaskCoefficients(NamedTuple):
    """Store half = q / 2 in D's unit and gain = 1 / keep - 1.  Masks do not change K: D' = D + gain (half + half')."""

    half: PixelValues
    gain: float


@prepare.register
def _(step: Masks, pixels: Pixels, tile: Tile) -> tuple[Pixels, MaskCoefficients]:
    half = tile.layout.spread(pixels.q / (2 * pixels.unit))
    after = Pixels(pixels.q / step.keep, pixels.theta / step.keep, pixels.unit, pixels.error)
    return after, MaskCoefficients(half, 1 / step.keep - 1)


@apply.register
def _(step: Masks, row: MaskCoefficients, field: Field) -> None:
    """Treat all pixels as different, because their masks are independent."""
    add_pending(field, row.half)
    for piece in field.pieces():
        field.d[piece] += row.gain * sum(field.pick(row.half, piece))


# ----------------------------------------------------------------------------------- pooling, flattening


class PoolCoefficients(NamedTuple):
    """The averaging matrices T = (T_H, T_W).   own : mean of D / 2 over all pairs of a window's pixels, in D's unit.

    share, mean : a window's sum of weights, 1 away from edges, and its mean of q / 2; both None if all shares are 1.
    """

    before: PixelValues | None
    T: tuple[Array, Array]
    own: PixelValues
    share: PixelValues | None
    mean: PixelValues | None
    grid: tuple[int, int]


def averaging_matrix(xp: Any, axis: Axis, *, normalised: bool) -> Array:
    """Return T : (out, size), float64.  T x averages each window, including zeros outside unless `normalised`."""
    T = window_matrix(axis)
    return to_library(T / (T.sum(axis=1, keepdims=True) if normalised else axis.kernel), xp)


@prepare.register
def _(step: Pool, pixels: Pixels, tile: Tile) -> tuple[Pixels, PoolCoefficients]:
    return pooled(step, pixels, tile, next(tile.pools))


def pooled(
    step: Pool, pixels: Pixels, tile: Tile, known: tuple[Array, Array] | None
) -> tuple[Pixels, PoolCoefficients]:
    """Return the pixels after pooling.   known : D and Theta of pooled pixels with themselves; if None, use bounds."""
    xp, layout = tile.layout.xp, tile.layout
    T = tuple(averaging_matrix(xp, axis, normalised=step.normalised) for axis in step.axes)
    share = xp.sum(T[0], axis=1)[:, None] * xp.sum(T[1], axis=1)[None, :]
    mean, mean_theta = (xp.matmul(xp.matmul(T[0], v), T[1].T) for v in (pixels.q, pixels.theta))
    own, theta = (xp.zeros_like(mean), mean_theta) if known is None else known
    after = Pixels(share * mean - own * pixels.unit, theta, pixels.unit, pixels.error)
    whole = bool(xp.all(xp.abs(share - 1) < 1e-12))
    row = PoolCoefficients(
        half_variances(pixels, layout),
        tuple(xp.astype(t, layout.dtype) for t in T),
        layout.spread(own / 2),  # an exact division, so that D of a pixel with itself stays 0
        None if whole else layout.spread(xp.broadcast_to(share, mean.shape)),
        None if whole else layout.spread(mean / (2 * pixels.unit)),
        (step.axes[0].out, step.axes[1].out),
    )
    return after, row


@apply.register
def _(step: Pool, row: PoolCoefficients, field: Field) -> None:
    add_pending(field, row.before)
    field.pool(row.T, row.grid)
    pooled_difference(row, field, field.layout.dtype)


def pooled_difference(row: PoolCoefficients, field: Field, dtype: Any) -> None:
    """Set D' = mean D - own/2 - own'/2 + (share - share') (mean q - mean q') / 2, given mean D rounded in `dtype`."""
    rounding = field.roundings * float(field.xp.finfo(dtype).eps)
    for piece in field.pieces():
        d, own = field.d[piece], field.xp.add(*field.pick(row.own, piece))
        d -= own
        own *= rounding
        d *= field.xp.abs(d) > own
    if row.share is not None and row.mean is not None:
        share = field.left(row.share) - field.right(row.share)
        share *= field.left(row.mean) - field.right(row.mean)
        field.d += share


@prepare.register
def _(step: Flat, pixels: Pixels, tile: Tile) -> tuple[Pixels, PixelValues | None]:
    xp = tile.layout.xp
    q, theta = (xp.mean(v, axis=(1, 2), keepdims=True) for v in (pixels.q, pixels.theta))
    return Pixels(q, theta, pixels.unit, pixels.error), half_variances(pixels, tile.layout)


@apply.register
def _(step: Flat, before: PixelValues | None, field: Field) -> None:
    add_pending(field, before)
    field.flatten()


# ------------------------------------------------------------------------- images with themselves, step by step


def follow(
    program: Program, pixels: Pixels, field: Field, tile: Tile, record: list[tuple[Array, Array]]
) -> tuple[Pixels, Field]:
    """Apply all steps to images paired with themselves; append D and Theta at each pooling or attention to `record`."""
    for step in program:
        if isinstance(step, Fork):
            add_pending(field, half_variances(pixels, tile.layout))
            pixels, other = replace(pixels, pending=False), field.copy()
            two, other = follow(step.shortcut, pixels, other, tile, record)
            one, field = follow(step.branch, pixels, field, tile, record)
            pixels, row = join_pixels(step, pixels, one, two, (), (), tile)
            join_fields(step, field, other, row)
        elif isinstance(step, Pool):
            apply(step, pooled(step, pixels, tile, None)[1], field)
            xp, bound = tile.layout.xp, pooled(step, pixels, tile, None)[0]  # 0 for black windows, so D is exactly 0
            own = xp.clip(diagonal(field, field.d), 0, bound.q / pixels.unit)
            theta = 0 * own if field.theta is None else diagonal(field, field.theta) * (pixels.unit / 2)
            theta = xp.clip(theta, 0, bound.theta)
            pixels, found = pooled(step, pixels, tile, (own, theta))
            field.d -= field.left(found.own)
            field.d -= field.right(found.own)
            record.append((own, theta))
        elif isinstance(step, Mixing):
            add_pending(field, half_variances(pixels, tile.layout))
            theta = 0 * field.d if field.theta is None else field.theta * (pixels.unit / 2)
            record.append((pixel_pairs(field, field.d), pixel_pairs(field, theta)))
            pixels, row = prepare(step, pixels, replace(tile, pools=iter(record[-1:])))
            apply(step, row, field)
        else:
            pixels, (row,) = prepare_all((step,), pixels, tile)
            apply(step, row, field)
            if isinstance(step, Masks):  # the two copies of a pixel share one mask
                for a, to in ((field.d, 0.0), (field.theta, 1 / step.keep)):
                    if a is not None:
                        equal_pixels(field, a, to)
    return pixels, field


def equal_pixels(field: Field, a: Array, factor: float = 1.0) -> Array:
    """Scale, in place, a Square field's entries for pixels at the same position, and return them, (P, A, B)."""
    every = field.xp.arange(prod(field.grid))
    places = a.reshape((field.sizes[0], every.size, -1, every.size))  # a view, so `a` changes too
    at = (slice(None), every, slice(None), every)
    if factor != 1:
        places[at] = places[at] * factor
    return places[at]


def diagonal(field: Field, a: Array) -> Array:
    """Return `a` for p = p', (B, H, W), float64, of `Selves` or a Square field with one image x."""
    return field.xp.astype(equal_pixels(field, a)[:, 0], field.xp.float64).T.reshape((-1, *field.grid))


def pixel_pairs(field: Field, a: Array) -> Array:
    """Return `a` for all pairs of pixels, (B, H W, H W), float64, of `Selves` or a Square field with one image x."""
    P = prod(field.grid)
    return field.xp.astype(a.reshape((P, -1, P)).swapaxes(0, 1), field.xp.float64)
