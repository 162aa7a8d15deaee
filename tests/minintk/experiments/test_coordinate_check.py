"""The coordinate check: the exponents that theory predicts, and planted errors found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from arrays_under_test import LIBRARIES, namespace

import minintk as mn
from minintk.arrays import to_library
from minintk.diagnostics import power_law
from minintk.experiments import named
from minintk.experiments.coordinate_check import CoordinateCheck, Scaling
from minintk.spec.parametrization import Parametrization, Role
from minintk.spec.parametrization import Row as TableRow

DIGITS = mn.datasets.digits(dtype=np.float32).subset(32, np.random.default_rng(0))
X, Y = DIGITS.one_hot()
IMAGES, _ = DIGITS.images().one_hot()
WIDTHS = (64, 128, 256, 512)
SGD, ADAM = mn.SGD(lr=0.1), mn.Adam(lr=0.01)


def check(spec: Callable[[int], mn.spec.Layer], optimizer: Any = SGD, **told: Any) -> CoordinateCheck:
    """On digits; with more seeds than the default, so that intervals are narrow."""
    settings: dict[str, Any] = {"loss": mn.mse, "widths": WIDTHS, "seeds": 24} | told
    x = settings.pop("x", X)
    return mn.coordinate_check(spec, x, Y[: len(x)].astype(x.dtype), optimizer=optimizer, **settings)


# ------------------------------------------------------------------------------------- what should pass


@pytest.mark.parametrize("optimizer", [SGD, ADAM, mn.SGD(lr=0.05, momentum=0.5)], ids=["SGD", "Adam", "momentum"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_spectral_mup_passes(activation: str, optimizer: mn.training.optimizers.Optimizer) -> None:
    found = check(named.spec_of_width("mlp", 10, 3, activation), optimizer)
    assert found.passed, found.report()
    assert found.verdict == "pass"
    assert found.blame == {}


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
        assert ("W", "2.b") not in [(r.quantity, r.name) for r in found.rows]  # it starts at zero


def test_spectral_descent_passes_from_a_start_of_spectral_mup() -> None:
    found = check(named.spec_of_width("mlp", 10, 2), lambda net: mn.SpectralDescent(0.02, net.layout))
    assert found.passed, found.report()
    for name in ("1.W", "3.W", "5.W"):
        for values in found["dW", name].values:
            np.testing.assert_allclose(values, 0.02, rtol=0.02)


def test_equivalent_parametrizations_have_one_check() -> None:
    """The same numbers for equivalent parametrizations, up to float32 rounding."""
    mup = mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0, 0, 0))
    spec = named.spec_of_width("mlp", 10, 2)
    one, two = (check(spec, parametrization=p, seeds=2, widths=(64, 128)) for p in (mup, mup.shifted(0.3, -0.5, 0.2)))
    for a, b in zip(one.rows, two.rows, strict=True):
        np.testing.assert_allclose(np.stack(b.values), np.stack(a.values), rtol=2e-2 if "W" in a.quantity else 2e-4)


# ------------------------------------------------------------------------------------- what should fail


@pytest.mark.parametrize("optimizer", [mn.SGD(lr=1e-3), mn.Adam(lr=1e-6)], ids=["SGD", "Adam"])
@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.Standard()], ids=repr)
def test_ntk_and_standard_have_the_slopes_of_their_exponents(
    parametrization: Parametrization, optimizer: mn.training.optimizers.Optimizer
) -> None:
    """|dW| of the first step has theory's slopes within .1; |dh| is on its way there, from what earlier layers add."""
    told: dict[str, Any] = {"parametrization": parametrization, "steps": 1, "widths": (128, 256, 512), "seeds": 12}
    found = check(named.spec_of_width("mlp", 10, 3), optimizer, x=X.astype(np.float64), **told)
    abc = mn.exponents(parametrization, optimizer.rule)
    output = (2 if optimizer.rule == "sgd" else 1) * abc.a[2] + abc.c[2] - 1
    hidden = abc.a[1] + abc.c[1] - 1 + (abc.a[1] + abc.a[2] + abc.b[2] if optimizer.rule == "sgd" else 0)
    first = abc.a[0] + abc.c[0] + (abc.a[0] + abc.a[2] + abc.b[2] if optimizer.rule == "sgd" else 0)
    for name, slope in zip(("1.W", "3.W", "5.W", "7.W"), (-first, -hidden, -hidden, -output)):
        assert exponent(found["dW", name]) == pytest.approx(slope, abs=0.1), found.report()
    first, hidden, output = abc.first_step
    for name, slope in zip(("1", "3", "5", "7"), (first, hidden, hidden, output)):
        assert exponent(found["dh", name]) == pytest.approx(slope, abs=0.25), found.report()
    assert found.verdict == "fail"
    assert found.blame["7.W"].startswith("start")


def exponent(row: Scaling) -> float:
    assert row.fit is not None
    return row.fit.exponent


@dataclass(frozen=True)
class Wrong(Parametrization):
    """Spectral muP with the output's rate, or its start, off by n^power."""

    power: float = 0.5
    what: str = "lr"

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> TableRow:
        row = mn.SpectralMuP().row(role, fan_in, fan_out, sigma)
        if role.place != "output" or role.kind == "bias":
            return row
        by, adam = fan_in**self.power, row.rate("adam")
        if self.what == "std":
            return TableRow(1.0, row.std * by, row.lr, adam=adam)
        return TableRow(1.0, row.std, row.lr * by, adam=adam * by)


