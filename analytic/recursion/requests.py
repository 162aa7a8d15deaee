"""Describe one call of a kernel: its inputs, the requested kernels, their arrays, and the memory bound."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Any

from minintk.arrays import Array, array_namespace, available_memory, check_examples
from minintk.validate import number

Progress = Callable[[int, int], None]
Place = tuple[slice, slice]
Store = str | os.PathLike[str] | None

SECONDS_PER_PAIR = 5e-9
"""Seconds that one core takes for a recursion step on a pair of pixels or vectors.  Measured times are 3e-9 to 2e-8."""
FEWEST = 12
"""Desired number of blocks per side of a kernel, so that many workers can share them.  Small kernels have fewer."""
ALWAYS_FREE = 2**25
"""Calls that need fewer bytes skip the check of free memory, because the check takes as long as a small kernel."""


class Examples:
    """Inputs of a kernel: x1 and x2, or only x1 for its kernel with itself.  The constructor checks them.

    x : (x1, x2) or (x1,).   xp, dtype : the inputs' library and precision.   example : the shape of one example.
    shape : (N, M) of the kernel.   symmetric : True if x2 is x1 or None.   begins : (name, first index) of each side.
    """

    def __init__(self, x1: Array, x2: Array | None = None, name: str = "x1"):
        """Check the inputs; raise TypeError or ValueError if they are invalid.   name : x1's name in messages."""
        self.begins = (name, 0), ("x2", 0)
        self.symmetric = x2 is None or x2 is x1
        self.x: tuple[Array, ...] = (x1,) if x2 is None or x2 is x1 else (x1, x2)
        if x2 is not None and getattr(x1, "ndim", 2) == getattr(x2, "ndim", 2) == 1:
            remedy = 'for scikit-learn\'s KernelRidge, kernel="precomputed" and .fit(k.ntk(X), y), or an.NTKRegressor'
            raise ValueError(f"{name} expects shape (N, d), got {tuple(x1.shape)}; {remedy}")
        check_examples(name, x1)
        self.dtype, self.example = x1.dtype, tuple(x1.shape[1:])
        if 0 in self.example:
            raise ValueError(f"{name} expects examples that hold numbers, got shape {tuple(x1.shape)}")
        for other in self.x[1:]:
            check_examples("x2", other, self.example)
            if other.dtype != self.dtype:
                raise TypeError(f"x1 and x2 expect one precision, got {self.dtype} and {other.dtype}: convert one")
        array_namespace(*self.x)  # raises if they come from two libraries
        self.shape = x1.shape[0], self.x[-1].shape[0]

    @property
    def xp(self) -> Any:
        """Return the arrays' namespace."""
        return array_namespace(self.x[0])

    def at(self, i: slice, j: slice) -> Examples:
        """Select examples i of x1 and j of x2.  Messages still name an example by its index among all inputs."""
        part, (name, first), (other, second) = copy(self), self.begins[0], self.begins[0 if self.symmetric else 1]
        part.symmetric, part.begins = self.symmetric and i == j, ((name, first + i.start), (other, second + j.start))
        part.x = (self.x[0][i],) if part.symmetric else (self.x[0][i], self.x[-1][j])
        part.shape = part.x[0].shape[0], part.x[-1].shape[0]
        return part

    def called(self, n: int) -> str:
        """Return the name of the n-th example, counting x2 after x1."""
        side = 0 if self.symmetric or n < self.shape[0] else 1
        name, first = self.begins[side]
        return f"{name}[{first + n - side * self.shape[0]}]"


@dataclass(frozen=True)
class Wanted:
    """Kernels that a call requests: NNGP, NTK or both.  `out`, `memory` and `progress` are as in `an.Kernel`.

    warn : called with the error bound of quadratures.   pixels : (E, F) for arrays (E, N F, M F), as in `ImagePlan`.
    """

    asked: tuple[bool, bool]
    out: tuple[Array | None, Array | None]
    memory: int | None
    progress: Progress | None
    warn: Callable[[float], None]
    pixels: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if self.memory is not None:
            number("memory", self.memory)

    def check(self, inputs: Examples, work: int, hint: str = "") -> tuple[int, ...]:
        """Check that the results fit into memory, and return their shape.   work : bytes needed besides the results.

        Raises MemoryError, with `hint`, if the total exceeds the bound, and ValueError if `out` does not match.
        """
        dtype, (N, M), (E, F) = inputs.dtype, inputs.shape, self.pixels
        shape = (N, M) if self.pixels == (1, 1) else (E, N * F, M * F)
        if self.out[0] is not None and self.out[0] is self.out[-1] and len(self.out) > 1:
            raise ValueError("out expects an array for each kernel, got one array for both: give another")
        for o in self.out:
            if o is not None:
                array_namespace(inputs.x[0], o)
                if tuple(o.shape) != shape or o.dtype != dtype:
                    raise ValueError(f"out expects shape {shape} and {dtype}, got {tuple(o.shape)} and {o.dtype}")
        count = sum(self.new)
        need = count * prod(shape) * dtype.itemsize
        if self.memory is None and need + work <= ALWAYS_FREE:
            return shape
        bound = available_memory(inputs.xp) if self.memory is None else self.memory
        if need + work > bound:
            disk = "stream the result to disk, store=PATH or out=numpy.memmap(...)"
            ways = [disk if len(shape) == 2 else "take smaller images", "evaluate it in blocks of rows"]
            ways += ["use float32"] * (dtype.itemsize > 4)
            raise MemoryError(
                f"{count} kernel(s) of {' x '.join(map(str, shape))} in {dtype} need {need / 1e9:.3g} GB and "
                f"{work / 1e9:.3g} GB to work in, but {bound / 1e9:.3g} GB are "
                f"{'free' if self.memory is None else 'allowed'}: {', '.join(ways[:-1])}, or {ways[-1]}{hint}"
            )
        return shape

    def arrays(self, inputs: Examples, work: int, hint: str = "") -> list[Array | None]:
        """Return the arrays of NNGP and NTK: `out`, new ones, or None if not requested.  Errors are as in `check`."""
        shape = self.check(inputs, work, hint)
        return [inputs.xp.empty(shape, dtype=inputs.dtype) if n else o for n, o in zip(self.new, self.out)]

    @property
    def new(self) -> list[bool]:
        """Return, for NNGP and NTK, True if the kernel's array must be allocated."""
        return [a and o is None for a, o in zip(self.asked, self.out, strict=True)]


def blocks(shape: tuple[int, int], size: int, symmetric: bool) -> Iterator[Place]:
    """Yield the (rows, columns) of blocks that cover a matrix, or its upper triangle if it is symmetric."""
    for i in range(0, shape[0], size):
        for j in range(i if symmetric else 0, shape[1], size):
            yield slice(i, min(i + size, shape[0])), slice(j, min(j + size, shape[1]))
