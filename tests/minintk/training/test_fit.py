"""Compare `fit` with `train` and with a loop, and test evaluation, progress, random draws and errors."""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.arrays import to_host, to_library
from minintk.training import fit as fitting
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = mn.Array

NET = mn.Network(mn.Sequential(mn.Dense(12, b_std=0.1), mn.ReLU(), mn.Dense(10)), (64,))
RNG = np.random.default_rng(0)
DATA, TEST = mn.datasets.digits().split(53, 40, RNG)
(X, Y), (X_TEST, Y_TEST) = DATA.one_hot(), TEST.one_hot()
THETA = NET.init(RNG)


def go(theta: Array = THETA, x: Array = X, y: Array = Y, model: mn.Model = NET, **changes: Any) -> mn.Run:
    how: dict[str, Any] = {"loss": mn.softmax_cross_entropy, "optimizer": mn.SGD(lr=0.5, momentum=0.9), "steps": 20}
    if "epochs" in changes:
        del how["steps"]
    if changes.get("batch_size"):
        how["rng"] = np.random.default_rng(1)
    return mn.fit(model, theta, x, y, **(how | changes))


def accuracy(f: Array, y: Array) -> float:
    return float(np.mean([np.argmax(a) == np.argmax(b) for a, b in zip(f, y, strict=True)]))


# ------------------------------------------------------------------------------------- the run itself


@pytest.mark.parametrize("ensemble", [None, 3])
def test_a_row_holds_the_means_since_the_last_and_the_test_set(ensemble: int | None) -> None:
    """The history equals a history computed from the snapshots of `train`."""
    theta = NET.init(np.random.default_rng(4), ensemble=ensemble)
    run = go(theta, epochs=3, batch_size=8, test=(X_TEST, Y_TEST))
    snaps = list(
        mn.train(
            NET, theta, X, Y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=0.5, momentum=0.9), steps=18,
            batch_size=8, rng=np.random.default_rng(1),
        )
    )  # fmt: skip
    np.testing.assert_array_equal(run.theta, snaps[-1].theta)
    assert run.model is NET
    assert [row["step"] for row in run.history.rows] == [6, 12, 18]  # 53 // 8 steps per epoch
    np.testing.assert_array_equal(run.history["epoch"], [1, 2, 3])
    np.testing.assert_allclose(run.history["t"], [3, 6, 9], rtol=1e-15)
    np.testing.assert_array_equal(run.history["lr"], [0.5] * 3)
    assert (np.diff(run.history["seconds"]) >= 0).all()
    orders = np.random.default_rng(1)
    for k, row in enumerate(run.history.rows):
        order = orders.permutation(53)
        part = snaps[6 * k : 6 * k + 6]
        np.testing.assert_allclose(row["loss"], np.mean([s.loss for s in part], axis=0), rtol=1e-14)
        right = [
            [accuracy(f, Y[order[8 * i : 8 * i + 8]]) for f in s.f.reshape((-1, 8, 10))] for i, s in enumerate(part)
        ]
        np.testing.assert_allclose(row["accuracy"], np.squeeze(np.mean(right, axis=0)), rtol=1e-14)
        f = NET(snaps[6 * k + 6].theta, X_TEST)
        np.testing.assert_allclose(row["test_loss"], mn.softmax_cross_entropy(f, Y_TEST), rtol=1e-13)
        tests = np.squeeze([accuracy(g, Y_TEST) for g in f.reshape((-1, 40, 10))])
        np.testing.assert_allclose(row["test_accuracy"], tests, rtol=1e-14)


def test_full_batch_has_a_hundred_rows_and_no_epochs() -> None:
    run = go(steps=250)
    assert [row["step"] for row in run.history.rows] == list(range(2, 251, 2))
    assert "epoch" not in run.history.names
    assert len(go(steps=7).history) == 7
    assert [row["step"] for row in go(steps=7, every=3).history.rows] == [3, 6, 7]


def test_epochs_are_steps() -> None:
    np.testing.assert_array_equal(go(epochs=2, batch_size=10).theta, go(steps=10, batch_size=10).theta)


def test_no_steps_leave_theta_as_it_is() -> None:
    run = go(steps=0)
    np.testing.assert_array_equal(run.theta, THETA)
    assert len(run.history) == 0


