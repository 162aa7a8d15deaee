"""Test readers on damaged files. Within a memory limit, a reader must return or raise an error that names the file.

    python3 make.py python -m tests.kit.fuzz 100000 [seed]

Each file is a real file from `hostile.KINDS` in which some bits are flipped, bytes are deleted or repeated, the end is
cut off, or values of LARGE are written. The script prints all counts, and exits with status 1 if any outcome is wrong.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

from minintk.files.reading import Unreadable
from tests.kit.hostile import KINDS, most, peak

LARGE = b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"999999999", b"1e999", b"\0", b"-1"
"""Bytes that, read as a size, make a reader request too much memory, or too little."""

MEASURED = 50
"""One of this many files is read with traced memory, because reading takes five times as long if memory is traced."""


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return a copy of the content, damaged at one to four random positions."""
    found = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(found) + 1)
        end = min(len(found), at + draw.choice((1, 2, 8, 64)))
        kind = draw.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del found[at:end]
        elif kind == 2:
            found[at:at] = found[at:end]
        elif kind == 3:
            number = draw.choice(LARGE)
            found[at : at + len(number)] = number
        else:
            del found[at:]
    return bytes(found)


def outcome(name: str, path: Path) -> str:
    """Return "read", "refused" (the reader raised a suitable error), or a description of an unexpected error."""
    try:
        KINDS[name][1](path)
    except Unreadable as error:
        return "refused" if str(path) in str(error) else f"wrong: {name} refused without its path"
    except Exception as error:
        return f"wrong: {name}: {type(error).__name__}: {error}"[:200]
    return "read"


def fuzz(count: int, seed: int) -> Counter[str]:
    """Read `count` damaged files, and count each outcome. An outcome that begins with "wrong" is a bug in a reader."""
    draw, seen, path = random.Random(seed), Counter[str](), Path(tempfile.mkdtemp()) / "file"
    for n in range(count):
        name = draw.choice(list(KINDS))
        text = damaged(KINDS[name][0], draw)
        path.write_bytes(text)
        start = time.process_time()
        with warnings.catch_warnings(action="error"):
            said = outcome(name, path)
        if said != "read" and said != "refused":
            path.with_name(f"{name}-{n}").write_bytes(text)
        if n % MEASURED == 0 and (taken := peak(partial(outcome, name, path))) > most(len(text)):
            said = f"wrong: {name} took {taken} bytes for a file of {len(text)}, {path}"
        if time.process_time() - start > 5:
            said = f"wrong: {name} took more than 5 s of a core, {path}"
        seen[said] += 1
    return seen


if __name__ == "__main__":
    seen = fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(dict(seen))
    sys.exit(any(key.startswith("wrong") for key in seen))
