"""Files that survive a kill, and digests of arrays: what checkpoints, histories, sweeps and kernel stores share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from minintk.arrays import Array, to_host


def made_folder(path: str | os.PathLike[str], what: str) -> Path:
    """The folder at `path`, created if it does not exist; NotADirectoryError if a file is in the way.

    what : the name of the argument, for the message.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{what} expects a folder, its name or path, got {path!r}")
    folder = Path(path)
    for at in (folder, *folder.parents):
        if at.exists() and not at.is_dir():
            raise NotADirectoryError(f"{what} expects a folder, got {folder}: {at} is a file; give another name")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object], writer: str = "") -> None:
    """Call write(file) so that `path` holds either its old content or all of the new one, whenever the process dies.

    The content goes to a temporary file in the same folder, is flushed to disk, and is then renamed.  writer : added to
    the temporary name, so that several processes can write the same path at once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(f"{folder}/a.txt", lambda file: file.write(b"whole"))
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    path = Path(path)
    part = path.with_name(f"{path.name}{writer}.part")
    with open(part, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    if hasattr(os, "O_DIRECTORY"):  # flush the rename as well; not possible on Windows
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def digest(*arrays: Array) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of shapes, dtypes and bytes.

    >>> digest(np.zeros(3)) == digest(np.zeros(3)), digest(np.zeros(3)) == digest(np.zeros((3, 1)))
    (True, False)
    """
    total = hashlib.sha256()
    for a in map(to_host, arrays):
        total.update(f"{a.shape} {a.dtype.str}".encode())
        total.update(np.ascontiguousarray(a).data)
    return total.hexdigest()[:16]
