"""Test that resumed runs are bitwise identical to uninterrupted ones, and that damaged files raise errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.arrays import to_host, to_library
from minintk.files import writing
from minintk.training import checkpoints, history
from tests.kit import interrupted
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.thinned import thinned

Array = np.ndarray[Any, Any]


class Stopped(Exception):
    pass


def stop() -> None:
    raise Stopped


def same(a: mn.Run, b: mn.Run) -> None:
    """Check that parameters and histories are bitwise identical, except for the column `seconds`."""
    np.testing.assert_array_equal(a.theta, b.theta)
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.history.rows] for r in (a, b)]
    assert rows[0] == rows[1]


# --------------------------------------------------------------------------------------------- kill -9


def killed(*arguments: str) -> int:
    """Run the script in a separate process, and return its exit status."""
    script = Path(interrupted.__file__)
    where = {**os.environ, "PYTHONPATH": str(script.parents[2])}
    done = subprocess.run([sys.executable, str(script), *arguments], env=where, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def after_kills(folder: Path, name: str) -> mn.Run:
    """Run until killed in the middle of an epoch, then until killed in the middle of writing, then to the end."""
    interrupted.prepare()
    assert killed(str(folder), name, "loss", "60") == -signal.SIGKILL
    first, _ = checkpoints.load(folder / "checkpoint.npz")
    assert killed(str(folder), name, "write", "2") == -signal.SIGKILL
    second, _ = checkpoints.load(folder / "checkpoint.npz")
    assert 0 < first.step < second.step < 100
    assert len(list(folder.glob("checkpoint.npz.*.part"))) == 1  # incomplete, and never read as a checkpoint
    resumed = interrupted.run(str(folder), name)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.npz", "fit.lock", "history.json"]
    return resumed


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
@pytest.mark.parametrize("name", ["network", pytest.param("lenet5", marks=pytest.mark.slow)])
def test_kill_9_and_resume(name: str, tmp_path: Path) -> None:
    resumed = after_kills(tmp_path / "killed", name)
    interrupted.prepare()
    unbroken = interrupted.run(None, name)
    assert killed(str(tmp_path / "whole"), name) == 0
    whole, _ = checkpoints.load(tmp_path / "whole" / "checkpoint.npz")
    same(resumed, unbroken)
    np.testing.assert_array_equal(whole.theta, unbroken.theta)
    assert resumed.history.last["test_accuracy"] > 0.25  # chance is 0.1 +- 0.03


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_a_second_starter_is_told_who_trains_here(tmp_path: Path) -> None:
    """During a run, the same call fails in this process and in another. If the run stops, the call resumes it."""
    told: list[str] = []

    def start_again() -> None:
        with pytest.raises(RuntimeError, match=rf"process {os.getpid()} on .* is at work") as caught:
            interrupted.run(str(tmp_path), loss=mn.softmax_cross_entropy)
        told.append(str(caught.value))
        script = Path(interrupted.__file__)
        where = {**os.environ, "PYTHONPATH": str(script.parents[2])}
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path), "network"],
            env=where,
            capture_output=True,
            check=False,
            text=True,
        )
        told.append(done.stderr.strip().rpartition("\n")[2])
        raise Stopped

    interrupted.prepare(30, start_again)
    with pytest.raises(Stopped):
        interrupted.run(str(tmp_path))
    assert "Wait for it, end it, or take another folder" in told[1]
    assert told[1].endswith(told[0])
    interrupted.prepare()
    same(interrupted.run(str(tmp_path)), interrupted.run(None))


# -------------------------------------------------------------------------------- stopped at any step

NAMES = [*interrupted.MODELS, "members"]


@pytest.mark.parametrize(("name", "step"), thinned(product(NAMES, (1, 16, 40, 99)), every=5))
def test_a_crash_anywhere(name: str, step: int, tmp_path: Path) -> None:
    """After an exception in the middle of a step, the last row is on disk, and training resumes from this row."""
    interrupted.prepare()
    unbroken = interrupted.run(None, name)
    interrupted.prepare(step, stop)
    with pytest.raises(Stopped):
        interrupted.run(str(tmp_path), name)
    interrupted.prepare()
    same(interrupted.run(str(tmp_path), name), unbroken)
    np.testing.assert_array_equal(mn.History.load(tmp_path / "history.json")["loss"], unbroken.history["loss"])


@pytest.mark.parametrize("files", [1, 2, 3, 4])
def test_a_kill_between_two_files(files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the writes of a row's two files loses nothing: the resumed history contains every row."""
    interrupted.prepare()
    unbroken, right, written = interrupted.run(None, steps=32), writing.write_atomically, list[Any]()

    def killed_after(path: Any, write: Any, need: int | None = None) -> None:
        right(path, write, need)
        written.append(path)
        if len(written) == files:
            raise Stopped

    with monkeypatch.context() as patch:
        for module in (checkpoints, history):
            patch.setattr(module, "write_atomically", killed_after)
        with pytest.raises(Stopped):
            interrupted.run(str(tmp_path), steps=32)
    same(interrupted.run(str(tmp_path), steps=32), unbroken)
    np.testing.assert_array_equal(mn.History.load(tmp_path / "history.json")["loss"], unbroken.history["loss"])


