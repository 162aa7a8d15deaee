"""Set the style of the notes' figures, and save them so that equal figures give identical files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter

from analytic.verify.figures import COLOURS, MARKERS

Host = np.ndarray[Any, Any]
FOLDER = Path(__file__).resolve().parents[1]
matplotlib.use("Agg")
plt.style.use("analytic.verify.look")
matplotlib.rcParams |= {"svg.hashsalt": "notes", "font.size": 9, "legend.fontsize": 7.5}


def panels(count: int = 1, width: float = 3.6, height: float = 3.0) -> tuple[Any, list[Any]]:
    """Return a figure with `count` panels side by side, each of width x height inches, and the list of panels."""
    figure, axes = plt.subplots(1, count, figsize=(width * count, height), layout="constrained", squeeze=False)
    return figure, list(axes[0])


def save(figure: Any, name: str) -> None:
    """Write docs/notes/NAME.svg without a date, so that the file changes only if the figure changes."""
    for axes in figure.axes:
        axes.xaxis.set_minor_formatter(NullFormatter())  # labels between the powers of ten overlap
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def bars(axes: Any, n: Any, values: Host, at: int, label: str) -> None:
    """Plot the mean of each row of `values` against n, with its standard error, in marker and colour number `at`."""
    error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    axes.errorbar(n, values.mean(axis=1), error, fmt=MARKERS[at % 4], ms=4, color=COLOURS[at % 4], label=label)


def line(axes: Any, n: Any, y: Any, label: str | None = None, colour: str = "0.3") -> None:
    """Draw the theoretical values y against n as a dashed line."""
    axes.plot(n, y, "--", color=colour, lw=1.1, label=label)
