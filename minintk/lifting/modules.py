"""Convert modules of torch.nn to layers, by class name.  Options without a counterpart raise an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from minintk import more_layers as more
from minintk import spec as s
from minintk.spec.shapes import Shape, UnsupportedLayer


@dataclass(frozen=True)
class Piece:
    """Layers in sequence.

    places : for each layer, the path of its module, or None for an operation of a `forward`.  owners : the paths of all
    modules that have arrays, in the order of the network.
    """

    layers: list[s.Layer] = field(default_factory=list)
    places: list[str | None] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)

    @property
    def layer(self) -> s.Layer:
        """Return the layers as a single layer."""
        return self.layers[0] if len(self.layers) == 1 else s.Sequential(*self.layers) if self.layers else s.Identity()

    def at(self, path: str) -> Piece:
        """Return this piece with its layers combined into one, whose module is at `path`."""
        return replace(self, layers=[self.layer], places=[path])

    def then(self, other: Piece) -> Piece:
        """Append another piece.  An average over all pixels followed by Flatten becomes GlobalAvgPool."""
        owners = self.owners + other.owners
        if other.layers[:1] == [s.Flatten()] and self.layers[-1:] == [more.AdaptiveAvgPool(1)]:
            layers = [*self.layers[:-1], s.GlobalAvgPool(), *other.layers[1:]]
            return Piece(layers, [*self.places, *other.places[1:]], owners)
        return Piece(self.layers + other.layers, self.places + other.places, owners)


AUTODIFF = "take torch.func for its tangent kernel, or lift parts without it"
"""The remedy for a module that has no counterpart in minintk, even if a spec is given."""


def refusal(where: str, what: str, remedy: str = "replace it, or give spec=...") -> UnsupportedLayer:
    """Return an error whose message begins with the remedy."""
    return UnsupportedLayer(f"{remedy}: {where} {what}")


# ------------------------------------------------------------------------------------------------ options


def size(value: Any) -> Any:
    """Return the common entry of a tuple or list of equal numbers, and return other values unchanged."""
    return value[0] if isinstance(value, (tuple, list)) and len(set(value)) == 1 else value


def each(value: Any, axes: int) -> tuple[Any, ...]:
    """Return `value` as a tuple with one entry per axis."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def bias(m: Any) -> float:
    """Return b_std: 1 if the module has a bias, otherwise 0."""
    return 0.0 if m.bias is None else 1.0


def convolution(m: Any, shape: Shape) -> s.Layer:
    """Return a Conv1d or Conv2d, or a GroupedConv2d if there are groups or a dilation."""
    window: Any = size(m.kernel_size)
    how: Any = {"stride": size(m.stride), "padding": size(m.padding), "b_std": bias(m)}
    if m.groups != 1 or size(m.dilation) != 1:
        return more.GroupedConv2d(
            m.out_channels, size(m.kernel_size), groups=m.groups, dilation=size(m.dilation), **how
        )
    return (s.Conv2d if len(shape) == 3 else s.Conv1d)(m.out_channels, window, **how)


def paddings(m: Any, shape: Shape) -> Any:
    """Return torch's padding, plus the padding that ceil_mode adds after the image.

    With ceil_mode, the last window is kept if it begins in the image or in the padding before it.
    """
    if not m.ceil_mode:
        return size(m.padding)
    axes, found = len(shape) - 1, list[tuple[int, int]]()
    for n, k, stride, p in zip(shape, *(each(a, axes) for a in (m.kernel_size, m.stride or m.kernel_size, m.padding))):
        windows = ceil((n + 2 * p - k) / stride) + 1
        windows -= (windows - 1) * stride >= n + p
        found.append((p, max(p, (windows - 1) * stride + k - n - p)))
    return size(m.padding) if all(before == after for before, after in found) else tuple(found)


def average(m: Any, shape: Shape) -> s.Layer:
    """Make an AvgPool.  Windows that ceil_mode extends past the end of the image average over its pixels only."""
    padding, beyond = paddings(m, shape), isinstance(paddings(m, shape), tuple) and m.ceil_mode
    if beyond and m.count_include_pad and size(m.padding) != 0:
        raise refusal("AvgPool", "has ceil_mode=True, and counts its padding", "take count_include_pad=False")
    edges = beyond or not m.count_include_pad
    return s.AvgPool(size(m.kernel_size), stride=size(m.stride), padding=padding, normalize_edges=edges)


def maximum(m: Any, shape: Shape) -> s.Layer:
    """Make a MaxPool."""
    return s.MaxPool(size(m.kernel_size), stride=size(m.stride), padding=paddings(m, shape))


def adaptive(m: Any, shape: Shape) -> s.Layer:
    """Make an AdaptiveAvgPool.  A size of None means the size of the axis itself."""
    wanted = each(m.output_size, len(shape) - 1)
    return more.AdaptiveAvgPool(size(tuple(n if a is None else a for n, a in zip(shape, wanted))))


