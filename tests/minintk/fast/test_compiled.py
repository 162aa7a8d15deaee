"""Test compiled loops and their files: damaged files are replaced, and full or read-only disks cause a warning."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

compiled: Any = pytest.importorskip("minintk.fast.compiled")

LOOPS = """
from minintk.fast.compiled import compiled

@compiled
def double(x):
    return 2 * x

@compiled
def triple(x):
    return 3 * x
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return a function that loads LOOPS as a new process would. The compiled files of LOOPS are in a new folder."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(compiled.CheckedCache, "spent", 0.0)
    (tmp_path / "some_loops.py").write_text(LOOPS)
    compiled.not_kept.cache_clear()

    def load() -> Any:
        spec = spec_from_file_location("some_loops", tmp_path / "some_loops.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "some_loops", module)
        spec.loader.exec_module(module)
        return module

    return load


def right(loops: Any) -> tuple[int, int]:
    """Check the results of both loops. Return the numbers of loops found on disk and of loops compiled."""
    assert (loops.double(7), loops.triple(7)) == (14, 21)
    hits, misses = (
        sum(sum(getattr(loop, name).values()) for loop in (loops.double, loops.triple))
        for name in ("_cache_hits", "_cache_misses")
    )
    return hits, misses


def damage(file: Path, other: Path, seed: int) -> None:
    """Damage a file in one of six ways."""
    rng, content = np.random.default_rng(seed), bytearray(file.read_bytes())
    ways: list[Callable[[], Any]] = [
        lambda: file.write_bytes(content[: rng.integers(len(content))]),
        lambda: file.write_bytes(rng.bytes(len(content))),
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(other.read_bytes()),
        lambda: file.write_bytes(flipped(content, rng)),
        lambda: file.write_bytes(content + rng.bytes(1)),
    ]
    ways[seed % len(ways)]()


def flipped(content: bytearray, rng: np.random.Generator) -> bytes:
    """Return the content with two bits flipped."""
    for place in rng.choice(len(content), 2, replace=False):
        content[place] ^= 1 << rng.integers(8)
    return bytes(content)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 50))])
def test_a_damaged_file_is_compiled_again(seed: int, start: Callable[[], Any], tmp_path: Path) -> None:
    assert right(start()) == (0, 2)
    assert right(start()) == (2, 0)
    files = sorted(tmp_path.rglob("*.nbc"))
    damage(files[seed % 2], files[1 - seed % 2], seed)
    assert right(start()) == (1, 1)
    assert right(start()) == (2, 0)


def test_without_the_checksum_a_swapped_file_gives_the_other_loop(
    start: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: without the checksum, a file of `double` that contains `triple` is loaded."""

    def trusting(self: Any, key: Any) -> Any:
        return pickle.loads(self.file(key)[0].read_bytes()[32:])  # noqa: S301  which is the error

    right(start())
    first, second = sorted(tmp_path.rglob("*.nbc"))
    damage(first, second, 3)
    monkeypatch.setattr(compiled.CheckedFile, "load", trusting)
    loops = start()
    assert (loops.double(7), loops.triple(7)) == (21, 21)


def test_another_source_or_version_of_numba_is_compiled_anew(
    start: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right(start())
    source = tmp_path / "some_loops.py"
    source.write_text(source.read_text().replace("3 * x", "x * 3"))
    assert right(start()) == (0, 2)
    monkeypatch.setattr("numba.__version__", "0.0.0")
    assert right(start()) == (0, 2)


def test_a_folder_in_the_place_of_a_file_costs_a_warning(start: Callable[[], Any], tmp_path: Path) -> None:
    right(start())
    file = min(tmp_path.rglob("*.nbc"))
    file.unlink()
    file.mkdir()
    with pytest.warns(RuntimeWarning, match="cannot be kept"):
        assert right(start()) == (1, 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_costs_one_warning(
    number: int, start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or read-only disk causes one warning.

    The error occurs when compiled code is written. The second loop fails for the same cause and does not warn again.
    """

    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    loops = start()
    monkeypatch.setattr(compiled.CheckedFile, "_open_for_write", fail)
    with pytest.warns(RuntimeWarning, match=f"compiles them again: .*{os.strerror(number)}$") as found:
        assert right(loops) == (0, 2)
    assert len(found) == 1


def test_without_any_folder_loops_are_compiled_and_not_kept(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr("numba.core.caching._CacheLocator.ensure_cache_path", fail)
    with pytest.warns(RuntimeWarning, match="cannot be kept"):
        loops = start()
    assert (loops.double(7), loops.triple(7)) == (14, 21)


@pytest.mark.parametrize("names", [b"cno_such_module\nname\n.", b"cminintk\nno_such_name\n."])
def test_a_file_that_names_what_has_been_renamed_is_compiled_again(
    names: bytes, start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a valid checksum is recompiled if its pickle names a module or an object that no longer exists."""
    with monkeypatch.context() as patch:
        patch.setattr(compiled.CheckedFile, "_dump", lambda self, data: names)
        assert right(start()) == (0, 2)
    assert (right(start()), right(start())) == ((0, 2), (2, 0))


@pytest.mark.parametrize("error", [PermissionError, MemoryError])
def test_a_file_that_cannot_be_read_is_compiled_again(
    error: type[Exception], start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right(start())

    def fail(self: Path) -> None:
        raise error

    monkeypatch.setattr(Path, "read_bytes", fail)
    assert right(start()) == (0, 2)


def test_long_compiling_is_announced_once_and_files_are_not(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled.CheckedCache, "told", False)
    monkeypatch.setattr(compiled, "PATIENCE", 1e9)
    right(start())
    monkeypatch.setattr(compiled, "PATIENCE", 0.0)
    right(start())
    assert capsys.readouterr().err == ""
    (folder,) = {file.parent for file in compiled_files(start)}
    for file in folder.glob("*.nbc"):
        file.unlink()
    right(start())
    assert capsys.readouterr().err.count("compiling loops") == 1


def compiled_files(start: Callable[[], Any]) -> list[Path]:
    """Return the compiled files of `double` and `triple`."""
    return [file for loop in (start().double, start().triple) for file in Path(loop._cache.cache_path).glob("*.nbc")]


def test_processes_that_compile_at_once_are_all_right(tmp_path: Path) -> None:
    """Two processes that compile into one folder get correct results. A third loads `double` from its file."""
    (tmp_path / "some_loops.py").write_text(LOOPS)
    code = "import some_loops as s; assert s.double(7) == 14 and s.triple(7) == 21; print(s.double._cache_misses)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])

    def run() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)

    for process in [run() for _ in range(2)]:
        process.communicate()
        assert process.returncode == 0
    last = run()
    assert last.communicate()[0] == "Counter()\n"
    assert not list(tmp_path.rglob("*.tmp.*"))
