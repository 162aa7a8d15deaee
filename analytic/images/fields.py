"""What is carried through the layers for images: of every pixel its variance, of every pair of pixels a distance.

For pixels p of x and p' of x', with pre-activations u, u' of variances q, q' and covariance K:

    D = E (u - u')^2 / 2 = (q + q') / 2 - K >= 0              Theta, the tangent kernel; None where nobody asks

D is linear, so sums over windows act on it as on K, and pixels that coincide have exactly 0: the angle between u and
u' comes from D alone, without the difference of two nearly equal numbers.  A pixel outside the image is 0: next to one
inside, of variance q, D = q / 2.

The variances run ahead in float64 (`Pixels`); the distances of some pairs of images (`Field`) follow, in two forms
(`analytic.images.pixel_pairs`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from analytic.images.memory import Form, Lay, Shelf
from analytic.images.window_sums import at, plain, shifts
from minintk.arrays import Array
from minintk.spec.windows import Axis


@dataclass(frozen=True)
class Pixels:
    """Of every pixel of n images: variance q and Theta(p, p), (n, H, W), float64.

    unit : what D, and Theta / 2, of the fields are measured in.   error : the quadratures' bound so far.
    owed : whether the fields' Theta still lacks its last layer's own share (`Field.owed`).
    """

    q: Array
    theta: Array
    unit: float = 1.0
    error: float = 0.0
    owed: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W)."""
        return self.q.shape[1], self.q.shape[2]


Moved = dict[int, Array]
"""By shift s: (2, n, run), numbers of the images on the right, taken from s pixels, or lines, further; and 0."""


class Edges(NamedTuple):
    """What a pixel counts for next to one outside, for D and for Theta, (2, n, H, W): q / 2, and 0.

    half : before the sums;  half_sum : after those across the lines.
    across, along : half and half_sum of x', shifted across and along the lines.
    """

    half: Array
    half_sum: Array
    across: Moved
    along: Moved


def edges_of(form: Form, axes: tuple[Axis, Axis], half: Array, half_sum: Array) -> Edges:
    """The Edges of a convolution, from q / 2 and its sums across the lines, (n, H, W)."""
    (rows, columns), (_, H, W), xp = axes, half.shape, form.xp
    if form.diagonal:  # equal pixels are outside together
        return Edges(half[None], half_sum[None], {}, {})
    across = moved(form, half, rows, 0) if plain(rows, H) else {}
    along = moved(form, half_sum, columns, 1) if plain(columns, form.guard(W)) else {}
    one, two = (xp.astype(xp.stack((v, xp.zeros_like(v)), axis=0), form.dtype) for v in (half, half_sum))
    return Edges(one, two, across, along)


def moved(form: Form, v: Array, axis: Axis, along: int) -> Moved:
    """v : (n, H, W) for all shifts of a plain axis, 0 where there is no pixel."""
    found, size = {}, v.shape[1 + along]
    for s in shifts(axis):
        low, high = max(0, -s), size - max(0, s)
        out = form.xp.zeros((2, v.shape[0], form.run(*v.shape[1:])), dtype=form.dtype)
        to = form.inside(out[0], *v.shape[1:])
        to[at(3, (along + 1, slice(low, high)))] = v[at(3, (along + 1, slice(low + s, high + s)))]
        found[s] = out
    return found


class Field(ABC):
    """Distances and tangents of some pairs of images.

    a : (2, ...), side by side d = D / unit and theta = 2 Theta / unit, None where nobody asked, or it is 0 so far.
    i, j : the images x and x', as slices of the tile's.   grid : (H, W).   asked : whether Theta is wanted;  live : how
    many of the two there are by now.
    owed : (ratio, rest) where Theta still lacks ratio K + rest, with rest in the unit.
    """

    def __init__(self, form: Form, shelf: Shelf, i: slice, j: slice, grid: tuple[int, int], *, asked: bool) -> None:
        self.form, self.shelf, self.i, self.j, self.grid, self.asked = form, shelf, i, j, grid, asked
        self.xp: Any = form.xp
        self.live = 1
        self.hold(self.new(grid))
        self.owed: tuple[float, float] | None = None

    def new(self, grid: tuple[int, int]) -> Array:
        """An array for `a` on a grid."""
        return self.shelf.take((1 + self.asked, *self.shape(*grid)))

    def hold(self, a: Array) -> None:
        """d and theta are what a holds."""
        self.a = a
        self.d: Array = a[0]
        self.theta: Array | None = a[1] if self.live == 2 else None

    def become(self, a: Array, grid: tuple[int, int]) -> None:
        """a in place of the arrays there were."""
        self.shelf.give(self.a)
        self.grid = grid
        self.hold(a)

    def begin(self) -> Array:
        """Theta, of whatever finite numbers, from now on."""
        self.live = 2
        self.hold(self.a)
        return self.a[1]

    def kept(self, make: Callable[..., Any], arrays: tuple[Array, ...], *others: Any) -> Any:
        """make(*arrays, *others), a method's views of arrays that were taken, made once.

        Anew for other arrays, and for whatever else they are made of: grids of one rounded size share arrays.
        """
        key = make.__name__, *map(id, arrays), self.grid, self.sizes, self.live, *others
        views = self.shelf.views
        if key not in views:
            views[key] = make(*arrays, *others)
        return views[key]

    @abstractmethod
    def shape(self, H: int, W: int) -> tuple[int, ...]:
        """Shape of the arrays on a grid."""

    @abstractmethod
    def left(self, lay: Lay) -> Array:
        """The numbers of the images x, broadcasting to d."""

    @abstractmethod
    def right(self, lay: Lay) -> Array:
        """The numbers of the images x', broadcasting to d."""

    @abstractmethod
    def strips(self) -> Iterator[slice]:
        """Pieces of d's first axis for an activation."""

    def pick(self, lay: Lay, strip: slice) -> tuple[Array, Array]:
        """The numbers of x in a strip, and those of x'."""
        return self.left(lay)[strip], self.right(lay)

    @abstractmethod
    def slide(self, axes: tuple[Axis, Axis], edges: Edges) -> None:
        """Sums over both windows, shifted together."""

    @abstractmethod
    def pool(self, T: tuple[Array, Array], grid: tuple[int, int]) -> None:
        """Means over each window by itself, as products with T_H and T_W."""

    @abstractmethod
    def flatten(self) -> None:
        """Means over equal pixels."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of images x and x'."""
        return self.i.stop - self.i.start, self.j.stop - self.j.start

    def copy(self) -> Field:
        """A copy, on the same shelf."""
        other = type(self)(self.form, self.shelf, self.i, self.j, self.grid, asked=self.asked)
        other.live, other.owed = self.live, self.owed
        other.hold(other.a)
        other.a[: self.live] = self.a[: self.live]
        return other

    def close(self) -> None:
        """Give the arrays back."""
        self.shelf.give(self.a)
