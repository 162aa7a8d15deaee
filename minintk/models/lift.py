"""Networks trained elsewhere: a torch.nn model, or a dictionary of arrays, as a network and theta, and back.

Torch writes z = x A' + b, here it is z = m x W + c b: the axes of A are turned, (out, in, *window) to (*window, in,
out), and A is divided by the multiplier m of the parametrization (1 for `PyTorch`).  Images are channels-first there,
so that Flatten lists their features in the order (C, H, W), here (H, W, C): the Dense after it has its rows reordered.
Flax has the axes and the order of minintk.

Scale gamma and offset beta of a normalisation become constants, a BatchNorm with frozen statistics mean' and r:

    gamma (x - mean) / sqrt(variance + eps) + beta = r (x - mean'),   r = gamma / sqrt(variance + eps)
                                                                  mean' = mean - beta / r

No other library is imported: torch's modules are known by their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_host
from minintk.layers.contract import Tensor
from minintk.models.network import Network
from minintk.spec.parametrization import Parametrization, PyTorch
from minintk.spec.shapes import Shape, UnsupportedLayer, out_shape
from minintk.validate import precision

Axes = Literal["torch", "flax"]
KEYS = {
    "weight": "weight", "kernel": "weight", "scale": "weight", "w": "weight", "W": "weight",
    "bias": "bias", "b": "bias", "mean": "mean", "running_mean": "mean", "var": "var", "running_var": "var",
}  # fmt: skip
"""What others call the arrays of a layer."""

KINDS: dict[type[s.Layer], int] = {s.BatchNorm: 1, s.Dense: 2, s.Conv1d: 3, s.Conv2d: 4}
"""Layers that take arrays, with the number of axes of their weight."""


def lift(
    model: Any, input_shape: Sequence[int], spec: s.Layer | None = None, *, layout: Axes = "torch",
    parametrization: Parametrization | None = None,
) -> tuple[Network, Array]:  # fmt: skip
    """(net, theta): the network that computes what `model` does, with the same gradients in its weights.

    model : a torch.nn module in evaluation mode, its `state_dict()`, or a dictionary of arrays, nested or with dots in
        its names, where a layer has weight (kernel, scale, W, w), bias (b), and a BatchNorm mean and var (running_mean,
        running_var) too.  From CuPy arrays theta is on the GPU.
    input_shape : the shape of one example, channels last, (H, W, C) or (d,).
    spec : for a dictionary, and for a module with a `forward` of its own.  Each Dense, convolution and BatchNorm takes
        the next arrays of its kind, so the dictionary is in the order of the network.  A LayerNorm with scale and
        offset is `Sequential(LayerNorm(), BatchNorm())`.  A torch.nn.Sequential of known layers needs no spec.
    layout : whose axes the arrays have, "torch" (out, in, *window) or "flax" (*window, in, out).
    parametrization : `PyTorch()` unless given, where theta is the weights themselves.

    theta has the arrays' dtype, float32 or float64.  Statistics of BatchNorms are frozen, as by `Network.calibrate`,
    and their scale and offset with them.  UnsupportedLayer for a module that has no counterpart, with its path;
    ValueError where shapes disagree, arrays are missing or left over, or the module is in training mode.

    >>> state = {"0.weight": np.ones((4, 3)), "0.bias": np.zeros(4), "2.weight": np.ones((1, 4))}
    >>> net, theta = lift(state, (3,), s.Sequential(s.Dense(4, b_std=1.0), s.ReLU(), s.Dense(1)))
    >>> net(theta, np.ones((1, 3)))
    array([[12.]])
    """
    if hasattr(model, "state_dict"):
        noisy = [m for m in model.modules() if m.training and (hasattr(m, "running_mean") or hasattr(m, "p"))]
        if noisy:
            raise ValueError(f"lift expects a module in evaluation mode, {noisy[0]!r} is in training: model.eval()")
        spec = _translated(model, tuple(input_shape), "", set()) if spec is None else spec
        model = model.state_dict()
    if not isinstance(model, Mapping) or spec is None:
        raise TypeError(f"lift expects a torch.nn module, or a dictionary of arrays and spec=..., got {model!r:.80}")
    net = Network(spec, input_shape, PyTorch() if parametrization is None else parametrization)
    pieces, statistics = dict[str, Array](), dict[str, Array]()
    for slot, group in _pairs(net, model, layout):
        arrays = {key: _turned(_array(a), slot.order, layout) for key, (_, a) in group.items()}
        for key, a in arrays.items():
            want = slot.tensors[key].shape if slot.tensors else (slot.features,)
            if tuple(a.shape) != want:
                turned = f"turned to minintk's axes, for layer {slot.name}, {slot.layer!r}"
                raise ValueError(f"{group[key][0]} expects shape {want}, {turned}, got {tuple(a.shape)}")
        statistics |= {} if slot.tensors else _frozen(slot, arrays)
        pieces |= {tensor.name: arrays[key] / tensor.row.multiplier for key, tensor in slot.tensors.items()}
    if not pieces:
        raise ValueError(f"lift expects a model with weights, {spec!r} has none")
    theta = net.layout.pack(pieces)
    precision(str(theta.dtype))
    return (net._with({at: a.astype(theta.dtype) for at, a in statistics.items()}) if statistics else net), theta


def unlift(net: Network, theta: Array, state: Mapping[str, Any], *, layout: Axes = "torch") -> dict[str, Any]:
    """`state` again, in NumPy, with the weights of theta : (P,) in it: the inverse of `lift`.

    state : the dictionary that was lifted, or one with its names and nesting, `state_dict()` of a module of the same
    layers.  Where the statistics of a BatchNorm are not the state's, as after `Network.calibrate`, they are written as
    scale r and offset -r mean', of inputs with mean 0 and variance 1 - eps.

    The map is linear in theta, and takes gradients to torch's as well, where multipliers are 1.  ValueError for an
    ensemble, for a BatchNorm without frozen statistics, and as for `lift`.

    >>> state = {"weight": np.array([[1.0, 2.0, 3.0]])}
    >>> net, theta = lift(state, (3,), s.Dense(1))
    >>> unlift(net, 2 * theta, state)
    {'weight': array([[2., 4., 6.]])}
    """
    if theta.ndim != 1:
        raise ValueError(f"unlift expects theta : (P,) of one network, theta[i] of several, got {tuple(theta.shape)}")
    w, found = net.layout.unpack(theta), dict[str, Any]()
    for slot, group in _pairs(net, state, layout):
        own = {key: w[tensor.name] * tensor.row.multiplier for key, tensor in slot.tensors.items()}
        if isinstance(slot.layer, s.BatchNorm):
            if not net.statistics:
                raise ValueError(f"unlift expects the statistics of layer {slot.name}: net = net.calibrate(theta, x)")
            then = _frozen(slot, {key: _turned(_array(a), slot.order, layout) for key, (_, a) in group.items()})
            if any(np.any(to_host(a).astype(theta.dtype) != to_host(net.statistics[at])) for at, a in then.items()):
                mean, r = (net.statistics[f"{slot.name}.{key}"] for key in ("mean", "r"))
                own = {"weight": r, "bias": -r * mean, "mean": 0 * mean, "var": 0 * mean + 1 - slot.layer.eps}
                if not {"weight", "bias"} <= set(group):
                    raise ValueError(f"layer {slot.name} has statistics that only a BatchNorm with affine=True takes")
                own = {key: own[key] for key in group}
        found |= {group[key][0]: to_host(_turned(a, slot.order, layout, back=True)) for key, a in own.items()}
    return _filled(state, found)


@dataclass(frozen=True)
class Slot:
    """A layer that takes arrays, and its tensors {weight, bias}, none for a BatchNorm.

    features : the last axis of its inputs.  order : where each of them stands in torch's order; None, the same place.
    alone : whether it is scale and offset of the LayerNorm before it, without statistics.
    """

    name: str
    layer: Any
    tensors: dict[str, Tensor]
    features: int
    order: Any
    alone: bool

    def takes(self, keys: set[str]) -> bool:
        """Whether these are the arrays of the layer."""
        if self.tensors:
            return keys == set(self.tensors)
        return keys - {"bias"} == {"weight"} if self.alone else keys - {"weight", "bias"} == {"mean", "var"}


def _slots(net: Network, layout: Axes) -> list[Slot]:
    """The layers of the network that take arrays, in their order."""
    tensors, found = {tensor.name: tensor for tensor in net.layout.tensors}, list[Slot]()

    def walk(layer: s.Layer, shape: Shape, name: str, order: Any, before: s.Layer | None) -> Any:
        """The order of the features after the layer, given the one before it."""
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
            found.append(Slot(name, layer, own, shape[-1], order, isinstance(before, s.LayerNorm)))
            order = None if own else order
        elif layer.weights:
            raise UnsupportedLayer(f"{name}: {type(layer).__name__} has arrays that lift does not know")
        return order

    if walk(net.spec, net.input_shape, "", None, None) is not None:
        raise ValueError(f"{net!r} ends with features in torch's order (C, H, W): lift expects a Dense after Flatten")
    return found


Group = dict[str, tuple[str, Any]]
"""The arrays of one layer, {weight, bias, mean, var: (name, array)}."""


def _pairs(net: Network, state: Mapping[str, Any], layout: Axes) -> Iterator[tuple[Slot, Group]]:
    """Each slot with its arrays, the next of its kind in the dictionary."""
    if layout not in ("torch", "flax"):
        raise ValueError(f"layout expects 'torch' or 'flax', got {layout!r}")
    groups = _groups(state)
    for slot in _slots(net, layout):
        axes = {at: group["weight"][1].ndim if "weight" in group else 1 for at, group in groups.items()}
        at = next((at for at in groups if axes[at] == KINDS[type(slot.layer)]), None)
        group = {} if at is None else groups.pop(at)
        if not slot.takes(set(group)):
            want = sorted(slot.tensors) or (["weight"] if slot.alone else ["mean", "var"])
            raise ValueError(f"layer {slot.name}, {slot.layer!r}, expects {want}, got {group and {at: sorted(group)}}")
        yield slot, group
    if groups:
        raise ValueError(f"arrays are left over, which no layer of {net!r} takes: {list(groups)}")


def _groups(state: Mapping[str, Any]) -> dict[str, Group]:
    """{layer: its arrays}, in the order of the dictionary; ValueError where that is not the order of the network."""
    groups, last = dict[str, Group](), dict[str, list[int]]()
    for name, a in _flat(state):
        parts = [part for part in name.split(".") if part not in ("params", "batch_stats")]
        layer, key = ".".join(parts[:-1]), parts[-1]
        if key == "num_batches_tracked":
            continue
        if key not in KEYS:
            raise ValueError(f"lift knows arrays {list(KEYS)} of Dense, convolutions and normalisations, got {name}")
        if layer not in groups:
            stem, numbers = re.sub(r"\d+", "#", layer), [int(digits) for digits in re.findall(r"\d+", layer)]
            if numbers < last.get(stem, []):
                raise ValueError(f"{layer} comes late: sort the dictionary into the order of the network, by numbers")
            last[stem] = numbers
        groups.setdefault(layer, {})[KEYS[key]] = name, a
    return groups


def _flat(state: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(name, array), names of nested dictionaries joined by dots."""
    for key, a in state.items():
        yield from _flat(a, f"{path}{key}.") if isinstance(a, Mapping) else ((f"{path}{key}", a),)


