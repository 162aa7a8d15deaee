"""Implement the finite layers, each with its formula, forward, jvp, vjp and gram.

Importing this package registers every layer with `minintk.layers.contract.bind`.  Reading order:

    contract      the interface of a layer, and the positions of its weights in theta
    dense         y = m x W + c b
    activation    y = phi(x), and the table of phi and phi'
    combine       Sequential composes layers
    branches      Residual and Sum add, Product multiplies, Concat concatenates
    patches       the patches that windows read, arranged as rows of a matrix
    conv          a convolution as Dense on patches
    pool          averages and maxima over windows
    norm          LayerNorm and BatchNorm
    attention     self-attention between all positions, and means that ignore padding
    dropout       masks
"""

from minintk.layers import activation, attention, branches, combine, conv, dense, dropout, norm, pool

__all__ = ["activation", "attention", "branches", "combine", "conv", "dense", "dropout", "norm", "pool"]
