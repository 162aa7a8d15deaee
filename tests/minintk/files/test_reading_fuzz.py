"""Test that reading each of thousands of files with changed, lost or inserted bytes gives a result or one error."""

from __future__ import annotations

import gzip
import json
import os
import random
import tempfile
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minintk.files.reading import Unreadable
from minintk.training import checkpoints
from tests.kit.hostile import ABOUT, IMAGES, KINDS, Reader, checkpoint, idx, most, npy

Pack = Callable[[bytes], bytes]


def as_it_is(content: bytes) -> bytes:
    return content


TARGETS: dict[str, tuple[bytes, Pack, Reader]] = {
    **{kind: (content, as_it_is, reader) for kind, (content, reader) in KINDS.items()},
    # content that is changed before the checksum is computed
    "content of gz": (idx(IMAGES), lambda b: gzip.compress(b, 1), KINDS["gz"][1]),
    "text of a checkpoint": (json.dumps(ABOUT).encode(), checkpoint, checkpoints.load),
    "array of a checkpoint": (npy(np.arange(5.0)), lambda b: checkpoint(None, {"theta": b}), checkpoints.load),
    "packed checkpoint": (
        npy(np.arange(5.0)),
        lambda b: checkpoint(None, {"theta": b}, zipfile.ZIP_DEFLATED),
        checkpoints.load,
    ),
}
"""{kind: (content to change, function that makes a file from the content, reader of the file)}."""

WORDS = (
    b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\x80\x05", b"1e400", b"-5", b"NaN", b"null", b"[" * 2000, b"9" * 30,
    b'{"array": [1], "dtype": "O"}', b"object", b"'|O'", b"'<U9'", b"(1000000000, 1000000000)", b"\x94\x93R", b"2" * 40,
    b"cnumpy\ndtype\n", b"cos\nsystem\n", b"\x8e" + b"\xff" * 8, b"\n", b"\x1f\x8b\x08", b"PK\x01\x02",
    b"\x93NUMPY\x03\0",
)  # fmt: skip


def changed(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one to four random changes."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randint(0, len(found)), rng.choice((1, 1, 2, 8, 64))
        part = slice(at, at + length)
        match rng.randint(0, 6):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randint(0, 7)
            case 1:
                found[part] = rng.randbytes(len(found[part]))
            case 2:
                del found[part]
            case 3:
                del found[at:]
            case 4:
                found[at:at] = found[part] * rng.choice((1, 3))
            case 5:
                found[at:at] = rng.choice(WORDS)
            case _:
                found[part] = rng.choice(WORDS)
    return bytes(found)


def attack(target: tuple[bytes, Pack, Reader], path: Path, count: int, seed: int) -> tuple[int, int]:
    """Return (number read, number refused) of `count` changed files, or raise AssertionError.

    Any other error, a message that is long or lacks the path, a warning, and memory use above `most` are failures.
    """
    content, pack, reader = target
    read = refused = 0
    tracemalloc.start()
    try:
        for number in range(count):
            file = pack(changed(content, random.Random(f"{seed} {number}")))
            path.write_bytes(file)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    reader(path)
                read += 1
            except Exception as error:
                words = str(error)
                if not isinstance(error, Unreadable) or str(path) not in words or len(words) > 1000:
                    raise AssertionError(f"input {number} of seed {seed}: {error!r} came out") from error
                refused += 1
            used = tracemalloc.get_traced_memory()[1] - before
            assert used < most(len(file)), f"input {number} of seed {seed}: {used} bytes for a file of {len(file)}"
    finally:
        tracemalloc.stop()
    return read, refused


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Yield a path to which thousands of files are written in turn, in memory if the system has a folder there."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path / "file"
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder, "file")


@pytest.mark.parametrize("kind", TARGETS)
def test_a_thousand_changed_files(kind: str, place: Path) -> None:
    read, refused = attack(TARGETS[kind], place, 100, seed=0)
    assert read + refused == 100
    assert refused > 10  # otherwise hardly anything was damaged


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_a_hundred_thousand_changed_files(kind: str, place: Path) -> None:
    read, refused = attack(TARGETS[kind], place, 10_000, seed=1)
    assert refused > 1000
    assert read > 0


def careless_gz(path: Path) -> Any:
    return gzip.decompress(path.read_bytes())


def careless_npz(path: Path) -> Any:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def careless_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("kind", "reader", "says"),
    [
        ("gz", careless_gz, "came out"),
        ("checkpoint", careless_npz, "came out"),
        ("array of a checkpoint", careless_npz, "came out"),
        ("json", careless_json, "came out"),
    ],
)
def test_the_attack_finds_a_careless_reader(kind: str, reader: Reader, says: str, place: Path) -> None:
    with pytest.raises(AssertionError, match=says):
        attack((*TARGETS[kind][:2], reader), place, 100, seed=0)


def test_the_attack_finds_a_reader_that_believes_a_header(place: Path) -> None:
    def reader(path: Path) -> Any:
        return np.empty(9 * 2**20, np.uint8)

    with pytest.raises(AssertionError, match="bytes for a file of"):
        attack((*TARGETS["idx"][:2], reader), place, 1, seed=0)
