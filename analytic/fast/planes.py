"""Choose which leading steps of image kernels run plane by plane, bound their memory, and run them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from analytic.fast.gpu_kernels import block_bytes
from analytic.fast.offsets import PLACES_IN_LINE, Planes, Steps, added_up, encode_all, split, sums_suffice
from analytic.images.fields import Pixels
from analytic.images.memory import FieldLayout, Workspace
from analytic.images.pixel_pairs import Diagonal
from analytic.images.plan import ImagePlan, pixel_pairs_followed
from analytic.images.rules import Window, all_steps, depth, grid
from analytic.images.steps import Tile, add_pending, apply_all, half_variances, pooled_difference, prepare_all
from analytic.recursion.duals import Homogeneous
from analytic.recursion.requests import Examples
from analytic.recursion.state import Dual, Program
from minintk.arrays import Array, block_memory, on_host
from minintk.cores import cores
from minintk.fast.numba_here import with_numba
from minintk.spec.shapes import Shape

__all__ = ["added_up", "bytes_of", "prepared", "steps_taken", "summed", "sums_suffice"]

BYTES_WORTH_NUMBA = 2**24
"""Numba pays off if activations process at least this many bytes (1/30 s in NumPy, and at most half of that in Numba).
Loading Numba takes 0.25 s and 130 MB in each process, and 5 s the first time.  The decision ignores whether Numba is
already loaded; otherwise, results would depend on earlier calls."""


AS_RELU = 3
"""Activations outside ReLU's family take three times as long, so one third of the bytes is enough for them."""


def worth_compiling(program: Program, shape: Shape, pairs: int, item: int) -> bool:
    """Return True if Numba is installed and saves time for `pairs` pairs of inputs at `item` bytes per entry."""
    steps = [step for step in all_steps(program[: split(program)]) if isinstance(step, Dual)]
    layers = sum(1 if isinstance(step, Homogeneous) else AS_RELU for step in steps)
    return pairs * pixel_pairs_followed(program, shape) * layers * item >= BYTES_WORTH_NUMBA and numba_works()


def fits_a_block(xp: Any, program: Program, shape: Shape, item: int) -> bool:
    """Return True if planes with their margins fit into a GPU block's shared memory, at `item` bytes per entry."""
    head, (H, W) = program[: split(program)], grid(shape)
    windows = [step.axes for step in all_steps(head) if isinstance(step, Window)]
    h, w = (max((2 * axes[k].kernel for axes in windows), default=0) for k in (0, 1))
    return block_bytes((H + h) * (W + w), 1 + depth(head), 128, item) <= block_memory(xp)


@cache
def numba_works() -> bool:
    """Return True if Numba is installed and loads.  Warn once if it fails to load, e.g. with an incompatible NumPy."""
    return with_numba("analytic.fast.numba_kernels") is not None


def steps_taken(program: Program, shape: Shape, layout: FieldLayout, pairs: int) -> int:
    """Return the number of leading steps that run plane by plane for `pairs` pairs of images."""
    xp, item = layout.xp, layout.number
    jit = worth_compiling(program, shape, pairs, item) if on_host(xp) else fits_a_block(xp, program, shape, item)
    return split(program) if jit and (not layout.diagonal or sums_suffice(program, grid(shape))) else 0


def bytes_of(plan: ImagePlan, inputs: Examples, images: int) -> int:
    """Return an upper bound on the bytes that the images prepared together and the planes of all threads occupy."""
    number, head = plan.layout.number, plan.program[: plan.by_offsets]
    windows = [step.axes for step in all_steps(head) if isinstance(step, Window)]
    rows, columns = (size + max((axes[k].kernel for axes in windows), default=1) for k, size in enumerate(plan.grid))
    values = inputs.example[-1] + sum(11 if isinstance(step, Dual) else 2 for step in all_steps(head))
    line, weights = PLACES_IN_LINE + columns, 64 * (rows**2 + columns**2)
    prepared, core = 4 * number * values * rows * columns, 3 * number * values * rows * line + 16 * images * line
    return 2**21 + weights + images * prepared + (cores() if on_host(plan.layout.xp) else 1) * core


def prepared(plan: ImagePlan, images: Any, tile: Tile, workspace: Workspace, ntk: bool) -> tuple[Pixels, Planes]:
    """Return the pixels after the steps that run offset by offset, and the planes of these steps."""
    head = plan.program[: plan.by_offsets]
    pixels, rows = prepare_all(head, images.pixels, tile)
    first = [values.left.reshape((-1, *plan.grid)) for values in images.channels]
    planes = Planes(Steps(plan.grid, first), workspace, sums_suffice(plan.program, plan.grid), ntk, plan.pool)
    encode_all(head, rows, planes.steps)
    planes.steps.settle(half_variances(pixels, tile.layout), 0)
    return pixels, planes


def summed(
    plan: ImagePlan, images: Any, tile: Tile, workspace: Workspace, pairs: tuple[int, int, int, bool], ntk: bool
) -> tuple[Pixels, Array, Array]:
    """Return the final pixels, and D and Theta of the pairs; steps after the planes run in float64."""
    xp, (n, first, m, _) = plan.layout.xp, pairs
    (pixels, planes), tail = prepared(plan, images, tile, workspace, ntk), plan.program[plan.by_offsets :]
    layout = replace(tile.layout, dtype=xp.float64)
    after, rows = prepare_all(tail, pixels, replace(tile, layout=layout))
    field = Diagonal(layout, Workspace(xp, xp.float64), slice(0, n), slice(first, first + m), (1, 1), asked=ntk)
    field.live = 1 + ntk
    assert planes.readout is not None
    field.a[...] = planes.sums(*pairs)[: 1 + ntk, ..., None]
    field.set_arrays(field.a)
    for k in range(count := len(planes.readout.pools)):
        pooled_difference(planes.readout.averaged(k, rows[k], layout), field, plan.layout.dtype)
    apply_all(tail[count:], rows[count:], field)
    add_pending(field, half_variances(after, layout))
    return after, field.d[..., 0], field.a[-1, ..., 0]  # returns D twice if Theta is not requested
