"""Run the student's process, which loads one submission and calls its functions.  It never receives expected results.

The file runs as a script, `python worker.py`, and imports only the standard library and NumPy.  The process enters its
sandbox (wall.py) before it reads the submission.  Messages pass in both directions as lines of JSON, with arrays in
base64.  In a browser, which cannot start processes, the grader calls `load` and `answer` directly.
"""

from __future__ import annotations

import base64
import importlib.util
import inspect
import json
import os
import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

UNWRITTEN = "is not written yet"
"""Message for a function that raises NotImplementedError, as the starter's functions do."""

LARGEST = 2**28
"""Messages of this many bytes or more are rejected."""


def pack(value: Any) -> bytes:
    """Pack arrays, numbers, strings, None, and tuples, lists and dicts of them into a JSON line, or raise TypeError."""
    return json.dumps(tree_of(value)).encode() + b"\n"


def tree_of(value: Any) -> Any:
    """Return the value in a form that JSON can store.  Arrays and containers are tagged with the name of their type."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic | complex):
        a = np.asarray(value)
        if a.dtype.kind not in "biufcU":
            raise TypeError(f"an array of {a.dtype} cannot be passed on: numbers are expected")
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return [kind, a.dtype.str, list(a.shape), base64.b64encode(a.tobytes()).decode()]
    if isinstance(value, tuple | list):
        return ["tuple" if isinstance(value, tuple) else "list", *map(tree_of, value)]
    if isinstance(value, Mapping):
        return ["dict", *([tree_of(key), tree_of(part)] for key, part in value.items())]
    raise TypeError(f"{type(value).__name__} cannot be passed on: arrays, numbers, strings, tuples and dicts can")


def unpack(data: bytes) -> Any:
    """Return the value in a line that `pack` wrote.  Raise ValueError for other bytes, as senders are untrusted."""
    try:
        return _value(json.loads(data))
    except Exception as error:  # the tree is invalid or too deep
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


def _value(tree: Any) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *inside = tree
    if kind in ("array", "number"):
        text, shape, content = inside
        if (dtype := np.dtype(text)).kind not in "biufcU":
            raise ValueError(f"an array of {dtype}")
        a = np.frombuffer(bytearray(base64.b64decode(content)), dtype).reshape(shape)
        return a if kind == "array" else a[()]
    if kind == "dict":
        return {_value(key): _value(part) for key, part in inside}
    return {"tuple": tuple, "list": list}[kind](map(_value, inside))


def send(stream: BinaryIO, value: Any) -> None:
    """Write one message to the stream."""
    stream.write(pack(value))
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read the next message; raise EOFError if the other side has closed, ValueError if it is too large or invalid."""
    line = stream.readline(LARGEST)
    if len(line) == LARGEST:
        raise ValueError(f"a message of {LARGEST} bytes or more")
    if not line.endswith(b"\n"):
        raise EOFError("the other side has closed")
    return unpack(line)


def execute(name: str, path: str | Path) -> ModuleType:
    """Run a Python file as a module with this name, and return the module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # because dataclasses look up their own module
    spec.loader.exec_module(module)
    return module


def load(path: str | Path, variant: Mapping[str, Any]) -> ModuleType | str:
    """Return the submission as a module, or the reason why it fails to load.  The submission can import `variant`."""
    if variant:
        sys.modules["variant"] = here = ModuleType("variant")
        vars(here).update(variant)
    try:
        return execute("submission", path)
    except (Exception, SystemExit) as error:
        return f"the file does not load: {fault(error, str(path))}"
    finally:
        sys.modules.pop("variant", None)


def answer(module: ModuleType, asked: Mapping[str, Any], lend: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Return the reply to one request: {"value", "changed", "warned"} or {"error"}.

    asked : the request.  Its "do" is "call" (call the function "name" with "args"), "output" (the same without a
    cache), "pull" (the gradients from the function "backward" for the cotangent "u"), or "parameters" (the names of the
    arguments).  "lent" lists functions of the module that lend(name, args, named) replaces during this call.
    """
    lent = {name: lambda *args, _name=name, **named: lend(_name, args, named) for name in asked["lent"]} if lend else {}
    kept = {name: vars(module)[name] for name in lent if name in vars(module)}
    vars(module).update(lent)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            function, args = _function(module, asked["name"]), asked["args"]
            value, changed = parameters(function), list[int]()
            if asked["do"] == "pull":
                value, changed = pull(function, _function(module, asked["backward"]), asked["u"], args)
            elif asked["do"] != "parameters":
                value, changed = (output if asked["do"] == "output" else watched)(function, args)
        tree_of(value)
    except (Exception, SystemExit) as error:  # not KeyboardInterrupt, which comes from the user in the grader's process
        return {"error": fault(error, str(module.__file__))}
    finally:
        for name in lent:
            del vars(module)[name]
        vars(module).update(kept)
    told = [f"{w.message} (line {w.lineno})" for w in said if w.filename == module.__file__]
    return {"value": value, "changed": changed, "warned": told[0] if told else ""}


