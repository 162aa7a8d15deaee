"""Propagate a variance for each row of inputs, and an angle and a tangent kernel for each pair of rows.

For inputs x, x' and a layer's pre-activations u, u' with E u^2 = q, E u'^2 = q', E u u' = sqrt(q q') c, c = cos a:

    p   = (1 - c) / 2 = sin(a/2)^2        replaces c, so that nearly equal inputs keep all their digits
    r   = (1 + c) / 2 = cos(a/2)^2        likewise for nearly opposite inputs; None if 1 - p suffices
    tau = Theta / (2 sqrt(q q'))          the tangent kernel, halved like 1 - c in p; None if not requested

An absolute error eps in c changes a small angle by eps / a; a relative error eps in p changes it by eps * a.  Layers
receive p, so only a `textbook_dual` computes sqrt(1 - c^2) from a rounded c.  There are N variances but N^2 pairs, so
the variances pass through all layers first, in float64, and each layer returns its coefficients per row (`Step.rows`).
The pairs follow tile by tile (`Step.pairs`) and combine two rows' coefficients in short inner products, `dot`.

Pairs form a `Block` (rows against columns) or a `Listing` (one by one); layers accept both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from minintk.arrays import Array, array_namespace
from minintk.spec.shapes import UnsupportedLayer


@dataclass(frozen=True)
class RowState:
    """Store q = E u^2 and theta = Theta(x, x) per row, (N,), float64.   error : bound on the quadratures' error so far.

    spread : q that differ by at most this fraction (`range_checks.SPREAD`, 8 eps of the inputs' dtype) count as equal.
    """

    q: Array
    theta: Array
    error: float = 0.0
    spread: float = 0.0

    def to(self, q: Array, theta: Array, error: float | None = None) -> RowState:
        """Return the rows after a step.  If `error` is given, it replaces the old error."""
        return RowState(q, theta, self.error if error is None else error, self.spread)

    @cached_property
    def scale(self) -> Array:
        """Return the unit of tau (theta = 2 scale scale' tau): sqrt(q), or 1 for a row with q = 0."""
        xp = array_namespace(self.q)
        scale = xp.sqrt(self.q)
        return xp.where(self.q > 0, scale, 1.0) if self.has_zero_rows else scale

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Return the smallest and the largest q."""
        return float(self.q.min()), float(self.q.max())

    @property
    def has_zero_rows(self) -> bool:
        """True if some q = 0.  With trained biases that start at 0, Theta of such a row can be nonzero."""
        return self.ends[0] == 0

    @property
    def alike(self) -> bool:
        """True if all q are equal, up to `spread`."""
        low, high = self.ends
        return high - low <= self.spread * high


@dataclass(frozen=True)
class Law:
    """Known properties of the distribution of a layer's outputs, each True or False.

    gaussian : outputs are independent Gaussians of mean 0, and Theta is a mean over features.  Activations require it.
    fresh : the outputs are sums over the layer's own weights, and so are uncorrelated with everything before them.
    alike : all features of a pixel have the same distribution, unlike those of inputs or of concatenated parts.
    own : outputs depend on the branch's input only through the branch's own weights, and are independent of it.
    """

    gaussian: bool = False
    fresh: bool = False
    alike: bool = False
    own: bool = False


class Step(ABC):
    """Base class of a layer's step in the recursion."""

    @abstractmethod
    def law(self, law: Law) -> Law:
        """Return the outputs' law, given the inputs' law; raise UnsupportedLayer if the recursion does not hold."""

    @abstractmethod
    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        """Return the rows after the layer, and its coefficients: arrays with an entry per row, or tuples of arrays."""

    @abstractmethod
    def pairs(self, pairs: Pairs, row: Any) -> None:
        """Apply the layer to the pairs in place, with the coefficients `row`, and leave p and r in [0, 1]."""


@dataclass(frozen=True)
class Dual(Step):
    """Base class of the activations' steps.   name : the activation's name, for error messages."""

    name: str

    def law(self, law: Law) -> Law:
        """Check that the inputs are Gaussian; return the law of the outputs, which are not Gaussian."""
        if not law.gaussian:
            raise UnsupportedLayer(
                f"{self.name} acts on values that are not Gaussian at infinite width (the inputs themselves, another "
                "activation's outputs, or a sum with such a part): put a Dense layer before it"
            )
        return Law(alike=True, own=law.own)


Program = tuple[Step, ...]


def run_rows(program: Program, rows: RowState) -> tuple[RowState, tuple[Any, ...]]:
    """Return the rows after all steps, and the coefficients of each step."""
    coefficients = []
    for step in program:
        rows, row = step.rows(rows)
        coefficients.append(row)
    return rows, tuple(coefficients)


def run_pairs(program: Program, pairs: Pairs, coefficients: tuple[Any, ...]) -> None:
    """Apply all steps to the pairs in place."""
    for step, row in zip(program, coefficients, strict=True):
        step.pairs(pairs, row)


def run_law(program: Program, law: Law) -> Law:
    """Return the law after all steps."""
    for step in program:
        law = step.law(law)
    return law


def columns(xp: Any, *numbers: Array) -> Array:
    """Stack k arrays (N,) as columns, (N, k).  If k = 1, add zeros, because products with a single column are slow."""
    out = xp.zeros((numbers[0].shape[0], max(2, len(numbers))), dtype=numbers[0].dtype)
    for k, number in enumerate(numbers):
        out[:, k] = number
    return out


class Distances(NamedTuple):
    """Vectors y : (N, k), one for each row, from which `quarter_squared_distance` computes |y_i - y_j|^2 / 4.

    left . right = |y_i|^2/4 + |y_j|^2/4 - y_i . y_j / 2 has an error of about eps * |y|^2.  Centring y keeps |y| small.
    """

    y: Array
    left: Array
    right: Array


def distances_between(xp: Any, y: Array) -> Distances:
    """Return the Distances of vectors y : (N, k), float64."""
    y = y - xp.mean(y, axis=0)
    n = xp.vecdot(y, y)[:, None] / 4
    one = xp.ones_like(n)
    return Distances(y, xp.concatenate((-y / 2, n, one), axis=1), xp.concatenate((y, one, n), axis=1))


def cast(row: Any, dtype: Any) -> Any:
    """Return the coefficients with every array converted to `dtype`."""
    if isinstance(row, tuple):
        inner = [cast(item, dtype) for item in row]
        return type(row)(*inner) if hasattr(row, "_fields") else tuple(inner)
    return row.astype(dtype) if hasattr(row, "astype") else row


Take = Callable[..., Array]
"""(array with one entry per row along `axis`) -> the entries of some rows.  An array with one entry stays unchanged."""


def taken(row: Any, take: Take) -> Any:
    """Return coefficients of selected rows.  A NamedTuple defines its own `taken` if rows are not the first axis."""
    if isinstance(row, tuple):
        if (own := getattr(row, "taken", None)) is not None:
            return own(take)
        inner = [taken(item, take) for item in row]
        return type(row)(*inner) if hasattr(row, "_fields") else tuple(inner)
    return take(row) if getattr(row, "shape", ()) else row


class Flat:
    """Collect all arrays in the steps' coefficients, in order, and all Distances."""

    def __init__(self, row: Any) -> None:
        self.arrays: list[Any] = []
        self.distances: list[Distances] = []
        self.take(row)

    def take(self, row: Any) -> None:
        """Add the arrays and the Distances of a step's coefficients."""
        if isinstance(row, Distances):
            self.distances.append(row)
        if isinstance(row, tuple):
            for item in row:
                self.take(item)
        elif getattr(row, "shape", ()):
            self.arrays.append(row)

    @property
    def bytes(self) -> int:
        """Return the arrays' total size in bytes."""
        return sum(int(a.size) * int(a.dtype.itemsize) for a in self.arrays)

    @property
    def largest_square(self) -> float:
        """Return the largest |y_i|^2/4 + |y_j|^2/4 of all Distances; errors in a `Block` are about eps times this."""
        return max((2 * float(array_namespace(d.left).max(d.left[:, -2])) for d in self.distances), default=0.0)


class Scratch:
    """Keep a stack of buffers of `size` entries for layers to borrow.  Reusing a few buffers keeps them in cache."""

    def __init__(self, xp: Any, dtype: Any, size: int) -> None:
        self.xp, self.dtype, self.size = xp, dtype, size
        self.buffers: list[Array] = []
        self.views: dict[tuple[int, ...], list[Array]] = {}
        self.used = 0

    def borrow(self, count: int, shape: tuple[int, ...]) -> Borrowed:
        """Lend `count` writable arrays of `shape` for the duration of a `with` statement."""
        return Borrowed(self, count, shape)


class Borrowed:
    """Lend buffers to one `with` statement.  This is a class, because a generator would slow down the inner loop."""

    __slots__ = ("count", "scratch", "shape")

    def __init__(self, scratch: Scratch, count: int, shape: tuple[int, ...]) -> None:
        self.scratch, self.count, self.shape = scratch, count, shape

    def __enter__(self) -> list[Array]:
        scratch, shape = self.scratch, self.shape
        low, high = scratch.used, scratch.used + self.count
        scratch.used = high
        while len(scratch.buffers) < high:
            scratch.buffers.append(scratch.xp.empty(scratch.size, dtype=scratch.dtype))
        views = scratch.views.setdefault(shape, [])
        while len(views) < high:
            views.append(scratch.buffers[len(views)][: prod(shape)].reshape(shape))
        return views[low:high]

    def __exit__(self, *error: object) -> None:
        self.scratch.used -= self.count


class Pairs(ABC):
    """Pairs (i, j) of rows, with p, r and tau as arrays of one shape."""

    def __init__(self, scratch: Scratch, p: Array, r: Array | None, tau: Array | None) -> None:
        self.scratch, self.p, self.r, self.tau = scratch, p, r, tau
        self.xp: Any = scratch.xp

    def borrow(self, count: int) -> Borrowed:
        """Lend `count` writable arrays of the pairs' shape for the duration of a `with` statement."""
        return self.scratch.borrow(count, self.p.shape)

    def dot(self, left: Array, right: Array, out: Array) -> Array:
        """Set out = sum_k left[i, k] right[j, k]."""
        out[...] = 0
        for k in range(left.shape[1]):
            out += self.sides(left[:, k])[0] * self.sides(right[:, k])[1]
        return out

    @abstractmethod
    def sides(self, v: Array) -> tuple[Array, Array]:
        """Return v[i] and v[j], for v : (N,), in shapes that broadcast to the pairs."""

    def outer(self, left: Array, right: Array, out: Array) -> Array:
        """Set out = left[i] right[j], for left and right : (N,)."""
        return self.xp.multiply(self.sides(left)[0], self.sides(right)[1], out=out)

    @abstractmethod
    def quarter_squared_distance(self, distances: Distances, out: Array) -> Array:
        """Set out = |y_i - y_j|^2 / 4.  Rounding can make the result negative."""

    def scale_tau(self, factor: Array | None) -> None:
        """Multiply each pair's tau by the inner product of its two rows' factors; do nothing if `factor` is None."""
        if self.tau is not None and factor is not None:
            with self.borrow(1) as (w,):
                self.tau *= self.dot(factor, factor, w)

    def clip(self) -> None:
        """Clip p and r to [0, 1], to remove rounding errors."""
        for side in (self.p, self.r):
            if side is not None:
                self.xp.clip(side, 0, 1, out=side)

    @contextmanager
    def copy(self) -> Iterator[Pairs]:
        """Yield a copy of the pairs in borrowed arrays."""
        with self.borrow(3) as buffers:
            other = copy(self)
            for name, buffer in zip(("p", "r", "tau"), buffers, strict=True):
                if (values := getattr(self, name)) is not None:
                    buffer[...] = values
                    setattr(other, name, buffer)
            yield other


class Block(Pairs):
    """All pairs of a row in slice `i` and a column in slice `j`; p, tau : (number of rows, number of columns)."""

    def __init__(self, scratch: Scratch, i: slice, j: slice, p: Array, tau: Array | None) -> None:
        super().__init__(scratch, p, None, tau)
        self.i, self.j = i, j

    def parts(self, height: int) -> Iterator[Block]:
        """Yield blocks of up to `height` rows, so that their arrays and those a layer borrows can fit in a cache."""
        for start in range(0, self.p.shape[0], height):
            at = slice(start, min(start + height, self.p.shape[0]))
            rows = slice(self.i.start + at.start, self.i.start + at.stop)
            yield Block(self.scratch, rows, self.j, self.p[at], None if self.tau is None else self.tau[at])

    def dot(self, left: Array, right: Array, out: Array) -> Array:
        return self.xp.matmul(left[self.i], right[self.j].T, out=out)

    def sides(self, v: Array) -> tuple[Array, Array]:
        return v[self.i, None], v[self.j]

    def outer(self, left: Array, right: Array, out: Array) -> Array:
        """Set out = left[i] right[j] by a matrix product, in half the time of a broadcasting `multiply`."""
        return self.xp.matmul(columns(self.xp, left[self.i]), columns(self.xp, right[self.j]).T, out=out)

    def quarter_squared_distance(self, distances: Distances, out: Array) -> Array:
        return self.dot(distances.left, distances.right, out)


class Listing(Pairs):
    """List of K pairs (i[k], j[k]); p, r, tau : (K,).  Squared distances are computed from differences y_i - y_j."""

    def __init__(self, scratch: Scratch, i: Array, j: Array, p: Array, r: Array, tau: Array | None) -> None:
        super().__init__(scratch, p, r, tau)
        self.i, self.j = i, j

    def dot(self, left: Array, right: Array, out: Array) -> Array:
        return self.xp.sum(left[self.i] * right[self.j], axis=1, out=out)

    def sides(self, v: Array) -> tuple[Array, Array]:
        return v[self.i], v[self.j]

    def quarter_squared_distance(self, distances: Distances, out: Array) -> Array:
        difference = distances.y[self.i] - distances.y[self.j]
        difference *= difference
        self.xp.sum(difference, axis=1, out=out)
        out /= 4
        return out
