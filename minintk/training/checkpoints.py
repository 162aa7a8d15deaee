"""Save the state of a run in one file.  If the process is killed while saving, the previous file remains.

The file is a .npz without pickled objects.  It contains the state's arrays, and a JSON text with step, rng and `about`.

>>> import tempfile, minintk as mn
>>> net = mn.Network(mn.Dense(1), (2,))
>>> data = np.eye(2), np.array([[1.0], [-1.0]])
>>> how = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.1, momentum=0.9), "steps": 10}
>>> *_, whole = mn.train(net, np.ones(2), *data, **how)
>>> with tempfile.TemporaryDirectory() as folder:
...     for snap in mn.train(net, np.ones(2), *data, **how | {"steps": 4}):
...         save(f"{folder}/run.npz", snap.state)
...     state, _ = load(f"{folder}/run.npz")
>>> *_, resumed = mn.train(net, np.ones(2), *data, **how, resume=state)
>>> bool(np.all(resumed.theta == whole.theta))
True
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from reprlib import recursive_repr
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.files.reading import Unreadable, read_npz, reading, size_of
from minintk.files.writing import digest, write_atomically
from minintk.models.model import Model
from minintk.training.train import State

__all__ = ["load", "save"]


def identity(value: Any) -> str:
    """Describe a value as text: arrays and generators by digest, functions by module, name and bound values.

    Values can be bound by functools.partial, by a closure, or as attributes of an object with the default repr.

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


@recursive_repr()
def _name(thing: Any) -> str:
    """Return the module and name of a function or of an object's class, followed by bound values of known types."""
    module = getattr(thing, "__module__", "")
    if module == "__main__":  # the name must not depend on whether the file is run or imported
        main = sys.modules["__main__"]
        module = getattr(main.__spec__, "name", None) or Path(getattr(main, "__file__", module)).stem
    if hasattr(thing, "__qualname__"):
        cells = getattr(thing, "__closure__", None) or ()
        values = {name: cell.cell_contents for name, cell in zip(thing.__code__.co_freevars, cells)} if cells else {}
        values |= {n: d for n in ("__defaults__", "__kwdefaults__") if (d := getattr(thing, n, None))}
    else:
        values, thing = getattr(thing, "__dict__", {}), type(thing)
    known = (bool, int, float, str, tuple, list, Mapping, partial, FunctionType, Model, type, np.ufunc, type(None))
    bound = []
    for name, a in values.items():
        if is_dataclass(a) and not isinstance(a, type):
            a = {"class": type(a).__qualname__} | {f.name: getattr(a, f.name, None) for f in fields(a)}
        if isinstance(a, known) or _is_array(a):
            bound.append(f"{name}={identity(a)}")
    return f"{module}:{thing.__qualname__}" + (f"({', '.join(bound)})" if bound else "")


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "ndim")


def arrays_inside(thing: Any) -> Iterator[Array]:
    """Yield the public array attributes of an object and of the models and dataclasses inside it, sorted by name."""
    for name, value in sorted(vars(thing).items()):
        inside = value.values() if isinstance(value, dict) else (value,)
        for item in () if name.startswith("_") else inside:
            if _is_array(item):
                yield item
            elif isinstance(item, Model) or (is_dataclass(item) and hasattr(item, "__dict__")):
                yield from arrays_inside(item)


