"""Networks trained elsewhere: a torch.nn model, or a dictionary of arrays, as a network and theta, and back.

Torch writes z = x A' + b, here it is z = m x W + c b: the axes of A are turned, (out, in, *window) to (*window, in,
out), and A is divided by the multiplier m of the parametrization (1 for `PyTorch`).  Images are channels-first there,
so that Flatten lists their features in the order (C, H, W), here (H, W, C): the Dense after it has its rows reordered.
Flax has the axes and the order of minintk.

Scale gamma and offset beta of a normalisation become constants, a BatchNorm with frozen statistics mean' and r:

    gamma (x - mean) / sqrt(variance + eps) + beta = r (x - mean'),   r = gamma / sqrt(variance + eps)
                                                                  mean' = mean - beta / r

No other library is imported: torch's modules are known by their names.  What the names do not say (the order of calls
in a `forward`, a detached tensor) is found by running the module beside the network, on two examples.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, Host, array_namespace, to_host
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
    module: Any, input_shape: Sequence[int], *, spec: s.Layer | None = None, layout: Axes = "torch",
    parametrization: Parametrization | None = None, check: bool = True,
) -> tuple[Network, Array]:  # fmt: skip
    """Return (net, theta): the network that computes what `module` does, with the same gradients in its weights.

    module : a torch.nn module in evaluation mode, its `state_dict()`, or a dictionary of arrays, nested or with dots in
        its names, where a layer has weight (kernel, scale, W, w), bias (b), and a BatchNorm mean and var (running_mean,
        running_var) too.  From CuPy arrays theta is on the GPU.
    input_shape : the shape of one example, channels last, (H, W, C) or (d,).
    spec : for a dictionary, and for a module with a `forward` of its own.  Each Dense, convolution and BatchNorm takes
        the next arrays of its kind, so the dictionary is in the order of the network.  A LayerNorm with scale and
        offset is `Sequential(LayerNorm(), BatchNorm())`.  A torch.nn.Sequential of known layers needs no spec.
    layout : whose axes the arrays have, "torch" (out, in, *window) or "flax" (*window, in, out).
    parametrization : `PyTorch()` unless given, where theta is the weights themselves.
    check : run a copy of the module, in float64 on the CPU, and the network on two random examples.  Their outputs, and
        the gradients of every weight, must agree to 1e-7 of the largest.  A dictionary cannot be run.

    theta has the arrays' dtype, float32 or float64.  Statistics of BatchNorms are frozen, as by `Network.calibrate`,
    and their scale and offset with them.

    UnsupportedLayer for a module that has no counterpart, with its path: hooks and weights that two layers share are
    among them.  ValueError where shapes disagree, arrays are missing or left over, a weight has requires_grad=False,
    the module is in training mode, or the check fails.

    >>> state = {"0.weight": np.ones((4, 3)), "0.bias": np.zeros(4), "2.weight": np.ones((1, 4))}
    >>> net, theta = lift(state, (3,), spec=s.Sequential(s.Dense(4, b_std=1.0), s.ReLU(), s.Dense(1)))
    >>> net(theta, np.ones((1, 3)))
    array([[12.]])
    """
    runs, state, given = hasattr(module, "state_dict"), module, spec
    if runs:
        _check_module(module)
        spec = _translated(module, tuple(input_shape), "") if spec is None else spec
        state = module.state_dict()
    if not isinstance(state, Mapping) or spec is None:
        raise TypeError(f"lift expects a torch.nn module, or a dictionary of arrays and spec=..., got {module!r:.80}")
    net = Network(spec, input_shape, PyTorch() if parametrization is None else parametrization)
    frozen = {name for name, p in module.named_parameters() if not p.requires_grad} if runs else set[str]()
    pieces, statistics = dict[str, Array](), dict[str, Array]()
    for slot, group in _pairs(net, state, layout):
        arrays = {key: _turned(_array(a), slot.order, layout) for key, (_, a) in group.items()}
        for key, a in arrays.items():
            want = slot.tensors[key].shape if slot.tensors else (slot.features,)
            if tuple(a.shape) != want:
                turned = f"turned to minintk's axes, for layer {slot.name}, {slot.layer!r}"
                raise ValueError(f"{group[key][0]} expects shape {want}, {turned}, got {tuple(a.shape)}")
        statistics |= {} if slot.tensors else _frozen(slot, arrays)
        pieces |= {tensor.name: arrays[key] / tensor.row.multiplier for key, tensor in slot.tensors.items()}
        for key, tensor in slot.tensors.items():
            if (name := group[key][0]) in frozen:
                remedy = f"requires_grad_(True), then scales={{'{tensor.name}': 0}} in mn.ntk, lr_scales in mn.train"
                raise ValueError(f"{name} has requires_grad=False, but here all weights of layers learn: {remedy}")
    if not pieces:
        raise ValueError(f"lift expects a model with weights, {spec!r} has none")
    theta = net.layout.pack(pieces)
    precision(str(theta.dtype))
    if runs and check:
        _check_run(module, net.outputs, net.input_shape, given, layout)
    return (net._with({at: a.astype(theta.dtype) for at, a in statistics.items()}) if statistics else net), theta


def unlift(net: Network, theta: Array, state: Mapping[str, Any], *, layout: Axes = "torch") -> dict[str, Any]:
    """`state` again, in NumPy, with the weights of theta : (P,) in it: the inverse of `lift`.

    state : the dictionary that was lifted, or one with its names and nesting, `state_dict()` of a module of the same
    layers.  Where the statistics of a BatchNorm are not the state's, as after `Network.calibrate`, they are written as
    scale r and offset -r mean', of inputs with mean 0 and variance 1 - eps.

    The map is linear in theta, and takes gradients to torch's as well, where multipliers are 1.  ValueError for an
    ensemble, for a BatchNorm without frozen statistics, and as for `lift`.

    >>> state = {"weight": np.array([[1.0, 2.0, 3.0]])}
    >>> net, theta = lift(state, (3,), spec=s.Dense(1))
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
    "approximate": "none", "track_running_stats": True, "threshold": 20.0,
}  # fmt: skip
"""Options of modules, with the value that a layer here has."""


