"""Test benchmarks/ without peer libraries: changes in times, limits, intervals, reports, and reference answers."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from analytic.verify import laws

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a module of benchmarks/ by name."""
    if not (ROOT / "benchmarks" / "rows.py").exists():
        pytest.skip("there are no benchmarks in this tree (an installed package, say)")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def load(name: str) -> Any:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


def measured(benchmarks: Any, *seconds: float, side: str = "minintk") -> Any:
    harness = sys.modules.get("harness") or benchmarks("harness")
    return harness.Measured(side, "ours", None, seconds=dict(enumerate(seconds)))


@pytest.mark.parametrize(("after", "said"), [((1.05, 1.1, 1.0), 0), ((1.3, 1.25, 1.4), 1), ((0.5, 0.6, 0.7), 1)])
def test_a_row_has_moved_where_the_ranges_do_not_overlap(
    benchmarks: Any, tmp_path: Path, after: tuple[float, ...], said: int
) -> None:
    history = benchmarks("history")
    processor, rates = "A Processor (R), model 1", {"copies": 2e10}
    with pytest.raises(ValueError, match="holds no row twice"):
        history.moved(processor, tmp_path)
    for times, rate in (((0.9, 1.0, 1.1), 1.0), (after, 2.0)):
        sides = [measured(benchmarks, *times), measured(benchmarks, 2.0, 2.0, side="peer")]
        history.note(processor, {"copies": rate * rates["copies"]}, [("a row, float32", "call", sides)], tmp_path)
    history.note("another", rates, [("a row, float32", "call", [measured(benchmarks, 9.0)])], tmp_path)
    assert history.file(processor, tmp_path).name == "a-processor-r-model-1.jsonl"
    found = history.moved(processor, tmp_path)
    assert len(found) == said
    if said:
        row, before, _, ratio, peers, machine = found[0]
        assert (row, ratio, peers, machine) == ("a row, float32", f"{np.median(after):.2f}", "1.00", "0.50")
        assert before.startswith("1 s (0.9 .. 1.1), ")


def test_a_limit_is_the_longest_part_at_the_rate_of_the_rows_precision(benchmarks: Any) -> None:
    harness = benchmarks("harness")
    rates = {"products, float32": 10.0, "products, float64": 5.0, "copies": 2.0, "roots, float32": 4.0}
    row = harness.Row("x, float32", dict, dict, 0.0, (), flops=30.0, bytes=4.0)
    assert row.limit(rates) == 3.0
    assert harness.Row("x, float64", dict, dict, 0.0, (), flops=30.0, bytes=4.0).limit(rates) == 6.0
    assert harness.Row("x, float32", dict, dict, 0.0, (), flops=30.0, bytes=8.0, entries=20.0).limit(rates) == 5.0
    assert harness.Row("x", dict, dict, 0.0, ()).limit(rates) is None


def test_an_interval_holds_the_median_of_a_lopsided_law_as_often_as_it_says(benchmarks: Any) -> None:
    """Check how often intervals miss 1, the median of e^z, for 5 and 15 rounds. Narrower intervals must fail."""
    rng, runs = np.random.default_rng(0), 4000
    for rounds, k, misses in ((5, 1, 2 / 2**5), (15, 4, 2 * 576 / 2**15)):
        ratios = np.exp(rng.standard_normal((runs, rounds)))
        missed = narrow = 0
        for one in ratios:
            row = measured(benchmarks, 1.0)
            row.ratios = list(one)
            low, high = row.interval
            missed += not low <= 1 <= high
            narrow += not np.sort(one)[k] <= 1 <= np.sort(one)[-k - 1]
        error = 3 * (misses * (1 - misses) / runs) ** 0.5
        assert abs(missed / runs - misses) < error
        assert abs(narrow / runs - misses) > error


def test_a_report_replaces_its_processors_part_alone(benchmarks: Any) -> None:
    report = benchmarks("report")
    first = report.markdown({"processor": "A"}, {}, ["### row\n\nold"])
    both = report.markdown({"processor": "B"}, {}, ["### row\n\nother"], first)
    again = report.markdown({"processor": "A"}, {}, ["### row\n\nnew"], both)
    assert again.count("# Results of the benchmarks\n") == 1
    assert [line for line in again.splitlines() if line.startswith("## ")] == ["## A", "## B"]
    assert "new" in again
    assert "other" in again
    assert "old" not in again


def test_networks_are_the_same_to_minintk(benchmarks: Any) -> None:
    """minintk's weights have the names and shapes that `trace` yields. AlexNet has as many parameters as published."""
    networks = benchmarks("networks")
    cases = (
        (networks.mlp(5, 3), (7,), True), (networks.lenet(1), (28, 28, 1), True),
        (networks.resnet(True), (32, 32, 3), False), (networks.resnet(False, 4), (32, 32, 3), False),
        (networks.alexnet(), (224, 224, 3), True),
    )  # fmt: skip
    for net, shape, biases in cases:
        layout = mn.Network(networks.spec(net, biases), shape).layout
        traced = {f"{name}.W": size for name, size, _ in networks.trace(net, shape)}
        assert {t.name: t.shape for t in layout.tensors if t.name.endswith("W")} == traced
        assert biases == any(t.name.endswith("b") for t in layout.tensors)
    assert layout.size == 61_100_840


