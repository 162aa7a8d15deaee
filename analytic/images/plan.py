"""Plan the kernels of images: choose the pairs of pixels to compute, the precision, and the compiled steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from analytic.images.memory import FieldLayout
from analytic.images.precision import field_precision, scale_free
from analytic.images.rules import Mixing, Pool, grid, has_masks, is_nonlinear, mixes_pixels, needs_images
from analytic.recursion.requests import Examples
from analytic.recursion.rules import Fork
from analytic.recursion.state import Program
from minintk.doors import through
from minintk.spec.shapes import Shape


def planes() -> Any:
    """Return `analytic.fast.planes`, which runs steps plane by plane, or None if `analytic.fast` is missing."""
    faster = through("kernels")
    return faster and faster.planes


@dataclass(frozen=True)
class ImagePlan:
    """Plan for computing a program's kernels for images of one shape.

    scaled : True if images are scaled to mean square 1.   recorded : True if each image is first paired with itself.
    by_offsets : the number of leading steps that run plane by plane (`planes`), with Numba or on a GPU.
    pixels : (E, F); results have the shape (E, N F, M F).  For P final pixels, (E, F) is (P, 1) for pairs at the same
    position, and (1, P) for all pairs of pixels.
    """

    program: Program
    shape: Shape
    layout: FieldLayout
    scaled: bool
    recorded: bool
    by_offsets: int
    pixels: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Return (H, W) of the inputs."""
        return grid(self.shape)

    @property
    def pool(self) -> Pool | None:
        """Return the pooling whose windows the leading steps sum (then no field contains all pixels), or None."""
        end = self.program[self.by_offsets] if 0 < self.by_offsets < len(self.program) else None
        return end if isinstance(end, Pool) and planes().added_up(end, self.layout.xp) else None

    @property
    def field_grid(self) -> tuple[int, int]:
        """Return (H, W) of the largest fields."""
        return self.grid if self.pool is None else self.pool.grid

    @property
    def summed(self) -> bool:
        """Return True if the leading steps reduce each pair of images to sums."""
        return bool(self.by_offsets and planes().sums_suffice(self.program, self.grid))

    @property
    def pooled(self) -> list[tuple[int, int]]:
        """Return the shapes of the arrays recorded at each pooling or attention, in the order of recording."""
        return list(pool_grids(self.program))


def pool_grids(program: Program) -> Iterator[tuple[int, int]]:
    """Yield the shapes of the arrays recorded at each pooling or attention; a shortcut precedes its branch."""
    for step in program:
        if isinstance(step, Fork):
            yield from pool_grids(step.shortcut)
            yield from pool_grids(step.branch)
        elif isinstance(step, Mixing):
            yield step.recorded


def plan_images(
    program: Program, inputs: Examples, *, each: bool = False, pixels: tuple[int, int] = (1, 1)
) -> ImagePlan:
    """Plan the kernel of x1 with x2 or x1, or of each image with itself if `each`.   pixels : as in `ImagePlan`."""
    xp, shape, (N, M) = inputs.xp, inputs.example, inputs.shape
    dtype = inputs.dtype if each else field_precision(program, inputs)
    pairs = N if each else N * M // (2 if inputs.symmetric else 1)
    first = min((k for k, step in enumerate(program) if mixes_pixels((step,))), default=None)
    layout = FieldLayout(xp, dtype, first is None and pixels[1] == 1)
    recorded = has_masks(program) or (first is not None and is_nonlinear(program[first:]))
    return ImagePlan(
        program,
        shape,
        layout,
        scale_free(program),
        recorded,
        0 if planes() is None else planes().steps_taken(program, shape, layout, pairs),
        pixels,
    )


def pixel_pairs_followed(program: Program, shape: Shape) -> int:
    """Return the number of pixel pairs to compute for each pair of inputs."""
    count = prod(grid(shape)) if needs_images(program) else 1
    return count * count if mixes_pixels(program) else count
