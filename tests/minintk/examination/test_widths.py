"""Test wider specs, and the estimate of the width at which a gap with a known power law falls to 5 %."""

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.examination import widths as module
from minintk.examination.runs import Problem, parted
from minintk.examination.widths import gaps_by_width, law, narrowest, widened

CONV = mn.Sequential(
    mn.Conv2d(8), mn.ReLU(), mn.more_layers.GroupedConv2d(8, groups=8), mn.Residual(mn.Conv2d(8)), mn.GlobalAvgPool(),
    mn.Concat(mn.Dense(4), mn.Sequential(mn.Dense(6), mn.Tanh())), mn.Dense(3),
)  # fmt: skip


def test_every_layer_grows_but_the_last() -> None:
    assert widened(CONV, 1) == CONV
    wide = widened(CONV, 2)
    assert (wide.layers[0].channels, wide.layers[2].channels, wide.layers[2].groups) == (16, 16, 16)
    assert [wide.layers[5].inside[0].width, wide.layers[5].inside[1].layers[0].width] == [8, 12]
    assert wide.layers[6].width == 3
    assert mn.Network(wide, (8, 8, 1)).outputs == 3


def test_attention_grows_with_the_other_layers() -> None:
    spec = mn.Sequential(mn.Conv1d(8, 1), mn.GlobalSelfAttention(8, heads=2), mn.GlobalAvgPool(), mn.Dense(1))
    wide = widened(spec, 2)
    assert (wide.layers[0].channels, wide.layers[1].channels, wide.layers[1].heads) == (16, 16, 2)
    assert narrowest(spec) == 8
    assert mn.Network(wide, (5, 3)).outputs == 1


def test_the_last_layers_of_branches_that_end_the_network_stay() -> None:
    spec = mn.Sequential(mn.Dense(5), mn.Sum(mn.Dense(2), mn.Sequential(mn.Dense(7), mn.Dense(2))))
    wide = widened(spec, 3)
    assert [layer.width for layer in wide.layers[1].inside[1].layers] == [21, 2]
    assert narrowest(spec) == 5


def gaps(exponent: Any, scatter: Any, seeds: Any = 6, scale: Any = 2) -> Any:
    rng = np.random.default_rng(3)
    return tuple(scale * n**exponent * np.exp(scatter * rng.standard_normal(seeds)) for n in (64, 128, 256))


def test_the_width_for_five_percent_is_that_of_the_law() -> None:
    found = law("NTK()", 128, (64, 128, 256), gaps(-1.0, 0.02))  # 2 / n = 0.05 at 40
    assert found.needed is not None
    low, high = found.needed.interval
    assert low < 40 < high < 1.3 * low
    assert low < found.needed.value < high
    found = law("NTK()", 128, (64, 128, 256), gaps(-0.5, 0.02))  # 2 / n^(1/2) = 0.05 at 1600
    assert found.needed is not None
    low, high = found.needed.interval
    assert low < 1600 < high < 2 * low
    assert str(found).startswith("1570 (1400 to 1800), ")
    assert (found.needed.value, low, high) == pytest.approx((1570, 1400, 1800), rel=0.005)  # three digits are shown
    assert "extrapolated from 64 to 256, 12" in str(found)
    assert "extrapolated" not in str(law("NTK()", 128, (64, 128, 256), gaps(-2.0, 0.02, scale=500)))  # 500 / n^2 at 100


@pytest.mark.parametrize(("exponent", "scatter"), [(0.0, 0.1), (-0.5, 0.4), (-0.3, 0.15)])
def test_a_width_is_refused_that_the_seeds_do_not_decide(exponent: Any, scatter: Any) -> None:
    found = law("NTK()", 128, (64, 128, 256), gaps(exponent, scatter))
    assert found.needed is None
    assert str(found).startswith("refused: ")
    here = 100 * np.exp(np.log(found.gaps[found.widths.index(128)]).mean())
    assert str(found).endswith(f"; here the gap is {here:.3g} %")
    assert ("does not surely fall" in found.why) == (exponent == 0)


