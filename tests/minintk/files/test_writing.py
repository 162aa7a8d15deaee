"""Test that files are replaced as a whole, that content is flushed before the renaming, and errors for full disks."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minintk.files.writing import holds, made_folder, remove_parts, space_on_disk, write_atomically, write_bytes


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="folders cannot be flushed here")
def test_the_content_is_flushed_then_named_then_the_folder_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is flushed last.

    Otherwise, the old file could still be there after a power failure, although the call had returned.
    """
    done: list[Any] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(fd: int) -> None:
        done.append(stat.S_ISDIR(os.fstat(fd).st_mode))
        sync(fd)

    def noted_replace(source: Path, target: Path) -> None:
        done.append("named")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomically(tmp_path / "a", lambda file: file.write(b"whole"))
    assert done == [False, "named", True]


def test_two_writers_of_one_file_have_names_of_their_own(tmp_path: Path) -> None:
    """Two writers of one file use different temporary names. With a common name, the second writer would fail."""

    def slow(file: Any) -> None:
        file.write(b"sl")
        write_atomically(tmp_path / "a", lambda other: other.write(b"quick"))
        file.write(b"ow")

    write_atomically(tmp_path / "a", slow)
    assert (tmp_path / "a").read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", lambda file: file.write(b"old"))
    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "a", lambda file: file.write(b"new" * (1 // 0)))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_what_a_kill_left_is_removed_and_no_more(tmp_path: Path) -> None:
    left, others = ["a[1].0a1b.part"], ["a[1]", "a1.0a1b.part", "a[1].part.txt", "b.0a1b.part"]
    for name in left + others:
        (tmp_path / name).touch()
    remove_parts(tmp_path / "a[1]")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_a_file_of_another_size_is_not_read_to_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another size is not read for comparison, because it may be very large."""
    path = tmp_path / "a"
    write_bytes(path, b"whole")
    assert holds(path, b"whole")
    assert not holds(path, b"other")
    stamp = path.stat().st_ino
    write_bytes(path, b"whole")
    assert path.stat().st_ino == stamp  # nothing was written
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read"))
    assert not holds(path, b"longer")
    assert not holds(tmp_path / "none", b"")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_is_said_in_words(number: int, tmp_path: Path) -> None:
    words = r"needs 3 GB and cannot be written, .* GB are free there; make room"

    def refused(file: Any) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match=words) as caught:
        write_atomically(tmp_path / "a", refused, 3 * 10**9)
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "a"))
    with pytest.raises(OSError, match="Read-only") as other, space_on_disk(tmp_path / "a"):
        raise OSError(errno.EROFS, "Read-only")
    assert other.value.filename is None


def test_a_link_to_nowhere_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError, match=r"store= expects a folder, got .*link: .* is no folder"):
        made_folder(tmp_path / "link", "store=")


def test_a_full_disk_under_an_array(tmp_path: Path) -> None:
    """The error for a full disk has an errno and states the sizes. NumPy's own error has no errno."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match=r"needs 0\.0008 GB and cannot be written, .* GB are free there") as caught:
            write_atomically(tmp_path / "a", lambda file: np.save(file, np.zeros(100_000)), 800_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