def layer_norm(m: Any, shape: Shape) -> s.Layer:
    """Return a LayerNorm for vectors, followed by a BatchNorm if there are a scale and an offset."""
    if tuple(m.normalized_shape) != shape or len(shape) != 1:
        raise refusal("LayerNorm", f"is over {m.normalized_shape}; here it is over the last axis of {shape}")
    return s.Sequential(s.LayerNorm(eps=m.eps), *[s.BatchNorm()] * m.elementwise_affine)


def dense(m: Any, shape: Shape) -> s.Layer:
    """Return a Dense; raise UnsupportedLayer unless its inputs are vectors."""
    if len(shape) != 1:
        raise refusal("Linear", f"acts on the last axis of {shape}; here it takes vectors", "put Flatten before it")
    return s.Dense(m.out_features, b_std=bias(m))


MODULES: dict[str, Callable[[Any, Shape], s.Layer]] = {
    "Linear": dense,
    **dict.fromkeys(("Conv1d", "Conv2d"), convolution),
    **dict.fromkeys(("AvgPool1d", "AvgPool2d"), average),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), maximum),
    **dict.fromkeys(("AdaptiveAvgPool1d", "AdaptiveAvgPool2d"), adaptive),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d"), lambda m, shape: s.BatchNorm(eps=m.eps)),
    "LayerNorm": layer_norm,
    "GroupNorm": lambda m, shape: s.Sequential(more.GroupNorm(m.num_groups, m.eps), *[s.BatchNorm()] * m.affine),
    **dict.fromkeys(("Identity", "Dropout", "Dropout1d", "Dropout2d"), lambda m, shape: s.Identity()),
    "Softplus": lambda m, shape: s.Softplus(m.beta),
    "LeakyReLU": lambda m, shape: s.LeakyReLU(m.negative_slope),
    "ELU": lambda m, shape: more.ELU(m.alpha),
    "Hardtanh": lambda m, shape: more.Hardtanh(m.min_val, m.max_val),
    "ReLU6": lambda m, shape: more.ReLU6(),
    "Hardswish": lambda m, shape: more.Hardswish(),
    "Hardsigmoid": lambda m, shape: more.Hardsigmoid(),
    "Flatten": lambda m, shape: s.Flatten(),
    "ReLU": lambda m, shape: s.ReLU(),
    "GELU": lambda m, shape: s.GELU() if m.approximate == "none" else more.TanhGELU(),
    "SiLU": lambda m, shape: s.Swish(),
    "Tanh": lambda m, shape: s.Tanh(),
    "Sigmoid": lambda m, shape: s.Sigmoid(),
}
"""The layers for modules of torch.nn.  torch's Softplus is x above 20 / beta, too small by up to 2e-9 / beta."""

ONLY = {
    "groups": 1, "dilation": 1, "padding_mode": "zeros", "return_indices": False, "divisor_override": None,
    "start_dim": 1, "end_dim": -1, "track_running_stats": True, "threshold": 20.0,
}  # fmt: skip
"""Options of modules, with the only value that minintk's layers support."""

TAKEN = {"Conv2d": ("groups", "dilation")}
"""Options of some modules for which any value is supported."""


def known(module: Any) -> str | None:
    """Return the name of the torch.nn class that defines the module's `forward`, or None if lift does not know it."""
    kinds: tuple[Any, ...] = type(module).__mro__
    for kind in kinds:
        if kind.__module__.startswith("torch.nn.modules") and kind.__name__ in ("Sequential", *MODULES):
            return kind.__name__ if type(module).forward is kind.forward else None
    return None


def as_layer(kind: str, m: Any, shape: Shape, where: str) -> s.Layer:
    """Return the layer for a module of type `kind`, or for an object with its options.  shape : that of one example."""
    for option, value in ONLY.items():
        if option not in TAKEN.get(kind, ()) and size(getattr(m, option, value)) != value:
            raise refusal(where, f"has {option}={getattr(m, option)!r}; here it is {value!r} alone")
    try:
        return MODULES[kind](m, shape)
    except UnsupportedLayer as error:  # this error does not contain the path of the module
        raise UnsupportedLayer(str(error).replace(f": {kind.rstrip('12d')}", f": {where}", 1)) from None


def leaf(module: Any, shape: Shape, path: str) -> Piece:
    """Convert a module without inner modules to a `Piece` of one layer.  shape : that of one example."""
    kind, where = known(module), f"{type(module).__name__} at {path or 'the top'!r}"
    if kind is None:
        raise refusal(where, "is none of the modules that lift knows, the table of docs/guide/lift.md")
    arrays = [name for name in module.state_dict() if name != "num_batches_tracked"]
    return Piece([as_layer(kind, module, shape, where)], [path], [path] if arrays else [])
