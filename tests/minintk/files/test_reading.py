"""Test that reading forged, exploding or truncated files takes little memory, runs no code and raises one error."""

from __future__ import annotations

import ast
import gzip
import json
import os
import pickle
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.datasets.published import _batch as read_batch
from minintk.datasets.published import read_idx
from minintk.files.reading import Unreadable, map_npy, read_json, read_lines, read_npz, reading
from minintk.training import checkpoints
from tests.kit import fuzz
from tests.kit.hostile import KINDS, REMEDY, Reader, archive, batch, checkpoint, header, idx, npy, peak, plain

ROOT = Path(__file__).resolve().parents[3]
ZEROS = 16 * 2**20


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# ------------------------------------------------------------------------------------------- one place, one error


READ = {
    "open", "fdopen", "read_text", "read_bytes", "fromfile", "memmap", "genfromtxt", "loadtxt", "GzipFile", "ZipFile",
    "decompress", "Unpickler", "np.load", "json.load", "pickle.load", "pickle.loads", "marshal.load",
}  # fmt: skip
ELSEWHERE = {
    "minintk/__init__.py": "whether the package beside it is its own",
    "minintk/files/writing.py": "writes",
    "minintk/fast/compiled.py": "compiled code, which it checks before it runs",
    "minintk/arrays.py": "asks the system how much memory is free",
    "minintk/lab/experiments/papers.py": "the sources of the examples",
    "minintk/grade/worker.py": "messages between two processes; imports NumPy alone",
    "minintk/grade/wall.py": "handles of folders for Landlock, through which nothing is read",
    "minintk/lab/cli/grading.py": "the secret of a course's staff",
    "analytic/large/streaming.py": "writes",
}
"""Modules that open files for other purposes, with the reason."""


def openings(path: Path) -> list[str]:
    """Return the calls in a module that open a file or interpret bytes of a file."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = [(ast.unparse(f), f.attr if isinstance(f, ast.Attribute) else "") for f in calls]
    return [name for name, last in names if name in READ or last in READ]


def test_one_module_opens_the_files() -> None:
    found = {}
    for package in ("minintk", "analytic"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name != "minintk/files/reading.py" and name not in ELSEWHERE:
                found[name] = openings(path)
    assert {name: calls for name, calls in found.items() if calls} == {}
    mine = {"open", "gzip.GzipFile", "zipfile.ZipFile", "archive.open", "np.memmap"}
    assert set(openings(ROOT / "minintk" / "files" / "reading.py")) == mine  # the search finds all openings


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_file_is_read(kind: str, tmp_path: Path) -> None:
    content, reader = KINDS[kind]
    assert reader(written(tmp_path / "file", content)) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_not_found_and_a_folder_is_no_file(kind: str, tmp_path: Path) -> None:
    reader = KINDS[kind][1]
    with pytest.raises(FileNotFoundError, match="nothing"):
        reader(tmp_path / "nothing")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="dangling"):
        reader(tmp_path / "dangling")
    with pytest.raises(Unreadable, match=f"{re.escape(str(tmp_path))} should be an? .*, but is a folder or a device: "):
        reader(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="a folder or a device"):
        mn.History.load(tmp_path / "pipe")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OverflowError("too large"), RecursionError("too deep"), zipfile.BadZipFile("no zip"), EOFError()],
)
def test_every_error_is_one(error: Exception, tmp_path: Path) -> None:
    path = written(tmp_path / "file", b"x")
    words = f"{path} is damaged, or not a poem ({type(error).__name__}: {error}): {REMEDY}"
    with pytest.raises(Unreadable, match=re.escape(words)), reading(path, "a poem", REMEDY):
        raise error


class Late(Exception):
    """The exception that a caller's time limit raises."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, Late])
