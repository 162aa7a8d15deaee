"""Test that resumed sweeps give identical bytes with any executor, and that invalid sweeps fail before they start."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier, Event
from time import sleep
from typing import Any

import numpy as np
import pytest

import minintk as mn
from tests.kit import interrupted_sweep

GRID: dict[str, Any] = {"a": [2, 3], "b": [0.5, float("inf")], "seed": range(5)}


def work(a: int, b: float, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return results that depend on the other members of the call, so that resuming with others would change them."""
    return [{"value": a / 3 + s + 0.1 * sum(seed), "b": b, "pair": np.array([a, s], np.float32)} for s in seed]


def single(a: int) -> dict[str, Any]:
    return {"square": a**2}


# --------------------------------------------------------------------------------------------- kill -9


def killed(*arguments: str) -> int:
    """Run a sweep in a separate process and return the exit status."""
    script = Path(interrupted_sweep.__file__)
    where = {**os.environ, "PYTHONPATH": str(script.parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", interrupted_sweep.__name__, *arguments], env=where, capture_output=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def records(folder: Path) -> int:
    return len(list((folder / "records").glob("*.json")))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
@pytest.mark.parametrize("size", ["small", pytest.param("large", marks=pytest.mark.slow)])
def test_killed_twice_and_resumed_is_the_same_file(size: str, tmp_path: Path) -> None:
    """A sweep killed during training and again while writing a record gives the same bytes as without kills."""
    half, whole = tmp_path / "killed", tmp_path / "whole"
    total = 12 if size == "small" else 500
    assert killed(str(half), size, "train", "3" if size == "small" else "41") == -signal.SIGKILL
    first = records(half)
    assert killed(str(half), size, "write", "4" if size == "small" else "123") == -signal.SIGKILL
    second = records(half)
    assert 0 < first < second < total
    assert len(list((half / "records").glob("*.part"))) == 1  # incomplete, and never read as a record
    assert not (half / "results.json").exists()
    assert killed(str(half), size) == 0
    assert killed(str(whole), size) == 0
    assert records(half) == records(whole) == total
    left = [path.name for path in half.rglob("*") if path.suffix in (".part", ".lock")]
    assert left == ["sweep.lock"]  # leftovers of the killed processes are gone
    assert (half / "results.json").read_bytes() == (whole / "results.json").read_bytes()
    table = interrupted_sweep.run(half, size)  # nothing left to do
    loss, t1 = table["loss"], table["t1"]
    assert loss.shape == t1.shape == table.shape
    assert len(set(loss.ravel())) == total  # real runs, all different
    assert np.all(loss > 0)
    assert np.all(t1[0] < np.inf)


def test_what_a_kill_leaves_is_not_repeated(tmp_path: Path) -> None:
    """If some records are deleted, only the calls for these records are repeated, with the same members."""
    whole = mn.sweep(work, GRID, store=tmp_path, together="seed", batch=2)
    before = (tmp_path / "results.json").read_bytes()
    for path in sorted((tmp_path / "records").glob("*.json"))[::7]:
        path.unlink()
    seen = deque[tuple[int, ...]]()  # a list would be a bound value

    def spy(a: int, b: float, seed: tuple[int, ...]) -> list[dict[str, Any]]:
        seen.append(seed)
        return work(a, b, seed)

    spy.__module__, spy.__qualname__ = work.__module__, work.__qualname__
    again = mn.sweep(spy, GRID, store=tmp_path, together="seed", batch=2)
    assert (tmp_path / "results.json").read_bytes() == before
    assert 0 < len(seen) <= 3
    assert set(seen) <= {(0, 1), (2, 3), (4,)}
    assert np.array_equal(again["value"], whole["value"])


def test_company_by_what_is_left_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: repeating members without the others of their call gives different bytes."""
    mn.sweep(work, GRID, store=tmp_path / "whole", together="seed", batch=2)
    mn.sweep(work, GRID, store=tmp_path / "half", together="seed", batch=2)
    for path in sorted((tmp_path / "half" / "records").glob("*.json"))[::3]:
        path.unlink()
    from minintk.lab.experiments import sweeps

    def regrouped(f: Any, calls: list[Any], executor: Any, keep: Any) -> None:
        for call, claim in calls:
            with claim:
                keep(call, ([f(call.arguments | {"seed": (point["seed"],)})[0][0] for point in call.points], 1.0))

    monkeypatch.setattr(sweeps, "_run", regrouped)
    mn.sweep(work, GRID, store=tmp_path / "half", together="seed", batch=2)
    assert (tmp_path / "half" / "results.json").read_bytes() != (tmp_path / "whole" / "results.json").read_bytes()


# ------------------------------------------------------------------------------------------------ divergence


def diverging(lr: float, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    if lr > 1 and 2 in seed:
        raise FloatingPointError(f"lr = {lr} is too large")
    return [{"loss": lr + s, "curve": [lr, s]} for s in seed]


@pytest.mark.parametrize("workers", [None, ThreadPoolExecutor])
def test_a_run_that_diverges_is_a_record(tmp_path: Path, workers: Any) -> None:
    grid: dict[str, list[Any]] = {"lr": [0.5, 2.0], "seed": [1, 2, 3]}
    with workers(2) if workers else nullcontext() as executor:
        table = mn.sweep(diverging, grid, store=tmp_path, together="seed", executor=executor)
    assert table.diverged.tolist() == [[False, False, False], [False, True, False]]  # other seeds were run alone
    assert np.array_equal(table["loss"], [[1.5, 2.5, 3.5], [3.0, np.nan, 5.0]], equal_nan=True)
    assert table["curve"].shape == (2, 3, 2)
    assert np.isnan(table["curve"][1, 1]).all()
    with pytest.raises(KeyError, match="'time'"):
        table["time"]
    (tmp_path / "work.json").touch()
    again = mn.sweep(diverging, grid, store=tmp_path, together="seed")  # read from the records
    assert again.results == table.results


def test_a_table_as_csv(tmp_path: Path) -> None:
    table = mn.sweep(diverging, {"lr": [0.5, 2.0], "seed": [1, 2]}, store=tmp_path / "runs", together="seed")
    table.to_csv(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["lr"], line["seed"], line["loss"], line["curve"], bool(line["diverged"])) for line in lines] == [
        ("0.5", "1", "1.5", "[0.5, 1]", False), ("0.5", "2", "2.5", "[0.5, 2]", False),
        ("2.0", "1", "3.0", "[2.0, 1]", False), ("2.0", "2", "", "", True),
    ]  # fmt: skip


def test_results_may_have_any_name(tmp_path: Path) -> None:
    """A result named "diverged" marks divergence only if it is text. A result named after an axis shares its column."""
    table = mn.sweep(lambda width: {"width": width, "diverged": False}, {"width": [1, 2**70]}, store=tmp_path / "runs")
    assert table.diverged.tolist() == [False, False]
    assert table["diverged"].tolist() == [False, False]
    table.to_csv(tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines() == [
        "width,diverged", "1,False", f"{2**70},False",
    ]  # fmt: skip


def test_a_table_for_pandas(tmp_path: Path) -> None:
    table = mn.sweep(diverging, {"lr": [0.5, 2.0], "seed": [1, 2]}, store=tmp_path / "runs", together="seed")
    frame = pytest.importorskip("pandas") and table.to_pandas()
    assert list(frame.columns) == ["lr", "seed", "loss", "curve", "diverged"]
    assert frame["loss"].isna().tolist() == [False, False, False, True]


# ------------------------------------------------------------------------------------------ grids, executors


def test_the_table() -> None:
    table = mn.Table({"a": (1, 2), "b": (3, 4, 5)}, [{"v": [i, -i]} for i in range(6)])
    assert table["v"].shape == (2, 3, 2)
    assert table["v"][1, 2].tolist() == [5, -5]
    assert table.points[4] == {"a": 2, "b": 4}
    with pytest.raises(KeyError, match=r"'w': the result at .* has \['v'\]"):
        table["w"]


@pytest.mark.parametrize("batch", [None, 1, 2, 5, 9])
def test_values_are_at_their_points(batch: int | None, tmp_path: Path) -> None:
    table = mn.sweep(work, GRID, store=tmp_path, together="seed", batch=batch)
    assert table["pair"][1, 0, 3].tolist() == [3, 3]
    assert np.all(np.isinf(table["b"][:, 1]))
    size = batch or 5
    share = [s for s in range(5) if s // size == 4 // size]
    assert table["value"][1, 0, 4] == 3 / 3 + 4 + 0.1 * sum(share)  # floats keep all their digits


def test_without_together(tmp_path: Path) -> None:
    assert mn.sweep(single, {"a": [3, 1]}, store=tmp_path)["square"].tolist() == [9, 1]


def test_a_larger_grid_keeps_what_is_there(tmp_path: Path) -> None:
    mn.sweep(single, {"a": [1, 2]}, store=tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    assert mn.sweep(single, {"a": [0, 1, 2, 3]}, store=tmp_path)["square"].tolist() == [0, 1, 4, 9]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


class Backwards(Executor):
    """An executor that finishes the last call first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, partial(fn, *args, **kwargs)))
        if len(self.waiting) == 12:
            for done, call in reversed(self.waiting):
                done.set_result(call())
        return future