@pytest.mark.parametrize("linear", [False, True])
def test_references_are_right(benchmarks: Any, linear: bool) -> None:
    """For a small residual network, the reference agrees with minintk after two steps. After three, it differs."""
    networks, single = benchmarks("networks"), benchmarks("single")
    net = networks.resnet(not linear, 2)
    a = single.inputs(net, (8, 8, 3), 6, 10, False)
    how: dict[str, Any] = {"net": net, "lr": 0.01, "linear": linear}
    work = single.ours(a, "cpu", steps=2, **how)
    change = work.answer(work.run())["change"]
    right, wrong = (single.answer(a, steps=steps, **how)["change"] for steps in (2, 3))
    assert np.abs(change - right).max() < 1e-4 * np.abs(right).max()
    assert np.abs(change - wrong).max() > 1e-1 * np.abs(right).max()


@pytest.mark.parametrize("activation", ["relu", "erf", "sin", "gelu", "tanh"])
def test_references_of_kernels_are_right(benchmarks: Any, activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytic.fast.planes.BYTES_WORTH_NUMBA", 2**62)  # as `numba=False` does below, and back again
    kernels, reference = benchmarks("kernels"), benchmarks("reference")
    rng = np.random.default_rng(0)
    a = {"x": rng.standard_normal((6, 9)), "z": rng.standard_normal((3, 9))}
    how: dict[str, Any] = {"depth": 2, "activation": activation, "b_std": 0.1}
    work, right = kernels.ours(a, "cpu", **how), reference.infinite_kernels(a["x"], a["z"], w_std=2**0.5, **how)
    found = work.answer(work.run())
    for name, k in zip(("nngp", "ntk"), right, strict=True):
        assert np.abs(found[name] - k).max() < 1e-6 * np.abs(k).max()
    images, body = {"x": rng.standard_normal((2, 4, 4, 3))}, (activation, "mean", activation)
    work = kernels.ours_cnn(images, "cpu", body=body, pool=True, numba=False)
    found, right = work.answer(work.run()), reference.infinite_cnn_kernels(images["x"], body, True, 2**0.5, 0.1)
    for name, k in zip(("nngp", "ntk"), right, strict=True):
        assert np.abs(found[name] - k).max() < 1e-6 * np.abs(k).max()
    unpooled = reference.infinite_cnn_kernels(images["x"], (activation,) * 2, True, 2**0.5, 0.1)
    assert np.abs(unpooled[1] - right[1]).max() > 1e-3 * np.abs(right[1]).max()


def test_levels_of_pooled_runs(benchmarks: Any) -> None:
    """Check the report on 30 runs. One has a false alarm in a correct row, and another does not refuse the control."""
    levels = benchmarks("levels")

    def line(right: str, control: str) -> dict[str, Any]:
        rows = [["one", False, "0.1", right], ["two", False, "0.1", "pass"], ["wrong", True, "9", control]]
        return {"seed": 0, "seconds": 1, "rows": rows}

    said = levels.report([*[line("pass", "pass")] * 28, line("fail", "pass"), line("pass", "undecided")])
    assert said.startswith("30 full runs, 1 with a false alarm (below 15% at 95 %); of 100 resampled 3.3; rows")
    assert said.splitlines()[1:] == ["passed in 29 of 30: one", "control refused in 29 of 30: wrong"]
    assert "0 with a false alarm (below 10% at 95 %); of 100 resampled 0;" in levels.report([line("pass", "pass")] * 30)


def test_the_kept_runs_of_verify_mup_raised_no_alarm(benchmarks: Any) -> None:
    levels = benchmarks("levels")
    runs = [json.loads(text) for text in levels.KEPT.read_text("utf-8").splitlines()]
    assert len({one["seed"] for one in runs}) == len(runs) > 0
    head, *short = levels.report(runs).splitlines()
    assert f"{len(runs)} full runs, 0 with a false alarm" in head
    assert short == ["none"]
    assert laws.LEVELS.startswith(f"of {12 + len(runs)} full runs")  # 12 before any were kept
    assert f"the {len(runs)} kept refused every control" in laws.LEVELS


SECONDS = re.compile(r"([\d.]+) (us|ms|s)\b")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def times(text: str) -> list[float]:
    """Return the times in a text, converted to seconds."""
    return [float(number) * UNITS[unit] for number, unit in SECONDS.findall(text)]


def quoted(row: str, tables: list[str]) -> bool:
    """Return True if a table contains both times of a README row to 1.5 %, and the row states their ratio to 3 %."""
    ours, peer, ratio = row.strip("|").split("|")[1:]
    one, two = times(ours)[0], times(peer)[0]
    sides = [re.findall(r"(?m)^\| (.+?) +\|(.*)\|$", table) for table in tables]
    found = [{side: times(cells)[0] for side, cells in some if times(cells)} for some in sides]
    pairs = [(some["minintk"], other) for some in found if "minintk" in some for other in some.values()]
    right = two / one == pytest.approx(float(ratio), rel=0.03)
    return right and any((one, two) == pytest.approx(pair, rel=0.015) for pair in pairs)


def test_the_readme_quotes_the_results() -> None:
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "benchmarks/results.md")]
    rows = [row for row in re.findall(r"(?m)^\|.*\|$", pages[0]) if times(row)]
    assert len(rows) >= 4
    tables = pages[1].split("\n### ")
    assert all(quoted(row, tables) for row in rows), [row for row in rows if not quoted(row, tables)]
    assert not quoted(re.sub(r"[\d.]+ ms", "9 ms", rows[0], count=1), tables)