@pytest.mark.parametrize("name", ["network", "members"])
@pytest.mark.parametrize("optimizer", [mn.SGD(lr=0.1), mn.Nesterov(lr=0.1), mn.Adam(lr=mn.Cosine(0.01, 100))], ids=repr)
def test_every_optimiser_goes_on(name: str, optimizer: Any, tmp_path: Path) -> None:
    interrupted.prepare()
    unbroken = interrupted.run(None, name, optimizer=optimizer)
    interrupted.prepare(40, stop)
    with pytest.raises(Stopped):
        interrupted.run(str(tmp_path), name, optimizer=optimizer)
    interrupted.prepare()
    same(interrupted.run(str(tmp_path), name, optimizer=optimizer), unbroken)


def test_what_is_not_kept_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resuming needs every part of the state: momentum, the epoch's order, the anchor and the step."""
    interrupted.prepare()
    unbroken = interrupted.run(None, "iterative")
    right = checkpoints.load

    def without(part: str) -> mn.State:
        def load(*arguments: Any, **options: Any) -> Any:
            state, about = right(*arguments, **options)
            fields = dict(vars(state))
            if part == "memory":
                fields["memory"] = np.zeros_like(state.theta)
            elif part == "rng":
                fields["rng"] = None
            elif part == "step":
                fields["step"] = state.step + 1
            else:
                fields["anchors"] = state.anchors | {part: 0 * state.anchors[part]}
            return mn.State(**fields), about

        return load  # type: ignore[return-value]

    for part in ("memory", "rng", "theta0", "step"):
        folder = tmp_path / part
        interrupted.prepare(40, stop)
        with pytest.raises(Stopped):
            interrupted.run(str(folder), "iterative")
        interrupted.prepare()
        with monkeypatch.context() as patch:
            patch.setattr("minintk.training.fit.load", without(part))
            found = interrupted.run(str(folder), "iterative")
        assert not np.array_equal(found.theta, unbroken.theta), part


