"""Record the inputs and outputs of layers with weights, and of layers such as Residual whose branches have weights.

Names follow the layout: "0.W" belongs to layer "0", and "2.branch.1.W" to layer "2.branch.1" inside the Residual "2".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minintk.arrays import Array
from minintk.layers.branches import BoundBranches
from minintk.layers.combine import BoundChain
from minintk.layers.contract import Bound, Weights
from minintk.models.model import check_model
from minintk.models.network import Network


class Passage(NamedTuple):
    """The input x : ([E], N, *shape before) and the output h = layer(x) : ([E], N, *shape after) of a layer."""

    x: Array
    h: Array


def trace(net: Network, theta: Array, x: Array) -> dict[str, Passage]:
    """Return {layer name: input and output} for the call net(theta, x), in the order in which layers finish.

    >>> import numpy as np, minintk as mn
    >>> branch = mn.Sequential(mn.Tanh(), mn.Dense(8))
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Residual(branch), mn.Dense(1)), (3,))
    >>> seen = trace(net, net.init(np.random.default_rng(0)), np.eye(3))
    >>> {name: (p.x.shape, p.h.shape) for name, p in seen.items()}
    {'0': ((3, 3), (3, 8)), '1.branch.1': ((3, 8), (3, 8)), '1': ((3, 8), (3, 8)), '2': ((3, 8), (3, 1))}
    """
    check_model(net, Network)
    net.check(theta, x)
    found: dict[str, Passage] = {}
    _follow(net.layers, "", net._weights(theta), x, found)
    return found


def _follow(layer: Bound, name: str, w: Weights, x: Array, found: dict[str, Passage]) -> Array:
    """Return the layer's output, and add to `found` the inputs and outputs that `trace` returns for this layer."""
    if isinstance(layer, BoundChain):
        for inner, child in _children(layer, name):
            x = _follow(child, inner, w, x, found)
        return x
    if isinstance(layer, BoundBranches):
        b = [_follow(child, inner, w, x, found) for inner, child in _children(layer, name)]
        h, _ = layer.kind.of(layer, b, ())
    else:
        (h, _), name = layer(w, x), layer.tensors[0].name.rpartition(".")[0] or name if layer.tensors else name
    if layer.tensors:
        found[name] = Passage(x, h)
    return h


def leaves(layer: Bound, name: str = "") -> Iterator[tuple[str, Bound]]:
    """Yield (name, layer) for every bound layer that directly owns weights."""
    inside = list(_children(layer, name))
    for inner, child in inside:
        yield from leaves(child, inner)
    if layer.tensors and not inside:
        yield layer.tensors[0].name.rpartition(".")[0] or name, layer


def _children(layer: Bound, name: str) -> Iterator[tuple[str, Bound]]:
    """Yield (name, layer) for the inner layers, named after their branch or position."""
    prefix = f"{name}." if name else ""
    if isinstance(layer, BoundBranches):
        yield from ((f"{prefix}{inner}", child) for inner, child in zip(layer.names, layer.layers, strict=True))
    elif isinstance(layer, BoundChain):
        yield from ((f"{prefix}{i}", child) for i, child in enumerate(layer.layers))
