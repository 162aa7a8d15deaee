"""Pair the layers of a network with the arrays from which they are lifted, and transpose the arrays.

Torch computes z = x A' + b, and minintk computes z = m x W + c b.  A is transposed from (out, in, *window) to (*window,
in, out) and divided by the multiplier m of the parametrization (1 for `PyTorch`).  Torch's images are channels-first,
so its Flatten orders features by (C, H, W), while minintk's orders them by (H, W, C).  The rows of the next Dense are
reordered accordingly.  Flax uses the same axes and order as minintk.

The scale gamma and offset beta of a normalisation become constants of a BatchNorm with frozen statistics mean', r:

    gamma (x - mean) / sqrt(variance + eps) + beta = r (x - mean'),   r = gamma / sqrt(variance + eps)
                                                                  mean' = mean - beta / r
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_host
from minintk.layers.contract import Tensor
from minintk.models.network import Network
from minintk.more_layers.group_norm import GroupNorm
from minintk.more_layers.grouped_conv import GroupedConv2d
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, UnsupportedLayer, out_shape

Axes = Literal["torch", "flax"]
KEYS = {
    "weight": "weight", "kernel": "weight", "scale": "weight", "w": "weight", "W": "weight",
    "bias": "bias", "b": "bias", "mean": "mean", "running_mean": "mean", "var": "var", "running_var": "var",
}  # fmt: skip
"""{name of a layer's array in other libraries: its key here}"""

KINDS: dict[type[s.Layer], int] = {s.BatchNorm: 1, s.Dense: 2, s.Conv1d: 3, s.Conv2d: 4, GroupedConv2d: 4}
"""Layers that take arrays, with the number of axes of their weights."""


@dataclass(frozen=True)
class Slot:
    """A layer that takes arrays, and its tensors by key: weight, and bias if there is one.  {} for a BatchNorm.

    features : the length of the last axis of its inputs.  order : the position of each feature in torch's order, or
    None if the orders are equal.  alone : True if it directly follows a LayerNorm or GroupNorm.
    """

    name: str
    layer: Any
    tensors: dict[str, Tensor]
    features: int
    order: Any
    alone: bool

    def order_of(self, key: str) -> Any:
        """Return `order` for arrays whose first axis lists the layer's inputs, and None for other arrays."""
        return self.order if key == "weight" or not self.tensors else None

    def takes(self, keys: set[str]) -> bool:
        """Return True if `keys` are the names of the layer's arrays."""
        if self.tensors:
            return keys == set(self.tensors)
        return keys - {"bias"} == {"weight"} if self.alone else keys - {"weight", "bias"} == {"mean", "var"}


def slots(net: Network, layout: Axes) -> list[Slot]:
    """Return a slot for each layer of the network that takes arrays, in order."""
    tensors, found = {tensor.name: tensor for tensor in net.layout.tensors}, list[Slot]()

    def walk(layer: s.Layer, shape: Shape, name: str, order: Any, before: s.Layer | None) -> Any:
        """Return the order of the features in the layer's output.   before : the preceding layer."""
        if isinstance(layer, s.Sequential):
            for i, inner in enumerate(layer.layers):
                order = walk(inner, shape, f"{name}.{i}" if name else str(i), order, before)
                shape, before = out_shape(inner, shape), inner
        elif isinstance(layer, s.Residual | s.Branches):
            names = ("branch", "shortcut") if isinstance(layer, s.Residual) else range(len(layer))
            orders = [walk(part, shape, f"{name}.{at}", order, None) for at, part in zip(names, layer.inside)]
            order = orders[0]
            if len({one is None for one in orders}) > 1 or (isinstance(layer, s.Concat) and order is not None):
                raise ValueError(f"{name}: {layer!r} adds features in two orders; put a Dense between Flatten and it")
        elif isinstance(layer, s.Flatten) and layout == "torch" and len(shape) > 1:
            order = np.moveaxis(np.arange(prod(shape)).reshape(shape[-1], *shape[:-1]), 0, -1).ravel()
            order = None if np.all(order[1:] > order[:-1]) else order
        elif type(layer) in KINDS:
            own = {key: tensors[at] for key, at in (("weight", f"{name}.W"), ("bias", f"{name}.b")) if at in tensors}
            found.append(Slot(name, layer, own, shape[-1], order, isinstance(before, s.LayerNorm | GroupNorm)))
            order = None if own else order
        elif layer.weights:
            raise UnsupportedLayer(f"{name}: {type(layer).__name__} has arrays that lift does not know")
        return order

    if walk(net.spec, net.input_shape, "", None, None) is not None:
        raise ValueError(f"{net!r} ends with features in torch's order (C, H, W): lift expects a Dense after Flatten")
    return found


Group = dict[str, tuple[str, Any]]
"""The arrays of one layer, {weight, bias, mean, var: (name, array)}."""


class Lifted(Network):
    """A network that was converted from a module.  modules : {layer that takes arrays: path of its module}.

    These paths locate the arrays of its layers.  For other networks, arrays are matched by their order.
    """

    def __init__(
        self, spec: s.Layer, shape: Sequence[int], parametrization: Parametrization, paths: Sequence[str]
    ) -> None:
        super().__init__(spec, shape, parametrization)
        names = (slot.name for slot in slots(self, "torch"))
        self.modules: dict[str, str] = dict(zip(names, paths, strict=True))


def pairs(net: Network, state: Mapping[str, Any], layout: Axes) -> Iterator[tuple[Slot, Group]]:
    """Yield each slot with its arrays: those of its module, or the next arrays of its kind in the dictionary."""
    if layout not in ("torch", "flax"):
        raise ValueError(f"layout expects 'torch' or 'flax', got {layout!r}")
    modules = net.modules if isinstance(net, Lifted) else {}
    left = groups(state, ordered=not modules)
    for slot in slots(net, layout):
        axes = {at: group["weight"][1].ndim if "weight" in group else 1 for at, group in left.items()}
        at = modules.get(slot.name, next((at for at in left if axes[at] == KINDS[type(slot.layer)]), None))
        group = {} if at is None else left.pop(at, {})
        if not slot.takes(set(group)):
            want = sorted(slot.tensors) or (["weight"] if slot.alone else ["mean", "var"])
            raise ValueError(f"layer {slot.name}, {slot.layer!r}, expects {want}, got {group and {at: sorted(group)}}")
        yield slot, group
    if left:
        if modules:
            raise ValueError(f"delete the modules that forward never calls: arrays of {list(left)} are left over")
        raise ValueError(f"arrays are left over, which no layer of {net!r} takes: {list(left)}")


def groups(state: Mapping[str, Any], *, ordered: bool = True) -> dict[str, Group]:
    """Return {layer: its arrays} in the order of `state`.  If `ordered`, numbers in layer names must not decrease."""
    found, last = dict[str, Group](), dict[str, list[int]]()
    for name, a in flat(state):
        parts = [part for part in name.split(".") if part not in ("params", "batch_stats")]
        layer, key = ".".join(parts[:-1]), parts[-1]
        if key == "num_batches_tracked":
            continue
        if key not in KEYS:
            raise ValueError(f"lift knows arrays {list(KEYS)} of Dense, convolutions and normalisations, got {name}")
        if ordered and layer not in found:
            stem, numbers = re.sub(r"\d+", "#", layer), [int(digits) for digits in re.findall(r"\d+", layer)]
            if numbers < last.get(stem, []):
                raise ValueError(f"{layer} comes late: sort the dictionary into the order of the network, by numbers")
            last[stem] = numbers
        found.setdefault(layer, {})[KEYS[key]] = name, a
    return found


def flat(state: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, array), joining the names of nested dictionaries with dots."""
    for key, a in state.items():
        yield from flat(a, f"{path}{key}.") if isinstance(a, Mapping) else ((f"{path}{key}", a),)


def filled(state: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return a copy of the nested dictionary with NumPy arrays, replacing those whose dotted names are in `new`."""
    return {
        key: filled(a, new, f"{path}{key}.") if isinstance(a, Mapping) else new.get(f"{path}{key}", to_host(array(a)))
        for key, a in state.items()
    }


# ----------------------------------------------------------------------------------------------- arrays


def array(a: Any) -> Array:
    """Convert an array of torch or another library to a NumPy or CuPy array."""
    if hasattr(a, "detach"):
        return np.asarray(a.detach().cpu().numpy())
    try:
        array_namespace(a)
    except TypeError:
        return np.asarray(a)
    return a


def turned(a: Array, order: Any, layout: Axes, *, back: bool = False) -> Array:
    """Transpose (out, in, *window) to (*window, in, out) with features in the order (H, W, C).  `back` inverts this."""
    xp, turn = array_namespace(a), layout == "torch" and a.ndim > 1
    if turn and not back:
        a = xp.moveaxis(a, (0, 1), (-1, -2))
    if order is not None and tuple(a.shape[:1]) == order.shape:
        a = xp.take(a, xp.asarray(np.argsort(order) if back else order), axis=0)
    return xp.moveaxis(a, (-1, -2), (0, 1)) if turn and back else a


def frozen(slot: Slot, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return a BatchNorm's frozen statistics, mean' = mean - beta / r and r = gamma / sqrt(variance + eps)."""
    some = next(iter(arrays.values()))
    xp, zero = array_namespace(some), 0 * some
    r, beta = arrays.get("weight", zero + 1), arrays.get("bias", zero)
    if "var" in arrays:
        r = r / xp.sqrt(arrays["var"] + slot.layer.eps)
    if bool(xp.any((r == 0) & (beta != 0))):
        raise ValueError(f"layer {slot.name} has features of scale 0 and an offset: no mean and scale give that")
    return {f"{slot.name}.mean": arrays.get("mean", zero) - beta / xp.where(r == 0, zero + 1, r), f"{slot.name}.r": r}
