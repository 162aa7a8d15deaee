"""Build small valid files of several kinds that the library reads, and specify the reader of each kind."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import minintk as mn
from minintk.datasets.published import _batch as read_batch
from minintk.datasets.published import read_idx
from minintk.files.reading import CHUNK, EXPANSION, map_npy, read_json
from minintk.training import checkpoints

REMEDY = "make it again"


def idx(array: np.ndarray[Any, Any], kind: int = 8) -> bytes:
    """Return the bytes of an IDX file."""
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def batch(images: np.ndarray[Any, Any], labels: list[int], protocol: int = 4) -> bytes:
    """Return the bytes of a CIFAR-10 batch, pickled by this version of Python."""
    said = {b"batch_label": b"a batch", b"labels": labels, b"data": images, b"filenames": [b"a.png"] * len(labels)}
    return pickle.dumps(said, protocol=protocol)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(text: str) -> bytes:
    """Return the bytes of a .npy file with the header `text` and no data."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode("latin1") + b"\n"


def archive(members: dict[str, bytes], way: int = zipfile.ZIP_STORED) -> bytes:
    """Return the bytes of a zip file with correct checksums, even if the members contain invalid data."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", way) as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(name), content, way)
    return file.getvalue()


def plain(value: Any) -> Any:
    """Return a generator's state in the form that `checkpoints.save` writes."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.name}
    return value


ABOUT = {"format": 1, "step": 3, "rng": plain(np.random.Philox(0).state), "about": {"run": {}, "seconds": 0.5}}


def checkpoint(text: Any = None, members: dict[str, bytes] | None = None, way: int = zipfile.ZIP_STORED) -> bytes:
    """Return the bytes of a checkpoint.

    text : the content of `about`, as bytes, or changes to the entries of ABOUT. members : further .npy files by name.
    """
    said = text if isinstance(text, bytes) else json.dumps(ABOUT | (text or {})).encode()
    arrays = {"theta": npy(np.arange(5.0)), "memory": npy(np.ones(5)), "about": npy(np.frombuffer(said, np.uint8))}
    return archive({f"{name}.npy": content for name, content in (arrays | (members or {})).items()}, way)


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (3, 4, 5), dtype=np.uint8)
PHOTOS = RNG.integers(0, 256, (2, 3072), dtype=np.uint8)
HISTORY = json.dumps([{"step": 1, "loss": 0.5}, {"step": 2, "loss": float("inf"), "test_loss": [1.0, 2e-3]}]).encode()

Reader = Callable[[Path], Any]

KINDS: dict[str, tuple[bytes, Reader]] = {
    "idx": (idx(IMAGES), read_idx),
    "gz": (gzip.compress(idx(IMAGES), mtime=0), read_idx),
    "cifar": (batch(PHOTOS, [3, 7]), read_batch),
    "npy": (npy(np.eye(3, 4)), lambda path: np.array(map_npy(path, (3, 4), "float64", REMEDY))),
    "checkpoint": (checkpoint(), checkpoints.load),
    "history": (HISTORY, mn.History.load),
    "json": (HISTORY, lambda path: read_json(path, "a result", REMEDY)),
}
"""{kind: (content of a valid file, reader of the file)}."""


def peak(call: Callable[[], Any]) -> int:
    """Return the peak number of bytes allocated during a call, even if the call raises an error."""
    tracemalloc.start()
    try:
        call()
    finally:
        worst = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return worst


def most(size: int) -> int:
    """Return the number of bytes that a reader may allocate for a file of `size` bytes.

    The number is the limit in `minintk.files.reading` plus a constant.
    """
    return EXPANSION * size + 4 * CHUNK
