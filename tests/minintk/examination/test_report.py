"""Test the text, the data and the files of reports."""

import json
from dataclasses import replace
from typing import Any

import matplotlib.image
import numpy as np
import pytest

import minintk as mn
from minintk.examination.examine import examine
from minintk.examination.judge import Statement
from minintk.examination.report import MEANS, Report, table
from minintk.examination.runs import Run
from minintk.examination.signals import Signal


@pytest.fixture(scope="module")
def report() -> Any:
    x, y = mn.datasets.digits().subset(20, np.random.default_rng(0)).one_hot()
    net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(10)), (64,), mn.Standard())
    return examine(net, net.init(np.random.default_rng(0)), x, y, steps=20, replicates=3)


def test_the_text_has_every_number_finding_and_sentence(report: Any) -> None:
    text = str(report)
    assert f"regime: {report.regime.upper()}" in text
    for row in report.rows():
        assert all(cell in text for cell in row)
    assert (
        f"at the rate {report.rate:.3g}, a quarter of the largest stable one; your network and 2 others, drawn"
        in " ".join(text.split())
    )
    assert "10 outputs: rates times 5" in " ".join(text.split())
    assert all(f"- {sentence}" in text for sentence in report.advice)
    assert all(f"width for 5 %, {name}, a quarter of its stable rate: " in text for name in ("Standard()", "NTK()"))
    assert report.advice[-1] == MEANS[report.regime]
    least = min(report.statements["safe"].interval[0], float(report.run.rates.min()))
    assert any(f"Keep the rate of SGD below {least:.2g}, " in sentence for sentence in report.advice)
    assert "\n\n\n" not in text
    assert text.endswith(f"took {report.seconds:.0f} s")
    assert "\n\n\n" not in str(replace(report, laws=(), scaling={}, signals={}, statements={}))
    assert repr(report).startswith(f"Report({report.regime}; ")
    assert [row[0] for row in report.layers()] == ["0", "2"]


def test_files(report: Any, tmp_path: Any) -> None:
    page = report.write(tmp_path / "out")
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"examine.html", "examine.txt", "examine.json", "run.png", "layers.png", "widths.png"}
    html = page.read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,") == 3
    assert report.regime.upper() in html
    numbers = json.loads((page.parent / "examine.json").read_text(encoding="utf-8"))
    assert numbers["regime"] == report.regime
    assert numbers["statements"]["gap"]["interval"] == list(report.statements["gap"].interval)
    assert matplotlib.image.imread(page.parent / "run.png").shape[2] == 4


def test_a_report_without_runs(tmp_path: Any) -> None:
    empty = Report("undecided", "no gradient can be followed", about="a network")
    assert "UNDECIDED" in str(empty)
    assert empty.advice == (MEANS["undecided"],)
    assert {p.name for p in empty.write(tmp_path).parent.iterdir()} == {"examine.html", "examine.txt", "examine.json"}


@pytest.mark.parametrize(("low", "met", "bound"), [(0.3, 0.2, "0.2"), (0.2, 0.3, "0.2"), (0.9, 0.8, "0.8")])
def test_the_rate_to_keep_below_is_the_lower_of_the_interval_and_the_run(low: float, met: float, bound: str) -> None:
    """The bound is the smaller of the interval's low end and the least stability bound of a run starting at 1."""
    a = np.ones(2)
    found = {"rate": Statement("", 1.0, (1.0, 1.0), ""), "safe": Statement("", 1.0, (low, 1.5), "")}
    run = Run(np.arange(2), a, a, a, 1.0, diverged=False, rates=np.array([1.0, met]))
    sentence, _ = Report("lazy", "", statements=found, run=run).advice
    assert f"below {bound}, the {'least bound of your run' if met < low else 'low end of the interval'}" in sentence
    assert ("though it starts at 1" in sentence) == (float(bound) < 0.5)


def test_dead_features_are_shown_in_percent() -> None:
    report = Report("undecided", "", signals={"2": Signal(1.0, 2.0, 0.5), "0": Signal(1.0, 2.0, None)})
    assert [row[:4] for row in report.layers()] == [("2", "1", "2", "50 %"), ("0", "1", "2", "")]


def test_tables_are_as_wide_as_their_cells_and_empty_without_rows() -> None:
    assert list(table(("a", "b"), [])) == []
    assert list(table(("a", "b"), [("1", "22"), ("333", "4")])) == ["a    b", "1    22", "333  4"]
