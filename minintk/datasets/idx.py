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

import struct
from pathlib import Path
from typing import Any

import numpy as np

from minintk.files.reading import check_end, exactly, read_array, reading, unpacked


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
        found = read_array(stream, shape, np.dtype(np.uint8), most)
        check_end(stream)
        return found
