"""How each step acts on images: `prepare` on the variances of all pixels, then `apply` on some pairs of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any, NamedTuple

from analytic.images.fields import Edges, Field, Pixels, edges_of
from analytic.images.memory import Form, Lay
from analytic.images.rules import Flat, Pool, Window
from analytic.images.window_sums import across_sum, line_sum, picks
from analytic.vectors.rules import Affine, Sum
from analytic.vectors.state import Program, Step
from minintk.arrays import Array, to_library
from minintk.spec.windows import Axis


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
    raise TypeError(
        f"{type(step).__name__} does not act on images: register analytic.images.steps.prepare and apply for it"
    )


@singledispatch
def apply(step: Step, coefficients: Any, field: Field) -> None:
    """Take the field through the step."""
    raise TypeError(
        f"{type(step).__name__} does not act on images: register analytic.images.steps.prepare and apply for it"
    )


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


class Linear(NamedTuple):
    """Coefficients of alpha x."""

    before: Halves | None


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