def _function(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise AttributeError(f"there is no function {name}" if found is None else f"{name} is not a function")
    return found


def fault(error: BaseException, path: str) -> str:
    """Describe the exception in one line, with the submission's line that raised it and the shapes of its arrays."""
    frames = [f for f in traceback.walk_tb(error.__traceback__) if f[0].f_code.co_filename == path]
    text = re.sub(r"Input operand .* signature \S+ [(](.*)[)]$", r"\1", f"{type(error).__name__}: {error}")  # matmul's
    if not frames:
        return text
    last, names = traceback.StackSummary.extract(frames)[-1], frames[-1][0].f_locals
    if type(error) is NotImplementedError and not error.args:
        return f"{last.name} {UNWRITTEN}"
    arrays = {name: f"{name} {a.shape}" for name, a in names.items() if isinstance(a, np.ndarray)}
    shapes = [arrays[name] for name in dict.fromkeys(re.findall(r"\w+", last.line or "")) if name in arrays]
    return f"{'; '.join([text, *shapes])} (line {last.lineno}, in {last.name}: {last.line})"


def watched(function: Callable[..., Any], args: Sequence[Any], watch: Sequence[Any] = ()) -> tuple[Any, list[int]]:
    """Return (function(*args), positions of the arguments, or of the values in `watch`, that it changed).

    An argument is an array, or a list, tuple or dict of arrays, such as parameters.
    """
    watch = watch or args
    before = [_bytes(a) for a in watch]
    value = function(*args)
    return value, [i for i, (b, a) in enumerate(zip(before, watch, strict=True)) if b != _bytes(a)]


def _bytes(value: Any) -> list[bytes]:
    """Return the bytes of each array in an argument."""
    if isinstance(value, np.ndarray):
        return [value.tobytes()]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return [some for part in parts for some in _bytes(part)]


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the function's arguments, or an empty list if they are unknown."""
    with suppress(TypeError, ValueError):
        return list(inspect.signature(function).parameters)
    return []


def output(forward: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[int]]:
    """Return (forward(*args) without its cache, if there is one, positions of the arguments changed in place)."""
    value, changed = watched(forward, args)
    return (value[0] if isinstance(value, tuple) and len(value) == 2 else value), changed


def pull(
    forward: Callable[..., Any], backward: Callable[..., Any], u: Any, args: Sequence[Any]
) -> tuple[Any, list[int]]:
    """Return (gradients, changed positions) of backward(u, *args), or of backward(u, cache) if forward has a cache."""
    y = forward(*args)
    given = (u, y[1]) if isinstance(y, tuple) and len(y) == 2 else (u, *args)
    value, changed = watched(backward, given, (u, *args))
    return value, [i - 1 for i in changed]


def main() -> None:
    """Answer requests on stdin until it closes, and discard what the submission prints."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    first = receive(requests)
    wall = execute("wall", Path(__file__).with_name("wall.py"))
    send(replies, {"value": wall.close_in(first["home"], first["packages"], first["memory"], first["seconds"])})
    del sys.modules["wall"], wall
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (submissions may use np.random; seed it so that results repeat)
    module = load(first["path"], first["variant"])
    send(replies, {"error": module} if isinstance(module, str) else {"value": None})

    def lend(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        send(replies, {"needs": name, "args": args, "named": named})
        got = receive(requests)
        if "error" in got:
            raise ValueError(got["error"])
        return got["value"]

    with suppress(EOFError):
        while isinstance(module, ModuleType):
            send(replies, answer(module, receive(requests), lend))


if __name__ == "__main__":
    main()
