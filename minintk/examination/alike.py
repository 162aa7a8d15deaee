"""Match other networks to the examined network in their BatchNorms and in the size of their initial weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_host
from minintk.examination.runs import Problem
from minintk.examination.signals import rms
from minintk.models.network import Network
from minintk.spec.parametrization import Parametrization


def refrozen(net: Network, theta: Array, one: Problem) -> Network:
    """Return `net`, possibly of another width, with BatchNorms frozen at theta to act as in the problem's network.

    A frozen BatchNorm computes r (z - mean).  On one.x, z has standard deviation 1 / r(z), so the output has standard
    deviation s = r / r(z) and mean m = r (mean(z) - mean).  For another z', r' = s r(z') and mean' = mean(z') - m / r'
    give the same s and m (averaged over features for other widths).  If all features share mean and r, both are kept.
    """

    def batch(net: Network, theta: Array, name: str, frozen: dict[str, Array]) -> list[Array]:
        w = net.layout.unpack(theta) | {key: a for key, a in frozen.items() if key.rpartition(".")[0] != name}
        net.layers(w, one.x)  # a BatchNorm that is not frozen stores its statistics in w
        return [w[f"{name}.mean"], w[f"{name}.r"]]

    frozen, theirs = dict[str, Array](), one.net.statistics
    for name in dict.fromkeys(key.rpartition(".")[0] for key in theirs):  # each layer changes the inputs of the next
        mean, r = theirs[f"{name}.mean"], theirs[f"{name}.r"]
        now, own = batch(net, theta, name, frozen)
        if on_data := any(len(set(to_host(a).tolist())) > 1 for a in (mean, r)):
            then, before = batch(one.net, one.theta, name, theirs)
            mean, r = r * (then - mean), r / before
        mean, r = (a if a.shape == now.shape else 0 * now + a.mean() for a in (mean, r))
        if on_data:
            r = r * own
            mean = now - mean / array_namespace(r).where(r == 0, 0 * r + 1, r)
        frozen |= {f"{name}.mean": mean, f"{name}.r": r}
    return net._with(frozen) if frozen else net


def restarted(net: Network, theta: Array, how: Parametrization, fresh: bool) -> Network:
    """Return the network in another parametrization, with initial weights of the same size as those of `net`.

    w_std and b_std are changed so that every tensor keeps its multiplier x std.  This std is that of `net.init` if it
    drew theta (`fresh`), else theta's rms.  Raises ValueError if a layer lacks the w_std or b_std to be changed.
    """
    w = net.layout.unpack(theta)
    size = {t.name: t.row.multiplier * (t.row.std if fresh else rms(w[t.name])) for t in net.layout.tensors}

    rows = {t.name: t.row for t in Network(net.spec, net.input_shape, how).layout.tensors}

    def walk(layer: s.Layer, name: str) -> Any:
        if layer.inside:
            names = ("branch", "shortcut") if isinstance(layer, s.Residual) else range(len(layer.inside))
            return type(layer)(*(walk(one, f"{name}{at}.") for at, one in zip(names, layer.inside)))
        new = dict[str, Any]()
        for at, std in ((f"{name}W", "w_std"), (f"{name}b", "b_std")):
            if at in rows and std == "b_std" and 0 in (size[at], rows[at].std):
                new["b_init"] = "zeros"
            elif at in rows and hasattr(layer, std):
                new[std] = getattr(layer, std) * size[at] / (rows[at].multiplier * rows[at].std)
        return replace(layer, **new) if new else layer  # type: ignore[type-var]

    other = Network(walk(net.spec, ""), net.input_shape, how)
    for t in other.layout.tensors:
        if t.row.std and not np.isclose(t.row.multiplier * t.row.std, size[t.name]):
            raise ValueError(f"{t.name} has no w_std or b_std that starts it at the size it has, in {how!r}")
    return other
