"""Where data files are: in a folder given by the caller or by $MININTK_DATA, or downloaded once.

A given folder must hold the files.  They are downloaded only if no folder is given (by pooch, into the user's cache,
verified by the checksums in this package).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "MININTK_DATA"


def named_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """`folder`, or the one given by MININTK_DATA, or None; FileNotFoundError if it does not exist."""
    named = folder if folder is not None else os.environ.get(VARIABLE) or None
    if named is None:
        return None
    if not (path := Path(named).expanduser()).is_dir():
        source = "folder" if folder is not None else VARIABLE
        raise FileNotFoundError(f"{source} expects a folder with data files, but {path} is not a folder")
    return path


def find(folder: Path, inside: Sequence[str], names: Sequence[str]) -> Path:
    """The first file with one of these names in `folder` or the folders `inside` it, or FileNotFoundError."""
    places = [folder / place / name for place in ("", *inside) for name in names]
    if found := next((path for path in places if path.is_file()), None):
        return found
    raise FileNotFoundError(
        f"no {' or '.join(names)} in {folder}, nor in its {' or '.join(inside)}: put the file there, "
        f"name another folder (folder=... or {VARIABLE}), or name none to download it"
    )


def download(url: str, checksum: str, *, unpack: bool = False) -> list[Path]:
    """The file at `url`, or the files in its archive: from the user's cache, or downloaded and checked."""
    try:
        import pooch
    except ImportError as error:
        raise ModuleNotFoundError(
            "downloading data needs pooch: pip install 'minintk[data]'; "
            f"or name a folder that holds the files, folder=... or {VARIABLE}"
        ) from error
    try:
        found = pooch.retrieve(
            url,
            known_hash=checksum,
            path=pooch.os_cache("minintk"),
            fname=url.rpartition("/")[2],
            processor=pooch.Untar() if unpack else None,
        )
    except OSError as error:  # no network, or the server refused
        raise ConnectionError(
            f"could not download {url} ({error}): try again, or put the files in a folder and name it, "
            f"folder=... or {VARIABLE}"
        ) from error
    return [Path(found)] if isinstance(found, str) else [Path(name) for name in found]
