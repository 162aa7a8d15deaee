"""Read files with bounded memory, without unpickling, and with one kind of error for invalid content.

A file can be damaged, truncated, of another kind, or malicious, so every reader follows these rules.

    memory    before any allocation, the size in a header is compared with the size of the file; compressed content
              can grow by at most a factor of about EXPANSION, and is unpacked only to the length in its header
    classes   arrays contain plain numbers (bool, int, uint, float), text is UTF-8 or JSON, and nothing is unpickled
    lengths   the length of a file equals that in its header, and checksums of gzip and zip are verified
    errors    `Unreadable`, a ValueError with the path, the fault and a remedy, or FileNotFoundError and
              PermissionError if the file cannot be opened

`read_json`, `read_lines` and `map_npy` accept a path.  Other formats are read inside `reading(path, what, remedy)`,
which converts the errors of Python and NumPy to `Unreadable`.  what : the kind of file, e.g. "a checkpoint".
remedy : an instruction for the user, e.g. "download it again".
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from minintk.arrays import Host

Where = str | os.PathLike[str]

EXPANSION = 64
"""Largest ratio of unpacked to compressed bytes beyond the first MiB (MNIST has 5; DEFLATE could reach 1032)."""
LARGEST_TEXT = 2**28
"""Largest text or pickle that is read, in bytes.  The Python objects need up to 25 times as much memory."""

CHUNK = 2**20


class Unreadable(ValueError):
    """Raised for a file with invalid content.  The message gives the path, the fault and a remedy."""


@contextmanager
def reading(path: Where, what: str, remedy: str) -> Iterator[IO[bytes]]:
    """Open a file, and convert errors of Python and NumPy inside the block, except TimeoutError, to `Unreadable`.

    For folders, pipes and devices, `Unreadable` is raised without opening them.  If a file cannot be opened,
    FileNotFoundError or PermissionError is raised unchanged.
    """
    path = Path(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Unreadable(f"{path} should be {what}, but is a folder or a device: {remedy}")
    with open(path, "rb") as file:
        try:
            yield file
        except Unreadable:
            raise
        except Exception as error:  # zipfile, zlib, json and NumPy raise many kinds of errors on corrupted bytes
            origin = type(error).__module__.partition(".")[0]
            if isinstance(error, TimeoutError) or not (origin == "numpy" or origin in sys.stdlib_module_names):
                raise  # from a signal handler, for example at a time limit
            plain = isinstance(error, ValueError) and not isinstance(error, UnicodeError)
            words = str(error) if plain else f"{type(error).__name__}: {error}"
            raise Unreadable(f"{path} is damaged, or not {what} ({words:.300}): {remedy}") from error


def read_json(path: Where, what: str, remedy: str) -> Any:
    """Read the value in a JSON file (UTF-8).  NaN, Infinity and -Infinity are accepted as numbers."""
    with reading(path, what, remedy) as file:
        return json.loads(whole_file(file).decode())


def read_lines(path: Where, what: str, remedy: str) -> list[str]:
    """Read the complete lines of a UTF-8 file, without an unfinished last line; invalid bytes become U+FFFD."""
    with reading(path, what, remedy) as file:
        return whole_file(file).decode(errors="replace").split("\n")[:-1]


def whole_file(file: IO[bytes]) -> bytes:
    """Read all bytes of a file.  Raise ValueError if there are more than LARGEST_TEXT."""
    size = size_of(file)
    if size > LARGEST_TEXT:
        raise ValueError(f"it holds {size} bytes, the most that is read is {LARGEST_TEXT}")
    return file.read(size)


def size_of(file: IO[bytes]) -> int:
    """Return the size of an open file on disk, in bytes."""
    return os.fstat(file.fileno()).st_size


def unpacked(file: IO[bytes]) -> tuple[IO[bytes], int]:
    """Return (stream, most): a file's content, unpacked if it is gzip, and the largest accepted length in bytes."""
    start = file.read(2)
    file.seek(0)
    if start != b"\x1f\x8b":
        return file, size_of(file)
    return gzip.GzipFile(fileobj=file), EXPANSION * size_of(file) + CHUNK  # type: ignore[return-value]


def read_array(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], most: int) -> Host:
    """Read the rest of a stream as an array.  Raise ValueError, before any allocation, if it exceeds `most` bytes.

    Also raises ValueError unless the stream ends with the array's last byte.  Reading verifies gzip and zip checksums.
    """
    wanted = prod(shape) * dtype.itemsize
    if wanted > most:
        raise ValueError(f"its header promises {dtype} of shape {shape}, {wanted} bytes, and it can hold {most}")
    found = np.empty(shape, dtype)
    content, at = found.reshape(-1).view(np.uint8), 0
    while piece := stream.read(min(CHUNK, wanted - at)):
        content[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    if at < wanted:
        raise ValueError(f"its header promises {dtype} of shape {shape}, {wanted} bytes, and it holds {at}")
    if stream.read(1):
        raise ValueError("it holds more bytes than its header promises")
    return found


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read (shape, True if in column-major order, dtype) from the header of a .npy file.

    Raises ValueError if the header is damaged, the values are not numeric, or the format's version is not 1.0.
    """
    if (version := np.lib.format.read_magic(stream)) != (1, 0):
        raise ValueError(f"expected an array in NumPy's format, version 1.0, got {'.'.join(map(str, version))}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biuf" or min(shape, default=0) < 0:
        raise ValueError(f"expected an array of plain numbers, got {dtype} of shape {shape}")
    return shape, fortran, dtype


def read_npz(file: IO[bytes]) -> dict[str, Host]:
    """Return {name: array} for a .npz file, stored or deflated.  Raise ValueError unless all arrays are numeric.

    Together, the arrays can have at most as many bytes as the file, or about EXPANSION times as many if deflated.
    """
    found: dict[str, Host] = {}
    with zipfile.ZipFile(file) as archive:
        ways = {member.compress_type for member in archive.infolist()}
        if not ways <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("its arrays are compressed in another way than by DEFLATE")
        left = size_of(file) if ways == {zipfile.ZIP_STORED} else EXPANSION * size_of(file) + CHUNK
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"it holds two arrays of the name {name!r}")
            with archive.open(member) as stream:
                shape, fortran, dtype = npy_header(stream)
                a = read_array(stream, shape[::-1] if fortran else shape, dtype, left)
            found[name] = a.T if fortran else a
            left -= a.nbytes
    return found


def map_npy(path: Where, shape: tuple[int, ...], dtype: Any, remedy: str) -> np.memmap[Any, Any]:
    """Map a .npy file as a read-only numpy.memmap.  Raise `Unreadable` unless it has this shape and dtype."""
    wanted = tuple(shape), False, np.dtype(dtype)
    with reading(path, f"an array of {wanted[2]} and shape {wanted[0]}", remedy) as file:
        found = npy_header(file)
        if found != wanted:
            raise ValueError(f"it holds {found[2]} of shape {found[0]}{', column by column' if found[1] else ''}")
        start, there = file.tell(), size_of(file)
        if there != (size := start + prod(shape) * wanted[2].itemsize):
            raise ValueError(f"it should have {size} bytes and has {there}")
        return np.memmap(path, wanted[2], "r", start, wanted[0])