def test_what_a_signal_handler_raises_is_no_error_of_the_file(error: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(error), reading(written(tmp_path / "file", b"x"), "a poem", REMEDY):
        raise error


# ---------------------------------------------------------------------------------------------- memory


BOMBS: dict[str, tuple[bytes, Reader, str]] = {
    "gzip that promises much": (gzip.compress(idx(np.zeros(ZEROS, np.uint8)), 1), read_idx, "it can hold"),
    "gzip that holds more than it promises": (
        gzip.compress(idx(np.zeros(9, np.uint8)) + bytes(ZEROS), 1), read_idx, "more bytes than its header promises",
    ),
    "IDX of 2^128 values": (bytes([0, 0, 8, 4]) + b"\xff" * 16, read_idx, "it can hold 20"),
    "deflated npz": (
        archive({"theta.npy": npy(np.zeros(ZEROS // 8))}, zipfile.ZIP_DEFLATED), checkpoints.load, "it can hold",
    ),
    "deflated npz with more than it promises": (
        archive({"theta.npy": npy(np.zeros(2)) + bytes(ZEROS)}, zipfile.ZIP_DEFLATED), checkpoints.load, "more bytes",
    ),
    "npz of 10^15 numbers": (
        archive({"theta.npy": header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }")}),
        checkpoints.load, "it can hold",
    ),
    "npz with an array of zeros a hundred times": (
        archive({f"{i}.npy": npy(np.zeros(2**17)) for i in range(100)}, zipfile.ZIP_DEFLATED),
        checkpoints.load, "it can hold",
    ),
    "pickle that remembers at 2^31": (b"\x80\x02Nr\xff\xff\xff\x7f.", read_batch, "b'data'"),
    "pickle of 2^40 bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.", read_batch, "only 2 remain"),
    "pickle whose keys double": (b"\x80\x02})q\x00" + b"h\x00\x86q\x00" * 60 + b"Ns.", read_batch, "b'data'"),
    "rng text of 2 GB": (
        checkpoint({"rng": {"array": ["x"], "dtype": "S2000000000"}}), checkpoints.load, "dtype 'S2000000000'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_stay_small(name: str, tmp_path: Path) -> None:
    content, reader, says = BOMBS[name]
    path = written(tmp_path / "file", content)

    def read() -> None:
        with pytest.raises(Unreadable, match=says) as caught:
            reader(path)
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 1000

    assert peak(read) < 64 * len(content) + 6 * 2**20  # the zeros are not unpacked
    assert 64 * len(content) + 6 * 2**20 < ZEROS


def test_the_measure_of_memory_can_fail(tmp_path: Path) -> None:
    """`peak` detects the memory use of a reader that unpacks everything first."""
    path = written(tmp_path / "file", BOMBS["gzip that promises much"][0])
    assert peak(lambda: gzip.decompress(path.read_bytes())) > ZEROS
    assert not tracemalloc.is_tracing()


def test_an_honest_compressed_file_is_read(tmp_path: Path) -> None:
    a = {"x": np.arange(10**4) % 7, "y": np.zeros((3, 0)), "z": np.asfortranarray(np.eye(3, 2)), "one": np.array(2.5)}
    np.savez_compressed(tmp_path / "a.npz", allow_pickle=False, **a)
    with reading(tmp_path / "a.npz", "arrays", REMEDY) as file:
        found = read_npz(file)
    assert found.keys() == a.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(found[name], value)
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].flags.writeable


# ------------------------------------------------------------------------------------------------ npy, records


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy(np.eye(2)), r"it holds float64 of shape \(2, 2\)"),
        (npy(np.eye(3, dtype=np.float32)), "it holds float32"),
        (npy(np.asfortranarray(np.arange(9.0).reshape(3, 3))), "column by column"),
        (npy(np.eye(3))[:-1], "should have 200 bytes and has 199"),
        (npy(np.eye(3)) + b"\0", "should have 200 bytes and has 201"),
        (npy(np.eye(3))[:40], "expected 118 bytes got 30"),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (3, 3), }"), "expected an array of plain numbers"),
        (header("{'descr': '<U9', 'fortran_order': False, 'shape': (3, 3), }"), "expected an array of plain numbers"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 3), }"), "expected an array of plain numbers"),
        (header("(" * 5000), ""),
        (header(" " * 20_000), r"length \(20001\) is large"),
        (b"\x93NUMPY\x07\x00", "in NumPy's format, version 1.0, got 7.0"),
        (npy(np.eye(3)).replace(b"NUMPY\1", b"NUMPY\2"), "in NumPy's format, version 1.0, got 2.0"),
    ],
)
def test_maps_are_of_that_very_array(tmp_path: Path, content: bytes, says: str) -> None:
    path = written(tmp_path / "k.npy", content)
    with pytest.raises(Unreadable, match=rf"(?s)k\.npy is damaged, or not an array .*{says}.*: {REMEDY}"):
        map_npy(path, (3, 3), "float64", REMEDY)
    assert path.read_bytes() == content


def test_a_map_is_read_only(tmp_path: Path) -> None:
    a = map_npy(written(tmp_path / "k.npy", npy(np.eye(3))), (3, 3), np.float64, REMEDY)
    np.testing.assert_array_equal(a, np.eye(3))
    with pytest.raises(ValueError, match="read-only"):
        a[0, 0] = 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[" * 100_000, "RecursionError"),
        (b'{"a": "\xff"}', "UnicodeDecodeError"),
        (b"9" * 10_000, "integer string conversion"),
        (b"[1, 2", "Expecting ',' delimiter"),
        (b"", "Expecting value"),
    ],
)
def test_json_that_is_none(tmp_path: Path, content: bytes, says: str) -> None:
    path = written(tmp_path / "a.json", content)
    with pytest.raises(Unreadable, match=rf"a\.json is damaged, or not a result .*{says}.*: {REMEDY}"):
        read_json(path, "a result", REMEDY)
    with pytest.raises(Unreadable, match=rf"a\.json is damaged, or not a history .*{says}"):
        mn.History.load(path)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    assert read_lines(written(tmp_path / "r", b"mark\n1\n23\n4"), "a record", REMEDY) == ["mark", "1", "23"]
    assert read_lines(written(tmp_path / "r", b""), "a record", REMEDY) == []
    assert read_lines(written(tmp_path / "r", b"mark\n\xff1\n2\n"), "a record", REMEDY) == ["mark", "\ufffd1", "2"]


