"""What a network is, as data; the finite and the infinite meaning both read this room.

Reading order:

    layers             the layers, frozen dataclasses without arrays
    shapes             the shape of an example after each layer, and which layers come first and last
    windows            which pixels a convolution or a pooling reads
    pointwise          phi and phi' of every activation
    parametrization    how a tensor enters the network, how it is drawn, how fast it learns
    abc_parametrization    the same as powers of the width, and what training then does
    zoo                the networks of the papers
"""

from minintk.spec.layers import (
    GELU,
    Abs,
    Activation,
    AvgPool,
    BatchNorm,
    Conv1d,
    Conv2d,
    Dense,
    Erf,
    Flatten,
    GlobalAvgPool,
    Identity,
    Layer,
    LayerNorm,
    LeakyReLU,
    MaxPool,
    Padding,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Sin,
    Size,
    Softplus,
    Tanh,
    as_sequential,
)

__all__ = [
    "GELU",
    "Abs",
    "Activation",
    "AvgPool",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Erf",
    "Flatten",
    "GlobalAvgPool",
    "Identity",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "MaxPool",
    "Padding",
    "ReLU",
    "Residual",
    "Sequential",
    "Sigmoid",
    "Sin",
    "Size",
    "Softplus",
    "Tanh",
    "as_sequential",
]
