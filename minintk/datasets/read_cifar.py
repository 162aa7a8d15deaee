"""CIFAR-10: 50,000 and 10,000 photographs of 32 x 32 pixels in ten classes, from the published Python batches.

The batches are pickles.  A pickle can call any function, so they are read by an unpickler that knows only the three
names that an array of bytes needs and refuses all others.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minintk.datasets.dataset import Dataset
from minintk.datasets.folders import download, find, named_folder

ATTRIBUTION = "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-py"

_reconstruct = np.empty(0).__reduce__()[0]  # the function by which NumPy's pickles create an array
_ADMITTED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
}


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler for numbers, strings, containers and arrays only, which cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 batch does")
        return _ADMITTED[module, name]


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
    images = np.concatenate([images for images, _ in batches])
    return Dataset(
        images.reshape(len(images), 3072),
        np.concatenate([labels for _, labels in batches]),
        classes=CLASSES,
        image_shape=(32, 32, 3),
        name=f"cifar10 {split}" + (f" ({len(paths)} of {len(names)} batches)" if len(paths) < len(names) else ""),
        attribution=ATTRIBUTION,
        dtype=dtype,
    )


def _read(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(images (N, 32, 32, 3), labels (N,)) of one batch."""
    try:
        with path.open("rb") as file:
            batch = _ArrayUnpickler(file, encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(f"{path} is no CIFAR-10 batch, or a damaged one ({error}): download it again") from error
    data, labels = (batch.get(key) for key in (b"data", b"labels")) if isinstance(batch, dict) else (None, None)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise ValueError(f"{path} expects b'data' with bytes of shape (N, 3072), got {_describe(data)}")
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(c) is int and 0 <= c < 10 for c in labels)
    ):
        raise ValueError(f"{path} expects b'labels' with {len(data)} numbers from 0 to 9, got {_describe(labels)}")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.array(labels, dtype=np.int64)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a list of {len(value)}" if isinstance(value, list) else f"{type(value).__name__}"
