"""Propagate pixel pairs (p, p + o) in planes, one for each o_y, which stay in cache through all leading layers.

A window of stride 1 shifts both pixels together, and an activation acts on single pairs.  Pairs at different offsets o
therefore do not mix before a pooling.  A global pooling needs only the sum over all pairs.  A `Field` propagates all
pairs layer by layer.  Here, the pairs of one plane pass through all leading layers before those of the next plane.

    plane    pairs at one offset o_y across the lines, with one line for each y such that y + o_y is inside
    line     the pairs at several offsets o_x along the lines, in sequence; small images share a line
    margins  the surrounding pairs with one pixel outside: D is q / 2 of the pixel inside, and Theta is 0

Lines of all y and o_y have the same layout.  The values that an activation needs, such as sqrt(q / 2 unit), are
therefore laid out once per image, with 0 for pixels outside, and each plane uses them as two long arrays.  On a GPU, a
block of threads computes a plane (`analytic.fast.gpu_kernels`), and a line contains the pairs at one offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from itertools import product
from math import prod
from typing import Any

import numpy as np

from analytic.fast import gpu_kernels
from analytic.fast.readouts import Readout, readout
from analytic.images.activations import FormCoefficients, KinkedCoefficients, form_of
from analytic.images.fields import Field
from analytic.images.memory import CACHE_LINE_BYTES, PixelValues, Workspace, rounded
from analytic.images.pixel_pairs import Selves
from analytic.images.rules import Pool, Window, all_steps
from analytic.images.steps import ForkCoefficients, WindowCoefficients
from analytic.images.window_sums import window_matrix
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Affine, Normalise, ResidualSum
from analytic.recursion.scalar_forms import FORMS, KINKED, LINEAR, Form
from analytic.recursion.state import Dual, Program, Step
from minintk.arrays import Array, array_namespace, on_host, raw_kernel, to_library
from minintk.threads import parallel

WINDOW, FORM, COPY, ADD = range(4)
"""Kinds of steps, as in `analytic.fast.numba_kernels` and `gpu_kernels`."""

PLACES_IN_LINE = 320
"""Approximate maximum number of pairs per line.  A plane of 32 lines and its pixels' numbers then stay in cache."""


def split(program: Program) -> int:
    """Return the number of leading steps that run offset by offset, or 0 if these include no activation."""
    count = next((k for k, step in enumerate(program) if not follows(step)), len(program))
    return count if any(isinstance(step, Dual) for step in all_steps(program[:count])) else 0


def sums_suffice(program: Program, grid: tuple[int, int]) -> Readout | None:
    """Return a read-out of planes of (H, W) pixels if weighted sums suffice, or None if a later step needs a field."""
    count = split(program)
    for step in all_steps(program[:count]):
        grid = (step.axes[0].out, step.axes[1].out) if isinstance(step, Window) else grid
    return readout(program[count:], grid)


PIXELS_ADDED_UP = 4
"""Maximum number of pixels of a window that planes sum.  Its 16 pairs add `fields.ROUNDINGS`, half a rounding each."""


def added_up(step: Pool, xp: Any) -> bool:
    """Return True if planes sum a pooling's windows without a field: on the host, for small windows without overlap."""
    apart = all(a.stride >= a.kernel and not a.circular for a in step.axes)
    return on_host(xp) and apart and prod(a.kernel for a in step.axes) <= PIXELS_ADDED_UP


@singledispatch
def follows(step: Step) -> bool:
    """Return True if the step acts on each offset separately and `encode` supports the step."""
    return False


@follows.register
def _(step: Dual) -> bool:
    form = form_of(step)  # only the kinds in `FORMS`, from which code is generated
    return isinstance(step, Homogeneous) or (form is not None and getattr(FORMS.get(form.name), "pair", 0) is form.pair)


@follows.register
def _(step: Normalise) -> bool:
    return True


@follows.register(Affine)
def _(step: Affine) -> bool:
    return step.rest == 0  # otherwise, Theta of black pixels is not 0


