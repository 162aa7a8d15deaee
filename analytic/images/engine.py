"""Compute the kernels of images by propagating a few pairs of images at a time through all layers.

A tile's images are prepared together, with variances in float64.  Threads then compute pairs as fields or planes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod, sqrt
from threading import Lock
from typing import Any

from analytic.images.activations import form_of
from analytic.images.fields import Field, Pixels
from analytic.images.memory import Workspace
from analytic.images.pixel_pairs import BYTES_PER_PIECE, Diagonal, Selves, Square
from analytic.images.plan import ImagePlan, pixel_pairs_followed, plan_images, planes
from analytic.images.precision import check_entries, first_variances, holds_opposites
from analytic.images.rules import all_steps, depth
from analytic.images.steps import Tile, add_pending, apply_all, equal_pixels, follow, half_variances, prepare_all
from analytic.recursion.duals import Homogeneous
from analytic.recursion.interpolation import NUMBERS_IN_CACHE
from analytic.recursion.range_checks import check_results
from analytic.recursion.requests import FEWEST, SECONDS_PER_PAIR, Examples, Place, Progress, Wanted, blocks
from analytic.recursion.state import Dual, Program, RowState
from analytic.recursion.unit_rows import for_each
from minintk.arrays import Array, on_host
from minintk.cores import cores
from minintk.memory import short_rows
from minintk.progress import forewarned
from minintk.threads import alone, single_threaded_blas


def image_kernels(program: Program, inputs: Examples, wanted: Wanted) -> list[Array | None]:
    """Compute the NNGP and NTK of x1 (and x2); if needed, pair each image with itself first.  Errors: see `Wanted`."""
    plan = plan_images(program, inputs, pixels=wanted.pixels)
    hint = "; the work grows with the number of pixel pairs: pool earlier, or take smaller images"
    results = wanted.arrays(inputs, working_memory(plan, inputs), hint)
    wanted.warn(image_engine(plan, inputs, wanted.asked).run(results, wanted.progress))
    return results


def image_engine(plan: ImagePlan, inputs: Examples, asked: tuple[bool, bool]) -> ImageEngine:
    """Return an engine; if needed, first compute the kernels of each image with itself.   asked : (NNGP, NTK)."""
    firsts = (0, inputs.shape[0])[: len(inputs.x)] if plan.recorded else ()
    each = map(partial(self_kernels, plan, inputs), firsts)
    with single_threaded_blas():
        selves = alone(list, each) if is_small(plan, inputs) else list(each)
    own = selves[0].rows if selves and inputs.symmetric and plan.pixels == (1, 1) else None
    size = images_per_tile(plan, max(inputs.shape))
    return ImageEngine(plan, inputs, [one.pools for one in selves], own, asked, size)


def image_diagonals(program: Program, inputs: Examples) -> RowState:
    """Return K(x, x) and Theta(x, x) for every image of x1, (N,), float64."""
    first_variances(program, inputs)
    with single_threaded_blas():
        rows = self_kernels(plan_images(program, inputs, each=True), inputs).rows
    if inputs.shape[0]:
        check_results(inputs, rows.q, rows.theta)
    return rows


NUMBERS_OF_ONE_THREAD = 2**20
"""Without planes or series, kernels of up to this many pixel pairs use one thread, because NumPy's calls are short."""


def is_small(plan: ImagePlan, inputs: Examples) -> bool:
    """Return True if a second thread would cost more time than it saves."""
    numbers = prod(inputs.shape) * prod(plan.grid) ** (1 if plan.layout.diagonal else 2)
    return not plan.by_offsets and not by_quadrature(plan.program) and numbers <= NUMBERS_OF_ONE_THREAD


BYTES_PER_GPU_BATCH = 2**27
"""Number of bytes of D for the image pairs that a GPU processes at once.  Theta takes as many bytes."""


