"""Record losses and accuracies at regular intervals of a run, save them as JSON, and plot them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minintk.files.reading import reading, whole_file
from minintk.files.writing import write_atomically


@dataclass(repr=False)
class History:
    """A table of a run, with columns step, epoch, t, lr, seconds, loss, accuracy, test_loss and test_accuracy.

    loss, accuracy : means over the batches since the previous row.  Each batch is evaluated before the parameters are
    updated with it.  test_... : values on the held-out set after `step` steps.  For an ensemble, losses and accuracies
    are lists of E values.  Accuracies are omitted if the targets are not classes.  t : as in `Snapshot`.  lr : the
    learning rate of the latest step.  seconds : running time.  Raises ValueError unless all steps are integers.

    >>> history = History([{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "test_loss": 0.5}])
    >>> history["loss"], history["test_loss"]
    (array([0.5 , 0.25]), array([nan, 0.5]))
    >>> history.last
    {'step': 2, 'loss': 0.25, 'test_loss': 0.5}
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.rows, list) or not all(isinstance(row, dict) for row in self.rows):
            raise ValueError("History expects a list of rows")
        if strange := [row["step"] for row in self.rows if type(row.get("step", 0)) is not int]:
            raise ValueError(f"History expects whole numbers as steps, got {strange[0]!r:.40}")

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return a column, (rows,) or (rows, E), with NaN for missing entries.  Raise KeyError if all are missing."""
        known = [np.shape(row[name]) for row in self.rows if name in row]
        if not known:
            raise KeyError(f"the history has no {name!r}: it has {', '.join(self.names) or 'no rows'}")
        return np.array([row.get(name, np.full(known[0], np.nan)) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"History({len(self)} rows, last {self.last})"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def last(self) -> dict[str, Any]:
        """Return the latest row, or {} if there is none."""
        return self.rows[-1] if self.rows else {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to a JSON file atomically."""
        text = "[\n" + ",\n".join(json.dumps(row) for row in self.rows) + "\n]\n"
        write_atomically(path, lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Load a history from a file that `save` wrote.  Raise ValueError (`Unreadable`) if it is not a history."""
        with reading(path, "a history", "give the file that History.save or fit wrote") as file:
            return cls(json.loads(whole_file(file).decode()))

    def draw(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Save a plot of the loss, and of the error rate if known, against the epoch or step.  Average over members."""
        if "loss" not in self.names:
            raise ValueError(f"draw expects rows with a loss, got {len(self)} rows with {list(self.names)}")
        from matplotlib.figure import Figure

        unit = "epoch" if "epoch" in self.names else "step"
        panels = [("loss", "loss L", 1.0, 0.0)]
        if "accuracy" in self.names:
            panels.append(("accuracy", "error, %", -100.0, 100.0))
        figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
        for axis, (name, label, scale, shift) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
            for column, what, style in ((name, "training batches", "o-"), (f"test_{name}", "test", "s-")):
                if column in self.names:
                    y = self[column].reshape(len(self), -1).mean(axis=1)
                    axis.plot(self[unit], shift + scale * y, style, ms=3, lw=1, label=what)
            axis.set(xlabel=unit, ylabel=label, yscale="log", title=title)
            axis.legend()
            axis.grid(alpha=0.3)
        figure.savefig(path, dpi=120)