def test_the_model_returned_is_the_one_arrived_at() -> None:
    run = go(model=mn.IterativelyLinearized(NET, THETA, every=4), steps=9)
    assert isinstance(run.model, mn.IterativelyLinearized)
    assert run.model.step == 9
    np.testing.assert_array_equal(
        run.model.theta0, go(model=mn.IterativelyLinearized(NET, THETA, every=4), steps=8).theta
    )


def test_float32_stays_float32() -> None:
    run = go(THETA.astype(np.float32), X.astype(np.float32), Y.astype(np.float32))
    assert run.theta.dtype == np.float32
    assert isinstance(run.history.last["loss"], float)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ensemble", [None, 2])
def test_every_array_library_fits_alike(library: str, ensemble: int | None, tmp_path: Path) -> None:
    xp = namespace(library)
    theta = NET.init(np.random.default_rng(4), ensemble=ensemble)
    theirs = go(
        *list[Any](to_library(a, xp) for a in (theta, X, Y)), epochs=2, batch_size=8, checkpoint=tmp_path,
        test=(to_library(X_TEST, xp), to_library(Y_TEST, xp)),
    )  # fmt: skip
    ours = go(theta, epochs=2, batch_size=8, test=(X_TEST, Y_TEST))
    np.testing.assert_allclose(to_host(theirs.theta), ours.theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(theirs.history["test_loss"], ours.history["test_loss"], rtol=1e-9)


# ------------------------------------------------------------------------------------------ evaluation


@given(st.integers(1, 60), st.sampled_from((None, 3)))
def test_evaluating_by_pieces_is_evaluating(batch_size: int, ensemble: int | None) -> None:
    theta = NET.init(np.random.default_rng(4), ensemble=ensemble)
    found = mn.evaluate(NET, theta, X, Y, loss=mn.softmax_cross_entropy, batch_size=batch_size)
    f = NET(theta, X)
    np.testing.assert_allclose(found["loss"], mn.softmax_cross_entropy(f, Y), rtol=1e-12)
    np.testing.assert_allclose(found["accuracy"], np.squeeze([accuracy(g, Y) for g in f.reshape((-1, 53, 10))]))


def test_a_sign_is_an_answer() -> None:
    x, y = DATA.parity()
    net = mn.Network(mn.Dense(1), (64,))
    theta = net.init(np.random.default_rng(0))
    found = mn.evaluate(net, theta, x, y, loss=mn.mse)
    assert found["accuracy"] == np.mean(np.sign(net(theta, x)) == y)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.eye(4), True),
        (np.eye(4) - 0.25, True),
        (2 * np.eye(4)[[0, 0, 1]] - 1, True),
        (np.array([[1.0], [-1.0]]), True),
        (np.array([[1.0], [0.5]]), False),
        (np.array([[0.1, 0.3], [0.2, -0.5]]), False),  # two numbers, one of which is larger
        (np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), False),  # probabilities instead of classes
        (np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), False),
    ],
)
def test_what_targets_are_classes(y: Array, classes: bool) -> None:
    assert fitting._are_classes(y) is classes
    net = mn.Network(mn.Dense(y.shape[1]), (2,))
    theta = net.init(np.random.default_rng(0))
    assert ("accuracy" in mn.evaluate(net, theta, np.ones((len(y), 2)), y, loss=mn.mse)) is classes


# ------------------------------------------------------------------------------------- history, progress


def test_the_history_is_kept_as_json(tmp_path: Path) -> None:
    run = go(epochs=3, batch_size=8, test=(X_TEST, Y_TEST), checkpoint=tmp_path)
    rows = json.loads((tmp_path / "history.json").read_text())
    assert rows == run.history.rows
    assert mn.History.load(tmp_path / "history.json").rows == rows
    run.history.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "history.json").read_text()
    for text in ("{}", "[1]", "[{"):
        (tmp_path / "again.json").write_text(text)
        with pytest.raises(ValueError, match=r"again\.json is damaged, or not a history"):
            mn.History.load(tmp_path / "again.json")


