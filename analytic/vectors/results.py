"""What one call asks for: which kernels, in which arrays, within how much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, available_memory
from minintk.validate import number

Progress = Callable[[int, int], None]
Place = tuple[slice, slice]

Examples = tuple[Array, ...]
"""(x1, x2), or (x1,) for the kernel of x1 with itself."""


@dataclass(frozen=True)
class Wanted:
    """What a call asks for: NNGP, NTK or both; `out`, `memory` and `progress` as in `an.kernel`.

    warn : takes the bound on the quadratures' error.
    """

    asked: tuple[bool, bool]
    out: tuple[Array | None, Array | None]
    memory: int | None
    progress: Progress | None
    warn: Callable[[float], None]

    def __post_init__(self) -> None:
        if self.memory is not None:
            number("memory", self.memory)

    def arrays(self, inputs: Examples, work: int, hint: str = "") -> list[Array | None]:
        """NNGP and NTK, (N, M) each, not yet filled; None for one that is not asked for.   work : bytes beside them.

        MemoryError, with `hint`, if all that exceeds the bound; ValueError for an `out` of other shape or precision.
        """
        xp, dtype, shape = array_namespace(*inputs), inputs[0].dtype, kernel_shape(inputs)
        new = [a and o is None for a, o in zip(self.asked, self.out, strict=True)]
        need = sum(new) * shape[0] * shape[1] * dtype.itemsize
        bound = available_memory(xp) if self.memory is None else self.memory
        if need + work > bound:
            ways = ["stream the result to disk, store=PATH or out=numpy.memmap(...)", "evaluate it in blocks of rows"]
            ways += ["use float32"] * (dtype.itemsize > 4)
            raise MemoryError(
                f"{sum(new)} kernel(s) of {shape[0]} x {shape[1]} in {dtype} need {need / 1e9:.3g} GB and "
                f"{work / 1e9:.3g} GB to work in, but {bound / 1e9:.3g} GB are "
                f"{'free' if self.memory is None else 'allowed'}: {', '.join(ways[:-1])}, or {ways[-1]}{hint}"
            )
        for o in self.out:
            if o is not None:
                array_namespace(inputs[0], o)
                if tuple(o.shape) != shape or o.dtype != dtype:
                    raise ValueError(f"out expects shape {shape} and {dtype}, got {tuple(o.shape)} and {o.dtype}")
        return [xp.empty(shape, dtype=dtype) if n else o for n, o in zip(new, self.out, strict=True)]


def kernel_shape(inputs: Examples) -> tuple[int, int]:
    """(N, M) of the kernel of x1 : (N, ...) with x2 : (M, ...), or with itself."""
    return inputs[0].shape[0], inputs[-1].shape[0]


def blocks(shape: tuple[int, int], size: int, symmetric: bool) -> Iterator[Place]:
    """Blocks of rows and columns that cover a matrix, or its upper triangle if it is symmetric."""
    for i in range(0, shape[0], size):
        for j in range(i if symmetric else 0, shape[1], size):
            yield slice(i, min(i + size, shape[0])), slice(j, min(j + size, shape[1]))
