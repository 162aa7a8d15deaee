"""Propagate a variance for every pixel and a distance for every pair of pixels.

For pixels p of x and p' of x', with pre-activations u, u' of variances q, q' and covariance K:

    D = E (u - u')^2 / 2 = (q + q') / 2 - K >= 0              Theta, the tangent kernel; None if not requested

D is linear in q, q' and K, so sums over windows act on D as on K.  D is exactly 0 if u = u', and gives the angle
between u and u' without cancellation.  Outside the image, u = 0; if only p is inside, D = q / 2.

Variances pass through all layers first, in float64 (`Pixels`).  Then the distances of a few pairs of images follow
(`Field`), in one of the arrangements of `analytic.images.pixel_pairs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from analytic.images.memory import FieldLayout, PixelValues, Workspace
from minintk.arrays import Array
from minintk.spec.windows import Axis


@dataclass(frozen=True)
class Pixels:
    """Variance q and Theta(p, p) of every pixel of n images, (n, H, W), float64.

    unit : the unit of D, and of 2 Theta, in the fields.   error : bound on the quadratures' error so far.
    pending : True if the fields' Theta lacks the last layer's own contribution (`Field.pending`).
    """

    q: Array
    theta: Array
    unit: float
    error: float = 0.0
    pending: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """Return (H, W)."""
        return self.q.shape[1], self.q.shape[2]


class Edges(NamedTuple):
    """Contributions to D and Theta, (2, n, H, W), of pairs with one pixel outside the image: q / 2 and 0.

    half : before a window's sums.   half_sum : after its sums across the lines, before its sums along the lines.
    """

    half: Array
    half_sum: Array


ROUNDINGS, ROUNDINGS_OF_SERIES = 8.0, 64.0
"""Pooled pixels are treated as equal if D is below this many rounding errors (second number: after a series)."""


class Field(ABC):
    """Distances and tangent kernels of some pairs of images.

    a : (2, ...), or (1, ...) without Theta: d = D / unit, theta = 2 Theta / unit.  theta is None if absent or still 0.
    i, j : the images x and x', as slices of the tile's images.   grid : (H, W).   asked : True if Theta is requested.
    live : the number of arrays in use, 1 or 2.
    pending : (ratio, rest) if ratio K + rest must still be added to Theta; rest is in D's unit.
    roundings : D's error, in units of eps.   added_up : True if the next pooling's windows are already summed.
    """

    def __init__(
        self, layout: FieldLayout, workspace: Workspace, i: slice, j: slice, grid: tuple[int, int], *, asked: bool
    ) -> None:
        self.layout, self.workspace, self.i, self.j, self.grid, self.asked = layout, workspace, i, j, grid, asked
        self.xp: Any = layout.xp
        self.live = 1
        self.set_arrays(self.new(grid))
        self.pending: tuple[float, float] | None = None
        self.roundings, self.added_up = ROUNDINGS, False

    def new(self, grid: tuple[int, int]) -> Array:
        """Return an array for a grid, with the layout of `a`, from the workspace."""
        return self.workspace.take((1 + self.asked, *self.shape(*grid)))

    def set_arrays(self, a: Array) -> None:
        """Set d and theta to views of `a`."""
        self.a = a
        self.d: Array = a[0]
        self.theta: Array | None = a[1] if self.live == 2 else None

    def swap_in(self, a: Array, grid: tuple[int, int]) -> None:
        """Replace the arrays by `a`, and return the old arrays to the workspace."""
        self.workspace.give(self.a)
        self.grid = grid
        self.set_arrays(a)

    def start_theta(self) -> Array:
        """Start computing Theta, in an array that initially contains arbitrary finite values."""
        self.live = 2
        self.set_arrays(self.a)
        return self.a[1]

    @abstractmethod
    def shape(self, H: int, W: int) -> tuple[int, ...]:
        """Return the shape of the arrays on a grid."""

    @abstractmethod
    def left(self, values: PixelValues) -> Array:
        """Return the values of the images x, in a shape that broadcasts to d."""

    @abstractmethod
    def right(self, values: PixelValues) -> Array:
        """Return the values of the images x', in a shape that broadcasts to d."""

    @abstractmethod
    def pieces(self, finer: int = 1) -> Iterator[slice]:
        """Yield slices of d's first axis.  On the host, slices are smaller by the factor `finer`."""

    def pick(self, values: PixelValues, piece: slice) -> tuple[Array, Array]:
        """Return the values of x and of x' for the pairs in a piece."""
        return self.left(values)[piece], self.right(values)

    @abstractmethod
    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sum over windows of both images, shifted together."""

    @abstractmethod
    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        """Average over the windows of each image separately, by products with T_H and T_W."""

    @abstractmethod
    def flatten(self) -> None:
        """Average over pairs of pixels at the same position."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the numbers of images x and x'."""
        return self.i.stop - self.i.start, self.j.stop - self.j.start

    def copy(self) -> Field:
        """Return a copy, in the same workspace."""
        other = type(self)(self.layout, self.workspace, self.i, self.j, self.grid, asked=self.asked)
        other.live, other.pending, other.roundings = self.live, self.pending, self.roundings
        other.set_arrays(other.a)
        other.a[: self.live] = self.a[: self.live]
        return other

    def release(self) -> None:
        """Return the arrays to the workspace."""
        self.workspace.give(self.a)
