"""Read out planes: compute poolings and a final mean over pixel positions as one weighted sum over pixel pairs.

Poolings average with T_1, ..., T_K, one matrix per axis, and A = T_K ... T_1 : (out, H) is their product.  The next
step averages over pairs of identical output pixels (or uses the single output pixel, if only one remains):

    D'' = sum_pp' (A' A / out)_pp' D_pp',  minus what each pooling subtracts, as in `steps.pooled_difference`

Pixel pairs further apart than the windows reach have weight 0, so only planes at smaller offsets are computed.  For
windows of 3 x 3 on 32 x 32 pixels, these planes contain 2 % of all pairs (see Li et al. 2019, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from analytic.images.memory import FieldLayout
from analytic.images.rules import Flat, Mixing, Pool, all_steps
from analytic.images.steps import PoolCoefficients, averaging_matrix
from analytic.images.window_sums import window_matrix
from analytic.recursion.state import Program
from minintk.arrays import Array, to_library
from minintk.spec.windows import Axis


def averages(step: Pool, k: int) -> tuple[Array, int]:
    """Return (c T, c), where T : (out, size) averages along axis k; c T is integer unless `step.normalised`."""
    if step.normalised:
        return averaging_matrix(np, step.axes[k], normalised=True), 1
    return window_matrix(step.axes[k]), step.axes[k].kernel


def whole(axis: Axis) -> bool:
    """Return True if every window is inside the image or wraps around."""
    return axis.circular or all(count == axis.kernel for count in axis.inside)


@dataclass(frozen=True)
class Readout:
    """Read-out of planes of (H, W) pixels: poolings, then a mean over pixel positions if several remain."""

    grid: tuple[int, int]
    pools: tuple[Pool, ...]

    @cached_property
    def weights(self) -> tuple[Array, Array, float]:
        """Return A' A / out for both axes, (H, H) and (W, W), divided by their maxima, and these maxima's product."""
        parts, largest, counts = [], 1.0, 1
        for k in (0, 1):
            A = np.eye(self.grid[k])
            for T, count in (averages(step, k) for step in self.pools):
                A, counts = T @ A, counts * count**2
            parts.append(A.T @ A)
            largest, counts = largest * float(parts[k].max()), counts * len(A)
        rows, columns = (one / one.max() for one in parts)
        return rows, columns, largest / counts

    def averaged(self, number: int, row: PoolCoefficients, layout: FieldLayout) -> PoolCoefficients:
        """Return `row` of pooling `number` with `own` averaged by later steps.  A pair's two shares are equal."""
        own = row.own.right.reshape((-1, *row.grid))
        for k, axis in ((0, 1), (1, 2)):
            A = np.eye(row.grid[k])
            for T, count in (averages(step, k) for step in self.pools[number + 1 :]):
                A = T @ A / count
            weights = to_library(A.mean(axis=0), layout.xp).reshape((-1, 1) if k == 0 else (-1,))
            own = layout.xp.sum(own * weights, axis=axis, keepdims=True)
        return row._replace(own=layout.spread(own), share=None, mean=None)


def readout(program: Program, grid: tuple[int, int]) -> Readout | None:
    """Return the read-out at the start of a program, or None if a later step needs the planes of (H, W) pixels."""
    pools = tuple(step for step in takewhile(lambda step: isinstance(step, Pool), program) if isinstance(step, Pool))
    rest = program[len(pools) :]
    one = bool(pools) and pools[-1].grid == (1, 1)
    flat = not one and bool(rest) and isinstance(rest[0], Flat)
    complete = len(pools) == flat == 1 or all(step.normalised or all(map(whole, step.axes)) for step in pools)
    if not (one or flat) or not complete or any(isinstance(step, Mixing) for step in all_steps(rest)):
        return None
    return Readout(grid, pools)