def _filled(state: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The dictionary again, in NumPy, with the arrays in `new`."""
    return {
        key: _filled(a, new, f"{path}{key}.") if isinstance(a, Mapping) else new.get(f"{path}{key}", to_host(_array(a)))
        for key, a in state.items()
    }


# ----------------------------------------------------------------------------------------------- arrays


def _array(a: Any) -> Array:
    """An array of NumPy or CuPy, from torch's and others."""
    if hasattr(a, "detach"):
        return np.asarray(a.detach().cpu().numpy())
    try:
        array_namespace(a)
    except TypeError:
        return np.asarray(a)
    return a


def _turned(a: Array, order: Any, layout: Axes, *, back: bool = False) -> Array:
    """(out, in, *window) as (*window, in, out), with features in the order (H, W, C); or `back`."""
    xp, turn = array_namespace(a), layout == "torch" and a.ndim > 1
    if turn and not back:
        a = xp.moveaxis(a, (0, 1), (-1, -2))
    if order is not None and (a.ndim > 1 or tuple(a.shape) == order.shape):
        a = xp.take(a, xp.asarray(np.argsort(order) if back else order), axis=0)
    return xp.moveaxis(a, (-1, -2), (0, 1)) if turn and back else a


def _frozen(slot: Slot, arrays: dict[str, Array]) -> dict[str, Array]:
    """mean' = mean - beta / r and r = gamma / sqrt(variance + eps)."""
    some = next(iter(arrays.values()))
    xp, zero = array_namespace(some), 0 * some
    r, beta = arrays.get("weight", zero + 1), arrays.get("bias", zero)
    if "var" in arrays:
        r = r / xp.sqrt(arrays["var"] + slot.layer.eps)
    if bool(xp.any((r == 0) & (beta != 0))):
        raise ValueError(f"layer {slot.name} has features of scale 0 and an offset: no mean and scale give that")
    return {f"{slot.name}.mean": arrays.get("mean", zero) - beta / xp.where(r == 0, zero + 1, r), f"{slot.name}.r": r}


# ----------------------------------------------------------------------------------------------- torch.nn


def _size(value: Any) -> Any:
    """A number where a tuple has one number alone."""
    return value[0] if isinstance(value, (tuple, list)) and len(set(value)) == 1 else value


def _steps(m: Any) -> dict[str, Any]:
    return {"stride": _size(m.stride), "padding": _size(m.padding)}


def _bias(m: Any) -> float:
    return 0.0 if m.bias is None else 1.0


def _average(m: Any) -> s.Layer:
    return s.AvgPool(_size(m.kernel_size), **_steps(m), normalize_edges=not m.count_include_pad)


MODULES: dict[str, Callable[[Any], s.Layer]] = {
    "Linear": lambda m: s.Dense(m.out_features, b_std=_bias(m)),
    "Conv1d": lambda m: s.Conv1d(m.out_channels, _size(m.kernel_size), **_steps(m), b_std=_bias(m)),
    "Conv2d": lambda m: s.Conv2d(m.out_channels, _size(m.kernel_size), **_steps(m), b_std=_bias(m)),
    **dict.fromkeys(("AvgPool1d", "AvgPool2d"), _average),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), lambda m: s.MaxPool(_size(m.kernel_size), **_steps(m))),
    **dict.fromkeys(("AdaptiveAvgPool1d", "AdaptiveAvgPool2d"), lambda m: s.GlobalAvgPool()),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d"), lambda m: s.BatchNorm(eps=m.eps)),
    "LayerNorm": lambda m: s.Sequential(s.LayerNorm(eps=m.eps), *[s.BatchNorm()] * m.elementwise_affine),
    **dict.fromkeys(("Identity", "Dropout", "Dropout1d", "Dropout2d"), lambda m: s.Identity()),
    "Softplus": lambda m: s.Softplus(m.beta),
    "LeakyReLU": lambda m: s.LeakyReLU(m.negative_slope),
    "Flatten": lambda m: s.Flatten(),
    "ReLU": lambda m: s.ReLU(),
    "GELU": lambda m: s.GELU(),
    "SiLU": lambda m: s.Swish(),
    "Tanh": lambda m: s.Tanh(),
    "Sigmoid": lambda m: s.Sigmoid(),
}
"""Modules of torch.nn as layers.  torch's Softplus is the identity above 20 / beta, 2e-9 / beta from the function."""