def test_any_executor_gives_the_same_bytes(tmp_path: Path) -> None:
    mn.sweep(work, GRID, store=tmp_path / "plain", together="seed", batch=2)
    want = (tmp_path / "plain" / "results.json").read_bytes()
    executors: dict[str, Executor] = {
        "threads": ThreadPoolExecutor(2),
        "processes": ProcessPoolExecutor(2, mp_context=get_context("spawn")),
        "backwards": Backwards(),
    }
    for name, executor in executors.items():
        with executor:
            mn.sweep(work, GRID, store=tmp_path / name, together="seed", batch=2, executor=executor)
        assert (tmp_path / name / "results.json").read_bytes() == want, name


def failing(a: int) -> dict[str, Any]:
    if a == 3:
        raise ZeroDivisionError("no margin")
    return {"a": a}


@pytest.mark.parametrize("pool", [None, ThreadPoolExecutor])
def test_an_error_tells_where_and_keeps_the_rest(pool: Any, tmp_path: Path) -> None:
    executor = None if pool is None else pool(1)
    with pytest.raises(ZeroDivisionError, match="margin") as caught:
        mn.sweep(failing, {"a": [1, 2, 3, 4]}, store=tmp_path, executor=executor)
    assert caught.value.__notes__ == ["in the sweep's call work(a=3)"]
    assert records(tmp_path) >= 2
    if executor is not None:
        executor.shutdown()


