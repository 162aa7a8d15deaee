"""Checkpoints: the state of a run in one file, written atomically, so a kill at any moment leaves the previous one.

The file is a .npz without pickled objects: the arrays of the state, and `about`, a JSON text with everything else.

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
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.files import digest, write_atomically
from minintk.models.network import Model
from minintk.training.train import State

FORMAT = 1


def save(path: str | os.PathLike[str], state: State, about: Mapping[str, Any] | None = None) -> None:
    """Write a state to `path`, atomically, together with `about`: anything that JSON can hold."""
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
    """(state, about) as saved; arrays of the same library as `like`, NumPy by default.

    FileNotFoundError if there is no file; ValueError if the file is damaged or not a checkpoint.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        text = json.loads(arrays.pop("about").tobytes().decode(), object_hook=_restored)
        theta, step, rng, about = arrays.pop("theta"), text["step"], text["rng"], text["about"]
        known = text["format"]
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile, json and NumPy's header reader raise nearly anything on corrupted bytes
        raise ValueError(
            f"{os.fspath(path)} is damaged, or no checkpoint of minintk ({type(error).__name__}: {error}): "
            "move it away to start over, or restore an intact copy"
        ) from error
    if known != FORMAT:
        raise ValueError(f"{os.fspath(path)} is a checkpoint of format {known}, this version reads {FORMAT}")
    xp = array_namespace(theta if like is None else like)
    moved = {name: to_library(a, xp) if a.ndim else a for name, a in arrays.items()}
    anchors = {name.removeprefix("anchor "): a for name, a in moved.items() if name.startswith("anchor ")}
    return State(int(step), to_library(theta, xp), moved.get("memory"), rng, anchors), about


def _plain(value: Any) -> Any:
    """Arrays and NumPy numbers in JSON; the state of some generators contains them."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint's `about` expects what JSON can hold, got {value!r}")


def _restored(value: dict[str, Any]) -> Any:
    """The inverse of `_plain`, for every dictionary that JSON holds."""
    return np.array(value["array"], value["dtype"]) if value.keys() == {"array", "dtype"} else value


# ------------------------------------------------------------------------ which run a checkpoint belongs to


def fingerprint(model: Model, theta: Array, x: Array, y: Array, **settings: Any) -> dict[str, str]:
    """What identifies a run: its settings in words, its arrays as digests."""
    return {
        "model": _model_text(model),
        "theta0": digest(theta),
        "data": digest(x, y),
        **{name: _text(value) for name, value in settings.items()},
    }


def check_fingerprint(path: str | os.PathLike[str], mine: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """ValueError, naming what differs, unless the checkpoint at `path` belongs to this run."""
    differ = [name for name in mine if mine[name] != theirs.get(name)]
    if differ:
        changed = "; ".join(f"{name} {theirs.get(name)} there, {mine[name]} here" for name in differ)
        raise ValueError(
            f"{os.fspath(path)} belongs to another run: {changed}. Give the same arguments to resume it, or another "
            "folder to start over"
        )


def _text(value: Any) -> str:
    """The value as text: its repr, or its class if the repr is only an address; a generator by its state."""
    if isinstance(value, np.random.Generator):
        state = json.dumps(value.bit_generator.state, default=_plain, sort_keys=True)
        return f"{type(value.bit_generator).__name__} {hashlib.sha256(state.encode()).hexdigest()[:16]}"
    if isinstance(value, np.generic):
        value = value.item()
    return type(value).__qualname__ if has_default_repr(value) else repr(value)


def has_default_repr(value: Any) -> bool:
    """Whether the repr is an address, which differs in every process."""
    return getattr(type(value), "__repr__", None) is getattr(object, "__repr__", None)


def _model_text(model: Model) -> str:
    """The model and its network's spec as text, and a digest of the arrays it holds: theta_0, statistics, probes."""
    points, network = list(arrays_inside(model)), model
    while not hasattr(network, "spec") and isinstance(getattr(network, "model", None), Model):
        network = getattr(network, "model")  # noqa: B009
    spec = getattr(network, "spec", "")
    return f"{_text(model)} {spec}" + (f" at {digest(*points)}" if points else "")


def arrays_inside(thing: Any) -> Iterator[Array]:
    """The array attributes of an object, and of the models and dataclasses inside it, in the order of their names."""
    for name, value in sorted(vars(thing).items()):
        inside = value.values() if isinstance(value, dict) else (value,)
        for item in () if name.startswith("_") else inside:
            if hasattr(item, "shape") and hasattr(item, "dtype"):
                yield item
            elif isinstance(item, Model) or (is_dataclass(item) and hasattr(item, "__dict__")):
                yield from arrays_inside(item)
