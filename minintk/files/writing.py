"""Write files atomically and digest arrays, for checkpoints, histories, sweeps and kernel stores."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from minintk.arrays import Array, to_host


def made_folder(path: str | os.PathLike[str], what: str) -> Path:
    """Create the folder `path` if missing, and return it.  Raise NotADirectoryError, naming `what`, if it is a file."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{what} expects a folder, its name or path, got {path!r}")
    folder = Path(path)
    for at in (folder, *folder.parents):
        if os.path.lexists(at) and not at.is_dir():
            raise NotADirectoryError(f"{what} expects a folder, got {folder}: {at} is no folder; give another name")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object], need: int | None = None
) -> None:
    """Call write(file) so that `path` has its old or its complete new content, even if the process is killed.

    The content is written to NAME.RANDOM.part in the same folder, flushed to disk and renamed.  `remove_parts` removes
    files left by killed writers.  need : the content's size in bytes, if known, for the message of a disk-full error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(f"{folder}/a.txt", lambda file: file.write(b"whole"))
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.urandom(6).hex()}.part")
    try:
        with space_on_disk(path, need), open(part, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if hasattr(os, "O_DIRECTORY"):  # flush the rename as well (not possible on Windows)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_parts(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files left by killed writers of `path`.  Only the sole writer of `path` may call this."""
    path = Path(path)
    for part in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Call `remove_parts`, then write the content atomically unless it is unchanged.  The caller must hold a claim."""
    remove_parts(path)
    if not holds(path, content):
        write_atomically(path, lambda file: file.write(content))


def holds(path: Path, content: bytes) -> bool:
    """Return True if a file has exactly this content; a file of a different size is not read."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


@contextmanager
def space_on_disk(path: str | os.PathLike[str], need: int | None = None) -> Iterator[None]:
    """Add the free and, if known, the required disk space to the message of an OSError caused by a full disk."""
    try:
        yield
    except OSError as error:
        number = error.errno or errno.ENOSPC  # NumPy does not say why it could not write an array
        if number not in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None)):
            raise
        free = shutil.disk_usage(Path(path).parent).free
        size = "" if need is None else f" needs {need / 1e9:.3g} GB and"
        raise OSError(
            number,
            f"{os.strerror(number)}:{size} cannot be written, {free / 1e9:.3g} GB are free there; make room, or take "
            "another folder. What is finished is kept, and the same call goes on",
            str(path),
        ) from error


def digest(*things: Array | str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of texts and of arrays (shape, dtype and bytes).

    >>> digest(np.zeros(3)) == digest(np.zeros(3)), digest(np.zeros(3)) == digest(np.zeros((3, 1)))
    (True, False)
    """
    total = hashlib.sha256()
    for thing in things:
        if isinstance(thing, str):
            total.update(f"{thing!r}".encode())
            continue
        a = to_host(thing)
        total.update(f"{a.shape} {a.dtype.str}".encode())
        total.update(np.ascontiguousarray(a).data if a.size else b"")
    return total.hexdigest()[:16]


def check_folder(out: str | Path) -> None:
    """Raise NotADirectoryError or PermissionError if the folder `out` is not writable or cannot be created."""
    path = Path(out).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"out expects a folder, but {out} is a file")
    while not path.exists():
        path = path.parent
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise PermissionError(f"out: cannot write into {path}")
