"""The engine for images: pairs of images, one or a few at a time, go through all layers.

Tiles of images are prepared together, their variances in float64; then each of the tile's pairs follows, its field of
pixel pairs held by one thread.  Nothing is shared between threads but the results.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import prod
from threading import Lock, local
from typing import Any

from analytic.images.fields import Field, Pixels
from analytic.images.memory import Form, Shelf, form_of
from analytic.images.pixel_pairs import STRIP, Diagonal, Square
from analytic.images.rules import Flat, Pool, Window, bends, grid, mixes, needs_images
from analytic.images.steps import Tile, apply_all, follow, halves, prepare_all, settle
from analytic.vectors.duals import Homogeneous
from analytic.vectors.engine import Progress, for_each
from analytic.vectors.rules import Affine, Sum
from analytic.vectors.state import Dual, Program
from minintk.arrays import Array, array_namespace, on_host, short_rows
from minintk.fast.threads import cores
from minintk.spec.shapes import Shape

APART = 1e4
"""Variances of two images whose ratio is larger are too far apart for float32."""

LARGE = 1e14
"""Variances that are larger, or smaller than its inverse: squares of theirs leave the range of float32."""


PART = 256
"""Images measured at a time."""


def leaves(program: Program) -> Iterator[Any]:
    """All steps, those inside sums too."""
    for step in program:
        if isinstance(step, Sum):
            yield from leaves(step.branch + step.shortcut)
        else:
            yield step


def scale_free(program: Program) -> bool:
    """Whether f(s x) = s f(x) for s > 0."""
    for step in leaves(program):
        if isinstance(step, Window | Affine):
            affine = step.affine if isinstance(step, Window) else step
            if affine.beta2 > 0 or affine.rest != 0:
                return False
        elif not isinstance(step, Pool | Flat | Homogeneous):
            return False
    return True


def precision(program: Program, images: tuple[Array, ...]) -> Any:
    """The precision of the fields: that of the images; float64 where float32 has no room for their variances.

    D = (q + q') / 2 - K holds K to rounding of the larger q, and K is wanted to rounding of sqrt(q q').
    """
    xp, dtype = array_namespace(*images), images[0].dtype
    if dtype == xp.float64 or scale_free(program):
        return dtype
    affine = next(
        (s.affine if isinstance(s, Window) else s for s in leaves(program) if isinstance(s, Window | Affine)), None
    )
    bias = 0.0 if affine is None else affine.beta2 / affine.w2
    axes = tuple(range(1, images[0].ndim))
    parts = [x[i : i + PART] for x in images for i in range(0, x.shape[0], PART)]
    q = xp.concat([bias + xp.mean(xp.astype(part, xp.float64) ** 2, axis=axes) for part in parts or images])
    q = q[q > 0]
    if not q.shape[0]:
        return dtype
    low, high = float(xp.min(q)), float(xp.max(q))
    return xp.float64 if high > APART * low or high > LARGE or low < 1 / LARGE else dtype


def guards(program: Program, on_cpu: bool) -> int:
    """Guards after each row of pixels: as many as the windows reach, where all activations work with them."""
    reach = 0
    for step in leaves(program):
        if isinstance(step, Dual) and not isinstance(step, Homogeneous):
            return 0
        if isinstance(step, Window) and step.axes[1].stride == 1 and not step.axes[1].circular:
            reach = max(reach, step.axes[1].before, step.axes[1].after)
    return reach if on_cpu and reach <= 3 else 0


@dataclass(frozen=True)
class Plan:
    """The program for images of one shape."""

    program: Program
    shape: Shape
    form: Form
    scaled: bool
    recorded: bool

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W) of the inputs."""
        return grid(self.shape)

    @property
    def room(self) -> int:
        """Numbers that a shifted view may reach beyond an array: four lines, and their guards."""
        return 4 * (max(self.grid) + 2 * self.form.most + 1)

    @property
    def pooled(self) -> list[tuple[int, int]]:
        """Grids after each pooling, in the order in which they are recorded."""
        return list(pool_grids(self.program))


