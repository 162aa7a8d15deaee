"""Define `prepare` and `apply` (see `analytic.images.steps`) for activations and normalisations on images."""

from __future__ import annotations

from math import inf, pi, prod, sqrt
from typing import Any, NamedTuple

from analytic.images.fields import ROUNDINGS_OF_SERIES, Field, Pixels
from analytic.images.memory import FieldLayout, PixelValues
from analytic.images.pixel_pairs import Square
from analytic.images.steps import Tile, add_pending, add_term, apply, half_variances, owed, prepare
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Normalise
from analytic.recursion.scalar_forms import NORMALISED, OPPOSITE_ROUNDINGS, Arithmetic, Form, nothing
from analytic.recursion.state import Block, Distances, Dual, Pairs, RowState, Scratch, cast
from minintk.arrays import Array

TINY_ROOT = {4: 1e-16, 8: 1e-140}
"""{bytes per number: replacement for sqrt(q) at q = 0}.  Quotients by the square of this number are finite."""


LARGE = 1e36
"""A finite replacement for tan(pi/2)^2."""


class KinkedCoefficients(NamedTuple):
    """Coefficients for the activation alpha x + beta |x|.   X, A, U : defined in `apply`, below.

    half, twice : sqrt(q / 2 unit), and twice this value.
    floor : lower bound of X that avoids division by 0: X at the angle pi - eps / 4 for the largest U.
    opposite : two pixels with A / X above this limit are treated as opposite; inf if no two images are opposite.
    scale : D and Theta are multiplied by this factor, which is 1 unless their unit is too small or too large.
    zero : 1 if q = 0.   slope : phi'(0) if q = 0, else alpha, times sqrt(old / new unit).   Both are None if unneeded.
    """

    half: PixelValues
    twice: PixelValues
    floor: float
    opposite: float
    scale: float
    zero: PixelValues | None
    slope: PixelValues | None


@prepare.register
def _(step: Homogeneous, pixels: Pixels, tile: Tile) -> tuple[Pixels, Any]:
    xp, layout, gain = tile.layout.xp, tile.layout, step.alpha**2 + step.beta**2
    q, theta, is_zero = gain * pixels.q, gain * pixels.theta, None
    if not bool(xp.all(pixels.q)):
        is_zero = pixels.q == 0
        theta = xp.where(is_zero, step.at_zero**2 * pixels.theta, theta)
    if step.beta == 0:
        return Pixels(q, theta, pixels.unit * gain, pixels.error), half_variances(pixels, layout)
    unit, scale = pixels.unit * gain * step.b2 * 2 / pi, 1.0
    if not 1e-4 < unit < 1e4:
        unit, scale = 1.0, unit
    tiny = TINY_ROOT[layout.number]
    root = xp.maximum(xp.sqrt(pixels.q / (2 * pixels.unit)), tiny)
    eps = float(xp.finfo(layout.dtype).eps)
    floor = max((float(xp.max(root)) * eps / 4) ** 2, tiny**2)
    opposite = 1 / (OPPOSITE_ROUNDINGS * eps) if tile.opposite else inf
    zero = slope = None
    if is_zero is not None and bool(xp.any(is_zero & (pixels.theta > 0))):
        zero = layout.spread(xp.astype(is_zero, xp.float64))
        slope = layout.spread(xp.where(is_zero, step.at_zero, step.alpha) * sqrt(pixels.unit / unit))
    half = layout.spread(root)
    row = KinkedCoefficients(half, layout.twice(half), floor, opposite, scale, zero, slope)
    return Pixels(q, theta, unit, pixels.error), row