@pytest.mark.parametrize("wrong", ["raises", "nan"])
def test_an_error_does_not_lose_the_runs_in_progress(wrong: str, tmp_path: Path) -> None:
    """One run fails while a second run is in progress. The result of the second run is kept."""
    begun, failed = Event(), Event()

    def one_fails(a: int) -> dict[str, Any]:
        if a == 0:
            begun.set()
            failed.wait(timeout=60)
            sleep(0.1)  # the error reaches the caller meanwhile
            return {"v": 1.0}
        begun.wait(timeout=60)
        failed.set()
        if wrong == "raises":
            raise ZeroDivisionError("on purpose")
        return {"v": float("nan")}

    with ThreadPoolExecutor(2) as pool, pytest.raises((ZeroDivisionError, ValueError)):
        mn.sweep(one_fails, {"a": [0, 1]}, store=tmp_path, executor=pool)
    assert records(tmp_path) == 1


def test_progress_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mn.sweep(single, {"a": [1, 2]}, store=tmp_path, progress=True)
    assert "sweep: 100%" in capfd.readouterr().err


# ---------------------------------------------------------------------------------------------------- errors


def test_grids_that_do_not_fit(tmp_path: Path) -> None:
    bad: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {}, "grid expects one name at least"),
        ({"a": []}, {}, "one at least"),
        ({"a": "abc"}, {}, "different values"),
        ({"a": [1, 1]}, {}, "different values"),
        ({"a": [float("nan")]}, {}, "got nan"),
        ({"a": [(1, 2)]}, {}, "expects numbers"),
        ({"a": [1]}, {"together": "b"}, "one of the grid's names"),
        ({"a": [1]}, {"batch": 2}, "batch expects"),
        ({"a": [1]}, {"together": "a", "batch": 0}, "batch expects"),
        ({"a": [1]}, {"together": "a", "batch": 1.5}, "batch expects"),
        ({"a": 3}, {}, "one at least, got 3"),
        ({"a": np.eye(2)}, {}, "expects numbers"),
    ]
    for grid, options, match in bad:
        with pytest.raises(ValueError, match=match):
            mn.sweep(single, grid, store=tmp_path, **options)


