"""A chain of layers arranged for speed: the same function, and the same derivatives, from cheaper pieces.

    max(relu(x)) = relu(max(x))       so ReLU waits for the pooling, which leaves a quarter of the numbers
    max(x + c b) = max(x) + c b       and so does the bias of a convolution
    P(x) V(W), V's columns permuted   so a convolution's pixels come in the order of the phases of the pooling after it

The first of equal positive maxima is the same before ReLU and after it, and where no maximum is positive, relu' = 0.
In the order of the phases a pooling compares long runs of numbers, not the few channels of a pixel with the next one's.
"""

from __future__ import annotations

from dataclasses import replace

from minintk import spec as s
from minintk.finite import Bound
from minintk.layers.bias import BoundBias
from minintk.layers.conv import BoundConv
from minintk.layers.patches import Patches
from minintk.layers.pool import BoundMaxPool

WAITS = (s.ReLU,)
"""The activations that may wait for a pooling."""


def arranged(specs: tuple[s.Layer, ...], layers: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """The layers, `specs` bound, in an order and with columns that are faster."""
    found: list[Bound] = list(layers)
    for i in reversed(range(1, len(found))):
        layer = found[i]
        if not isinstance(layer, BoundMaxPool):
            continue
        last = i - 1
        if last and isinstance(specs[last], WAITS):
            found[last : i + 1] = layer, replace(found[last], shape=layer.after)  # type: ignore[type-var]
            last -= 1
        before = found[last]
        if isinstance(before, BoundConv):
            conv, pool = phased(before, layer) if in_phases(layer) else (before, layer)
            found[last : last + 2] = replace(conv, b=None), pool, *(BoundBias(t, pool.after) for t in conv.tensors[1:])
    return tuple(found)


def in_phases(pool: BoundMaxPool) -> bool:
    """Whether there is no padding and its windows cut the rows of pixels into pieces, of more than one pixel each."""
    a = pool.canvas.columns
    return pool.canvas.plain and a.kernel == a.stride > 1 and a.kernel * a.out == a.size


def phased(conv: BoundConv, pool: BoundMaxPool) -> tuple[BoundConv, BoundMaxPool]:
    """Both with the columns between them in the order of the phases."""
    old, phases = conv.patches, pool.canvas.columns.kernel
    new = Patches.of(old.rows, old.columns, old.channels, phases)
    return replace(conv, patches=new), replace(pool, run=new.B * new.channels[1] // phases)
