"""Fast paths for networks, equal to the layers as they are written.

`accelerate.faster` takes a network's layers and returns the same maps by cheaper ways; `accelerate.shut` makes networks
without it.
Reading order:

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
