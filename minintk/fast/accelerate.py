"""Replace the layers of a network by faster layers, with `faster`.

A network calls `faster` once, when it is created, and receives two bound layers that compute its function: one for
outputs and derivatives, and one for kernels.  `faster` makes these replacements:

    max(relu(x)) = relu(max(x))    ReLU is moved behind the pooling, where it acts on fewer numbers
    convolutions                   on patches of several windows, or in Numba's loops (no patches) if these pay off
    BatchNorm                      in two passes forward and two backward, if Numba is installed and the batch is large
    [BatchNorm,] ReLU, convolution fused if Numba is installed: the convolution normalises and rectifies what it reads
    Dense                          with large products split over the cores
    batch, outputs                 split over the cores; if BatchNorm couples the batch, each layer splits its loops

Moving ReLU does not change gradients: a positive maximum keeps its position, and relu' = 0 at any other maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from minintk import spec as s
from minintk.fast.conv import BlockedConv
from minintk.fast.dense import SplitDense
from minintk.fast.fused_relu import RectifiedConv, rectifies
from minintk.fast.norm import CompiledBatchNorm
from minintk.fast.numba_here import loops, numba_is_here
from minintk.fast.split_batch import SplitBatch
from minintk.fast.split_outputs import SplitOutputs
from minintk.layers.branches import BoundBranches
from minintk.layers.combine import BoundChain
from minintk.layers.contract import Bound
from minintk.layers.conv import BoundConv
from minintk.layers.dense import BoundDense
from minintk.layers.norm import BoundBatchNorm
from minintk.layers.pool import BoundMaxPool
from minintk.models.network import Network, Ways, as_written
from minintk.spec.shapes import Shape, has_weights, kept_shapes, out_shape


def faster(layers: BoundChain, spec: s.Sequential, input_shape: Shape, coupled: bool) -> Ways:
    """Return faster layers for a network, with the same outputs and derivatives up to rounding.

    coupled : True if an example's output depends on other examples in its batch; the batch is then not split.
    """
    sizes = [prod(input_shape), *map(prod, kept_shapes(spec, input_shape))]
    size = sum(sizes), max(sizes)
    sweeps = cheaper_chain(layers, kernels=False) if coupled else batch_split(layers, spec, input_shape)
    return Ways(SplitOutputs(sweeps.layers, size), SplitOutputs(cheaper_chain(layers, kernels=True).layers, size))


def batch_split(layers: BoundChain, spec: s.Sequential, shape: Shape) -> BoundChain:
    """Return the chain with faster layers.  Its first layers, on images, become a `SplitBatch` if any has weights."""
    before, count, numbers = shape, 0, 0
    while count < len(layers.layers) and len(shape) > 1:
        after = out_shape(spec.layers[count], shape)
        if len(after) == 1 and has_weights(spec.layers[count]):
            break
        numbers += sum(map(prod, kept_shapes(spec.layers[count], shape)))
        shape, count = after, count + 1
    if not any(map(has_weights, spec.layers[:count])):
        return cheaper_chain(layers, kernels=False)
    front, rest = BoundChain(layers.layers[:count]), BoundChain(layers.layers[count:])
    sweeps, kernels = (cheaper_chain(front, kernels=kind) for kind in (False, True))
    return BoundChain((SplitBatch(sweeps, kernels, before, shape, numbers), *cheaper_chain(rest, kernels=False).layers))


def cheaper_chain(chain: BoundChain, *, kernels: bool) -> BoundChain:
    """Return the chain with faster layers.  If `kernels`, do not swap or merge layers (merged layers have no gram)."""
    if kernels:
        return BoundChain(tuple(cheaper(inner, kernels=True) for inner in chain.layers))
    found = tuple(cheaper(inner, kernels=False) for inner in relu_after_pooling(chain.layers))
    return BoundChain(RectifiedConv.joined(found))


def cheaper(layer: Bound, *, kernels: bool) -> Bound:
    """Replace a layer and its inner layers by faster layers.  Leave subclasses, whose methods can differ, unchanged."""
    if type(layer) is BoundChain:
        return cheaper_chain(layer, kernels=kernels)
    if isinstance(layer, BoundBranches):
        return replace(layer, layers=tuple(cheaper(inner, kernels=kernels) for inner in layer.layers))
    if type(layer) is BoundConv:
        return BlockedConv.of(layer)
    if type(layer) is BoundBatchNorm:
        return CompiledBatchNorm(layer.name, layer.shape, layer.eps)
    if type(layer) is BoundDense:
        return SplitDense(layer)
    return layer


def relu_after_pooling(layers: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """Swap every MaxPool that follows a ReLU with that ReLU."""
    found = list(layers)
    for i in range(1, len(found)):
        if exchangeable(found[i - 1], found[i]):
            found[i - 1], found[i] = found[i], found[i - 1]
    return tuple(found)


def exchangeable(before: Bound, layer: Bound) -> bool:
    """Return True for a ReLU followed by a MaxPool, which commute because ReLU is monotonic."""
    return rectifies(before) and type(layer) is BoundMaxPool


@contextmanager
def shut() -> Iterator[None]:
    """Make networks created inside this context use the plain layers.

    >>> import minintk as mn
    >>> with shut():
    ...     net = mn.Network(mn.Sequential(mn.Dense(3), mn.ReLU(), mn.Dense(1)), (2,))
    >>> net.sweeps is net.layers
    True
    """
    before = Network.speed
    Network.speed = staticmethod(as_written)
    try:
        yield
    finally:
        Network.speed = None if before is None else staticmethod(before)


def works() -> Iterator[Callable[[], object]]:
    """Yield functions that together compile and run every loop in `minintk.fast`; yield nothing without Numba."""
    if not numba_is_here() or loops() is None:
        return
    layers = s.Conv2d(16, 3), s.BatchNorm(), s.ReLU(), s.Conv2d(16, 3), s.MaxPool(2), s.GlobalAvgPool(), s.Dense(1)
    net = Network(s.Sequential(*layers), (32, 32, 16))

    def train(dtype: Any) -> None:
        x = np.random.default_rng(0).standard_normal((8, 32, 32, 16)).astype(dtype)
        theta = net.init(np.random.default_rng(0), dtype=dtype)
        net.linearize(theta, x)[1].vjp(np.ones((len(x), 1), dtype))

    yield from (partial(train, dtype) for dtype in ("f4", "f8"))
