"""Fast paths for networks, with the results of the plain layers.

`accelerate.faster` replaces a network's layers by faster ones for the same maps; `accelerate.shut` makes networks
without them. Reading order:

    accelerate       what is taken for what: ReLU after pooling, which convolution goes which way
    dense            large products split over the cores, thin ones by compiled loops
    patches, gather, conv    convolutions on patches of several windows, some examples at a time
    norm             BatchNorm in few passes
    fused_relu       ReLU and BatchNorm on the way into a convolution
    numba_loops      the loops of all these, compiled by Numba
    conv_gram        their tangent kernel, by gradients or by pairs of positions
    split_batch      the batch split over the cores
    split_outputs    the outputs of a kernel split over the cores
"""