def planted(layer: int, power: float) -> Callable[[int], mn.spec.Layer]:
    """A network of three hidden layers, one of which starts larger by n^power."""

    def spec(n: int) -> mn.spec.Layer:
        std = [1.0, 1.0, 1.0]
        std[layer] *= (n / 64) ** power
        hidden = [a for w in std for a in (mn.Dense(n, w_std=w), mn.Tanh())]
        return mn.Sequential(*hidden, mn.Dense(10, w_std=0.3))

    return spec


@pytest.mark.parametrize("optimizer", [mn.SGD(lr=0.01), mn.Adam(lr=0.001)], ids=["SGD", "Adam"])
@pytest.mark.parametrize("power", [0.25, -0.25])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_layer_that_starts_at_the_wrong_size_is_named(
    layer: int, power: float, optimizer: mn.training.optimizers.Optimizer
) -> None:
    found = check(planted(layer, power), optimizer, seeds=8)
    assert not found.passed
    assert found.blame == {f"{2 * layer}.W": "start"}, found.report()
    assert f"to blame: {2 * layer}.W, its size at the start, off by n^(" in found.report()
    assert exponent(found["W", f"{2 * layer}.W"]) == pytest.approx(power, abs=0.03)


@pytest.mark.parametrize("optimizer", [mn.SGD(lr=0.1), mn.Adam(lr=0.01)], ids=["SGD", "Adam"])
def test_a_layer_that_learns_at_the_wrong_rate_is_named(optimizer: mn.training.optimizers.Optimizer) -> None:
    found = check(planted(0, 0.0), optimizer, parametrization=Wrong())
    assert found.verdict == "fail"
    assert found.blame == {"6.W": "rate"}, found.report()
    found = check(planted(0, 0.0), optimizer, parametrization=Wrong(what="std"))
    assert found.blame == {"6.W": "start"}, found.report()


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
    assert Scaling("dh", "0", (np.zeros(3),), None, 0.1).verdict == "fail"  # it does not move
    for verdicts, want in (((0.0, 0.2), "fail"), ((0.0, 0.0), "pass")):
        rows = tuple(row(slope, 0.05) for slope in verdicts)
        assert CoordinateCheck("", "sgd", WIDTHS, rows, 0.1).verdict == want
    undecided = CoordinateCheck("", "sgd", WIDTHS, (row(0.0, 2.0),), 0.1)
    assert undecided.verdict == "undecided"
    assert not undecided.passed


def test_a_budget_of_seeds_decides_what_few_seeds_cannot() -> None:
    """The right table is never refused, nor left undecided; the wrong one is refused as before."""
    spec = named.spec_of_width("mlp", 10, 2)
    for seed in range(3):
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
    assert any(check(spec, seeds=4, rng=np.random.default_rng(seed)).verdict == "undecided" for seed in range(3))


def test_members_trained_apart_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = named.spec_of_width("mlp", 10, 1)
    together = check(spec, seeds=4, widths=(64, 128))
    monkeypatch.setattr("minintk.experiments.coordinate_check.ENSEMBLE_BYTES", 1)
    apart = check(spec, seeds=4, widths=(64, 128))
    for a, b in zip(together.rows, apart.rows, strict=True):
        np.testing.assert_allclose(np.stack(b.values), np.stack(a.values), rtol=1e-4)


def test_report_and_figure() -> None:
    found = check(named.spec_of_width("mlp", 10, 1), seeds=4, widths=(32, 64))
    assert "layer  |h|" in found.report()
    assert "note: 1.W has fan-in 64; below that width" in found.report()
    assert "rounding" not in found.report()
    tiny = check(named.spec_of_width("mlp", 10, 1), mn.SGD(lr=1e-6), seeds=4, widths=(64, 128))
    assert "note: |dh| of 1 is close to the rounding error of |h|: use float64 or a larger rate" in tiny.report()
    figure = found.plot()
    assert len(figure.axes) == 4
    assert all(len(axis.lines) == 4 for axis in figure.axes)  # two layers, points and fit
    with pytest.raises(KeyError, match=r"\('h', '9'\)"):
        found["h", "9"]


def test_errors_say_what_was_expected() -> None:
    spec = named.spec_of_width("mlp", 10, 1)
    with pytest.raises(ValueError, match=r"widths expects two different whole numbers >= 1 at least, got \(64, 64\)"):
        check(spec, widths=(64, 64))
    with pytest.raises(ValueError, match="seeds expects a whole number >= 2, got 1"):
        check(spec, seeds=1)
    with pytest.raises(ValueError, match=r"gives \d+ parameters at widths 64 and 512 alike"):
        check(lambda n: spec(7))
    with pytest.raises(ValueError, match="the same layers at every width, but 128 and 64 differ"):
        check(lambda n: named.spec_of_width("mlp", 10, n // 64)(n))
    with pytest.raises(FloatingPointError, match="at width 64: training diverged"):
        check(named.spec_of_width("mlp", 10, 2, "relu"), mn.SGD(lr=1e6), seeds=2, steps=30)
    with pytest.raises(FloatingPointError, match="at width 64: training diverged in the first step"):
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


def test_a_layer_that_starts_at_zero_is_reported() -> None:
    """Nothing moves below an output that is zero: |dW| of the input has no row, and the report does without."""
    x, y = mn.datasets.digits(dtype=np.float32).subset(16, np.random.default_rng(0)).one_hot()
    silent = mn.ABC(a=(0, 0, 0), b=(0, 0.5, np.inf), c=(-1, 0, 1))
    check = mn.coordinate_check(
        lambda n: mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(10)), x, y, parametrization=silent,
        optimizer=mn.SGD(lr=0.1), loss=mn.mse, widths=(16, 32, 64), seeds=3,
    )  # fmt: skip
    assert not check.passed
    assert "to blame: 0.W, its size at the start" in check.report()
