"""A chain of layers arranged for speed: the same function, and the same derivatives, from cheaper pieces.

    max(relu(x)) = relu(max(x))       so ReLU waits for the pooling, which leaves a quarter of the numbers
    max(x + c b) = max(x) + c b       and so does the bias of a convolution
    P(x) V(W) = A' [(G W) . (B x)]    so a wide convolution goes by tiles, with fewer multiplications
    y's pixels permuted               so a convolution's pixels come in the order of the phases of the pooling after it

The first of equal positive maxima is the same before ReLU and after it, and where no maximum is positive, relu' = 0.
In the order of the phases a pooling compares long runs of numbers, not the few channels of a pixel with the next one's.
"""

from __future__ import annotations

from dataclasses import replace

from minintk import spec as s
from minintk.fast.bias import BoundBias
from minintk.fast.patches import Patches
from minintk.fast.toom_cook import BoundToomCook
from minintk.fast.toom_cook_transforms import Tiles
from minintk.layers.combine import BoundChain, BoundSum
from minintk.layers.contract import Bound
from minintk.layers.conv import BoundConv
from minintk.layers.pool import BoundMaxPool, Order
from minintk.spec.windows import Axis

WAITS = (s.ReLU,)
"""The activations that may wait for a pooling."""


def arranged(specs: tuple[s.Layer, ...], layers: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """The layers, `specs` bound, in an order and by ways that are faster."""
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
            biases = (BoundBias(t, layer.after) for t in before.tensors[1:])
            found[last : last + 2] = *phased(replace(before, b=None), layer), *biases
    return tuple(map(all_by_tiles, found))


def all_by_tiles(layer: Bound) -> Bound:
    """The convolutions of a layer by tiles, where that is possible and faster."""
    if isinstance(layer, BoundChain):
        return BoundChain(tuple(map(all_by_tiles, layer.layers)))
    if isinstance(layer, BoundSum):
        return BoundSum(all_by_tiles(layer.branch), all_by_tiles(layer.shortcut))
    return by_tiles(layer) if isinstance(layer, BoundConv) and layer.patches.phases == 1 else layer


def by_tiles(conv: BoundConv, phases: tuple[int, int] = (1, 1)) -> BoundConv | BoundToomCook:
    """The convolution by tiles, its pixels in the order of these phases, where that is possible and faster."""
    old = conv.patches
    tiles = Tiles(old.rows, old.columns, old.channels, phases)
    return BoundToomCook(conv, tiles) if tiles.worth else conv


def in_phases(a: Axis) -> bool:
    """Whether the windows of a pooling cut this axis into pieces of more than one pixel each, without padding."""
    return a.before == a.after == 0 and a.kernel == a.stride > 1 and a.kernel * a.out == a.size


def phased(conv: BoundConv, pool: BoundMaxPool) -> tuple[Bound, Bound]:
    """Both with the pixels between them in the order of the phases, where they have one."""
    down, right, old = pool.canvas.rows, pool.canvas.columns, conv.patches
    if in_phases(down) and in_phases(right):
        layer = by_tiles(conv, (down.kernel, right.kernel))
        if isinstance(layer, BoundToomCook):
            return layer, replace(pool, order=Order.phases(pool.canvas, old.channels[1]))
    layer = by_tiles(conv)
    if isinstance(layer, BoundToomCook):
        return layer, pool
    if in_phases(right) and pool.canvas.plain:
        new = Patches.of(old.rows, old.columns, old.channels, right.kernel)
        run = new.B * new.channels[1] // right.kernel
        return replace(conv, patches=new), replace(pool, order=Order.runs(pool.canvas, new.channels[1], run))
    return conv, pool
