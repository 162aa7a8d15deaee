"""The student's process: it loads one submission, calls its functions, and holds nothing else, no answer above all.

The file runs as a script, `python worker.py`, and so imports the standard library and NumPy alone.  Messages pass in
both directions as npz archives, each behind its length; `pack` and `unpack` are all that either side knows of the
other. `Module` is what is done with a submission; in a browser, where no process can start, the grader uses it
directly.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import io
import json
import os
import random
import struct
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

LARGEST = 2**28
"""Bytes of the largest message."""

# ------------------------------------------------------------------------------------------ values as bytes


def pack(value: Any) -> bytes:
    """The value as an npz archive: arrays, numbers, strings, None, and tuples, lists and dicts of them.

    TypeError for anything else: a function, an object of the student's, an array of objects.

    >>> unpack(pack({"x": np.ones(2), "size": (3, "same", None)}))
    {'x': array([1., 1.]), 'size': (3, 'same', None)}
    """
    arrays: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_tree(value, arrays)).encode()
    buffer = io.BytesIO()
    members = {f"a{i}": a for i, a in enumerate(arrays)}
    np.savez(buffer, allow_pickle=False, tree=np.frombuffer(tree, np.uint8), **members)
    return buffer.getvalue()


def check(value: Any) -> None:
    """TypeError unless `pack` takes the value."""
    _tree(value, [])


def _tree(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """The value as JSON; an array is ["array", its number]."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic | complex):
        array = np.asarray(value)
        if array.dtype.kind not in "biufcU":
            raise TypeError(f"an array of {array.dtype} cannot be passed on: numbers are expected")
        arrays.append(array)
        return ["array" if isinstance(value, np.ndarray) else "number", len(arrays) - 1]
    if isinstance(value, tuple | list):
        return ["tuple" if isinstance(value, tuple) else "list", [_tree(part, arrays) for part in value]]
    if isinstance(value, Mapping):
        return ["dict", [[_tree(key, arrays), _tree(part, arrays)] for key, part in value.items()]]
    raise TypeError(f"{type(value).__name__} cannot be passed on: arrays, numbers, strings, tuples and dicts can")


def unpack(data: bytes) -> Any:
    """The value in an archive that `pack` wrote, from a process that is not trusted: ValueError for any other bytes.

    Nothing is unpickled, nothing decompressed, and no array is made before its size is known to be that of its bytes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename.removesuffix(".npy"): _member(archive, info) for info in archive.infolist()}
        return _value(json.loads(members["tree"].tobytes()), members)
    except Exception as error:  # zipfile and NumPy have many ways to refuse bytes
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"not a message: {info.filename} is compressed")
    raw = archive.read(info)
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.kind not in "biufcU" or prod(shape) * dtype.itemsize != len(raw) - stream.tell():
        raise ValueError(f"not a message: {info.filename} is {dtype} of shape {shape} in {len(raw)} bytes")
    flat = np.frombuffer(raw, dtype, prod(shape), stream.tell()).copy()
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _value(tree: Any, members: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, inside = tree
    if kind in ("array", "number"):
        array = members[f"a{inside}"]
        return array if kind == "array" else array[()]
    if kind == "dict":
        return {_value(key, members): _value(part, members) for key, part in inside}
    parts = [_value(part, members) for part in inside]
    return tuple(parts) if kind == "tuple" else parts


def send(stream: BinaryIO, value: Any) -> None:
    """Write one message."""
    data = pack(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next message; EOFError where the other side has closed, ValueError for a message too large or malformed."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError("the other side has closed")
    (size,) = struct.unpack("<Q", head)
    if size > LARGEST:
        raise ValueError(f"a message of {size} bytes; at most {LARGEST} are accepted")
    return unpack(stream.read(size))


# ------------------------------------------------------------------------------------------- one submission


class Module:
    """A submission as a module of its own; its functions by name."""

    def __init__(self, path: str | Path, variant: Mapping[str, Any]) -> None:
        """Run the file; `from variant import NAME` in it gives the assignment's variant.  Raises what it raises."""
        self.path = str(path)
        here, before = ModuleType("variant"), sys.modules.get("variant")
        vars(here).update(variant)
        spec = importlib.util.spec_from_file_location("submission", self.path)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["variant"] = here
        try:
            spec.loader.exec_module(self.module)
        finally:
            del sys.modules["variant"]
            if before is not None:
                sys.modules["variant"] = before

    def function(self, name: str) -> Callable[..., Any]:
        """The submission's function; AttributeError if there is none."""
        found = getattr(self.module, name, None)
        if not callable(found):
            raise AttributeError(f"there is no function {name}" if found is None else f"{name} is not a function")
        return found

    def parameters(self, name: str) -> list[str]:
        """The names of its arguments."""
        return list(inspect.signature(self.function(name)).parameters)

    def call(self, name: str, args: Sequence[Any]) -> tuple[Any, list[int]]:
        """(its value, positions of the arguments that it has changed in place)."""
        return watched(self.function(name), args)

    def pull(self, forward: str, backward: str, u: Any, args: Sequence[Any]) -> tuple[Any, list[int]]:
        """(the gradients of <u, forward(*args)>, positions of the arguments changed in place, u being number -1)."""
        return pull(self.function(forward), self.function(backward), u, args)