def pool_grids(program: Program) -> Iterator[tuple[int, int]]:
    """The grids after each pooling: those of a shortcut before those of its branch."""
    for step in program:
        if isinstance(step, Sum):
            yield from pool_grids(step.shortcut)
            yield from pool_grids(step.branch)
        elif isinstance(step, Pool):
            yield step.axes[0].out, step.axes[1].out


JIT = 2**28
"""Bytes, ReLU by ReLU, from which on Numba pays: it takes half a second and 60 MB to load, and seconds the very first
time."""


def worth_compiling(program: Program, shape: Shape, pairs: int, item: int) -> bool:
    """Whether to use Numba, for so many pairs of inputs and bytes a number; where it is not installed, never."""
    relus = sum(isinstance(step, Homogeneous) and step.beta != 0 for step in leaves(program))
    return pairs * pixels(program, shape) * relus * item >= JIT and numba_works()


@cache
def numba_works() -> bool:
    """Whether Numba is there; a warning, once, where it is but does not load (it wants another NumPy)."""
    if find_spec("numba") is None:
        return False
    try:
        import_module("analytic.images.numba_kernels")
    except Exception as error:
        warnings.warn(f"Numba is installed but does not load, NumPy alone works on: {error}", RuntimeWarning, 2)
        return False
    return True


def plan(program: Program, shape: Shape, out: Shape, xp: Any, dtype: Any, pairs: int = 0) -> Plan:
    """How the kernels of a program are computed for examples of `shape`, whose outputs have shape `out`."""
    if grid(out) != (1, 1):
        program = (*program, Flat(prod(grid(out))))
    first = min((k for k, step in enumerate(program) if mixes((step,))), default=None)
    jit = on_host(xp) and worth_compiling(program, shape, pairs, int(xp.dtype(dtype).itemsize))
    form = form_of(xp, dtype, first is None, guards(program, on_host(xp)), jit)
    return Plan(program, shape, form, scale_free(program), first is not None and bends(program[first:]))


def pixels(program: Program, shape: Shape) -> int:
    """Pairs of pixels that are followed for a pair of inputs."""
    count = prod(grid(shape)) if needs_images(program) else 1
    return count * count if mixes(program) else count


DEVICE = 2**27
"""Bytes of D, and as many of Theta, that pairs of images are taken together up to on a GPU, enough to fill it."""


