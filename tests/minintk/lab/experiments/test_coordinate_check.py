"""Test that the coordinate check finds the exponents that theory predicts, and names planted errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import to_library
from minintk.diagnostics import power_law
from minintk.lab.experiments import named
from minintk.lab.experiments.coordinate_check import CoordinateCheck, Scaling
from minintk.spec.parametrization import Parametrization, Role
from minintk.spec.parametrization import Row as TableRow
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.thinned import thinned

DIGITS = mn.datasets.digits(dtype=np.float32).subset(32, np.random.default_rng(0))
X, Y = DIGITS.one_hot()
IMAGES, _ = DIGITS.images().one_hot()
WIDTHS = (64, 128, 256, 512)
SGD, ADAM = mn.SGD(lr=0.1), mn.Adam(lr=0.01)


def check(spec: Callable[[int], mn.spec.Layer], optimizer: Any = SGD, **told: Any) -> CoordinateCheck:
    """Run the coordinate check on digits. The default of 24 seeds makes the intervals narrow."""
    settings: dict[str, Any] = {"loss": mn.mse, "widths": WIDTHS, "seeds": 24} | told
    x = settings.pop("x", X)
    return mn.coordinate_check(spec, x, Y[: len(x)].astype(x.dtype), optimizer=optimizer, **settings)


# ------------------------------------------------------------------------------------- what should pass


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("activation", "optimizer"),
    [
        ("tanh", SGD),
        pytest.param("relu", ADAM, marks=SLOW),
        pytest.param("relu", SGD, marks=SLOW),
        pytest.param("tanh", ADAM, marks=SLOW),
        pytest.param("tanh", mn.SGD(lr=0.05, momentum=0.5), marks=SLOW),
        pytest.param("relu", mn.SGD(lr=0.05, momentum=0.5), marks=SLOW),
    ],
    ids=["tanh SGD", "relu Adam", "relu SGD", "tanh Adam", "tanh momentum", "relu momentum"],
)
def test_spectral_mup_passes(activation: str, optimizer: mn.training.optimizers.Optimizer) -> None:
    found = check(named.spec_of_width("mlp", 10, 3, activation), optimizer)
    assert found.passed, found.report()
    assert found.verdict == "pass"
    assert found.blame == {}


@SLOW
def test_spectral_mup_passes_for_a_residual_network_and_a_convolutional_one() -> None:
    found = check(named.spec_of_width("resnet", 10, 2))
    assert found.passed, found.report()
    assert [r.name for r in found.rows if r.quantity == "dh"][:4] == ["1", "2.branch.1", "2.branch.3", "2"]
    found = check(named.spec_of_width("cnn", 10, 2), x=IMAGES[:16], widths=(16, 32, 64), seeds=24, tolerance=0.2)
    assert found.passed, found.report()


def test_mean_field_and_biases_pass_too() -> None:
    def spec(n: int) -> mn.spec.Layer:
        hidden = (mn.Dense(n, b_std=0.5), mn.Tanh(), mn.Dense(n, b_std=0.5, b_init="zeros"), mn.Tanh())
        return mn.Sequential(*hidden, mn.Dense(10, w_std=0.3, b_std=0.1))

    for parametrization in (mn.MeanField(), mn.SpectralMuP()):
        found = check(spec, mn.SGD(lr=0.03), parametrization=parametrization, seeds=64, widths=(64, 128, 256))
        assert found.passed, found.report()
        assert ("W", "2.b") not in [(r.quantity, r.name) for r in found.rows]  # this bias starts at zero


@pytest.mark.parametrize("optimizer", [mn.SGD(lr=0.02), mn.Adam(lr=0.01 / 64)], ids=["SGD", "Adam"])
def test_rates_of_a_base_width_carry_over(optimizer: mn.training.optimizers.Optimizer) -> None:
    """Learning rates chosen at width 64 carry over to other widths in spectral muP, but not in `Standard`."""
    spec, told = named.spec_of_width("mlp", 10, 2), {"widths": (64, 128, 256), "seeds": 12}
    found = check(spec, optimizer, parametrization=mn.SpectralMuP(base_width=64), **told)
    assert found.verdict != "fail", found.report()
    standard = check(spec, optimizer, parametrization=mn.Standard(), **told)
    assert standard.verdict == "fail"
    for one, two in zip(found.rows, standard.rows, strict=True):
        if one.quantity == "dW" and optimizer.rule == "adam":  # steps of the same size at width 64, whatever the start
            np.testing.assert_allclose(one.values[0].mean(), two.values[0].mean(), rtol=0.05)


def test_spectral_descent_passes_from_a_start_of_spectral_mup() -> None:
    found = check(
        named.spec_of_width("mlp", 10, 2), lambda net: mn.SpectralDescent(0.02, net.layout), widths=WIDTHS[:3]
    )
    assert found.passed, found.report()
    for name in ("1.W", "3.W", "5.W"):
        for values in found["dW", name].values:
            np.testing.assert_allclose(values, 0.02, rtol=0.02)


def test_equivalent_parametrizations_have_one_check() -> None:
    """Equivalent parametrizations give the same values up to float32 rounding and the errors of estimated norms."""
    mup = mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0, 0, 0))
    spec = named.spec_of_width("mlp", 10, 2)
    one, two = (check(spec, parametrization=p, seeds=2, widths=(64, 128)) for p in (mup, mup.shifted(0.3, -0.5, 0.2)))
    for a, b in zip(one.rows, two.rows, strict=True):
        np.testing.assert_allclose(np.stack(b.values), np.stack(a.values), rtol=2e-2 if "W" in a.quantity else 2e-4)


# ------------------------------------------------------------------------------------- what should fail


@pytest.mark.parametrize(
    ("parametrization", "optimizer"), thinned(product((mn.NTK(), mn.Standard()), (mn.SGD(1e-3), mn.Adam(1e-6))))
)
def test_ntk_and_standard_have_the_slopes_of_their_exponents(
    parametrization: Parametrization, optimizer: mn.training.optimizers.Optimizer
) -> None:
    """In the first step, slopes of |dW| agree with theory to within .1, and slopes of |dh| to within .25."""
    told: dict[str, Any] = {"parametrization": parametrization, "steps": 1, "widths": (128, 256, 512), "seeds": 12}
    found = check(named.spec_of_width("mlp", 10, 3), optimizer, x=X.astype(np.float64), **told)
    abc = mn.exponents(parametrization, optimizer.rule)
    output = (2 if optimizer.rule == "sgd" else 1) * abc.a[2] + abc.c[2] - 1
    hidden = abc.a[1] + abc.c[1] - 1 + (abc.a[1] + abc.a[2] + abc.b[2] if optimizer.rule == "sgd" else 0)
    first = abc.a[0] + abc.c[0] + (abc.a[0] + abc.a[2] + abc.b[2] if optimizer.rule == "sgd" else 0)
    for name, slope in zip(("1.W", "3.W", "5.W", "7.W"), (-first, -hidden, -hidden, -output)):
        assert exponent(found["dW", name]) == pytest.approx(slope, abs=0.1), found.report()
    moved = min(first, hidden)
    last = min(output, abc.a[2] + abc.b[2] + moved - 1)
    for name, slope in zip(("1", "3", "5", "7"), (-first, -moved, -moved, -last)):
        assert exponent(found["dh", name]) == pytest.approx(slope, abs=0.25), found.report()
    assert found.verdict == "fail"
    assert found.blame["7.W"].startswith("start")


def exponent(row: Scaling) -> float:
    assert row.fit is not None
    return row.fit.exponent


@dataclass(frozen=True)
class Wrong(Parametrization):
    """Spectral muP in which the rate or initial size of the weights at one place is wrong by a factor n^power."""

    power: float = 0.5
    what: str = "lr"
    place: str = "output"

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> TableRow:
        row = mn.SpectralMuP().row(role, fan_in, fan_out, sigma)
        if role.place != self.place or role.kind == "bias":
            return row
        by, adam = 0.0 if self.power == -np.inf else fan_in**self.power, row.rate("adam")
        if self.what == "std":
            return TableRow(1.0, row.std * by, row.lr, adam=adam)
        return TableRow(1.0, row.std, row.rate("sgd") * by, adam=adam * by)


def planted(layer: int, power: float) -> Callable[[int], mn.spec.Layer]:
    """Return n -> (network with three hidden layers, one with initial weights larger by a factor (n / 64)^power)."""

    def spec(n: int) -> mn.spec.Layer:
        std = [1.0, 1.0, 1.0]
        std[layer] *= (n / 64) ** power
        hidden = [a for w in std for a in (mn.Dense(n, w_std=w), mn.Tanh())]
        return mn.Sequential(*hidden, mn.Dense(10, w_std=0.3))

    return spec


@pytest.mark.parametrize(
    "optimizer", [mn.SGD(lr=0.01), pytest.param(mn.Adam(lr=0.001), marks=SLOW)], ids=["SGD", "Adam"]
)
@pytest.mark.parametrize("power", [0.25, -0.25])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_layer_that_starts_at_the_wrong_size_is_named(
    layer: int, power: float, optimizer: mn.training.optimizers.Optimizer
) -> None:
    found = check(planted(layer, power), optimizer, seeds=8, widths=WIDTHS[:3])
    assert not found.passed
    assert found.blame == {f"{2 * layer}.W": "start"}, found.report()
    assert f"to blame: {2 * layer}.W, its size at the start, off by n^(" in found.report()
    assert exponent(found["W", f"{2 * layer}.W"]) == pytest.approx(power, abs=0.03)


@pytest.mark.parametrize("optimizer", [mn.SGD(lr=0.1), pytest.param(mn.Adam(lr=0.01), marks=SLOW)], ids=["SGD", "Adam"])
def test_a_layer_that_learns_at_the_wrong_rate_is_named(optimizer: mn.training.optimizers.Optimizer) -> None:
    found = check(planted(0, 0.0), optimizer, parametrization=Wrong(), seeds=12, widths=WIDTHS[:3])
    assert found.verdict == "fail"
    assert found.blame == {"6.W": "rate"}, found.report()
    found = check(planted(0, 0.0), optimizer, parametrization=Wrong(what="std"), seeds=12, widths=WIDTHS[:3])
    assert found.blame == {"6.W": "start"}, found.report()


@pytest.mark.parametrize("optimizer", [SGD, ADAM, mn.Adam(lr=0.003)], ids=["SGD", "Adam", "slow Adam"])
@pytest.mark.parametrize(
    ("place", "power"), [("hidden", -np.inf), ("hidden", -1), ("hidden", -0.5), ("output", -np.inf)]
)
def test_a_layer_that_learns_less_and_less_or_not_at_all_fails(
    place: str, power: float, optimizer: mn.training.optimizers.Optimizer
) -> None:
    """The check fails for a layer that hardly learns, although the layer's features move with those below."""
    table = Wrong(power, place=place)
    found = check(planted(0, 0.0), optimizer, parametrization=table, seeds=4, widths=(64, 128, 256))
    assert found.verdict == "fail"
    assert found.blame == dict.fromkeys({"hidden": ("2.W", "4.W"), "output": ("6.W",)}[place], "rate"), found.report()
    assert ("does not move" in found.report()) == (power == -np.inf)