@pytest.mark.parametrize("ensemble", [None, 2])
def test_the_history_is_drawn(ensemble: int | None, tmp_path: Path) -> None:
    theta = NET.init(RNG, ensemble=ensemble)
    go(theta, epochs=2, batch_size=8, test=(X_TEST, Y_TEST)).history.draw(tmp_path / "curve.png", "digits")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    go(y=Y + 0.01, steps=5, loss=mn.mse, optimizer=mn.SGD(lr=0.01)).history.draw(tmp_path / "steps.png")
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_columns() -> None:
    history = mn.History([{"a": [1.0, 2.0]}, {"a": [3.0, 4.0], "b": 1}])
    np.testing.assert_array_equal(history["a"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(history["b"], [np.nan, 1])
    with pytest.raises(KeyError, match="the history has no 'c': it has a, b"):
        history["c"]
    assert mn.History().last == {}


def test_progress_is_a_line_a_row_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    go(epochs=2, batch_size=8, test=(X_TEST, Y_TEST), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    lines = " ".join(err.split())
    assert "step 6, epoch 1, " in lines
    assert "step 12, epoch 2, " in lines
    for word in ("loss", "accuracy", "test loss", "test accuracy", " s,"):
        assert word in lines


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    go(epochs=2, batch_size=8, progress=True)
    err = capsys.readouterr().err
    assert "100%" in err
    assert "epoch 2" in err


def test_silence_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    go(epochs=2, batch_size=8)
    assert capsys.readouterr() == ("", "")


def test_rich_and_matplotlib_are_for_those_who_ask() -> None:
    import subprocess

    code = (
        "import numpy as np, sys, minintk as mn; net = mn.Network(mn.Dense(1), (1,));"
        "mn.fit(net, np.ones(1), np.ones((2, 1)), np.ones((2, 1)), loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=3);"
        "print([name for name in ('rich', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_runs_in_a_thread(tmp_path: Path) -> None:
    """`fit` gives the same result outside the main thread, where signals cannot be handled."""
    found: list[mn.Run] = []
    thread = threading.Thread(target=lambda: found.append(go(steps=5, checkpoint=tmp_path)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0].theta, go(steps=5).theta)


# ------------------------------------------------------------------------------------------------ errors


def test_divergence_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    lin, optimizer = mn.Linearized(NET, THETA), mn.SGD(lr=50.0)  # a linear model diverges
    with pytest.warns(RuntimeWarning, match="stability bound"), pytest.raises(FloatingPointError, match="diverged"):
        go(model=lin, loss=mn.mse, optimizer=optimizer, steps=2000, every=2, checkpoint=tmp_path)
    state, _ = mn.training.checkpoints.load(tmp_path / "checkpoint.npz")
    assert np.isfinite(state.theta).all()
    assert 0 < state.step < 2000


def test_a_theta_that_overflows_in_its_last_step_is_not_kept(tmp_path: Path) -> None:
    lin = mn.Linearized(NET, THETA)
    with (
        pytest.warns(RuntimeWarning, match="stability bound"),
        pytest.raises(FloatingPointError, match="theta is no longer finite at step 1"),
        np.errstate(all="ignore"),
    ):
        go(model=lin, y=1e100 * Y, loss=mn.mse, optimizer=mn.SGD(lr=1e250), steps=1, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fit.lock"]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"steps": None}, ValueError, r"fit expects steps or epochs, one of them, got steps=None and epochs=None"),
        ({"steps": 5, "epochs": 5}, ValueError, r"one of them, got steps=5 and epochs=5"),
        ({"epochs": 0}, ValueError, r"epochs expects a whole number >= 1, got 0"),
        ({"every": 0}, ValueError, r"every expects a whole number >= 1, got 0"),
        ({"steps": -1}, ValueError, r"steps expects a whole number >= 0, got -1"),
        ({"batch_size": 54}, ValueError, r"batch_size expects a whole number from 1 to 53, got 54"),
        ({"test": (X_TEST[:, 1:], Y_TEST)}, ValueError, r"x expects shape \(N, 64\), got \(40, 63\)"),
        ({"test": (X_TEST, Y_TEST[1:])}, ValueError, r"y expects shape \(N, C\) = \(40, 10\), got \(39, 10\)"),
        ({"loss": "mse"}, TypeError, r"loss expects a loss such as mn\.mse"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    changes: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        go(checkpoint=tmp_path / "run", **({"steps": 5} | changes if "epochs" not in changes else changes))
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(NotADirectoryError, match="taken"):
        go(checkpoint=tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


# ----------------------------------------------------------------------------------------------- BatchNorm

NORMED = mn.Network(mn.Sequential(mn.Dense(12), mn.BatchNorm(), mn.ReLU(), mn.Dense(10)), (64,))


def test_a_network_with_batchnorm_is_tested_with_statistics_of_the_training_set() -> None:
    run = go(NORMED.init(np.random.default_rng(0)), model=NORMED, epochs=3, batch_size=8, test=(X_TEST, Y_TEST))
    frozen = NORMED.calibrate(run.theta, X)
    found = mn.evaluate(frozen, run.theta, X_TEST, Y_TEST, loss=mn.softmax_cross_entropy)
    assert run.history.last["test_accuracy"] == found["accuracy"]
    assert run.history.last["test_loss"] == found["loss"]
    of_the_batch = mn.softmax_cross_entropy(NORMED(run.theta, X_TEST), Y_TEST)
    assert abs(float(of_the_batch) - run.history.last["test_loss"]) > 1e-3


def test_calibration_examples_are_spread_over_the_training_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """If classes are sorted, statistics of the first examples would be those of some classes only."""
    seen: list[int] = []
    right = mn.Network.calibrate

    def calibrate(net: mn.Network, theta: Any, x: Any) -> mn.Network:
        seen.append(len(x))
        return right(net, theta, x)

    monkeypatch.setattr(mn.Network, "calibrate", calibrate)
    monkeypatch.setattr("minintk.training.fit.CALIBRATION_EXAMPLES", 20)
    run = go(NORMED.init(np.random.default_rng(0)), model=NORMED, epochs=1, batch_size=8, test=(X_TEST, Y_TEST))
    spread = NORMED.calibrate(run.theta, X[:: -(-len(X) // 20)])
    assert 10 < seen[0] <= 20
    found = mn.evaluate(spread, run.theta, X_TEST, Y_TEST, loss=mn.softmax_cross_entropy)
    assert run.history.last["test_loss"] == found["loss"]


def test_uncalibrated_evaluation_is_refused() -> None:
    theta = NORMED.init(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"depends on its batch: use net\.calibrate\(theta, x\)"):
        mn.evaluate(NORMED, theta, X, Y, loss=mn.mse)
    with pytest.raises(ValueError, match=r"must be frozen before Linearized\(.* has test outputs: use net\.calibrate"):
        go(theta, model=mn.Linearized(NORMED, theta), test=(X_TEST, Y_TEST))


# ------------------------------------------------------------------------------------------------- the rest


@pytest.mark.skipif("standin" not in LIBRARIES, reason="counts are the stand-in's")
@pytest.mark.parametrize("augment", [None, mn.Shift(1)])
def test_a_step_does_not_make_a_gpu_wait(augment: mn.Shift | None) -> None:
    """Forty additional steps cause no additional synchronisation. Only each epoch's order and shifts are uploaded."""
    from tests.kit.standin.device import counting

    xp = namespace("standin")
    net = mn.Network(mn.Sequential(mn.Flatten(), mn.Dense(5), mn.ReLU(), mn.Dense(10)), (8, 8, 1))
    theta = to_library(net.init(np.random.default_rng(0)), xp)
    x, y = to_library(DATA.images().x, xp), to_library(Y, xp)
    counts = []
    for steps in (5, 45):
        with counting() as counted:
            mn.fit(
                net, theta, x, y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=mn.Cosine(0.1, 45)), steps=steps,
                batch_size=10, rng=np.random.default_rng(0), augment=augment, every=1000,
            )  # fmt: skip
        counts.append(counted)
    few, many = counts
    assert many.synchronisations == few.synchronisations
    assert many.uploads - few.uploads == 8 * (1 if augment is None else 2)  # 5 steps per epoch


def test_the_page_on_training_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run again, the first code block of docs/training.md loads its finished run. The second block runs too."""
    page = Path(__file__).resolve().parents[3] / "docs" / "training.md"
    if not page.exists():
        pytest.skip("no docs here")
    block, flow = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: list[mn.Run] = []
    for _ in range(2):
        names: dict[str, Any] = {}
        exec(compile(block, "training.md", "exec"), names)
        found.append(names["run"])
    exec(compile(flow, "training.md", "exec"), {})
    first, second = found
    assert first.history.rows == second.history.rows
    assert first.history.last["test_accuracy"] > 0.9
    assert (tmp_path / "digits-mlp" / "curve.png").exists()


def test_the_time_of_a_resumed_run_includes_its_earlier_parts() -> None:
    record = fitting._Record(mn.History([]), False, {"seconds": 100.0}, np)
    assert 100.0 <= record.about()["seconds"] < 200.0
