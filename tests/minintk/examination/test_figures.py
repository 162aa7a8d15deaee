"""Test that the figures show the values of the report."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.examination.examine import examine
from minintk.examination.figures import figures, layers, run, widths


@pytest.fixture(scope="module")
def report() -> Any:
    x, y = mn.datasets.digits().subset(20, np.random.default_rng(0)).one_hot()
    net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(10)), (64,), mn.Standard())
    return examine(net, net.init(np.random.default_rng(0)), x, y, steps=20, replicates=3)


def test_figures_show_what_was_measured(report: Any) -> None:
    assert [name for name, *_ in figures(report)] == ["run.png", "layers.png", "widths.png"]
    loss, gap, rate = run(report).axes
    assert np.allclose(loss.lines[0].get_ydata(), report.run.loss)
    assert np.allclose(gap.lines[0].get_ydata(), 100 * report.run.gap)
    assert np.allclose(rate.lines[0].get_ydata(), report.run.rates)
    share, weights, inputs = layers(report).axes
    assert [bar.get_width() for bar in weights.patches] == pytest.approx(
        [100 * report.statements[f"weights {name}"].value for name in ("0.W", "2.W")]
    )
    assert len(share.patches) == 2
    assert [np.isfinite(bar.get_width()) for bar in inputs.patches] == [False, True]  # the first layer reads x
    assert [text.get_text() for text in share.get_yticklabels()] == ["0", "2"]
    assert len(widths(report).axes) == 2


def test_every_layer_of_a_deep_network_has_a_row_that_can_be_read(report: Any) -> None:
    names = [f"{i}.branch.0" for i in range(40)]
    statements = {f"share {name}": report.statements["share 0"] for name in names}
    figure = layers(replace(report, signals=dict.fromkeys(names), statements=statements))
    figure.canvas.draw()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == names
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: float(box.y0))
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))


def test_numbers_of_logarithmic_axes_are_plain_and_zeros_are_left_out(report: Any) -> None:
    figure = run(report)
    figure.canvas.draw()
    loss, gap, _ = figure.axes
    for axes in (loss, gap):
        labels = [text.get_text() for text in axes.get_yticklabels()]
        assert all(float(label) > 0 for label in labels), labels
    assert gap.get_ylim()[0] >= 0.1
    assert report.run.gap[0] == 0
    assert np.isfinite(gap.transData.transform(gap.lines[0].get_xydata())[1:]).all()