def _translated(module: Any, shape: Shape, path: str) -> s.Layer:
    """A torch.nn module as a layer, for examples of this shape; `path` is its place in the model."""
    mro: tuple[Any, ...] = type(module).__mro__
    known = (k for k in mro if k.__module__.startswith("torch.nn.modules") and k.__name__ in ("Sequential", *MODULES))
    kind, where = next(known, None), f"{type(module).__name__} at {path or 'the top'!r}"
    if kind is None or type(module).forward is not kind.forward:
        raise UnsupportedLayer(f"{where} is none of {sorted(MODULES)}: give spec=..., and lift takes arrays in order")
    if kind.__name__ == "Sequential":
        layers = list[s.Layer]()
        for name, child in module.named_children():
            layers.append(_translated(child, shape, f"{path}.{name}" if path else name))
            shape = out_shape(layers[-1], shape)
        return s.Sequential(*layers)
    for option, value in ONLY.items():
        if _size(getattr(module, option, value)) != value:
            raise UnsupportedLayer(f"{where} has {option}={getattr(module, option)!r}; here it is {value!r} alone")
    if kind.__name__ == "LayerNorm" and tuple(module.normalized_shape) != shape:
        raise UnsupportedLayer(f"{where} is over {module.normalized_shape}; here it is over the last axis of {shape}")
    return MODULES[kind.__name__](module)


# ------------------------------------------------------------------------------- the module beside the network

