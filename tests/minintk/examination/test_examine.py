"""Test whole examinations: verdicts on networks whose regime is known, notes, and errors."""

import sys
import time
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

import minintk as mn
from minintk.examination import examine as module
from minintk.examination.examine import _afforded, examine
from minintk.examination.runs import full_run

X, Y = mn.datasets.digits().subset(30, np.random.default_rng(0)).one_hot()


def mlp(n: Any, act: Any, last: Any = 1.0, depth: Any = 1) -> Any:
    return mn.Sequential(*(mn.Dense(n, b_std=0.1), act) * depth, mn.Dense(10, w_std=last))


def asked(spec: Any, how: Any = None, x: Any = X, **options: Any) -> Any:
    net = mn.Network(spec, x.shape[1:], how)
    theta = options.pop("change", lambda theta: theta)(net.init(np.random.default_rng(1)))
    options = {"widths": False, "steps": 100, "replicates": 4} | options
    return examine(net, theta, x, Y, rng=np.random.default_rng(2), **options)


def kinds(report: Any) -> Any:
    return {finding.kind for finding in report.findings}


def test_lazy_with_intervals_around_what_a_user_would_measure() -> None:
    report = asked(mlp(256, mn.Erf()))
    assert (report.regime, report.findings) == ("lazy", ())
    net = mn.Network(mlp(256, mn.Erf()), (64,))
    rates = [mn.max_learning_rate(net, theta, X, mn.mse) for theta in net.init(np.random.default_rng(9), ensemble=12)]
    low, high = report.statements["rate"].interval
    assert low < np.mean(rates) < high
    assert report.statements["momentum"].value == pytest.approx(1.9 * report.statements["rate"].value)
    assert "features 2" in report.statements
    assert any(sentence.startswith("Keep the rate") for sentence in report.advice)


def test_every_replicate_runs_at_a_quarter_of_its_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, every replicate is trained at a quarter of its own stability bound.

    The bounds of small convolutional networks vary widely between draws. At a quarter of the smallest bound, most
    replicates would hardly move, and chance would decide the verdict.
    """
    seen: list[tuple[float, float]] = []

    def spy(problem: Any, lr: float, steps: int, start: float, **how: Any) -> Any:
        seen.append((lr, start))
        return full_run(problem, lr, steps, start, **how)

    monkeypatch.setattr(module, "full_run", spy)
    spec = mn.Sequential(mn.Conv2d(4, 3), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(10))
    asked(spec, x=X.reshape(-1, 8, 8, 1), steps=5)
    assert all(lr == pytest.approx(0.25 * start) for lr, start in seen)
    assert max(start for _, start in seen) > 1.5 * min(start for _, start in seen)
    seen.clear()
    asked(spec, x=X.reshape(-1, 8, 8, 1), steps=5, lr=0.01)
    assert {lr for lr, _ in seen} == {0.01}


def test_rich() -> None:
    report = asked(mlp(64, mn.Tanh(), depth=2), mn.MeanField())
    assert (report.regime, kinds(report)) == ("rich", set())
    safe = report.statements["safe"].value
    assert safe < 0.7 * report.statements["rate"].value  # the bound falls as features are learned
    assert safe == pytest.approx(2 / report.statements["sharpness end"].value, rel=0.5)


def test_unstable_and_short_by_the_rate() -> None:
    report = asked(mlp(64, mn.Tanh()), lr=100.0)
    assert (report.regime, kinds(report)) == ("undecided", {"unstable"})
    report = asked(mlp(64, mn.Tanh(), 0.1), lr=1e-3)
    assert (report.regime, kinds(report)) == ("undecided", {"short"})


def test_numbers_of_a_run_that_diverged_are_not_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the user's run diverged, the column "yours" reports the divergence.

    The column shows the first replicate's numbers only if that replicate is the user's run.
    """
    seen = list[Any]()

    def without_the_run(number: int) -> Any:
        def run(*given: Any, **how: Any) -> Any:
            seen.append(full_run(*given, **how))
            return replace(seen[-1], kernel=None, rates=np.zeros(0)) if len(seen) == number else seen[-1]

        monkeypatch.setattr(module, "full_run", run)
        seen.clear()
        return asked(mlp(16, mn.Tanh()), steps=10)

    report = without_the_run(1)
    assert [row[1] for row in report.rows() if row[0] == "largest stable rate along the run"] == ["diverged"]
    assert np.isfinite(report.statements["rate"].own)
    assert np.isfinite(report.statements["safe"].value)
    report = without_the_run(2)
    assert report.statements["safe"].own == seen[0].rates.min()


def test_badly_scaled() -> None:
    assert kinds(asked(mlp(64, mn.ReLU(), 30.0))) == {"badly scaled"}


def test_dead_with_and_without_a_gradient() -> None:
    spec = mn.Sequential(mn.Dense(64, b_std=1.0), mn.ReLU(), mn.Dense(10, b_std=1.0))
    net = mn.Network(spec, (64,))

    def killed(theta: Any) -> Any:
        net.layout.unpack(theta)["0.b"][...] = -100
        return theta

    report = asked(spec, change=killed)
    assert (report.regime, "dead" in kinds(report)) == ("undecided", True)
    assert "random halves" in report.about
    report = asked(mn.Sequential(*(mn.Dense(32, w_std=0.3), mn.Tanh()) * 25, mn.Dense(10)))
    assert (report.regime, kinds(report)) == ("undecided", {"dead"})  # not unstable, although it needs a huge rate
    report = asked(mlp(64, mn.ReLU()), change=lambda theta: 0 * theta)
    assert (report.regime, kinds(report)) == ("undecided", {"dead"})
    assert "no gradient" in str(report)


