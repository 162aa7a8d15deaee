"""Check the arguments of layers at construction.  A ValueError names the layer and the argument."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from minintk.validate import number, whole

Size = int | tuple[int, int]
SIZES = 1e-100, 1e100
"""The smallest and largest |argument| of an activation, unless it is 0.  Products of two arguments fit into float64."""

Padding = Literal["same", "valid", "circular"] | int | tuple[int, int] | tuple[tuple[int, int], ...]


def check_arguments(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError for arguments that a layer does not accept.  The message lists the accepted arguments."""
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]
    try:
        if args or kwargs:  # copying and unpickling pass no arguments
            signature.bind(None, *args, **kwargs)
    except TypeError as error:
        names = [p for p in signature.parameters.values() if p.name != "self"]
        takes, hint = str(signature.replace(parameters=[p.replace(annotation=p.empty) for p in names])), ""
        if "width" in signature.parameters and "too many" in str(error):
            hint = ": the number of outputs; that of inputs follows from the data"
        elif "bias" in kwargs and "b_std" in signature.parameters:
            hint = ": a layer has a bias where b_std > 0, such as b_std=0.1"
        raise TypeError(f"{kind.__name__} takes {takes.partition(' -> ')[0]}: {error}{hint}") from None


def check_numbers(layer: Any) -> None:
    """Convert each argument a to a Python float.  Raise ValueError unless a is 0 or |a| is within `SIZES`."""
    for name, value in vars(layer).items():
        kind, (low, high) = type(layer).__name__, SIZES
        found = number(f"{kind}({name}=...)", value, negative=True)
        if found and not low <= abs(found) <= high:
            raise ValueError(f"{kind}({name}=...) expects 0, or a number of size {low:g} to {high:g}, got {value!r}")
        object.__setattr__(layer, name, found)


def check_sizes(layer: str, name: str, value: Size, axes: tuple[int, ...]) -> None:
    """Raise an error unless `value` is a whole number >= 1 or, if two axes are possible, a pair of such numbers."""
    if isinstance(value, tuple) and 2 in axes and len(value) != 2:
        raise ValueError(f"{layer}({name}=...) expects a whole number >= 1 or a pair of them, got {value!r}")
    for item in value if isinstance(value, tuple) and 2 in axes else (value,):
        whole(f"{layer}({name}=...)", item)


def check_axes(layer: str, axes: tuple[int, ...]) -> None:
    """Raise ValueError unless `axes` consists of one or more distinct negative whole numbers."""
    whole = all(hasattr(a, "__index__") and a.__index__() < 0 for a in axes)
    if not whole or not axes or len(set(axes)) < len(axes):
        raise ValueError(
            f"{layer}(axes=...) expects different axes, counted from the end so that the batch does not matter, "
            f"such as -1 or (-3, -2, -1), got {axes!r}"
        )


def check_windows(layer: Any, size: str) -> None:
    """Check the window, stride and padding of a convolution or pooling layer.  size : the window argument's name."""
    name = type(layer).__name__
    check_sizes(name, size, getattr(layer, size), layer.axes)
    if layer.stride is not None:
        check_sizes(name, "stride", layer.stride, layer.axes)
    value: Padding = layer.padding
    numbers: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    flat = [n for item in numbers for n in (item if isinstance(item, tuple) else (item,))]
    if value in ("same", "valid", "circular") or (
        flat and all(hasattr(n, "__index__") and not isinstance(n, bool) and n.__index__() >= 0 for n in flat)
    ):
        return
    raise ValueError(
        f"{name}(padding=...) expects 'same', 'valid', 'circular', or the pixels to add: one number, one for each "
        f"axis, or a pair (before, after) for each axis; got {value!r}"
    )


def check_scales(layer: str, w_std: float, b_std: float, b_init: str) -> None:
    """Raise ValueError unless w_std > 0, b_std >= 0 and b_init is a known name."""
    number(f"{layer}(w_std=...)", w_std)
    number(f"{layer}(b_std=...)", b_std, zero=True)
    if b_init not in ("normal", "zeros"):
        raise ValueError(f"{layer}(b_init=...) expects 'normal' or 'zeros', got {b_init!r}")
