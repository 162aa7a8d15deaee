"""Run `minintk verify --draw N`: test random networks and controls, store records, and make tables and a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analytic.verify.claims import signed
from analytic.verify.draws import CONTROLS, WIDTHS, record
from analytic.verify.sequential import LEVEL, LEVEL_OF_ALL, REFUSED_ABOVE, slopes
from minintk.arrays import Host
from minintk.diagnostics.power_laws import Outcome
from minintk.files.writing import write_atomically
from minintk.lab.experiments.processes import processes as start_processes
from minintk.lab.experiments.sweeps import DIVERGED, sweep

Records = list[dict[str, Any]]

QUANTITIES = {
    "linearisation": "≤ −1/2", "trend": "0", "kernel movement": "≤ −1/2", "weights": "−1/2", "kernel": "−1/2",
    "infinite width": "−1/2",
}  # fmt: skip
"""{quantity of `draws.errors`: the theory's exponent}; "trend": as in `exponents`."""


def draws(
    count: int, store: str | Path, *, seed: int = 0, widths: Sequence[int] = WIDTHS, processes: int = 1,
    each_control: int = 4, progress: bool = False,
) -> tuple[Records, Records]:  # fmt: skip
    """Return the records of `count` draws, and of `each_control` draws of each control, from sweeps in `store`."""
    work = partial(record, seed=seed, widths=tuple(widths))
    grids = {"control": [""], "draw": range(count)}, {"control": CONTROLS, "draw": range(each_control)}
    with start_processes(processes) as executor:
        settings: Any = {"store": store, "executor": executor, "progress": progress}
        law, controls = (sweep(work, grid, **settings).results if grid["draw"] else [] for grid in grids)
    return law, controls


def exponents(found: dict[str, Any], quantity: str = "linearisation") -> Host:
    """Return each seed's exponent on the wider half of the widths, (S,); for "trend", subtract the narrower half's."""
    sizes, half = found["widths"], len(found["widths"]) // 2
    errors = np.array(found["linearisation" if quantity == "trend" else quantity])
    wider = slopes(sizes[half:], errors[:, half:])
    return wider - slopes(sizes[: half + 1], errors[:, : half + 1]) if quantity == "trend" else wider


def interval(values: Any) -> tuple[float, float]:
    """Return (mean, half the 95 % interval, by Student's t) of independent values; half is inf for a single value."""
    from scipy.special import stdtrit

    a, S = np.asarray(values), len(values)
    return float(a.mean()), float(stdtrit(S - 1, 0.975) * a.std(ddof=1) / S**0.5) if S > 1 else np.inf


def _text(values: Any) -> str:
    mean, reach = interval(values) if len(values) else (np.nan, np.nan)
    return f"{signed(mean)} ± {reach:.2f}"


def rows(records: Records) -> list[tuple[str, ...]]:
    """Return (name, exponent ± its 95 % interval, verdict, rounds) for each record."""
    return [
        (found[DIVERGED], "", "diverged", "")
        if DIVERGED in found
        else (found["name"], _text(exponents(found)), found["gate"], str(found["rounds"]))
        for found in records
    ]


def by_class(records: Records) -> list[tuple[str, ...]]:
    """Return (quantity, theory, smooth, ReLU family), with each class's mean exponent over draws and its interval."""
    table = []
    for name, theory in QUANTITIES.items():
        means: dict[bool, list[Any]] = {True: [], False: []}
        for found in records:
            if DIVERGED not in found and (name == "trend" or name in found):
                means[found["smooth"]].append(np.mean(exponents(found, name)))
        table.append((name, theory, *(f"{_text(some)} ({len(some)} draws)" for some in means.values())))
    return table


def summary(law: Records, controls: Records) -> tuple[Outcome, str]:
    """Return the verdict on the law and the controls, and a text with counts and levels.

    "fail" if chance does not explain the rejections and divergences, or if a control passes the test; else "undecided"
    if a control was undecided or diverged.  Of 3,200 draws that obey the law, one diverged, at its narrowest width.
    """
    from scipy.stats import binom

    verdicts, wrong = ([row[2] for row in rows(records)] for records in (law, controls))
    kinds = [row[0].partition(":")[0] for row in rows(controls)]
    seen = Counter(kind for kind, verdict in zip(kinds, wrong) if verdict == "refused")
    power = ", ".join(f"{kind} {seen[kind]} of {many}" for kind, many in Counter(kinds).items())
    counts = {word: verdicts.count(word) for word in ("refused", "undecided", "diverged")}
    most = int(binom.isf(1e-3, len(law), LEVEL_OF_ALL))  # exceeded with probability .001 at most
    text = (
        f"{len(law)} draws: {', '.join(f'{many} {word}' for word, many in counts.items())}; right ones are refused "
        f"with probability {LEVEL_OF_ALL:g} at most and rarely diverge, so that chance explains {most} (99.9 %). "
        f"Controls refused: {power}; one that the gate cannot tell from the law passes with probability {LEVEL:g}."
    )
    if counts["refused"] + counts["diverged"] > most or "holds" in wrong:
        return "fail", text
    return "pass" if wrong.count("refused") == len(wrong) else "undecided", text


def draw_figure(law: Records, controls: Records, path: Path) -> None:
    """Plot all exponents with their intervals, and a histogram by class; the theory's bound is dashed."""
    from matplotlib import style
    from matplotlib.figure import Figure

    classes: dict[str, list[tuple[float, float]]] = {"smooth": [], "ReLU family": [], "controls": []}
    for found in law + controls:
        if DIVERGED not in found:
            kind = "controls" if found in controls else "smooth" if found["smooth"] else "ReLU family"
            classes[kind].append(interval(exponents(found)))
    with style.context("analytic.verify.look"):
        figure, start = Figure(figsize=(13, 5), layout="constrained"), 0
        left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
        for (label, some), marker in zip(classes.items(), "os^"):
            b, reach = np.array(sorted(some)).reshape(-1, 2).T
            left.errorbar(start + np.arange(len(b)), b, reach, marker=marker, ms=4, lw=0.8, ls="none", label=label)
            right.hist(b, bins=np.arange(-2.6, 1.6, 0.1).tolist(), alpha=0.6, label=label)
            start += len(b) + 2
        for line in (left.axhline, right.axvline):
            line(-0.5, color="#222222", ls="--", lw=1, label="the law's bound, −1/2")
            line(REFUSED_ABOVE, color="#999999", ls=":", lw=1, label=f"the gate, {signed(REFUSED_ABOVE)}")
        ylabel = "exponent b of sup |f − f$_{lin}$| ~ n$^b$"
        left.set(xlabel="draws, sorted within their class", ylabel=ylabel, xticks=[], ylim=(-3, 2))
        right.set(xlabel="exponent b", ylabel="draws")
        right.yaxis.get_major_locator().set_params(integer=True)
        left.legend(loc="upper left")
        write_atomically(path, lambda file: figure.savefig(file, dpi=110, format="png"))