@pytest.mark.parametrize("step", [5, 37, 100])
def test_ctrl_c_finishes_the_step_and_keeps_it(step: int, tmp_path: Path) -> None:
    """Ctrl-C saves the current step, even in the middle of an epoch, with the running means of the history."""
    interrupted.prepare()
    unbroken = interrupted.run(None)
    before = signal.getsignal(signal.SIGINT)
    evaluations = 1 if step > 16 else 0  # of the test set, before step `step`
    interrupted.prepare(step + evaluations * (step // 16), lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match=rf"step {step} is saved in .*; the same call resumes from there"):
        interrupted.run(str(tmp_path))
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoints.load(tmp_path / "checkpoint.npz")[0].step == step
    interrupted.prepare()
    same(interrupted.run(str(tmp_path)), unbroken)


def test_a_second_ctrl_c_is_obeyed_at_once(tmp_path: Path) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    interrupted.prepare(37, twice)
    with pytest.raises(KeyboardInterrupt):
        interrupted.run(str(tmp_path))
    assert checkpoints.load(tmp_path / "checkpoint.npz")[0].step == 32  # the last row: two epochs of 16 steps
    interrupted.prepare()


def test_an_exception_as_soon_as_ctrl_c_is_deferred_ends_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, before = signal.signal, signal.getsignal(signal.SIGINT)

    def late(*arguments: Any) -> None:
        monkeypatch.undo()
        right(*arguments)
        raise Stopped

    monkeypatch.setattr(signal, "signal", late)
    with pytest.raises(Stopped):
        interrupted.run(str(tmp_path))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_is_read_back_and_can_be_made_longer(tmp_path: Path) -> None:
    interrupted.prepare()
    whole = interrupted.run(None)
    interrupted.run(str(tmp_path), steps=64)
    assert interrupted.Fatal.calls > 0
    same(interrupted.run(str(tmp_path)), whole)
    interrupted.prepare()
    again = interrupted.run(str(tmp_path))
    assert interrupted.Fatal.calls == 0  # nothing left to do
    same(again, whole)
    with pytest.raises(ValueError, match=r"holds this run at step 100, beyond 64: ask for more steps"):
        interrupted.run(str(tmp_path), steps=64)


# --------------------------------------------------------------------------------- files that do not fit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    interrupted.prepare()
    interrupted.run(str(tmp_path), steps=32)
    return tmp_path


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(folder: Path, share: float) -> None:
    path = folder / "checkpoint.npz"
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match=r"checkpoint\.npz is damaged, or not a checkpoint .*: move it away"):
        interrupted.run(str(folder))


@given(place=st.floats(0.05, 0.9))
def test_a_flipped_byte_in_the_arrays(place: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("flip") / "checkpoint.npz"
    state = mn.State(3, np.arange(2000.0))
    checkpoints.save(path, state)
    data = bytearray(path.read_bytes())
    where = 200 + int(place * 15_000)  # inside theta's 16,000 bytes
    data[where] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="damaged"):
        checkpoints.load(path)


@pytest.mark.parametrize("offset", [6, 8], ids=["a version of zip to come", "encrypted"])
def test_a_flipped_bit_in_the_list_of_contents(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "checkpoint.npz"
    checkpoints.save(path, mn.State(3, np.arange(20.0)))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + offset] ^= 65
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="damaged"):
        checkpoints.load(path)


def test_a_text_that_unpacks_to_more_than_its_file_is_refused(tmp_path: Path) -> None:
    """Parsed into Python objects, text can take 1600 times the size of its file: 0.7 GB for a 0.4 MB file."""
    about = b'{"format": 1, "step": 0, "rng": null, "about": {"": [' + b"[]," * 10**5 + b"[]]}}"
    path = tmp_path / "checkpoint.npz"
    arrays: dict[str, Any] = {"theta": np.zeros(3), "about": np.frombuffer(about, np.uint8)}
    np.savez_compressed(path, allow_pickle=False, **arrays)
    with pytest.raises(ValueError, match=r"its text has 300058 bytes, more than the file"):
        checkpoints.load(path)
    np.savez(path, allow_pickle=False, **arrays)
    assert checkpoints.load(path)[0].step == 0


@pytest.mark.parametrize("kind", ["text", "npz", "npy", "pickle", "format"])
def test_a_foreign_file(folder: Path, kind: str) -> None:
    path = folder / "checkpoint.npz"
    words = r"damaged, or not a checkpoint of minintk"
    if kind == "text":
        path.write_text("not an archive")
    elif kind == "npz":
        np.savez(path, theta=np.ones(3))
    elif kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    elif kind == "pickle":
        np.savez(path, theta=np.array([{}], dtype=object), about=np.zeros(1, np.uint8))
    else:
        with np.load(path) as stored:
            arrays = dict(stored)
        text = json.loads(arrays["about"].tobytes()) | {"format": 99}
        np.savez(path, **arrays | {"about": np.frombuffer(json.dumps(text).encode(), np.uint8)})
        words = "is a checkpoint of format 99, this version reads 1"
    with pytest.raises(ValueError, match=words):
        interrupted.run(str(folder))


