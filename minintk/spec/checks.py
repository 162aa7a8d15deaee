"""Checks of what layers are given, before anything is computed: ValueErrors that name the layer and the argument."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Literal

from minintk.validate import whole

Size = int | tuple[int, int]
Padding = Literal["same", "valid", "circular"] | int | tuple[int, int] | tuple[tuple[int, int], ...]


def check_number(layer: str, name: str, value: float, low: float = -inf, *, strict: bool = False) -> None:
    """Raise unless `value` is a finite real number >= low (> low where strict)."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or not isfinite(value):
        raise ValueError(f"{layer}({name}=...) expects a finite number, got {value!r}")
    if value < low or (strict and value == low):
        raise ValueError(f"{layer}({name}=...) expects a number {'>' if strict else '>='} {low:g}, got {value!r}")


def check_count(layer: str, name: str, value: int) -> None:
    """Raise unless `value` is a whole number >= 1."""
    whole(f"{layer}({name}=...)", value)


def check_sizes(layer: str, name: str, value: Size) -> None:
    """Raise unless `value` is a whole number >= 1 or a pair of them."""
    if isinstance(value, tuple) and len(value) != 2:
        raise ValueError(f"{layer}({name}=...) expects a whole number >= 1 or a pair of them, got {value!r}")
    for item in value if isinstance(value, tuple) else (value,):
        check_count(layer, name, item)


def check_padding(layer: str, value: Padding) -> None:
    """Raise unless `value` is a padding: its name, or pixels >= 0 added on each side."""
    numbers: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    flat = [n for item in numbers for n in (item if isinstance(item, tuple) else (item,))]
    if value in ("same", "valid", "circular") or (
        flat and all(hasattr(n, "__index__") and not isinstance(n, bool) and n.__index__() >= 0 for n in flat)
    ):
        return
    raise ValueError(
        f"{layer}(padding=...) expects 'same', 'valid', 'circular', or the pixels to add: one number, one for each "
        f"axis, or a pair (before, after) for each axis; got {value!r}"
    )


def check_scales(layer: str, w_std: float, b_std: float, b_init: str) -> None:
    """Raise unless the scales of weights and bias make sense."""
    check_number(layer, "w_std", w_std, 0.0, strict=True)
    check_number(layer, "b_std", b_std, 0.0)
    if b_init not in ("normal", "zeros"):
        raise ValueError(f"{layer}(b_init=...) expects 'normal' or 'zeros', got {b_init!r}")


def check_pool(layer: str, window: Size, stride: Size | None, padding: Padding) -> None:
    """Raise unless these describe a pooling window."""
    check_sizes(layer, "window", window)
    if stride is not None:
        check_sizes(layer, "stride", stride)
    check_padding(layer, padding)
