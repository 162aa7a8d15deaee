"""CIFAR-10: 50,000 and 10,000 photographs of 32 x 32 pixels in ten classes, from the published Python batches.

The batches are pickles, and a pickle calls whatever it names: any function, or a NumPy class, whose state it then sets
to any bytes.  Here the four names in a pickled array stand for a record of what is called with what, and every other
name is refused; an array is made of bytes whose number agrees with its shape.
"""

from __future__ import annotations

import os
import pickle
import pickletools
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minintk.datasets.dataset import Dataset
from minintk.datasets.folders import download, find, named_folder
from minintk.files.reading import reading, whole_file

ATTRIBUTION = "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-py"

NAMES = {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct"),
         ("numpy._core.multiarray", "_reconstruct")}  # fmt: skip
"""The names in a pickled array, before and since NumPy 2."""

MOST_INSTRUCTIONS, MOST_TUPLES = 10**6, 16
"""In a pickle; a batch has some 50,000, and 6."""


def cifar10(
    folder: str | os.PathLike[str] | None = None, split: Literal["train", "test"] = "train", *, dtype: Any = np.float64
) -> Dataset:
    """CIFAR-10's training or test images, x : (N, 3072) in [0, 1], channels last: ``.images()`` is (N, 32, 32, 3).

    folder : the folder with the batches, or with a folder ``cifar-10-batches-py``; by default that of MININTK_DATA;
        without either, they are downloaded (170 MB, needs the extra ``data``).  If some of the five training batches
        are missing, the others are read, and `name` says how many.
    dtype : of `x`; the images are stored as bytes until `x` is accessed.

    FileNotFoundError if the folder has no batches, ValueError for damaged or unsafe files.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split expects 'train' or 'test', got {split!r}")
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    place = named_folder(folder)
    if place is None:
        files = {path.name: path for path in download(URL, f"sha256:{SHA256}", unpack=True)}
        paths = [files[name] for name in names]
    else:
        first = find(place, (FOLDER,), names)
        paths = [first.parent / name for name in names if (first.parent / name).is_file()]
    batches = [_read(path) for path in paths]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    name = f"cifar10 {split}" + (f" ({len(paths)} of {len(names)} batches)" if len(paths) < len(names) else "")
    flat = images.reshape(len(images), 3072)
    return Dataset(flat, labels, CLASSES, (32, 32, 3), name, attribution=ATTRIBUTION, dtype=dtype)


def _read(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(images (N, 32, 32, 3), labels (N,)) of one batch."""
    with reading(path, "a CIFAR-10 batch", "download it again") as file:
        batch = read_pickle(whole_file(file))
        data, labels = (batch.get(key) for key in (b"data", b"labels")) if isinstance(batch, dict) else (None, None)
        images = _array(data)
        if images.ndim != 2 or images.shape[1] != 3072:
            raise ValueError(f"expected b'data' with bytes of shape (N, 3072), got shape {images.shape}")
        if type(labels) is not list or not all(type(c) is int and 0 <= c < 10 for c in labels):
            raise ValueError(f"expected b'labels' with {len(images)} numbers from 0 to 9, got others")
        if len(labels) != len(images):
            raise ValueError(f"expected b'labels' with {len(images)} numbers from 0 to 9, got {len(labels)}")
        return images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.array(labels, dtype=np.int64)


class Record:
    """What a pickle calls, and the state that it sets on the result."""

    def __init__(self, *arguments: Any) -> None:
        if len(arguments) > 3:  # a copy: one tuple could be called again and again
            raise ValueError(f"a call in it has {len(arguments)} arguments")
        self.arguments, self.state = arguments, ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Recorder(pickle._Unpickler):
    """Python's reader as written in Python: that in C reserves memory for a place which a pickle only names."""

    def find_class(self, module: str, name: str) -> type[Record]:
        """A record in place of the function or class."""
        if (module, name) not in NAMES:
            raise ValueError(f"it asks for {module[:80]}.{name[:80]}, which has no place here")
        return Record


def read_pickle(content: bytes) -> Any:
    """What a batch says; some Exception for other names, for damaged pickles, and for more than a batch has to say.

    Each instruction takes about 100 bytes of memory; tuples of tuples could take for ever to hash.
    """
    tuples = 0
    for number, (instruction, _, _) in enumerate(pickletools.genops(content)):
        tuples += "TUPLE" in instruction.name
        if number > MOST_INSTRUCTIONS or tuples > MOST_TUPLES:
            raise ValueError(f"it has more than {MOST_INSTRUCTIONS} instructions, or {MOST_TUPLES} tuples")
    return Recorder(BytesIO(content), encoding="bytes").load()


def _array(said: Any) -> np.ndarray[Any, Any]:
    """The array of bytes that a pickle describes as a record with a state."""
    match getattr(said, "state", None):
        case (1, tuple(shape), Record(arguments=("u1" | b"u1", *_)), fortran, bytes(content)):
            if len(shape) > 4 or not all(type(axis) is int and 0 <= axis < 2**31 for axis in shape):
                raise ValueError("the array in it has no shape")
            if prod(shape) != len(content):
                raise ValueError(f"it promises {prod(shape)} bytes of shape {shape} and holds {len(content)}")
            found = np.frombuffer(content, np.uint8)
            return found.reshape(shape[::-1]).T if fortran else found.reshape(shape)
    raise ValueError(f"expected b'data' with an array of bytes, got {type(said).__name__}")
