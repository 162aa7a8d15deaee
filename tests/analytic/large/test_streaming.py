"""Test that stores end up with the same bytes after kills, damage, sharing and full disks."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.large import streaming
from analytic.large.streaming import block_size
from minintk.files.reading import read_lines

Array = Any
D = mn.Dense(1, w_std=2**0.5, b_std=0.1)
POOLED = mn.Sequential(mn.Conv2d(6, 3, w_std=2**0.5, b_std=0.1), mn.ReLU(), mn.GlobalAvgPool(), D)


def images(n: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, *shape))


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of two images of 3 x 4 pixels."""
    monkeypatch.setattr(streaming, "PIXEL_PAIRS_PER_BLOCK", 4 * (3 * 4) ** 2)
    monkeypatch.setattr("analytic.images.engine.SHORTEST_TILE", 0.0)


def record_of(folder: Path) -> Path:
    (found,) = folder.glob("record-*.txt")
    return found


class Killed(Exception):
    """An exception that tests raise instead of killing the process."""


@pytest.mark.parametrize("against", [False, True], ids=["symmetric", "two sets"])
@pytest.mark.usefixtures("small_blocks")
def test_a_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, against: bool) -> None:
    """After a kill, the next call computes only missing blocks. Its result is bitwise that of an uninterrupted call."""
    x = images(7, (3, 4, 2)).astype(np.float32)
    x2 = images(6, (3, 4, 2), seed=1).astype(np.float32) if against else None
    kernel = an.kernel(POOLED)
    whole = kernel.both(x, x2, store=tmp_path / "whole")

    def kill(done: int, blocks: int) -> None:
        assert blocks > 6
        if done == 4:
            raise Killed

    with pytest.raises(Killed):
        kernel.both(x, x2, store=tmp_path / "killed", progress=kill)
    assert np.isnan(np.load(tmp_path / "killed" / "ntk.npy")).any()
    with record_of(tmp_path / "killed").open("a") as record:
        record.write("1")  # an incomplete line
    evaluated: list[Any] = []
    right = type(kernel)._block

    def counted(self: Any, *arguments: Any) -> Any:
        evaluated.append(arguments)
        return right(self, *arguments)

    monkeypatch.setattr(type(kernel), "_block", counted)
    again = kernel.both(x, x2, store=tmp_path / "killed")
    assert len(evaluated) < len(record_of(tmp_path / "whole").read_text().splitlines()) - 3
    for one, other, direct in zip(whole, again, kernel.both(x, x2)):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes() == np.asarray(direct).tobytes()


def test_a_file_in_place_of_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    x = np.ones((2, 4, 4, 1))
    with pytest.raises(NotADirectoryError, match=r"store= expects a folder, got .*taken"):
        an.kernel(mn.Sequential(mn.Conv2d(1), mn.Flatten(), mn.Dense(1))).ntk(x, store=tmp_path / "taken" / "inside")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_store_of_another_kernel_is_refused(tmp_path: Path) -> None:
    x = images(3, (5,))
    kernel = an.kernel(mn.Sequential(mn.Dense(4), mn.ReLU(), D))
    np.testing.assert_array_equal(kernel.ntk(x, store=tmp_path / "k"), kernel.ntk(x))
    np.testing.assert_array_equal(kernel.ntk(x, store=tmp_path / "k"), kernel.ntk(x))
    for other, inputs in ((kernel, x + 1), (kernel, x.astype(np.float32)), (an.kernel(mn.Sequential(D)), x)):
        with pytest.raises(ValueError, match="holds the kernel of another network, or of other inputs"):
            other.ntk(inputs, store=tmp_path / "k")
    with pytest.raises(ValueError, match="store and out are two places"):
        kernel.ntk(x, store=tmp_path / "k", out=np.empty((3, 3)))


def started(folder: Path) -> tuple[an.Kernel, Array, Any]:
    """Return a small kernel, inputs, and the result in a complete store."""
    kernel, x = an.kernel(mn.Sequential(mn.Dense(4), mn.ReLU(), D)), images(3, (5,))
    return kernel, x, np.array(kernel.ntk(x, store=folder))


@pytest.mark.parametrize("end", [0, 5, -8])
def test_a_store_cut_short_is_refused(tmp_path: Path, end: int) -> None:
    """A file with too few bytes raises an error. If opened for writing, the file would be extended with zeros."""
    kernel, x, _ = started(tmp_path / "k")
    file = tmp_path / "k" / "ntk.npy"
    file.write_bytes(file.read_bytes()[:end])
    with pytest.raises(ValueError, match=r"ntk.npy is damaged, or not an array .* delete the store"):
        kernel.ntk(x, store=tmp_path / "k")


