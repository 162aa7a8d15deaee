"""How the kernels of images are computed: which pairs of pixels are followed, in what precision, whether by Numba."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

from analytic.fast.gpu_kernels import block_bytes
from analytic.fast.offsets import added_up, split, sums_suffice
from analytic.images.memory import FieldLayout
from analytic.images.precision import field_precision, scale_free
from analytic.images.rules import (
    Mixing,
    Pool,
    Window,
    all_steps,
    depth,
    grid,
    has_masks,
    is_nonlinear,
    mixes_pixels,
    needs_images,
)
from analytic.vectors.duals import Homogeneous
from analytic.vectors.results import Examples
from analytic.vectors.rules import Fork
from analytic.vectors.state import Dual, Program
from minintk.arrays import block_memory, on_host
from minintk.fast.numba_here import numba_is_here
from minintk.spec.shapes import Shape


@dataclass(frozen=True)
class ImagePlan:
    """How to compute the kernels of a program for images of one shape.

    scaled : divide images by their norms.   recorded : record each image with itself (`SelfKernels`) first.
    by_offsets : how many of the first steps `analytic.fast.offsets` takes, by Numba or on a GPU.
    pixels : (E, F), the shape of the results, (E, N F, M F): (P, 1) for P equal pixels at the end, (1, P) for all
    pairs of them.
    """

    program: Program
    shape: Shape
    layout: FieldLayout
    scaled: bool
    recorded: bool
    by_offsets: int = 0
    pixels: tuple[int, int] = (1, 1)

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W) of the inputs."""
        return grid(self.shape)

    @property
    def pool(self) -> Pool | None:
        """The pooling whose windows these steps add up, so that no field has all pixels."""
        end = self.program[self.by_offsets] if 0 < self.by_offsets < len(self.program) else None
        return end if isinstance(end, Pool) and added_up(end, self.layout.xp) else None

    @property
    def field_grid(self) -> tuple[int, int]:
        """(H, W) of the largest fields."""
        return self.grid if self.pool is None else self.pool.grid

    @property
    def summed(self) -> bool:
        """Whether these steps leave sums alone."""
        return self.by_offsets > 0 and sums_suffice(self.program)

    @property
    def pooled(self) -> list[tuple[int, int]]:
        """The grids after each pooling, in recording order."""
        return list(pool_grids(self.program))


def pool_grids(program: Program) -> Iterator[tuple[int, int]]:
    """The grids after each pooling; a shortcut comes before its branch."""
    for step in program:
        if isinstance(step, Fork):
            yield from pool_grids(step.shortcut)
            yield from pool_grids(step.branch)
        elif isinstance(step, Mixing):
            yield step.recorded


BYTES_WORTH_NUMBA = 2**24
"""Numba pays if all activations together work on more bytes than this: a thirtieth of a second without it, half of that
with it or less; once in a process it takes a quarter of a second and 130 MB to load, five seconds the very first time.
Whether it is loaded already makes no difference, as the bits would depend on it."""


AS_RELU = 3
"""Another activation than one like ReLU takes three times as long, so a third of the bytes will do."""


def worth_compiling(program: Program, shape: Shape, pairs: int, item: int) -> bool:
    """True if Numba is installed and pays for this many pairs of inputs, with `item` bytes per number."""
    steps = [step for step in all_steps(program[: split(program)]) if isinstance(step, Dual)]
    layers = sum(1 if isinstance(step, Homogeneous) else AS_RELU for step in steps)
    return pairs * pixel_pairs_followed(program, shape) * layers * item >= BYTES_WORTH_NUMBA and numba_works()


def fits_a_block(xp: Any, program: Program, shape: Shape) -> bool:
    """Whether the GPU's blocks of threads have memory for planes, with their margins, of images of this shape."""
    head, (H, W) = program[: split(program)], grid(shape)
    windows = [step.axes for step in all_steps(head) if isinstance(step, Window)]
    h, w = (max((2 * axes[k].kernel for axes in windows), default=0) for k in (0, 1))
    return block_bytes((H + h) * (W + w), 1 + depth(head), 128, 8) <= block_memory(xp)


@cache
def numba_works() -> bool:
    """Whether Numba is there and loads; warns, once, if it is there and does not (it needs another NumPy)."""
    if not numba_is_here():
        return False
    try:
        import_module("analytic.fast.numba_kernels")
    except Exception as error:
        warnings.warn(f"Numba is installed but does not load, so NumPy is used alone: {error}", RuntimeWarning, 2)
        return False
    return True


def plan_images(
    program: Program, inputs: Examples, *, each: bool = False, pixels: tuple[int, int] = (1, 1)
) -> ImagePlan:
    """How to compute the kernel of x1 with x2, or with itself; or, for `each`, of every image with itself alone.

    pixels : `ImagePlan.pixels`.
    """
    xp, shape, (N, M) = inputs.xp, inputs.example, inputs.shape
    dtype = inputs.dtype if each else field_precision(program, inputs)
    pairs = 0 if each else N * M // (2 if inputs.symmetric else 1)
    first = min((k for k, step in enumerate(program) if mixes_pixels((step,))), default=None)
    item = int(xp.dtype(dtype).itemsize)
    jit = worth_compiling(program, shape, pairs, item) if on_host(xp) else fits_a_block(xp, program, shape)
    layout = FieldLayout(xp, dtype, first is None and pixels[1] == 1)
    recorded = has_masks(program) or (first is not None and is_nonlinear(program[first:]))
    return ImagePlan(
        program,
        shape,
        layout,
        scale_free(program),
        recorded,
        split(program) if jit and (not layout.diagonal or sums_suffice(program)) else 0,
        pixels,
    )


def pixel_pairs_followed(program: Program, shape: Shape) -> int:
    """Pairs of pixels to follow for each pair of inputs."""
    count = prod(grid(shape)) if needs_images(program) else 1
    return count * count if mixes_pixels(program) else count
