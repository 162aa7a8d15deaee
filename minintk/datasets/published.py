"""Read MNIST and CIFAR-10 from a folder (given by the caller or in $MININTK_DATA), or download them once.

A given folder must contain the files.  If no folder is given, pooch downloads the files into the user's cache and
verifies them against checksums in this package.

MNIST has 60,000 training and 10,000 test images of handwritten digits, 28 x 28 pixels each, in four IDX files.  An IDX
file consists of two zero bytes, a type (0x08: bytes), the number of axes, four bytes for the length of each axis (most
significant byte first), and the values in row-major order.

CIFAR-10 has 50,000 training and 10,000 test photographs of 32 x 32 pixels in ten classes, published as pickle files.
Loading a pickle can call arbitrary functions or fill a NumPy array with any bytes.  Instructions in these files are
therefore parsed but never executed.  The instructions contain the labels and the bytes of the array as literals.
"""

from __future__ import annotations

import os
import pickletools
import struct
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minintk.datasets.dataset import Dataset
from minintk.files.locks import Claim
from minintk.files.reading import read_array, reading, unpacked, whole_file

VARIABLE = "MININTK_DATA"


def named_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Return `folder`, else the folder in MININTK_DATA, else None.  Raise FileNotFoundError for a missing folder."""
    named = folder if folder is not None else os.environ.get(VARIABLE) or None
    if named is None:
        return None
    if not (path := Path(named).expanduser()).is_dir():
        source = "folder" if folder is not None else VARIABLE
        raise FileNotFoundError(f"{source} expects a folder with data files, but {path} is not a folder")
    return path


def find(folder: Path, inside: Sequence[str], names: Sequence[str]) -> Path:
    """Return a file with one of these names in `folder` or its subfolders `inside`, or raise FileNotFoundError."""
    places = [folder / place / name for place in ("", *inside) for name in names]
    if found := next((path for path in places if path.is_file()), None):
        return found
    remedy = f"put the file there, name another folder (folder=... or {VARIABLE}), or name none to download it"
    raise FileNotFoundError(f"no {' or '.join(names)} in {folder}, nor in its {' or '.join(inside)}: {remedy}")


def download(url: str, checksum: str, *, unpack: bool = False) -> list[Path]:
    """Download and verify the file at `url` unless it is cached.  Return its path, or those of the unpacked files."""
    try:
        import pooch
    except ImportError as error:
        need = "downloading data needs pooch: pip install 'minintk[data]'"
        raise ModuleNotFoundError(f"{need}; or name a folder that holds the files, folder=... or {VARIABLE}") from error
    home, processor = pooch.os_cache("minintk"), pooch.Untar() if unpack else None
    try:
        home.mkdir(parents=True, exist_ok=True)
        with Claim(home / "download.lock", wait=True) if os.access(home, os.W_OK) else nullcontext():
            found = pooch.retrieve(url, checksum, url.rpartition("/")[2], home, processor)
    except OSError as error:  # no network, or the server refused
        remedy = f"try again, or put the files in a folder and name it, folder=... or {VARIABLE}"
        raise ConnectionError(f"could not download {url} ({error}): {remedy}") from error
    return [Path(found)] if isinstance(found, str) else [Path(name) for name in found]


MNIST_ATTRIBUTION = "Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST Database of Handwritten Digits, CC BY-SA 3.0"
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""The checksums of the compressed files as published."""


def mnist(
    folder: str | os.PathLike[str] | None = None, split: Literal["train", "test"] = "train", *, dtype: Any = np.float64
) -> Dataset:
    """Load MNIST's training or test images, x : (60000, 784) or (10000, 784) in [0, 1].

    folder : a folder with the IDX files, gzipped or not, directly or in its subfolder ``mnist`` or ``MNIST/raw``.
        The default is $MININTK_DATA.  If neither is given, the split is downloaded (both: 11 MB; extra ``data``).
    dtype : the dtype of `x`.  The images are stored as bytes (47 MB for training), converted at each access to `x`.

    Raises FileNotFoundError if the folder lacks the files, and ValueError for damaged files.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split expects 'train' or 'test', got {split!r}")
    prefix = "train" if split == "train" else "t10k"
    images, labels = (_mnist_file(folder, f"{prefix}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        got = f"{images.shape} and {labels.shape}: the files do not belong together"
        raise ValueError(f"MNIST expects images (N, H, W) and N labels, got shapes {got}")
    N, H, W = images.shape
    flat, names = images.reshape(N, H * W), tuple("0123456789")
    return Dataset(flat, labels, names, (H, W, 1), f"mnist {split}", attribution=MNIST_ATTRIBUTION, dtype=dtype)


def _mnist_file(folder: str | os.PathLike[str] | None, name: str) -> np.ndarray[Any, Any]:
    place = named_folder(folder)
    if place is None:
        return read_idx(download(f"{MNIST_URL}{name}.gz", f"sha256:{MNIST_SHA256[name]}")[0])
    other = name.replace("-idx", ".idx")  # some programs rename the file in this way
    return read_idx(find(place, ("mnist", "MNIST/raw"), (name, f"{name}.gz", other, f"{other}.gz")))


def read_idx(path: Path) -> np.ndarray[Any, Any]:
    """Read the array of bytes in an IDX file, with or without gzip.  Raise `Unreadable` for a damaged file.

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
        ndims = start[3]
        shape = struct.unpack(f">{ndims}I", stream.read(4 * ndims))
        return read_array(stream, shape, np.dtype(np.uint8), most)