def together(plan: Plan) -> int:
    """Pairs of images that are taken together."""
    (H, W), form = plan.grid, plan.form
    host, number = on_host(form.xp), int(form.xp.dtype(form.dtype).itemsize)
    if form.diagonal and host:
        return max(1, STRIP // (form.run(H, W) * number))
    pair = form.run(H, W) * (1 if form.diagonal else H * W)
    return max(1, (STRIP if host else DEVICE) // (pair * number))


def tile_size(plan: Plan, n: int) -> int:
    """Images, on either side, that are prepared together."""
    host = on_host(plan.form.xp)
    most = (32 if host else 256) if plan.form.diagonal else max(8, min(32, together(plan)))
    return max(1, min(most, n // (2 * cores()) if host else n))


def working_memory(plan: Plan, shape: tuple[int, int]) -> int:
    """Bytes that all threads take together, beyond the results."""
    xp, (H, W) = plan.form.xp, plan.grid
    size, number = tile_size(plan, max(shape)), int(xp.dtype(plan.form.dtype).itemsize)
    run = plan.form.run(H, W)
    pair, pairs = (run, size * size) if plan.form.diagonal else (run * H * W, size)
    field = min(together(plan), pairs) * pair
    sums = sum(isinstance(step, Sum) for step in plan.program)
    steps = len(list(leaves(plan.program)))
    images = 2 * size * (run * number * 4 + H * W * 8 * 4) * (steps + 1)
    fields = (4 + 2 * min(sums, 1)) * field * number + 6 * STRIP
    selves = 2 * (H * W) ** 2 * 8 * 3 if plan.recorded else 0
    return min(cores(), max(1, shape[0])) * (images + max(fields, selves))


class Images:
    """Some images, ready: inputs laid out channel by channel, scales, pixels."""

    def __init__(self, plan: Plan, x: Array) -> None:
        xp, form = plan.form.xp, plan.form
        x = xp.astype(x.reshape((x.shape[0], *plan.grid, -1)), xp.float64)
        self.scale = xp.ones(x.shape[0], dtype=xp.float64)
        if plan.scaled:
            self.scale = xp.sqrt(xp.mean(x * x, axis=(1, 2, 3)))
            self.scale = xp.where(self.scale > 0, self.scale, 1.0)
            x = x / self.scale[:, None, None, None]
        q = sum(x[..., c] ** 2 for c in range(x.shape[3])) / x.shape[3]
        self.channels = [form.lay(x[..., c]) for c in range(x.shape[3])]
        self.pixels = Pixels(q, xp.zeros_like(q), 1 / (2 * x.shape[3]))

    def field(self, plan: Plan, shelf: Shelf, i: slice, j: slice, ntk: bool) -> Field:
        """The distances of the inputs, D = mean over channels of (x - x')^2 / 2."""
        xp = plan.form.xp
        field = (Diagonal if plan.form.diagonal else Square)(plan.form, shelf, i, j, plan.grid, asked=ntk)
        w = field.a[1] if ntk else shelf.take(field.d.shape)
        for c, lay in enumerate(self.channels):
            target = w if c else field.d
            xp.subtract(field.left(lay), field.right(lay), out=target)
            target *= target
            if c:
                field.d += w
        if not ntk:
            shelf.give(w)
        return field


@dataclass(frozen=True)
class Selves:
    """Of every image with itself: what each pooling makes of it (N, h, w), D and Theta, and the kernels (N,)."""

    pools: list[tuple[Array, Array]]
    nngp: Array
    ntk: Array
    error: float


def selves(plan: Plan, x: Array) -> Selves:
    """All images with themselves, in float64."""
    xp = plan.form.xp
    N = x.shape[0]
    form = form_of(xp, xp.float64, plan.form.diagonal, plan.form.most, plan.form.jit)
    double = Plan(plan.program, plan.shape, form, plan.scaled, plan.recorded)
    pools = [
        (xp.empty((N, *pooled), dtype=xp.float64), xp.empty((N, *pooled), dtype=xp.float64)) for pooled in plan.pooled
    ]
    nngp, ntk = xp.empty(N, dtype=xp.float64), xp.empty(N, dtype=xp.float64)
    errors = [0.0] * N
    own, room = local(), plan.room

    def work(n: int) -> None:
        if not hasattr(own, "shelf"):
            own.shelf = Shelf(xp, xp.float64, room)
        images = Images(double, x[n : n + 1])
        record: list[tuple[Array, Array]] = []
        if plan.form.diagonal:
            after, _ = prepare_all(plan.program, images.pixels, Tile(form, iter(())))
        else:
            field = images.field(double, own.shelf, slice(0, 1), slice(0, 1), True)
            after, field = follow(plan.program, images.pixels, field, Tile(form, iter(())), record)
            field.close()
        for (to_d, to_theta), (d, theta) in zip(pools, record, strict=True):
            to_d[n], to_theta[n] = d[0], theta[0]
        square = images.scale[0] ** 2
        nngp[n], ntk[n] = after.q[0, 0, 0] * square, after.theta[0, 0, 0] * square
        errors[n] = after.error

    for_each(xp, work, range(N))
    return Selves(pools, nngp, ntk, max(errors, default=0.0))


@dataclass(frozen=True)
class Engine:
    """One evaluation of the kernels.

    x : the images, one array, or two.   shape : (N, M).   symmetric : x2 = x1; only the upper triangle is computed.
    """

    plan: Plan
    x: tuple[Array, ...]
    shape: tuple[int, int]
    symmetric: bool
    nngp: Array | None
    ntk: Array | None
    pools: list[list[tuple[Array, Array]]]

    def run(self, progress: Progress | None) -> float:
        """All tiles, on all cores; the quadratures' error."""
        xp = self.plan.form.xp
        tiles = list(self.tiles())
        own, lock, done, errors, room = local(), Lock(), [0], [0.0], self.plan.room

        def work(tile: tuple[slice, slice]) -> None:
            if not hasattr(own, "shelf"):
                own.shelf = Shelf(xp, self.plan.form.dtype, room)
            with short_rows():
                error = self.tile(*tile, own.shelf)
            with lock:
                errors.append(error)
                done[0] += 1
                if progress is not None:
                    progress(done[0], len(tiles))

        for_each(xp, work, tiles)
        return max(errors)

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Blocks of images that cover the matrix, or its upper triangle where it is symmetric."""
        n, m = self.shape
        size = tile_size(self.plan, max(n, m))
        for i in range(0, n, size):
            for j in range(i if self.symmetric else 0, m, size):
                yield slice(i, min(i + size, n)), slice(j, min(j + size, m))

    def tile(self, i: slice, j: slice, shelf: Shelf) -> float:
        """One tile: all of its images prepared, then its pairs."""
        plan, xp = self.plan, self.plan.form.xp
        same = self.symmetric and i == j
        parts = [self.x[0][i]] if same else [self.x[0][i], self.x[-1][j]]
        n, m = i.stop - i.start, j.stop - j.start
        first = 0 if same else n
        images = Images(plan, xp.concatenate(parts, axis=0))
        pools = []
        for k, shape in enumerate(plan.pooled):
            if plan.recorded:
                pieces = [self.pools[0][k]] if same else [self.pools[0][k], self.pools[-1][k]]
                slices = (i, j)
                pools.append(
                    tuple(
                        xp.concatenate([piece[w][s] for piece, s in zip(pieces, slices, strict=False)], axis=0)
                        for w in (0, 1)
                    )
                )
            else:
                zero = xp.zeros((images.scale.shape[0], *shape), dtype=xp.float64)
                pools.append((zero, zero))
        after, coefficients = prepare_all(plan.program, images.pixels, Tile(plan.form, iter(pools)))
        last = halves(after, plan.form)
        d, theta = xp.zeros((n, m), dtype=xp.float64), xp.zeros((n, m), dtype=xp.float64)
        for a, b in self.items(n, m, same):
            field = images.field(plan, shelf, a, slice(first + b.start, first + b.stop), self.ntk is not None)
            apply_all(plan.program, coefficients, field)
            settle(field, last)
            for found, values in ((d, field.d), (theta, field.theta)):
                if values is not None:
                    found[a, b] = values.reshape((*field.sizes, -1))[..., 0]
            field.close()
        rows, columns = slice(0, n), slice(first, first + m)
        scale = images.scale[rows, None] * images.scale[columns]
        q, q2 = after.q[rows, 0, 0][:, None], after.q[columns, 0, 0]
        bound = xp.sqrt(q * q2)
        self.put(self.nngp, i, j, xp.clip((q + q2) / 2 - after.unit * d, -bound, bound) * scale)
        theta *= after.unit / 2
        if plan.recorded or not plan.pooled:  # what images have with themselves is known
            bound = xp.sqrt(after.theta[rows, 0, 0][:, None] * after.theta[columns, 0, 0])
            theta = xp.clip(theta, -bound, bound)
        self.put(self.ntk, i, j, theta * scale)
        return after.error

    def put(self, out: Array | None, i: slice, j: slice, values: Array) -> None:
        """Results to their places, and to their mirror images; of the two roundings of a pair, the one above."""
        if out is None:
            return
        xp = self.plan.form.xp
        if self.symmetric and i == j:
            values = xp.triu(values) + xp.triu(values, k=1).T
        values = xp.astype(values, out.dtype)
        out[i, j] = values
        if self.symmetric:
            out[j, i] = values.T

    def items(self, n: int, m: int, same: bool) -> Iterator[tuple[slice, slice]]:
        """Pairs of the tile that are taken together."""
        most = together(self.plan)
        wide = min(m, most)
        deep = max(1, min(n, most // wide)) if self.plan.form.diagonal else 1
        for a in range(0, n, deep):
            for b in range(a if same else 0, m, wide):
                yield slice(a, min(a + deep, n)), slice(b, min(b + wide, m))
