"""Compute networks on fast paths, with the results of the plain layers.

`accelerate.faster` replaces a network's layers by faster ones that compute the same maps; inside `accelerate.shut`
networks keep the plain layers.  Reading order:

    accelerate       which layers are replaced by what: ReLU after pooling, the fastest path for each convolution
    dense            large products split over the cores, thin ones by compiled loops
    patches, gather, conv    convolutions on patches of several windows, a few examples at a time
    norm             BatchNorm in few passes
    fused_relu       ReLU and BatchNorm applied as a convolution reads its input
    numba_loops      the loops of all these, compiled by Numba
    conv_gram        the tangent kernel of convolutions, from gradients or from pairs of positions
    split_batch      the batch, split over the cores
    split_outputs    the outputs of a kernel, split over the cores
"""