def fault(error: BaseException, path: str) -> str:
    """The exception in one line, with the line of the submission where it arose."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    where = f" (line {frames[-1].lineno}, in {frames[-1].name}: {frames[-1].line})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def watched(function: Callable[..., Any], args: Sequence[Any], watch: Sequence[Any] = ()) -> tuple[Any, list[int]]:
    """(function(*args), positions of the arrays in `watch`, its arguments by default, that the call has changed)."""
    watch = watch or args
    before = [np.array(a) if isinstance(a, np.ndarray) else None for a in watch]
    value = function(*args)
    pairs = enumerate(zip(before, watch, strict=True))
    return value, [i for i, (b, a) in pairs if b is not None and b.tobytes() != a.tobytes()]


def split(value: Any) -> tuple[Any, bool, Any]:
    """forward's value as (output, whether there is a cache, the cache)."""
    if isinstance(value, tuple) and len(value) == 2:
        return value[0], True, value[1]
    return value, False, None


def pull(
    forward: Callable[..., Any], backward: Callable[..., Any], u: Any, args: Sequence[Any]
) -> tuple[Any, list[int]]:
    """backward(u, *args), or backward(u, cache) where forward(*args) returns (output, cache)."""
    _, cached, cache = split(forward(*args))
    value, changed = watched(backward, (u, cache) if cached else (u, *args), (u, *args))
    return value, [i - 1 for i in changed]


# ------------------------------------------------------------------------------------------------ the guard

CALLS = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill", "os.killpg",
         "os.startfile", "pty.spawn", "gc.get_objects", "gc.get_referrers")  # fmt: skip
ROOMS = ("subprocess", "socket", "ctypes", "shutil", "ftplib", "urllib", "winreg", "mmap")


def guard(refused: Iterable[str], allowed: Iterable[str], roots: Iterable[str]) -> None:
    """From here on no import of `refused` modules but those `allowed`, no file below `roots`, and no new process.

    An audit hook, which Python offers no way to remove, and a finder for the ways of importing that it does not see.
    This keeps an honest mistake and a cheap trick out; it is no sandbox against C code: see the course's page.
    """
    importlib.import_module("ctypes")  # NumPy loads it late, and may not any more after this
    no, yes = tuple(refused), tuple(allowed)
    closed = tuple(os.path.realpath(root) for root in roots)

    def below(name: str, tops: tuple[str, ...]) -> bool:
        return any(name == top or name.startswith(f"{top}.") for top in tops)

    def check_name(name: str) -> None:
        if below(name, no) and not below(name, yes):
            raise ImportError(f"{name} may not be imported in this assignment")

    def check_path(path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            full = os.path.realpath(os.fsdecode(path))
            if any(full == root or full.startswith(root.rstrip(os.sep) + os.sep) for root in closed):
                raise PermissionError(f"{os.path.basename(full)} may not be read by a submission")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "import":
            check_name(str(args[0]))
        elif event in ("open", "os.listdir", "os.scandir", "os.chdir", "os.link", "os.symlink", "os.rename"):
            check_path(args[0])
        elif event in CALLS or event.partition(".")[0] in ROOMS:
            raise PermissionError(f"{event} is not allowed in a submission")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            check_name(name)

    sys.meta_path.insert(0, Finder)
    sys.addaudithook(hook)


def limit(memory: int, seconds: int) -> None:
    """Bounds on memory (bytes), processor time and files, where the system has them (not on Windows)."""
    try:
        import resource
    except ImportError:
        return
    for name, most in (("AS", memory), ("CPU", seconds), ("FSIZE", 2**26), ("CORE", 0)):
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


# --------------------------------------------------------------------------------------------- its main loop


def answer(module: Module, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to one request: {"value", "changed"} or {"error"}."""
    try:
        if asked["do"] == "parameters":
            return {"value": module.parameters(asked["name"]), "changed": []}
        if asked["do"] == "call":
            value, changed = module.call(asked["name"], asked["args"])
            value = split(value)[0] if asked["output"] else value
        else:
            value, changed = module.pull(asked["forward"], asked["backward"], asked["u"], asked["args"])
        check(value)
    except (Exception, SystemExit) as error:  # and no KeyboardInterrupt: in the grader's process it is the user's
        return {"error": fault(error, module.path)}
    return {"value": value, "changed": changed}


def main() -> None:
    """Answer requests on stdin until it closes; what the submission prints goes nowhere."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    first = receive(requests)
    limit(first["memory"], first["seconds"])
    guard(first["refused"], first["allowed"], first["roots"])
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (a submission may use the old generator; it shall get the same numbers again)
    try:
        module = Module(first["path"], first["variant"])
    except (Exception, SystemExit) as error:
        send(replies, {"error": fault(error, first["path"])})
        return
    send(replies, {"value": None, "changed": []})
    while True:
        try:
            asked = receive(requests)
        except EOFError:
            return
        send(replies, answer(module, asked))


if __name__ == "__main__":
    main()
