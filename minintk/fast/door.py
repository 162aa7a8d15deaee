"""The one door between the layers as they are written and the engine room: `faster`.

A network asks once, when it is made, and gets the same maps by cheaper ways: one bound layer for outputs and sweeps,
one for kernels.  Nothing in `minintk.spec`, `minintk.layers` or `minintk.models` imports this room; `minintk` opens
the door when it is imported, and `shut` closes it for the networks that are made meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from minintk import spec as s
from minintk.fast.reorder import cheaper
from minintk.fast.split_batch import SplitBatch
from minintk.fast.split_outputs import SplitOutputs
from minintk.layers.combine import BoundChain
from minintk.layers.contract import Bound
from minintk.models.network import Network, Ways, as_written
from minintk.spec.shapes import Shape, has_weights, kept_shapes, out_shape


def faster(layers: BoundChain, spec: s.Sequential, input_shape: Shape, coupled: bool) -> Ways:
    """The layers of a network by cheaper ways: the same outputs and derivatives up to rounding.

    coupled : whether an example's output depends on the others of its batch, which then stays in one piece.
    """
    kernels, sizes = _chain(layers, True), [prod(input_shape), *map(prod, kept_shapes(spec, input_shape))]
    if len(input_shape) > 1:
        kernels = SplitOutputs(kernels.layers, (sum(sizes), max(sizes)), len(input_shape))
    return Ways(cheaper(layers, kernels=False) if coupled else batch_split(layers, spec, input_shape), kernels)


def batch_split(layers: BoundChain, spec: s.Sequential, shape: Shape) -> Bound:
    """The layers that work on images, up to Flatten or GlobalAvgPool, with their batch split over the cores."""
    before, count, numbers = shape, 0, 0
    while count < len(layers.layers) and len(shape) > 1:
        after = out_shape(spec.layers[count], shape)
        if len(after) == 1 and has_weights(spec.layers[count]):
            break
        numbers += sum(map(prod, kept_shapes(spec.layers[count], shape)))
        shape, count = after, count + 1
    if not any(map(has_weights, spec.layers[:count])):
        return cheaper(layers, kernels=False)
    front, rest = BoundChain(layers.layers[:count]), BoundChain(layers.layers[count:])
    split = SplitBatch(_chain(front, False), _chain(front, True), before, shape, numbers)
    return BoundChain((split, *_chain(rest, False).layers))


def _chain(layers: BoundChain, kernels: bool) -> BoundChain:
    """The layers one by one, so that the chain stays a chain."""
    found = cheaper(layers, kernels=kernels)
    assert isinstance(found, BoundChain)
    return found


def open_door() -> None:
    """Networks that are made from now on are fast."""
    Network.speed = staticmethod(faster)


@contextmanager
def shut() -> Iterator[None]:
    """Networks that are made inside run their layers as they are written.

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
        Network.speed = staticmethod(before)
