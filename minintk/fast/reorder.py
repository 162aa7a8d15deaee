"""A chain of layers with cheaper pieces in their place: the same function, and the same derivatives.

    max(relu(x)) = relu(max(x))       so ReLU waits for the pooling, which leaves a quarter of the numbers
    convolutions                      on patches of several windows, or by tiles where the channels are many
    Dense                             its large products split over the cores

The first of equal positive maxima is the same before ReLU and after it, and where no maximum is positive, relu' = 0.
"""

from __future__ import annotations

from minintk import spec as s
from minintk.fast.conv import BlockedConv
from minintk.fast.dense import SplitDense
from minintk.fast.toom_cook import ToomCook
from minintk.fast.toom_cook_transforms import Tiles
from minintk.layers.activation import BoundActivation
from minintk.layers.combine import BoundChain, BoundSum
from minintk.layers.contract import Bound
from minintk.layers.conv import BoundConv
from minintk.layers.dense import BoundDense
from minintk.layers.pool import BoundMaxPool


def cheaper(layer: Bound, *, kernels: bool) -> Bound:
    """The layer, and the layers inside it, by cheaper pieces; for `kernels`, by pieces that have a cheap gram."""
    if isinstance(layer, BoundChain):
        layers = layer.layers if kernels else relu_after_pooling(layer.layers)
        return BoundChain(tuple(cheaper(inner, kernels=kernels) for inner in layers))
    if isinstance(layer, BoundSum):
        return BoundSum(cheaper(layer.branch, kernels=kernels), cheaper(layer.shortcut, kernels=kernels))
    if isinstance(layer, BoundConv):
        return BlockedConv.of(layer) if kernels else convolution(layer)
    if isinstance(layer, BoundDense):
        return SplitDense(layer)
    return layer


def convolution(layer: BoundConv) -> Bound:
    """By tiles where that is possible and faster, else on patches."""
    tiles = Tiles(layer.windows, layer.parameters.W.shape[-2:])  # type: ignore[arg-type]
    return ToomCook(layer, tiles) if tiles.worth else BlockedConv.of(layer)


def relu_after_pooling(layers: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """The layers with MaxPool and the ReLU before it exchanged."""
    found = list(layers)
    for i in range(1, len(found)):
        before, layer = found[i - 1], found[i]
        relu = isinstance(before, BoundActivation) and isinstance(before.layer, s.ReLU)
        if relu and isinstance(layer, BoundMaxPool):
            found[i - 1], found[i] = layer, before
    return tuple(found)
