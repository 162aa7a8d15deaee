"""Test the tables of papers: verdicts on results (agree, differ, undecided), sizes, pages, and replications."""

import importlib
import json
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from math import nan
from pathlib import Path
from threading import Event, get_ident, local
from time import sleep
from typing import Any

import numpy as np
import pytest

from minintk.files.locks import Claim

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import verdicts.py as a script does, with the functions of intervals.py."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setitem(sys.modules, "intervals", importlib.import_module("intervals"))
    return importlib.import_module("verdicts")


def measured(shared: Any, *values: tuple[float, float]) -> list[Any]:
    """Return `Measured` objects with the given means and half-widths, and 9 degrees of freedom."""
    return [shared.Measured(mean, half, df=9) for mean, half in values]


@pytest.mark.parametrize(
    ("verdict", "values", "args", "says"),
    [
        ("above", [(2, 1), (3, 1)], (0.0,), True),
        ("above", [(2, 1), (1, 2)], (0.0,), None),
        ("above", [(2, 1), (-4, 1), (1, 2)], (0.0,), False),
        ("above", [(2, nan)], (0.0,), None),
        ("above", [(2, 0)], (0.0,), True),
        ("near", [(0.002, 0.02)], (0, 0.05), True),
        ("near", [(0.022, 0.146)], (0, 0.05), None),  # the interval is wider than the difference to resolve
        ("near", [(0.016, 0.001), (0.2, 0.06)], (0, 0.004), False),
        ("near", [(0.0, nan)], (0, 0.05), None),
        ("near", [(-0.45, 0.04)], (-0.5, 0.1), True),
        ("near", [(-0.45, 0.06)], (-0.5, 0.1), None),  # the interval reaches -.39
        ("near", [(0.995, 0.005), (0.978, 0.007), (0.941, 0.012)], (1.0, 0.1), True),
        ("at_most", [(-0.34, 0.17)], (-0.5,), None),  # the interval holds the bound, -.5 + .1
        ("at_most", [(-0.9, 0.1)], (-0.5,), True),
        ("at_most", [(-0.2, 0.1)], (-0.5,), False),
        ("below", [(0.31, 0.04)], (0.1,), False),  # 31 % is not close
    ],
)
def test_verdicts(shared: Any, verdict: str, values: Any, args: tuple[float, ...], says: bool | None) -> None:
    assert getattr(shared, verdict)(measured(shared, *values), *args).agrees is says


def test_joined_claims(shared: Any) -> None:
    good, bad = shared.near(measured(shared, (1, 0.01)), 1, 0.1), shared.near(measured(shared, (2, 0.01)), 1, 0.1)
    wide = shared.near(measured(shared, (1, 1)), 1, 0.1)
    assert [claim.agrees for claim in (good & good, good & bad, good & wide, bad & wide)] == [True, False, None, False]
    assert [claim.agrees for claim in (~good, ~bad, ~(good & bad), ~wide)] == [False, True, True, None]
    assert shared.one_of(good & bad).agrees is True
    assert shared.one_of(bad & bad).agrees is False
    assert (good & shared.unfinished("2 runs have not converged")).agrees is None
    assert shared.percent_of(good & shared.sure(True, "all learn")).rule == "within 10 of 100; all learn"