CIFAR_ATTRIBUTION = "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-py"


def cifar10(
    folder: str | os.PathLike[str] | None = None, split: Literal["train", "test"] = "train", *, dtype: Any = np.float64
) -> Dataset:
    """Load CIFAR-10's training or test images, x : (N, 3072) in [0, 1], channels last: ``.images()`` is (N, 32, 32, 3).

    folder : a folder that contains the batches, directly or in its subfolder ``cifar-10-batches-py``.  The default is
        $MININTK_DATA.  If neither is given, the files are downloaded (170 MB, requires the extra ``data``).  If some of
        the five training batches are missing, the others are read, and `name` states how many.
    dtype : the dtype of `x`.  The images are stored as bytes, converted at each access to `x`.

    Raises FileNotFoundError if the folder has no batches, and ValueError for damaged files.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split expects 'train' or 'test', got {split!r}")
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    place = named_folder(folder)
    if place is None:
        files = {path.name: path for path in download(CIFAR_URL, f"sha256:{CIFAR_SHA256}", unpack=True)}
        paths = [files[name] for name in names]
    else:
        first = find(place, (FOLDER,), names)
        paths = [first.parent / name for name in names if (first.parent / name).is_file()]
    batches = [_batch(path) for path in paths]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    name = f"cifar10 {split}" + (f" ({len(paths)} of {len(names)} batches)" if len(paths) < len(names) else "")
    flat = images.reshape(len(images), 3072)
    return Dataset(flat, labels, CLASSES, (32, 32, 3), name, attribution=CIFAR_ATTRIBUTION, dtype=dtype)


def _batch(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images : (N, 32, 32, 3) and labels : (N,) of one batch."""
    with reading(path, "a CIFAR-10 batch", "download it again") as file:
        pixels, labels = read_pickle(whole_file(file))
        if not labels or max(labels) > 9 or len(pixels) != 3072 * len(labels):
            want = "b'labels' with N numbers from 0 to 9 and b'data' with an array of N times 3072 bytes"
            got = f"{len(labels)} numbers up to {max(labels, default=0)}, and {len(pixels)} bytes"
            raise ValueError(f"expected {want}, got {got}")
        images = np.frombuffer(pixels, np.uint8).reshape(-1, 3, 32, 32)
        return images.transpose(0, 2, 3, 1), np.array(labels, dtype=np.int64)


LISTS = {"EMPTY_LIST", "MARK", "BININT1", "APPEND", "APPENDS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "FRAME"}
"""The pickle instructions that build a list of integers from 0 to 255."""


def read_pickle(content: bytes) -> tuple[bytes, list[int]]:
    """Parse (pixels, labels) of a batch from the instructions of its pickle, without executing them.

    labels : the list after b"labels".  pixels : the bytes after False in the array of dtype "u1".  Either can be empty.
    """
    pixels, labels, last, in_list, is_bytes = b"", list[int](), "", False, False
    for instruction, said, _ in pickletools.genops(content):
        text = said.encode("latin1", "replace") if isinstance(said, str) else said
        in_list = text == b"labels" or (in_list and instruction.name in LISTS)
        is_bytes |= text == b"u1"
        if in_list and isinstance(said, int) and instruction.name == "BININT1":
            labels.append(said)
        elif is_bytes and isinstance(text, bytes) and last == "NEWFALSE":
            pixels = text
        last = instruction.name
    return pixels, labels
