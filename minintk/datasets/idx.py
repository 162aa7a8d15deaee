"""The IDX format of the MNIST files: two zero bytes, a type, the number of axes, their lengths, the values.

| bytes          | meaning                                |
| -------------- | -------------------------------------- |
| 0, 1           | 0                                      |
| 2              | type; 0x08 stands for bytes            |
| 3              | number of axes                         |
| 4 for each axis | its length, most significant byte first |
| the rest       | values, last axis fastest              |
"""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np


def read_idx(path: Path) -> np.ndarray[Any, Any]:
    """The array of bytes in an IDX file, with or without gzip compression; ValueError for a damaged file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "two-numbers")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    ...     read_idx(path)
    array([7, 9], dtype=uint8)
    """
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}): download it again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != 0x08 or len(content) < 4 + 4 * content[3]:
        raise ValueError(
            f"{path} expects an IDX file of bytes, beginning 00 00 08, but begins {content[:4].hex(' ') or 'nowhere'}"
        )
    axes = content[3]
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    if len(content) != 4 + 4 * axes + prod(shape):
        raise ValueError(
            f"{path} promises {prod(shape)} values of shape {shape} and holds {len(content) - 4 - 4 * axes}: "
            "download it again"
        )
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
