"""The figures of a report: the run, the layers, the widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minintk.examination.judge import LAZY, PARTS, RICH


def figures(report: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (file name, caption, Figure) of what the `Report` has."""
    if report.run is not None:
        yield "run.png", "The network (solid) beside its linearisation (dashed), from one start.", run(report)
        if report.run.kernel is not None:
            yield "layers.png", "By layer, with 95 % intervals: what moves, and shares of the kernel.", layers(report)
    if any(law.fit for law in report.laws):
        yield "widths.png", "The gap of networks of other widths, with the band of the fitted line.", widths(report)


def canvas(columns: int) -> tuple[Any, Any]:
    """Return a Figure with a row of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * columns, 3.6), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def run(report: Any) -> Any:
    """Draw loss, distances and the largest stable rate against steps."""
    found = report.run
    assert found is not None
    figure, (loss, gap, rate) = canvas(3)
    loss.semilogy(found.steps, found.loss, label="network")
    loss.semilogy(found.steps, found.loss_linear, "--", label="its linearisation")
    gap.plot(found.steps, 100 * found.gap, label="gap from the linearisation")
    if found.kernel is not None:
        gap.plot(found.at, 100 * found.kernel.movement, "s-", ms=3, label="kernel moved")
        rate.plot(found.at, found.rates, "o-", ms=3, label="2 / lambda_max")
    for border, name in ((LAZY, "lazy: gap below"), (RICH, "rich: both above")):
        gap.axhline(100 * border, color="0.5", lw=1, ls=":")
        gap.annotate(name, (found.steps[-1], 100 * border), ha="right", va="bottom", fontsize=8, color="0.4")
    rate.axhline(report.rate, color="C3", ls="--", lw=1, label="rate of this run")
    rate.set_ylim(bottom=0)
    for axes, unit, title in ((loss, "", "loss"), (gap, "%", "distance from the start"), (rate, "", "stable rate")):
        axes.set(xlabel="step", ylabel=unit, title=title)
        axes.legend(fontsize=8)
    return figure


def layers(report: Any) -> Any:
    """Draw bars by layer, 24 at most."""
    figure, panels = canvas(3)
    for axes, part, title in zip(panels, PARTS, ("share of the kernel", "weights moved", "inputs moved"), strict=True):
        rows = [(k.removeprefix(f"{part} "), s) for k, s in report.statements.items() if k.startswith(f"{part} ")][:24]
        numbers = np.array([(s.value, *s.interval) for _, s in rows]).reshape(-1, 3)
        value, low, high = 100 * np.minimum(numbers, 10 * numbers[:, :1] + 1e-9).T
        ends = np.clip([value - low, high - value], 0, None)
        axes.barh([name for name, _ in rows], value, xerr=ends, error_kw={"lw": 1, "ecolor": "0.3"})
        axes.invert_yaxis()
        axes.set(xlabel="%", title=title)
    return figure


def widths(report: Any) -> Any:
    """Draw gaps against width with the fitted lines and the asked 5 %."""
    laws = [(law, law.fit) for law in report.laws if law.fit is not None]
    figure, panels = canvas(len(laws))
    for axes, (law, fit) in zip(panels, laws, strict=True):
        for n, gaps in zip(law.widths, law.gaps, strict=True):
            axes.plot([n] * len(gaps), 100 * gaps, "o", color="C0", ms=4)
        far = law.needed.interval if law.needed is not None else (law.widths[0],)
        line = np.geomspace(min(*law.widths, *far), max(*law.widths, *far), 50)
        low, high = fit.band(line)
        axes.plot(line, 100 * fit(line), color="C0", lw=1)
        axes.fill_between(line, 100 * low, 100 * high, color="C0", alpha=0.2, lw=0)
        axes.axhline(100 * LAZY, color="0.5", ls=":", lw=1)
        axes.set(xscale="log", yscale="log", xlabel="width n", ylabel="gap, %")
        axes.set_title(f"{law.parametrization}\nwidth for 5 %: {law.answer}", fontsize=9)
        lowest, highest = axes.get_ylim()
        ticks = [*law.widths, *([round(law.needed.value)] if law.needed is not None else [])]
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.set_yticks([tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if lowest < tick < highest])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    return figure