@apply.register
def _(step: Homogeneous, row: Any, field: Field) -> None:
    """Apply alpha x + beta |x|, with U = sqrt(q q'), A = D - (sqrt q - sqrt q')^2 / 2 = U (1 - cos a), K = U - A:

    X      = 2U - A = U (1 + cos a), 0 if below rounding              t = tan(a/2) = sqrt(A / X)       X t = U sin a
    D'     = gain (2 b2 / pi) [pi / (2 b2) D + a K - U sin a]
    Theta' = gain (2 b2 / pi) [pi / (2 b2) - a] Theta
    """
    if not isinstance(row, KinkedCoefficients):
        add_pending(field, row)
        return
    xp, c = field.xp, pi / (2 * step.b2)
    pending = owed(field)
    for piece in field.pieces():
        D = field.d[piece]
        theta = None if field.theta is None else field.theta[piece]
        both, t = field.workspace.take((2, *D.shape)), field.workspace.take(D.shape)
        A, X = both
        xp.subtract(*field.pick(row.half, piece), out=A)
        xp.multiply(A, A, out=A)
        xp.subtract(D, A, out=A)
        xp.multiply(*field.pick(row.twice, piece), out=X)  # 2 U
        xp.subtract(X, A, out=X)
        xp.maximum(A, 0, out=A)
        xp.maximum(X, row.floor, out=X)
        xp.divide(A, X, out=t)
        if theta is not None and row.opposite < inf:
            flat = t > row.opposite
            X[...], t[...] = xp.where(flat, 0, X), xp.where(flat, LARGE, t)
        xp.sqrt(t, out=t)
        two_k = xp.subtract(X, A, out=A)
        W = xp.multiply(X, t, out=X)
        h = xp.arctan(t, out=t)  # a / 2
        if theta is not None:
            add_term(theta, two_k, pending)
        xp.multiply(two_k, h, out=two_k)
        xp.subtract(two_k, W, out=two_k)
        xp.multiply(D, c, out=D)
        xp.add(D, two_k, out=D)
        if row.scale != 1:
            D *= row.scale
        if theta is not None:
            xp.multiply(h, -2 * row.scale, out=h)
            factor = xp.add(h, c * row.scale, out=h)
            if row.zero is not None and row.slope is not None:
                zero, slope = field.pick(row.zero, piece), field.pick(row.slope, piece)
                factor[...] = xp.where(zero[0] + zero[1] > 0, slope[0] * slope[1], factor)
            xp.multiply(theta, factor, out=theta)
        field.workspace.give(both, t)


def form_of(step: Dual) -> Form | None:
    """Return the activation's formula for pairs of pixels, or None if it has none."""
    form: Form | None = getattr(step, "form", None)
    return None if form is None or form.pair is nothing else form


class FormCoefficients(NamedTuple):
    """A form's values for each pixel; the last is half the new variance, > 0.   unit : D's unit before the step."""

    form: Form
    numbers: tuple[PixelValues, ...]
    unit: float


def prepare_form(
    form: Form, numbers: tuple[Array, ...], before: Pixels, after: Pixels, layout: FieldLayout
) -> FormCoefficients:
    """Return the coefficients for `form`, given the pixels' values and the pixels before and after the activation."""
    xp = layout.xp
    half = xp.maximum(after.q / 2, float(xp.finfo(layout.dtype).tiny))  # 0 marks pixels outside the image
    return FormCoefficients(form, tuple(map(layout.spread, (*numbers, half))), before.unit)


FINER = 16
"""Formulas process pieces smaller by this factor, so that their temporary arrays stay in cache."""


def apply_form(row: FormCoefficients, field: Field) -> None:
    """Apply the formula of `row` to all pairs of the field."""
    xp, (ratio, rest) = field.xp, owed(field)
    m, constants = Arithmetic(xp, field.layout.dtype), (ratio, 2 * rest, row.unit, *row.form.constants)
    for piece in field.pieces(FINER):
        D, theta = field.d[piece], None if field.theta is None else field.theta[piece]
        one, two = zip(*(field.pick(values, piece) for values in row.numbers), strict=True)
        D[...], found = row.form.through(m, D, theta, one, two, constants)
        if theta is not None:
            theta[...] = found


class DualCoefficients(NamedTuple):
    """Coefficients of activations without a `Form`: the dual's `row`; sqrt q and scale before and after the step."""

    row: Any
    before: PixelValues | None
    root: PixelValues
    scale: PixelValues
    root_after: PixelValues
    scale_after: PixelValues
    unit: float
    pixels: int


@prepare.register(Dual)
def _(step: Any, pixels: Pixels, tile: Tile) -> tuple[Pixels, FormCoefficients | DualCoefficients]:
    xp, layout, shape = tile.layout.xp, tile.layout, pixels.q.shape
    rows, form = RowState(pixels.q.reshape(-1), pixels.theta.reshape(-1), pixels.error), form_of(step)
    after, row = step.rows(rows) if form is None else (step.after(rows), None)
    found = Pixels(after.q.reshape(shape), after.theta.reshape(shape), 1.0, after.error)
    if form is not None:
        return found, prepare_form(form, form.numbers(xp, pixels.q), pixels, found, layout)
    numbers = (xp.sqrt(rows.q), rows.scale, xp.sqrt(after.q), after.scale)
    root, scale, root_after, scale_after = (layout.spread(xp.reshape(v, shape)) for v in numbers)
    before, row = half_variances(pixels, layout), cast(row, layout.dtype)
    return found, DualCoefficients(row, before, root, scale, root_after, scale_after, pixels.unit, prod(pixels.grid))