def test_a_store_with_another_array_is_refused(tmp_path: Path) -> None:
    kernel, x, _ = started(tmp_path / "k")
    np.save(tmp_path / "k" / "ntk.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"it holds float64 of shape \(2, 2\)"):
        kernel.ntk(x, store=tmp_path / "k")


def test_a_folder_with_other_arrays_is_no_store(tmp_path: Path) -> None:
    np.save(tmp_path / "ntk.npy", np.ones(2))
    with pytest.raises(ValueError, match=r"holds ntk.npy but is not a store"):
        an.kernel(mn.Sequential(D)).ntk(images(3, (5,)), store=tmp_path)
    assert np.array_equal(np.load(tmp_path / "ntk.npy"), np.ones(2))


def test_a_line_cut_short_joins_no_other(tmp_path: Path) -> None:
    kernel, x, whole = started(tmp_path / "k")
    record = record_of(tmp_path / "k")
    complete = record.read_text()
    for cut in ("1", "0 12ab", complete[:-1]):
        record.write_text(cut)
        np.testing.assert_array_equal(kernel.ntk(x, store=tmp_path / "k"), whole)
        assert record.read_text() == complete


# ------------------------------------------------------------------------------------------- damaged blocks


def flip(path: Path, at: int) -> None:
    """Flip a bit of the byte at `at`, which is counted from the end of the file."""
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(at, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("at", [-8, -7 * 8 * 6 - 8], ids=["last block", "mirror image of the last but one column"])
def test_a_flipped_bit_is_found_and_computed_again(tmp_path: Path, at: int) -> None:
    kernel, x = an.kernel(POOLED), images(7, (3, 4, 2))
    whole = np.array(kernel.ntk(x, store=tmp_path))
    flip(tmp_path / "ntk.npy", at)
    assert not np.array_equal(np.load(tmp_path / "ntk.npy"), whole)
    with pytest.warns(UserWarning, match=r"the bytes of 1 blocks are not those that were written .* computed again"):
        again = kernel.ntk(x, store=tmp_path)
    assert np.array_equal(again, whole)
    assert np.array_equal(kernel.ntk(x, store=tmp_path), whole)


@pytest.mark.usefixtures("small_blocks")
def test_without_checksums_a_flipped_bit_would_be_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without checksums, the flipped bit is returned."""
    kernel, x = an.kernel(POOLED), images(7, (3, 4, 2))
    whole = np.array(kernel.ntk(x, store=tmp_path))
    flip(tmp_path / "ntk.npy", -8)
    monkeypatch.setattr(streaming.KernelStore, "_damaged", lambda self: [])
    assert not np.array_equal(kernel.ntk(x, store=tmp_path), whole)


@pytest.mark.usefixtures("small_blocks")
def test_a_block_without_its_line_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is recomputed if the process was killed while it wrote the block, or before it recorded the block."""
    kernel, x = an.kernel(POOLED), images(7, (3, 4, 2))
    whole = np.array(kernel.ntk(x, store=tmp_path / "whole"))
    right = streaming.KernelStore._write

    def half(self: streaming.KernelStore, path: Path, place: Any, block: Array) -> None:
        right(self, path, place, np.where(np.arange(len(block))[:, None] % 2, block, 7.0))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(streaming.KernelStore, "_write", half)
        with pytest.raises(Killed):
            kernel.ntk(x, store=tmp_path / "k")
    assert (np.load(tmp_path / "k" / "ntk.npy") == 7).any()
    assert np.array_equal(kernel.ntk(x, store=tmp_path / "k"), whole)


# ------------------------------------------------------------------------------------------- damaged records


class Counted:
    """A finished store of 15 blocks. `after` counts the blocks that a call on a copy of the store computes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.kernel, self.x = folder, an.kernel(POOLED), images(9, (3, 4, 2))
        self.whole = [np.array(a) for a in self.kernel.both(self.x, store=folder / "whole")]
        self.name = record_of(folder / "whole").name
        self.record, self.computed, right = (folder / "whole" / self.name).read_bytes(), 0, type(self.kernel)._block

        def counted(*arguments: Any) -> Any:
            self.computed += 1
            return right(*arguments)

        patch.setattr(type(self.kernel), "_block", counted)

    def after(self, record: bytes) -> int:
        """Count the blocks computed by a call that finds `record`.

        Raise AssertionError unless the call ends with the correct bytes.
        """
        place, self.computed = self.folder / "copy", 0
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder / "whole", place)
        (place / self.name).write_bytes(record)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # recomputing blocks warns
            found = self.kernel.both(self.x, store=place)
        other = sum(a.tobytes() != np.asarray(b).tobytes() for a, b in zip(self.whole, found, strict=True))
        assert other == 0, f"{other} results have other bytes"
        return self.computed


@pytest.fixture
def store(tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(tmp_path, monkeypatch)


def flipped(record: bytes, bit: int) -> bytes:
    changed = bytearray(record)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def affected(record: bytes, at: int) -> int:
    """Count the blocks whose lines contain the byte at `at`. Each line end, except the last, belongs to two lines."""
    return 1 + (record[at] == ord("\n") and at + 1 < len(record))


def test_a_bit_of_the_record_costs_the_blocks_of_its_lines(store: Counted) -> None:
    """Check that each of 80 flipped bits, some at the ends of lines, invalidates at most the blocks of its lines."""
    rng, ends = np.random.default_rng(0), [i for i, byte in enumerate(store.record) if byte == ord("\n")]
    places = [*rng.choice(len(store.record), 60), *rng.choice(ends, 20)]
    for at in places:
        assert store.after(flipped(store.record, 8 * int(at) + int(rng.integers(8)))) <= affected(store.record, at), at


def test_where_all_bits_are_lost_all_blocks_are_computed(store: Counted) -> None:
    lines = store.record.splitlines(keepends=True)
    noise = np.random.default_rng(0).bytes(len(store.record))
    for record, computed in (
        (store.record + b"1", 0),  # the beginning of a line
        (store.record[:-5], 1),
        (store.record + lines[3], 0),  # a line twice
        (store.record + b"3 00000000 00000000\n", 0),  # another line of the same block
        (store.record + noise, 0),
        (b"".join(lines[:5]) + noise[:64] + b"\n" + b"".join(lines[7:]), 2),
        (b"".join(lines[1:]), 1),
        (store.record[:9], 15),
        (b"", 15),
        (noise, 15),
    ):
        assert store.after(record) == computed, record


def test_a_record_of_another_kernel_is_refused(store: Counted) -> None:
    """A store with the record of another kernel is rejected, whatever that record contains.

    Under the expected name, no line of such a record matches a block.
    """
    other = store.folder / "other"
    mine = store.kernel.both(store.x + 1, store=other)
    lines, name = record_of(other).read_bytes(), record_of(other).name
    assert name != store.name
    with pytest.raises(ValueError, match="holds the kernel of another network, or of other inputs"):
        store.kernel.both(store.x, store=other)
    assert record_of(other).read_bytes() == lines
    assert np.array_equal(np.load(other / "ntk.npy"), mine.ntk)
    assert store.after(lines) == 15
    (store.folder / "mine").mkdir()
    (store.folder / "mine" / "record-of-May.txt").write_text("what I sold")
    with pytest.raises(ValueError, match="holds the kernel of another network, or of other inputs"):
        store.kernel.both(store.x, store=store.folder / "mine")


def test_a_record_that_is_believed_gives_wrong_bytes(store: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a flipped bit in the last block is returned if checksums are not compared."""
    monkeypatch.setattr(streaming.KernelStore, "_damaged", lambda self: [])
    flip(store.folder / "whole" / "ntk.npy", -8)
    with pytest.raises(AssertionError, match="1 results have other bytes"):
        store.after(store.record)


def test_a_line_of_another_process_is_compared_too(store: Counted) -> None:
    """If the record gains a line for a block that no process has computed, the block is computed nevertheless."""
    lines = store.record.splitlines(keepends=True)

    def flip_now(done: int, total: int) -> None:
        if done == 2:
            with record_of(store.folder / "new").open("ab") as record:
                record.write(lines[14])

    store.kernel.both(store.x, store=store.folder / "new", progress=flip_now)
    assert (store.folder / "new" / "ntk.npy").read_bytes() == (store.folder / "whole" / "ntk.npy").read_bytes()


# ----------------------------------------------------------------------------------------- full disks, archives


def test_a_full_disk_is_an_error_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files limited to 100 kB, as on a full disk, nothing is computed and no partial file is left."""
    resource = pytest.importorskip("resource")
    kernel, x = an.kernel(mn.Sequential(D)), images(300, (5,))
    monkeypatch.setattr(type(kernel), "_block", lambda *_: pytest.fail("computed before its space was there"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match=r"needs 0\.00072 GB and cannot be written, .* GB are free there") as caught:
            kernel.ntk(x, store=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocks", record_of(tmp_path).name, "record.lock"]
    monkeypatch.undo()
    np.testing.assert_allclose(kernel.ntk(x, store=tmp_path), kernel.ntk(x), rtol=1e-12)


def test_a_result_takes_its_space_before_work(tmp_path: Path) -> None:
    """Space for the result is allocated on disk before the work. The file is not sparse."""
    kernel, x = an.kernel(mn.Sequential(D)), images(300, (5,))
    with pytest.raises(Killed):
        kernel.ntk(x, store=tmp_path, progress=stop)
    assert os.stat(tmp_path / "ntk.npy").st_blocks * 512 >= 300 * 300 * 8
    assert np.array_equal(kernel.ntk(x, store=tmp_path), kernel.ntk(x))


def stop(done: int, total: int) -> None:
    raise Killed


def test_a_finished_store_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x, whole = started(tmp_path / "k")

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("minintk.files.locks.Claim.__init__", refused)
    assert np.array_equal(kernel.ntk(x, store=tmp_path / "k"), whole)
    with pytest.raises(OSError, match="Read-only file system"):
        kernel.ntk(x, store=tmp_path / "new")


def test_the_result_cannot_be_written_to(tmp_path: Path) -> None:
    """The result is read-only, because writing to it would change the store, on which later calls rely."""
    kernel, x, _ = started(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        kernel.ntk(x, store=tmp_path)[0, 0] = 1.0


# --------------------------------------------------------------------------------------------- sharing, sizes


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("starters", [2, 5])
def test_starters_share_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starters: int) -> None:
    """Calls that share a store compute each block only once, and their results are bitwise those of a single call."""
    kernel, x = an.kernel(POOLED), images(9, (3, 4, 2))
    whole = kernel.both(x, store=tmp_path / "whole")
    begin, computed = Barrier(starters), []
    right = type(kernel)._block

    def counted(self: Any, *arguments: Any) -> Any:
        computed.append(arguments)
        return right(self, *arguments)

    def start(_: int) -> Any:
        begin.wait()
        return kernel.both(x, store=tmp_path / "shared")

    monkeypatch.setattr(type(kernel), "_block", counted)
    with ThreadPoolExecutor(starters) as pool:
        for found in pool.map(start, range(starters)):
            assert np.array_equal(found.nngp, whole.nngp)
            assert np.array_equal(found.ntk, whole.ntk)
    assert len(computed) == 15
    for name in ("nngp.npy", "ntk.npy"):
        assert (tmp_path / "shared" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    record = record_of(tmp_path / "shared").name
    found = sorted(path.name for path in (tmp_path / "shared").rglob("*"))
    assert found == ["blocks", "nngp.npy", "ntk.npy", record, "record.lock"]


def test_a_record_that_another_starter_begins_meanwhile_is_no_stranger(
    store: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that another call creates between two reads of the folder is not taken for that of another kernel."""
    right, reads = read_lines, []

    def absent_at_first(path: Path, what: str, remedy: str) -> list[str]:
        reads.append(path)
        if len(reads) == 1:
            raise FileNotFoundError
        return right(path, what, remedy)

    monkeypatch.setattr(streaming, "read_lines", absent_at_first)
    assert store.after(store.record) == 0
    assert len(reads) > 1


@pytest.mark.parametrize(
    ("shape", "most", "cost", "rows"),
    [
        ((4000, 4000), 2048, 3.5e-8, range(3, 4)),  # formerly two rows of blocks
        ((200, 200), 80, 2.6e-3, range(12, 13)),  # 16 x 16 pixels, pooled
        ((100, 100), 45, 4.2e-2, range(12, 20)),  # 32 x 32
        ((100_000, 100_000), 2048, 3.5e-8, range(48, 60)),
        ((1, 1), 2048, 1e-9, range(1, 2)),
    ],
)
def test_a_block_takes_seconds_and_there_are_some(shape: Any, most: int, cost: float, rows: range) -> None:
    size = block_size(shape, most, cost)
    assert -(-max(shape) // size) in rows
    assert size == 1 or size * size * cost <= 2.1


@pytest.mark.usefixtures("small_blocks")
def test_the_blocks_do_not_depend_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x, lines = an.kernel(POOLED), images(7, (3, 4, 2)).astype(np.float32), list[list[str]]()
    for cores in (1, 64):
        monkeypatch.setattr("minintk.threads.cores", lambda cores=cores: cores)
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        kernel.ntk(x, store=tmp_path / str(cores))
        lines.append(sorted(record_of(tmp_path / str(cores)).read_text().splitlines()))
    assert len(lines[0]) > 6
    assert lines[0] == lines[1]
