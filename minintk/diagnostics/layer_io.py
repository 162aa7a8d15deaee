"""The input and output of every layer with weights, and of residual sums, by name.

Names follow the layout: "0" owns "0.W" and "0.b", "2.branch.1" owns "2.branch.1.W"; "2" alone is the residual sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minintk import spec as s
from minintk.arrays import Array
from minintk.layers.contract import Weights, bind
from minintk.models.network import Network, check_model
from minintk.spec.shapes import Site, has_weights, sites


class Passage(NamedTuple):
    """h = layer(x): x : ([E], N, *shape before), h : ([E], N, *shape after)."""

    x: Array
    h: Array


def trace(net: Network, theta: Array, x: Array) -> dict[str, Passage]:
    """{name: input and output of the layer}, in the order of the layers; arguments as for `net(theta, x)`.

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
    _follow(net, net.spec, Site(net.input_shape), "", net.layout.unpack(theta) | net.statistics, x, found)
    return found


def _follow(
    net: Network, layer: s.Layer, site: Site, name: str, w: Weights, x: Array, found: dict[str, Passage]
) -> Array:
    """The layer's output; adds the passages inside it to `found`."""
    if isinstance(layer, s.Sequential):
        for inner, child, at in _children(layer, site, name):
            x = _follow(net, child, at, inner, w, x, found)
        return x
    if isinstance(layer, s.Residual):
        inside = _children(layer, site, name)
        branch, shortcut = (_follow(net, child, at, inner, w, x, found) for inner, child, at in inside)
        h = branch + shortcut
    else:
        h, _ = bind(layer, site, net.parametrization, name)(w, x)
    if has_weights(layer):
        found[name] = Passage(x, h)
    return h


def leaves(layer: s.Layer, site: Site, name: str = "") -> Iterator[tuple[str, s.Layer, Site]]:
    """(name, layer, site) of every layer that directly owns weights."""
    if isinstance(layer, s.Sequential | s.Residual):
        for inner, child, at in _children(layer, site, name):
            yield from leaves(child, at, inner)
    elif has_weights(layer):
        yield name, layer, site


def _children(layer: s.Sequential | s.Residual, site: Site, name: str) -> Iterator[tuple[str, s.Layer, Site]]:
    """(name, layer, site) of the layers inside, as `minintk.layers.combine` names them."""
    prefix = f"{name}." if name else ""
    if isinstance(layer, s.Residual):
        yield f"{prefix}branch", layer.branch, site
        yield f"{prefix}shortcut", layer.shortcut, site
    else:
        for i, (child, at) in enumerate(sites(layer.layers, site)):
            yield f"{prefix}{i}", child, at