FORMAT = 1
PLAIN = ["bool", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
"""Dtypes of arrays that a checkpoint's JSON text can contain."""


def save(path: str | os.PathLike[str], state: State, about: Mapping[str, Any] | None = None) -> None:
    """Write a state to `path` atomically, with `about`, which maps names to JSON values, arrays and NumPy numbers."""
    arrays = {"theta": to_host(state.theta)}
    if state.memory is not None:
        arrays["memory"] = to_host(state.memory)
    arrays |= {f"anchor {name}": to_host(a) for name, a in state.anchors.items()}
    text = {"format": FORMAT, "step": state.step, "rng": state.rng, "about": dict(about or {})}
    arrays["about"] = np.frombuffer(json.dumps(text, default=_plain).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def load(path: str | os.PathLike[str], like: Array | None = None) -> tuple[State, dict[str, Any]]:
    """Load and return (state, about).  The arrays of the state are in the library of `like`, by default NumPy.

    Raises FileNotFoundError if the file is missing, and ValueError (`Unreadable`) if it is not a valid checkpoint.
    """
    with reading(path, "a checkpoint of minintk", "move it away to start over, or restore an intact copy") as file:
        arrays = read_npz(file)
        content = arrays.pop("about").tobytes()
        if len(content) > size_of(file):
            raise ValueError(f"its text has {len(content)} bytes, more than the file")
        text = json.loads(content.decode(), object_hook=_restored)
        if text["format"] != FORMAT:
            raise Unreadable(f"{path} is a checkpoint of format {text['format']!r:.20}, this version reads {FORMAT}")
        state, about = _state(arrays, text["step"], text["rng"]), text["about"]
        if not isinstance(about, dict):
            raise ValueError(f"its `about` is a {type(about).__name__}")
    xp = array_namespace(state.theta if like is None else like)
    moved = {name: to_library(a, xp) if a.ndim else a for name, a in state.anchors.items()}
    memory = None if state.memory is None else to_library(state.memory, xp)
    return State(state.step, to_library(state.theta, xp), memory, state.rng, moved), about


def _state(arrays: dict[str, np.ndarray[Any, Any]], step: Any, rng: Any) -> State:
    """Return the state from a file's arrays, step and rng.  Raise ValueError for contents that no run can save."""
    theta, memory = arrays.pop("theta"), arrays.pop("memory", None)
    for name, a in (("theta", theta), ("memory", theta if memory is None else memory)):
        if a.dtype not in (np.float32, np.float64) or a.dtype != theta.dtype:
            raise ValueError(f"its {name} is {a.dtype}, beside theta of {theta.dtype}")
    if strange := [name for name in arrays if not name.startswith("anchor ")]:
        raise ValueError(f"it holds an array {strange[0]!r:.40}")
    if type(step) is not int or not 0 <= step < 2**63:
        raise ValueError(f"its step is {step!r:.40}, not a whole number >= 0")
    if rng is not None:
        _check_generator(rng)
    return State(step, theta, memory, rng, {name.removeprefix("anchor "): a for name, a in arrays.items()})


GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
LARGEST = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
"""The largest values of these fields in the states of `GENERATORS`.  Other integers in states have at most 128 bits."""


def _check_generator(state: Any) -> None:
    """Raise ValueError if `state` names no generator, or names one of `GENERATORS` and is not a valid state of it."""
    if not isinstance(state, dict) or not isinstance(kind := state.get("bit_generator"), str):
        raise ValueError("its rng is not the state of a generator")
    if kind in GENERATORS and _form(state) != _form(getattr(np.random, kind)(0).state):
        raise ValueError(f"its rng is not a state of {kind}")


def _form(value: Any, name: str = "") -> Any:
    """Return the properties that all states of a generator share: names, types, shapes, True for integers in range."""
    if isinstance(value, dict):
        return {key: _form(item, key) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    if type(value) is int:
        return 0 <= value <= LARGEST.get(name, 2**128 - 1)
    return value if isinstance(value, str) else type(value)


def _plain(value: Any) -> Any:
    """Convert an array or a NumPy number, as in the states of some generators, to data that JSON can store."""
    if isinstance(value, np.ndarray) and value.dtype.name in PLAIN:
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint's `about` expects what JSON can hold, got {value!r}")


def _restored(value: dict[str, Any]) -> Any:
    """Convert a dictionary from `_plain` to an array; return others unchanged.  Raise ValueError for unknown dtypes."""
    if value.keys() != {"array", "dtype"}:
        return value
    if value["dtype"] not in PLAIN:
        raise ValueError(f"it holds an array of dtype {value['dtype']!r:.40}")
    return np.array(value["array"], value["dtype"])


def fingerprint(model: Model, theta: Array, x: Array, y: Array, **settings: Any) -> dict[str, str]:
    """Return a dictionary that identifies a run by the text of its settings and the digests of its arrays."""
    words = {name: identity(value) for name, value in {"model": model, **settings}.items()}
    return words | {"theta0": digest(theta), "data": digest(x, y)}


def check_fingerprint(path: str | os.PathLike[str], mine: Mapping[str, str], theirs: Any) -> None:
    """Raise ValueError with a list of the differences unless `theirs`, from the checkpoint, has all items of `mine`."""
    there = dict.fromkeys(mine) | (theirs if isinstance(theirs, dict) else {})
    if changed := [f"{name} {there[name]} there, {mine[name]} here" for name in mine if mine[name] != there[name]]:
        remedy = "Give the same arguments to resume it, or another folder to start over"
        raise ValueError(f"{os.fspath(path)} belongs to another run: {'; '.join(changed)}. {remedy}")