def test_batch_norm_is_frozen_and_subsets_are_named() -> None:
    spec = mn.Sequential(mn.Conv2d(4), mn.BatchNorm(), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(10))
    report = asked(spec, x=X.reshape(-1, 8, 8, 1), examples=10, steps=10)
    assert len(report.notes) == 2
    assert "10 of 30" in report.notes[0]


def test_dead_statements_name_nothing_that_was_not_measured() -> None:
    report = asked(mlp(64, mn.Tanh()), lr=100.0)
    assert {"rate", "momentum"} == set(report.statements)


def test_widths_and_the_coordinate_check() -> None:
    report = asked(mlp(32, mn.Erf()), widths=True, steps=30)
    (law,) = report.laws
    assert law.widths == (16, 48, 128)
    assert -1.6 < law.fit.exponent < -0.4
    assert set(report.scaling) == {"0", "2"}
    assert "|dh| -" in report.scaling["0"]  # in NTK, features move less in wider networks


def test_what_is_too_dear_is_left_out_and_named(tmp_path: Any) -> None:
    """If `seconds` is almost 0, the run is as short as possible and leaves out other widths and the sharpness."""
    report = asked(mlp(32, mn.Erf()), widths=True, steps=None, seconds=1e-6)
    assert "10 steps" in report.about
    assert "too dear for seconds=1e-06 (--seconds): sharpness" in report.notes[-1]
    assert "the width for a gap of 5 %" in report.notes[-1]
    assert (report.laws, report.scaling, len(report.run.rates)) == ((), {}, 2)
    assert not any(key.startswith("sharpness") for key in report.statements)
    assert report.write(tmp_path).exists()
    report = asked(mlp(32, mn.Erf()), steps=30, seconds=1e-6)
    assert "30 steps" in report.about
    assert "the width" not in report.notes[-1]
    report = asked(mlp(32, mn.Erf()), steps=30)
    assert (report.notes, len(report.run.rates), "sharpness end" in report.statements) == ((), 8, True)


def test_the_first_line_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stated time is correct to within a factor of four, with and without other widths.

    The test's clock advances by one second per 1,000 function calls.
    """
    spec = mn.Sequential(mn.Dense(64), mn.Tanh(), mn.Dense(64), mn.Tanh(), mn.Dense(10))
    calls, before = [0], sys.getprofile()

    def count(frame: object, event: str, _: object) -> None:
        calls[0] += event == "call"

    monkeypatch.setattr(time, "thread_time", lambda: calls[0] / 1000)
    for widths in (False, True):
        lines, start = list[str](), calls[0]
        sys.setprofile(count)
        try:
            asked(spec, widths=widths, steps=40, seconds=1e9, progress=lines.append)
        finally:
            sys.setprofile(before)
        took = (calls[0] - start) / 1000
        foretold = int(lines[0].removeprefix("about ").removesuffix(" s on an idle machine"))
        assert foretold / 4 < took < 4 * foretold, (widths, lines[0], took)
    assert lines[1].startswith("run 1 of 4")


def test_what_is_foretold_keeps_to_the_seconds_asked_for() -> None:
    for seconds in (20.0, 80.0, 1e6):
        steps, *_, needed = _afforded(seconds, 0.5, 0.5, 200, 10, 5, 12)
        assert needed <= seconds * 1.001
        assert 10 < steps <= 200
    assert _afforded(1e6, 0.5, 0.5, 200, 10, 5, 12)[1:4] == (8, 3, True)
    # ten kernels with rates take 10 s; five runs of 32 steps, of 0.5 s / STEPS each, take the other 10 s
    assert _afforded(20.0, 0.5, 0.5, 200, 10, 5, 12) == (32, 2, 0, False, 20.0)
    steps, *_, needed = _afforded(1.0, 0.5, 0.5, 200, 10, 5, 12)
    assert steps == 10
    assert needed > 1  # even the fewest steps take longer than the allowed 1 s


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        (X[:5], Y[:5], "N >= 8"),
        (X, Y[:, :3], "one-hot"),
        (X, np.argmax(Y, axis=1), "float32 or float64"),
    ],
)
def test_refusals(x: Any, y: Any, error: Any) -> None:
    net = mn.Network(mlp(8, mn.Tanh()), (64,))
    with pytest.raises((ValueError, TypeError), match=error):
        examine(net, net.init(np.random.default_rng(0)), x, y)
    with pytest.raises(ValueError, match="one network"):
        examine(net, net.init(np.random.default_rng(0), ensemble=2), X, Y)
    theta = net.init(np.random.default_rng(0))
    one = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (64,))
    with pytest.raises(NotImplementedError, match=r"Hinge.* has no second derivative"):
        examine(one, one.init(np.random.default_rng(0)), X, np.sign(Y[:, :1] - 0.5), loss=mn.hinge)
    with pytest.raises(TypeError):
        examine(cast(Any, mn.Linearized(net, theta)), theta, X, Y)