ONLY = {
    "groups": 1, "dilation": 1, "padding_mode": "zeros", "ceil_mode": False, "return_indices": False,
    "divisor_override": None, "output_size": 1, "start_dim": 1, "end_dim": -1,
    "approximate": "none", "track_running_stats": True,
}  # fmt: skip
"""Options of modules, with the value that a layer here has."""


def _translated(module: Any, shape: Shape, path: str, seen: set[int]) -> s.Layer:
    """A torch.nn module as a layer, for examples of this shape; `path` is its place in the model."""
    mro: tuple[Any, ...] = type(module).__mro__
    known = (k for k in mro if k.__module__.startswith("torch.nn.modules") and k.__name__ in ("Sequential", *MODULES))
    kind, where = next(known, None), f"{type(module).__name__} at {path or 'the top'!r}"
    if kind is None or type(module).forward is not kind.forward:
        raise UnsupportedLayer(f"{where} is none of {sorted(MODULES)}: give spec=..., and lift takes arrays in order")
    if kind.__name__ == "Sequential":
        layers = list[s.Layer]()
        for name, child in module.named_children():
            layers.append(_translated(child, shape, f"{path}.{name}" if path else name, seen))
            shape = out_shape(layers[-1], shape)
        return s.Sequential(*layers)
    for option, value in ONLY.items():
        if _size(getattr(module, option, value)) != value:
            raise UnsupportedLayer(f"{where} has {option}={getattr(module, option)!r}; here it is {value!r} alone")
    if kind.__name__ == "LayerNorm" and tuple(module.normalized_shape) != shape:
        raise UnsupportedLayer(f"{where} is over {module.normalized_shape}; here it is over the last axis of {shape}")
    if id(module) in seen and any(True for _ in module.parameters()):
        raise UnsupportedLayer(f"{where} stands at two places with the same weights; here layers have their own")
    seen.add(id(module))
    return MODULES[kind.__name__](module)
