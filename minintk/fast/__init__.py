"""Compute networks faster, with the same results as the plain layers up to rounding.

`accelerate.faster` replaces a network's layers by faster layers that compute the same functions.  Networks that are
created inside `accelerate.shut` keep the plain layers.  Reading order:

    accelerate       the choice of the faster layers, and the exchange of ReLU and pooling
    dense            large products, split over the cores
    patches, gather, conv    convolutions on patches of several windows, a few examples at a time
    norm             BatchNorm in few passes over memory
    fused_relu       ReLU and BatchNorm, applied while a convolution reads its input
    numba_here, compiled, numba_loops    loops for convolutions and BatchNorm, compiled by Numba
    conv_gram        the tangent kernel of convolutions, from gradients or from pairs of positions
    split_batch      the batch, split over the cores
    split_outputs    the kernel's trace over outputs, split over the cores
"""
