"""Test benchmarks/gpu.py without a GPU: the parts on stand-in arrays, the files, and the response to wrong results."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.standin import xp

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not (ROOT / "benchmarks" / "gpu.py").exists():
        pytest.skip("there are no benchmarks in this tree (an installed package, say)")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("gpu")
    monkeypatch.setattr(module, "device_namespace", lambda device: xp)
    return module


PARTS = "vectors", "training", "tangents", "solves"
QUICKEST = {"vectors": (1,), "training": (0, 3), "tangents": (1,), "solves": (0, 2)}
"""{part: rows that the default tests run}."""


@pytest.mark.parametrize("part", PARTS)
def test_the_rows_run_on_a_device(gpu: Any, part: str) -> None:
    rows = getattr(gpu.rows, part)(True)
    for one in (rows[i] for i in QUICKEST[part]):
        seen = gpu.measure(one, "float32", "gpu", 0.0, {})
        assert seen.right, seen
        assert 0 < seen.fastest <= seen.time <= seen.slowest


@pytest.mark.slow
def test_every_part_runs_to_its_end(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PARTS", {name: part for name, part in gpu.PARTS.items() if name != "tests"})
    assert gpu.main(["--device", "cpu", "--quick", "--out", str(tmp_path / "all")]) == 0
    record = json.loads((tmp_path / "all.json").read_text())
    assert [len(part["rows"]) for part in record["parts"].values()] == [8, 4, 10, 6, 6]


def work(gpu: Any, error: float) -> Any:
    """Return work that computes a matrix product and, on a device, adds `error` to each entry."""

    def make(to: Any) -> Any:
        x = to(np.eye(3) + 1)
        return (lambda: x @ x + (0.0 if isinstance(x, np.ndarray) else error)), lambda y: y

    return gpu.rows.Work("a product", make, 54.0, 10.0)


@pytest.mark.parametrize(("error", "right"), [(0.0, True), (1e-3, False)])
def test_a_wrong_result_is_found(gpu: Any, error: float, right: bool) -> None:
    assert [gpu.measure(work(gpu, error), dtype, "gpu", 0.0, {}).right for dtype in ("float32", "float64")] == 2 * [
        right
    ]


def test_what_is_done_is_written_at_once(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped run keeps its rows. A run of another part also keeps them, but drops rows of other devices."""

    def stopped(device: str, quick: bool) -> Iterator[Any]:
        yield gpu.Seen("kept", True, 1e-9, 2.0)
        raise KeyboardInterrupt

    def wrong(device: str, quick: bool) -> Iterator[Any]:
        yield gpu.Seen("second", False, 1.0)

    stem = tmp_path / "gpu"
    monkeypatch.setattr(gpu, "PARTS", {"one": (stopped, ""), "two": (wrong, "")})
    with pytest.raises(KeyboardInterrupt):
        gpu.main(["--device", "cpu", "--only", "one", "--out", str(stem)])
    text = stem.with_suffix(".md").read_text()
    assert "| kept" in text
    assert "stopped before its end" in text
    assert gpu.main(["--device", "cpu", "--only", "two", "--out", str(stem)]) == 1
    text = stem.with_suffix(".md").read_text()
    assert "| kept" in text
    assert "WRONG" in text
    about = gpu.about
    monkeypatch.setattr(gpu, "about", lambda device: {**about(device), "device": "another"})
    assert gpu.main(["--device", "cpu", "--only", "two", "--out", str(stem)]) == 1
    assert "| kept" not in stem.with_suffix(".md").read_text()


def test_there_is_a_part_for_each_kind_of_work(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "tests",
        "vectors",
        "images",
        *PARTS[1:],
    ]
    found = {path.name for path in (ROOT / "tests" / "device").glob("test_*.py")}
    assert {"test_device.py", "test_device_images.py", "test_device_infinite.py", "test_device_training.py"} <= found
