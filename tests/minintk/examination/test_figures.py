"""Figures hold the numbers of the report."""

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
    assert len(inputs.patches) == 1
    assert len(widths(report).axes) == 2