@follows.register(Window)
def _(step: Window) -> bool:
    return follows(step.affine) and all(a.stride == 1 and not a.circular and a.out <= a.size for a in step.axes)


@follows.register(ResidualSum)
def _(step: ResidualSum) -> bool:
    return all(follows(one) for one in step.branch + step.shortcut)


@dataclass
class Steps:
    """Steps encoded as numbers, which `numba_kernels.plane` reads.

    table : (kind, slot, e, H - lines, ...) of each step.  A FORM appends its index in `forms` and its number of arrays,
    which start at values[e]; the last array is for margins.  A WINDOW appends (before, kernel) of each axis; e = 1 if
    Theta is not 0.  COPY and ADD append the other slot.   factors : a FORM's (ratio, 2 rest, constants) or ADD's ratio.
    values : arrays (n, h, w).   forms : (name, number of arrays, number of factors).   taken : last slot in use.
    """

    size: tuple[int, int]
    values: list[Array]
    table: list[tuple[int, ...]] = field(default_factory=list)
    factors: list[tuple[float, ...]] = field(default_factory=list)
    forms: list[tuple[str, int, int]] = field(default_factory=list)
    pending: tuple[float, float] | None = None
    live: bool = False
    slots: int = 1
    taken: int = 0

    def __post_init__(self) -> None:
        self.grid, self.channels = self.size, len(self.values)

    def add(self, kind: int, slot: int, e: int, *more: int, factors: tuple[float, ...] = ()) -> None:
        """Append one step."""
        self.table.append((*(kind, slot, e, self.size[0] - self.grid[0]), *more, *(0,) * (4 - len(more))))
        self.factors.append((*factors, *(0.0,) * (8 - len(factors))))

    def owed(self) -> tuple[float, float]:
        """Return (ratio, 2 rest) of the pending term, and clear it."""
        (ratio, rest), self.pending = self.pending or (0.0, 0.0), None
        self.live = self.live or ratio != 0 or rest != 0
        return ratio, 2 * rest

    def form(self, slot: int, form: Form, numbers: list[Array], own: tuple[float, ...] = ()) -> None:
        """Append a form.  Forms act on each pair separately.   own : the form's constants."""
        e, factors = len(self.values), (*self.owed(), *own)
        self.values += [values.reshape((-1, *self.grid)) for values in numbers]
        code = form.name, len(numbers), len(factors)
        if code not in self.forms:
            self.forms.append(code)
        self.add(FORM, slot, e, self.forms.index(code), len(numbers), factors=factors)

    def settle(self, half: PixelValues | None, slot: int) -> None:
        """If a term is pending, append a form that adds it and resets the margins."""
        if self.pending is not None and half is not None:
            xp, tiny = array_namespace(half.left), np.finfo(half.left.dtype).tiny
            self.form(slot, LINEAR, [xp.maximum(half.left, tiny)])  # 0 marks pixels outside the image


@singledispatch
def encode(step: Step, row: Any, steps: Steps, slot: int) -> None:
    """Append the step and its coefficients to `steps`; the step acts on the planes in `slot`."""
    raise TypeError(f"{type(step).__name__} has no step of planes: register follows and encode for it")


@encode.register
def _(step: Window, row: WindowCoefficients, steps: Steps, slot: int) -> None:
    steps.settle(row.before, slot)
    rows, columns = step.axes
    steps.grid = rows.out, columns.out
    steps.add(WINDOW, slot, int(steps.live), rows.before, rows.kernel, columns.before, columns.kernel)
    steps.pending = row.pending


@encode.register
def _(step: Affine, row: WindowCoefficients, steps: Steps, slot: int) -> None:
    steps.settle(row.before, slot)
    steps.pending = row.pending


@encode.register
def _(step: Homogeneous, row: Any, steps: Steps, slot: int) -> None:
    if isinstance(row, KinkedCoefficients):
        c, half = np.pi / (2 * step.b2), row.half.left
        steps.form(slot, KINKED, [half, c * row.scale * half * half], (c, step.b2, row.scale))
    else:
        steps.settle(row, slot)