def pairs_at_once(plan: ImagePlan) -> int:
    """Return the number of pairs of images that pass through the layers at a time."""
    pair = plan.layout.number * prod(plan.field_grid) ** (1 if plan.layout.diagonal else 2)
    return max(1, (BYTES_PER_PIECE if on_host(plan.layout.xp) else BYTES_PER_GPU_BATCH) // pair)


NUMBERS_IN_TILE = 2**10
"""If results are requested for all pairs of pixels, a tile of several images has at most this many pixels per side."""


SHORTEST_TILE = 0.02
"""Approximate minimum seconds per tile on one core.  Smaller tiles would take most of their time to prepare images."""
SHORTEST_SUMMED = 5
"""For tiles of summed planes, SHORTEST_TILE is multiplied by this number, because all cores share such a tile."""


FASTER = 8
"""Approximate speed-up of planes over fields, per pair of pixels."""


def images_per_tile(plan: ImagePlan, n: int) -> int:
    """Return the number of images per side of a tile, at most n; it does not depend on the number of threads."""
    host = on_host(plan.layout.xp)
    if plan.pixels[1] > 1:
        return max(1, min(n, NUMBERS_IN_TILE // plan.pixels[1]))
    if plan.summed:
        most = 64 if plan.layout.diagonal else 32
    else:
        most = (32 if host else 256) if plan.layout.diagonal else max(8, min(32, pairs_at_once(plan)))
    if host:  # a tile is the smallest block of a store or an executor
        cost = SECONDS_PER_PAIR * pixel_pairs_followed(plan.program, plan.shape) * max(1, len(plan.program))
        cost /= FASTER if plan.by_offsets else 1
        shortest = SHORTEST_TILE * (SHORTEST_SUMMED if plan.summed else 1)
        n = min(n, max(ceil(n / FEWEST), ceil(sqrt(shortest / cost))))
    return max(1, min(most, n))


BUFFERS = {True: 12, False: 40}
"""{True on the host, False on a GPU: maximum number of piece-sized arrays of a step}.  A GPU's field is one piece."""
BYTES_OF_A_PIXEL = 40, 100
"""Maximum number of bytes that a prepared image occupies per pixel and channel, and per pixel and step."""
BYTES_OF_A_SERIES = 80_000
"""Bytes per pixel while an activation's coefficients are computed by quadrature; 35,000 of these bytes stay in use."""


def working_memory(plan: ImagePlan, inputs: Examples, size: int | None = None) -> int:
    """Estimate how many bytes all threads need in addition to the results.   size : images per side of a tile."""
    n, host = max(inputs.shape), on_host(plan.layout.xp)
    size = min(size or images_per_tile(plan, n), n)
    shared = 16 * sum(x.shape[0] for x in inputs.x) * sum(h * w for h, w in plan.pooled) if plan.recorded else 0
    shared += planes().bytes_of(plan, inputs, 2 * size) if plan.by_offsets else 0
    if plan.summed and not plan.recorded:
        return shared
    selves = min(n, selves_at_once(plan, n)) if plan.recorded else 0
    images, pairs = max(2 * size, selves), min(size * size, pairs_at_once(plan))
    results = 64 * plan.pixels[0] * (size * plan.pixels[1]) ** 2
    each = 2**21 + 64 * NUMBERS_IN_CACHE * (by_quadrature(plan.program) > 0) + results
    each += prepared_bytes(plan, inputs, images) + field_bytes(plan, pairs)
    return shared + (min(cores(), max(1, inputs.shape[0])) if host else 1) * each


def prepared_bytes(plan: ImagePlan, inputs: Examples, images: int) -> int:
    """Return how many bytes `images` prepared images and their coefficients occupy."""
    steps = sum(1 for _ in all_steps(plan.program))
    pixel = BYTES_OF_A_PIXEL[0] * inputs.example[-1] + BYTES_OF_A_PIXEL[1] * steps
    pixel += BYTES_OF_A_SERIES * by_quadrature(plan.program)
    return images * (pixel * prod(plan.grid) + 80 * sum(h * w for h, w in plan.pooled))


def field_bytes(plan: ImagePlan, pairs: int) -> int:
    """Return how many bytes the fields of `pairs` pairs of images occupy while they pass through the layers."""
    host, number = on_host(plan.layout.xp), 8 if plan.recorded else plan.layout.number
    field = pairs * number * prod(plan.field_grid) ** (1 if plan.layout.diagonal else 2)
    piece = min(field, BYTES_PER_PIECE + field // plan.field_grid[0]) if host else field  # at least a line of pixels
    return (4 + 2 * depth(plan.program)) * field + BUFFERS[host] * piece


def by_quadrature(program: Program) -> int:
    """Return the number of activations without a formula for pixels.  Their series can have many coefficients."""
    duals = (step for step in all_steps(program) if isinstance(step, Dual))
    return sum(not isinstance(step, Homogeneous) and form_of(step) is None for step in duals)


class PreparedImages:
    """Images prepared for the engine: an array per channel, a scale per image, and the mean squares of pixels."""

    def __init__(self, plan: ImagePlan, x: Array) -> None:
        xp, layout = plan.layout.xp, plan.layout
        x = xp.astype(x.reshape((x.shape[0], *plan.grid, -1)), xp.float64)
        self.scale = xp.ones(x.shape[0])
        if plan.scaled:
            self.scale = xp.sqrt(xp.mean(x * x, axis=(1, 2, 3)))
            self.scale = xp.where(self.scale > 0, self.scale, 1.0)
            x = x / self.scale[:, None, None, None]
        q: Any = sum(x[..., c] ** 2 for c in range(x.shape[3])) / x.shape[3]
        self.channels = [layout.spread(x[..., c]) for c in range(x.shape[3])]
        self.pixels = Pixels(q, xp.zeros_like(q), 1 / (2 * x.shape[3]))

    def field(
        self, plan: ImagePlan, workspace: Workspace, i: slice, j: slice, ntk: bool, kind: type[Field] = Square
    ) -> Field:
        """Return the field of the inputs' distances, D = mean over channels of (x - x')^2 / 2."""
        xp, kind = plan.layout.xp, Diagonal if plan.layout.diagonal else kind
        field = kind(plan.layout, workspace, i, j, plan.grid, asked=ntk)
        w = field.a[1] if ntk else workspace.take(field.d.shape)
        for c, values in enumerate(self.channels):
            target = w if c else field.d
            xp.subtract(field.left(values), field.right(values), out=target)
            target *= target
            if c:
                field.d += w
        if not ntk:
            workspace.give(w)
        return field


@dataclass(frozen=True)
class SelfKernels:
    """Store `rows`, each image's kernels with itself, and `pools`, D and Theta after poolings or before attentions."""

    pools: list[tuple[Array, Array]]
    rows: RowState


def selves_at_once(double: ImagePlan, n: int) -> int:
    """Return how many of n images to pair with themselves at a time; `Selves` need more memory than `Square`."""
    if by_quadrature(double.program):  # each image has its own coefficients
        return 1
    most = pairs_at_once(double)
    return max(1, min(most // 4, -(-n // 4))) if on_host(double.layout.xp) else most


def self_kernels(plan: ImagePlan, inputs: Examples, first: int = 0) -> SelfKernels:
    """Compute, in float64, the kernels of each image with itself, for x1, or for x2 if `first` = N."""
    x, xp = inputs.x[first > 0], plan.layout.xp
    N = x.shape[0]
    layout = replace(plan.layout, dtype=xp.float64)
    steps = plan.by_offsets and planes().steps_taken(plan.program, plan.shape, layout, 2**62)  # 0 if not possible
    double = replace(plan, layout=layout, by_offsets=steps)
    size = selves_at_once(double, N)
    pools = [tuple(xp.empty((N, *pooled), dtype=xp.float64) for _ in range(2)) for pooled in plan.pooled]
    nngp, ntk = xp.empty(N, dtype=xp.float64), xp.empty(N, dtype=xp.float64)
    errors = [0.0]
    workspace = Workspace(xp, xp.float64)

    def work(n: int) -> None:
        at = slice(n, min(n + size, N))
        images, kind = PreparedImages(double, x[at]), Square if size == 1 else Selves
        record: list[tuple[Array, Array]] = []
        tile = Tile(layout, iter(()), lambda k: inputs.called(first + n + k))
        where = workspace, slice(0, 1), slice(0, at.stop - n)
        if plan.layout.diagonal:
            after, _ = prepare_all(plan.program, images.pixels, tile)
        else:
            pixels = images.pixels
            if double.by_offsets:
                pixels, prepared = planes().prepared(double, images, tile, workspace, True)
                field = prepared.fill(kind(layout, *where, prepared.grid, asked=True))
            else:
                field = images.field(double, *where, True, kind)
            after, field = follow(plan.program[double.by_offsets :], pixels, field, tile, record)
            field.release()
        for (to_d, to_theta), (d, theta) in zip(pools, record, strict=True):
            to_d[at], to_theta[at] = d, theta
        square = images.scale**2
        nngp[at], ntk[at] = after.q[:, 0, 0] * square, after.theta[:, 0, 0] * square
        errors.append(after.error)

    for_each(xp, work, range(0, N, size))
    return SelfKernels(pools, RowState(nngp, ntk, max(errors)))


def rows_of(images: slice, F: int) -> slice:
    """Return the slice of rows that belong to a slice of images with F rows each."""
    return slice(images.start * F, images.stop * F)


@dataclass(frozen=True)
class ImageEngine:
    """Evaluate image kernels, or a block of them.

    inputs : if symmetric (x2 = x1), only the upper triangle is computed.   pools : `SelfKernels.pools` of x1 and x2.
    own : the diagonals, if known and x2 = x1.   asked : (NNGP, NTK), True for each requested kernel.
    size : number of images per tile side.   out : the results.   workspace : the threads' arrays.   `run` sets both.
    """

    plan: ImagePlan
    inputs: Examples
    pools: list[list[tuple[Array, Array]]]
    own: RowState | None
    asked: tuple[bool, bool]
    size: int
    out: tuple[Array | None, ...] = (None, None)
    workspace: Any = None

    def working_memory(self, inputs: Examples) -> int:
        """Return the number of bytes needed in addition to the results, for `inputs`, which can be those of a block."""
        others = sum(8 * int(a.size) for pool in self.pools for pair in pool for a in pair)
        return others + working_memory(self.plan, inputs, self.size)

    def at(self, place: Place) -> ImageEngine:
        """Return the engine for a block of whole tiles, but without its program and array library (see `under`)."""
        (i, j), inputs, plan = place, self.inputs.at(*place), self.plan
        sides = [(self.pools[0], i), (self.pools[-1], j)][: len(inputs.x)] if self.pools else []
        pools = [[(d[at], theta[at]) for d, theta in pool] for pool, at in sides]
        own = None if self.own is None or not inputs.symmetric else RowState(self.own.q[i], self.own.theta[i])
        bare = replace(plan, program=(), layout=replace(plan.layout, xp=None))
        return replace(self, plan=bare, inputs=inputs, pools=pools, own=own)

    def under(self, program: Program) -> ImageEngine:
        """Return the engine with `program`, which `at` drops because some programs cannot be pickled."""
        layout = replace(self.plan.layout, xp=self.inputs.xp)
        return replace(self, plan=replace(self.plan, program=program, layout=layout))

    def found(self) -> tuple[list[Array | None], float]:
        """Return NNGP and NTK, and the error bound of the quadratures."""
        xp, inputs = self.inputs.xp, self.inputs
        results = [xp.empty(inputs.shape, dtype=inputs.dtype) if asked else None for asked in self.asked]
        return results, self.run(results, None)

    def run(self, results: list[Array | None], progress: Progress | None) -> float:
        """Compute all tiles into `results`, (NNGP, NTK); return the error bound of the quadratures."""
        plan, xp = self.plan, self.plan.layout.xp
        filled = replace(self, out=tuple(results), workspace=Workspace(xp, plan.layout.dtype))
        with single_threaded_blas():
            error = alone(filled.fill, progress) if is_small(plan, self.inputs) else filled.fill(progress)
        for k, values in zip(results, (self.own.q, self.own.theta) if self.own else (), strict=False):
            if k is not None:
                xp.fill_diagonal(k, xp.astype(values, k.dtype))
        return error

    def fill(self, progress: Progress | None) -> float:
        """Compute all tiles into `out`; return the error bound of the quadratures."""
        xp = self.plan.layout.xp
        tiles = list(blocks(self.inputs.shape, self.size, self.inputs.symmetric))
        lock, done, errors = Lock(), [0], [0.0]
        tell = progress or forewarned("the kernel of {} x {} images".format(*self.inputs.shape))

        def work(tile: tuple[slice, slice]) -> None:
            with short_rows():  # also in the threads that share a tile
                error = self.tile(*tile)
            with lock:
                errors.append(error)
                done[0] += 1
                tell(done[0], len(tiles))

        if self.plan.summed:  # each tile uses all cores
            for tile in tiles:
                work(tile)
        else:
            for_each(xp, work, tiles)
        return max(errors)

    def tile(self, i: slice, j: slice) -> float:
        """Prepare one tile's images, compute its pairs, and return the error bound of the quadratures."""
        plan, xp, inputs = self.plan, self.plan.layout.xp, self.inputs
        same = inputs.symmetric and i == j
        parts = [inputs.x[0][i]] if same else [inputs.x[0][i], inputs.x[-1][j]]
        n, m = i.stop - i.start, j.stop - j.start
        first = 0 if same else n
        x = xp.concatenate(parts, axis=0)
        if plan.summed:  # summed planes need no arrays for fields
            plan = replace(plan, layout=replace(plan.layout, diagonal=True))
        images = PreparedImages(plan, x)
        pools: list[tuple[Array, Array] | None] = [None] * len(plan.pooled)
        if plan.recorded:
            sides = [(self.pools[0], i), (self.pools[-1], j)][: 1 if same else 2]
            for k in range(len(pools)):
                d, theta = (xp.concatenate([pool[k][w][rows] for pool, rows in sides], axis=0) for w in (0, 1))
                pools[k] = (d, theta)

        def called(k: int) -> str:
            beside = j.start + k - n + (0 if inputs.symmetric else inputs.shape[0])
            return inputs.called(i.start + k if k < n else beside)

        tile = Tile(plan.layout, iter(pools), called, on_host(xp) and holds_opposites(x))
        pairs = n, first, m, same
        if plan.summed:
            after, d, theta = planes().summed(self.plan, images, tile, self.workspace, pairs, self.asked[1])
        else:
            after, d, theta = self.through_fields(images, tile, pairs)
        rows, columns = slice(0, n), slice(first, first + m)
        scale, scale2 = self.sides(xp.broadcast_to(images.scale[:, None, None], after.q.shape), rows, columns)
        scale = scale * scale2
        q, q2 = self.sides(after.q, rows, columns)
        bound = xp.sqrt(q) * xp.sqrt(q2)
        self.write(self.out[0], i, j, xp.clip((q + q2) / 2 - after.unit * d, -bound, bound) * scale)
        q, q2 = self.sides(after.theta, rows, columns)
        bound = xp.sqrt(q) * xp.sqrt(q2)
        self.write(self.out[1], i, j, xp.clip(theta * (after.unit / 2), -bound, bound) * scale)
        return after.error

    def sides(self, values: Array, rows: slice, columns: slice) -> tuple[Array, Array]:
        """Reshape pixels' values (n, h, w) to (E, N F, 1) for x and (E, 1, M F) for x', with (E, F) = `plan.pixels`."""
        E, F = self.plan.pixels
        v = self.plan.layout.xp.moveaxis(values.reshape((-1, F, E)), -1, 0)
        return v[:, rows].reshape((E, -1, 1)), v[:, columns].reshape((E, 1, -1))

    def ends(self, field: Field, values: Array) -> Array:
        """Return the final values of a field of A images x and B images x', (E, A F, B F); (E, F) = `plan.pixels`."""
        if isinstance(field, Diagonal):
            return field.xp.moveaxis(values, -1, 0)
        return values[None] if self.plan.pixels[0] == 1 else equal_pixels(field, values)

    def through_fields(
        self, images: PreparedImages, tile: Tile, pairs: tuple[int, int, int, bool]
    ) -> tuple[Pixels, Array, Array]:
        """Return the final pixels, and D and Theta of the pairs.  Process all pixels of a few image pairs at a time."""
        plan, xp, (n, first, m, same), ntk = self.plan, self.plan.layout.xp, pairs, self.asked[1]
        E, F = plan.pixels
        pixels, prepared = images.pixels, None
        if plan.by_offsets:
            pixels, prepared = planes().prepared(plan, images, tile, self.workspace, ntk)
        tail = plan.program[plan.by_offsets :]
        after, coefficients = prepare_all(tail, pixels, tile)
        last = half_variances(after, plan.layout)
        d, theta = (xp.zeros((E, n * F, m * F), dtype=xp.float64) for _ in range(2))

        def work(batch: tuple[slice, slice]) -> None:
            a, b = batch
            columns = slice(first + b.start, first + b.stop)
            if prepared is None:
                field = images.field(plan, self.workspace, a, columns, ntk)
            else:
                field = prepared.fill(Square(plan.layout, self.workspace, a, columns, prepared.grid, asked=ntk))
            apply_all(tail, coefficients, field)
            add_pending(field, last)
            for found, values in ((d, field.d), (theta, field.theta)):
                if values is not None:
                    found[:, rows_of(a, F), rows_of(b, F)] = self.ends(field, values)
            field.release()

        for_each(xp, work, self.batches(n, m, same))
        return after, d, theta

    def write(self, out: Array | None, i: slice, j: slice, values: Array) -> None:
        """Write results and, if symmetric, their transpose.  For a tile on the diagonal, mirror its upper triangle."""
        if out is None:
            return
        xp, symmetric = self.plan.layout.xp, self.inputs.symmetric
        if symmetric and i == j:
            values = xp.triu(values) + xp.triu(values, k=1).swapaxes(-1, -2)
        F = self.plan.pixels[1]
        check_entries(self.inputs, i, j, values, F)
        values = xp.astype(values.reshape((*out.shape[:-2], *values.shape[-2:])), out.dtype)
        out[..., rows_of(i, F), rows_of(j, F)] = values
        if symmetric:
            out[..., rows_of(j, F), rows_of(i, F)] = values.swapaxes(-1, -2)

    def batches(self, n: int, m: int, same: bool) -> Iterator[tuple[slice, slice]]:
        """Yield batches of a tile's pairs that pass through the layers together."""
        most = pairs_at_once(self.plan)
        wide = min(m, most)
        deep = most // wide
        if same or self.plan.by_offsets:  # deep batches would cross the diagonal; cores share planes
            deep = min(deep, -(-n // 4))
        for a in range(0, n, deep):
            for b in range(a if same else 0, m, wide):
                yield slice(a, min(a + deep, n)), slice(b, min(b + wide, m))
