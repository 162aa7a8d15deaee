"""What a thing is, in words that are the same in every process: whose a checkpoint is, or the records of a sweep."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np

from minintk.arrays import Array
from minintk.files.writing import digest
from minintk.models.network import Model


def identity(value: Any) -> str:
    """A value as text, arrays and generators by their digest, functions by module, name and what is bound to them.

    Values are bound by functools.partial, by a closure, or as the attributes of an object whose repr is an address.

    >>> identity((1, np.float32(0.5), {"seed": None}, partial(max, 3)))
    "(1, 0.5, {'seed': None}, builtins:max(3))"
    """
    if _is_array(value):
        return f"array {digest(value)}" if value.ndim else repr(value.item())
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(identity, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {identity(item)}' for name, item in value.items())}}}"
    if isinstance(value, np.random.Generator):
        return f"{type(value.bit_generator).__name__} {digest(identity(value.bit_generator.state))}"
    if isinstance(value, partial):
        bound = [*map(identity, value.args), *(f"{name}={identity(item)}" for name, item in value.keywords.items())]
        return f"{identity(value.func)}({', '.join(bound)})"
    if isinstance(value, MethodType):
        return f"{identity(value.__func__)} of {identity(value.__self__)}"
    if hasattr(value, "__qualname__") or type(value).__repr__ is object.__repr__:  # type: ignore[comparison-overlap]
        return _name(value)
    text, arrays = repr(value), list(arrays_inside(value)) if hasattr(value, "__dict__") else []
    while isinstance(getattr(value, "model", None), Model):
        value = value.model
    text += f" {value.spec}" if isinstance(value, Model) and hasattr(value, "spec") else ""
    return f"{text} at {digest(*arrays)}" if arrays else text


def _name(thing: Any) -> str:
    """Module and name of a function, or of an object's class, and the plain values and arrays bound to it."""
    module = getattr(thing, "__module__", "")
    if module == "__main__":  # the same thing, whether its file is run or imported
        main = sys.modules["__main__"]
        module = getattr(main.__spec__, "name", None) or Path(getattr(main, "__file__", module)).stem
    if hasattr(thing, "__qualname__"):
        cells = getattr(thing, "__closure__", None) or ()
        values = {name: cell.cell_contents for name, cell in zip(thing.__code__.co_freevars, cells)} if cells else {}
    else:
        values, thing = getattr(thing, "__dict__", {}), type(thing)
    plain = (bool, int, float, str, tuple, type(None))
    bound = [f"{name}={identity(a)}" for name, a in values.items() if isinstance(a, plain) or _is_array(a)]
    return f"{module}:{thing.__qualname__}" + (f"({', '.join(bound)})" if bound else "")


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "ndim")


def arrays_inside(thing: Any) -> Iterator[Array]:
    """The array attributes of an object, and of the models and dataclasses inside it, in the order of their names."""
    for name, value in sorted(vars(thing).items()):
        inside = value.values() if isinstance(value, dict) else (value,)
        for item in () if name.startswith("_") else inside:
            if _is_array(item):
                yield item
            elif isinstance(item, Model) or (is_dataclass(item) and hasattr(item, "__dict__")):
                yield from arrays_inside(item)