# --------------------------------------------------------------------------------------------------- CIFAR-10


def forged_dtype() -> bytes:
    """Return the pickle of an array whose dtype hides an object and whose bytes give that object's pointer."""
    kind = b"cnumpy\ndtype\n"
    fields = b"}X\1\0\0\0a" + kind + b"X\2\0\0\0O8K\0K\1\x87RK\0\x86s"  # {"a": (dtype("O"), 0)}
    state = b"(K\3X\1\0\0\0|NX\1\0\0\0a\x85" + fields + b"K\x08K\1K\0tb"  # the last number holds the flags
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\1btR"
    values = b"(K\1K\1\x85" + kind + b"X\2\0\0\0V8K\0K\1\x87R" + state + b"\x89U\x08" + b"\x41" * 8 + b"tb"
    return b"\x80\2" + array + values + b"K\0Ns."


HOSTILE = {
    "a dtype with a pointer": forged_dtype(),
    "an array without values": (
        b"\x80\x02}(U\x04datacnumpy\nndarray\nK\x04M\x00\x0c\x86U\x02u1\x86RU\x06labels](K\x00K\x00K\x00K\x00eu."
    ),
    "a function": b"\x80\x02cposix\nsystem\nU\x04true\x85R.",
    "a function of NumPy": b"\x80\x02cnumpy\nfromfile\n.",
    "a name put together": b"\x80\x04)\x8c\x01x\x93.",
    "a call of a result": b"\x80\x02cnumpy\nndarray\n)R)R.",
    "an extension": b"\x80\x02\x82\x01.",
    "someone else's object": b"\x80\x02K\x01Q.",
    "an empty stack": b"\x80\x02\x86.",
    "no end": b"\x80\x02}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reader in ("Unpickler", "_Unpickler", "load", "loads"):
        monkeypatch.setattr(pickle, reader, None)
    with pytest.raises(Unreadable, match="a CIFAR-10 batch"):
        read_batch(written(tmp_path / "test_batch", HOSTILE[name]))
    read_batch(written(tmp_path / "test_batch", KINDS["cifar"][0]))  # a valid batch is still accepted


def test_an_array_has_as_many_bytes_as_labels_say(tmp_path: Path) -> None:
    for images, labels in ((1, 2), (3, 2), (2, 0)):
        with pytest.raises(ValueError, match=f"got {labels} numbers up to [01], and {3072 * images} bytes"):
            read_batch(written(tmp_path / "test_batch", batch(np.zeros((images, 3072), np.uint8), [1] * labels)))


# --------------------------------------------------------------------------------------------------- checkpoints


MT = plain(np.random.MT19937(0).state)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({"step": step}, "its step is") for step in (-5, True, 2.0, "3", None, 2**64)),
        (b'{"format": 1, "step": 1e400, "rng": null, "about": {}}', "its step is inf"),
        (b'{"format": 1, "step": NaN, "rng": null, "about": {}}', "its step is nan"),
        ({"about": []}, "its `about` is a list"),
        ({"rng": 3}, "not the state of a generator"),
        *(
            ({"rng": MT | {"state": MT["state"] | {"key": {"array": [1, 2], "dtype": dtype}}}}, "of dtype")
            for dtype in ("O", "object", "S2000000000", "V8", "U9", "f8,i4", None, ["<f8"])
        ),
        ({"rng": MT | {"state": MT["state"] | {"key": {"array": [1], "dtype": "uint32"}}}}, "not a state of MT19937"),
        ({"rng": MT | {"state": MT["state"] | {"pos": 10**6}}}, "not a state of MT19937"),
        ({"rng": MT | {"state": MT["state"] | {"pos": -1}}}, "not a state of MT19937"),
        ({"rng": MT | {"more": 1}}, "not a state of MT19937"),
        ({"rng": plain(np.random.Philox(0).state) | {"buffer_pos": 10**9}}, "not a state of Philox"),
        ({"rng": plain(np.random.Philox(0).state) | {"buffer_pos": 1.0}}, "not a state of Philox"),
        ({"rng": np.random.PCG64(0).state | {"uinteger": 2**40}}, "not a state of PCG64"),
        ({"rng": {"array": [[1], [1, 2]], "dtype": "float64"}}, "inhomogeneous"),
        ({"rng": {"array": ["x"], "dtype": "float64"}}, "could not convert"),
        (b'{"format": 1}', "KeyError: 'step'"),
        (b"[" * 100_000, "RecursionError"),
        (b"\xff", "UnicodeDecodeError"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_no_run_wrote(tmp_path: Path, change: Any, says: str) -> None:
    """A checkpoint that no run wrote is refused because of its content, although the checksums are valid."""
    path = written(tmp_path / "checkpoint.npz", checkpoint(change))
    with pytest.raises(Unreadable, match=rf"checkpoint\.npz is damaged, or not a checkpoint .*{says}.*move it away"):
        checkpoints.load(path)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"theta": npy(np.ones(3, int))}, "its theta is int64"),
        ({"memory": npy(np.ones(3, np.float32))}, "its memory is float32, beside theta of float64"),
        ({"other": npy(np.ones(3))}, "it holds an array 'other'"),
        ({"theta": header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + b"N."}, "plain numbers"),
        ({"theta": npy(np.ones(3))[:-1]}, "24 bytes, and it holds 23"),
    ],
)
def test_a_checkpoint_with_other_arrays(tmp_path: Path, members: dict[str, bytes], says: str) -> None:
    path = written(tmp_path / "checkpoint.npz", checkpoint(None, members))
    with pytest.raises(Unreadable, match=says) as caught:
        checkpoints.load(path)
    seen: BaseException | None = caught.value
    while seen is not None:  # no message may repeat NumPy's advice to load the file unsafely
        assert "trust" not in str(seen)
        assert "allow_pickle" not in str(seen)
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize("kind", checkpoints.GENERATORS)
@pytest.mark.parametrize("drawn", [0, 1, 3, 624])
def test_the_states_of_numpys_generators_are_read(kind: str, drawn: int, tmp_path: Path) -> None:
    rng = np.random.Generator(getattr(np.random, kind)(5))
    rng.integers(0, 9, drawn, dtype=np.int32)
    checkpoints.save(tmp_path / "c.npz", mn.State(1, np.ones(2), rng=dict(rng.bit_generator.state)))
    again = np.random.Generator(getattr(np.random, kind)(6))
    state = checkpoints.load(tmp_path / "c.npz")[0].rng
    assert state is not None
    again.bit_generator.state = state
    assert again.random() == rng.random()


