"""Define the problem sizes at which fast paths begin and end, as measured on two cores with AVX-512.

A thread pays off above about 0.5 ms of work, so `cut` divides only work that takes at least twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Thresholds:
    """Problem sizes, mostly in multiplications, array elements or bytes.  The comments state the units."""

    plain: int = 2**18  # multiplications of a batch below which plain layers run, with BLAS's own threads
    products: int = 2**24  # multiplications in a piece of one or several matrix products
    compiled: int = 2**20  # multiplications of a convolution above which loading Numba pays off
    convolution: int = 2**24  # multiplications of a piece of a convolution,
    convolution_per_weight: int = 2**8  # or this many per weight if that is more, as each piece adds to every gradient
    share: int = 2**17  # smallest size / k^2 for which a batch of `size` activations is split into k shares,
    share_per_weight: int = 8  # and smallest number of activations per weight in a share, which prepares all weights
    contraction: int = 2**24  # multiplications of a kernel contraction above which BLAS's own threads are used
    cotangents: int = 2**19  # numbers in the cotangents of a kernel's outputs that are processed together
    vector: int = 2**20  # numbers in a core's piece of a vector, in optimisers
    pixels: int = 2**21  # numbers in a piece that BatchNorm sums or scales
    patches_bytes: int = 3 * 2**20  # bytes of patches that are formed and multiplied at a time on the host,
    patches_bytes_gpu: int = 2**30  # and on a GPU
    normalised: int = 2**16  # numbers in BatchNorm's input above which loading Numba pays off
    gathering: float = 1.5  # most multiplications of a gathered gradient, divided by those of the convolution,
    gathered_channels: int = 16  # and least number of input channels for which a convolution gathers its gradient
    cotangent_bytes: int = 6 * 10**6  # bytes of cotangents in a part of a kernel's outputs (up to twice as many)
    ensemble_bytes: int = 24 * 2**20  # bytes of activations and parameters of the members that train together on a core
    vector_piece: int = 2**17  # numbers of a vector that stay in cache through the passes of an optimiser


THRESHOLDS = Thresholds()

PIECES = 16
"""Largest number of pieces of work, a power of two.  Cores beyond this number stay idle."""


def cut(length: int, work: float, each: float) -> list[slice]:
    """Cut range(length) into 1, 2, 4, 8 or 16 slices: the most with at least `each` units of `work` per slice.

    Rounding errors of sums depend on the pieces, so the pieces must not depend on the number of cores.

    >>> cut(10, 2**20, 2**19), len(cut(100, 7, 1)), len(cut(100, 1000, 1)), len(cut(3, 1000, 1))
    ([slice(0, 5, None), slice(5, 10, None)], 4, 16, 2)
    """
    most = max(1, min(length, PIECES, int(work // each)))
    count = 2 ** (most.bit_length() - 1)
    return [slice(i * length // count, (i + 1) * length // count) for i in range(count)]