TOLERANCE = 1e-7
"""Relative to the largest entry, in float64.  torch's Softplus is off by 2e-9 / beta; a wrong layer by far more."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _check_module(module: Any) -> None:
    """Refuse what a network has no counterpart for, by its place in the module: training, hooks, ties, other dtypes."""
    noisy = [m for m in module.modules() if m.training and (hasattr(m, "running_mean") or hasattr(m, "p"))]
    if noisy:
        raise ValueError(f"lift expects a module in evaluation mode, {noisy[0]!r} is in training: model.eval()")
    parameters, first = list(module.named_parameters(remove_duplicate=False)), dict[int, str]()
    for name, one in (*module.named_modules(), *parameters):
        if hooks := [hook[1:] for hook in HOOKS if getattr(one, hook, None)]:
            raise UnsupportedLayer(f"{name or 'the top'!r} has {hooks[0]}, and layers have none: remove them")
    for name, p in parameters:
        if first.setdefault(id(p), name) != name:
            tied = f"{name!r} is {first[id(p)]!r} again, the same array"
            raise UnsupportedLayer(f"{tied}; layers have weights of their own here: untie them, with copies")
        if str(p.dtype) not in ("torch.float32", "torch.float64"):
            raise TypeError(f"{name!r} expects float32 or float64, got {p.dtype}: module.float()")


def _check_run(module: Any, outputs: int, shape: Shape, spec: s.Layer | None, layout: Axes) -> None:
    """ValueError unless a copy of the module and its network have the same outputs and gradients, in float64."""
    x, u = (np.random.default_rng(0).standard_normal((2, *axes)) for axes in (shape, (outputs,)))
    try:
        twin = deepcopy(module).cpu().double()
        f, gradients, calls = _run(twin, np.moveaxis(x, -1, 1), u)
    except Exception as error:  # of any kind: the module's code is the caller's
        what = f"lift could not run the module on {(2, shape[-1], *shape[:-1])}, {type(error).__name__}: {error}"
        raise ValueError(f"{what}. Mend input_shape={shape}, channels last, or skip the run, check=False") from error
    net, theta = lift(twin, shape, spec=spec, layout=layout, check=False)
    own, J = net.linearize(theta, x)
    state = twin.state_dict()
    slots = [(slot, [name for name, _ in group.values()]) for slot, group in _pairs(net, state, layout)]
    if (off := _apart(to_host(own), f)) > TOLERANCE:
        place = _departs(twin, [*map(to_host, net.layer_outputs(theta, x))], slots, calls, spec is None)
        remedy = "spec has to be what forward computes, its arrays in the order of the calls"
        raise ValueError(f"lift computes other outputs than the module, by {off:.2g} of the largest{place}: {remedy}")
    pulled = J.vjp(u)
    home, size = unlift(net, pulled, state, layout=layout), float(np.abs(pulled).max())
    for name in (name for slot, names in slots if slot.tensors for name in names):
        if (off := _apart(home[name], gradients[name], size)) > TOLERANCE:
            what = f"{name!r} has another gradient than in the module, by {off:.2g} of the largest"
            raise ValueError(f"{what}: forward may not detach it, nor use it twice")


def _run(twin: Any, x: Host, u: Host) -> tuple[Host, dict[str, Host], dict[str, Host]]:
    """(f, the gradient of sum(f u) by parameter, the outputs of each inner module in the order of calls), by torch."""
    calls = dict[str, Host]()

    def note(name: str) -> Callable[..., None]:
        return lambda _module, _given, y: calls.update({name: y.detach().numpy().copy()})

    notes = [inner.register_forward_hook(note(name)) for name, inner in twin.named_modules() if name]
    like = next(iter(twin.parameters())).detach()
    with sys.modules["torch"].enable_grad():
        f = twin(like.new_tensor(x))
        (f * like.new_tensor(u)).sum().backward()
    for each in notes:
        each.remove()
    grads = {name: (0 * p if p.grad is None else p.grad).detach().numpy() for name, p in twin.named_parameters()}
    return f.detach().numpy(), grads, calls


def _apart(a: Host, b: Host, size: float | None = None) -> float:
    """max |a - b| / size, the largest |a| and |b| unless given; inf where shapes differ or b is not finite."""
    if a.shape != b.shape or not np.all(np.isfinite(b)):
        return np.inf
    size = float(max(np.abs(a).max(), np.abs(b).max())) if size is None else size
    return float(np.abs(a - b).max()) / (size or 1.0)


def _departs(
    twin: Any, layers: list[Host], slots: list[tuple[Slot, list[str]]], calls: dict[str, Host], translated: bool
) -> str:
    """Name the module where network and module part, as far as that can be told."""
    owners = [names[0].rpartition(".")[0] for _, names in slots]
    called = [name for name in calls if name in owners]
    for defined, name in zip(owners, called):
        if defined != name:
            return f"; {name!r} is called where {defined!r} is defined"
    if translated:
        places = list(enumerate(name for name, _ in twin.named_children()))
    else:
        places = [(int(slot.name), owner) for (slot, _), owner in zip(slots, owners) if slot.name.isdigit()]
    for i, name in places:
        ours, theirs = (np.sort(a.reshape((len(a), -1))) for a in (layers[i], calls.get(name, layers[i])))
        if _apart(ours, theirs) > TOLERANCE:  # sorted, as axes and the order of features differ
            return f", from {name!r} on"
    return ""