@pytest.mark.parametrize("many", [1, 4])
def test_a_row_has_one_level(shared: Any, many: int) -> None:
    """For true values at the margin's edge, at most 5 % (plus four standard errors) of 2,000 verdicts are wrong."""
    interval = importlib.import_module("intervals").interval
    rng, rows = np.random.default_rng(0), 2000
    answers = [
        shared.near([interval(v) for v in 1.1 + 0.1 * rng.standard_normal((many, 5))], 1, 0.1).agrees
        for _ in range(rows)
    ]
    most = 0.05 + 4 * np.sqrt(0.05 * 0.95 / rows)
    assert answers.count(True) <= most / 2 * rows  # one-sided
    assert answers.count(False) <= most * rows
    each = [
        any(shared.near([interval(v)], 1, 0.1).agrees is False for v in 1.1 + 0.1 * rng.standard_normal((12, 5)))
        for _ in range(rows // 4)
    ]
    assert np.mean(each) > most  # the control: testing each number at this level does not give the row this level


def test_more_seeds_make_a_right_number_agree(shared: Any) -> None:
    """Draw measurements whose mean differs from the paper's number by 4 %, as at a finite width.

    A rule without a margin around the paper's number would report a difference with 4,000 seeds.
    """
    interval = importlib.import_module("intervals").interval
    rng = np.random.default_rng(1)
    few, lots = (interval(0.96 + 0.3 * rng.standard_normal(n)) for n in (10, 4000))
    assert shared.near([few], 1, shared.RATIO).agrees is None
    assert shared.near([lots], 1, shared.RATIO).agrees is True
    assert lots.mean + lots.half < 1


def test_a_run_has_ended_where_its_accuracy_stands_still(monkeypatch: pytest.MonkeyPatch, shared: Any) -> None:
    settled = importlib.import_module("iterative_linearisation").settled
    times = np.linspace(1, 8, 8)
    assert settled(times, np.minimum(times / 4, 1)[None])
    assert not settled(times, (times / 8)[None])
    assert not settled(np.repeat([15.0, 30.0, 45.0], 3)[1:], np.ones((1, 8)))  # a single window in the last third


def row(number: int, paper: str, agrees: bool | None) -> dict[str, Any]:
    said = {"of": "", "size": "", "seeds": 1, "why": "", "rule": "" if paper == "-" else "> 0", "more": -3.0}
    return {"claim": f"claim {number}", "paper": paper, "here": "1", "agrees": agrees} | said


def test_the_page_counts_every_row_once(shared: Any) -> None:
    rows = [row(i, *each) for i, each in enumerate([("1", True), ("2", False), ("3", None), ("-", None)])]
    found = {"script": "one", "data": "mnist", "scale": "small", "core seconds": 60, "table": rows, "first seed": 7}
    sizes = {"paper": {"N": 1.0, "seeds": 0.5}, "close": {"N": 1.0, "width": 4.0}, "small": {"N": 30.0}}
    run = {"sizes": {"n": 200, "widths": (8, 16), "seeds": 4}, "papers": {"n": 6000, "widths": (16, 32), "seeds": 2}}
    results = {key: found | run | {"factors": factors} for key, factors in sizes.items()}
    results["digits"] = found | run | {"factors": {}, "data": "digits"}
    pages, docs = importlib.import_module("papers_page"), {"one": "Of Lee et al. 2019."}
    text = pages.page(results, docs)
    assert "models](lee.md) | 12 | 4 | 4 | 4 | 3 | 3 | 3 | 3 |" in text
    (own,) = pages.paper_pages(results, docs).values()
    verdicts = [
        [line.split("|")[-2].strip() for line in t.splitlines() if line.startswith("| claim ")] for t in (text, own)
    ]
    assert verdicts[0] == ["then", *["differs"] * 3, "cause", *["open"] * 3]
    assert verdicts[1] == 3 * ["agrees", "yes", "no", "undecided", ""]
    assert "size over ours: 30 (N); seeds from 7" in own
    assert "| one, MNIST | 4 | 200 (6,000) | 16 (32) |  | 4 (2) | 30 | 1.0 | 1 |" in text  # 30 x 4 / 2 minutes
    assert pages.digits_page(results, docs).count("| claim 0 |") == 1
    priced = text.partition("## What would decide")[2].partition("\n## ")[0]
    assert priced.count("| claim 2 | ") == priced.count("| 1 | > 0 | 3 seeds | 0.05 | differs |") == 3


@pytest.mark.parametrize(("target", "sign"), [(1.0, 1), (1.3, -1)])
def test_so_many_more_seeds_decide(shared: Any, target: float, sign: int) -> None:
    """The interval decides after 1.1 times as many repetitions as `more` says, but not after 0.9 times as many."""
    values = np.random.default_rng(2).standard_normal(200)
    values = 1.06 + 2 * (values - values.mean()) / values.std()  # a third of a standard error from either margin

    def answer(times: float) -> bool | None:
        found = importlib.import_module("intervals").interval(np.tile(values, round(times)))
        claim: bool | None = (shared.near([found], target, shared.RATIO) & shared.sure(True, "")).agrees
        return claim

    more = (shared.near([shared.Measured(1.06, 0.2789, df=199)], target, shared.RATIO) & shared.sure(True, "")).more
    assert answer(1) is answer(0.9 * abs(more)) is None
    assert answer(1.1 * abs(more)) is (more > 0) is (sign > 0)


def test_the_price_of_a_size_is_right_within_a_factor_of_three(shared: Any) -> None:
    """Compare estimated with measured costs of larger runs, which took 6 to 56 times as long as those on digits."""
    ledger, folder, off, larger = importlib.import_module("ledger"), EXAMPLES.parent / "docs" / "papers", [], []
    kept = {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    for name, small in kept.items():
        for large in (kept[f"{name}-{data}"] for data in ("mnist", "cifar10") if f"{name}-{data}" in kept):
            ratio = ledger.work(name, large["sizes"]) / ledger.work(name, small["sizes"])
            larger.append(large["core seconds"] / small["core seconds"])
            off.append(ratio / larger[-1])
    assert len(off) >= 6
    assert max(*off, *(1 / each for each in off)) < 3
    assert max(larger) > 30  # the control: the sizes matter


def test_runs_under_way_are_the_papers(shared: Any) -> None:
    """Each record in docs/papers/under-way belongs to its script, and its width is one of those of the size `paper`."""
    places = sorted((EXAMPLES.parent / "docs" / "papers" / "under-way").glob("*.runs/*/work.json"))
    for place in places:
        name = place.parents[1].stem
        script = importlib.import_module(name)
        assert json.loads(place.read_text("utf-8"))["work"] == f"{name}:{place.parent.name}"
        points = [json.loads(path.read_text("utf-8"))["point"] for path in place.parent.glob("records/*.json")]
        assert {point["width"] for point in points} <= set(script.SIZES["paper"]["widths"])
        assert len(points) == len({str(point) for point in points}) > 0
    assert len(places) >= 3


def test_the_pages_are_what_is_kept(shared: Any) -> None:
    for path, text in importlib.import_module("table").kept_pages().items():
        assert path.read_text("utf-8") == text, f"{path}: python3 make.py python examples/table.py --ran writes it"


def test_a_run_knows_how_much_larger_the_papers_is(shared: Any) -> None:
    running = importlib.import_module("running")
    ours, papers = {"widths": (16, 64), "seeds": 5, "n_train": 200}, {"widths": (100, 800), "seeds": 20}
    assert running.Setting(sizes=ours, papers=papers).factors == {"N": 1.0, "width": 12.5, "seeds": 4.0}


def test_sizes_on_the_command_line(shared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = importlib.import_module("running")
    asked: dict[str, Any] = {}

    def main(
        s: Any, widths: "tuple[int, ...]", members: int = 3, eta: "float" = 0.5, ends: "tuple[float, ...] | None" = None
    ) -> dict[str, Any]:
        asked.update(widths=widths, members=members, eta=eta, ends=ends, first=s.first_seed, factors=s.factors)
        return {"table": []}

    given = ["--widths", "8", "16", "--seeds", "4", "--ends", "1", "--first-seed", "1000", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["script", *given])
    running.command_line(main, {"small": {"widths": (2,)}, "paper": {"widths": (32,), "members": 8}}, None, "one")
    numbers = {"widths": [8, 16], "members": 4, "eta": 0.5, "ends": [1.0]}
    assert asked == numbers | {"first": 1000, "factors": {"width": 2, "seeds": 2}}
    with pytest.raises(TypeError, match="a type for every size, such as n: int, got none"):
        running.command_line(lambda s, n: {"table": []}, {"small": {"n": 2}}, None, "one")


def test_starters_that_end_together_keep_the_result(
    shared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files are complete although a second call writes both before the first call renames one of them."""
    running, rows = importlib.import_module("running"), importlib.import_module("claim_rows")
    right, others = os.replace, [Path("one.json"), Path("one.png")]

    def end() -> None:
        rows.finish(running.Setting("one", tmp_path), {}, [], lambda plt: plt.plot([0, 1]))

    def replace(part: Path, path: Path) -> None:
        if others and path.name == others[0].name:
            others.pop(0)
            end()
        right(part, path)

    monkeypatch.setattr(os, "replace", replace)
    end()
    assert not others
    assert json.loads((tmp_path / "one.json").read_text())["table"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "one.png"]


def test_parts_that_end_together_add_their_times(shared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of two one-second parts add up, although the second ends, or waits, before the first writes its time."""
    running = importlib.import_module("running")
    clock, waits, write, others = local(), Event(), running.write_bytes, list[Future[Any]]()
    me = get_ident()

    def second() -> float:
        clock.now = getattr(clock, "now", 0.0) + 1.0
        return float(clock.now)

    def end() -> None:
        running.command_line(lambda s: {"table": []}, {"small": {}}, None, "one")

    def claimed(*arguments: Any, **named: Any) -> Any:
        if get_ident() != me:
            waits.set()
        return Claim(*arguments, **named)

    def written(*arguments: Any) -> None:
        if not others:
            others.append(pool.submit(end))
            while not (waits.is_set() or others[0].done()):
                sleep(0.001)
        write(*arguments)

    monkeypatch.setattr(sys, "argv", ["script", "--out", str(tmp_path)])
    for name, value in (("perf_counter", second), ("Claim", claimed), ("write_bytes", written)):
        monkeypatch.setattr(running, name, value, raising=False)
    with ThreadPoolExecutor(1) as pool:
        end()
    others[0].result()
    assert json.loads((tmp_path / "one.time.json").read_text())["seconds"] == 2.0


def test_a_rerun_is_compared_number_by_number(shared: Any, tmp_path: Path) -> None:
    """`compared` counts numbers that differ by more than their errors, flipped verdicts, and newly undecided ones."""
    replicate, page = importlib.import_module("replicate"), importlib.import_module("papers_page")
    texts = (
        ("1.0 ± 0.3; b = -0.5 (-0.6 to -0.4)", "1.5 ± 0.3; b = -0.5 (-0.6 to -0.4)"),
        ("2 ± 1", "3.5 ± 1.2"),
        ("7", "8"),
    )
    says = (True, False), (True, None), (None, None)
    before, after = (
        [{"claim": "c", "here": text[i], "agrees": answer[i], "rule": "> 0"} for text, answer in zip(texts, says)]
        for i in (0, 1)
    )
    found = replicate.compared(before, after)
    assert (found["numbers"], found["beyond"], found["verdicts"], found["changed"]) == (3, 1, 3, 2)
    assert [flip["after"] for flip in found["flips"]] == [texts[0][1]]
    (tmp_path / "one.json").write_text(json.dumps({"counts": found}))
    said = page.replicated(page.added(tmp_path))
    assert ". Of 3 numbers, 1 (33.3%) differ" in said
    assert "Of 3 verdicts, 1 changed from" in said
    assert not page.replicated(page.added(tmp_path / "nowhere"))