@encode.register(Dual)
@encode.register(Normalise)
def _(step: Step, row: FormCoefficients, steps: Steps, slot: int) -> None:
    steps.form(slot, row.form, [values.left for values in row.numbers], (row.unit, *row.form.constants))


@encode.register
def _(step: ResidualSum, row: ForkCoefficients, steps: Steps, slot: int) -> None:
    steps.settle(row.before, slot)
    other, live, grid = steps.taken + 1, steps.live, steps.grid  # enclosing sums keep their slots
    steps.taken, steps.slots = other, max(steps.slots, other + 1)
    steps.add(COPY, other, 0, slot)
    encode_all(step.shortcut, row.shortcut, steps, other)
    steps.settle(row.after_shortcut, other)
    second, steps.live, steps.grid = steps.live, live, grid
    encode_all(step.branch, row.branch, steps, slot)
    steps.settle(row.after_branch, slot)
    steps.live, steps.taken = steps.live or second, other - 1
    steps.add(ADD, slot, 0, other, factors=(row.ratio,))


def encode_all(program: Program, rows: tuple[Any, ...], steps: Steps, slot: int = 0) -> None:
    """Append all steps of a program."""
    for step, row in zip(program, rows, strict=True):
        encode(step, row, steps, slot)


def lines_of_places(W: int, weights: Array, reach: tuple[int, int], some: int) -> Iterator[tuple[Array, Array]]:
    """Yield each line's parts, as in `numba_kernels.follow`, and the weights of its positions, (positions, some).

    weights : (w, w), on the last grid.   reach : windows' extent before and after a pixel.   some : images x' per line.
    """
    more = sum(reach)
    left = [(image, offset) for offset in offsets_of(weights) for image in range(some)]
    while left:
        parts, at = list[tuple[int, ...]](), 0
        while left and (not parts or at + W - abs(left[0][1]) + more <= PLACES_IN_LINE):
            image, offset = left.pop(0)
            parts.append((image, at, W - abs(offset) + more, max(0, offset), max(0, -offset)))
            at += parts[-1][2]
        wanted = np.zeros((rounded(at, 16), some))
        for image, begin, _, x2, x in parts:
            pairs = np.diagonal(weights, x2 - x)
            wanted[begin + reach[0] :][: len(pairs), image] = pairs
        yield np.array(parts, dtype=np.int64), wanted


def offsets_of(weights: Array) -> list[int]:
    """Return the offsets at which some pair has a nonzero weight.   weights : (n, n), symmetric."""
    return [o for o in range(1 - len(weights), len(weights)) if np.diagonal(weights, o).any()]