class Narrow(Parametrization):
    """Spectral muP whose input weights start like hidden weights, with std min(1, sqrt(n / d)) / sqrt(d)."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> TableRow:
        at = replace(role, place="hidden") if role.place == "input" else role
        return mn.SpectralMuP().row(at, fan_in, fan_out, sigma)


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(ADAM, marks=SLOW)], ids=["SGD", "Adam"])
def test_networks_narrower_than_their_inputs_pass(optimizer: mn.training.optimizers.Optimizer) -> None:
    """Networks of widths 64 to 256 pass on inputs of 784 pixels. With `Narrow` the check fails and names the tensor."""
    x = DIGITS.enlarged(3, frame=2).one_hot()[0].reshape(32, -1)
    assert x.shape == (32, 784)
    found = check(planted(0, 0.0), optimizer, x=x, widths=(64, 128, 256))
    assert found.passed, found.report()
    found = check(planted(0, 0.0), optimizer, x=x, widths=(64, 128, 256), seeds=4, parametrization=Narrow())
    assert found.verdict == "fail"
    assert found.blame["0.W"] == "start", found.report()


def test_a_slope_that_all_layers_share_is_no_layers_fault() -> None:
    """If initial outputs are large and fall as n^-1/2, all layers' first steps shrink equally. No layer is blamed."""

    def spec(n: int) -> mn.spec.Layer:
        hidden = (layer for _ in range(2) for layer in (mn.Dense(n, b_std=0.5), mn.Tanh()))
        return mn.Sequential(*hidden, mn.Dense(10, w_std=10.0))

    found = check(spec, mn.SGD(lr=0.001), seeds=8)
    assert found.verdict == "fail"
    assert found.blame == {}, found.report()
    assert "this slope is shared by all layers" in found.report()
    assert exponent(found["dL/df", "loss"]) < -0.3