def test_results_that_cannot_be_kept(tmp_path: Path) -> None:
    bad: list[tuple[Any, type[Exception], str]] = [
        ({"v": float("nan")}, ValueError, r"'v' at \{'a': 1\} is NaN"),
        ({"v": [[1.0, np.array(np.nan)]]}, ValueError, "is NaN"),
        ({"v": object()}, TypeError, "expects numbers, text"),
        (3.0, TypeError, "must return a result"),
        ([{"v": 1}], TypeError, "must return a result"),
    ]
    for i, (result, kind, match) in enumerate(bad):
        with pytest.raises(kind, match=match):
            mn.sweep(lambda a, r=result: r, {"a": [1]}, store=tmp_path / str(i))
    assert mn.sweep(lambda a: {"v": "NaN"}, {"a": [1]}, store=tmp_path / "text").results == [{"v": "NaN"}]
    with pytest.raises(TypeError, match="must return a list of 2 results"):
        mn.sweep(lambda a: [{"v": 1}], {"a": [1, 2]}, store=tmp_path / "few", together="a")


def test_a_store_of_another_work(tmp_path: Path) -> None:
    mn.sweep(single, {"a": [1]}, store=tmp_path)
    for other in (failing, partial(single), lambda a: {"square": a}):
        with pytest.raises(ValueError, match=r"holds the runs of .*single.* take another folder"):
            mn.sweep(other, {"a": [1]}, store=tmp_path)
    (tmp_path / "work.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        mn.sweep(single, {"a": [1]}, store=tmp_path)


def scaled(factor: Any, a: int) -> dict[str, Any]:
    return {"v": np.asarray(factor) * a}


def test_records_of_nobody_knows_which_work(tmp_path: Path) -> None:
    """Records without work.json, e.g. after `rm store/*`, are refused, because they may belong to another `work`."""
    mn.sweep(single, {"a": [1, 2]}, store=tmp_path)
    for path in tmp_path.glob("*.json"):
        path.unlink()
    with pytest.raises(
        ValueError, match=r"holds records, and no work\.json that says of which work: delete the folder"
    ):
        mn.sweep(lambda a: {"square": -a}, {"a": [1, 2]}, store=tmp_path)


def test_bound_arguments_belong_to_the_work(tmp_path: Path) -> None:
    x = np.arange(3.0)
    mn.sweep(partial(scaled, x), {"a": [1]}, store=tmp_path)
    mn.sweep(partial(scaled, x.copy()), {"a": [1, 2]}, store=tmp_path)
    for other in (x + 1, x.astype(np.float32), 2):
        with pytest.raises(ValueError, match="take another folder"):
            mn.sweep(partial(scaled, other), {"a": [1]}, store=tmp_path)


def times(factor: int) -> Any:
    return lambda a: {"v": factor * a}


class Times:
    """A callable with one setting, `factor`, that serves as the work of a sweep."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __call__(self, a: int) -> dict[str, Any]:
        return {"v": (np.sum(self.factor) if isinstance(self.factor, int | float | tuple | np.ndarray) else 1) * a}

    def method(self, a: int) -> dict[str, Any]:
        return self(a)


def closed(value: Any) -> Any:
    """Return a function that is bound to `value`, and to itself, by its closure."""

    def work(a: int) -> dict[str, Any]:
        return {"v": a, "bound": float(value is not None and work is not None)}

    return work


def ring(value: Any) -> Any:
    """Return one of two functions whose closures bind each other."""

    def even(a: int) -> Any:
        return {"v": a} if a == value else odd(a - 1)

    def odd(a: int) -> Any:
        return {"v": -a} if a <= 0 else even(a - 1)

    return even


def middle(value: float) -> np.ndarray[Any, Any]:
    """Return an array whose repr omits its middle."""
    x = np.zeros(3000)
    x[1500] = value
    return x


@pytest.mark.parametrize(
    "make",
    [
        times, Times, lambda v: Times(v).method, lambda v: Times(middle(v)), lambda v: Times(("a", v)[1:]),
        lambda v: partial(scaled, {"x": middle(v)}["x"]), lambda v: partial(first_of, {"x": middle(v)}),
        lambda v: partial(first_of, mn.datasets.digits()[v : v + 5]), lambda v: partial(first_of, mn.Hinge(v)),
        lambda v: partial(first_of, Times(v)), lambda v: closed([v]), lambda v: closed({"a": v}),
        lambda v: closed(mn.SGD(v / 10)), lambda v: closed(mn.Sequential(mn.Dense(v))),
        lambda v: closed((times, first_of)[v - 1]),
        lambda v: closed((mn.Tanh(), mn.ReLU())[v - 1]), lambda v: closed((mn.Standard, mn.NTK)[v - 1]),
        lambda v: closed((np.exp, np.log)[v - 1]), lambda v: ring(v),
        lambda v: closed(mn.Network(mn.Sequential(mn.Dense(3), mn.LeakyReLU(v / 4), mn.Dense(1)), (2,))),
        lambda v: closed(times(v)), lambda v: Times([v]), lambda v: lambda a, v=v: {"v": a * v},
        lambda v: Times(mn.Sequential(mn.Dense(3), mn.LeakyReLU(v / 4))).method,
        lambda v: partial(first_of, mn.Network(mn.Sequential(mn.Dense(3), mn.LeakyReLU(v / 4), mn.Dense(1)), (2,))),
    ],
)  # fmt: skip
def test_what_a_work_was_given_belongs_to_it(make: Callable[[int], Any], tmp_path: Path) -> None:
    """`work` callables with different bound values count as different, however the values were bound.

    Those with equal bound values count as equal.
    """
    kept = mn.sweep(make(1), {"a": [1]}, store=tmp_path).results
    assert mn.sweep(make(1), {"a": [1]}, store=tmp_path).results == kept
    with pytest.raises(ValueError, match="take another folder"):
        mn.sweep(make(2), {"a": [1]}, store=tmp_path)


def first_of(data: Any, a: int) -> dict[str, Any]:
    return {"v": a}


def test_two_sweeps_at_once_spoil_nothing(tmp_path: Path) -> None:
    """Two simultaneous sweeps leave a complete record of every call."""
    both = Barrier(2, timeout=60)

    def meet(a: int) -> dict[str, Any]:
        both.wait()
        return {"v": [a] * 3000}

    with ThreadPoolExecutor(2) as pool:
        sweeps = [pool.submit(mn.sweep, meet, {"a": list(range(40))}, store=tmp_path) for _ in range(2)]
        assert [sweep.result()["v"].shape for sweep in sweeps] == [(40, 3000)] * 2
    assert not list(tmp_path.rglob("*.part"))


def test_a_damaged_record(tmp_path: Path) -> None:
    mn.sweep(single, {"a": [1, 2]}, store=tmp_path)
    first, second = sorted((tmp_path / "records").iterdir())
    whole = first.read_text()
    for text in (whole[:-20], "{}", second.read_text(), json.dumps({"point": 3, "result": 4})):
        first.write_text(text)
        with pytest.raises(ValueError, match=r"damaged.* delete it to run that point again"):
            mn.sweep(single, {"a": [1, 2]}, store=tmp_path)
    first.unlink()
    assert mn.sweep(single, {"a": [1, 2]}, store=tmp_path)["square"].tolist() == [1, 4]
