"""Checkpoints: the state of a run in one file, written so that it is there as a whole or not at all.

The file is a .npz without pickled objects: the arrays of the state, and `about`, a JSON text with the rest.  It is
written next to its place, flushed to the disk, and renamed, so that a kill at any moment leaves the last whole one.

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

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.models.network import Model
from minintk.training.train import State

FORMAT = 1

DAMAGED = (
    *(ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile),
    *(TokenError, SyntaxError, NotImplementedError, RuntimeError),
)
"""What zipfile, json and NumPy's reader of headers raise over bytes that are not what was written."""


def save(path: str | os.PathLike[str], state: State, about: Mapping[str, Any] | None = None) -> None:
    """Write a state to `path`, and with it `about`, anything that JSON can hold.  Atomic: see the module."""
    arrays = {"theta": to_host(state.theta)}
    if state.memory is not None:
        arrays["memory"] = to_host(state.memory)
    arrays |= {f"anchor {name}": to_host(a) for name, a in state.anchors.items()}
    text = json.dumps(
        {"format": FORMAT, "step": state.step, "rng": state.rng, "about": dict(about or {})}, default=_plain
    )
    arrays["about"] = np.frombuffer(text.encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def load(path: str | os.PathLike[str], like: Array | None = None) -> tuple[State, dict[str, Any]]:
    """(state, about) as saved; arrays of the library of `like`, NumPy's unless given.

    FileNotFoundError where there is no file; ValueError, with what to do, for one that is damaged or no checkpoint.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        text = json.loads(arrays.pop("about").tobytes().decode())
        theta, step, rng, about = arrays.pop("theta"), text["step"], text["rng"], text["about"]
        known = text["format"]
    except FileNotFoundError:
        raise
    except (*DAMAGED, OSError) as error:
        raise ValueError(
            f"{os.fspath(path)} is damaged, or no checkpoint of minintk ({type(error).__name__}: {error}): "
            "move it away to begin anew, or put back a whole one"
        ) from error
    if known != FORMAT:
        raise ValueError(f"{os.fspath(path)} is a checkpoint of format {known}, this version reads {FORMAT}")
    xp = array_namespace(theta if like is None else like)
    moved = {name: to_library(a, xp) if a.ndim else a for name, a in arrays.items()}
    anchors = {name.removeprefix("anchor "): a for name, a in moved.items() if name.startswith("anchor ")}
    return State(int(step), to_library(theta, xp), moved.get("memory"), _restored(rng), anchors), about


def made_folder(path: str | os.PathLike[str], what: str) -> Path:
    """The folder, made where it is not there yet; NotADirectoryError where a file has its name."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{what} expects a folder, its name or path, got {path!r}")
    folder = Path(path)
    for at in (folder, *folder.parents):
        if at.exists() and not at.is_dir():
            raise NotADirectoryError(f"{what} expects a folder, got {folder}: {at} is a file; give another name")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object], writer: str = "") -> None:
    """`write` to a file that appears at `path` when it is complete and on the disk; several at once by their names."""
    path = Path(path)
    part = path.with_name(f"{path.name}{writer}.part")
    with open(part, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    if hasattr(os, "O_DIRECTORY"):  # the rename too is on the disk; not on Windows
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _plain(value: Any) -> Any:
    """Arrays and NumPy numbers for JSON: the state of some generators has them."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint's `about` expects what JSON can hold, got {value!r}")


def _restored(value: Any) -> Any:
    """What `_plain` made of arrays, back."""
    if isinstance(value, dict):
        if value.keys() == {"array", "dtype"}:
            return np.array(value["array"], value["dtype"])
        return {name: _restored(item) for name, item in value.items()}
    return value


# ---------------------------------------------------------------------------------- whose state is it?


def fingerprint(model: Model, theta: Array, x: Array, y: Array, **settings: Any) -> dict[str, str]:
    """What makes a run this run, in words and as digests of its arrays."""
    return {
        "model": _model_text(model),
        "theta0": _digest(theta),
        "data": _digest(x, y),
        **{name: _text(value) for name, value in settings.items()},
    }


def check_fingerprint(path: str | os.PathLike[str], mine: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """ValueError, with what differs, unless the checkpoint at `path` belongs to this run."""
    differ = [name for name in mine if mine[name] != theirs.get(name)]
    if differ:
        told = "; ".join(f"{name} {theirs.get(name)} there, {mine[name]} here" for name in differ)
        raise ValueError(
            f"{os.fspath(path)} belongs to another run: {told}. Give the same arguments to go on with it, or another "
            "folder to begin anew"
        )


def _text(value: Any) -> str:
    """The value in words; objects that do not say what they are, by their class; generators by their state."""
    if isinstance(value, np.random.Generator):
        state = json.dumps(value.bit_generator.state, default=_plain, sort_keys=True)
        return f"{type(value.bit_generator).__name__} {_short(hashlib.sha256(state.encode()))}"
    if isinstance(value, np.generic):
        value = value.item()
    silent = getattr(type(value), "__repr__", None) is getattr(object, "__repr__", None)
    return type(value).__qualname__ if silent else repr(value)


def _model_text(model: Model) -> str:
    """The model in words, and a digest of what it is anchored at, calibrated with, probed on."""
    points = list(_arrays(model))
    return _text(model) + (f" at {_digest(*points)}" if points else "")


def _arrays(thing: Any) -> Iterator[Array]:
    """The arrays of a model, of the models and rules inside it, in the order of their names."""
    for name, value in sorted(vars(thing).items()):
        inside = value.values() if isinstance(value, dict) else (value,)
        for item in () if name.startswith("_") else inside:
            if hasattr(item, "shape") and hasattr(item, "dtype"):
                yield item
            elif isinstance(item, Model) or (is_dataclass(item) and hasattr(item, "__dict__")):
                yield from _arrays(item)


def _digest(*arrays: Array) -> str:
    """A digest of shapes, dtypes and bytes."""
    total = hashlib.sha256()
    for a in map(to_host, arrays):
        total.update(f"{a.shape} {a.dtype.str}".encode())
        total.update(np.ascontiguousarray(a).data)
    return _short(total)


def _short(digest: Any) -> str:
    return str(digest.hexdigest()[:16])
