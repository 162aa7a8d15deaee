"""The one place where files are opened to be read: bounded memory, no classes, one kind of error.

A file may be damaged, cut short, someone else's, or made to do harm, so every reader keeps one rule:

    memory    what a header promises is compared with what the file can hold before anything is allocated for it;
              what is compressed may grow by EXPANSION at most, and is unpacked no further than its header promises
    classes   arrays are plain numbers (bool, int, uint, float), text is UTF-8 or JSON; nothing is unpickled
    lengths   a file holds what its header promises, no byte less and no byte more; checksums of gzip and zip agree
    errors    `Unreadable`, a ValueError with the path, what is wrong and what to do; FileNotFoundError and
              PermissionError where there is nothing to open

`read_json`, `read_lines` and `map_npy` take a path; any other format is read inside `reading(path, what, remedy)`, from
which whatever goes wrong comes out as `Unreadable`.   what : the kind of file, "a checkpoint"; remedy : what the user
should do, "download it again".
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
"""Bytes that a byte of a compressed file may stand for (MNIST: 5; DEFLATE could reach 1032), a first MiB apart."""

LARGEST_TEXT = 2**28
"""Bytes of the largest text or pickle that is read: Python's objects take up to 25 times as much."""

CHUNK = 2**20


class Unreadable(ValueError):
    """A file does not hold what it should; says the path, what is wrong and what to do."""


@contextmanager
def reading(path: Where, what: str, remedy: str) -> Iterator[IO[bytes]]:
    """The open file; every error of the block leaves it as one `Unreadable`.

    Folders, pipes and devices are refused before they are opened.  FileNotFoundError, PermissionError where the file
    cannot be opened.
    """
    path = Path(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Unreadable(f"{path} should be {what}, but is a folder or a device: {remedy}")
    with open(path, "rb") as file:
        try:
            yield file
        except Unreadable:
            raise
        except Exception as error:  # zipfile, zlib, json and NumPy raise nearly anything on corrupted bytes
            if not raised_by_readers(error):
                raise
            plain = isinstance(error, ValueError) and not isinstance(error, UnicodeError)
            words = str(error) if plain else f"{type(error).__name__}: {error}"
            raise Unreadable(f"{path} is damaged, or not {what} ({words:.300}): {remedy}") from error


def raised_by_readers(error: Exception) -> bool:
    """True if Python or NumPy define the error; another one comes from a signal handler, a time limit for instance."""
    origin = type(error).__module__.partition(".")[0]
    known = origin == "numpy" or origin in sys.stdlib_module_names
    return known and not isinstance(error, TimeoutError)


def read_json(path: Where, what: str, remedy: str) -> Any:
    """The value in a JSON file (UTF-8); NaN, Infinity and -Infinity are numbers, as Python writes them."""
    with reading(path, what, remedy) as file:
        return json.loads(whole_file(file).decode())


def read_lines(path: Where, what: str, remedy: str) -> list[str]:
    """The lines of a text (UTF-8) that are complete: what follows the last line end was cut off in writing.

    A byte that is no text becomes U+FFFD, so that the other lines can be read.
    """
    with reading(path, what, remedy) as file:
        return whole_file(file).decode(errors="replace").split("\n")[:-1]


def whole_file(file: IO[bytes]) -> bytes:
    """All bytes of a file; ValueError above LARGEST_TEXT."""
    size = size_of(file)
    if size > LARGEST_TEXT:
        raise ValueError(f"it holds {size} bytes, the most that is read is {LARGEST_TEXT}")
    return file.read(size)


def size_of(file: IO[bytes]) -> int:
    """Bytes that an open file holds on disk."""
    return os.fstat(file.fileno()).st_size


def unpacked(file: IO[bytes]) -> tuple[IO[bytes], int]:
    """(stream, most): the content of a file that may be compressed by gzip, and a bound on its length in bytes."""
    start = file.read(2)
    file.seek(0)
    if start != b"\x1f\x8b":
        return file, size_of(file)
    return gzip.GzipFile(fileobj=file), EXPANSION * size_of(file) + CHUNK  # type: ignore[return-value]


def read_array(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], most: int) -> Host:
    """The last values as an array; ValueError for more than `most` bytes, before they are allocated, and unless the
    stream holds just these, which also compares the checksums of gzip and zip.
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
    """(shape, whether it is stored column by column, dtype) of a .npy file, whose values begin where the stream is now.

    ValueError for damaged headers, for other values than numbers, and for other versions than 1.0: NumPy writes that
    for all arrays of numbers, and its headers have 65 kB at most.
    """
    if (version := np.lib.format.read_magic(stream)) != (1, 0):
        raise ValueError(f"expected an array in NumPy's format, version 1.0, got {'.'.join(map(str, version))}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biuf" or min(shape, default=0) < 0:
        raise ValueError(f"expected an array of plain numbers, got {dtype} of shape {shape}")
    return shape, fortran, dtype


def read_npz(file: IO[bytes]) -> dict[str, Host]:
    """The arrays of a .npz file by name, stored or deflated; ValueError for all that is not an array of numbers.

    All arrays together take no more bytes than the file, EXPANSION times as many if some are deflated.
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
    """A .npy file as read-only numpy.memmap; `Unreadable` unless it holds an array of just that shape and dtype."""
    wanted = tuple(shape), False, np.dtype(dtype)
    with reading(path, f"an array of {wanted[2]} and shape {wanted[0]}", remedy) as file:
        found = npy_header(file)
        if found != wanted:
            raise ValueError(f"it holds {found[2]} of shape {found[0]}{', column by column' if found[1] else ''}")
        start, there = file.tell(), size_of(file)
        if there != (size := start + prod(shape) * wanted[2].itemsize):
            raise ValueError(f"it should have {size} bytes and has {there}")
        return np.memmap(path, wanted[2], "r", start, wanted[0])
