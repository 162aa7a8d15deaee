"""Convert the weights of a network back to the arrays that it was lifted from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, to_host
from minintk.lifting.slots import Axes, array, filled, frozen, pairs, turned
from minintk.models.network import Network


def unlift(net: Network, theta: Array, state: Mapping[str, Any], *, layout: Axes = "torch") -> dict[str, Any]:
    """Return a copy of `state` as NumPy arrays, with the weights from theta : (P,).  This is the inverse of `lift`.

    state : the dictionary that was lifted, or one with the same names and nesting.  A frozen BatchNorm
    computes r (x - mean').  If r or mean' differs from `state`, for example after `Network.calibrate`, the returned
    scale is r, the offset -r mean', the mean 0 and the variance 1 - eps.

    The returned weights are linear in theta, so `unlift` also converts gradients if all multipliers are 1.  Raises
    ValueError for an ensemble or for a BatchNorm without frozen statistics, and the same exceptions as `lift`.

    >>> from minintk import Dense, lift
    >>> state = {"weight": np.array([[1.0, 2.0, 3.0]])}
    >>> net, theta = lift(state, (3,), spec=Dense(1))
    >>> unlift(net, 2 * theta, state)
    {'weight': array([[2., 4., 6.]])}
    """
    if theta.ndim != 1:
        raise ValueError(f"unlift expects theta : (P,) of one network, theta[i] of several, got {tuple(theta.shape)}")
    w, found = net.layout.unpack(theta), dict[str, Any]()
    for slot, group in pairs(net, state, layout):
        own = {key: w[tensor.name] * tensor.row.multiplier for key, tensor in slot.tensors.items()}
        if isinstance(slot.layer, s.BatchNorm):
            if not net.statistics:
                raise ValueError(f"unlift expects the statistics of layer {slot.name}: net = net.calibrate(theta, x)")
            then = frozen(slot, {key: turned(array(a), slot.order_of(key), layout) for key, (_, a) in group.items()})
            if any(np.any(to_host(a).astype(theta.dtype) != to_host(net.statistics[at])) for at, a in then.items()):
                mean, r = (net.statistics[f"{slot.name}.{key}"] for key in ("mean", "r"))
                own = {"weight": r, "bias": -r * mean, "mean": 0 * mean, "var": 0 * mean + 1 - slot.layer.eps}
                if not {"weight", "bias"} <= set(group):
                    raise ValueError(f"layer {slot.name} has statistics that only a BatchNorm with affine=True takes")
                own = {key: own[key] for key in group}
        for key, a in own.items():
            found[group[key][0]] = np.array(to_host(turned(a, slot.order_of(key), layout, back=True)))
    return filled(state, found)