@pytest.mark.parametrize(("scatter", "refused"), [(0.10, False), (0.105, False), (0.115, True), (0.12, True)])
def test_a_width_is_known_to_a_factor_of_four(scatter: float, refused: bool) -> None:
    found = law("NTK()", 128, (64, 128, 256), gaps(-0.5, scatter))
    assert (found.needed is None) == refused == ("more than a factor of 4" in found.why)
    if found.needed is not None:
        assert found.needed.interval[1] < 4 * found.needed.interval[0]


def test_networks_without_hidden_layers_and_specs_that_cannot_grow_are_refused_in_words() -> None:
    x, y = np.eye(8, dtype=np.float32), np.eye(8, dtype=np.float32)
    how: dict[str, Any] = {"steps": 3, "seeds": 2, "fraction": 0.25, "factors": (1.0, 2.0)}
    how["rng"] = np.random.default_rng(0)
    net = mn.Network(mn.Dense(8), (8,))
    found = gaps_by_width(Problem(net, np.zeros(64, np.float32), x, y, mn.mse), mn.NTK(), True, **how)
    assert str(found) == "refused: the spec has no hidden layer to widen"
    net = mn.Network(mn.Sequential(mn.Residual(mn.Dense(8)), mn.Dense(8)), (8,))
    found = gaps_by_width(Problem(net, np.zeros(128, np.float32), x, y, mn.mse), mn.NTK(), True, **how)
    assert found.needed is None
    assert "Residual" in found.why


def test_gaps_fall_with_the_width_in_the_ntk_parametrization() -> None:
    x, y = mn.datasets.digits(dtype=np.float32).subset(20, np.random.default_rng(0)).one_hot()
    net = mn.Network(mn.Sequential(mn.Dense(16), mn.Tanh(), mn.Dense(10)), (64,))
    one = Problem(net, net.init(np.random.default_rng(0), dtype=np.float32), x, y, mn.mse)
    how: dict[str, Any] = {"steps": 50, "factors": (1.0, 8.0), "seeds": 4, "rng": np.random.default_rng(0)}
    found = gaps_by_width(one, mn.NTK(), True, fraction=0.25, **how)
    assert found.widths == (16, 128)
    assert found.fit is not None
    assert -1.4 < found.fit.exponent < -0.6  # 1/n, for a smooth activation


def test_widths_in_another_parametrization_are_of_networks_that_start_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch() draws biases with standard deviation 1 / sqrt(3 fan_in).

    The planted error is the same spec in NTK(), where biases have standard deviation 1.
    """
    seen: list[float] = []

    def spy(problem: Any, lr: float, steps: int) -> Any:
        seen.append(float(np.sqrt(np.mean(problem.net(problem.theta, problem.x) ** 2))))
        return parted(problem, lr, steps)

    monkeypatch.setattr(module, "parted", spy)
    x, y = mn.datasets.digits(dtype=np.float32).subset(20, np.random.default_rng(0)).one_hot()
    spec = mn.Sequential(mn.Dense(64, b_std=1.0), mn.Tanh(), mn.Dense(10, b_std=1.0))
    net = mn.Network(spec, (64,), mn.PyTorch())
    one = Problem(net, net.init(np.random.default_rng(0), dtype=np.float32), x, y, mn.mse)
    how: dict[str, Any] = {"fraction": 0.25, "steps": 2, "factors": (1.0,), "seeds": 6, "rng": np.random.default_rng(0)}
    gaps_by_width(one, net.parametrization, True, **how)
    gaps_by_width(one, mn.NTK(), True, **how)
    assert np.mean(seen[6:12]) == pytest.approx(np.mean(seen[:6]), rel=0.25)
    swapped = mn.Network(spec, (64,))
    planted = float(np.sqrt(np.mean(swapped(swapped.init(np.random.default_rng(0), dtype=np.float32), x) ** 2)))
    assert planted > 3 * np.mean(seen[:6])
