"""Define `fit`, which trains like `train` and adds held-out evaluation, a history, checkpoints and a progress bar."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.files.locks import claim_or_say_who
from minintk.files.reading import Unreadable
from minintk.files.writing import made_folder, remove_parts
from minintk.models.model import Model
from minintk.models.network import Network
from minintk.progress import progress_of
from minintk.training.batches import Shift
from minintk.training.checkpoints import check_fingerprint, fingerprint, load, save
from minintk.training.history import History
from minintk.training.losses import Loss, check_problem
from minintk.training.optimizers import Optimizer
from minintk.training.schedules import rate
from minintk.training.train import Descent, State, warn_if_unstable
from minintk.validate import whole

CHECKPOINT_FILE, HISTORY_FILE, CLAIM_FILE = "checkpoint.npz", "history.json", "fit.lock"
CALIBRATION_EXAMPLES = 1000
REMEDY = "use net.calibrate(theta, x), the network with frozen statistics"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The result of `fit`: the final theta : ([E], P), the final model with its last anchor, and the history."""

    theta: Array
    model: Model
    history: History

    def __repr__(self) -> str:
        return f"Run(theta {tuple(self.theta.shape)}, last row {self.history.last})"


def fit(
    model: Model,
    theta: Array,
    x: Array,
    y: Array,
    *,
    loss: Loss,
    optimizer: Optimizer,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
    every: int | None = None,
    lr_scales: Mapping[str, float] | None = None,
    augment: Shift | None = None,
    test: tuple[Array, Array] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Run:
    """Train a model and return a `Run`.  The arguments are those of `train`, except params and resume, and also:

    steps, epochs : the length of the run.  Pass exactly one of them.  An epoch has floor(N / batch_size) steps.
    every : number of steps between rows of the history, by default one epoch or, on full batches, 1/100 of the run.
    test : held-out (x, y), evaluated for every row, after BatchNorm is calibrated on up to 1000 training examples.
    checkpoint : a folder (see docs/long-runs.md) for ``checkpoint.npz`` and ``history.json``, written with
        every row and on Ctrl-C.  If the folder contains a checkpoint of this run, training resumes, with the same bits
        as an uninterrupted run (same machine, libraries and number of threads).  More steps or epochs extend it.
    progress : if True, print a line for each row, and the remaining time, to stderr.

    Before the first step, raises ValueError if the checkpoint is damaged or is from a run with another model, theta,
    data or settings, and RuntimeError if another process uses the folder.  For other errors, see `train`.

    >>> import minintk as mn
    >>> train, test = mn.datasets.digits().split(300, 100, np.random.default_rng(0))
    >>> net, rng = mn.Network(mn.zoo.mlp(1, 64, 10), (64,)), np.random.default_rng(1)
    >>> how = {"loss": mn.softmax_cross_entropy, "optimizer": mn.SGD(2.0, momentum=0.9), "batch_size": 50, "rng": rng}
    >>> run = fit(net, net.init(rng), *train.one_hot(), **how, epochs=10, test=test.one_hot())
    >>> len(run.history), run.history.last["test_accuracy"] > 0.8
    (10, True)
    """
    if (steps is None) == (epochs is None):
        raise ValueError(f"fit expects steps or epochs, one of them, got steps={steps!r} and epochs={epochs!r}")
    for name, value in (("epochs", epochs), ("every", every)):
        if value is not None:
            whole(name, value)
    run = Descent(model, theta, x, y, loss, optimizer, steps or 0, batch_size, rng, lr_scales, augment)
    if test is not None:
        if not isinstance(test, tuple) or len(test) != 2:
            raise TypeError(f"test expects a pair (x, y), got {type(test).__name__}")
        if model.coupled and not isinstance(model, Network):
            raise ValueError(f"the statistics of BatchNorm must be frozen before {model!r} has test outputs: {REMEDY}")
        check_problem(model, theta, *test, loss)
    per_epoch = run.batches.per_epoch
    total = steps if steps is not None else (epochs or 0) * per_epoch
    optimizer.check(theta, total)
    every = every or (per_epoch if batch_size is not None else max(1, total // 100))
    folder, about = None, dict[str, Any]()
    if checkpoint is not None:
        identity = fingerprint(
            model, theta, x, y, loss=loss, optimizer=optimizer, batch_size=batch_size, generator=rng,
            augment=augment, lr_scales=dict(lr_scales or {}),
        )  # fmt: skip
        folder = _Folder(checkpoint, identity)
    with nullcontext() if folder is None else folder.claim:
        if folder is not None:
            state, about = folder.load(like=theta)
            if state is not None:
                run.restore(state)
        if run.step > total:
            raise ValueError(f"{checkpoint} holds this run at step {run.step}, beyond {total}: ask for more steps")
        run.limit = None
        if run.step == 0:
            warn_if_unstable(run)
        record = _Record(History(about.get("history", [])), _are_classes(y), about, array_namespace(theta))
        _train_to(total, run, record, every, folder, test, progress)
    return Run(run.theta, run.model, record.history)


def _train_to(
    total: int, run: Descent, record: _Record, every: int, folder: _Folder | None,
    test: tuple[Array, Array] | None, progress: bool,
) -> None:  # fmt: skip
    """Train until step `total`, and append a history row and save a checkpoint every `every` steps."""

    def say(text: str) -> None:
        if progress:
            sys.stderr.write(f"{text}\n")

    if run.step:
        say(f"resuming at step {run.step} of {total}")
    with (
        _interrupt_between_steps(run, folder) as interrupted,
        progress_of("training", total - run.step, progress) as advance,
    ):
        while True:
            left = run.step < total and interrupted()
            if row := run.step > record.since and (run.step % every == 0 or run.step == total):
                record.row(run, test)
                say(_line(record.history.last))
            if folder is not None and (row or left):
                folder.save(run, record)
            if left or run.step >= total:
                return
            record.add(run, *run.advance())
            advance(1)


class _Folder:
    """The folder of a run's checkpoint and history.  claim : its lock.  identity : the run's fingerprint."""

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, str]) -> None:
        self.path, self.identity = made_folder(path, "checkpoint="), identity
        self.claim = claim_or_say_who(self.path / CLAIM_FILE, f"fit(checkpoint={str(path)!r})")

    def load(self, like: Array) -> tuple[State | None, dict[str, Any]]:
        """Load (state, about), or (None, {}) without a checkpoint.  Raise ValueError if the checkpoint does not fit."""
        for name in (CHECKPOINT_FILE, HISTORY_FILE):
            remove_parts(self.path / name)
        path = self.path / CHECKPOINT_FILE
        if not path.exists():
            return None, {}
        state, about = load(path, like=like)
        check_fingerprint(path, self.identity, about.get("run"))
        if reason := _damage(state.step, about):
            raise Unreadable(f"{path} is no checkpoint of fit ({reason}): move it away to start over")
        return state, about

    def save(self, run: Descent, record: _Record) -> None:
        """Write the history and checkpoint.  If theta is not finite, raise FloatingPointError and keep the old ones."""
        xp = array_namespace(run.theta)
        if not bool(xp.isfinite(xp.sum(run.theta))):  # the next loss would show this only after the file is overwritten
            raise FloatingPointError(f"training diverged: theta is no longer finite at step {run.step}")
        record.history.save(self.path / HISTORY_FILE)  # first: a call that finds the final checkpoint writes no files
        save(self.path / CHECKPOINT_FILE, run.state(), {"run": self.identity, **record.about()})


def _damage(step: int, about: Mapping[str, Any]) -> str:
    """Return the reason why `_Record` cannot continue from `about`, or "".  step : the step of the checkpoint."""
    try:
        rows, running, seconds = History(about["history"]).rows, about["running"], about["seconds"]
        sums = [np.asarray(value).dtype.kind for value in running["sums"].values()]
        if rows and not 0 <= rows[-1].get("step", -1) <= step:
            return f"its history ends at another step than {step}"
        if type(running["batches"]) is not int or running["batches"] < 0 or not set(sums) <= set("iuf"):
            return "its running means are no numbers"
        return "" if isinstance(seconds, (int, float)) and 0 <= seconds < float("inf") else "its time is no number"
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"


def evaluate(
    model: Model, theta: Array, x: Array, y: Array, *, loss: Loss, batch_size: int = 1000
) -> dict[str, float | list[float]]:
    """Return {"loss": L, "accuracy": fraction of correct predictions}, with lists of E values for an ensemble.

    The predicted class is the index of the largest output, or the sign of a single output.  "accuracy" is omitted
    unless all rows of y encode classes (one-hot, or -1 or 1).  batch_size : the number of examples evaluated at a time.
    Raises ValueError if BatchNorm is not calibrated or masks are active, and the exceptions of `model(theta, x)`.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Dense(1), (1,))
    >>> evaluate(net, np.ones(1), np.array([[1.0], [2.0]]), np.array([[1.0], [-1.0]]), loss=mn.mse)
    {'loss': 2.25, 'accuracy': 0.5}
    """
    check_problem(model, theta, x, y, loss)
    if model.coupled:
        raise ValueError(f"with BatchNorm an example's output depends on its batch: {REMEDY}")
    N, classes, total = x.shape[0], _are_classes(y), dict[str, Array]()
    for start in range(0, N, whole("batch_size", batch_size)):
        part = slice(start, start + batch_size)
        f, _ = model.forward(theta, x[part])
        scores = _scores(f, y[part], loss(f, y[part]), classes)
        total = {name: total.get(name, 0.0) + value * (f.shape[-2] / N) for name, value in scores.items()}
    return _numbers(total)


def _scores(f: Array, y: Array, value: Array, classes: bool) -> dict[str, Array]:
    """Return the loss, and the accuracy if the targets are classes, each () or (E,) in float64."""
    xp = array_namespace(f)
    scores = {"loss": value}
    if classes:
        right = xp.sign(f[..., 0]) == y[:, 0] if y.shape[-1] == 1 else xp.argmax(f, axis=-1) == xp.argmax(y, axis=-1)
        scores["accuracy"] = xp.mean(right.astype(f.dtype), axis=-1)
    return {name: score.astype(np.float64) for name, score in scores.items()}


def _numbers(scores: Mapping[str, Array]) -> dict[str, Any]:
    """Return the scores as Python numbers, or as lists of numbers for an ensemble."""
    return {name: to_host(score).tolist() for name, score in scores.items()}


def _are_classes(y: Array) -> bool:
    """True if every row of y encodes a class: by a single high entry, or by -1 or 1 if y has one column."""
    xp = array_namespace(y)
    if y.shape[-1] == 1:
        return bool(xp.all(xp.abs(y) == 1))
    high, low = xp.max(y), xp.min(y)
    ups, downs = xp.sum(y == high, axis=-1), xp.sum(y == low, axis=-1)
    return bool(xp.all((ups == 1) & (downs == y.shape[-1] - 1)))


class _Record:
    """The history so far, and the sums of losses and accuracies over the batches since its last row."""

    def __init__(self, history: History, classes: bool, about: Mapping[str, Any], xp: Any) -> None:
        self.history, self.classes = history, classes
        self.since = int(history.last.get("step", 0))
        running = about.get("running", {"batches": 0, "sums": {}})
        self.batches: int = running["batches"]
        self.sums = {name: to_library(np.asarray(value), xp) for name, value in running["sums"].items()}
        self.start = perf_counter() - about.get("seconds", 0.0)  # so that the time includes earlier parts of the run

    def about(self) -> dict[str, Any]:
        """Return the part of a checkpoint that restores this record."""
        running = {"batches": self.batches, "sums": _numbers(self.sums)}
        return {"history": self.history.rows, "running": running, "seconds": perf_counter() - self.start}

    def add(self, run: Descent, f: Array, value: Array) -> None:
        """Add the loss and the accuracy on one step's batch to the sums."""
        scores = _scores(f, run.y, value, self.classes)
        self.sums = {name: self.sums[name] + score if self.sums else score for name, score in scores.items()}
        self.batches += 1

    def row(self, run: Descent, test: tuple[Array, Array] | None) -> None:
        """Append a row for the current step to the history."""
        step, per_epoch = run.step, run.batches.per_epoch
        row: dict[str, Any] = {"step": step}
        if run.batches.batch_size is not None:
            row["epoch"] = step / per_epoch
        means = {name: (to_host(total) / self.batches).tolist() for name, total in self.sums.items()}
        row |= {"t": run.optimizer.t(step), "lr": rate(run.optimizer.lr, step - 1)} | means
        if test is not None:
            model, x = run.model, run.batches.x
            if model.coupled and isinstance(model, Network):
                n, known = CALIBRATION_EXAMPLES, model.statistics
                model = model._with(known) if known else model.calibrate(run.theta, x[:: -(-x.shape[0] // n)])
            row |= {f"test_{name}": value for name, value in evaluate(model, run.theta, *test, loss=run.loss).items()}
        self.history.rows.append(row | {"seconds": round(perf_counter() - self.start, 3)})
        self.since, self.batches, self.sums = step, 0, {}


@contextmanager
def _interrupt_between_steps(run: Descent, folder: _Folder | None) -> Iterator[Callable[[], bool]]:
    """With a folder, defer Ctrl-C until the step is over and the run is saved.  A second Ctrl-C acts immediately."""
    before = signal.getsignal(signal.SIGINT)
    if folder is None or threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN):
        yield lambda: False
        return
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    try:
        signal.signal(signal.SIGINT, note)
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, before)
    if noted:
        raise KeyboardInterrupt(f"step {run.step} is saved in {folder.path}; the same call resumes from there")


def _line(row: Mapping[str, Any]) -> str:
    """Return a row of the history as text, with values averaged over the ensemble."""
    texts = {
        "step": "step {:.0f}", "epoch": "epoch {:.4g}", "seconds": "{:.1f} s", "loss": "loss {:.4g}",
        "accuracy": "accuracy {:.2%}", "test_loss": "test loss {:.4g}", "test_accuracy": "test accuracy {:.2%}",
    }  # fmt: skip
    return ", ".join(text.format(float(np.mean(row[name]))) for name, text in texts.items() if name in row)
