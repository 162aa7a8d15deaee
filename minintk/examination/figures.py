"""Draw the figures of a report: the run, the layers and the widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minintk.examination.judge import LAZY, RICH


def figures(report: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (file name, caption, Figure) for each figure for which the `Report` has data."""
    if report.run is not None:
        yield "run.png", "The network examined and its linearisation, from one start.", run(report)
        if report.run.kernel is not None:
            caption = "Shares of the kernel's trace, and what moved, by layer, with 95 % intervals."
            yield "layers.png", caption, layers(report)
    if any(law.fit for law in report.laws):
        yield "widths.png", "Gaps of networks of other widths, the fitted law with its 95 % band.", widths(report)


def canvas(columns: int, height: float = 3.6, **shared: Any) -> tuple[Any, Any]:
    """Return a Figure and its axes, which form one row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * columns, height), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False, **shared)[0]


def run(report: Any) -> Any:
    """Plot the losses, the distances and the largest stable rate against steps."""
    found = report.run
    figure, (loss, gap, rate) = canvas(3)
    loss.semilogy(found.steps, found.loss, label="network")
    loss.semilogy(found.steps, found.loss_linear, "--", label="its linearisation")
    gap.plot(found.steps, 100 * found.gap, label="gap from the linearisation")
    if found.kernel is not None:
        gap.plot(found.at, 100 * found.kernel.movement, "s-", ms=3, label="kernel moved from its start")
        rate.plot(found.at, found.rates, "o-", ms=3, label="largest stable, 2 / $\\lambda_{max}$")
    for border, name, line in ((LAZY, "lazy: gap below", ":"), (RICH, "rich: both above", "-.")):
        gap.axhline(100 * border, color="0.5", lw=1, ls=line, label=f"{name} {100 * border:g} %")
    gap.set_yscale("log", nonpositive="mask")
    gap.set_ylim(bottom=max(0.1, gap.get_ylim()[0]))
    rate.axhline(report.rate, color="C3", ls="--", lw=1, label="of this run")
    rate.set_ylim(bottom=0)
    for axes, unit, title in ((loss, "", "loss"), (gap, "%", "gap and kernel"), (rate, "", "learning rate")):
        axes.set(xlabel="step", ylabel=unit, title=title)
        axes.legend(fontsize=8)
    plain(loss)
    plain(gap)
    return figure


def plain(axes: Any) -> None:
    """Label a logarithmic axis with the numbers 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2 and so on."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 3, 5, 7)), major_formatter="{x:g}", minor_locator=NullLocator())


def layers(report: Any) -> Any:
    """Plot each layer's share of the kernel and its movements as bars, each layer in the same row of all panels."""
    names = list(report.signals)
    figure, panels = canvas(3, 1.3 + 0.2 * max(len(names), 4), sharey=True)
    keys = "share {}", "weights {}.W", "features {}"
    for axes, key, title in zip(panels, keys, ("share of the kernel", "weights moved", "inputs moved"), strict=True):
        rows = [report.statements.get(key.format(name)) for name in names]
        numbers = np.array([(s.value, *s.interval) if s else (np.nan,) * 3 for s in rows]).reshape(-1, 3)
        value, low, high = 100 * np.minimum(numbers, 10 * numbers[:, :1] + 1e-9).T
        ends = np.clip([value - low, high - value], 0, None)
        axes.barh(range(len(names)), value, xerr=ends, height=0.6, error_kw={"lw": 1, "ecolor": "0.3"})
        axes.set(xlabel="%", title=title, ylim=(len(names) - 0.4, -0.6))
    panels[0].set(yticks=range(len(names)), yticklabels=names, ylabel="layer")
    return figure


def widths(report: Any) -> Any:
    """Plot gaps against width, with the fitted lines and the target of 5 %."""
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
        ticks = [*law.widths, *([round(law.needed.value)] if law.needed is not None else [])]
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        plain(axes)
    return figure
