"""`minintk verify --draw N`: random networks and controls through the gate, a record each; tables and a figure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from minintk.arrays import Array
from minintk.experiments.sweeps import DIVERGED, sweep
from minintk.files.writing import write_bytes
from minintk.verify.claims import signed
from minintk.verify.draw_networks import record
from minintk.verify.draws import CONTROLS, WIDTHS
from minintk.verify.sequential import LEVEL, REFUSED_ABOVE, slopes

Records = list[dict[str, Any]]

QUANTITIES = {
    "linearisation": "≤ −1/2", "kernel movement": "≤ −1/2", "weights": "−1/2", "kernel": "−1/2",
    "infinite width": "−1/2",
}  # fmt: skip
"""{what `draw_networks.errors` measures: the theory's exponent}"""


def draws(
    count: int, store: str | Path, *, seed: int = 0, widths: Sequence[int] = WIDTHS, processes: int = 1,
    each_control: int = 4, progress: bool = False,
) -> tuple[Records, Records]:  # fmt: skip
    """The records of `count` draws, and of each control on `each_control` draws, kept in the sweep `store`."""
    work = partial(record, seed=seed, widths=tuple(widths))
    with _workers(processes) as executor:
        found = [
            sweep(work, grid, store=store, executor=executor, progress=progress).results if all(grid.values()) else []
            for grid in (
                {"control": [""], "draw": range(count)},
                {"control": CONTROLS, "draw": range(each_control)},
            )
        ]
    return found[0], found[1]


@contextmanager
def _workers(count: int) -> Iterator[Executor | None]:
    """Processes that end when this one does, killed or not; None for a single one."""
    if count == 1:
        yield None
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_die_with_parent) as pool:
        yield pool


def _die_with_parent() -> None:
    Thread(target=_wait, args=(parent_process(),), daemon=True).start()


def _wait(parent: Any) -> None:
    parent.join()
    os._exit(1)


def exponents(found: dict[str, Any], quantity: str = "linearisation", narrow: bool = False) -> Array:
    """The exponent of each seed, (S,), on the wider half of the widths, or on the narrower half."""
    middle = len(found["widths"]) // 2
    half = slice(middle + 1) if narrow else slice(middle, None)
    return slopes(found["widths"][half], np.array(found[quantity])[:, half])


def interval(values: Any) -> tuple[float, float]:
    """(mean, half the 95 % interval) of independent values, two or more, by Student's t."""
    from scipy.special import stdtrit

    a = np.asarray(values)
    return float(a.mean()), float(stdtrit(len(a) - 1, 0.975) * a.std(ddof=1) / len(a) ** 0.5)


def rows(records: Records) -> list[tuple[str, ...]]:
    """(name, exponent ± its 95 % interval, verdict, rounds) of each record."""
    return [
        (found["name"], _text(exponents(found)), found["gate"], str(found["rounds"]))
        if DIVERGED not in found
        else (found[DIVERGED], "", "diverged", "")
        for found in records
    ]


def by_class(records: Records) -> list[tuple[str, ...]]:
    """(quantity, theory, smooth, ReLU's family) with the mean exponent over the draws of a class, and its interval.

    trend : how much the linearisation's exponent on the wider half of the widths exceeds that on the narrower half.
    """
    table = []
    for name, theory in (QUANTITIES | {"trend": "0"}).items():
        cells = []
        for smooth in (True, False):
            some = [found for found in records if found.get("smooth") is smooth and (name in found or name == "trend")]
            if name == "trend":
                means = [np.mean(exponents(found) - exponents(found, narrow=True)) for found in some]
            else:
                means = [np.mean(exponents(found, name)) for found in some]
            cells.append(f"{_text(means)} ({len(some)} draws)")
        table.append((name, theory, *cells))
    return table


def _text(values: Any) -> str:
    if len(values) < 2:
        return ", ".join(signed(value) for value in values)
    mean, reach = interval(values)
    return f"{signed(mean)} ± {reach:.2f}"


def most_refusals(count: int, chance: float = 1e-3) -> int:
    """The number of false refusals among `count` draws that is exceeded with at most this probability.

    >>> most_refusals(100)
    5
    """
    from scipy.special import bdtrc

    return next(r for r in range(count + 1) if bdtrc(r, count, LEVEL) <= chance)


def summary(law: Records, controls: Records) -> tuple[bool, str]:
    """(whether the law holds and every control is refused, the counts in words)."""
    counts = {verdict: sum(row[2] == verdict for row in rows(law)) for verdict in ("refused", "undecided", "diverged")}
    refused, most = sum(row[2] == "refused" for row in rows(controls)), most_refusals(len(law))
    said = ", ".join(f"{many} {verdict}" for verdict, many in counts.items())
    text = (
        f"{len(law)} draws: {said}; at level {LEVEL:g} chance explains {most} refusals at most (99.9 %). "
        f"Controls: {refused} of {len(controls)} refused."
    )
    return counts["refused"] <= most and not counts["diverged"] and refused == len(controls), text


def draw_figure(law: Records, controls: Records, path: Path) -> None:
    """All exponents with their intervals, and their histogram by class; the theory's bound dashed."""
    from io import BytesIO

    from matplotlib import style
    from matplotlib.figure import Figure

    kept = [[found for found in records if DIVERGED not in found] for records in (law, controls)]
    smooth, kinked = ([found for found in kept[0] if found["smooth"] is kind] for kind in (True, False))
    with style.context("minintk.verify.look"):
        figure = Figure(figsize=(13, 5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
        start, bins = 0, np.arange(-2.6, 1.6, 0.1)
        for label, some, marker in (("smooth", smooth, "o"), ("ReLU family", kinked, "s"), ("controls", kept[1], "^")):
            found = np.array(sorted(interval(exponents(one)) for one in some)).reshape(-1, 2)
            at = start + np.arange(len(found))
            left.errorbar(at, found[:, 0], found[:, 1], marker=marker, ms=4, lw=0.8, ls="none", label=label)
            right.hist(found[:, 0], bins=bins, alpha=0.6, label=label)
            start += len(found) + 2
        for draw in (left.axhline, right.axvline):
            draw(-0.5, color="#222222", ls="--", lw=1, label="the law's bound, −1/2")
            draw(REFUSED_ABOVE, color="#999999", ls=":", lw=1, label=f"the gate, {signed(REFUSED_ABOVE)}")
        left.set(xlabel="draws, sorted within their class", ylabel="exponent b,  sup |f − f_lin| ~ n^b", xticks=[])
        left.set_ylim(-3, 2)
        right.set(xlabel="exponent b", ylabel="draws")
        left.legend(loc="upper left")
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
    write_bytes(path, buffer.getvalue())
