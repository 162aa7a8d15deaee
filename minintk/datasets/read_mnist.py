"""MNIST: 60,000 and 10,000 handwritten digits of 28 x 28 pixels, from the four files in the IDX format.

IDX: two zero bytes, a type (0x08: bytes), the number of axes, four bytes for the length of each (most significant byte
first), then the values, last axis fastest.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minintk.datasets.dataset import Dataset
from minintk.datasets.folders import download, find, named_folder
from minintk.files.reading import exactly, read_array, reading, unpacked

ATTRIBUTION = "Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST Database of Handwritten Digits, CC BY-SA 3.0"
URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""Checksums of the compressed files as published."""


def mnist(
    folder: str | os.PathLike[str] | None = None, split: Literal["train", "test"] = "train", *, dtype: Any = np.float64
) -> Dataset:
    """MNIST's training or test images, x : (60000, 784) or (10000, 784) in [0, 1].

    folder : the folder with the IDX files, compressed or not, or with a folder ``mnist``; by default that of
        MININTK_DATA; without either, they are downloaded (11 MB, needs the extra ``data``).
    dtype : of `x`; the images are stored as bytes, 47 MB for all of them, until `x` is accessed.

    FileNotFoundError if the folder lacks the files, ValueError for damaged ones.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split expects 'train' or 'test', got {split!r}")
    prefix = "train" if split == "train" else "t10k"
    images, labels = (_read(folder, f"{prefix}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"MNIST expects images (N, H, W) and N labels, got shapes {images.shape} and {labels.shape}: "
            "the files do not belong together"
        )
    N, H, W = images.shape
    flat, names = images.reshape(N, H * W), tuple("0123456789")
    return Dataset(flat, labels, names, (H, W, 1), f"mnist {split}", attribution=ATTRIBUTION, dtype=dtype)


def _read(folder: str | os.PathLike[str] | None, name: str) -> np.ndarray[Any, Any]:
    place = named_folder(folder)
    if place is None:
        return read_idx(download(f"{URL}{name}.gz", f"sha256:{SHA256[name]}")[0])
    other = name.replace("-idx", ".idx")  # as some programs unpack it
    return read_idx(find(place, ("mnist", "MNIST/raw"), (name, f"{name}.gz", other, f"{other}.gz")))


def read_idx(path: Path) -> np.ndarray[Any, Any]:
    """The array of bytes in an IDX file, with or without gzip compression; `Unreadable` for a damaged file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "two-numbers")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    ...     read_idx(path)
    array([7, 9], dtype=uint8)
    """
    with reading(path, "an IDX file", "download it again") as file:
        stream, most = unpacked(file)
        start = stream.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08":
            raise ValueError(f"expected bytes, beginning 00 00 08, but it begins {start.hex(' ') or 'nowhere'}")
        axes = start[3]
        shape = struct.unpack(f">{axes}I", exactly(stream, 4 * axes))
        return read_array(stream, shape, np.dtype(np.uint8), most)