@pytest.mark.parametrize(
    ("name", "changes", "differs"),
    [
        ("linearised", {}, "model"),
        ("network", {"optimizer": mn.SGD(lr=0.1)}, r"optimizer SGD\(lr=Cosine\(lr=0\.3.*there, SGD\(lr=0\.1"),
        ("network", {"loss": mn.mse}, "loss Fatal"),
        ("network", {"batch_size": 16}, "batch_size 8 there, 16 here"),
        ("network", {"augment": None}, r"augment Shift\(pixels=1, fill=0\.0\) there, None here"),
        ("network", {"rng": np.random.default_rng(7)}, "generator PCG64"),
        ("network", {"lr_scales": {"1.W": 0.5}}, "lr_scales"),
        ("members", {}, "theta0"),
    ],
)
def test_another_runs_checkpoint(folder: Path, name: str, changes: dict[str, Any], differs: str) -> None:
    before = (folder / "checkpoint.npz").read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to another run: .*{differs}.*another folder to start over"):
        interrupted.run(str(folder), name, **changes)
    assert (folder / "checkpoint.npz").read_bytes() == before


def test_a_state_saved_by_hand_belongs_to_no_run_of_fit(folder: Path) -> None:
    checkpoints.save(folder / "checkpoint.npz", mn.State(3, np.ones(2)))
    with pytest.raises(ValueError, match="belongs to another run: model None there"):
        interrupted.run(str(folder))


def test_other_data_is_another_run(tmp_path: Path) -> None:
    net = mn.Network(mn.Dense(1), (2,))
    theta, x, y = np.ones(2), np.eye(2), np.ones((2, 1))
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.1), "steps": 3, "checkpoint": tmp_path}
    mn.fit(net, theta, x, y, **how)
    with pytest.raises(ValueError, match="another run: data"):
        mn.fit(net, theta, x + 1e-12, y, **how)
    with pytest.raises(ValueError, match="another run: theta0"):
        mn.fit(net, theta + 1e-12, x, y, **how)
    how["checkpoint"] = tmp_path / "linearised"
    mn.fit(mn.Linearized(net, theta), theta, x, y, **how)
    with pytest.raises(ValueError, match=r"another run: model .* at .* there, .* at .* here"):
        mn.fit(mn.Linearized(net, 2 * theta), theta, x, y, **how)
    with pytest.raises(ValueError, match=r"another run: model Linearized\(.*, theta0\).* params='last'"):
        mn.fit(mn.Linearized(net, theta, params="last"), theta, x, y, **how)


@pytest.mark.parametrize("wrap", [lambda net, theta: net, mn.Linearized, lambda net, t: mn.Centred(net, t, 2.0)])
def test_networks_that_differ_in_a_scale_alone_are_different_runs(wrap: Any) -> None:
    """Networks with the same short repr but different scales must have different fingerprints."""
    texts = set()
    for w_std in (1.0, 2.0):
        net = mn.Network(mn.Sequential(mn.Dense(4, w_std=w_std), mn.Tanh(), mn.Dense(1)), (3,))
        theta = np.zeros(net.size)
        texts.add(checkpoints.fingerprint(wrap(net, theta), theta, np.eye(3), np.eye(3))["model"])
    assert len(texts) == 2


def test_another_probe_or_calibration_is_another_run() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(3), mn.BatchNorm(), mn.Dense(1)), (2,))
    theta, x = net.init(np.random.default_rng(0)), np.eye(2)
    texts = [checkpoints.fingerprint(net.calibrate(theta, k * x), theta, x, x)["model"] for k in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    frozen = net.calibrate(theta, x)
    models = [mn.IterativelyLinearized(frozen, theta, mn.Moved(0.1, k * x)) for k in (1, 1, 2)]
    texts = [checkpoints.fingerprint(model, theta, x, x)["model"] for model in models]
    assert texts[0] == texts[1] != texts[2]


# -------------------------------------------------------------------- train itself, and the file on its own


@pytest.mark.parametrize(("name", "library"), thinned(product(NAMES, LIBRARIES)))
def test_train_goes_on_from_any_snapshot(name: str, library: str, tmp_path: Path) -> None:
    """Training resumes from a snapshot, in memory or saved to a file, with every array library."""
    xp = namespace(library)
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(6), mn.Tanh(), mn.Dense(2)), (3,))
    theta = to_library(net.init(rng, ensemble=3 if name == "members" else None), xp)
    x, y = (to_library(rng.standard_normal((7, d)), xp) for d in (3, 2))

    def go(**changes: Any) -> list[mn.Snapshot]:
        model = interrupted.MODELS.get(name, interrupted.MODELS["network"])(net, theta)
        how: dict[str, Any] = {
            "loss": mn.mse, "optimizer": mn.SGD(lr=mn.WarmUp(9, 0.05), momentum=0.9), "steps": 40, "batch_size": 3,
            "rng": np.random.default_rng(1),
        }  # fmt: skip
        return list(mn.train(model, theta, x, y, **(how | changes)))

    whole = go()
    for step in (0, 1, 6, 17, 33, 40):
        checkpoints.save(tmp_path / "state.npz", whole[step].state)
        stored, _ = checkpoints.load(tmp_path / "state.npz", like=theta)
        for state in (whole[step].state, stored):
            resumed = go(resume=state)
            assert [s.step for s in resumed] == list(range(step, 41))
            for a, b in zip(resumed, whole[step:], strict=True):
                for one, other in ((a.theta, b.theta), (a.f, b.f), (a.loss, b.loss)):
                    np.testing.assert_array_equal(to_host(one), to_host(other))
                assert a.t == b.t