def test_text_in_about_is_refused_before_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="about` expects what JSON can hold"):
        checkpoints.save(tmp_path / "c.npz", mn.State(1, np.ones(2)), {"names": np.array(["a"])})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"history": [{"step": 10**6}]}, "its history ends at another step"),
        ({"history": [{"step": 1e400}]}, "whole numbers as steps, got inf"),
        ({"history": {}}, "a list of rows"),
        ({"running": {"batches": -1, "sums": {}}}, "no numbers"),
        ({"running": {"batches": 1, "sums": {"loss": "x"}}}, "no numbers"),
        ({"running": []}, "TypeError"),
        ({"seconds": float("nan")}, "its time is no number"),
        ({"run": []}, "belongs to another run"),
    ],
)
def test_fit_checks_what_it_goes_on_with(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    net = mn.Network(mn.Dense(1), (2,))
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.1), "steps": 3, "checkpoint": tmp_path}
    mn.fit(net, np.ones(2), np.eye(2), np.ones((2, 1)), **how)
    path = tmp_path / "checkpoint.npz"
    state, about = checkpoints.load(path)
    checkpoints.save(path, state, about | change)
    with pytest.raises(ValueError, match=rf"checkpoint\.npz .*{says}"):
        mn.fit(net, np.ones(2), np.eye(2), np.ones((2, 1)), **how)


def test_a_history_is_rows_with_steps(tmp_path: Path) -> None:
    for rows, says in (([1], "a list of rows"), ({}, "a list of rows"), ([{"step": "x"}], "whole numbers as steps")):
        (tmp_path / "h.json").write_text(json.dumps(rows))
        with pytest.raises(Unreadable, match=says):
            mn.History.load(tmp_path / "h.json")


# ---------------------------------------------------------------------------------------------- random damages


def test_damaged_files_are_read_or_refused() -> None:
    """Each damaged file is either read or refused. `make.py python -m tests.kit.fuzz 100000` tries more files."""
    seen = fuzz.fuzz(400, seed=0)
    assert set(seen) == {"read", "refused"}, seen


def test_another_error_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(path: Path) -> None:
        raise KeyError("theta")

    monkeypatch.setattr(fuzz, "KINDS", {"checkpoint": (checkpoint(), careless)})
    assert fuzz.fuzz(2, seed=0) == {"wrong: checkpoint: KeyError: 'theta'": 2}