def test_divergence_is_called_divergence() -> None:
    found = check(planted(0, 0.0), mn.SGD(lr=1000.0), widths=(16, 32), seeds=4)
    assert found.diverged == (16, 32)
    assert found.verdict == "fail"
    assert found.blame == {}
    assert "training diverges at n = 16, 32: the loss grew up to" in found.report()
    assert check(planted(0, 0.0), widths=(16, 32), seeds=2).diverged == ()


def test_weights_that_stand_still_are_noted() -> None:
    for still in (check(planted(0, 0.0), mn.SGD(lr=1e-30), widths=(16, 32), seeds=2),
                  check(planted(0, 0.0), x=0 * X, widths=(16, 32), seeds=2)):  # fmt: skip
        assert "nothing moves: the gradient is zero at these x and y, or the rate is below" in still.report()


# -------------------------------------------------------------------------------------------------- depth


class Shallow(Parametrization):
    """Spectral muP in which only the initial sizes depend on the number of residual branches.

    The rates depend only on the width.
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> TableRow:
        row = mn.SpectralMuP().row(replace(role, branches=1), fan_in, fan_out, sigma)
        return replace(row, std=row.std * role.depth[0])


@pytest.mark.parametrize("optimizer", [pytest.param(SGD, marks=SLOW), ADAM], ids=["SGD", "Adam"])
def test_features_keep_their_size_as_the_depth_grows(optimizer: mn.training.optimizers.Optimizer) -> None:
    """With 2 to 16 residual branches, features move by about the same amount.

    With rates that depend only on the width, the check fails and names weights in branches.
    """

    def spec(L: int) -> mn.spec.Layer:
        return named.spec_of_width("resnet", 10, L)(64)

    for table in (mn.SpectralMuP(), mn.MeanField()):
        found = check(spec, optimizer, widths=(2, 4, 8, 16), seeds=12, tolerance=0.15, parametrization=table)
        assert found.variable == "L"
        assert [r.name for r in found.rows if r.quantity == "dh"] == ["1", "2", "3", "5"]
        assert found.verdict != "fail", found.report()
        assert abs(exponent(found["dh", "3"])) < 0.1, found.report()
    wrong = check(spec, optimizer, widths=(2, 4, 8, 16), seeds=4, parametrization=Shallow())
    assert wrong.verdict == "fail"
    assert exponent(wrong["dh", "3"]) > 0.5
    assert wrong.blame["3.branch.3.W"] == "rate"
    assert ("3.branch.1.W" in wrong.blame) == (optimizer is ADAM)


# ------------------------------------------------------------------------------------ verdicts and errors


def row(slope: float, noise: float, at_most: bool = False) -> Scaling:
    rng = np.random.default_rng(0)
    values = tuple(n**slope * np.exp(noise * rng.standard_normal(10)) for n in WIDTHS)
    return Scaling("dh", "0", values, power_law(WIDTHS, values), 0.1, at_most)


def test_verdicts_follow_the_interval() -> None:
    assert row(0.0, 0.05).verdict == row(0.05, 0.02).verdict == "pass"
    assert row(0.2, 0.05).verdict == row(-0.2, 0.05).verdict == "fail"
    assert row(0.1, 0.1).verdict == row(0.0, 2.0).verdict == "undecided"
    assert row(-0.5, 0.05, at_most=True).verdict == "pass"
    assert row(0.5, 0.05, at_most=True).verdict == "fail"
    assert Scaling("dh", "0", (np.zeros(3),), None, 0.1).verdict == "fail"  # nothing moves
    for verdicts, want in (((0.0, 0.2), "fail"), ((0.0, 0.0), "pass")):
        rows = tuple(row(slope, 0.05) for slope in verdicts)
        assert CoordinateCheck("", "sgd", WIDTHS, rows, 0.1).verdict == want
    undecided = CoordinateCheck("", "sgd", WIDTHS, (row(0.0, 2.0),), 0.1)
    assert undecided.verdict == "undecided"
    assert not undecided.passed


def test_an_undecided_check_blames_nothing() -> None:
    """|W| alone does not decide the verdict. A wrong initial size is blamed only if the check fails."""
    start = replace(row(0.5, 0.05), quantity="W", name="0.W")
    unsure, wrong = (CoordinateCheck("", "sgd", WIDTHS, (row(*case), start), 0.1) for case in ((0.0, 2.0), (0.2, 0.05)))
    assert unsure.blame == {}
    assert "; more networks decide, by seeds= or budget=" in unsure.report()
    assert wrong.blame == {"0.W": "start"}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
def test_a_budget_of_seeds_decides_what_few_seeds_cannot(seed: int) -> None:
    """With a budget of seeds, the correct parametrization passes and the wrong one fails."""
    spec = named.spec_of_width("mlp", 10, 2)
    few, more = (check(spec, seeds=4, budget=budget, rng=np.random.default_rng(seed)) for budget in (None, 64))
    assert few.verdict != "fail"
    assert few.looks == 1
    assert more.passed, more.report()
    assert more.decision.passed
    assert more.decision.seeds == 4 * 2 ** (more.looks - 1)
    assert more.decision.confidence == pytest.approx(1 - 0.05 / 2**more.looks)
    wrong = check(spec, seeds=4, budget=64, parametrization=mn.NTK(), rng=np.random.default_rng(seed))
    assert wrong.decision.outcome == "fail"
    assert wrong.blame == {"5.W": "start"}


def test_few_seeds_leave_it_undecided() -> None:
    spec = named.spec_of_width("mlp", 10, 2)
    assert any(check(spec, seeds=4, rng=np.random.default_rng(seed)).verdict == "undecided" for seed in range(3))


def test_members_trained_apart_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = named.spec_of_width("mlp", 10, 1)
    together = check(spec, seeds=4, widths=(64, 128))
    monkeypatch.setattr("minintk.lab.experiments.layer_sizes.ENSEMBLE_BYTES", 1)
    apart = check(spec, seeds=4, widths=(64, 128))
    for a, b in zip(together.rows, apart.rows, strict=True):
        np.testing.assert_allclose(np.stack(b.values), np.stack(a.values), rtol=1e-4)


def test_report_and_figure() -> None:
    found = check(named.spec_of_width("mlp", 10, 1), seeds=4, widths=(32, 64))
    assert "layer  |h|" in found.report()
    assert "rounding" not in found.report()
    tiny = check(named.spec_of_width("mlp", 10, 1), mn.SGD(lr=1e-6), seeds=4, widths=(64, 128))
    assert "note: |dh| of 1 is close to the rounding error of |h|: use float64 or a larger rate" in tiny.report()
    figure = found.plot()
    assert len(figure.axes) == 4
    assert [len(axis.lines) for axis in figure.axes] == [10, 8, 4, 4]  # points and fits of two layers; earlier steps
    with pytest.raises(KeyError, match=r"\('h', '9'\)"):
        found["h", "9"]


def test_errors_say_what_was_expected() -> None:
    spec = named.spec_of_width("mlp", 10, 1)
    with pytest.raises(ValueError, match=r"widths expects two different whole numbers >= 1 at least, got \(64, 64\)"):
        check(spec, widths=(64, 64))
    with pytest.raises(ValueError, match="seeds expects a whole number >= 2, got 1"):
        check(spec, seeds=1)
    with pytest.raises(ValueError, match=r"gives \d+ parameters at all of the widths"):
        check(lambda n: spec(7))
    with pytest.raises(ValueError, match=r"the same layers at every width, .* but 128 and 64 differ"):
        check(lambda n: named.spec_of_width("mlp", 10, n // 64)(n))
    with pytest.raises(FloatingPointError, match="at n = 64: training diverged"):
        check(named.spec_of_width("mlp", 10, 2, "relu"), mn.SGD(lr=1e6), seeds=2, steps=30)
    with pytest.raises(FloatingPointError, match="at n = 64: training diverged in step 1"):
        check(named.spec_of_width("mlp", 10, 2, "relu"), mn.SGD(lr=1e39), x=1e10 * X, seeds=2)
    with pytest.raises(ValueError, match="tolerance expects a finite number > 0"):
        check(spec, tolerance=0)


# ------------------------------------------------------------------------------------------------ devices


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_array_library_measures_the_same(library: str) -> None:
    xp = namespace(library)
    x, y = to_library(X, xp), to_library(Y, xp)
    told: dict[str, Any] = {"loss": mn.mse, "widths": (32, 64), "seeds": 3}
    for kind, inputs in (("resnet", X), ("cnn", IMAGES)):
        spec = named.spec_of_width(kind, 10, 1)
        right = mn.coordinate_check(spec, inputs, Y, optimizer=ADAM, **told)
        given = mn.coordinate_check(spec, to_library(inputs, xp), y, optimizer=ADAM, **told)
        for a, b in zip(right.rows, given.rows, strict=True):
            np.testing.assert_allclose(np.stack(b.values), np.stack(a.values), rtol=1e-2)
    rates: dict[str, Any] = told | {"rates": (0.1, 0.5, 1e5), "optimizer": mn.SGD, "steps": 5}
    spec = named.spec_of_width("mlp", 10, 1)
    one, two = mn.learning_rate_transfer(spec, X, Y, **rates), mn.learning_rate_transfer(spec, x, y, **rates)
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-3)


def test_outputs_may_start_at_zero() -> None:
    """If outputs start at zero, the layers below do not move in the first step, so |dW| of later steps is used."""
    x, y = mn.datasets.digits(dtype=np.float32).subset(16, np.random.default_rng(0)).one_hot()
    silent = mn.ABC(a=(0, 0, 0), b=(0, 0.5, np.inf), c=(-1, 0, 1))
    check = mn.coordinate_check(
        lambda n: mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(10)), x, y, parametrization=silent,
        optimizer=mn.SGD(lr=0.1), loss=mn.mse, widths=(16, 32, 64), seeds=3,
    )  # fmt: skip
    assert check.verdict != "fail"
    assert check["dW", "0.W"].fit is not None
    assert ("W", "2.W") not in [(row.quantity, row.name) for row in check.rows]