@pytest.mark.parametrize("generator", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_every_generator_goes_on(generator: Any, tmp_path: Path) -> None:
    def go(folder: Path | None, steps: int) -> mn.Run:
        return interrupted.run(
            None if folder is None else str(folder), steps=steps, rng=np.random.Generator(generator(5))
        )

    interrupted.prepare()
    go(tmp_path, 37)
    same_theta = go(tmp_path, 90).theta
    np.testing.assert_array_equal(same_theta, go(None, 90).theta)


def test_states_of_other_runs_are_refused() -> None:
    net = mn.Network(mn.Dense(1), (2,))
    data = np.eye(2), np.ones((2, 1))

    def go(theta: Array, momentum: float, **more: Any) -> list[mn.Snapshot]:
        return list(
            mn.train(net, theta, *data, loss=mn.mse, optimizer=mn.SGD(lr=0.1, momentum=momentum), steps=3, **more)
        )

    state = go(np.ones(2), 0.9)[-1].state
    with pytest.raises(ValueError, match=r"a state of this run, .* and no momentum, got .* and momentum \(2,\)"):
        go(np.ones(2), 0.0, resume=state)
    with pytest.raises(ValueError, match=r"theta \(2, 2\) float64 and momentum \(2, 2\), got theta \(2,\) float64"):
        go(np.ones((2, 2)), 0.9, resume=state)
    with pytest.raises(ValueError, match=r"resume is the state at step 5, beyond steps=3"):
        go(np.ones(2), 0.9, resume=mn.State(5, state.theta, state.memory))


def test_a_state_is_a_copy() -> None:
    net = mn.Network(mn.Dense(1), (2,))
    run = mn.train(
        net, np.ones(2), np.eye(2), np.ones((2, 1)) * 3, loss=mn.mse, optimizer=mn.SGD(lr=0.1, momentum=0.9), steps=9
    )
    states = [(snap.state, snap.state.theta.copy(), np.array(snap.state.memory)) for snap in run]
    for state, theta, memory in states:
        np.testing.assert_array_equal(state.theta, theta)
        np.testing.assert_array_equal(state.memory, memory)


def test_what_json_cannot_hold_is_refused_and_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    checkpoints.save(path, mn.State(1, np.ones(2)), {"note": "first"})
    with pytest.raises(TypeError, match="about` expects what JSON can hold"):
        checkpoints.save(path, mn.State(2, np.ones(2)), {"note": object()})
    state, about = checkpoints.load(path)
    assert (state.step, about) == (1, {"note": "first"})
    assert os.listdir(tmp_path) == ["state.npz"]


def test_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoints.load(tmp_path / "none.npz")


def test_anchors_of_another_shape_are_another_run() -> None:
    net = mn.Network(mn.Dense(1), (2,))
    model = mn.IterativelyLinearized(net, np.ones(2), 2)
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.1), "steps": 3}
    data = np.eye(2), np.ones((2, 1))
    *_, last = mn.train(model, np.ones(2), *data, **how)
    good = last.state
    for name in good.anchors:
        bad = mn.State(good.step, good.theta, good.memory, good.rng, good.anchors | {name: np.ones((2, 7))})
        with pytest.raises(ValueError, match=rf"resume expects a state of this run, .*'{name}': \(2, 7\)"):
            mn.train(model, np.ones(2), *data, **how, resume=bad)
    list(mn.train(model, np.ones(2), *data, **how, resume=good))
