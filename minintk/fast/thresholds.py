"""Where the fast paths begin and end: one object with all the numbers, measured on two cores with AVX-512."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Thresholds:
    """Below a count of multiplications or numbers, one core is done before a second one has started.

    products : multiplications of one matrix product that is worth splitting over the cores.
    convolution : multiplications of a convolution that is worth splitting over the cores.
    batch : numbers in the activations of a batch that is worth splitting over the cores.
    step_products, step_activations : multiplications of a batch with all weights, and numbers in its activations, from
        which a training step holds BLAS at one thread and splits its work itself.
    cotangents : numbers in all cotangents of a kernel's outputs that are worth splitting over the cores.
    vector : numbers of a vector that the optimiser splits over the cores.

    share_activations, share_per_weight, shares_per_core : numbers in the activations of a share of a batch, which stay
        in a core's cache from layer to layer; numbers for each weight, since every share prepares all weights; the most
        shares for each core.
    patches_bytes, patches_bytes_gpu : bytes of patches that are formed and multiplied at a time.
    tiles_bytes : bytes of transformed tiles that are formed and multiplied at a time.
    tiles_saving : multiplications that each transformed number must save.
    cotangent_bytes : bytes of the largest cotangent from which the outputs of a kernel are taken in parts.
    ensemble_bytes : bytes of activations and parameters of the members that train on a core at a time.
    vector_piece : numbers of a vector that stay in a core's cache through the passes of an optimiser.
    scratch_bytes : bytes from which scratch memory is fresh.
    """

    products: int = 2**23
    convolution: int = 2**25
    batch: int = 2**20
    step_products: int = 2**26
    step_activations: int = 2**20
    cotangents: int = 2**20
    vector: int = 2**19
    share_activations: int = 2**21
    share_per_weight: int = 16
    shares_per_core: int = 4
    patches_bytes: int = 3 * 2**20
    patches_bytes_gpu: int = 2**30
    tiles_bytes: int = 12 * 2**20
    tiles_saving: int = 36
    cotangent_bytes: int = 6 * 10**6
    ensemble_bytes: int = 24 * 2**20
    vector_piece: int = 2**17
    scratch_bytes: int = 2**24


THRESHOLDS = Thresholds()
