"""The engine room: what exists for speed alone, behind one door, and equal to the layers as they are written.

`door.faster` takes a network's layers and returns the same maps by cheaper ways; `door.shut` gives networks without it.
Reading order:

    door             what is taken for what: ReLU after pooling, which convolution goes which way
    dense            large products split over the cores, thin ones by compiled loops
    patches, gather, conv    convolutions on patches of several windows, some examples at a time
    norm             BatchNorm in few passes
    rectified        ReLU and BatchNorm on the way into a convolution
    direct           the loops of all these, compiled by Numba
    conv_gram        their tangent kernel, by gradients or by pairs of positions
    split_batch      the batch split over the cores
    split_outputs    the outputs of a kernel split over the cores
"""