@dataclass(frozen=True)
class Planes:
    """Planes of several images: their steps and the layout of the pixels' values.

    readout : defines the sum over planes, or None to keep all pixel pairs.   tangent : True if Theta is requested.
    pool : a pooling whose windows are summed while the field is filled.
    """

    steps: Steps
    workspace: Workspace
    readout: Readout | None
    tangent: bool
    pool: Pool | None = None

    @cached_property
    def weights(self) -> tuple[Array, Array]:
        """Return the weights of pairs of lines and of pairs of columns, at most 1; without `readout`, all are 1."""
        if self.readout is None:
            return np.ones((self.steps.grid[0],) * 2), np.ones((self.steps.grid[1],) * 2)
        return self.readout.weights[:2]

    @cached_property
    def across(self) -> tuple[Array, Array]:
        """Return the offsets across the lines, and the weight of each line at each offset as (offsets, H)."""
        H, rows = self.steps.size[0], self.weights[0]
        found = [np.diagonal(rows, offset) for offset in offsets_of(rows)]
        padded = [np.concatenate((one, np.zeros(H - len(one)))) for one in found]
        return np.array(offsets_of(rows), dtype=np.int64), np.array(padded)

    @property
    def reach(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the extent of windows before and after a pixel, across the lines and along them."""
        windows = [row[4:8] for row in self.steps.table if row[0] == WINDOW] or [(0, 1, 0, 1)]
        rows, columns = ([(w[k], w[k + 1] - 1 - w[k]) for w in windows] for k in (0, 2))
        (top, bottom), (left, right) = (tuple(max(e) for e in zip(*ends, strict=True)) for ends in (rows, columns))
        return (top, bottom), (left, right)

    @property
    def xp(self) -> Any:
        """Return the array library of the images."""
        return array_namespace(self.steps.values[0])

    @cached_property
    def lines(self) -> tuple[int, list[tuple[Array, Array]]]:
        """Return the number of images x' per line, and the lines."""
        (_, W), ends, columns = self.steps.size, self.reach[1], self.weights[1]
        some = max(1, PLACES_IN_LINE // sum(W - abs(k) + sum(ends) for k in offsets_of(columns)))
        return some, list(lines_of_places(W, columns, ends, some))

    @cached_property
    def arrays(self) -> tuple[Array, Array]:
        """Return the steps' table and their factors as arrays."""
        return np.array(self.steps.table, dtype=np.int64), np.array(self.steps.factors, self.workspace.dtype)

    @cached_property
    def laid_out(self) -> Array:
        """Return the pixels' values as (n, len(steps.values), lines, columns), padded with zeros."""
        (H, W), ((top, bottom), (left, right)), values = self.steps.size, self.reach, self.steps.values
        shape = values[0].shape[0], len(values), top + H + bottom, left + W + right
        out = self.xp.zeros(shape, dtype=self.workspace.dtype)
        for e, v in enumerate(values):
            out[:, e, top : top + v.shape[1], left : left + v.shape[2]] = v
        return out

    @property
    def grid(self) -> tuple[int, int]:
        """Return (H, W) of a field after these steps."""
        return self.steps.grid if self.pool is None else self.pool.grid

    @cached_property
    def into(self) -> Array:
        """Map pixels after the steps to indices in the field: their own or, with `pool`, their windows' (-1: none)."""
        if self.pool is None:
            return np.arange(prod(self.grid))
        rows, columns = (np.where(T.any(axis=0), T.argmax(axis=0), -1) for T in map(window_matrix, self.pool.axes))
        inside = (rows[:, None] >= 0) & (columns >= 0)
        return np.where(inside, rows[:, None] * self.grid[1] + columns, -1).reshape(-1)

    def sums(self, n: int, first: int, m: int, same: bool) -> Array:
        """Return sums of D and Theta, (2, n, m), for images :n with first:first + m; 0 below the diagonal if `same`."""
        assert self.readout is not None
        unit = self.readout.weights[2]
        if not on_host(self.xp):
            left, right = np.triu_indices(n) if same else (k.reshape(-1) for k in np.indices((n, m)))
            found = self.launch(np.stack((left, first + right), axis=1), None)
            both = self.xp.zeros((2, n, m), dtype=self.xp.float64)
            both[:, to_library(left, self.xp), to_library(right, self.xp)] = found.T
            return both * unit
        some, lines = self.lines
        none = np.zeros((0,) * 4, self.workspace.dtype)

        def work(item: tuple[int, int]) -> Array:
            i, at = item
            begin, width = i if same else 0, len(lines[at][1])
            total = np.zeros((2, -(-(m - begin) // some), width))
            self.follow((i, first + begin), at, total, none, (0, 0))
            return (total @ lines[at][1]).reshape((2, -1))[:, : m - begin]

        out = np.zeros((2, n, m))
        items = [(i, at) for i in range(n) for at in range(len(lines))]
        for (i, _), found in zip(items, parallel(work, items), strict=True):
            out[:, i, i if same else 0 :] += found
        return out * unit

    def fill(self, out: Field) -> Field:
        """Write the field of pairs of pixels or windows after these steps into `out`, with 0 for omitted pairs."""
        out.live, out.added_up = 1 + (self.tangent and self.steps.live), self.pool is not None
        out.a[...] = 0
        if on_host(self.xp):
            (some, lines), (n, m), each = self.lines, out.sizes, isinstance(out, Selves)
            field = out.a.reshape((*out.a.shape[:2], m, -1))
            for k, (at, (_, wanted)) in product(range(n), enumerate(lines)):
                total = np.zeros((2, -(-m // some), len(wanted)))
                one = out.j.start if each else out.i.start + k
                self.follow((one, out.j.start), at, total, field, (int(each), k * field.shape[3]))
        else:
            i, j = (np.arange(at.start, at.stop) for at in (out.i, out.j))
            left = j if isinstance(out, Selves) else np.repeat(i, len(j))
            self.launch(np.stack((left, np.resize(j, len(left))), axis=1), out.a, len(j))
        out.set_arrays(out.a)
        return out

    def follow(self, images: tuple[int, int], at: int, total: Array, field: Array, where: tuple[int, int]) -> None:
        """Run `numba_kernels.follow` on line `at`, for an image x and images x'.   where : (each, row)."""
        from analytic.fast.compiled import steps_of_form
        from analytic.fast.numba_kernels import follow

        H, ((top, bottom), ends), values = self.steps.size[0], self.reach, self.laid_out
        (some, lines), (table, factors) = self.lines, self.arrays
        width, rows = total.shape[2], top + H + bottom
        room = rounded(max(ends), CACHE_LINE_BYTES)
        shapes = ((values.shape[1], rows * width),) * 2 + ((2 * self.steps.slots + 1, rows * width + 2 * room),)
        lefts, rights, buffers = (self.workspace.take(shape) for shape in shapes)
        forms = [steps_of_form(name, values.dtype, self.tangent, *sizes) for name, *sizes in self.steps.forms]
        follow(table, factors, np.array(forms, dtype=np.int64), values, (*images, some, *where), lines[at][0],
               *self.across, (H, self.steps.channels, top, bottom, ends[0], self.steps.grid[1]), room + top * width,
               lefts, rights, buffers, total, self.into, field, self.tangent)  # fmt: skip
        self.workspace.give(lefts, rights, buffers)

    def launch(self, pairs: Array, field: Array | None, others: int = 1) -> Array:
        """Compute planes on a GPU.  Fill `field` if given (`others` images x' per x); return the sums, (pairs, 2)."""
        steps, values, xp = self.steps, self.laid_out, self.xp
        (H, W), w, (rows, columns) = steps.size, steps.grid[1], self.reach
        shape = (len(steps.table), H, W, values.shape[1], steps.channels, steps.slots, *rows, *columns, W - w,
                 field is not None, others)  # fmt: skip
        arguments = (np.array(a).astype(np.int32) for a in (shape, steps.table, pairs))
        whole, table, images = (to_library(a, xp) for a in arguments)
        factors = to_library(np.array(steps.factors, self.workspace.dtype), xp)
        source = gpu_kernels.source(self.workspace.dtype, tuple(steps.forms), tangent=self.tangent)
        kernel = raw_kernel(xp, "planes", source)
        assert kernel is not None
        field = xp.empty(1, dtype=self.workspace.dtype) if field is None else field
        along = np.array(offsets_of(self.weights[1]), dtype=np.int32)
        places, along_counts, counts = (to_library(a, xp) for a in (along, self.weights[1], self.across[1]))
        blocks = len(pairs), len(along)
        total, found = xp.zeros((len(pairs), 2), dtype=xp.float64), xp.zeros((*blocks, 2), dtype=xp.float64)
        for k, dy in enumerate(self.across[0].tolist()):  # one launch per offset across the lines
            size = (H - abs(dy) + sum(rows)) * (W + sum(columns))
            threads = gpu_kernels.threads_for(size)
            memory = gpu_kernels.block_bytes(size, steps.slots, threads, values.dtype.itemsize)
            kernel(blocks, threads, (whole, table, factors, images, values, np.int32(dy), places, counts[k],
                                     along_counts, found, field), memory)  # fmt: skip
            total += xp.sum(found, axis=1)
        return total
