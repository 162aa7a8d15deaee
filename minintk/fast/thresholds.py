"""Where the fast paths begin and end: one object with all the numbers, measured on two cores with AVX-512.

Below most of them one core is done before a second one has started.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@dataclass
class Thresholds:
    """Multiplications, numbers in memory and bytes, as the comments say."""

    products: int = 2**23  # multiplications of a matrix product that is split over the cores
    thin: int = 64  # rows, columns or terms of such a product that is left to compiled loops
    compiled: int = 2**20  # multiplications of a convolution that is worth loading Numba
    convolution: int = 2**25  # multiplications of a convolution that is split over the cores
    batch: int = 2**20  # numbers in the activations of a batch that is split over the cores
    meeting: int = 2**24  # numbers in a batch coupled by BatchNorm whose shares the cores take through all layers
    contraction: int = 2**24  # multiplications of a kernel's contraction that is left to BLAS's own threads
    cotangents: int = 2**20  # numbers in the cotangents of a kernel whose outputs are split over the cores
    vector: int = 2**19  # numbers of a vector that the optimiser and copies split over the cores
    share_activations: int = 2**23  # numbers in a share of a batch, which stay in cache from layer to layer
    share_per_weight: int = 16  # numbers in a share for each weight: every share prepares all weights
    shares_per_core: int = 4  # the most shares of a batch
    patches_bytes: int = 3 * 2**20  # patches that are formed and multiplied at a time,
    patches_bytes_gpu: int = 2**30  # and on a GPU
    normalised: int = 2**16  # numbers that BatchNorm gets and that are worth loading Numba
    gathering: float = 1.5  # times the multiplications of a convolution that gathering its gradient may take,
    gathered_channels: int = 16  # and channels of the images from which it is worth it
    cotangent_bytes: int = 6 * 10**6  # the largest cotangent before the outputs of a kernel are taken in parts
    ensemble_bytes: int = 24 * 2**20  # activations and parameters of the members that train on a core at a time
    vector_piece: int = 2**17  # numbers of a vector that stay in cache through the passes of an optimiser
    copy_bytes: int = 2**18  # a copy whose memory is taken again when nobody holds it
    spread: int = 2**22  # multiplications of a compiled loop that is spread over threads that are awake,
    spread_numbers: int = 2**15  # and numbers,
    looks: int = 2**15  # and how often one looks for the next, 15 ns each, before it sleeps
    scratch_bytes: int = 2**24  # scratch memory that is taken again; above, it is fresh


THRESHOLDS = Thresholds()


@cache
def numba_is_here() -> bool:
    """Whether Numba is installed (the extra `fast`) and not switched off: in Python none of our loops would work."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


@cache
def loops() -> Any:
    """`minintk.fast.direct`, loaded; None, with a warning, where Numba does not load (it needs another NumPy)."""
    try:
        return import_module("minintk.fast.direct")
    except Exception as error:  # whatever an extension module raises
        warnings.warn(f"Numba is installed but does not load, so NumPy is used alone: {error}", RuntimeWarning, 2)
        return None