@apply.register
def _(step: Dual, row: Any, field: Field) -> None:
    """Convert D to p = (D - (sqrt q - sqrt q')^2 / 2) / (2 sqrt(q q')), p to p' and p' to D', or apply a `Form`."""
    if isinstance(row, FormCoefficients):
        apply_form(row, field)
        return
    add_pending(field, row.before)
    field.roundings = ROUNDINGS_OF_SERIES
    xp, P = field.xp, row.pixels
    for piece in field.pieces():
        p = field.d[piece]
        theta = None if field.theta is None else field.theta[piece]
        with Scratch(xp, field.layout.dtype, p.size).borrow(2, p.shape) as (u, w):
            left, right = field.pick(row.root, piece)
            xp.subtract(left, right, out=w)
            w *= w
            w *= 0.5
            p *= row.unit
            p -= w
            other = (p > 0) | (left != right)  # D' = 0 for equal pre-activations, despite rounding
            xp.multiply(left, right, out=u)
            u *= 2
            xp.maximum(u, TINY_ROOT[field.layout.number] ** 2, out=u)
            xp.clip(p, 0, u, out=p)
            p /= u
            if theta is not None:
                xp.multiply(*field.pick(row.scale, piece), out=u)
                theta *= row.unit / 4
                theta /= u
        scratch = Scratch(xp, field.layout.dtype, p.size)
        if isinstance(field, Square):
            start = field.i.start * P
            block: Pairs = Block(
                scratch,
                slice(start + piece.start, start + piece.stop),
                slice(field.j.start * P, field.j.stop * P),
                p,
                theta,
            )
        else:
            block = Aligned(scratch, field, P, p, theta)
        step.pairs(block, row.row)
        with scratch.borrow(2, p.shape) as (u, w):
            left, right = field.pick(row.root_after, piece)
            xp.multiply(left, right, out=u)
            p *= u
            p *= other
            p *= 2
            xp.subtract(left, right, out=w)
            w *= w
            w *= 0.5
            p += w
            if theta is not None:
                xp.multiply(*field.pick(row.scale_after, piece), out=u)
                theta *= u
                theta *= 4


class Aligned(Pairs):
    """Pairs of pixels at the same position of images x and x'; p, tau : (A, B, H W)."""

    def __init__(self, scratch: Scratch, field: Field, P: int, p: Array, tau: Array | None) -> None:
        super().__init__(scratch, p, None, tau)
        self.field, self.P = field, P

    def sides(self, v: Array) -> tuple[Array, Array]:
        """Reshape v : (n P,), a value per pixel, to broadcast against the pairs: (A, 1, P) for x, (1, B, P) for x'."""
        images = v.reshape((-1, self.P))
        return images[self.field.i][:, None, :], images[self.field.j][None, :, :]

    def quarter_squared_distance(self, distances: Distances, out: Array) -> Array:
        out[...] = 0
        with self.borrow(1) as (w,):
            for k in range(distances.y.shape[1]):
                self.xp.subtract(*self.sides(distances.y[:, k]), out=w)
                w *= w
                out += w
        out /= 4
        return out


@prepare.register
def _(step: Normalise, pixels: Pixels, tile: Tile) -> tuple[Pixels, FormCoefficients]:
    xp = tile.layout.xp
    q = xp.mean(pixels.q, axis=tuple(a + 4 for a in step.pixels), keepdims=True) if step.pixels else pixels.q
    gain = xp.broadcast_to(step.gain(q), pixels.q.shape)
    after = Pixels(pixels.q * gain, pixels.theta * gain, 1.0, pixels.error)
    return after, prepare_form(NORMALISED, (xp.sqrt(pixels.q), xp.sqrt(gain)), pixels, after, tile.layout)


@apply.register
def _(step: Normalise, row: FormCoefficients, field: Field) -> None:
    apply_form(row, field)
